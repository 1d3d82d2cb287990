//! Plain load: connections that lock and release, as fast as the answers come.

use hdrhistogram::Histogram;

use crate::Result;
use crate::fleet::{Conn, Fleet, Next, Script};

/// Whether connections stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Connections are kept; each locks and releases, again and again.
    Kept,
    /// Each connects, locks, releases and closes, then starts again.
    Cycle,
}

/// The `ACQ` lines to send.
#[derive(Debug, Clone)]
pub struct Request {
    /// `ACQ4ME` or `ACQ4ANY`.
    pub command: &'static str,
    /// Bytes in a key; a MediaWiki key has about 40.
    pub key_bytes: usize,
    /// `workers`, `maxqueue` and `timeout` of the protocol.
    pub limits: String,
}

impl Request {
    /// Uncontended locks on keys like MediaWiki's.
    pub fn uncontended() -> Self {
        Self::with("ACQ4ME", "1 100 15")
    }

    /// `command` with `limits` on the default kind of key.
    pub fn with(command: &'static str, limits: &str) -> Self {
        Self { command, key_bytes: 40, limits: limits.into() }
    }

    /// The line for key number `key`, written over `line`.
    pub fn write(&self, key: u64, line: &mut Vec<u8>) {
        use std::io::Write;
        line.clear();
        let width = self.key_bytes.saturating_sub(7);
        // Writing to a Vec can't fail.
        let _ = writeln!(line, "{} bench:k{key:0width$} {}", self.command, self.limits);
    }
}

/// How often each kind of answer came.
#[derive(Debug, Clone, Default)]
pub struct Replies {
    /// `LOCKED`
    pub locked: u64,
    /// `RELEASED`
    pub released: u64,
    /// `DONE`
    pub done: u64,
    /// `QUEUE_FULL`
    pub queue_full: u64,
    /// `TIMEOUT`
    pub timeout: u64,
    /// Anything else: an error of the server or of this program.
    pub other: u64,
}

/// The script of a plain load, and its results.
pub struct Traffic {
    mode: Mode,
    request: Request,
    /// No connection starts again after this time.
    pub stop_ns: u64,
    /// How many more connections and cycles may begin.
    pub begins_left: u64,
    /// Connections with a request in flight.
    pub busy: usize,
    /// Requests answered.
    pub requests: u64,
    /// Completed cycles: locked and released, or refused.
    pub cycles: u64,
    /// Latencies in nanoseconds: of each request in mode `kept`; from connect to
    /// `RELEASED` in mode `cycle`.
    pub latency: Histogram<u64>,
    /// The counts of the answers.
    pub replies: Replies,
    /// Connections that failed or that the server closed.
    pub lost: u64,
}

/// A histogram of nanoseconds up to ten minutes, exact to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("constant bounds are valid")
}

impl Traffic {
    /// A load that has not begun.
    pub fn new(mode: Mode, request: Request) -> Self {
        Self {
            mode,
            request,
            stop_ns: u64::MAX,
            begins_left: u64::MAX,
            busy: 0,
            requests: 0,
            cycles: 0,
            latency: histogram(),
            replies: Replies::default(),
            lost: 0,
        }
    }

    /// Resets the counts, for the measurement that follows a warm-up.
    pub fn forget(&mut self) {
        self.requests = 0;
        self.cycles = 0;
        self.latency.reset();
        self.replies = Replies::default();
        self.lost = 0;
    }

    /// Gives each connection its first line.
    pub fn prepare(&mut self, fleet: &mut Fleet) {
        for conn in &mut fleet.conns {
            self.request.write(conn.index as u64, &mut conn.acquire);
        }
    }

    /// Starts every connection at once.
    pub fn begin(&mut self, fleet: &mut Fleet) -> Result<()> {
        for index in 0..fleet.conns.len() {
            if self.begins_left == 0 {
                break;
            }
            self.begins_left -= 1;
            self.busy += 1;
            match self.mode {
                Mode::Kept => {
                    let now_ns = fleet.now_ns();
                    fleet.acquire(index, now_ns);
                }
                Mode::Cycle => fleet.open(index, true)?,
            }
        }
        Ok(())
    }

