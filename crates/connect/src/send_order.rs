//! Sends an order to the control socket of this host and reads the answer; asks once more if
//! the connection is lost, unless the socket's file has been replaced.

use crate::transport::{Stream, connect_unix, is_closed};
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

/// Sends an order, a single line, to the daemon at `path` and returns its whole answer. Waits
/// for `timeout`; after that the daemon does not execute the order any more.
///
/// If the connection ends without an answer, the order is sent once more, but not to a daemon
/// that was started in the meantime.
///
/// # Errors
/// Why the daemon is unreachable, or that it ended or was silent for too long.
pub fn send_order(path: &Path, line: &str, timeout: Duration) -> io::Result<String> {
    let file = file_at(path);
    let connect = || connect_unix(path, timeout).map(Stream::from);
    let answer = exchange(line, connect()?, timeout);
    if !answer.as_ref().is_err_and(is_closed) {
        return answer;
    }
    let again = connect().ok();
    let answer = match again.filter(|_| file.is_some() && file_at(path) == file) {
        Some(stream) => exchange(line, stream, timeout),
        None => answer,
    };
    answer.map_err(|e| {
        if is_closed(&e) {
            io::Error::new(ErrorKind::UnexpectedEof, "the daemon ended without an answer")
        } else {
            e
        }
    })
}

/// Identifies the socket's file: a hot restart keeps it, a new process creates another.
fn file_at(path: &Path) -> Option<impl PartialEq + use<>> {
    let meta = metadata(path).ok()?;
    // The inode number of a deleted file may be reused.
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

fn exchange(line: &str, stream: Stream, timeout: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(timeout)?;
    // The daemon may close the connection before it reads the order, to make room for
    // another operator. The reason that it has sent can still be read.
    let sent = (&stream).write_all(format!("{line}\n").as_bytes());
    // The daemon answers the order, then closes.
    let sent = sent.and_then(|()| stream.shut_writing());
    let mut answer = String::new();
    let read = (&stream).read_to_string(&mut answer);
    match sent.and(read) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            let why = format!(
                "no answer within {} seconds; the daemon does not execute it any more",
                timeout.as_secs()
            );
            Err(io::Error::new(ErrorKind::TimedOut, why))
        }
        Err(e) if answer.is_empty() || !is_closed(&e) => Err(e),
        Ok(_) if answer.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) if !answer.ends_with('\n') => {
            Err(io::Error::new(ErrorKind::UnexpectedEof, "the daemon's answer was cut"))
        }
        _ => Ok(answer),
    }
}
