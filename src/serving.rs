//! The daemon: its parts, what happens in a turn and in which order, how it starts and continues.
//! The executable calls it. It stands above all other folders and alone knows all of them: what
//! one part needs of another passes through here.
//!
//! | file | what of [`Server`] |
//! |---|---|
//! | `start`, `resume` | it is made: by a start, or from what a hot restart carries over |
//! | `event_loop` | the steps of a turn |
//! | `dispatch` | lines of clients, and their answers |
//! | `execute_orders` | orders of operators; the old image's part of a hot restart |

pub(crate) mod advice;
mod dispatch;
pub(crate) mod event_loop;
mod execute_orders;
mod memory_release;
mod resume;
mod start;

// The tests run the server on a simulated kernel, and look at all parts of it.
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
pub(super) mod simulation;

use crate::clients::input::Input;
use crate::logging::systemd::ServiceManager;
use crate::options::Options;
use crate::reporting::http::Http;
use crate::reporting::report_queue::Reporting;
use crate::restart::old_image::Restart;
use crate::restart::parts::Parts;
use engine::Time;
pub use event_loop::Ended;
use memory_release::MemoryRelease;
pub use start::{check_options, start_logging};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The daemon: one thread, one event loop.
pub struct Server {
    options: Options,
    parts: Parts,
    reporting: Reporting,
    restart: Restart,
    http: Http,
    input: Input,
    memory_release: MemoryRelease,
    service_manager: ServiceManager,
    /// When this turn began: the loop has stopped waiting for events.
    turn_began: Time,
    /// Events of this turn.
    events: usize,
}
