//! `stats`, `keys`, `key`, `clients` and `slow`: what servers answer, as text or JSON.

use super::saying::{clear_screen, complain, on_a_screen, say, say_json};
use super::status;
use super::table::Answer;
use crate::ServerName;
use crate::protocol::{key_from_text, key_text};
use crate::question::{NoAnswer, Questions};
use crate::request::key_on_the_wire;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Times of STATS FULL, and their names in STATS JSON.
const TIMES: [(&str, &str); 8] = [
    ("total processing time", "processing"),
    ("average processing time", "average_processing"),
    ("gained time", "gained"),
    ("waiting time", "waiting"),
    ("waiting time for me", "waiting_for_me"),
    ("waiting time for anyone", "waiting_for_anyone"),
    ("waiting time for good", "waiting_for_good"),
    ("wasted timeout time", "wasted_timeout"),
];

/// Prints each server's answer to `STATS words`.
pub(super) fn show(servers: &[ServerName], words: &str, as_json: bool) -> ExitCode {
    status_of(print_each(servers, |questions| {
        let text = questions.ask(words)?;
        Ok(if as_json { Shown::Json(Answer::read(&text).json()) } else { Shown::Text(text) })
    }))
}

/// Prints who holds a key and who waits for it. A space in it is sent as `%20`, and a
/// backslash that begins no byte's number is itself.
pub(super) fn show_key(servers: &[ServerName], key: &[u8], as_json: bool) -> ExitCode {
    if key.is_empty() || key.contains(&b'\n') {
        complain("a key is not empty and has no line end");
        return ExitCode::from(status::USAGE);
    }
    let key = key_on_the_wire(key);
    let key = key_from_text(&key).unwrap_or(key);
    // As text: a carriage return would be taken for a part of the line's end.
    show(servers, &format!("KEY {}", key_text(&key)), as_json)
}

/// Prints the statistics of each server. As JSON: all that the server tells, and of an
/// older one what `STATS FULL` has, under the same names.
pub(super) fn stats(servers: &[ServerName], as_json: bool) -> ExitCode {
    if !as_json {
        return show(servers, "FULL", false);
    }
    status_of(print_each(servers, |questions| everything(questions).map(Shown::Json)))
}

/// `STATS JSON`, or the part of it that an older server tells.
pub(super) fn everything(questions: &mut Questions) -> Result<Value, NoAnswer> {
    match questions.ask("JSON") {
        Ok(text) => serde_json::from_str(&text).map_err(|e| NoAnswer::Refused(e.to_string())),
        Err(NoAnswer::Unknown) => Ok(full_as_json(&Answer::read(&questions.ask("FULL")?))),
        Err(e) => Err(e),
    }
}

fn full_as_json(full: &Answer) -> Value {
    let times = TIMES.iter().filter_map(|(name, short)| Some((*short, full.number(name)?)));
    let times: Map<String, Value> = times.map(|(name, s)| (name.to_owned(), s.into())).collect();
    let counters = full.values.iter().filter(|(name, _)| !name.contains(' '));
    let counters =
        counters.filter_map(|(name, value)| Some((name.clone(), value.parse::<u64>().ok()?)));
    let counters: Map<String, Value> = counters.map(|(name, n)| (name, n.into())).collect();
    json!({ "uptime_s": full.number("uptime"), "counters": counters, "times_s": times })
}

/// Prints the statistics again and again, with the change of each number per second.
/// Returns when they can't be written; a server that does not answer is told each time.
pub(super) fn watch(servers: &[ServerName], as_json: bool, interval: Duration) -> ExitCode {
    let is_cleared = !as_json && on_a_screen();
    let mut before: Vec<Option<(Answer, Instant)>> = vec![None; servers.len()];
    loop {
        let is_written = if as_json {
            print_each(servers, |questions| everything(questions).map(Shown::Json)).is_ok()
        } else {
            let text: String = servers.iter().zip(&mut before).map(|(s, b)| look(s, b)).collect();
            (!is_cleared || clear_screen()) && say(&text)
        };
        if !is_written {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(interval);
    }
}

/// What a server tells now, and what has changed since it told `before`.
fn look(server: &ServerName, before: &mut Option<(Answer, Instant)>) -> String {
    let connected = Questions::connect(server).map_err(NoAnswer::Io);
    match connected.and_then(|mut questions| questions.ask("FULL")) {
        Ok(full) => {
            let now = (Answer::read(&full), Instant::now());
            let text = with_rates(&now, before.as_ref());
            *before = Some(now);
            format!("{server}\n{text}\n")
        }
        Err(e) => format!("{server}\n  {e}\n\n"),
    }
}

/// Other servers and a stopped job may have taken longer than the interval.
fn with_rates((now, at): &(Answer, Instant), before: Option<&(Answer, Instant)>) -> String {
    let mut text = String::new();
    for (name, value) in &now.values {
        let old = before.and_then(|(before, then)| Some((before.number(name)?, then)));
        let rate = match (now.number(name), old) {
            (Some(new), Some((old, then))) if name != "uptime" && new != old => {
                let seconds = (*at - *then).as_secs_f64().max(1e-3);
                format!("{:+.1}/s", (new - old) / seconds)
            }
            _ => String::new(),
        };
        text += format!("  {name:24} {value:>24} {rate:>14}").trim_end();
        text.push('\n');
    }
    text
}

enum Shown {
    Text(String),
    Json(Value),
}

/// That standard output can't be written.
struct Unwritten;

fn status_of(printed: Result<ExitCode, Unwritten>) -> ExitCode {
    printed.unwrap_or(ExitCode::FAILURE)
}

/// Prints what each server answers; of several, with its name. The status is that of
/// the last failure.
fn print_each(
    servers: &[ServerName],
    mut ask: impl FnMut(&mut Questions) -> Result<Shown, NoAnswer>,
) -> Result<ExitCode, Unwritten> {
    let mut code = ExitCode::SUCCESS;
    for server in servers {
        let connected = Questions::connect(server).map_err(NoAnswer::Io);
        let is_said = match connected.and_then(|mut questions| ask(&mut questions)) {
            Ok(Shown::Text(text)) if servers.len() == 1 => say(&text),
            Ok(Shown::Text(text)) => say(&format!("{server}\n{text}\n")),
            Ok(Shown::Json(mut value)) => {
                if let Value::Object(object) = &mut value {
                    object.insert("server".to_owned(), server.as_str().into());
                }
                say_json(&value)
            }
            Err(e) => {
                complain(&format!("{server}: {e}"));
                let is_down = matches!(e, NoAnswer::Io(_));
                code = ExitCode::from(if is_down { status::NO_SERVER } else { status::PROTOCOL });
                continue;
            }
        };
        if !is_said {
            return Err(Unwritten);
        }
    }
    Ok(code)
}
