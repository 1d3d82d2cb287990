//! Ids of connections: a type for each kind, so that none is taken for another. How many there
//! may be of those that are few.

use crate::sockets::slots::Source;
use engine::ClientId;
use serde::{Deserialize, Serialize};

/// How many control connections there may be. Operators are few: beyond this, the connection
/// silent for longest counts as forgotten. Each has a descriptor in reserve.
pub(crate) const CONTROL_CONNECTIONS_MAX: usize = 16;

/// Enough for Prometheus and a few browsers. Each has a descriptor in reserve.
pub(crate) const HTTP_CONNECTIONS_MAX: usize = 16;

/// The id of a connection of one kind.
pub(crate) trait ConnectionId: Copy {
    /// What the loop watches the connection in a slot as.
    const SOURCE: fn(usize) -> Source;

    fn new(slot: u32, serial: u32) -> Self;

    /// Used again after the connection has gone.
    fn slot(self) -> u32;

    /// Increases with each connection of this kind.
    fn serial(self) -> u32;
}

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

macro_rules! connection_ids {
    ($($id:ident is watched as $source:path;)*) => { $(
        impl ConnectionId for $id {
            const SOURCE: fn(usize) -> Source = $source;

            fn new(slot: u32, serial: u32) -> Self {
                $id { slot, serial }
            }

            fn slot(self) -> u32 {
                self.slot
            }

            fn serial(self) -> u32 {
                self.serial
            }
        }
    )* };
}

connection_ids! {
    ClientId is watched as Source::Client;
    ControlClient is watched as Source::Operator;
    HttpClient is watched as Source::Http;
}
