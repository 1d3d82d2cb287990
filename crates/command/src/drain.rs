//! `drain` and its wait: a conversation with the daemon of this host, line by line, until its process
//! has ended.

use super::control::{OrderOptions, is_executed, order, print_answer, print_failure};
use super::output::print_error;
use super::unsafe_calls::{ENDING_SIGNALS, end_by, is_ignored, process_of, with_signals_blocked};
use connect::{OrderError, connect_unix};
use protocol::answers::{DRAINED, NOT_DRAINING, NOT_HEARD, STILL_DRAINING, TOO_MANY};
use protocol::time_from_text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use schema::reports::Report;
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Below the options of `drain`.
pub(super) const AFTER_HELP: &str = "\
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
    let answer_timeout = options.timeout.unwrap_or(connect::ANSWER_TIMEOUT);
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
    /// Keeps `arrived` open when all of them are ignored and no handler has a copy.
    _sender: UnixStream,
    /// Which one.
    signal: Arc<AtomicUsize>,
}

impl EndingSignals {
    fn watch() -> io::Result<EndingSignals> {
        let (arrived, sender) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        // A signal that arrives between two of these calls would be lost.
        with_signals_blocked(|| -> io::Result<()> {
            // nohup(1) has the command ignore some.
            for number in ENDING_SIGNALS.into_iter().filter(|number| !is_ignored(*number)) {
                flag::register_usize(number, Arc::clone(&signal), number as usize)?;
                pipe::register(number, sender.try_clone()?)?;
            }
            Ok(())
        })?;
        Ok(EndingSignals { arrived, _sender: sender, signal })
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
    let timeout = options.timeout.unwrap_or(connect::ANSWER_TIMEOUT);
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
