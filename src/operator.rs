//! What operators say, by signals and on the control socket, as orders; what they have set at run
//! time, rules above all. `serving` executes the orders, last in a turn, because they concern
//! every part. It may know sockets and the engine's rules, but no other part.

pub(crate) mod control_socket;
pub(crate) mod orders;
pub(crate) mod rule_book;
pub(crate) mod run_time_settings;
