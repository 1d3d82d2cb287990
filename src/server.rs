//! Sockets, signals and the clock around the engine.
//!
//! One turn: wait → accept → receive from all ready clients → handle their input → expire waits →
//! continue reports and HTTP → flush owed output → close ended connections → operators' orders
//! last, so that they take effect between turns.

mod accepting;
mod addresses;
mod admission;
mod advice;
mod asking;
mod clients;
mod clock;
mod connection;
mod control;
mod dispatch;
mod event_loop;
mod for_reports;
mod hangup;
mod http;
mod inherited;
mod input;
mod launcher;
mod listener;
mod listeners;
mod logging;
mod memory;
mod obeying;
mod opening;
mod operator;
mod options;
mod rehearsal;
mod reporting;
mod restart;
mod resume;
mod slots;
pub mod snapshot;
mod socket;
mod start;
mod stream;
#[cfg(not(test))]
mod sys;
mod systemd;
mod tokens;
mod trial;
mod unix_socket;
mod usage;
#[cfg(not(test))]
mod world;

// The tests run the server in a simulated world.
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
#[cfg(test)]
use simulation::{sys, world};

pub use addresses::{ListenError, Purpose, Wanted};
pub use advice::StartError;
pub use control::{Request as ControlRequest, parse as parse_control_request};
pub use event_loop::{Ended, Server};
pub use http::head::{Head as HttpHead, parse as parse_http_head};
pub use logging::print as print_error;
pub use options::{Options, PORT, arguments_after_reload};
pub use rehearsal::rehearse;
pub use start::start_logging;
