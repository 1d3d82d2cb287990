//! `keys --all` and `keys PATTERN`: asks a server for the keys in its table, a piece after the
//! other, so that neither it nor the command holds all of them at once.

use super::every_server::distinct;
use super::lists::{KEY_COLUMNS, ListKind, keys};
use super::output::{print, print_error};
use super::stats::{ask_json, key_from_user, print_failure, print_lists, print_of_server};
use super::status;
use super::table::Table;
use connect::{NoAnswer, ServerName, StatsConnection};
use protocol::key_text;
use serde_json::{Value, json};
use std::process::ExitCode;

/// How many pieces one connection asks for: its time for all answers is bounded.
const PIECES_PER_CONNECTION: usize = 50;

/// The daemon reads no longer pattern.
const PATTERN_CHARS_MAX: usize = 256;

/// How many rows are kept beyond those that are printed, before they are sorted.
const SPARE_ROWS: usize = 1_000;

/// Options of `keys`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeysOptions {
    /// How many rows, of all servers together: 20 by default, and 200 at most of a server. And
    /// which keys: a pattern as rules have it, in which * stands for anything and \xNN for a
    /// byte. A word of digits alone is a number of rows, unless another one precedes it.
    #[arg(value_name = "N|PATTERN", num_args = 0..=2)]
    words: Vec<std::ffi::OsString>,

    /// List all keys, or all that match, in no order, while they arrive.
    #[arg(long)]
    all: bool,

    /// Print an object of JSON for each server; with --all, several.
    #[arg(long)]
    json: bool,
}

/// What is asked for.
struct Wanted {
    /// `None` without a number.
    rows: Option<u32>,
    pattern: Option<String>,
}

/// # Errors
/// The words are not valid.
fn wanted(words: &[std::ffi::OsString]) -> Result<Wanted, String> {
    use std::os::unix::ffi::OsStrExt;
    let number = |word: &[u8]| -> Option<Result<u32, String>> {
        let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        is_number.then(|| match String::from_utf8_lossy(word).parse() {
            Ok(0) => Err("0 rows".to_owned()),
            Ok(rows) => Ok(rows),
            Err(_) => Ok(u32::MAX),
        })
    };
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let (rows, pattern) = match words[..] {
        [] => (None, None),
        [word] => match number(word) {
            Some(rows) => (Some(rows?), None),
            None => (None, Some(word)),
        },
        [first, second] => match (number(first), number(second)) {
            (Some(rows), _) => (Some(rows?), Some(second)),
            (None, Some(rows)) => (Some(rows?), Some(first)),
            (None, None) => return Err("two patterns".to_owned()),
        },
        _ => return Err("more than a number and a pattern".to_owned()),
    };
    Ok(Wanted { rows, pattern: pattern.map(pattern_text).transpose()? })
}

/// The pattern as the daemon reads it.
fn pattern_text(pattern: &[u8]) -> Result<String, String> {
    let piece = |piece: &[u8]| key_text(&key_from_user(piece)).replace('*', "\\x2a");
    let mut text = pattern.split(|&byte| byte == b'*').map(piece).collect::<Vec<_>>().join("*");
    // As keys may have them there; in a rule they would be a slip.
    for at in [text.len().saturating_sub(1), 0] {
        if let Some(&quote @ (b'"' | b'\'')) = text.as_bytes().get(at) {
            text.replace_range(at..=at, &format!("\\x{quote:02x}"));
        }
    }
    match text.len() {
        _ if pattern.contains(&b'\n') => Err("no key has a line end".to_owned()),
        0 => Err("an empty pattern matches no key; * matches all".to_owned()),
        len if len > PATTERN_CHARS_MAX => Err(format!(
            "a pattern has at most {PATTERN_CHARS_MAX} characters, four for each \\xNN"
        )),
        _ => Ok(text),
    }
}

