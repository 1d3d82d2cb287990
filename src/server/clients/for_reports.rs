//! What reports need of the clients: their addresses, and that a client waits for the
//! report that it asked for.

use crate::engine::ClientId;
use crate::reports::Peers;
use crate::server::clients::connections::Clients;
use std::ops::Range;

impl Clients {
    /// Puts `input` back until [`Clients::resume_input`]. It begins with the line that takes
    /// turns of the loop to answer: a hot restart hands it over, and the new image
    /// handles it again.
    pub(crate) fn park(&mut self, client: ClientId, input: &[u8]) {
        if let Some(connection) = self.open_mut(client) {
            connection.lines.put_back(input);
            connection.is_parked = true;
        }
    }

    /// The line for which `client` was parked is answered: handles the rest. Returns
    /// false if it has gone.
    pub(crate) fn resume_input(&mut self, client: ClientId) -> bool {
        let Some(connection) = self.open_mut(client).filter(|connection| connection.is_parked)
        else {
            return false;
        };
        connection.is_parked = false;
        let input = connection.lines.take_unhandled();
        let end = input.iter().position(|&b| b == b'\n').map_or(input.len(), |end| end + 1);
        connection.lines.put_back(&input[end..]);
        self.record_unread(client);
        true
    }

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
