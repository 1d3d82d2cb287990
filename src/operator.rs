//! What operators say, by signals and on the control socket, as orders; what they have set at run
//! time, rules above all. `serving` executes the orders, last in a turn, because they concern
//! every part. It may know what is below it (options, sockets, the log), the protocol's queries,
//! the engine's rules and how reports show them, but no pool, lock or client's connection.

pub(crate) mod control_socket;
pub(crate) mod orders;
pub(crate) mod rule_book;
pub(crate) mod run_time_settings;
