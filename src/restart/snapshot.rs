//! The snapshot of a hot restart: its format and header, writes and reads connections and
//! pools, refuses descriptors, connections and unread input that contradict each other.
//!
//! A stream of MessagePack maps with named fields: a header with the version, the
//! server, one record for each connection, one for each pool. A reader ignores unknown
//! fields and uses the default for a missing one, so a new field needs no new version.
//! Keys are stored verbatim. Each part of the daemon derives its own state; this module
//! composes them and checks what spans several parts.
//!
//! A snapshot is checked like hostile input, except for statistics: the trial refuses what
//! no daemon can have written, and the old image continues to serve.

pub use crate::clients::connection::ConnectionState;
use crate::clients::input_queues::SHARE_BYTES;
pub use crate::listening::listener::{ListenerStage, ListenerState};
pub use crate::listening::listeners::ListenersState;
pub use crate::listening::unix_socket::SocketFile;
use crate::logging::logger;
pub use crate::operator::control_socket::ControlConnectionState;
use crate::operator::run_time_settings::RunTimeSettings;
use crate::platform::os::fd::RawFd;
pub use crate::restart::launcher::LauncherState;
pub use crate::restart::restart_error::SnapshotError;
pub use crate::sockets::ids::ControlClient;
use crate::sockets::stream::OUTPUT_BYTES_MAX;
use engine::rules::rule::Rule;
use engine::state::{EngineState, PoolState, SLOTS_MAX};
use engine::{ClientId, Time};
use protocol::lines::LINE_BYTES_MAX;
use reports::history::History;
use rmp_serde::decode::ReadRefReader;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The version written, and the newest one read.
pub const NEWEST: u64 = 1;

/// The first record of every version.
#[derive(Serialize, Deserialize)]
struct Header {
    poolcounterd_snapshot: u64,
    /// The version of the daemon that wrote it, for people.
    #[serde(default)]
    daemon: String,
}

/// Everything except the connections and pools, at the end of a turn of the loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerState {
    /// When it was taken.
    #[serde(rename = "taken_ns")]
    pub taken: Time,
    /// The serial number of the newest client.
    pub last_serial: u32,
    /// The listeners, and the state of a drain.
    pub listening: ListenersState,
    /// The epoll instance that watches every connection, edge-triggered, with its slot
    /// as token. Registering 10,000 again would take as long as all the rest.
    pub epoll_fd: RawFd,
    /// The operators' connections.
    pub operators: Vec<ControlConnectionState>,
    /// The operator waiting for the result of the restart.
    pub requester: Option<ControlClient>,
    /// Another restart follows.
    pub restarts_again: bool,
    /// Starts the next binary.
    pub launcher: LauncherState,
    /// What operators have set at run time.
    pub settings: RunTimeSettings,
    /// What the new binary has read in its trial.
    pub rules_file: Vec<Rule>,
    /// The last hour.
    pub history: History,
    /// Lines not written yet.
    pub logging: logger::LoggingState,
    /// How many records of connections follow.
    pub connections: usize,
    /// How many records of pools follow them.
    pub pools: usize,
    /// Statistics, and the engine's other state except its pools.
    pub engine: EngineState,
}

/// Facts from a snapshot, which prove that a program has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// When it was taken.
    pub(crate) taken: Time,
    pub(crate) connections: usize,
    pub(crate) locks: usize,
}

fn impossible(why: &str) -> SnapshotError {
    SnapshotError::Impossible(why.to_owned())
}

/// Writes a snapshot in the newest version. `server` has the numbers of connections
/// and pools.
///
/// # Errors
/// The error of writing to `out`.
pub fn write<'a>(
    out: impl Write,
    server: &ServerState,
    connections: impl IntoIterator<Item = ConnectionState>,
    pools: impl IntoIterator<Item = PoolState<'a>>,
) -> io::Result<()> {
    let mut records = rmp_serde::Serializer::new(out).with_struct_map();
    let daemon = env!("CARGO_PKG_VERSION").to_owned();
    let header = Header { poolcounterd_snapshot: NEWEST, daemon };
    header.serialize(&mut records).map_err(io::Error::other)?;
    server.serialize(&mut records).map_err(io::Error::other)?;
    for connection in connections {
        connection.serialize(&mut records).map_err(io::Error::other)?;
    }
    for pool in pools {
        pool.serialize(&mut records).map_err(io::Error::other)?;
    }
    Ok(())
}

type Records<'a> = rmp_serde::Deserializer<ReadRefReader<'a, [u8]>>;

/// Reads a snapshot record by record, and checks all that can be checked without its
/// descriptors: first [`Reader::server`], then all of [`Reader::connections`], then all
/// of [`Reader::pools`], whose keys are borrowed.
pub struct Reader<'a> {
    records: Records<'a>,
    /// Everything except the connections and pools.
    pub server: ServerState,
    /// The serial number of the connection in each slot. A hash map would be too slow
    /// for a hot restart.
    serials: Vec<Option<u32>>,
}

impl<'a> Reader<'a> {
    /// Reads the version and the server.
    ///
    /// # Errors
    /// Why the snapshot is refused.
    pub fn new(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let mut records = rmp_serde::Deserializer::from_read_ref(bytes);
        let header: Header = next(&mut records)?;
        match header.poolcounterd_snapshot {
            0 => return Err(impossible("version 0")),
            1..=NEWEST => {}
            version => return Err(SnapshotError::TooNew(version, NEWEST)),
        }
        let server: ServerState = next(&mut records)?;
        check_operators(&server.operators)?;
        for listener in &server.listening.listeners {
            listener.origin().map_err(impossible)?;
        }
        Ok(Reader { records, server, serials: Vec::new() })
    }

