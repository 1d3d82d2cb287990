//! Signals and the control socket: what an operator orders, and what orders have set.
//!
//! Orders are executed last in a turn, by `serving`, which knows what they are about.

pub(crate) mod control_socket;
pub(crate) mod orders;
pub(crate) mod rule_book;
pub(crate) mod run_time_settings;
