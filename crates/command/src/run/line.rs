//! What `run` says: each line as data, and its text.

use super::act::{Failure, Limit, NoReply, NotReleased, Signalled};
use super::ending::Ending;
use connect::ServerName;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A line on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// The first attempt to reach a server has failed.
    Retries {
        server: ServerName,
        why: Failure,
        tried_for: Duration,
    },
    /// The next server is asked, if there is one.
    PassedOver(ServerName, Failure),
    /// The connection has ended during the wait, which begins again if there is time.
    WaitLost(ServerName, Failure),
    /// The command of a `run` that holds the key asks for it again.
    AsksForOwnKey,
    /// After others were passed over.
    GaveTheLock(ServerName),
    NobodyDidTheWork,
    AnotherDidTheWork,
    NotGiven(NotGiven),
    Denied {
        rule: String,
    },
    NotRun(NoLock),
    RunsWithoutLock(NoLock),
    /// The command is not killed with this process.
    NoDeathSignal(String),
    Unprepared(String),
    CantExecute(String),
    LockLost(ServerName, AfterLoss),
    /// The server has not confirmed that the lock was held until the command ended.
    ReleaseFailed(ServerName, NotReleased),
}

/// Why a lock was not given, by a server that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NotGiven {
    QueueFull,
    Limited(Limit),
    /// At once.
    Locked {
        holders: Option<String>,
    },
    TimedOut {
        shortened_by: Option<Limit>,
        holders: Option<String>,
    },
}

/// Why there is neither a lock nor an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NoLock {
    /// No server accepts a connection.
    Unreachable(Vec<(ServerName, Failure)>),
    /// The last wait was lost, and could not begin again.
    Lost(ServerName, Failure),
    /// That, and one of the servers that may have given the lock to another client runs.
    LostButAnswered {
        lost: (ServerName, Failure),
        answering: ServerName,
    },
    /// The server has closed the connection and still runs. If it gave the lock first, it admits
    /// this host.
    TurnedAway {
        server: ServerName,
        had_lock: bool,
    },
    /// The name of a server has several addresses, so it may be several servers.
    SeveralAddresses(ServerName, Vec<SocketAddr>),
    Unexpected(String),
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AfterLoss {
    Continues,
    Stopped(Signalled),
    /// By itself, at the same time or before.
    HadEnded,
}

impl NoLock {
    /// Whether no server that may be asked is known to answer, so that none is known to have the
    /// lock.
    pub(super) fn is_down(&self) -> bool {
        matches!(self, NoLock::Unreachable(_) | NoLock::Lost(..))
    }

    pub(super) fn ending(&self) -> Ending {
        match self {
            NoLock::SeveralAddresses(..) => Ending::SeveralServers,
            NoLock::Unexpected(_) => Ending::InvalidAnswer,
            NoLock::Unreachable(_)
            | NoLock::Lost(..)
            | NoLock::LostButAnswered { .. }
            | NoLock::TurnedAway { .. } => Ending::NoServer,
        }
    }
}

/// What the lines are about: the key as text, and the command.
pub(super) struct Subject {
    pub(super) key: String,
    pub(super) command: OsString,
}

