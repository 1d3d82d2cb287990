//! Random scripts of socket calls.

use super::Random;
use std::fmt;

const STEPS: usize = 40;
/// Peers, by number: each connects at most once.
const PEERS: u64 = 5;
/// Descriptors of connections that the daemon has, by number.
const SLOTS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Tcp,
    Unix,
}

/// What a descriptor is watched for, as mio asks for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Interest {
    Read,
    ReadUrgent,
    ReadUrgentWrite,
    Write,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Connect {
        peer: u8,
        to: Kind,
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
        from: Kind,
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
        interest: Interest,
    },
    Rewatch {
        slot: u8,
        interest: Interest,
    },
    Unwatch {
        slot: u8,
    },
    /// Takes all events, so many at a time.
    Wait {
        max: usize,
    },
    WatchListener {
        kind: Kind,
    },
    Listen {
        kind: Kind,
        backlog: i32,
    },
    CloseListener {
        kind: Kind,
    },
}

impl Step {
    /// Whose step it is, if a peer's.
    pub(super) fn peer(&self) -> Option<u8> {
        match *self {
            Step::Connect { peer, .. }
            | Step::PeerSends { peer, .. }
            | Step::PeerSendsUrgent { peer }
            | Step::PeerPasses { peer, .. }
            | Step::PeerHalfCloses { peer }
            | Step::PeerCloses { peer }
            | Step::PeerResets { peer }
            | Step::PeerReads { peer, .. }
            | Step::PeerDrains { peer } => Some(peer),
            _ => None,
        }
    }

    /// The connection that it needs.
    pub(super) fn slot(&self) -> Option<u8> {
        match *self {
            Step::Receive { slot, .. }
            | Step::Send { slot, .. }
            | Step::SendMuch { slot }
            | Step::Fill { slot }
            | Step::Close { slot }
            | Step::Duplicate { slot, .. }
            | Step::PeerName { slot }
            | Step::ShutWriting { slot }
            | Step::Watch { slot, .. }
            | Step::Rewatch { slot, .. }
            | Step::Unwatch { slot } => Some(slot),
            _ => None,
        }
    }

    /// The listener that it needs.
    pub(super) fn kind(&self) -> Option<Kind> {
        match *self {
            Step::Accept { from: kind, .. }
            | Step::WatchListener { kind }
            | Step::Listen { kind, .. }
            | Step::CloseListener { kind } => Some(kind),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) steps: Vec<Step>,
}

impl Script {
    /// Begins with a connection, so that most steps have one.
    pub(super) fn generate(random: &mut Random) -> Self {
        let kind = kind(random);
        let mut steps = vec![
            Step::WatchListener { kind },
            Step::Connect { peer: 0, to: kind },
            Step::Accept { from: kind, slot: 0 },
            Step::Watch { slot: 0, interest: interest(random) },
        ];
        while steps.len() < STEPS {
            steps.push(step(random));
        }
        Script { steps }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

fn kind(random: &mut Random) -> Kind {
    random.one_of(&[Kind::Tcp, Kind::Tcp, Kind::Unix])
}

fn interest(random: &mut Random) -> Interest {
    use Interest::*;
    random.one_of(&[Read, ReadUrgent, ReadUrgent, ReadUrgentWrite, Write])
}

/// Prefers the first, so that things happen to the same one.
fn first_of(random: &mut Random, count: u64) -> u8 {
    (random.next() % count).min(random.next() % count) as u8
}

fn step(random: &mut Random) -> Step {
    let (peer, slot) = (first_of(random, PEERS), first_of(random, SLOTS));
    let len = random.one_of(&[1, 2, 7, 100, 300]);
    match random.next() % 64 {
        0..5 => Step::Connect { peer, to: kind(random) },
        5..10 => Step::PeerSends { peer, len: random.one_of(&[1, 5, 100, 3000]) },
        10..12 => Step::PeerPasses { peer, len: random.one_of(&[1, 5, 60]) },
        12..14 => Step::PeerSendsUrgent { peer },
        14..16 => Step::PeerHalfCloses { peer },
        16..18 => Step::PeerCloses { peer },
        18..20 => Step::PeerResets { peer },
        20..23 => Step::PeerReads { peer, len },
        23..25 => Step::PeerDrains { peer },
        25..30 => Step::Accept { from: kind(random), slot },
        30..36 => Step::Receive { slot, len: random.one_of(&[1, 3, 50, 4096]) },
        37..40 => Step::Send { slot, len },
        40 => Step::SendMuch { slot },
        36 | 41 => Step::Fill { slot },
        42..44 => Step::Close { slot },
        44 => Step::Duplicate { slot, to: first_of(random, SLOTS) },
        45 if random.next() % 2 == 0 => Step::PeerName { slot },
        45 => Step::ShutWriting { slot },
        46..49 => Step::Watch { slot, interest: interest(random) },
        49..52 => Step::Rewatch { slot, interest: interest(random) },
        52 => Step::Unwatch { slot },
        53..61 => Step::Wait { max: random.one_of(&[1, 2, 100]) },
        61 => Step::WatchListener { kind: kind(random) },
        62 => Step::Listen { kind: kind(random), backlog: random.one_of(&[0, 1, 5]) },
        _ if random.next() % 4 == 0 => Step::CloseListener { kind: kind(random) },
        _ => Step::Wait { max: 100 },
    }
}
