//! Bytes → lines: assembles them from the pieces in which TCP delivers them; keeps the end of a
//! line that is unfinished or not answered yet.

use alloc::boxed::Box;
use alloc::vec::Vec;
use memchr::{memchr, memrchr};

/// The length of the longest line that is read, including its line feed. A longer
/// line is answered with `ERROR LINE_TOO_LONG` and skipped. (MediaWiki's keys are
/// under 300 bytes; the reference reads up to 1024.)
pub const LINE_BYTES_MAX: usize = 4096;

/// How much is told of a line that is too long: enough for [`is_of_http`](super::is_of_http).
pub const LINE_START_BYTES: usize = 5;

/// What the stream contains next.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line, without its `\n` and without one `\r` right before it.
    Complete(&'a [u8]),
    /// A line is longer than [`LINE_BYTES_MAX`]; its first bytes. Reported once, as soon as it is
    /// known; the rest up to the line feed is skipped.
    TooLong([u8; LINE_START_BYTES]),
}

/// One connection's unfinished input. Owns memory only while there is any.
#[derive(Debug, Default)]
pub struct Lines {
    kept: Option<Box<Kept>>,
}

/// What [`Lines`] keeps.
#[derive(Debug)]
enum Kept {
    /// The start of a line. Ends in `\n` only between the call that completed it and the
    /// next one.
    StartOfLine(Vec<u8>),
    /// The line was too long: everything up to its line feed is dropped.
    RestOfLongLine,
    /// Input that begins with a new line.
    Unhandled(Vec<u8>),
    /// The same, and its first line waits for its answer.
    Unanswered(Vec<u8>),
}

