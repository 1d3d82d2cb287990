//! Connections by slot. Slots are used again, serial numbers are not: what was meant for a
//! closed connection never reaches its successor.

use crate::engine::{ClientId, SpareCapacity};
use crate::server::kernel::socket::Socket;
use crate::server::kernel::tokens::Source;
use crate::server::kernel::world::fd::AsRawFd;
use crate::server::kernel::world::mio::unix::SourceFd;
use crate::server::kernel::world::mio::{Interest, Registry};
use slab::Slab;
use std::io;

/// Connections of one kind, each with its serial number.
pub(crate) struct Slots<T> {
    slab: Slab<(u32, T)>,
    last_serial: u32,
    source: fn(usize) -> Source,
    interest: Interest,
}

impl<T> Slots<T> {
    /// The loop watches the connections as `source` for events of `interest`.
    pub(crate) fn new(source: fn(usize) -> Source, interest: Interest) -> Self {
        Slots { slab: Slab::new(), last_serial: 0, source, interest }
    }

    /// Continues with the connections of the old image, which the loop watches already.
    pub(crate) fn resume(&mut self, connections: Vec<(ClientId, T)>, last_serial: u32) {
        self.last_serial = last_serial;
        let entry = |(id, it): (ClientId, T)| (id.slot as usize, (id.serial, it));
        self.slab = connections.into_iter().map(entry).collect();
    }

    /// Inserts the connection that `open` makes of `socket`, once the loop watches it.
    pub(crate) fn insert(
        &mut self,
        socket: Socket,
        registry: &Registry,
        open: impl FnOnce(Socket) -> T,
    ) -> io::Result<(ClientId, &mut T)> {
        let entry = self.slab.vacant_entry();
        let token = (self.source)(entry.key()).into();
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, self.interest)?;
        self.last_serial = self.last_serial.wrapping_add(1);
        let id = ClientId { slot: entry.key() as u32, serial: self.last_serial };
        Ok((id, &mut entry.insert((id.serial, open(socket))).1))
    }

    /// The connection with this id. `None` if its slot is free or has another owner.
    pub(crate) fn get(&self, id: ClientId) -> Option<&T> {
        let (serial, connection) = self.slab.get(id.slot as usize)?;
        (*serial == id.serial).then_some(connection)
    }

    /// As [`Slots::get`].
    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut T> {
        let (serial, connection) = self.slab.get_mut(id.slot as usize)?;
        (*serial == id.serial).then_some(connection)
    }

    /// The connection that is in `slot` now.
    pub(crate) fn at(&mut self, slot: usize) -> Option<(ClientId, &mut T)> {
        let (serial, connection) = self.slab.get_mut(slot)?;
        Some((ClientId { slot: slot as u32, serial: *serial }, connection))
    }

    /// Closes the connection with this id.
    pub(crate) fn remove(&mut self, id: ClientId) -> Option<T> {
        self.get(id)?;
        Some(self.slab.remove(id.slot as usize).1)
    }

    /// Closes the connections that `stays` does not keep.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&mut T) -> bool) {
        self.slab.retain(|_, (_, connection)| stays(connection));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &T)> {
        self.slab.iter().map(|(slot, (serial, connection))| {
            (ClientId { slot: slot as u32, serial: *serial }, connection)
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut T)> {
        self.slab.iter_mut().map(|(slot, (serial, connection))| {
            (ClientId { slot: slot as u32, serial: *serial }, connection)
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// How many slots there are, with and without a connection.
    pub(crate) fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    pub(crate) fn last_serial(&self) -> u32 {
        self.last_serial
    }

    /// What [`Slots::shrink`] would free.
    pub(crate) fn spare(&self) -> SpareCapacity {
        SpareCapacity::of(&self.slab)
    }

    pub(crate) fn shrink(&mut self) {
        self.slab.shrink_to_fit();
    }
}
