//! Connections by slot and serial number; epoll's tokens, and `watch`, which registers a
//! descriptor. Slots are used again, serial numbers are not: what was meant for a closed
//! connection never reaches its successor.

use crate::platform::failed_call::named;
use crate::platform::os::fd::{AsRawFd, OwnedFd};
use crate::platform::os::mio::unix::SourceFd;
use crate::platform::os::mio::{Interest, Registry, Token};
use crate::sockets::ids::{ControlClient, HttpClient};
use crate::sockets::socket::Socket;
use engine::{ClientId, SpareCapacity};
use slab::Slab;
use std::io;
use std::marker::PhantomData;

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

/// Connections of one kind, each with its serial number.
pub(crate) struct Slots<Id, T> {
    slab: Slab<(u32, T)>,
    last_serial: u32,
    interest: Interest,
    ids: PhantomData<Id>,
}

impl<Id: ConnectionId, T> Slots<Id, T> {
    /// The loop watches the connections for events of `interest`.
    pub(crate) fn new(interest: Interest) -> Self {
        Slots { slab: Slab::new(), last_serial: 0, interest, ids: PhantomData }
    }

    /// Continues with the connections of the old image, which the loop watches already.
    pub(crate) fn resume(&mut self, connections: Vec<(Id, T)>, last_serial: u32) {
        self.last_serial = last_serial;
        let entry = |(id, it): (Id, T)| (id.slot() as usize, (id.serial(), it));
        self.slab = connections.into_iter().map(entry).collect();
    }

    /// Inserts the connection that `open` makes of `socket`, once the loop watches it.
    pub(crate) fn insert(
        &mut self,
        socket: Socket,
        registry: &Registry,
        open: impl FnOnce(Socket) -> T,
    ) -> io::Result<(Id, &mut T)> {
        let entry = self.slab.vacant_entry();
        let token = Id::SOURCE(entry.key()).into();
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, self.interest)?;
        self.last_serial = self.last_serial.wrapping_add(1);
        let id = Id::new(entry.key() as u32, self.last_serial);
        Ok((id, &mut entry.insert((self.last_serial, open(socket))).1))
    }

    /// The connection with this id. `None` if its slot is free or has another owner.
    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let (serial, connection) = self.slab.get(id.slot() as usize)?;
        (*serial == id.serial()).then_some(connection)
    }

    /// As [`Slots::get`].
    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let (serial, connection) = self.slab.get_mut(id.slot() as usize)?;
        (*serial == id.serial()).then_some(connection)
    }

    /// The connection that is in `slot` now.
    pub(crate) fn at(&self, slot: usize) -> Option<(Id, &T)> {
        let (serial, connection) = self.slab.get(slot)?;
        Some((Id::new(slot as u32, *serial), connection))
    }

    /// As [`Slots::at`].
    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<(Id, &mut T)> {
        let (serial, connection) = self.slab.get_mut(slot)?;
        Some((Id::new(slot as u32, *serial), connection))
    }

    /// Closes the connection with this id.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        self.get(id)?;
        Some(self.slab.remove(id.slot() as usize).1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slab
            .iter()
            .map(|(slot, (serial, connection))| (Id::new(slot as u32, *serial), connection))
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

/// A client's token is its slot; all other tokens are above any slot.
const FIRST_LISTENER: usize = 1 << 24;
const _: () = assert!(engine::state::SLOTS_MAX as usize <= FIRST_LISTENER);
const FIRST_OPERATOR: usize = 1 << 25;
const SIGNALS: usize = 1 << 26;
const TRIAL: usize = SIGNALS + 1;
const FIRST_HTTP: usize = 1 << 27;

/// A source of events for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The client in this slot.
    Client(usize),
    /// The listener with this number.
    Listener(usize),
    /// The control connection with this number.
    Operator(usize),
    /// The HTTP connection with this number.
    Http(usize),
    /// The signals that the daemon handles.
    Signals,
    /// The child of a hot restart's trial.
    Trial,
}

impl From<Source> for Token {
    fn from(source: Source) -> Self {
        Token(match source {
            Source::Client(slot) => slot,
            Source::Listener(number) => FIRST_LISTENER + number,
            Source::Operator(number) => FIRST_OPERATOR + number,
            Source::Http(number) => FIRST_HTTP + number,
            Source::Signals => SIGNALS,
            Source::Trial => TRIAL,
        })
    }
}

impl From<Token> for Source {
    fn from(Token(token): Token) -> Self {
        match token {
            SIGNALS => Source::Signals,
            TRIAL => Source::Trial,
            FIRST_HTTP.. => Source::Http(token - FIRST_HTTP),
            FIRST_OPERATOR.. => Source::Operator(token - FIRST_OPERATOR),
            FIRST_LISTENER.. => Source::Listener(token - FIRST_LISTENER),
            slot => Source::Client(slot),
        }
    }
}

/// Watches a socket that the old image may have watched already.
pub(crate) fn watch(registry: &Registry, socket: &OwnedFd, source: Source) -> io::Result<()> {
    let token = source.into();
    let fd = socket.as_raw_fd();
    match registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            registry.reregister(&mut SourceFd(&fd), token, Interest::READABLE)
        }
        result => result,
    }
    .map_err(named("epoll_ctl"))
}