impl Subject {
    /// The text of a line.
    pub(super) fn text(&self, line: &Line) -> String {
        let Subject { key, command } = self;
        match line {
            Line::Retries { server, why, tried_for } => {
                let s = tried_for.as_millis().div_ceil(10) as f64 / 100.0;
                format!("{key}: {server}: {why}; tried again for {s} s")
            }
            Line::PassedOver(server, why) => format!("{key}: {server} is passed over: {why}"),
            Line::WaitLost(server, why) => {
                format!("{key}: the connection to {server} is lost during the wait: {why}")
            }
            Line::AsksForOwnKey => format!(
                "{key}: a run that holds this key has started this one, which may wait for itself"
            ),
            Line::GaveTheLock(server) => format!("{key}: {server} gave the lock"),
            Line::NobodyDidTheWork => format!("{key}: no other client did the work"),
            Line::AnotherDidTheWork => {
                format!("{key}: another client did the work; {command:?} was not run")
            }
            Line::NotGiven(why) => format!("{key}: {why}; {command:?} was not run"),
            Line::Denied { rule } => {
                format!("{key}: denied by rule {rule}; {command:?} was not run")
            }
            Line::NotRun(why) => format!("{key}: {why}; {command:?} was not run"),
            Line::RunsWithoutLock(why) => {
                format!("{key}: {why}; running {command:?} without a lock")
            }
            Line::NoDeathSignal(why) => format!(
                "prctl(PR_SET_PDEATHSIG): {why}: if this process is killed, the command runs on \
                 without a lock"
            ),
            Line::Unprepared(why) => format!("{why}; {command:?} was not run"),
            Line::CantExecute(why) => format!("can't execute {command:?}: {why}"),
            Line::LockLost(server, after) => {
                format!("{key}: the connection to {server} is lost, and with it the lock; {after}")
            }
            Line::ReleaseFailed(server, why) => format!(
                "{key}: {server} has not confirmed that the lock was held until the command ended: \
                 {why}; another one may have run meanwhile"
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for NotReleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReleased::Silent { .. } => f.write_str("no answer"),
            NotReleased::NoReply(NoReply::Failed(why)) => why.fmt(f),
            NotReleased::NoReply(NoReply::Unexpected(answer)) => {
                write!(f, "it answered {answer:?}")
            }
        }
    }
}

impl fmt::Display for NotGiven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotGiven::QueueFull => f.write_str("the queue is full"),
            NotGiven::Limited(Limit { rule, setting, .. }) => {
                write!(f, "limited by rule {rule}: {setting}")
            }
            NotGiven::Locked { holders } => {
                write!(f, "locked{}", holders.as_deref().unwrap_or_default())
            }
            NotGiven::TimedOut { shortened_by, holders } => {
                f.write_str("timed out")?;
                if let Some(Limit { rule, setting, .. }) = shortened_by {
                    let time = setting.split_once('=').map_or("", |(_, time)| time);
                    write!(f, "; the wait was shortened to {time} by rule {rule}")?;
                }
                holders.as_ref().map_or(Ok(()), |holders| write!(f, "; held{holders}"))
            }
        }
    }
}

impl fmt::Display for NoLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLock::Unreachable(tried) => {
                let tried: Vec<String> = tried.iter().map(|(s, e)| format!("{s}: {e}")).collect();
                write!(f, "no server could be connected to: {}", tried.join("; "))
            }
            NoLock::Lost(server, why) => write!(f, "the connection to {server} is lost: {why}"),
            NoLock::LostButAnswered { lost: (server, why), answering } => {
                write!(f, "the connection to {server} is lost: {why}; but {answering} answers")
            }
            NoLock::TurnedAway { server, had_lock: true } => write!(
                f,
                "{server} gave the lock, and closed the connection before the command was \
                 started; it still runs, so a rule's max-hold may have been over, or an operator \
                 may have freed the lock"
            ),
            NoLock::TurnedAway { server, had_lock: false } => write!(
                f,
                "{server} closed the connection without an answer, and still runs; its --allow or \
                 --max-connections may not admit this host, or an operator has ended the wait"
            ),
            NoLock::SeveralAddresses(server, addresses) => {
                let addresses: Vec<String> =
                    addresses.iter().map(|address| address.ip().to_string()).collect();
                write!(
                    f,
                    "{server} has several addresses, and may be several servers: {}; without \
                     --fallback, a name has one, or one of IPv4 and one of IPv6",
                    addresses.join(", ")
                )
            }
            NoLock::Unexpected(answer) => write!(f, "the server answered {answer:?}"),
        }
    }
}

impl fmt::Display for AfterLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AfterLoss::Continues => "the command continues",
            AfterLoss::Stopped(Signalled::All) => "stopping the command",
            AfterLoss::Stopped(Signalled::Some) => {
                "stopping the command, except processes that it may not signal"
            }
            AfterLoss::Stopped(Signalled::NotTheCommand) => {
                "not allowed to signal the command, so it continues"
            }
            AfterLoss::HadEnded => "the command has ended",
        })
    }
}
