//! Random scripts of socket calls.

use super::Random;
use std::fmt;

const STEPS: usize = 40;
/// Peers, by number: each connects at most once.
const PEERS: u64 = 5;
/// Descriptors of connections that the daemon has, by number.
const SLOTS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Tcp,
    Unix,
}

/// What a descriptor is watched for, as mio asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchInterest {
    Read,
    ReadUrgent,
    ReadUrgentWrite,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SocketStep {
    Connect {
        peer: u8,
        to: Transport,
    },
    PeerSends {
        peer: u8,
        len: usize,
    },
    PeerSendsUrgent {
        peer: u8,
    },
    /// With a descriptor, if it is a Unix socket.
    PeerPasses {
        peer: u8,
        len: usize,
    },
    PeerHalfCloses {
        peer: u8,
    },
    PeerCloses {
        peer: u8,
    },
    /// Closes without lingering: SO_LINGER with a time of 0.
    PeerResets {
        peer: u8,
    },
    PeerReads {
        peer: u8,
        len: usize,
    },
    PeerDrains {
        peer: u8,
    },
    Accept {
        from: Transport,
        slot: u8,
    },
    Receive {
        slot: u8,
        len: usize,
    },
    Send {
        slot: u8,
        len: usize,
    },
    /// One send of more than fits.
    SendMuch {
        slot: u8,
    },
    /// Sends until EAGAIN.
    Fill {
        slot: u8,
    },
    Close {
        slot: u8,
    },
    Duplicate {
        slot: u8,
        to: u8,
    },
    PeerName {
        slot: u8,
    },
    /// shutdown(2) of the daemon's half.
    ShutWriting {
        slot: u8,
    },
    Watch {
        slot: u8,
        interest: WatchInterest,
    },
    Rewatch {
        slot: u8,
        interest: WatchInterest,
    },
    Unwatch {
        slot: u8,
    },
    /// Takes all events, at most `max` at a time.
    Wait {
        max: usize,
    },
    WatchListener {
        kind: Transport,
    },
    Listen {
        kind: Transport,
        backlog: i32,
    },
    CloseListener {
        kind: Transport,
    },
}

impl SocketStep {
    /// The peer whose step it is, if any.
    pub(super) fn peer(&self) -> Option<u8> {
        match *self {
            SocketStep::Connect { peer, .. }
            | SocketStep::PeerSends { peer, .. }
            | SocketStep::PeerSendsUrgent { peer }
            | SocketStep::PeerPasses { peer, .. }
            | SocketStep::PeerHalfCloses { peer }
            | SocketStep::PeerCloses { peer }
            | SocketStep::PeerResets { peer }
            | SocketStep::PeerReads { peer, .. }
            | SocketStep::PeerDrains { peer } => Some(peer),
            _ => None,
        }
    }

    /// The connection that it needs.
    pub(super) fn slot(&self) -> Option<u8> {
        match *self {
            SocketStep::Receive { slot, .. }
            | SocketStep::Send { slot, .. }
            | SocketStep::SendMuch { slot }
            | SocketStep::Fill { slot }
            | SocketStep::Close { slot }
            | SocketStep::Duplicate { slot, .. }
            | SocketStep::PeerName { slot }
            | SocketStep::ShutWriting { slot }
            | SocketStep::Watch { slot, .. }
            | SocketStep::Rewatch { slot, .. }
            | SocketStep::Unwatch { slot } => Some(slot),
            _ => None,
        }
    }

    /// The listener that it needs.
    pub(super) fn kind(&self) -> Option<Transport> {
        match *self {
            SocketStep::Accept { from: kind, .. }
            | SocketStep::WatchListener { kind }
            | SocketStep::Listen { kind, .. }
            | SocketStep::CloseListener { kind } => Some(kind),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SocketScript {
    pub(super) steps: Vec<SocketStep>,
}

impl SocketScript {
    /// Begins with a connection, so that most steps have one.
    pub(super) fn generate(random: &mut Random) -> Self {
        let kind = kind(random);
        let mut steps = vec![
            SocketStep::WatchListener { kind },
            SocketStep::Connect { peer: 0, to: kind },
            SocketStep::Accept { from: kind, slot: 0 },
            SocketStep::Watch { slot: 0, interest: interest(random) },
        ];
        while steps.len() < STEPS {
            steps.push(step(random));
        }
        SocketScript { steps }
    }
}

impl fmt::Display for SocketScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

fn kind(random: &mut Random) -> Transport {
    random.one_of(&[Transport::Tcp, Transport::Tcp, Transport::Unix])
}

fn interest(random: &mut Random) -> WatchInterest {
    use WatchInterest::*;
    random.one_of(&[Read, ReadUrgent, ReadUrgent, ReadUrgentWrite, Write])
}

/// Prefers low numbers, so that many steps have the same peer or slot.
fn first_of(random: &mut Random, count: u64) -> u8 {
    (random.next() % count).min(random.next() % count) as u8
}

fn step(random: &mut Random) -> SocketStep {
    let (peer, slot) = (first_of(random, PEERS), first_of(random, SLOTS));
    let len = random.one_of(&[1, 2, 7, 100, 300]);
    match random.next() % 64 {
        0..5 => SocketStep::Connect { peer, to: kind(random) },
        5..10 => SocketStep::PeerSends { peer, len: random.one_of(&[1, 5, 100, 3000]) },
        10..12 => SocketStep::PeerPasses { peer, len: random.one_of(&[1, 5, 60]) },
        12..14 => SocketStep::PeerSendsUrgent { peer },
        14..16 => SocketStep::PeerHalfCloses { peer },
        16..18 => SocketStep::PeerCloses { peer },
        18..20 => SocketStep::PeerResets { peer },
        20..23 => SocketStep::PeerReads { peer, len },
        23..25 => SocketStep::PeerDrains { peer },
        25..30 => SocketStep::Accept { from: kind(random), slot },
        30..36 => SocketStep::Receive { slot, len: random.one_of(&[1, 3, 50, 4096]) },
        37..40 => SocketStep::Send { slot, len },
        40 => SocketStep::SendMuch { slot },
        36 | 41 => SocketStep::Fill { slot },
        42..44 => SocketStep::Close { slot },
        44 => SocketStep::Duplicate { slot, to: first_of(random, SLOTS) },
        45 if random.next() % 2 == 0 => SocketStep::PeerName { slot },
        45 => SocketStep::ShutWriting { slot },
        46..49 => SocketStep::Watch { slot, interest: interest(random) },
        49..52 => SocketStep::Rewatch { slot, interest: interest(random) },
        52 => SocketStep::Unwatch { slot },
        53..61 => SocketStep::Wait { max: random.one_of(&[1, 2, 100]) },
        61 => SocketStep::WatchListener { kind: kind(random) },
        62 => SocketStep::Listen { kind: kind(random), backlog: random.one_of(&[0, 1, 5]) },
        _ if random.next() % 4 == 0 => SocketStep::CloseListener { kind: kind(random) },
        _ => SocketStep::Wait { max: 100 },
    }
}
