//! Sockets, signals and the clock around the engine: a stack of folders, with `serving` at its
//! top.

mod clients;
mod kernel;
mod listening;
mod operator;
mod options;
mod reporting;
mod restart;
mod serving;
mod sockets;
mod telling;

pub use listening::addresses::{ListenError, Obstacle, Purpose, Wanted};
pub use operator::control_socket::{Request as ControlRequest, parse as parse_control_request};
pub use operator::rule_book::{RuleOrder, check_rules};
pub use options::{Options, PORT, arguments_after_reload};
pub use reporting::http::head::{Head as HttpHead, parse as parse_http_head};
pub use restart::new_image::rehearse;
pub use restart::snapshot;
pub use serving::advice::StartError;
#[cfg(test)]
use serving::simulation;
pub use serving::{Ended, Server, start_logging};
pub use telling::logging::print as print_error;