    /// Runs until `stop_ns` or the last allowed start, and until every request in
    /// flight is answered, so that nothing disturbs the next measurement.
    pub fn run(&mut self, fleet: &mut Fleet, seconds: f64) -> Result<()> {
        self.start(fleet, seconds)?;
        self.finish(fleet)
    }

    /// The same, but requests in flight at the end get `grace_ms` and are then given
    /// up. Returns how many were.
    pub fn run_and_give_up(
        &mut self,
        fleet: &mut Fleet,
        seconds: f64,
        grace_ms: u64,
    ) -> Result<usize> {
        self.start(fleet, seconds)?;
        self.answered_by(fleet, self.stop_ns + grace_ms * 1_000_000)?;
        fleet.reset_all();
        Ok(std::mem::take(&mut self.busy))
    }

    fn start(&mut self, fleet: &mut Fleet, seconds: f64) -> Result<()> {
        self.stop_ns = fleet.now_ns() + (seconds * 1e9) as u64;
        self.begin(fleet)
    }

    /// Waits for all requests in flight, for at most 20 s after the stop.
    pub fn finish(&mut self, fleet: &mut Fleet) -> Result<()> {
        if self.answered_by(fleet, self.stop_ns.saturating_add(20_000_000_000))? {
            Ok(())
        } else {
            Err(format!("{} requests got no answer in 20 s", self.busy).into())
        }
    }

    fn answered_by(&mut self, fleet: &mut Fleet, end_ns: u64) -> Result<bool> {
        while self.busy > 0 && fleet.now_ns() < end_ns {
            fleet.poll(20, self)?;
        }
        Ok(self.busy == 0)
    }

    fn count(&mut self, line: &[u8]) {
        let replies = &mut self.replies;
        match line {
            b"LOCKED" => replies.locked += 1,
            b"RELEASED" => replies.released += 1,
            b"DONE" => replies.done += 1,
            b"QUEUE_FULL" => replies.queue_full += 1,
            b"TIMEOUT" => replies.timeout += 1,
            _ => replies.other += 1,
        }
        self.requests += 1;
    }

    /// The next step after a lock is released or refused.
    fn again(&mut self, now_ns: u64) -> Next {
        if now_ns >= self.stop_ns || self.begins_left == 0 {
            self.busy -= 1;
            return match self.mode {
                Mode::Kept => Next::Nothing,
                Mode::Cycle => Next::Close,
            };
        }
        match self.mode {
            Mode::Kept => Next::Acquire,
            Mode::Cycle => {
                self.begins_left -= 1;
                Next::Reopen
            }
        }
    }
}

impl Script for Traffic {
    fn replied(&mut self, conn: &mut Conn, line: &[u8], now_ns: u64) -> Next {
        self.count(line);
        conn.holds = line == b"LOCKED";
        self.cycles += u64::from(!conn.holds);
        if self.mode == Mode::Kept {
            self.latency.saturating_record(now_ns.saturating_sub(conn.sent_ns).max(1));
        }
        if conn.holds {
            return Next::Release;
        }
        if self.mode == Mode::Cycle {
            self.latency.saturating_record(now_ns.saturating_sub(conn.opened_ns).max(1));
        }
        self.again(now_ns)
    }

    fn lost(&mut self, conn: &mut Conn, now_ns: u64) -> Next {
        self.lost += 1;
        conn.holds = false;
        // Avoids a million attempts at a server that is gone.
        let give_up = self.lost > 1000 && self.lost > self.requests;
        if now_ns >= self.stop_ns || give_up {
            self.busy = self.busy.saturating_sub(1);
            return Next::Nothing;
        }
        Next::Reopen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_line_has_a_key_of_the_wanted_length() {
        let mut line = Vec::new();
        Request::uncontended().write(42, &mut line);
        let text = String::from_utf8(line).unwrap();
        let fields: Vec<&str> = text.trim_end().split(' ').collect();
        assert_eq!(fields.len(), 5);
        assert_eq!(fields[0], "ACQ4ME");
        assert_eq!(fields[1].len(), 40);
        assert!(fields[1].ends_with("042"));
        assert!(text.ends_with("1 100 15\n"));
    }
}
