//! Writes to standard error without ever blocking: lines that it does not accept are tried
//! again later, or dropped and counted.
//!
//! Never changes the flags of the inherited descriptor: other processes share them,
//! and the change would outlive this process.

use crate::platform::clock;
use crate::platform::os::env;
use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::fd::BorrowedFd;
use crate::platform::os::fs::{FileType, Mode, OFlags, fstat, open};
use crate::platform::os::io::{Errno, ReadWriteFlags, pwritev2, write};
use crate::platform::os::net::{SendFlags, send};
use crate::platform::os::stdio::{dup2_stderr, stderr};
use engine::Time;
use serde::{Deserialize, Serialize};
use std::io::IoSlice;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// How long to wait before retrying standard error.
const RETRY_NS: u64 = 1_000_000_000;

/// How long the daemon's exit may wait for a reader.
const MOMENT_NS: i64 = 200_000_000;

/// The room that poll(2) guarantees: PIPE_BUF, a free page of a pipe.
const POLLED_BYTES: usize = 4096;

static STDERR: LazyLock<Mutex<Stderr>> = LazyLock::new(|| Mutex::new(Stderr::new()));

fn lock() -> MutexGuard<'static, Stderr> {
    STDERR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line, after the rest of the previous one; its own rest comes before any other line.
/// Returns false if nothing was written.
pub(super) fn write_line(line: &[u8]) -> bool {
    lock().write_line(line)
}

/// Writes the rest of a line, if there is one. Returns false if some of it remains.
pub(super) fn flush() -> bool {
    lock().flush()
}

/// Counts dropped lines.
pub(super) fn count_dropped(lines: u64) {
    lock().left.dropped += lines;
}

/// Returns how many lines were dropped since the last call.
pub(super) fn take_dropped() -> u64 {
    std::mem::take(&mut lock().left.dropped)
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggingState {
    /// The rest of a partly written line; one line at most.
    rest: Vec<u8>,
    /// Dropped lines that are not reported yet.
    dropped: u64,
}

/// The state to hand over.
pub(crate) fn state() -> LoggingState {
    lock().left.clone()
}

/// Continues from the old image's state. To be called before the first line is logged.
pub(crate) fn resume(state: LoggingState) {
    lock().left = state;
}

/// When to retry what remains, if anything does.
pub(crate) fn next_deadline() -> Option<Time> {
    let stderr = lock();
    let is_something_left = stderr.left.dropped > 0 || !stderr.left.rest.is_empty();
    is_something_left.then_some(stderr.next_try)
}

/// Waits until there is room, but no longer than [`MOMENT_NS`].
pub(super) fn wait_a_moment() {
    has_room(stderr(), &Timespec { tv_sec: 0, tv_nsec: MOMENT_NS });
}

/// Whether standard error is the journal's: systemd.exec(5), `JOURNAL_STREAM`
/// names the device and inode of that stream.
pub(super) fn goes_to_journal() -> bool {
    let Ok(stat) = fstat(stderr()) else {
        return false;
    };
    let stderr = format!("{}:{}", stat.st_dev, stat.st_ino);
    env::var("JOURNAL_STREAM").is_ok_and(|stream| stream == stderr)
}

/// How to write without blocking, which depends on the kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A socket: send(2) with MSG_DONTWAIT.
    Send,
    /// An open file description of the daemon's own, which does not block.
    Reopened,
    /// Another user's pipe: pwritev2(2) with RWF_NOWAIT.
    NoWait,
    /// Anything else: ask poll(2) first. If another process fills the pipe in
    /// between, the write blocks. Regular files are written this way too, because they
    /// are always writable.
    Polled,
}

struct Stderr {
    fd: BorrowedFd<'static>,
    way: Way,
    left: LoggingState,
    next_try: Time,
}

impl Stderr {
    fn new() -> Self {
        let way = choose_way();
        let left = LoggingState::default();
        Stderr { fd: stderr(), way, left, next_try: Time::default() }
    }

    fn write_line(&mut self, line: &[u8]) -> bool {
        let written = if self.flush() { self.write(line) } else { 0 };
        if written > 0 {
            self.left.rest.extend_from_slice(line.get(written..).unwrap_or_default());
        }
        written > 0
    }

    fn flush(&mut self) -> bool {
        let rest = std::mem::take(&mut self.left.rest);
        let written = self.write(&rest);
        self.left.rest.extend_from_slice(rest.get(written..).unwrap_or_default());
        self.left.rest.is_empty()
    }

    /// Writes as much as there is room for; returns the number of bytes.
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
            match self.write_once(left) {
                Ok(n) if n > 0 => written += n,
                Err(Errno::INTR) => {}
                // On kernels before Linux 5.5 or so, and on terminals; without the call at all.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) if self.way == Way::NoWait => {
                    self.way = Way::Polled;
                }
                _ => {
                    self.next_try = clock::now().plus_ns(RETRY_NS);
                    break;
                }
            }
        }
        written
    }

    fn write_once(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.way {
            Way::Send => send(self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Way::Reopened => write(self.fd, bytes),
            Way::NoWait => {
                pwritev2(self.fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT)
            }
            Way::Polled if has_room(self.fd, &Timespec::default()) => {
                write(self.fd, &bytes[..bytes.len().min(POLLED_BYTES)])
            }
            Way::Polled => Err(Errno::AGAIN),
        }
    }
}

/// Waits until a write to `fd` would not block, at most for `timeout`.
pub(super) fn has_room(fd: BorrowedFd<'_>, timeout: &Timespec) -> bool {
    let mut wanted = [PollFd::new(&fd, PollFlags::OUT)];
    poll(&mut wanted, Some(timeout)).is_ok_and(|ready| ready > 0)
}

fn choose_way() -> Way {
    let kind = fstat(stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::Socket) => Way::Send,
        Ok(FileType::Fifo | FileType::CharacterDevice) if reopen().is_ok() => Way::Reopened,
        Ok(FileType::Fifo | FileType::CharacterDevice) => Way::NoWait,
        // A regular file is not reopened: others may share its position.
        _ => Way::Polled,
    }
}

/// Replaces the inherited open file description by the daemon's own of the same pipe or
/// device. Then writes by libraries don't block either, for instance the message about a
/// failed allocation.
fn reopen() -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    dup2_stderr(open("/proc/self/fd/2", flags, Mode::empty())?)
}
