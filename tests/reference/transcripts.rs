//! Runs the conversations of `tests/reference/transcripts/` with our daemon and with Debian's,
//! so that a transcript can't be wrong in the same way as our daemon, and those of
//! `tests/reference/ours/`, where the two differ, with our daemon only. The README.md explains
//! the format.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::restart::Place;
use crate::support::shape::matches;
use crate::support::{Client, PATIENCE, Server, eventually};

/// Prefix of a line for the file of rules.
const RULE: &str = "rule ";

#[test]
fn our_daemon_follows_every_transcript() {
    let all = [transcripts("transcripts"), transcripts("ours")].concat();
    let failures = play_all(&all, |transcript| Some(start(transcript)));
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn the_reference_follows_every_transcript_that_is_not_ours() {
    // A missing reference is reported once, not for each transcript.
    let Some(_) = Server::reference() else { return };
    let failures = play_all(&transcripts("transcripts"), |_| Server::reference());
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[derive(Clone)]
struct Transcript {
    path: PathBuf,
    text: String,
}

fn transcripts(folder: &str) -> Vec<Transcript> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of transcripts") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|e| e == "txt") {
            let text = fs::read_to_string(&path).expect("a transcript");
            found.push(Transcript { path, text });
        }
    }
    assert!(!found.is_empty());
    found
}

/// Our daemon, with the rules that the transcript names.
fn start(transcript: &Transcript) -> Server {
    let rules = transcript.text.lines().filter_map(|line| line.strip_prefix(RULE));
    let rules: String = rules.map(|rule| format!("{rule}\n")).collect();
    if rules.is_empty() {
        return Server::start();
    }
    // The daemon has read the file once it serves.
    let place = Place::new();
    let file = place.path("rules");
    fs::write(&file, rules).expect("write");
    Server::start_with(&["--rules", &file.display().to_string()])
}

/// Runs each transcript in a thread, with its own daemon. Returns the failures as
/// `file:line: what`.
fn play_all(transcripts: &[Transcript], start: fn(&Transcript) -> Option<Server>) -> Vec<String> {
    std::thread::scope(|scope| {
        let play = |transcript| scope.spawn(move || play(transcript, start(transcript)));
        let threads: Vec<_> = transcripts.iter().map(play).collect();
        let results = threads.into_iter().map(|t| t.join().expect("a thread"));
        results.filter_map(Result::err).collect()
    })
}

fn play(transcript: &Transcript, server: Option<Server>) -> Result<(), String> {
    // Without a reference: already reported.
    let Some(server) = server else { return Ok(()) };
    let mut stage = Stage { server, clients: HashMap::new() };
    for (index, line) in transcript.text.lines().enumerate() {
        stage.step(line).map_err(|what| {
            let name = transcript.path.file_name().unwrap_or_default();
            format!("{}:{}: {line}: {what}", name.to_string_lossy(), index + 1)
        })?;
    }
    Ok(())
}

struct Stage {
    server: Server,
    clients: HashMap<char, Client>,
}

impl Stage {
    fn step(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with('#') || line.starts_with(RULE) {
            return Ok(());
        }
        if let Some(expected) = line.strip_prefix("= ") {
            return self.check_counter(expected);
        }
        let mut letters = line.chars();
        let name = letters.next().filter(char::is_ascii_uppercase);
        let name = name.ok_or("not a step of a transcript")?;
        let (verb, rest) = (letters.next(), letters.as_str());
        let text = rest.strip_prefix(' ').unwrap_or(rest);
        if matches!(verb, Some('<' | '.')) && !self.clients.contains_key(&name) {
            return Err("no client of that name is connected".into());
        }
        let server = &self.server;
        let client = self.clients.entry(name).or_insert_with(|| server.connect());
        match verb {
            Some('>') => client.send_bytes(&[unescaped(text)?, b"\n".to_vec()].concat()),
            Some('~') => client.send_bytes(&unescaped(text)?),
            Some('<') => check_line(client, text)?,
            Some('.') => check_silence(client)?,
            Some('!') => self.act(name, text)?,
            _ => return Err("not a step of a transcript".into()),
        }
        // Everything sent takes effect before the next step.
        if !matches!(verb, Some('<' | '.')) {
            self.server.settle();
        }
        Ok(())
    }

    fn act(&mut self, name: char, what: &str) -> Result<(), String> {
        match what {
            "connect" => {}
            "shut" => self.client(name).shut_writing(),
            "ended" => match self.client(name).read_to_end() {
                unread if unread.is_empty() => {}
                unread => return Err(format!("unread before the end: {unread:?}")),
            },
            "close" => drop(self.clients.remove(&name)),
            "reset" => self.clients.remove(&name).expect("connected").reset(),
            _ => return Err("no such action".into()),
        }
        Ok(())
    }

    fn client(&mut self, name: char) -> &mut Client {
        self.clients.get_mut(&name).expect("connected")
    }

    fn check_counter(&self, expected: &str) -> Result<(), String> {
        let (name, value) = expected.split_once(' ').ok_or("name and value")?;
        // The effect of a close or a late packet may take a moment.
        let mut control = self.server.connect();
        let mut got = String::new();
        let is_met = eventually(|| {
            got = control.counter(name).to_string();
            got == value
        });
        if is_met { Ok(()) } else { Err(format!("it is {got}")) }
    }
}

fn check_line(client: &mut Client, pattern: &str) -> Result<(), String> {
    let pattern = pattern.strip_suffix('\\').unwrap_or(pattern);
    match client.next_line(PATIENCE) {
        Some(line) if matches(pattern, &line) => Ok(()),
        Some(line) => Err(format!("got {line:?}")),
        None => Err(format!("no line arrived, but {:?}", client.take_all())),
    }
}

fn check_silence(client: &mut Client) -> Result<(), String> {
    match client.take_all() {
        (bytes, false) if bytes.is_empty() => Ok(()),
        (bytes, ended) => {
            let text = String::from_utf8_lossy(&bytes);
            Err(format!("got {text:?}, ended: {ended}"))
        }
    }
}

/// Decodes the escapes; see `tests/reference/transcripts/README.md`.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => unescape_one(after, &mut bytes)?,
            '{' => repeat(after, &mut bytes)?,
            _ => {
                bytes.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
                after
            }
        };
    }
    Ok(bytes)
}

/// Reads what follows a backslash; returns the rest.
fn unescape_one<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let Some(c) = text.chars().next() else {
        return Ok(text);
    };
    bytes.push(match c {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        'x' => {
            let digits = text.get(1..3).ok_or("two digits after \\x")?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|e| e.to_string())?);
            return Ok(&text[3..]);
        }
        _ => return Err(format!("unknown escape {c}")),
    });
    Ok(&text[1..])
}

/// Reads `x*4000}`; returns the rest.
fn repeat<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let (inside, rest) = text.split_once('}').ok_or("a closing brace")?;
    let (piece, times) = inside.rsplit_once('*').ok_or("{what*times}")?;
    let times: usize = times.parse().map_err(|_| "a number of times")?;
    bytes.extend(unescaped(piece)?.repeat(times));
    Ok(rest)
}
