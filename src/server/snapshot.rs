//! Everything that a hot restart hands from the old image of the daemon to the
//! new one, as text: JSON lines, the first of which names the version.
//!
//! One module a version, with structs of its own: a version that was released
//! never changes, so that any later daemon can still read what it wrote
//! (`tests/snapshots`). What a snapshot says is checked like hostile input: what
//! no daemon could have written is refused, for the old image serves on then.

mod v1;

use super::connection::OUTPUT_BYTES_MAX;
use crate::engine::image::{BadImage, Image, SLOTS_MAX};
use crate::engine::{ClientId, Time};
use crate::protocol::lines::LINE_BYTES_MAX;
use serde::Deserialize;
use std::fmt;
use std::os::fd::RawFd;

/// The state of the daemon at the end of a turn of its loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Pools, locks, statistics.
    pub engine: Image,
    /// When it was taken.
    pub taken: Time,
    /// The serial number that the last client got.
    pub last_serial: u32,
    /// Listeners are shut; the daemon ends when the last client leaves.
    pub draining: bool,
    /// Sockets that clients connect to.
    pub listeners: Vec<ListenerState>,
    /// All clients.
    pub connections: Vec<ConnectionState>,
    /// The control socket, if there is one.
    pub control: Option<ControlState>,
    /// The epoll instance in which every connection is watched, edge-triggered and
    /// with its slot as token. Watching 10,000 anew takes as long as all the rest.
    pub epoll: RawFd,
    /// The control connection that waits to hear how the restart went.
    pub requester: Option<RawFd>,
}

/// Where a listener came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `-l`, or its default: another `-l` may close it.
    Address,
    /// `--listen-unix`.
    Unix,
    /// Inherited: as standard input or from the service manager. `-l` does not
    /// touch it.
    Inherited,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerState {
    /// Its descriptor.
    pub fd: RawFd,
    /// Where it came from.
    pub origin: Origin,
    /// What it is bound to, as logs show it.
    pub name: String,
}

/// One client's connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    /// Its place, and the slot of its engine client.
    pub slot: u32,
    /// The serial number of its engine client.
    pub serial: u32,
    /// Its descriptor.
    pub fd: RawFd,
    /// Half a line that was received.
    pub unfinished_line: Vec<u8>,
    /// It is amid a line that was too long.
    pub skipping: bool,
    /// Output that the kernel has not taken yet.
    pub unsent: Vec<u8>,
    /// Its input has ended.
    pub finishing: bool,
    /// It may have more to read, of which no event will tell any more.
    pub unread: bool,
}

/// The control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlState {
    /// The descriptor that is listened on.
    pub fd: RawFd,
    /// The path that it is bound to.
    pub path: String,
}

/// Why a snapshot is refused.
#[derive(Debug)]
pub enum SnapshotError {
    /// It is no snapshot at all, or it is cut off.
    NotASnapshot(String),
    /// It was written by a daemon newer than this one.
    TooNew(u32),
    /// It says something that no daemon could have written.
    Impossible(String),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::NotASnapshot(why) => write!(f, "not a snapshot: {why}"),
            SnapshotError::TooNew(version) => {
                write!(
                    f,
                    "snapshot version {version} is newer than {NEWEST}, the newest known here"
                )
            }
            SnapshotError::Impossible(why) => write!(f, "impossible snapshot: {why}"),
        }
    }
}

impl From<BadImage> for SnapshotError {
    fn from(BadImage(why): BadImage) -> Self {
        SnapshotError::Impossible(why.to_owned())
    }
}

/// The version that is written, and the newest that is read.
pub const NEWEST: u32 = v1::VERSION;

/// What every version's first line has.
#[derive(Deserialize)]
struct Header {
    poolcounterd_snapshot: u32,
}

impl Snapshot {
    /// The snapshot as text, in the newest version.
    pub fn write(&self) -> Vec<u8> {
        v1::write(self)
    }

    /// Reads a snapshot of any known version and checks all that can be checked
    /// without its descriptors.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn read(text: &[u8]) -> Result<Self, SnapshotError> {
        // Once for all of it, rather than for each string in it.
        let text = std::str::from_utf8(text)
            .map_err(|e| SnapshotError::NotASnapshot(format!("not text: {e}")))?;
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().unwrap_or_default();
        let header: Header = serde_json::from_str(first)
            .map_err(|e| SnapshotError::NotASnapshot(format!("line 1: {e}")))?;
        let snapshot = match header.poolcounterd_snapshot {
            v1::VERSION => v1::read(lines)?,
            version => return Err(SnapshotError::TooNew(version)),
        };
        snapshot.check()?;
        Ok(snapshot)
    }

    /// Descriptors are used once, slots are used once, and every lock belongs to
    /// a connection. What the engine's part must be, the engine checks itself.
    fn check(&self) -> Result<(), SnapshotError> {
        let impossible = |why: &str| Err(SnapshotError::Impossible(why.to_owned()));
        let mut fds: Vec<RawFd> = self.descriptors().collect();
        fds.sort_unstable();
        if fds.first().is_some_and(|&fd| fd <= 2) || fds.windows(2).any(|two| two[0] == two[1]) {
            return impossible("a descriptor twice, or a standard stream");
        }
        for connection in &self.connections {
            if connection.slot >= SLOTS_MAX {
                return impossible("a slot that no connection could have");
            }
            let line = &connection.unfinished_line;
            if line.len() >= LINE_BYTES_MAX || line.contains(&b'\n') {
                return impossible("an unfinished line that is none");
            }
            if connection.unsent.len() > OUTPUT_BYTES_MAX {
                return impossible("more unsent output than a client may leave");
            }
        }
        // By slot, and no hash map: a hot restart has no time for one.
        let slots = self.connections.iter().map(|c| c.slot as usize + 1).max().unwrap_or(0);
        let mut serials: Vec<Option<u32>> = vec![None; slots];
        for connection in &self.connections {
            if serials[connection.slot as usize].replace(connection.serial).is_some() {
                return impossible("two connections in one slot");
            }
        }
        let is_connected =
            |client: ClientId| serials.get(client.slot as usize) == Some(&Some(client.serial));
        if !self.engine.clients().all(is_connected) {
            return impossible("a lock without a connection");
        }
        Ok(())
    }

    /// Every descriptor that goes along.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let listeners = self.listeners.iter().map(|listener| listener.fd);
        let connections = self.connections.iter().map(|connection| connection.fd);
        let control = self.control.iter().map(|control| control.fd);
        listeners.chain(connections).chain(control).chain([self.epoll]).chain(self.requester)
    }
}

