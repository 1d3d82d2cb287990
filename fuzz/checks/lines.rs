//! The bytes are a stream from a client and the pieces in which it arrives. The lines
//! must be those that a simple split finds, for any pieces, and each line must be
//! parsed as a simple implementation of docs/reference/protocol.md does.

use protocol::lines::{LINE_BYTES_MAX, Line, Lines};
use protocol::{Acquire, Command, List, MatchingKeys, Mode, Query, ROWS, Span, Subject, key_text};

/// # Panics
/// When lines or commands are wrong.
pub(crate) fn check(data: &[u8]) {
    let (cuts, stream) = decode(data);
    let expected = split(&stream);
    assert_eq!(read(&[&stream]), expected, "in one piece");
    assert_eq!(read(&cut(&stream, cuts)), expected, "in pieces");
    for line in expected.complete() {
        check_command(line);
    }
}

/// The first byte tells how many of the next bytes are lengths of pieces. In the
/// stream, a byte 0xFE and the next one stand for a run of letters about as long as a
/// line may be: a fuzzer would need long to find one.
fn decode(data: &[u8]) -> (&[u8], Vec<u8>) {
    let (&count, data) = data.split_first().unwrap_or((&0, &[]));
    let (cuts, mut data) = data.split_at(data.len().min(usize::from(count % 16)));
    let mut stream = Vec::new();
    while let Some((&byte, rest)) = data.split_first() {
        data = rest;
        if byte != 0xFE {
            stream.push(byte);
            continue;
        }
        let (&length, rest) = data.split_first().unwrap_or((&0, &[]));
        data = rest;
        stream.resize(stream.len() + LINE_BYTES_MAX - 16 + usize::from(length % 32), b'x');
    }
    (cuts, stream)
}

/// Pieces of the lengths in `cuts`, and the rest.
fn cut<'a>(mut stream: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &cut in cuts {
        // From 200 on: about as long as a line may be.
        let len = if cut < 200 { cut.into() } else { LINE_BYTES_MAX - 228 + usize::from(cut) };
        let (piece, rest) = stream.split_at(stream.len().min(len));
        pieces.push(piece);
        stream = rest;
    }
    pieces.push(stream);
    pieces
}

#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Of a line that is too long, the beginning.
    lines: Vec<Result<Vec<u8>, Vec<u8>>>,
    unfinished: Vec<u8>,
}

impl Found {
    fn complete(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().flatten().map(Vec::as_slice)
    }
}

/// The lines that the code under test finds.
fn read(pieces: &[&[u8]]) -> Found {
    let mut lines = Lines::default();
    let mut found = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        while let Some(line) = lines.next_line(&mut input) {
            found.push(match line {
                Line::Complete(bytes) => Ok(bytes.to_vec()),
                Line::TooLong(start) => Err(start.to_vec()),
            });
        }
        assert!(input.is_empty(), "input was left over");
    }
    Found { lines: found, unfinished: lines.unfinished().to_vec() }
}

/// The lines that a simple split finds.
fn split(stream: &[u8]) -> Found {
    let mut lines: Vec<&[u8]> = stream.split(|&byte| byte == b'\n').collect();
    let unfinished = lines.pop().expect("a split has a part");
    let with_line_feed_max = LINE_BYTES_MAX - 1;
    let read = |line: &[u8]| {
        if line.len() > with_line_feed_max {
            return Err(line[..5].to_vec());
        }
        Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
    };
    let mut lines: Vec<_> = lines.into_iter().map(read).collect();
    // Reported as soon as it is known.
    if unfinished.len() > with_line_feed_max {
        lines.push(read(unfinished));
        return Found { lines, unfinished: Vec::new() };
    }
    Found { lines, unfinished: unfinished.to_vec() }
}

fn check_command(line: &[u8]) {
    assert_eq!(Command::parse(line), plainly(line), "{}", line.escape_ascii());
}

