//! Orders to the daemon of this host: `drain` and its wait, line by line, until the process has
//! ended; `undrain`, `free`, `rules`, `rule`, `control`.

use super::ask::{Answer, key_from_user, read_answer};
use super::duration::{parse_bounded_duration, whole_seconds};
use super::lists::List;
use super::output::{print, print_error, print_json};
use super::shown_key::{readable, shown};
use super::status;
use super::unsafe_calls::{ENDING_SIGNALS, end_by, is_ignored, process_of};

use connect::{OrderError, connect_unix};
use protocol::answers::{DRAINED, ERROR, NOT_DRAINING, NOT_HEARD, STILL_DRAINING, TOO_MANY};
use protocol::{key_text, time_from_text, time_text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schema::reports::{FreedReport, Report, RulesReport};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The heading of the options of all orders.
const OF_ORDERS: &str = "Options of orders";

/// Options of all orders.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OrderOptions {
    /// The daemon's control socket.
    #[arg(
        long = "control-socket",
        value_name = "PATH",
        default_value = connect::DEFAULT_PATH,
        global = true,
        help_heading = OF_ORDERS
    )]
    pub(super) socket: PathBuf,

    /// Print the answer as JSON.
    #[arg(long, global = true, help_heading = OF_ORDERS)]
    json: bool,

    /// How long to wait for the answer; the daemon may execute the order without one.
    /// [default: 10, or 60 for a hot restart]
    #[arg(long, value_name = "TIME", global = true, value_parser = parse_bounded_duration,
          help_heading = OF_ORDERS)]
    timeout: Option<Duration>,

    /// Refused, since an order goes to the daemon of this host.
    // Takes the place of the option of all other subcommands, and is not in the help.
    #[arg(short = 's', long = "server", value_name = "SERVER", hide = true, global = true)]
    pub(super) server: Vec<String>,
}

impl OrderOptions {
    fn timeout(&self, usual: Duration) -> Duration {
        self.timeout.unwrap_or(usual)
    }
}

/// Sends one order and prints the answer. Exits with 0 if it is executed, 1 if not or if the
/// answer can't be written.
pub(super) fn order(line: &str, options: &OrderOptions) -> ExitCode {
    order_and(line, options, |answer| Ok(print_answer(answer, options)))
}

/// As [`order`], with the answer printed by `print`, which tells whether it could.
fn order_and(
    line: &str,
    options: &OrderOptions,
    print: impl FnOnce(&str) -> Result<bool, ExitCode>,
) -> ExitCode {
    let ended = send(line, options).and_then(|answer| {
        let is_done = print(&answer)? && is_executed(&answer);
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    });
    ended.unwrap_or_else(|code| code)
}

/// The answer to an order.
///
/// # Errors
/// There is none, which is printed.
fn send(line: &str, options: &OrderOptions) -> Result<String, ExitCode> {
    if line.contains('\n') {
        print_error("an order is one line");
        return Err(ExitCode::from(status::USAGE));
    }
    let is_restart = line.split(' ').next() == Some("RESTART");
    let usual = if is_restart { connect::RESTART_TIMEOUT } else { connect::ANSWER_TIMEOUT };
    connect::send_order(&options.socket, line, options.timeout(usual)).map_err(|e| {
        let status = match &e {
            OrderError::Unreachable(why) => return print_failure(why, options),
            OrderError::Unanswered | OrderError::Silent(_) => status::NO_SERVER,
            OrderError::Cut(heard) => {
                let heard = heard.trim_end();
                if options.json {
                    print_json(&json!({ "ok": false, "answer": readable(heard) }));
                } else {
                    print(&shown(heard));
                }
                status::PROTOCOL
            }
        };
        print_error(&format!("{}: {e}", options.socket.display()));
        ExitCode::from(status)
    })
}

fn is_executed(answer: &str) -> bool {
    !answer.starts_with(ERROR)
}

/// Prints an answer. False if it can't be written.
pub(super) fn print_answer(answer: &str, options: &OrderOptions) -> bool {
    if options.json {
        print_json(&answer_in_json(answer))
    } else {
        print(&shown(answer.trim_end()))
    }
}

