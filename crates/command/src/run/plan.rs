//! What the options of `run` come to: all that its decisions depend on.

use super::moment::Moment;
use connect::ServerName;
use std::time::Duration;

/// How long a server may accept no connection without a time for the wait: a restart takes less.
const TOLERATED: Duration = Duration::from_secs(30);

/// The least with one: the kernel sends a packet that was lost again after a second.
const TOLERATED_MIN: Duration = Duration::from_secs(2);

/// What happens when no server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub(super) enum NoServer {
    /// Run the command without a lock.
    Run,
    /// Don't run it.
    Fail,
}

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OnLost {
    /// Print a warning; the command continues.
    Warn,
    /// Stop the command and all that it has started: SIGTERM, and SIGKILL so much later.
    Kill { after: Duration },
}

/// Which lines about the wait are printed besides those about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Talk {
    /// None, even if the lock is not given.
    Quiet,
    Usual,
    /// Each wait that is lost, and why the command is not run.
    Verbose,
}

/// What to do, and what to do if it can't be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// Those that may be asked for the key, in the order in which they are: only the first, unless
    /// there is a fallback.
    pub(super) servers: Vec<ServerName>,
    /// Each address of a name is tried as if it were the same server.
    pub(super) has_fallback: bool,
    /// How long to wait for the lock; `None` is for ever.
    pub(super) wait_s: Option<u64>,
    /// Another client's finished work is enough.
    pub(super) is_any: bool,
    /// How many clients may hold the key or wait for it, this one included.
    pub(super) max_queue: u32,
    /// By its environment, the command of another `run` asks for the key which that has, alone.
    pub(super) is_own_key: bool,
    /// How long a server may accept no connection.
    pub(super) connect_timeout: Option<Duration>,
    pub(super) no_server: NoServer,
    pub(super) on_lost: OnLost,
    pub(super) talk: Talk,
}

impl Plan {
    /// How long a server may accept no connection, when so much of the wait is left: `None` is for
    /// ever.
    pub(super) fn tolerated(&self, left: Option<Duration>) -> Duration {
        let left = left.map(|left| left.max(TOLERATED_MIN));
        match (self.connect_timeout, left) {
            (None, None) => TOLERATED,
            (Some(time), None) | (None, Some(time)) => time,
            (Some(time), Some(left)) => time.min(left),
        }
    }

    /// When the wait is over that begins now.
    pub(super) fn ends_at(&self, now: Moment) -> Option<Moment> {
        self.wait_s.map(|wait_s| now + Duration::from_secs(wait_s))
    }
}
