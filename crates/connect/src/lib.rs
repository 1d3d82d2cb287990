//! Names of servers, blocking connections to them, and over these what operators ask: statistics of
//! any server, orders of the daemon on this host. The command and the daemon's `--check` and
//! `--reload` call it. It may know sockets and clocks, but nothing of locks or the engine, and
//! it prints nothing.

#![forbid(unsafe_code)]

// Here, because both programs need this crate. The rest of it is left out then, so that this is the only error.
#[cfg(not(target_os = "linux"))]
compile_error!("poolcounterd and poolcounter run on Linux only");
#[cfg(target_os = "linux")]
pub use on_linux::*;

#[cfg(target_os = "linux")]
#[path = "."]
mod on_linux {
    mod addresses;
    pub mod failed_call;
    mod send_order;
    mod server_name;
    mod stats_connection;
    mod transport;

    pub use addresses::LookUp;
    pub use send_order::{ANSWER_TIMEOUT, DEFAULT_PATH, OrderError, RESTART_TIMEOUT, send_order};
    pub use server_name::{BadServerName, PORT, ServerName};
    pub use stats_connection::{NoAnswer, Place, StatsConnection, places};
    pub use transport::{Stream, connect_unix, is_closed};
}