/// The members of an answer that is in JSON, and those of every answer.
fn answer_in_json(answer: &str) -> Value {
    let members = read_answer::<Value>(answer).map(|answer| answer.json);
    let mut json = match members {
        Ok(members @ Value::Object(_)) => members,
        _ => json!({ "answer": readable(answer.trim_end()) }),
    };
    json["ok"] = is_executed(answer).into();
    json
}

/// Sends an order whose answer is a list in JSON; prints that, or the list for people behind `head`.
fn list<R: DeserializeOwned + Into<List>>(
    line: &str,
    options: &OrderOptions,
    head: impl Fn(&R) -> String,
) -> ExitCode {
    order_and(line, options, |answer| {
        let report = read_answer::<R>(answer).ok().filter(|_| !options.json);
        Ok(match report {
            Some(Answer { report, .. }) => print(&(head(&report) + &report.into().text())),
            None => print_answer(answer, options),
        })
    })
}

/// Prints the rules.
pub(super) fn rules(options: &OrderOptions) -> ExitCode {
    list("RULES --json", options, |_: &RulesReport| String::new())
}

/// Prints why there is no answer.
pub(super) fn print_failure(why: &io::Error, options: &OrderOptions) -> ExitCode {
    let hint = match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            "; no daemon has this socket: one that has drained has exited, and one with another \
             path in --control needs --control-socket"
        }
        io::ErrorKind::PermissionDenied => {
            "; root and the daemon's user may give orders: try sudo (or the daemon's --control-group)"
        }
        _ => "",
    };
    print_error(&format!("{}: {why}{hint}", options.socket.display()));
    ExitCode::from(status::NO_SERVER)
}

pub(super) const DRAIN_AFTER_HELP: &str = "\
Exit status of --wait: 0 the daemon has exited, 1 it still drains, 2 it takes
new clients again.";

/// How soon to ask again if others take all the places.
const PAUSE: Duration = Duration::from_secs(1);

/// After so long, and then as often as the second says, a wait shows who is left.
const FIRST_LOOK: Duration = Duration::from_secs(3);
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How many addresses it names.
const LEFT_SHOWN_MAX: usize = 5;

/// Options of a drain.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DrainOptions {
    /// Wait until the daemon has exited, but no longer than TIME.
    /// [default: for ever]
    #[arg(long, value_name = "TIME", num_args = 0..=1, value_parser = time_from_text)]
    wait: Option<Option<Duration>>,

    #[command(flatten)]
    pub(super) order: OrderOptions,
}

/// How a drain ends.
enum DrainEnd {
    Ended,
    /// It still drained when the wait was over.
    Drains,
    /// It takes new clients again.
    Undrained,
}

pub(super) fn drain(options: &DrainOptions) -> ExitCode {
    let order_options = &options.order;
    let Some(wait_max) = options.wait else {
        return order("DRAIN", order_options);
    };
    let (answer, status) = match drain_and_wait(wait_max, order_options) {
        Ok(DrainEnd::Ended) => ("OK ended".to_owned(), 0),
        Ok(DrainEnd::Drains) => (STILL_DRAINING.to_owned(), 1),
        Ok(DrainEnd::Undrained) => (NOT_DRAINING.to_owned(), 2),
        Err(e) => return print_failure(&e, order_options),
    };
    if print_answer(&answer, order_options) { ExitCode::from(status) } else { ExitCode::FAILURE }
}

