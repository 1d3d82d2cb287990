//! Ids of connections: a type for each kind, so that none is taken for another. How many there
//! may be of those that are few.

use serde::{Deserialize, Serialize};

/// How many control connections there may be. Operators are few: beyond this, the connection
/// silent for longest counts as forgotten. Each has a descriptor in reserve.
pub(crate) const CONTROL_CONNECTIONS_MAX: usize = 16;

/// Enough for Prometheus and a few browsers. Each has a descriptor in reserve.
pub(crate) const HTTP_CONNECTIONS_MAX: usize = 16;

/// A control connection's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlClient {
    /// Its slot.
    pub slot: u32,
    /// Its serial number.
    pub serial: u32,
}

/// An HTTP connection's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpClient {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}
