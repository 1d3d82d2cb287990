//! Tells whether a server that has closed a connection has ended, or has closed that one alone.

use connect::{NoAnswer, StatsConnection, Stream, is_closed};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How often to look at a server that closes new connections too: a process that ends may close
/// its listener last.
const LOOKS: u32 = 4;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a server does that has closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is the same process: an operator has ended the wait, or it does not admit this host.
    StillRuns,
    /// The process has ended; another one may run.
    HasEnded,
    /// It accepts a connection, and does not answer. A socket unit does so without a daemon.
    Silent,
}

/// Looks at a server that was asked at this time and has closed the connection; connects by
/// `connect`.
pub(super) fn look_after(connect: impl Fn() -> io::Result<Stream>, asked: Instant) -> Finding {
    for _ in 0..LOOKS {
        let stream = match connect() {
            Ok(stream) => stream,
            Err(e) if is_closed(&e) => {
                thread::sleep(LOOK_INTERVAL);
                continue;
            }
            Err(_) => return Finding::HasEnded,
        };
        match StatsConnection::over(stream).has_run_since(asked) {
            Ok(true) | Err(NoAnswer::Unknown | NoAnswer::Refused(_)) => return Finding::StillRuns,
            Ok(false) => return Finding::HasEnded,
            Err(NoAnswer::Io(e)) if is_closed(&e) => thread::sleep(LOOK_INTERVAL),
            Err(NoAnswer::Io(_)) => return Finding::Silent,
        }
    }
    Finding::StillRuns
}