fn drain_and_wait(wait_max: Option<Duration>, options: &OrderOptions) -> io::Result<DrainEnd> {
    let until = wait_max.and_then(|wait| Instant::now().checked_add(wait));
    let answer_timeout = options.timeout(connect::ANSWER_TIMEOUT);
    let answer_until = Instant::now() + answer_timeout;
    let mut waiting = DrainWait::connect(options, Some(answer_until))?;
    waiting.ask();
    loop {
        match waiting.next_event()? {
            DrainEvent::Late if !waiting.is_draining => {
                return Err(io::Error::other(OrderError::Silent(answer_timeout)));
            }
            DrainEvent::Late => return Ok(DrainEnd::Drains),
            DrainEvent::End => return Ok(DrainEnd::Ended),
            DrainEvent::Line(line) => match line.as_str() {
                DRAINED => return waiting.wait_for_process_end(),
                NOT_DRAINING => return Ok(DrainEnd::Undrained),
                // Others also wait. The daemon closes this connection.
                TOO_MANY => waiting.pause()?,
                // The daemon was about to end, or gives its socket up.
                NOT_HEARD if waiting.is_draining => {
                    return waiting.wait_for_process_end();
                }
                line if !is_executed(line) => return Err(io::Error::other(line)),
                line => {
                    print_answer(line, options);
                    (waiting.is_draining, waiting.until) = (true, until);
                    waiting.next_look = Instant::now().checked_add(FIRST_LOOK);
                }
            },
            // It may have closed before it read the order.
            DrainEvent::Closed if waiting.reconnect() => waiting.ask(),
            DrainEvent::Closed => return waiting.wait_for_process_end(),
        }
    }
}

/// A conversation with one daemon until its end, over its hot restarts.
struct DrainWait<'a> {
    options: &'a OrderOptions,
    until: Option<Instant>,
    /// The daemon has said so.
    is_draining: bool,
    /// When to show next who is left.
    next_look: Option<Instant>,
    signals: EndingSignals,
    stream: UnixStream,
    /// The start of the daemon's next line.
    received: Vec<u8>,
    /// `None` if it is in another container.
    daemon: Option<Pid>,
    /// Readable when the daemon has ended.
    end: Option<OwnedFd>,
}

enum DrainEvent {
    Line(String),
    /// The connection is closed: a hot restart or the end.
    Closed,
    /// The daemon has ended.
    End,
    Late,
}

impl DrainWait<'_> {
    fn connect(options: &OrderOptions, until: Option<Instant>) -> io::Result<DrainWait<'_>> {
        // Comes first: who sees the connection may send a signal.
        let signals = EndingSignals::watch()?;
        let stream = connect(options)?;
        let daemon = process_of(&stream);
        let end = daemon.and_then(|daemon| pidfd_open(daemon, PidfdFlags::empty()).ok());
        Ok(DrainWait {
            options,
            until,
            is_draining: false,
            next_look: None,
            signals,
            stream,
            received: Vec::new(),
            daemon,
            end,
        })
    }

    /// Connects to the same daemon again, if it is there.
    fn reconnect(&mut self) -> bool {
        let Ok(stream) = connect(self.options) else { return false };
        let is_same = self.daemon.is_none() || process_of(&stream) == self.daemon;
        if is_same {
            self.stream = stream;
            self.received.clear();
        }
        is_same
    }

    /// Leaves the places to others for a while.
    fn pause(&self) -> io::Result<()> {
        let until = Instant::now() + PAUSE;
        let until = self.until.map_or(until, |at| at.min(until));
        self.wait_for_end(Some(until)).map(drop)
    }

    /// Orders the drain, unless the daemon has said that it drains, and asks to be told of its end.
    fn ask(&mut self) {
        let lines = if self.is_draining { "DRAINED\n" } else { "DRAIN\nDRAINED\n" };
        // If the connection is closed already, the next event is its end.
        let _ = self.stream.write_all(lines.as_bytes());
    }

    /// Waits for the next event; lines of the daemon come before its end.
    fn next_event(&mut self) -> io::Result<DrainEvent> {
        loop {
            if let Some(len) = self.received.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.received.drain(..=len).collect();
                return Ok(DrainEvent::Line(String::from_utf8_lossy(&line[..len]).into_owned()));
            }
            let wakes_at = self.until.into_iter().chain(self.next_look).min();
            let mut fds = vec![PollFd::new(&self.stream, PollFlags::IN)];
            fds.push(PollFd::new(&self.signals.arrived, PollFlags::IN));
            fds.extend(self.end.iter().map(|end| PollFd::new(end, PollFlags::IN)));
            if !wait_for_any(&mut fds, wakes_at)? {
                if self.until.is_some_and(|until| until <= Instant::now()) {
                    return Ok(DrainEvent::Late);
                }
                self.show_who_is_left();
                continue;
            }
            if !fds[1].revents().is_empty() {
                self.signals.end(self.is_draining);
            }
            if fds[0].revents().is_empty() {
                return Ok(DrainEvent::End);
            }
            let mut buffer = [0; 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(DrainEvent::Closed),
                Ok(len) => self.received.extend_from_slice(&buffer[..len]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(DrainEvent::Closed);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Prints who is left, unless the daemon does not say.
    fn show_who_is_left(&mut self) {
        self.next_look = Instant::now().checked_add(LOOK_INTERVAL);
        let report = connect::send_order(&self.options.socket, "STATS JSON", PAUSE).ok();
        if let Some(report) = report.and_then(|report| serde_json::from_str(&report).ok()) {
            print_error(&who_is_left(&report));
        }
    }

    /// Waits until the process has ended, which sends nothing more.
    fn wait_for_process_end(&self) -> io::Result<DrainEnd> {
        let has_ended = self.end.is_none() || self.wait_for_end(self.until)?;
        Ok(if has_ended { DrainEnd::Ended } else { DrainEnd::Drains })
    }

    /// Waits until the process has ended; false when the time is over.
    fn wait_for_end(&self, until: Option<Instant>) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.signals.arrived, PollFlags::IN)];
        fds.extend(self.end.iter().map(|end| PollFd::new(end, PollFlags::IN)));
        let is_early = wait_for_any(&mut fds, until)?;
        if !fds[0].revents().is_empty() {
            self.signals.end(self.is_draining);
        }
        Ok(is_early)
    }
}