/// The keys that begin like `text`, which a list has cut, whole and as text.
pub(super) fn keys_that_begin(
    connection: &mut StatsConnection,
    text: &str,
) -> Result<Vec<String>, NoAnswer> {
    let Ok(pattern) = pattern_text(text.as_bytes()) else { return Ok(Vec::new()) };
    let (mut found, mut place) = (Vec::new(), Some(0));
    while let Some(from) = place {
        let piece = ask_json(connection, &question(from, &format!("{pattern}*")))?;
        let keys = piece["keys"].as_array().into_iter().flatten();
        let keys = keys.filter_map(|key| key["key"].as_str()).filter(|key| key.starts_with(text));
        found.extend(keys.map(str::to_owned));
        place = next_place(&piece, from)?;
    }
    Ok(found)
}

fn question(place: u64, pattern: &str) -> String {
    format!("JSON SCAN {place} {pattern}")
}

/// Where to go on; `None` at the end. A server that does not go on would never end.
fn next_place(piece: &Value, from: u64) -> Result<Option<u64>, NoAnswer> {
    match piece["next"].as_u64() {
        Some(next) if next <= from => {
            Err(NoAnswer::Refused(format!("place {next} behind place {from}")))
        }
        next => Ok(next),
    }
}

/// Passes the pieces of a server on, until `take` returns false.
fn scan(
    server: &ServerName,
    pattern: &str,
    mut take: impl FnMut(Value) -> bool,
) -> Result<(), NoAnswer> {
    let mut place = Some(0);
    while place.is_some() {
        let mut connection = StatsConnection::connect(server)?;
        for _ in 0..PIECES_PER_CONNECTION {
            let Some(from) = place else { break };
            let piece = ask_json(&mut connection, &question(from, pattern))?;
            place = next_place(&piece, from)?;
            if !take(piece) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Prints the keys that the options ask for.
pub(super) fn print_keys(servers: &[ServerName], options: &KeysOptions) -> ExitCode {
    let wanted = match wanted(&options.words) {
        Ok(wanted) => wanted,
        Err(why) => return refuse(&format!("keys: {why}")),
    };
    let rows = wanted.rows.unwrap_or(protocol::ROWS);
    match wanted.pattern {
        _ if options.all && wanted.rows.is_some() => {
            refuse("keys: --all lists all keys; leave out the number")
        }
        pattern if options.all => {
            print_all(servers, &pattern.unwrap_or_else(|| "*".to_owned()), options.json)
        }
        None => super::stats::list(servers, ListKind::Keys, rows, options.json),
        Some(pattern) => print_lists(servers, ListKind::Keys, rows, options.json, |server| {
            most_important(server, &pattern, rows as usize)
        }),
    }
}

fn refuse(why: &str) -> ExitCode {
    print_error(why);
    ExitCode::from(status::USAGE)
}

/// The first keys of those that match, in the order of the list; as an answer to `KEYS`.
fn most_important(server: &ServerName, pattern: &str, rows: usize) -> Result<Value, NoAnswer> {
    let (mut found, mut matching, mut total) = (Vec::new(), 0_usize, Value::Null);
    scan(server, pattern, |mut piece| {
        total = piece["keys_total"].take();
        if let Value::Array(keys) = piece["keys"].take() {
            matching += keys.len();
            found.extend(keys);
        }
        if found.len() > rows.saturating_add(SPARE_ROWS) {
            sort(&mut found, rows);
        }
        true
    })?;
    sort(&mut found, rows);
    Ok(json!({ "keys_total": total, "matching": matching, "pattern": pattern, "keys": found }))
}

/// As [`ListKind::order`] has it.
fn sort(keys: &mut Vec<Value>, rows: usize) {
    let number = |key: &Value, name: &str| key[name].as_f64().unwrap_or(0.0);
    let waiters = |key: &Value| number(key, "for_me") + number(key, "for_anyone");
    keys.sort_by(|a, b| {
        let by_hold = number(b, "oldest_hold_s").total_cmp(&number(a, "oldest_hold_s"));
        waiters(b).total_cmp(&waiters(a)).then(by_hold)
    });
    keys.truncate(rows);
}

/// Prints the keys of one server after the other.
fn print_all(servers: &[ServerName], pattern: &str, as_json: bool) -> ExitCode {
    let servers = distinct(servers);
    let mut code = ExitCode::SUCCESS;
    let mut table = AllKeys::new((servers.len() > 1).then_some(&servers));
    for server in &servers {
        let mut is_said = true;
        let scanned = scan(server, pattern, |piece| {
            is_said =
                if as_json { print_of_server(server, piece) } else { table.print(server, &piece) };
            is_said
        });
        if !is_said {
            return ExitCode::FAILURE;
        }
        if let Err(e) = scanned {
            code = print_failure(server, &e);
        }
    }
    code
}

/// A table that is printed while its rows arrive.
struct AllKeys {
    has_servers: bool,
    is_begun: bool,
    /// They grow: what is printed already stays as it is.
    widths: Vec<usize>,
}

impl AllKeys {
    /// With a column for the server, if there are several.
    fn new(servers: Option<&Vec<ServerName>>) -> AllKeys {
        let server = servers
            .map(|servers| servers.iter().map(|server| server.as_str().len()).max().unwrap_or(0));
        let widths = server.into_iter().chain([0; KEY_COLUMNS.len()]).collect();
        AllKeys { has_servers: servers.is_some(), is_begun: false, widths }
    }

    /// False if that fails.
    fn print(&mut self, server: &ServerName, piece: &Value) -> bool {
        let rows = piece["keys"].as_array().map_or(&[][..], Vec::as_slice);
        let table = keys(rows);
        let table =
            if self.has_servers { Table::merged(&[(server.as_str(), &table)], &[]) } else { table };
        for (known, width) in self.widths.iter_mut().zip(table.widths()) {
            *known = width.max(*known);
        }
        let names = (!self.is_begun).then(|| table.header(&self.widths));
        self.is_begun = true;
        let rows = table.rows.iter().map(|row| row.line(&self.widths));
        let lines: Vec<String> = names.into_iter().chain(rows).collect();
        lines.is_empty() || print(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_number_and_a_pattern() {
        let read = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(Into::into).collect();
            wanted(&words).map(|wanted| (wanted.rows, wanted.pattern))
        };
        let pattern = |text: &str| Some(text.to_owned());
        for (words, rows, expected) in [
            (&[][..], None, None),
            (&["7"], Some(7), None),
            (&["a*"], None, pattern("a*")),
            (&["7", "a*"], Some(7), pattern("a*")),
            (&["a*", "7"], Some(7), pattern("a*")),
            (&["7", "8"], Some(7), pattern("8")),
            (&["\\x37"], None, pattern("7")),
            (&["99999999999999999999"], Some(u32::MAX), None),
            (&["-"], None, pattern("-")),
            (&["1.5"], None, pattern("1.5")),
            (&["a b*"], None, pattern("a%20b*")),
            (&["café*"], None, pattern("caf\\xc3\\xa9*")),
            (&["\\xff\\x2a*"], None, pattern("\\xff\\x2a*")),
            (&["a\\b"], None, pattern("a\\x5cb")),
            (&["\"a\"b'"], None, pattern("\\x22a\"b\\x27")),
            (&["'"], None, pattern("\\x27")),
        ] {
            assert_eq!(read(words), Ok((rows, expected)), "{words:?}");
        }
        let long = "é".repeat(33);
        for bad in [&["0"][..], &["a", "b"], &[""], &["a\nb"], &[&long], &["1", "2", "3"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_most_important_keys_are_kept() {
        let key = |name: &str, waiters: u64, held: f64| json!({ "key": name, "for_me": waiters, "for_anyone": 1, "oldest_hold_s": held });
        let mut keys =
            vec![key("a", 1, 9.0), key("b", 3, 1.0), key("c", 1, 10.0), key("d", 0, 99.0)];
        sort(&mut keys, 3);
        let names: Vec<&Value> = keys.iter().map(|key| &key["key"]).collect();
        assert_eq!(names, ["b", "c", "a"]);
    }
}
