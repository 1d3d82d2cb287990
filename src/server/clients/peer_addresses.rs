//! The addresses of the clients, for reports.

use crate::engine::ClientId;
use crate::reports::Peers;
use crate::server::clients::connections::Clients;
use std::ops::Range;

impl Clients {
    /// How many slots there are, with and without a connection.
    pub(crate) fn slots(&self) -> usize {
        self.slots.capacity()
    }

    /// Calls `look` with each connection in `slots` and its address without the port.
    pub(crate) fn for_each_address(
        &mut self,
        slots: Range<usize>,
        mut look: impl FnMut(ClientId, &str),
    ) {
        let mut address = String::new();
        for slot in slots {
            if let Some((client, connection)) = self.slots.at(slot) {
                connection.write_address(&mut address);
                look(client, &address);
            }
        }
    }

    /// Replaces `address` by that of `client`, without the port. Returns false if it
    /// has gone.
    pub(crate) fn write_address(&mut self, client: ClientId, address: &mut String) -> bool {
        let connection = self.slots.get_mut(client);
        connection.map(|connection| connection.write_address(address)).is_some()
    }
}

impl Peers for Clients {
    fn peer(&self, client: ClientId) -> Option<String> {
        self.peer_name(client)
    }
}
