//! Sends an order to the control socket of this host and reads the answer; asks once more if
//! the connection is lost, unless the socket's file has been replaced.

use super::transport::{Stream, connect_unix, is_closed};
use std::error::Error;
use std::fmt;
use std::fs::metadata;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Where the package puts the socket.
pub const DEFAULT_PATH: &str = "/run/poolcounter/control.sock";

/// How long the daemon usually may take to answer an order.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// As [`ANSWER_TIMEOUT`], for a hot restart: longer than the longest trial of a new binary.
pub const RESTART_TIMEOUT: Duration = Duration::from_secs(60);

/// Why an order has no whole answer.
#[derive(Debug)]
pub enum OrderError {
    /// The daemon can't be asked.
    Unreachable(io::Error),
    /// The connection ended before an answer. The daemon may have executed the order.
    Unanswered,
    /// No answer came within this time. The daemon may have executed the order.
    Silent(Duration),
    /// This is what came of the answer. The daemon may have executed the order.
    Cut(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderError::Unreachable(e) => return e.fmt(f),
            OrderError::Unanswered => f.write_str("the connection ended without an answer")?,
            OrderError::Silent(timeout) => {
                write!(f, "no answer within {} seconds", timeout.as_secs_f64())?;
            }
            OrderError::Cut(_) => f.write_str("the end of the answer did not come")?,
        }
        f.write_str("; the daemon may have executed the order")
    }
}

impl Error for OrderError {}

/// Sends an order, a single line, to the daemon at `path` and returns its whole answer. Waits
/// for `timeout`.
///
/// If the connection ends without an answer, the order is sent once more, but not to a daemon
/// that was started in the meantime.
///
/// # Errors
/// Why there is no whole answer.
pub fn send_order(path: &Path, line: &str, timeout: Duration) -> Result<String, OrderError> {
    let file = file_at(path);
    let connect = || connect_unix(path, timeout).map(Stream::from);
    let answer = exchange(line, connect().map_err(OrderError::Unreachable)?, timeout);
    if !matches!(answer, Err(OrderError::Unanswered)) {
        return answer;
    }
    match connect().ok().filter(|_| file.is_some() && file_at(path) == file) {
        Some(stream) => exchange(line, stream, timeout),
        None => answer,
    }
}

/// Identifies the socket's file: a hot restart keeps it, a new process creates another.
fn file_at(path: &Path) -> Option<impl PartialEq + use<>> {
    let meta = metadata(path).ok()?;
    // The inode number of a deleted file may be reused.
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

fn exchange(line: &str, stream: Stream, timeout: Duration) -> Result<String, OrderError> {
    stream.set_read_timeout(Some(timeout)).map_err(OrderError::Unreachable)?;
    stream.set_write_timeout(timeout).map_err(OrderError::Unreachable)?;
    // The daemon may close the connection before it reads the order, to make room for
    // another operator. The reason that it has sent can still be read.
    let sent = (&stream).write_all(format!("{line}\n").as_bytes());
    // The daemon answers the order, then closes.
    let sent = sent.and_then(|()| stream.shut_writing());
    let mut heard = Vec::new();
    let read = (&stream).read_to_end(&mut heard);
    let heard = String::from_utf8_lossy(&heard).into_owned();
    match sent.and(read.map(drop)) {
        Ok(()) if heard.ends_with('\n') => Ok(heard),
        Err(e) if is_closed(&e) && heard.ends_with('\n') => Ok(heard),
        _ if !heard.is_empty() => Err(OrderError::Cut(heard)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(OrderError::Silent(timeout)),
        Err(e) if !is_closed(&e) => Err(OrderError::Unreachable(e)),
        _ => Err(OrderError::Unanswered),
    }
}