    /// The connections. After the last one, checks that no descriptor is used twice.
    pub fn connections(&mut self) -> impl Iterator<Item = Result<ConnectionState, SnapshotError>> {
        let mut fds: Vec<RawFd> = self.server.descriptors().collect();
        let count = self.server.connections;
        (0..=count).filter_map(move |n| {
            if n == count {
                check_descriptors(&mut fds).err().map(Err)
            } else {
                Some(self.next_connection().inspect(|connection| fds.push(connection.fd)))
            }
        })
    }

    fn next_connection(&mut self) -> Result<ConnectionState, SnapshotError> {
        let connection: ConnectionState = next(&mut self.records)?;
        check_connection(&connection)?;
        let slot = connection.slot as usize;
        if slot >= self.serials.len() {
            self.serials.resize(slot + 1, None);
        }
        if self.serials[slot].replace(connection.serial).is_some() {
            return Err(impossible("two connections in one slot"));
        }
        Ok(connection)
    }

    /// The pools. After the last one, checks that nothing follows.
    pub fn pools(&mut self) -> impl Iterator<Item = Result<PoolState<'a>, SnapshotError>> {
        let count = self.server.pools;
        (0..=count).filter_map(move |n| {
            if n == count { self.check_end().err().map(Err) } else { Some(self.next_pool()) }
        })
    }

    fn next_pool(&mut self) -> Result<PoolState<'a>, SnapshotError> {
        let pool: PoolState<'_> = next(&mut self.records)?;
        self.check_clients(pool.clients())?;
        Ok(pool)
    }

    fn check_end(&mut self) -> Result<(), SnapshotError> {
        match u8::deserialize(&mut self.records) {
            Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(()),
            _ => Err(impossible("data after its end")),
        }
    }

    fn check_clients(
        &self,
        clients: impl IntoIterator<Item = ClientId>,
    ) -> Result<(), SnapshotError> {
        let is_connected =
            |client: ClientId| self.serials.get(client.slot as usize) == Some(&Some(client.serial));
        if clients.into_iter().all(is_connected) {
            Ok(())
        } else {
            Err(impossible("a lock without a connection"))
        }
    }
}

fn next<'a, T: Deserialize<'a>>(records: &mut Records<'a>) -> Result<T, SnapshotError> {
    T::deserialize(records).map_err(|e| SnapshotError::NotASnapshot(e.to_string()))
}

fn check_descriptors(fds: &mut [RawFd]) -> Result<(), SnapshotError> {
    fds.sort_unstable();
    if fds.first().is_some_and(|&fd| fd <= 2) || fds.windows(2).any(|two| two[0] == two[1]) {
        return Err(impossible("a descriptor twice, or a standard stream"));
    }
    Ok(())
}

fn check_operators(operators: &[ControlConnectionState]) -> Result<(), SnapshotError> {
    let mut slots: Vec<u32> = operators.iter().map(|operator| operator.slot).collect();
    slots.sort_unstable();
    if slots.iter().any(|&slot| slot >= SLOTS_MAX) || slots.windows(2).any(|two| two[0] == two[1]) {
        return Err(impossible("an operator's slot twice, or one that none could have"));
    }
    if operators.iter().any(|operator| operator.input.contains(&b'\n')) {
        Err(impossible("the beginning of a request that is complete"))
    } else {
        Ok(())
    }
}

fn check_connection(connection: &ConnectionState) -> Result<(), SnapshotError> {
    if connection.slot >= SLOTS_MAX {
        return Err(impossible("a slot that no connection could have"));
    }
    let line = &connection.unfinished_line;
    if line.len() >= LINE_BYTES_MAX || line.contains(&b'\n') {
        return Err(impossible("an unfinished line that is too long or complete"));
    }
    let unhandled = &connection.unhandled;
    let is_within_line = connection.skipping || !line.is_empty();
    // A line that waits for a report is put back in front of the rest.
    if unhandled.len() > SHARE_BYTES + LINE_BYTES_MAX || (is_within_line && !unhandled.is_empty()) {
        return Err(impossible("unhandled input that is too long or within a line"));
    }
    if !unhandled.is_empty() && !connection.unread {
        return Err(impossible("unhandled input without a next turn"));
    }
    if connection.unsent.len() > OUTPUT_BYTES_MAX {
        return Err(impossible("more unsent output than a client may leave unread"));
    }
    Ok(())
}

impl ServerState {
    /// Whether the restart was given no options: a signal has asked for it, or the order alone.
    pub(crate) fn keeps_options(&self) -> bool {
        let Some(ControlClient { slot, serial }) = self.requester else { return true };
        let requester = self.operators.iter().find(|it| (it.slot, it.serial) == (slot, serial));
        let order = requester.and_then(|operator| operator.unanswered.as_deref());
        order.is_some_and(|order| order.trim_ascii_end() == b"RESTART")
    }

    /// Every descriptor that is handed over, except those of the connections.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.kept_descriptors().chain(self.launcher.trial_fds)
    }

    /// Those that the new image serves with: of the listeners, of operators and of epoll.
    pub(crate) fn kept_descriptors(&self) -> impl Iterator<Item = RawFd> {
        let listeners = self.listening.listeners.iter().map(|listener| listener.fd);
        let operators = self.operators.iter().map(|operator| operator.fd);
        listeners.chain(operators).chain([self.epoll_fd])
    }
}

#[cfg(test)]
mod tests;