/// As `still draining, connections left: 3 (10.1.2.3 2, 10.1.2.4 1), locks held: 2`.
fn who_is_left(report: &Report) -> String {
    let clients = report.clients.iter().take(LEFT_SHOWN_MAX);
    let mut shown: Vec<String> =
        clients.map(|client| format!("{} {}", client.address, client.connections)).collect();
    if report.addresses > shown.len() {
        shown.push(format!("{} addresses more", report.addresses - shown.len()));
    }
    let held = report.counters.get("processing_workers").copied().unwrap_or(0);
    let left = format!("connections left: {} ({})", report.connections, shown.join(", "));
    format!("still draining, {left}, locks held: {held}")
}

/// Signals that end this command. The drain does not end with it.
struct EndingSignals {
    /// Readable when one has arrived.
    arrived: UnixStream,
    /// Which one.
    signal: Arc<AtomicUsize>,
}

impl EndingSignals {
    fn watch() -> io::Result<EndingSignals> {
        let (arrived, sender) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        // nohup(1) has the command ignore some.
        for number in ENDING_SIGNALS.into_iter().filter(|number| !is_ignored(*number)) {
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
            pipe::register(number, sender.try_clone()?)?;
        }
        Ok(EndingSignals { arrived, signal })
    }

    /// Ends this command by the signal that has arrived.
    fn end(&self, is_draining: bool) -> ! {
        print_error(if is_draining {
            "interrupted; that ends no drain (undrain does)"
        } else {
            "interrupted before the daemon answered; it may drain (undrain ends it)"
        });
        end_by(self.signal.load(Ordering::SeqCst) as i32)
    }
}

fn connect(options: &OrderOptions) -> io::Result<UnixStream> {
    let timeout = options.timeout(connect::ANSWER_TIMEOUT);
    connect_unix(&options.socket, timeout).map(UnixStream::from)
}

