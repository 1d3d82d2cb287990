//! What the machine wants done, and what it is told of it: one act, then exactly one event.

use super::ending::{Ending, JobEnd};
use super::moment::Moment;
use connect::ServerName;
use std::net::SocketAddr;
use std::time::Duration;

/// What is to be done next. Times are the latest moments at which the event comes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// Look up the addresses of this server: [`Event::LookedUp`].
    LookUp { server: ServerName, until: Moment },
    /// Make a connection to ask for the lock on: [`Event::Connected`].
    Connect { address: SocketAddr, until: Moment },
    /// Ask for the lock, to wait for so many seconds, or for ever: [`Event::Answered`].
    Ask { server: ServerName, wait_s: Option<u64>, until: Option<Moment> },
    /// Ask over the same connection whether the server's process runs since then:
    /// [`Event::Uptime`].
    AskUptime { server: ServerName, since: Moment, until: Option<Moment> },
    /// Wait: [`Event::Done`].
    Pause { until: Moment },
    /// Look whether the lock is still held, and start the command if it is: [`Event::Started`],
    /// [`Event::NotStarted`], or [`Event::LostBeforeStart`].
    StartIfHeld,
    /// Start the command: [`Event::Started`] or [`Event::NotStarted`].
    StartWithoutLock,
    /// Wait for something to happen to the job: [`Event::Woke`].
    Watch { what: Watched, until: Option<Moment> },
    /// Send SIGTERM to the command and all that it has started: [`Event::Terminated`].
    Terminate,
    /// Send SIGKILL to all that still run: [`Event::Done`].
    Kill,
    /// Send these signals to the command: [`Event::Done`].
    PassOn(Vec<i32>),
    /// Give the lock back, with its work done: [`Event::Released`].
    Release { until: Moment },
    /// Wait longer for the answer: [`Event::Released`].
    AwaitReleased { until: Moment },
    /// Ask this server about the key: [`Event::AboutKey`].
    AskAboutKey(ServerName),
    /// Ask these servers whether they run: [`Event::Answering`].
    AskWhoAnswers(Vec<ServerName>),
    /// End, and close the connection, if there is one. No event comes.
    End(Ending),
}

/// What a job is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    /// The command's end, and signals.
    Command,
    /// These, and the end of the connection.
    CommandAndLock,
    /// The end of all that the command has left behind, and signals.
    Rest,
}

/// What has come of the last act.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The first one.
    Begun,
    LookedUp(Result<Vec<SocketAddr>, Failure>),
    Connected(Result<(), Failure>),
    /// Unless the lock was given, the connection is closed.
    Answered(Result<Answer, NoReply>),
    /// The connection is closed after an error.
    Uptime(Result<Uptime, Failure>),
    Done,
    Started(Guard),
    NotStarted(NotStarted),
    /// The connection is closed.
    LostBeforeStart(NoReply),
    Woke(Woken),
    /// Nothing is signalled if the command has ended by itself.
    Terminated(Option<Signalled>),
    Released(Result<(), NotReleased>),
    AboutKey(AboutKey),
    /// The first that does.
    Answering(Option<ServerName>),
}

/// What a server answers to a question for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Locked,
    /// Another client has done the work.
    Done,
    QueueFull,
    TimedOut,
}

/// An answer that is none, or no answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NoReply {
    /// This, which answers nothing that was asked.
    Unexpected(String),
    Failed(Failure),
}

/// A lock that was given back, without a confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NotReleased {
    /// No answer has come in time. Its host has the message if that is acknowledged.
    Silent {
        is_acknowledged: bool,
    },
    NoReply(NoReply),
}

/// Why a call about a server has failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// In the kernel's or the resolver's words.
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FailureKind {
    /// The other side has closed the connection.
    Closed,
    /// The server, or the network to it, is down or silent.
    Down,
    /// Time does not change it, as that a call is denied.
    Lasting,
}

/// Which process answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Uptime {
    /// The same; or one that can't tell.
    RunsSince,
    /// Another one.
    HasEnded,
}

/// Whether the kernel kills the command when this process dies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Guard {
    Works,
    /// Why it does not.
    Fails(String),
}

/// Why the command was not started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NotStarted {
    /// What a start needs is denied to this process.
    Unprepared(String),
    CantExecute(String),
    /// This signal, which ends the process, arrived first.
    Signalled(i32),
}

/// What has happened to a job, all that is known at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Woken {
    /// The command has ended.
    pub(super) ended: Option<JobEnd>,
    /// The connection has ended.
    pub(super) is_lost: bool,
    /// No process that may be signalled is left; looked for only with [`Watched::Rest`].
    pub(super) is_rest_gone: bool,
    /// Signals to this process alone, in the order in which they came.
    pub(super) signals: Vec<i32>,
}

/// Which processes got SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Signalled {
    All,
    /// Not those that have another user's rights.
    Some,
    /// The command has another user's rights.
    NotTheCommand,
}

/// What a server tells of a key, as far as it explains why the lock was not given. Empty if it tells
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct AboutKey {
    /// The rule that refuses every request for it.
    pub(super) denied_by: Option<String>,
    /// What rules set, in the order in which they apply.
    pub(super) limits: Vec<Limit>,
    /// How many clients hold the key or wait for it.
    pub(super) in_queue: u64,
    /// Who holds it, as ` by 10.1.2.9 for 3m 10s`.
    pub(super) holders: Option<String>,
}

/// A setting of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limit {
    pub(super) rule: String,
    /// As `total=1`.
    pub(super) setting: String,
    pub(super) kind: LimitKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LimitKind {
    /// It replaces the client's own.
    MaxQueue(u64),
    Total {
        is_used_up: bool,
    },
    Timeout(Duration),
}
