//! The command `poolcounter` against our daemon and Debian's: `run`, its lists and
//! statistics, and the control socket.

#[path = "../support/mod.rs"]
mod support;

mod dead_servers;
mod denied_calls;
mod descendants;
mod environment;
mod freeing;
mod hostile;
mod huge_numbers;
mod kept_connections;
mod lost_waits;
mod names;
mod operating;
mod races;
mod rules;
mod running;
mod server_lists;
mod several_servers;
mod showing;
mod terminal_jobs;
mod top;
mod top_ends;
mod waiting;

use support::command;
