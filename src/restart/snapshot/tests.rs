#[path = "../../../tests/support/snapshot.rs"]
mod whole;

use super::*;
use crate::listening::addresses::{Purpose, Wanted, WantedControl, WantedTcp};
use engine::rules::rule::RuleNumber;
use engine::state::LockState;
use whole::Snapshot;

fn sample() -> Snapshot {
    let client = |slot| ClientId { slot, serial: slot + 100 };
    let holder = LockState {
        client: client(0),
        sequence: 1,
        since: Time::from_ns(5),
        deadline: None,
        for_anyone: true,
        weight: 1,
        workers: 3,
        shortened_by: Some(RuleNumber::new(0)),
        timer_place: 2,
    };
    let waiter = LockState {
        client: client(1),
        sequence: 2,
        deadline: Some(Time::from_ns(u64::MAX)),
        ..holder
    };
    let every_byte: Vec<u8> = (0..=255).collect();
    let pool = PoolState {
        key: every_byte.clone().into(),
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
        unhandled: Vec::new(),
        unsent: every_byte.clone(),
        finishing: slot == 0,
        unread: slot == 1,
    };
    let (started, started_wall_ns) = (Time::from_ns(1), Some(u64::MAX));
    let mut engine =
        EngineState { started, started_wall_ns, last_sequence: 2, ..EngineState::default() };
    engine.counters.total_acquired = 7;
    engine.times.processing_ns = u128::from(u64::MAX) * 1_000_000_000;
    let name = "[::1]:7531".to_owned();
    let server = ServerState {
        taken: Time::from_ns(77),
        last_serial: 200,
        listening: ListenersState {
            listeners: vec![ListenerState {
                fd: 3,
                name,
                wanted: None,
                file: None,
                life: ListenerStage::Closing,
                left: 7,
            }],
            draining: true,
            lost: vec!["127.0.0.1:7531".to_owned()],
            free_port: Some(1),
            own_descriptors: 9,
        },
        epoll_fd: 6,
        operators: vec![ControlConnectionState {
            slot: 2,
            serial: 9,
            fd: 5,
            input: b"HEL".to_vec(),
            unanswered: Some(b"RESTART".to_vec()),
            unsent: b"OK dr".to_vec(),
            requests: 3,
        }],
        requester: Some(ControlClient { slot: 2, serial: 9 }),
        restarts_again: true,
        launcher: LauncherState { trial_fds: [7, 8], program: b"/usr/bin/\xff".to_vec() },
        connections: 2,
        pools: 1,
        engine,
        ..ServerState::default()
    };
    Snapshot { server, connections: vec![connection(0), connection(1)], pools: vec![pool] }
}

#[track_caller]
fn refused(why: &str, change: impl FnOnce(&mut Snapshot)) {
    let mut snapshot = sample();
    change(&mut snapshot);
    let refusal = Snapshot::read(&snapshot.write()).expect_err("is refused").to_string();
    assert!(refusal.contains(why), "{refusal}");
}

fn record(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).expect("written to memory")
}

#[test]
fn what_is_written_is_read() {
    let snapshot = sample();
    assert_eq!(Snapshot::read(&snapshot.write()).unwrap(), snapshot);
    let launcher = LauncherState { trial_fds: [4, 5], ..LauncherState::default() };
    let server = ServerState { epoll_fd: 3, launcher, ..ServerState::default() };
    let empty = Snapshot { server, ..Snapshot::default() };
    assert_eq!(Snapshot::read(&empty.write()).unwrap(), empty);
}

#[test]
fn keys_are_written_verbatim() {
    let key: Vec<u8> = (0..=255).collect();
    assert!(sample().write().windows(key.len()).any(|bytes| bytes == key));
}

#[test]
fn another_version_is_refused_by_its_number() {
    #[derive(Serialize)]
    struct OtherHeader<V> {
        poolcounterd_snapshot: V,
        anything: Vec<u8>,
    }
    fn refusal(poolcounterd_snapshot: impl Serialize) -> String {
        let header = OtherHeader { poolcounterd_snapshot, anything: vec![1] };
        Snapshot::read(&record(&header)).expect_err("is refused").to_string()
    }
    for newer in [2, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
        let expected = format!("snapshot version {newer} is newer than 1, the newest known here");
        assert_eq!(refusal(newer), expected);
    }
    assert_eq!(refusal(0), "impossible snapshot: version 0");
    for other in [refusal(-1), refusal(1.0), refusal("1"), refusal(()), refusal([1, 1])] {
        assert!(other.starts_with("not a snapshot: "), "{other}");
    }
}

