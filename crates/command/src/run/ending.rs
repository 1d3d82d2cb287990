//! How `run` ends, and with which exit status.

use crate::status;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum JobEnd {
    Exited(u8),
    Killed(i32),
}

/// How `run` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// As the command did.
    AsCommand(JobEnd),
    /// Another client did the work.
    DoneByAnother,
    /// The lock was not given: the time is over or the queue is full.
    NotGiven,
    /// The lock was lost, and the command stopped for that.
    Stopped,
    /// No server answers, or it does not give the lock to this host or for this key.
    NoServer,
    /// A server's name is that of several.
    SeveralServers,
    /// The server's answer is invalid.
    InvalidAnswer,
    /// The command can't be executed.
    NotExecuted,
    /// This signal arrived before the command was started.
    Signalled(i32),
}

/// What the process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitBy {
    Status(u8),
    Signal(i32),
}

impl Ending {
    /// The exit status; `conflict` is that of a lock that was not given.
    pub(super) fn exit_by(self, conflict: u8) -> ExitBy {
        ExitBy::Status(match self {
            Ending::AsCommand(JobEnd::Killed(signal)) | Ending::Signalled(signal) => {
                return ExitBy::Signal(signal);
            }
            Ending::AsCommand(JobEnd::Exited(code)) => code,
            Ending::DoneByAnother => 0,
            Ending::NotGiven => conflict,
            Ending::Stopped => status::LOST,
            Ending::NoServer => status::NO_SERVER,
            Ending::SeveralServers => status::USAGE,
            Ending::InvalidAnswer => status::PROTOCOL,
            Ending::NotExecuted => status::NOT_EXECUTED,
        })
    }
}
