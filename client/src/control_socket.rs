//! Orders to the daemon of this host, over its control socket.

use std::fs::metadata;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where the package puts the socket.
pub const DEFAULT_PATH: &str = "/run/poolcounter/control.sock";

/// Longer than the longest trial of a new binary.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The order for a hot restart, with the daemon's new arguments, if any.
pub fn restart_with(arguments: &[String]) -> String {
    match arguments {
        [] => "RESTART".to_owned(),
        _ => format!("RESTART {}", serde_json::json!(arguments)),
    }
}

/// Sends one order, a line, to the daemon at `path` and returns all that it answers.
///
/// A hot restart closes our connection, and the same process goes on: it is asked again.
/// A daemon that was started meanwhile is none that this order was meant for.
///
/// # Errors
/// Why the daemon is unreachable, or that it ended or was silent for too long.
pub fn order(path: &Path, line: &str) -> io::Result<String> {
    let file = file_at(path);
    let answer = ask(line, UnixStream::connect(path)?);
    if !answer.as_ref().is_err_and(is_closed) {
        return answer;
    }
    let again = UnixStream::connect(path).ok();
    let answer = match again.filter(|_| file.is_some() && file_at(path) == file) {
        Some(stream) => ask(line, stream),
        None => answer,
    };
    answer.map_err(|e| match is_closed(&e) {
        true => io::Error::new(ErrorKind::UnexpectedEof, "the daemon ended without an answer"),
        false => e,
    })
}

/// What a hot restart keeps, while a new process makes another file.
fn file_at(path: &Path) -> Option<impl PartialEq + use<>> {
    let meta = metadata(path).ok()?;
    // A number of a file that is gone may be given again.
    Some((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

fn ask(line: &str, mut stream: UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    // A daemon may close the connection for another one before we ask, and says so.
    let sent = stream.write_all(format!("{line}\n").as_bytes());
    // It answers what it has got, then closes.
    let sent = sent.and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    match sent.and(read) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            let why = format!("no answer within {} seconds", TIMEOUT.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, why))
        }
        Err(e) if answer.is_empty() || !is_closed(&e) => Err(e),
        Ok(_) if answer.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

fn is_closed(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