/// A daemon with fewer or more fields than the writer.
#[test]
fn unknown_fields_are_ignored_and_missing_ones_have_their_default() {
    #[derive(Serialize)]
    struct Server {
        epoll_fd: RawFd,
        launcher: LauncherState,
        connections: usize,
        unheard_of: Vec<Option<String>>,
    }
    #[derive(Serialize)]
    struct Connection {
        mood: f64,
        fd: RawFd,
        serial: u32,
    }
    let header = Header { poolcounterd_snapshot: 1, daemon: String::new() };
    let unheard_of = vec![None, Some("of".to_owned())];
    let launcher = LauncherState { trial_fds: [4, 5], ..LauncherState::default() };
    let server = Server { epoll_fd: 3, launcher, connections: 1, unheard_of };
    let connection = Connection { mood: 0.5, fd: 9, serial: 7 };
    let bytes = [record(&header), record(&server), record(&connection)].concat();
    let snapshot = Snapshot::read(&bytes).expect("readable");
    let expected = ConnectionState { fd: 9, serial: 7, ..ConnectionState::default() };
    assert_eq!(snapshot.connections, [expected]);
    assert_eq!(snapshot.server.epoll_fd, 3);
    assert!(!snapshot.server.listening.draining);
}

#[test]
fn a_snapshot_truncated_anywhere_or_with_more_behind_it_is_refused() {
    let mut bytes = sample().write();
    for len in 0..bytes.len() {
        assert!(Snapshot::read(&bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
    }
    bytes.push(0);
    assert!(Snapshot::read(&bytes).unwrap_err().to_string().contains("data after its end"));
}

#[test]
fn impossible_snapshots_are_refused() {
    refused("a descriptor twice", |snapshot| snapshot.connections[1].fd = 3);
    refused("a descriptor twice", |snapshot| snapshot.server.operators[0].fd = 10);
    refused("a standard stream", |snapshot| snapshot.connections[1].fd = 2);
    refused("two connections in one slot", |snapshot| snapshot.connections[1].slot = 0);
    refused("a slot that no connection could have", |snapshot| {
        snapshot.connections[0].slot = u32::MAX;
    });
    refused("an unfinished line", |snapshot| {
        snapshot.connections[0].unfinished_line = b"a\nb".to_vec();
    });
    refused("an operator's slot twice", |snapshot| {
        let operators = &mut snapshot.server.operators;
        operators.push(ControlConnectionState { fd: 99, ..operators[0].clone() });
    });
    refused("the beginning of a request that is complete", |snapshot| {
        snapshot.server.operators[0].input = b"LOG\nLO".to_vec();
    });
    let control = WantedControl { path: "/run/c".to_owned(), group: None };
    refused("a control socket without a file", |snapshot| {
        snapshot.server.listening.listeners[0].wanted = Some(Wanted::Control(control));
    });
    refused("a listener without an address", |snapshot| {
        let listener = &mut snapshot.server.listening.listeners[0];
        let (address, purpose) = ("[::1]:7531".parse().unwrap(), Purpose::Clients);
        let tcp = WantedTcp { address, optional: false, purpose };
        (listener.wanted, listener.name) = (Some(Wanted::Tcp(tcp)), "unix:/run/c".to_owned());
    });
    refused("a lock without a connection", |snapshot| snapshot.connections[0].serial = 9);
}

/// Bytes that announce four gigabytes and end there.
#[test]
fn a_length_is_not_trusted() {
    let header = record(&Header { poolcounterd_snapshot: 1, daemon: String::new() });
    for marker in [0xc6u8, 0xdb, 0xdd, 0xdf] {
        let launcher = [&[0x81, 0xa8], &b"launcher"[..], &[0x81, 0xa7], b"program"].concat();
        let huge = [&header[..], &launcher, &[marker, 255, 255, 255, 255]].concat();
        assert!(Snapshot::read(&huge).is_err());
    }
}
