//! The new image's side of a hot restart: reads a snapshot and adopts the connections that it
//! names. [`dry_run`](super::dry_run) does the same in the trial; `serving::resume` continues
//! from here, and says why no step can fail.
//!
//! A client that waits for a report asks again by itself: its line is the first of its
//! unhandled input. That is at most a share and a line, as [`restore`] demands, because
//! nothing is received from a client that waits. So do operators.

use crate::clients::connection::Connection;
use crate::clients::connections::Clients;
use crate::options::Options;
use crate::platform::clock;
use crate::platform::hash_seed::random_seed;
use crate::platform::os::Engine;
use crate::platform::os::fd::RawFd;
use crate::platform::sys::inherited_connection;
use crate::restart::snapshot::{Reader, ServerState, SnapshotError, Summary};
use crate::sockets::socket::Socket;
use engine::rules::rule::Rule;
use engine::{ClientId, Time};
use std::io;

/// What a snapshot restores, including descriptors.
pub(crate) struct Restored {
    pub(crate) server: ServerState,
    pub(crate) clients: Clients,
    pub(crate) engine: Engine,
    /// When the engine continues.
    pub(crate) now: Time,
    /// Clients whose descriptors are missing, and why. Not logged yet: the old image may
    /// have written half a line.
    pub(crate) lost: Vec<(ClientId, io::Error)>,
    /// Operators' settings that no longer apply.
    pub(crate) ended_orders: Vec<String>,
}

/// Takes over the socket of a connection that the old image has left.
pub(crate) fn adopt(fd: RawFd) -> io::Result<Socket> {
    Ok(Socket::new(inherited_connection(fd)?, /* is_unix */ false))
}

/// Reads a snapshot and sets the rules, in a trial as in the restart itself. Only a trial reads a
/// `rules_file`: what it has read is in the snapshot of the restart. `adopt` takes over the socket
/// of a connection.
pub(crate) fn restore(
    bytes: &[u8],
    options: &Options,
    rules_file: Option<Vec<Rule>>,
    mut adopt: impl FnMut(RawFd) -> io::Result<Socket>,
) -> Result<Restored, SnapshotError> {
    let mut reader = Reader::new(bytes)?;
    let mut connections = Vec::new();
    let mut lost = Vec::new();
    for state in reader.connections() {
        let state = state?;
        match adopt(state.fd) {
            Ok(socket) => connections.push((state.client(), Connection::resume(socket, state))),
            Err(e) => lost.push((state.client(), e)),
        }
    }
    let now = clock::now().max(reader.server.taken);
    let state = std::mem::take(&mut reader.server.engine);
    // In the tests it becomes one that records its calls.
    #[cfg_attr(not(test), expect(clippy::useless_conversion))]
    let mut engine =
        Engine::from(engine::Engine::resume(state, reader.pools(), random_seed(), now)?);
    let settings = &mut reader.server.settings;
    let rules_file = rules_file.unwrap_or_else(|| std::mem::take(&mut reader.server.rules_file));
    let ended_orders = settings.resume(options, rules_file);
    settings.rules.check().map_err(SnapshotError::Rules)?;
    settings.rules.apply(&mut engine, now, || {});
    let clients = Clients::resume(connections, reader.server.last_serial, options);
    Ok(Restored { server: reader.server, clients, engine, now, lost, ended_orders })
}

impl Restored {
    /// Proves that the snapshot was read.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            taken: self.server.taken,
            connections: self.clients.len(),
            locks: self.engine.lock_count(),
        }
    }
}
