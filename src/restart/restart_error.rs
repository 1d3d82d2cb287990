//! Why a hot restart is refused, in words: by the old image, or by the new binary in its answer.

use crate::listening::addresses::{ListenError, NO_CONTROL_SOCKET};
use crate::operator::rule_book::RulesError;
use crate::platform::os::fd::RawFd;
use engine::state::BadState;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

errors! {
    /// Why a hot restart is refused.
    pub enum RestartError {
        /// The new binary at this path, if it is known, can't be asked: why; and the call that failed
        /// at the start, since an emulator may hide the program's path too.
        NotAsked(program: PathBuf, why: String, lacking: Option<String>) =
            "{} can't be asked: {why}{}", name_of(program), at_the_start(lacking.as_ref(), why);
        /// The new binary has not answered within so many seconds.
        Late(max_s: u64) = "the new binary did not answer within {max_s} s";
        /// The new binary could have so many descriptors, fewer than the daemon.
        FewDescriptors(theirs: usize, ours: usize) =
            "the new binary could have only {theirs} descriptors open, the daemon may have {ours}";
        /// The new binary has ended so, and said this.
        NotApproved(status: ExitStatus, said: String) =
            "the new binary can't take over: {status}, it said {said}";
        /// Nobody waits for it any more.
        HasLeft = "the operator that asked for it has left";
        /// The new options would close the control socket at this path.
        ControlSocketLost(path: String) =
            "without --control, the socket {path} would close: add --control={path}, \
             or --control={NO_CONTROL_SOCKET} to close it";
        /// The rules can't be in force.
        Rules(e: RulesError) = "{e}";
        /// The new image could not listen.
        Listen(e: ListenError) = "{e}";
        /// The snapshot is not written.
        NotWritten(e: io::Error) = "the snapshot could not be written: {e}";
        /// The new image would have none left.
        NoDescriptors(e: io::Error) = "too few descriptors are free: {e}";
        /// Another file is at the path of the binary that was asked.
        Replaced(program: PathBuf) =
            "{} was replaced while it was being asked", program.display();
        /// The file at this path can't be executed.
        NotExecuted(program: PathBuf, e: io::Error) =
            "{} can't be executed: {e}", program.display();
        /// The same, and then this failed.
        NotUndone(program: PathBuf, e: io::Error, then: io::Error) =
            "{} can't be executed: {e}; and then: {then}", program.display();
        /// The system refuses something.
        System(e: io::Error) = "{e}";
        /// The new binary can't read the snapshot.
        Snapshot(e: SnapshotError) = "{e}";
        /// Whatever is executed in place of the new binary has closed the snapshot.
        SnapshotLost(e: io::Error) = "the snapshot was lost on its way here: {e}";
        /// It has closed this descriptor.
        DescriptorLost(number: RawFd, e: io::Error) =
            "descriptor {number} was lost on its way here: {e}";
        /// It has closed so many connections, and the first so.
        ConnectionsLost(count: usize, e: io::Error) = "{count} connections would be lost: {e}";
        /// It passes on no snapshot.
        NoSnapshot =
            "it was handed no snapshot: whatever is at the daemon's path must execute \
             the daemon in the same process, with its environment";
    }
}

fn name_of(program: &Path) -> Cow<'_, str> {
    match program.to_string_lossy() {
        unknown if unknown.is_empty() => "the new binary".into(),
        known => known,
    }
}

fn at_the_start(lacking: Option<&String>, why: &str) -> String {
    let other = lacking.filter(|lacking| *lacking != why);
    other.map(|lacking| format!("; and at the start: {lacking}")).unwrap_or_default()
}

errors! {
    /// Why a snapshot is refused.
    pub enum SnapshotError {
        /// It is not a snapshot, or it is truncated.
        NotASnapshot(why: String) = "not a snapshot: {why}";
        /// A newer daemon wrote it: its version, and the newest that this one knows.
        TooNew(version: u64, newest: u64) =
            "snapshot version {version} is newer than {newest}, the newest known here";
        /// The rules that operators have set do not go with the new file or options.
        Rules(e: RulesError) = "{e}";
        /// It contains something that no daemon can have written.
        Impossible(why: String) = "impossible snapshot: {why}";
    }
}

impl From<BadState> for SnapshotError {
    fn from(BadState(why): BadState) -> Self {
        SnapshotError::Impossible(why.to_owned())
    }
}
