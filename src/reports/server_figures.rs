//! What the server knows and reports show: plain data, which the server fills.

use serde::Serialize;

/// What the server knows.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// Of the daemon.
    pub version: &'static str,
    /// Clients connected now.
    pub connections: usize,
    /// It takes no new clients.
    pub is_draining: bool,
    /// When it was started, in nanoseconds since 1970 on the wall clock.
    pub started_wall_ns: u64,
    /// The process.
    pub process: ProcessFigures,
}

/// The process, as the kernel knows it; 0 if it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProcessFigures {
    /// User and system time.
    pub cpu_s: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Address space.
    pub virtual_bytes: u64,
    /// Descriptors in use.
    pub open_descriptors: u64,
    /// How many it may have.
    pub descriptors_max: u64,
}
