//! How the caller identifies clients.

use serde::{Deserialize, Serialize};

/// Identifies a client by a slot, which is used again, and a serial number, which is
/// not. The caller assigns both.
///
/// A slot belongs to the client that has locks in it. A call for a former client of
/// the slot has no effect and gets no answer. A call for a newer client first gives
/// back the locks of the former one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// An index: a small number, used again after the client has gone.
    pub slot: u32,
    /// Increases with each client. Repeats only after 2^32 clients.
    pub serial: u32,
}

impl ClientId {
    /// Whether this client came after `other`. Serial numbers wrap around.
    pub(super) fn came_after(self, other: ClientId) -> bool {
        (self.serial.wrapping_sub(other.serial) as i32) > 0
    }
}
