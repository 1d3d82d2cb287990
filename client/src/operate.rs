//! What operators ask of a daemon: statistics, of any server; orders, of the one on this host.
//! The command and the daemon's `--check` and `--reload` call it. Uses the protocol and the
//! transport; prints nothing.

mod send_order;
mod stats_connection;

pub use self::send_order::{
    ANSWER_TIMEOUT, DEFAULT_PATH, RESTART_TIMEOUT, restart_with, send_order,
};
#[cfg(feature = "cli")]
pub(crate) use self::stats_connection::{NoAnswer, StatsConnection};
pub use self::stats_connection::{places, uptime};