/// Waits until one of them is ready. False when the time is over.
fn wait_for_any(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout: Option<Timespec> = left.map(|left| left.try_into().expect("a short time"));
        match poll(fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// Options of `free`.
#[derive(Debug, clap::Args)]
pub(super) struct FreeOptions {
    #[command(flatten)]
    target: Target,

    /// Show which locks would be freed, and close nothing.
    #[arg(long, help_heading = "Safeguards")]
    dry_run: bool,

    /// Close this many connections at most; if more match, close none.
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Safeguards")]
    max: u32,

    #[command(flatten)]
    pub(super) order: OrderOptions,
}

/// Which connections.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
#[command(next_help_heading = "Which connections")]
struct Target {
    /// Those that hold this key. Bytes can be written as \xNN, as lists show them.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The one that lists show as #NUMBER.
    #[arg(long, value_name = "NUMBER", value_parser = parse_client)]
    client: Option<u32>,

    /// All from this address.
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
}

fn parse_client(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.strip_prefix('#').unwrap_or(text).parse()
}

/// Sends the order and prints the answer.
pub(super) fn free(options: &FreeOptions) -> ExitCode {
    let FreeOptions { order: order_options, target, dry_run, max } = options;
    let dry_run = if *dry_run { "--dry-run " } else { "" };
    let target = match target {
        Target { key: Some(key), .. } => {
            format!("KEY {}", key_text(&key_from_user(key.as_bytes())))
        }
        Target { client: Some(client), .. } => format!("#{client}"),
        Target { host, .. } => format!("HOST {}", host.as_deref().unwrap_or_default()),
    };
    let line = format!("FREE --json {dry_run}{target} {max}");
    list(&line, order_options, |report: &FreedReport| {
        let what = if report.dry_run { "would close" } else { "closed" };
        let connections = if report.freed == 1 { "connection" } else { "connections" };
        let FreedReport { freed, holds, waits, .. } = report;
        format!("OK {what} {freed} {connections}: holds: {holds}, waits: {waits}\n")
    })
}

/// What is done about a rule.
#[derive(Debug, clap::Subcommand)]
pub(super) enum RuleAction {
    /// Replace the rule of this name, or put it in front of all others.
    Set {
        /// How long the rule applies, such as 90, 30m or 1h30m; then what it replaced
        /// returns. [default: until another order]
        #[arg(long = "for", value_name = "TIME", value_parser = parse_bounded_duration)]
        lasts: Option<Duration>,
        /// A letter a to z, then letters, digits, _ or -.
        #[arg(value_name = "NAME")]
        name: String,
        /// Which keys; * stands for anything, \xNN for a byte. Write a space as %20.
        #[arg(value_name = "PATTERN")]
        pattern: String,
        /// workers=N maxqueue=N timeout=TIME total=N max-hold=TIME stuck-after=TIME|never deny
        #[arg(value_name = "SETTINGS")]
        settings: Vec<String>,
    },
    /// Disable the rule of this name, also if it is in the file.
    Off {
        /// The rule.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// End the order about this rule that applies: what it replaced returns.
    Reset {
        /// The rule.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

impl RuleAction {
    /// The order, in words: what is done, the name of the rule, and more.
    fn words(&self) -> Vec<String> {
        let own = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        match self {
            RuleAction::Set { lasts, name, pattern, settings } => {
                let mut words = own(["SET", name]);
                if let Some(lasts) = lasts {
                    let lasts = Duration::from_secs(whole_seconds(*lasts));
                    words.extend(["FOR".to_owned(), time_text(lasts)]);
                }
                words.push(pattern.clone());
                words.extend(settings.iter().cloned());
                words
            }
            RuleAction::Off { name } => own(["OFF", name]),
            RuleAction::Reset { name } => own(["RESET", name]),
        }
    }
}

/// Sends the order and prints the answer.
pub(super) fn rule(action: &RuleAction, options: &OrderOptions) -> ExitCode {
    let words = action.words();
    let is_odd = |word: &&String| word.is_empty() || word.contains(char::is_whitespace);
    if let Some(odd) = words.iter().find(is_odd) {
        print_error(&format!("{odd:?} is not one word; a space in a key is sent as %20"));
        return ExitCode::from(status::USAGE);
    }
    let line = format!("RULE {}", words.join(" "));
    if !options.json {
        return order(&line, options);
    }
    order_and(&line, options, |answer| {
        let mut json = answer_in_json(answer);
        if is_executed(answer) {
            json["rule"] = rule_in(&send("RULES --json", options)?, &words[1]);
        }
        Ok(print_json(&json))
    })
}

/// The rule of this name in the answer to `RULES --json`; null if it is gone.
fn rule_in(rules: &str, name: &str) -> Value {
    let rules = answer_in_json(rules);
    let named = rules["rules"].as_array().into_iter().flatten().find(|rule| rule["rule"] == name);
    named.cloned().unwrap_or_default()
}
