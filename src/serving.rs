//! The daemon: its parts, what happens in a turn and in which order, how it starts and continues.
//! The executable calls it. It stands above all other folders and alone knows all of them: what
//! one part needs of another passes through here.

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

use crate::clients::connections::Clients;
use crate::clients::input::Input;
use crate::listening::listeners::Listeners;
use crate::logging::systemd::ServiceManager;
use crate::operator::orders::Operators;
use crate::options::Options;
use crate::platform::os::mio::Poll;
use crate::reporting::http::Http;
use crate::reporting::report_queue::Reporting;
use crate::restart::old_image::Restart;
#[cfg(not(test))]
use engine::Engine;
use engine::Time;
pub use event_loop::Ended;
use memory_release::MemoryRelease;
#[cfg(test)]
use simulation::os::Engine;
pub use start::start_logging;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The daemon: one thread, one event loop.
pub struct Server {
    options: Options,
    poll: Poll,
    listeners: Listeners,
    clients: Clients,
    engine: Engine,
    reporting: Reporting,
    operator: Operators,
    restart: Restart,
    http: Http,
    input: Input,
    memory_release: MemoryRelease,
    service_manager: ServiceManager,
    /// When the daemon was started, in nanoseconds since 1970, as it was first shown. A different
    /// answer would look like another start, so it is kept, even if the wall clock is set later.
    started_wall_ns: Option<u64>,
    /// When this turn began: the loop has stopped waiting for events.
    turn_began: Time,
    /// Events of this turn.
    events: usize,
}