impl Lines {
    /// Takes the next line from the front of `input`. `None` when `input` is used up;
    /// the start of an unfinished line is kept for the next call.
    ///
    /// The lines do not depend on how the bytes are divided into inputs.
    pub fn next_line<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8]) -> Option<Line<'a>> {
        if self.kept.is_some() && !self.drop_rest_of_line(input) {
            return None;
        }
        let Some(end) = memchr(b'\n', input) else {
            return self.keep(input);
        };
        let (line, rest) = input.split_at(end + 1);
        *input = rest;
        if self.unfinished().len() + line.len() > LINE_BYTES_MAX {
            let start = self.start_of_line(line);
            self.kept = None;
            return Some(Line::TooLong(start));
        }
        if let Some(Kept::StartOfLine(bytes)) = self.kept.as_deref_mut() {
            bytes.extend_from_slice(line);
            return Some(Line::Complete(without_line_end(bytes)));
        }
        Some(Line::Complete(without_line_end(line)))
    }

    /// Continues within a line, from what [`Lines::unfinished`] and
    /// [`Lines::is_skipping`] returned.
    pub fn resume(unfinished: Vec<u8>, skipping: bool) -> Self {
        let kept = match (skipping, unfinished.is_empty()) {
            (true, _) => Some(Kept::RestOfLongLine),
            (false, false) => Some(Kept::StartOfLine(unfinished)),
            (false, true) => None,
        };
        Lines { kept: kept.map(Box::new) }
    }

    /// Keeps `rest` for later: input that begins with a new line. The caller takes it
    /// by [`Lines::take_unhandled`] before it reads input received later.
    pub fn put_back(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            self.kept = Some(Box::new(Kept::Unhandled(rest.to_vec())));
        }
    }

    /// Holds the line that [`Lines::next_line`] has just returned, until
    /// [`Lines::finish_line`]: it takes time to answer. `taken` is what that call took from
    /// its input, `rest` what it left.
    pub fn hold_line(&mut self, taken: &[u8], rest: &[u8]) {
        // The end of a line that was too long may precede it.
        let before = taken.strip_suffix(b"\n").unwrap_or(taken);
        let start = memrchr(b'\n', before).map_or(0, |end| end + 1);
        let line = match self.kept.as_deref() {
            Some(Kept::StartOfLine(pieces)) => pieces,
            _ => &taken[start..],
        };
        self.kept = Some(Box::new(Kept::Unanswered([line, rest].concat())));
    }

    /// Whether a line waits for its answer.
    pub fn is_line_held(&self) -> bool {
        matches!(self.kept.as_deref(), Some(Kept::Unanswered(_)))
    }

    /// The held line is answered: what follows it is unhandled. Returns false if no line
    /// is held.
    pub fn finish_line(&mut self) -> bool {
        if !self.is_line_held() {
            return false;
        }
        let input = self.take_unhandled();
        let end = memchr(b'\n', &input).map_or(input.len(), |end| end + 1);
        self.put_back(&input[end..]);
        true
    }

    /// The input that is not handled yet, from a held line on.
    pub fn unhandled(&self) -> &[u8] {
        match self.kept.as_deref() {
            Some(Kept::Unhandled(bytes) | Kept::Unanswered(bytes)) => bytes,
            _ => b"",
        }
    }

    /// Takes the unhandled input, for the next calls.
    pub fn take_unhandled(&mut self) -> Vec<u8> {
        let Some(Kept::Unhandled(bytes) | Kept::Unanswered(bytes)) = self.kept.as_deref_mut()
        else {
            return Vec::new();
        };
        let bytes = core::mem::take(bytes);
        self.kept = None;
        bytes
    }

    /// Whether the rest of a line that is too long is still missing.
    pub fn is_skipping(&self) -> bool {
        matches!(self.kept.as_deref(), Some(Kept::RestOfLongLine))
    }

    /// The bytes of an unfinished line: fewer than [`LINE_BYTES_MAX`].
    pub fn unfinished(&self) -> &[u8] {
        match self.kept.as_deref() {
            Some(Kept::StartOfLine(bytes)) if !bytes.ends_with(b"\n") => bytes,
            _ => b"",
        }
    }

    /// Drops the line that was returned last, or input up to the end of a long line. Returns
    /// false if that end is still missing.
    fn drop_rest_of_line(&mut self, input: &mut &[u8]) -> bool {
        match self.kept.as_deref() {
            Some(Kept::StartOfLine(bytes)) if bytes.ends_with(b"\n") => self.kept = None,
            Some(Kept::RestOfLongLine) => {
                let Some(end) = memchr(b'\n', input) else {
                    *input = &[];
                    return false;
                };
                *input = &input[end + 1..];
                self.kept = None;
            }
            Some(Kept::Unhandled(_) | Kept::Unanswered(_)) => {
                debug_assert!(false, "unhandled input comes first");
            }
            Some(Kept::StartOfLine(_)) | None => {}
        }
        true
    }

    /// The first bytes of a line that `more` continues.
    fn start_of_line(&self, more: &[u8]) -> [u8; LINE_START_BYTES] {
        let mut start = [0; LINE_START_BYTES];
        start
            .iter_mut()
            .zip(self.unfinished().iter().chain(more))
            .for_each(|(to, from)| *to = *from);
        start
    }

    /// Keeps all of `input`, which has no line feed, for the next call.
    fn keep(&mut self, input: &mut &[u8]) -> Option<Line<'static>> {
        let bytes = core::mem::take(input);
        // A line of exactly the limit still needs room for its line feed.
        if self.unfinished().len() + bytes.len() >= LINE_BYTES_MAX {
            let start = self.start_of_line(bytes);
            self.kept = Some(Box::new(Kept::RestOfLongLine));
            return Some(Line::TooLong(start));
        }
        match self.kept.as_deref_mut() {
            Some(Kept::StartOfLine(start)) => {
                start.reserve_exact(bytes.len());
                start.extend_from_slice(bytes);
            }
            _ if bytes.is_empty() => {}
            _ => self.kept = Some(Box::new(Kept::StartOfLine(bytes.to_vec()))),
        }
        None
    }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// All lines of `stream`, fed in pieces that end at `cuts`.
    fn lines_of(stream: &[u8], cuts: &[usize]) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        let mut start = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|c| c % (stream.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(stream.len());
        for end in ends {
            let mut input = &stream[start..end];
            while let Some(line) = lines.next_line(&mut input) {
                found.push(match line {
                    Line::Complete(bytes) => Some(bytes.to_vec()),
                    Line::TooLong(_) => None,
                });
            }
            start = end;
        }
        found
    }

    fn texts(lines: &[&str]) -> Vec<Option<Vec<u8>>> {
        lines.iter().map(|line| Some(line.as_bytes().to_vec())).collect()
    }

    #[test]
    fn one_carriage_return_before_the_line_feed_is_dropped() {
        assert_eq!(lines_of(b"a\r\nb\r\r\n\rc\n\n", &[]), texts(&["a", "b\r", "\rc", ""]));
    }

    #[test]
    fn an_unfinished_line_is_no_line() {
        assert_eq!(lines_of(b"a\nRELEASE", &[]), texts(&["a"]));
    }

    #[test]
    fn the_longest_line_is_read_and_one_byte_more_is_not() {
        let fits = [vec![b'x'; LINE_BYTES_MAX - 1], b"\n".to_vec()].concat();
        let long = [vec![b'x'; LINE_BYTES_MAX], b"\nnext\n".to_vec()].concat();
        for cuts in [vec![], vec![1], vec![LINE_BYTES_MAX - 1], vec![LINE_BYTES_MAX]] {
            assert_eq!(lines_of(&fits, &cuts), [Some(vec![b'x'; LINE_BYTES_MAX - 1])]);
            assert_eq!(lines_of(&long, &cuts), [None, Some(b"next".to_vec())]);
        }
    }

    #[test]
    fn the_start_of_a_line_that_is_too_long_is_told() {
        let stream = [&b"POST /"[..], &[b'x'; LINE_BYTES_MAX], b"\n"].concat();
        for cut in [0, 1, 4, 5, 6, LINE_BYTES_MAX - 1, LINE_BYTES_MAX, stream.len()] {
            let mut lines = Lines::default();
            let mut starts = Vec::new();
            for mut piece in [&stream[..cut], &stream[cut..]] {
                while let Some(line) = lines.next_line(&mut piece) {
                    assert_eq!(line, Line::TooLong(*b"POST "), "{cut}");
                    starts.push(cut);
                }
            }
            assert_eq!(starts, [cut]);
        }
    }

    #[test]
    fn a_connection_with_no_unfinished_line_owns_no_memory() {
        let mut lines = Lines::default();
        for mut input in [&b"half"[..], b" a line\n", b"whole\n"] {
            while lines.next_line(&mut input).is_some() {}
        }
        assert!(lines.kept.is_none());
    }

    #[test]
    fn input_put_back_is_handled_later_and_once() {
        let mut lines = Lines::default();
        let mut input = &b"a\nb\nhalf"[..];
        assert_eq!(lines.next_line(&mut input), Some(Line::Complete(b"a")));
        lines.put_back(input);
        assert_eq!((lines.unhandled(), lines.unfinished()), (&b"b\nhalf"[..], &b""[..]));
        let rest = lines.take_unhandled();
        let mut input = &rest[..];
        assert_eq!(lines.next_line(&mut input), Some(Line::Complete(b"b")));
        assert_eq!(lines.next_line(&mut input), None);
        assert_eq!((lines.unhandled(), lines.unfinished()), (&b""[..], &b"half"[..]));
        assert!(lines.take_unhandled().is_empty());
        assert_eq!(lines.next_line(&mut &b"\n"[..]), Some(Line::Complete(b"half")));
    }

    #[test]
    fn a_held_line_is_kept_as_it_came() {
        for (pieces, held) in [
            (&[&b"STATS KEYS\r\r\nb\n"[..]][..], &b"STATS KEYS\r\r\nb\n"[..]),
            (&[b"STATS", b" KEYS\nb\n"], b"STATS KEYS\nb\n"),
            (&[&[b'x'; LINE_BYTES_MAX], b"x\nSTATS KEYS\nb\n"], b"STATS KEYS\nb\n"),
        ] {
            let mut lines = Lines::default();
            for piece in pieces {
                let mut input = *piece;
                if let Some(Line::Complete(_)) = lines.next_line(&mut input) {
                    lines.hold_line(&piece[..piece.len() - input.len()], input);
                }
            }
            assert_eq!((lines.unhandled(), lines.is_line_held()), (held, true));
            assert!(lines.finish_line() && !lines.finish_line());
            assert_eq!((lines.unhandled(), lines.is_line_held()), (&b"b\n"[..], false));
        }
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..30),
                    (LINE_BYTES_MAX - 3..LINE_BYTES_MAX + 3).prop_map(|n| vec![b'x'; n]),
                    Just(b"\n".to_vec()),
                    Just(b"\r\n".to_vec()),
                ],
                0..20,
            ),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            let stream = pieces.concat();
            prop_assert_eq!(lines_of(&stream, &[]), lines_of(&stream, &cuts));
        }
    }
}
