//! Sockets, signals and the clock around the engine.
//!
//! One turn: wait → accept → receive from all ready clients → handle their input → expire waits →
//! continue reports and HTTP → flush owed output → close ended connections → operators' orders
//! last, so that they take effect between turns.

mod advice;
mod clients;
mod event_loop;
mod kernel;
mod listening;
mod operator;
mod options;
mod reporting;
mod restart;
mod sockets;
mod start;
mod telling;

// The tests run the server in a simulated world.
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;

pub use advice::StartError;
pub use event_loop::{Ended, Server};
pub use listening::addresses::{ListenError, Obstacle, Purpose, Wanted};
pub use operator::control_socket::{Request as ControlRequest, parse as parse_control_request};
pub use operator::rule_book::{RuleOrder, check_rules};
pub use options::{Options, PORT, arguments_after_reload};
pub use reporting::http::head::{Head as HttpHead, parse as parse_http_head};
pub use restart::new_image::rehearse;
pub use restart::snapshot;
pub use start::start_logging;
pub use telling::logging::print as print_error;