/// Shows that two readers mean the same snapshot: FNV-1a, 64 bits. It guards
/// against mistakes (a program that exits with 0 without reading), not malice.
pub fn digest(text: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::image::{LockImage, PoolImage};

    fn sample() -> Snapshot {
        let client = |slot| ClientId { slot, serial: slot + 100 };
        let holder =
            LockImage { client: client(0), depth: 0, since: Time::from_ns(5), deadline: None };
        let waiter =
            LockImage { client: client(1), deadline: Some(Time::from_ns(u64::MAX)), ..holder };
        let every_byte: Vec<u8> = (0..=255).collect();
        let pool = PoolImage {
            key: every_byte.clone(),
            holders: vec![holder],
            waiters_for_me: vec![waiter],
            waiters_for_anyone: vec![],
        };
        let connection = |slot| ConnectionState {
            slot,
            serial: slot + 100,
            fd: slot as RawFd + 10,
            unfinished_line: b"ACQ4ME \xff\0".to_vec(),
            skipping: slot == 1,
            unsent: every_byte.clone(),
            finishing: slot == 0,
            unread: slot == 1,
        };
        let mut engine = Image { started: Time::from_ns(1), ..Image::default() };
        engine.pools.push(pool);
        engine.counters.total_acquired = 7;
        engine.durations.processing_ns = u128::MAX;
        Snapshot {
            engine,
            taken: Time::from_ns(77),
            last_serial: 200,
            draining: true,
            listeners: vec![ListenerState {
                fd: 3,
                origin: Origin::Inherited,
                name: "[::1]:7531".to_owned(),
            }],
            connections: vec![connection(0), connection(1)],
            control: Some(ControlState { fd: 4, path: "/run/x".to_owned() }),
            epoll: 6,
            requester: Some(5),
        }
    }

    fn refusal(snapshot: &Snapshot) -> String {
        Snapshot::read(&snapshot.write()).expect_err("is refused").to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let snapshot = sample();
        assert_eq!(Snapshot::read(&snapshot.write()).unwrap(), snapshot);
        let empty = Snapshot { epoll: 3, ..Snapshot::default() };
        assert_eq!(Snapshot::read(&empty.write()).unwrap(), empty);
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number() {
        let text = b"{\"poolcounterd_snapshot\":2,\"anything\":[]}\nwhatever\n";
        let error = Snapshot::read(text).unwrap_err().to_string();
        assert_eq!(error, "snapshot version 2 is newer than 1, the newest known here");
    }

    #[test]
    fn a_snapshot_cut_off_anywhere_is_refused() {
        let text = sample().write();
        for len in 0..text.len() - 1 {
            assert!(Snapshot::read(&text[..len]).is_err(), "{len} bytes of {}", text.len());
        }
    }

    #[test]
    fn what_no_daemon_could_have_written_is_refused() {
        let mut twice = sample();
        twice.connections[1].fd = 3;
        assert!(refusal(&twice).contains("a descriptor twice"));
        let mut standard_stream = sample();
        standard_stream.connections[1].fd = 2;
        assert!(refusal(&standard_stream).contains("a standard stream"));
        let mut same_slot = sample();
        same_slot.connections[1].slot = 0;
        assert!(refusal(&same_slot).contains("two connections in one slot"));
        let mut far_away = sample();
        far_away.connections[0].slot = u32::MAX;
        assert!(refusal(&far_away).contains("a slot that no connection could have"));
        let mut two_lines = sample();
        two_lines.connections[0].unfinished_line = b"a\nb".to_vec();
        assert!(refusal(&two_lines).contains("an unfinished line"));
        let mut stranger = sample();
        stranger.connections[0].serial = 9;
        assert!(refusal(&stranger).contains("a lock without a connection"));
    }

    #[test]
    fn the_digest_tells_texts_apart() {
        // The test vector of the algorithm's authors for "a".
        assert_eq!(digest(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(digest(b"ab"), digest(b"ba"));
    }
}
