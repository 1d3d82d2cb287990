//! Version 1, written by 2.0.0.
//!
//! ```text
//! {"poolcounterd_snapshot":1,"daemon":"2.0.0"}
//! {"server":{"started_ns":…,"last_serial":2,"counters":{…},"durations":{…},…}}
//! {"connection":{"slot":0,"serial":1,"fd":9,"unfinished_line":"STA"}}
//! {"pool":{"key":"enwiki:1","holders":[{"slot":0,"serial":1,"since_ns":…}]}}
//! {"end":{"lines":4}}
//! ```
//!
//! Bytes that clients sent stand as text in which each character is the byte of
//! its number (ISO 8859-1): ASCII stays readable and any byte survives.

use super::{ConnectionState, ControlState, ListenerState, Origin, Snapshot, SnapshotError};
use crate::engine::image::{Image, LockImage, PoolImage};
use crate::engine::statistics::{Counters, Durations};
use crate::engine::{ClientId, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;

pub(super) const VERSION: u32 = 1;

#[derive(Serialize)]
struct Header {
    poolcounterd_snapshot: u32,
    daemon: &'static str,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Server(Server),
    Connection(Connection),
    Pool(Pool),
    End(End),
}

#[derive(Serialize, Deserialize)]
struct Server {
    started_ns: u64,
    taken_ns: u64,
    last_serial: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    draining: bool,
    listeners: Vec<Listener>,
    #[serde(default, skip_serializing_if = "is_default")]
    control: Option<Control>,
    epoll_fd: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    requester_fd: Option<i32>,
    /// Taken away from their holders, who have not given them back yet.
    #[serde(default, skip_serializing_if = "is_default")]
    spent: Vec<Lock>,
    /// By the names that STATS knows.
    counters: BTreeMap<String, u64>,
    durations: Sums,
}

#[derive(Serialize, Deserialize)]
struct Listener {
    fd: i32,
    name: String,
    origin: ListenerOrigin,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ListenerOrigin {
    Address,
    Unix,
    Inherited,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Control {
    fd: i32,
    path: String,
}

/// In nanoseconds.
#[derive(Serialize, Deserialize)]
struct Sums {
    processing_ns: u128,
    gained_ns: u128,
    waiting_for_me_ns: u128,
    waiting_for_anyone_ns: u128,
    waiting_for_good_ns: u128,
    wasted_timeout_ns: u128,
}

#[derive(Serialize, Deserialize)]
struct Connection {
    slot: u32,
    serial: u32,
    fd: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    unfinished_line: Bytes,
    #[serde(default, skip_serializing_if = "is_default")]
    skipping: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    unsent: Bytes,
    #[serde(default, skip_serializing_if = "is_default")]
    finishing: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    unread: bool,
}

#[derive(Serialize, Deserialize)]
struct Pool {
    key: Bytes,
    #[serde(default, skip_serializing_if = "is_default")]
    holders: Vec<Lock>,
    #[serde(default, skip_serializing_if = "is_default")]
    waiters_for_me: Vec<Lock>,
    #[serde(default, skip_serializing_if = "is_default")]
    waiters_for_anyone: Vec<Lock>,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Lock {
    slot: u32,
    serial: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    depth: usize,
    since_ns: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    deadline_ns: Option<u64>,
}

/// A snapshot that lacks its last lines must not pass for a smaller one.
#[derive(Serialize, Deserialize)]
struct End {
    lines: usize,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Default, PartialEq)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(ascii) = std::str::from_utf8(&self.0).ok().filter(|text| text.is_ascii()) {
            return serializer.serialize_str(ascii);
        }
        let text: String = self.0.iter().map(|&byte| char::from(byte)).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_ascii() {
            return Ok(Bytes(text.into_bytes()));
        }
        let bytes: Result<Vec<u8>, _> = text.chars().map(u8::try_from).collect();
        bytes.map(Bytes).map_err(|_| de::Error::custom("a character that stands for no byte"))
    }
}

pub(super) fn write(snapshot: &Snapshot) -> Vec<u8> {
    // Most lines are shorter.
    let lines = snapshot.connections.len() + snapshot.engine.pools.len();
    let mut text = Vec::with_capacity(1_000 + 150 * lines);
    let daemon = env!("CARGO_PKG_VERSION");
    push(&mut text, &Header { poolcounterd_snapshot: VERSION, daemon });
    push(&mut text, &Record::Server(Server::from(snapshot)));
    for connection in &snapshot.connections {
        push(&mut text, &Record::Connection(Connection::from(connection)));
    }
    for pool in &snapshot.engine.pools {
        push(&mut text, &Record::Pool(Pool::from(pool)));
    }
    push(&mut text, &Record::End(End { lines: 2 + lines }));
    text
}

fn push(text: &mut Vec<u8>, line: &impl Serialize) {
    serde_json::to_writer(&mut *text, line).expect("plain data, written to memory");
    text.push(b'\n');
}

/// Reads the lines after the header.
pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Snapshot, SnapshotError> {
    let cut_off = || SnapshotError::NotASnapshot("it is cut off".to_owned());
    let impossible = |why: &str| SnapshotError::Impossible(why.to_owned());
    let mut lines = lines.zip(2..);
    let (first, number) = lines.next().ok_or_else(cut_off)?;
    let Record::Server(server) = parse(first, number)? else {
        return Err(impossible("it does not begin with the server"));
    };
    let mut snapshot = Snapshot::from(server);
    while let Some((line, number)) = lines.next() {
        match parse(line, number)? {
            Record::Connection(connection) => snapshot.connections.push(connection.into()),
            Record::Pool(pool) => snapshot.engine.pools.push(pool.into()),
            Record::Server(_) => return Err(impossible("two servers")),
            Record::End(end) if end.lines != number - 1 => return Err(cut_off()),
            Record::End(_) if lines.next().is_some() => {
                return Err(impossible("it goes on after its end"));
            }
            Record::End(_) => return Ok(snapshot),
        }
    }
    Err(cut_off())
}

fn parse(line: &str, number: usize) -> Result<Record, SnapshotError> {
    serde_json::from_str(line)
        .map_err(|e| SnapshotError::NotASnapshot(format!("line {number}: {e}")))
}

impl From<&Snapshot> for Server {
    fn from(snapshot: &Snapshot) -> Self {
        let engine = &snapshot.engine;
        let named =
            |c: &crate::engine::statistics::Counter| (c.name.to_owned(), (c.get)(&engine.counters));
        let listener = |l: &ListenerState| Listener {
            fd: l.fd,
            name: l.name.clone(),
            origin: match l.origin {
                Origin::Address => ListenerOrigin::Address,
                Origin::Unix => ListenerOrigin::Unix,
                Origin::Inherited => ListenerOrigin::Inherited,
            },
        };
        let control = |c: &ControlState| Control { fd: c.fd, path: c.path.clone() };
        Server {
            started_ns: engine.started.as_ns(),
            taken_ns: snapshot.taken.as_ns(),
            last_serial: snapshot.last_serial,
            draining: snapshot.draining,
            listeners: snapshot.listeners.iter().map(listener).collect(),
            control: snapshot.control.as_ref().map(control),
            epoll_fd: snapshot.epoll,
            requester_fd: snapshot.requester,
            spent: engine.spent.iter().map(Lock::from).collect(),
            counters: Counters::ALL.iter().map(named).collect(),
            durations: Sums {
                processing_ns: engine.durations.processing_ns,
                gained_ns: engine.durations.gained_ns,
                waiting_for_me_ns: engine.durations.waiting_for_me_ns,
                waiting_for_anyone_ns: engine.durations.waiting_for_anyone_ns,
                waiting_for_good_ns: engine.durations.waiting_for_good_ns,
                wasted_timeout_ns: engine.durations.wasted_timeout_ns,
            },
        }
    }
}

impl From<Server> for Snapshot {
    fn from(server: Server) -> Self {
        let mut engine = Image { started: Time::from_ns(server.started_ns), ..Image::default() };
        // A counter that this daemon does not have is let go; one that the
        // writer did not have starts at 0.
        for counter in Counters::ALL {
            if let Some(&value) = server.counters.get(counter.name) {
                *(counter.get_mut)(&mut engine.counters) = value;
            }
        }
        engine.durations = Durations {
            processing_ns: server.durations.processing_ns,
            gained_ns: server.durations.gained_ns,
            waiting_for_me_ns: server.durations.waiting_for_me_ns,
            waiting_for_anyone_ns: server.durations.waiting_for_anyone_ns,
            waiting_for_good_ns: server.durations.waiting_for_good_ns,
            wasted_timeout_ns: server.durations.wasted_timeout_ns,
        };
        engine.spent = server.spent.into_iter().map(LockImage::from).collect();
        let listener = |l: Listener| ListenerState {
            fd: l.fd,
            name: l.name,
            origin: match l.origin {
                ListenerOrigin::Address => Origin::Address,
                ListenerOrigin::Unix => Origin::Unix,
                ListenerOrigin::Inherited => Origin::Inherited,
            },
        };
        Snapshot {
            engine,
            taken: Time::from_ns(server.taken_ns),
            last_serial: server.last_serial,
            draining: server.draining,
            listeners: server.listeners.into_iter().map(listener).collect(),
            connections: Vec::new(),
            control: server.control.map(|c| ControlState { fd: c.fd, path: c.path }),
            epoll: server.epoll_fd,
            requester: server.requester_fd,
        }
    }
}

impl From<&ConnectionState> for Connection {
    fn from(state: &ConnectionState) -> Self {
        Connection {
            slot: state.slot,
            serial: state.serial,
            fd: state.fd,
            unfinished_line: Bytes(state.unfinished_line.clone()),
            skipping: state.skipping,
            unsent: Bytes(state.unsent.clone()),
            finishing: state.finishing,
            unread: state.unread,
        }
    }
}

impl From<Connection> for ConnectionState {
    fn from(connection: Connection) -> Self {
        ConnectionState {
            slot: connection.slot,
            serial: connection.serial,
            fd: connection.fd,
            unfinished_line: connection.unfinished_line.0,
            skipping: connection.skipping,
            unsent: connection.unsent.0,
            finishing: connection.finishing,
            unread: connection.unread,
        }
    }
}

impl From<&PoolImage> for Pool {
    fn from(pool: &PoolImage) -> Self {
        let queue = |locks: &[LockImage]| locks.iter().map(Lock::from).collect();
        Pool {
            key: Bytes(pool.key.clone()),
            holders: queue(&pool.holders),
            waiters_for_me: queue(&pool.waiters_for_me),
            waiters_for_anyone: queue(&pool.waiters_for_anyone),
        }
    }
}

impl From<Pool> for PoolImage {
    fn from(pool: Pool) -> Self {
        let queue = |locks: Vec<Lock>| locks.into_iter().map(LockImage::from).collect();
        PoolImage {
            key: pool.key.0,
            holders: queue(pool.holders),
            waiters_for_me: queue(pool.waiters_for_me),
            waiters_for_anyone: queue(pool.waiters_for_anyone),
        }
    }
}

impl From<&LockImage> for Lock {
    fn from(lock: &LockImage) -> Self {
        Lock {
            slot: lock.client.slot,
            serial: lock.client.serial,
            depth: lock.depth,
            since_ns: lock.since.as_ns(),
            deadline_ns: lock.deadline.map(Time::as_ns),
        }
    }
}

impl From<Lock> for LockImage {
    fn from(lock: Lock) -> Self {
        LockImage {
            client: ClientId { slot: lock.slot, serial: lock.serial },
            depth: lock.depth,
            since: Time::from_ns(lock.since_ns),
            deadline: lock.deadline_ns.map(Time::from_ns),
        }
    }
}