/// A simple parser of a line.
fn plainly(line: &[u8]) -> Command<'_> {
    let (word, rest) = match line.iter().position(|&byte| byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    };
    match (word, rest) {
        (b"ACQ4ME", Some(rest)) => Command::Acquire(plain_acquire(Mode::ForMe, rest)),
        (b"ACQ4ANY", Some(rest)) => Command::Acquire(plain_acquire(Mode::ForAnyone, rest)),
        (b"STATS", Some(rest)) => Command::Stats(plain_query(rest)),
        _ if line.get(..7) == Some(b"RELEASE") => Command::Release,
        _ => {
            let line = line.to_ascii_lowercase();
            let is_http = line.starts_with(b"post ") || line.starts_with(b"host:");
            if is_http { Command::Http } else { Command::Unknown }
        }
    }
}

fn plain_query(rest: &[u8]) -> Query {
    let text = String::from_utf8_lossy(rest).to_ascii_lowercase();
    let words: Vec<&str> = text.split(' ').collect();
    let rows = |word: &str| {
        let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
        let digits = word.trim_start_matches('0');
        // A number that does not fit counts as the largest.
        (is_number && !digits.is_empty()).then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let list = |words: &[&str], key: usize| match *words {
        ["keys"] => Some(List::Keys(ROWS)),
        ["keys", n] => rows(n).map(List::Keys),
        ["clients"] => Some(List::Clients(ROWS)),
        ["clients", n] => rows(n).map(List::Clients),
        ["slow"] => Some(List::Slow(ROWS)),
        ["slow", n] => rows(n).map(List::Slow),
        ["top"] | ["top", "minute" | "keys"] | ["top", "minute", "keys"] => {
            Some(List::Top(Span::Minute, Subject::Keys))
        }
        ["top", "hour"] | ["top", "hour", "keys"] => Some(List::Top(Span::Hour, Subject::Keys)),
        ["top", "clients"] | ["top", "minute", "clients"] => {
            Some(List::Top(Span::Minute, Subject::Clients))
        }
        ["top", "hour", "clients"] => Some(List::Top(Span::Hour, Subject::Clients)),
        ["key", _] => plain_key(&rest[key..]).map(List::Key),
        _ => None,
    };
    // The last word, as it is.
    let pattern = || rest.rsplit(|&byte| byte == b' ').next().unwrap_or_default().to_vec();
    let known = match &words[..] {
        ["full"] => Some(Query::Full),
        ["uptime"] => Some(Query::Uptime),
        ["json"] => Some(Query::Json),
        ["json", "history"] => Some(Query::History),
        ["json", "keys", n, one] if !one.is_empty() => {
            rows(n).map(|rows| Query::MatchingKeys(MatchingKeys { rows, pattern: pattern() }))
        }
        ["json", words @ ..] => list(words, 9).map(Query::JsonList),
        words => list(words, 4).map(Query::List),
    };
    known.unwrap_or(Query::Counter(text))
}

/// The key that `text` stands for. The key's own text must be printable.
fn plain_key(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for (n, piece) in text.split(|&byte| byte == b'\\').enumerate() {
        let is_escape = n > 0;
        if !is_escape {
            key.extend_from_slice(piece);
            continue;
        }
        let escape = std::str::from_utf8(piece.get(..3)?).ok()?;
        let digits = escape.strip_prefix(['x', 'X']).filter(|digits| !digits.starts_with('+'))?;
        key.push(u8::from_str_radix(digits, 16).ok()?);
        key.extend_from_slice(&piece[3..]);
    }
    let again = key_text(&key);
    assert!(again.bytes().all(|byte| byte.is_ascii_graphic()), "{again:?}");
    (!key.is_empty()).then_some(key)
}

fn plain_acquire(mode: Mode, rest: &[u8]) -> Acquire<'_> {
    let fields: Vec<&[u8]> = rest.split(|&b| b == b' ').filter(|f| !f.is_empty()).collect();
    let field = |n: usize| fields.get(n).copied().unwrap_or(b"");
    let number = |n: usize, max: u64| {
        let text = std::str::from_utf8(field(n)).unwrap_or("");
        let all_digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let digits = text.trim_start_matches('0');
        // A number that does not fit counts as the largest.
        if all_digits && !digits.is_empty() { digits.parse().unwrap_or(max).min(max) } else { 0 }
    };
    Acquire {
        mode,
        key: field(0),
        workers: number(1, u32::MAX.into()) as u32,
        max_queue: number(2, u32::MAX.into()) as u32,
        timeout_s: number(3, u64::MAX),
    }
}
