//! Orders to the daemon of this host and their answers: `undrain`, `free`, `rules`, `rule`, `control`;
//! what all orders have in common.

use super::ask::{Answer, key_from_user, read_answer};
use super::duration::{parse_bounded_duration, whole_seconds};
use super::lists::List;
use super::output::{print, print_error, print_json};
use super::shown_key::{readable, shown};
use super::status;
use connect::OrderError;
use protocol::answers::ERROR;
use protocol::{key_text, time_text};
use schema::reports::{FreedReport, RulesReport};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    pub(super) timeout: Option<Duration>,

    /// Refused, since an order goes to the daemon of this host.
    // Takes the place of the option of all other subcommands, and is not in the help.
    #[arg(short = 's', long = "server", value_name = "SERVER", hide = true, global = true)]
    pub(super) server: Vec<String>,
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
    connect::send_order(&options.socket, line, options.timeout.unwrap_or(usual)).map_err(|e| {
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

pub(super) fn is_executed(answer: &str) -> bool {
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
        match self {
            RuleAction::Set { lasts, name, pattern, settings } => {
                let mut words = vec!["SET".to_owned(), name.clone()];
                if let Some(lasts) = lasts {
                    let lasts = Duration::from_secs(whole_seconds(*lasts));
                    words.extend(["FOR".to_owned(), time_text(lasts)]);
                }
                words.push(pattern.clone());
                words.extend(settings.iter().cloned());
                words
            }
            RuleAction::Off { name } => vec!["OFF".to_owned(), name.clone()],
            RuleAction::Reset { name } => vec!["RESET".to_owned(), name.clone()],
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
