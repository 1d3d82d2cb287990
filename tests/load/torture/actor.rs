//! One client of the crowd: what it does next, and how badly.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::crowd::World;
use super::told::{Acquire, Command, Key, MARGIN, QUEUE_MAX, Told};
use crate::support::Client;
use crate::support::random::Random;

/// Keys that all clients want, and keys that two clients rarely want at once.
const HOT_KEYS: usize = 20;
const KEYS: usize = 2_000;

/// The most unanswered commands of a client. Even if all of them are STATS FULL, the
/// daemon does not disconnect it.
const UNANSWERED_MAX: usize = 40;

/// One byte more than the daemon reads as a line.
const TOO_LONG: [u8; 4097] = [b'x'; 4097];

/// Invalid commands and their answers.
const JUNK: &[(&[u8], Command)] = &[
    (b"", Command::Answered("ERROR BAD_COMMAND")),
    (b"QUIT", Command::Answered("ERROR BAD_COMMAND")),
    (b"ACQ4ME", Command::Answered("ERROR BAD_COMMAND")),
    (b"acq4me hot-0 1 1 1", Command::Answered("ERROR BAD_COMMAND")),
    (b"\0\xff\x01RELEASE", Command::Answered("ERROR BAD_COMMAND")),
    (b"STATS nope", Command::Answered("ERROR WRONG_STAT")),
    (b"ACQ4ME ", Command::BadAcquire),
    (b"ACQ4ANY hot-1", Command::BadAcquire),
    (b"ACQ4ME hot-1 0 5 1", Command::BadAcquire),
    (b"ACQ4ME hot-1 1 -5 1", Command::BadAcquire),
    (&TOO_LONG, Command::Answered("ERROR LINE_TOO_LONG a line has at most 4096 bytes")),
];

/// The same for every request of a key; otherwise the test could not judge the
/// answers.
pub(crate) fn workers(key: Key) -> usize {
    1 + key % 3
}

/// Some keys are not text.
pub(crate) fn name(key: Key) -> Vec<u8> {
    match key {
        0..HOT_KEYS => format!("hot-{key}").into_bytes(),
        _ if key % 10 == 0 => [b"bytes\0\xff\t-", key.to_string().as_bytes()].concat(),
        _ => format!("enwiki:pcache:idhash:{key}-0!canonical").into_bytes(),
    }
}

/// The bytes of one write, and the commands that they complete.
struct Piece {
    bytes: Vec<u8>,
    commands: Vec<Command>,
    /// The delay after the previous one.
    pause: Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum Life {
    Away,
    Talking,
    /// When it shut down its writing side; it now waits for the end of the
    /// connection.
    Finishing(Instant),
    /// Asks for far more than it ever reads.
    Gorged,
}

pub(crate) struct Actor {
    id: usize,
    random: Random,
    life: Life,
    stream: Option<TcpStream>,
    /// The kernel accepts little data for it that it does not read.
    is_narrow: bool,
    told: Told,
    pieces: VecDeque<Piece>,
    /// Bytes that the kernel did not accept.
    unsent: Vec<u8>,
    /// Half a received line.
    input: Vec<u8>,
    actions_left: usize,
    /// Sends nothing while it waits for an answer.
    is_patient: bool,
    next_at: Instant,
    /// Does not read before this time.
    quiet_until: Instant,
}

impl Actor {
    pub(crate) fn new(id: usize, seed: u64, now: Instant) -> Actor {
        let mut random = Random(seed ^ (id as u64 + 1) << 32);
        Actor {
            id,
            life: Life::Away,
            stream: None,
            is_narrow: false,
            told: Told::default(),
            pieces: VecDeque::new(),
            unsent: Vec::new(),
            input: Vec::new(),
            actions_left: 0,
            is_patient: false,
            next_at: now + random.millis_below(500),
            quiet_until: now,
            random,
        }
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    pub(crate) fn reads(&self, now: Instant) -> bool {
        now >= self.quiet_until && self.life != Life::Gorged
    }

    pub(crate) fn is_stuck(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Has an answer to everything that it sent, and does not wait for the end of the
    /// connection.
    pub(crate) fn is_at_rest(&self) -> bool {
        match self.life {
            Life::Away | Life::Gorged => true,
            Life::Talking => self.told.is_settled() && !self.is_stuck(),
            Life::Finishing(_) => false,
        }
    }

    pub(crate) fn holds_for_sure(&self, key: Key, now: Instant) -> usize {
        if self.life == Life::Talking { self.told.holds_for_sure(key, now) } else { 0 }
    }

    pub(crate) fn overdue(&self, now: Instant) -> Option<(String, Option<Key>)> {
        if !self.reads(now) {
            return None;
        }
        match self.life {
            Life::Away | Life::Gorged => None,
            Life::Talking => self.told.overdue(now, self.quiet_until),
            Life::Finishing(since) => {
                let late = now > since.max(self.quiet_until) + MARGIN;
                late.then(|| ("not closed after it shut its writing side".to_owned(), None))
            }
        }
    }

    /// Does the next action. Fails if the daemon has closed the connection.
    pub(crate) fn act(&mut self, now: Instant, world: &mut World) -> Result<(), String> {
        self.next_at = now + self.pause();
        match self.life {
            Life::Away => self.connect(now, world),
            Life::Gorged => self.go_away(now),
            Life::Finishing(_) => {}
            Life::Talking if self.is_stuck() => return self.push(),
            Life::Talking if !self.pieces.is_empty() => return self.send_piece(world),
            Life::Talking if self.is_patient && !self.told.is_settled() => {}
            Life::Talking if self.actions_left == 0 || self.random.percent(1) => {
                return self.end(now, world);
            }
            Life::Talking => {
                self.actions_left -= 1;
                return self.say_something(now, world);
            }
        }
        Ok(())
    }

    /// The time until it acts again: usually short, sometimes long, so that it holds
    /// a lock for long.
    fn pause(&mut self) -> Duration {
        let bound_ms = match self.random.below(100) {
            0..50 => 5,
            50..97 => 60,
            _ => 1_800,
        };
        self.random.millis_below(bound_ms)
    }

    fn connect(&mut self, now: Instant, world: &mut World) {
        self.is_narrow = self.random.percent(10);
        let client = if self.is_narrow {
            Client::connect_with_small_buffer(world.address)
        } else {
            Client::connect(world.address)
        };
        let stream = client.stream().try_clone().expect("a copy of the descriptor");
        stream.set_nonblocking(true).expect("nonblocking");
        self.stream = Some(stream);
        self.told = Told::new(world.rules.hold_max);
        self.life = Life::Talking;
        self.quiet_until = now;
        self.is_patient = self.random.percent(50);
        self.actions_left = 1 + self.random.below(40);
        world.tally.connected += 1;
        world.history.note(Some(self.id), Vec::new(), "connects".to_owned());
    }

    /// One command or several at once, whole or cut, or nothing.
    fn say_something(&mut self, now: Instant, world: &mut World) -> Result<(), String> {
        let waits = !self.told.is_settled() && !self.random.percent(15);
        if waits || self.told.unanswered() > UNANSWERED_MAX {
            return Ok(());
        }
        if self.random.percent(2) {
            self.quiet_until = now + self.random.millis_below(2_000);
            world.history.note(Some(self.id), Vec::new(), "stops reading for a while".to_owned());
        }
        let count = if self.random.percent(80) { 1 } else { 2 + self.random.below(5) };
        let mut piece = Piece { bytes: Vec::new(), commands: Vec::new(), pause: Duration::ZERO };
        let mut may_be_cut = true;
        for _ in 0..count {
            let (mut line, command) = self.command();
            // The answer to a long line may come before its end.
            may_be_cut &= line.len() < TOO_LONG.len();
            line.extend_from_slice(if self.random.percent(10) { b"\r\n" } else { b"\n" });
            piece.bytes.extend_from_slice(&line);
            piece.commands.push(command);
        }
        if may_be_cut && self.random.percent(25) {
            self.cut(piece);
        } else {
            self.pieces.push_back(piece);
        }
        self.send_piece(world)
    }

    fn command(&mut self) -> (Vec<u8>, Command) {
        let holds = self.told.holds_something();
        match self.random.below(100) {
            0..6 => {
                let (line, command) = self.random.one_of(JUNK);
                (line.to_vec(), command)
            }
            6..9 => (b"STATS FULL".to_vec(), Command::StatsFull),
            9..11 => (b"STATS uptime".to_vec(), Command::Answered("uptime: ")),
            11..13 => (b"STATS waiting_workers".to_vec(), Command::Answered("waiting_workers: ")),
            13..16 => (b"RELEASE".to_vec(), Command::Release),
            16..60 if holds => (b"RELEASE of the last one".to_vec(), Command::Release),
            _ => self.acquire(),
        }
    }

    fn acquire(&mut self) -> (Vec<u8>, Command) {
        let hot = self.random.percent(60);
        let asked = Acquire {
            for_anyone: self.random.percent(40),
            key: self.random.below(if hot { HOT_KEYS } else { KEYS }),
            queue_max: if self.random.percent(20) { 1 + self.random.below(8) } else { QUEUE_MAX },
            timeout: Duration::from_secs(self.random.below(3) as u64),
        };
        let command: &[u8] = if asked.for_anyone { b"ACQ4ANY " } else { b"ACQ4ME " };
        let (workers, queue_max) = (workers(asked.key), asked.queue_max);
        let limits = format!(" {workers} {queue_max} {}", asked.timeout.as_secs());
        let line = [command, &name(asked.key), limits.as_bytes()].concat();
        (line, Command::Acquire(asked))
    }

    /// Cuts a piece into up to four, at any byte; each command belongs to the piece
    /// with its line end.
    fn cut(&mut self, piece: Piece) {
        let mut ends: Vec<usize> =
            (0..1 + self.random.below(3)).map(|_| self.random.below(piece.bytes.len())).collect();
        ends.push(piece.bytes.len());
        ends.sort_unstable();
        let mut commands = piece.commands.into_iter();
        let mut start = 0;
        for end in ends {
            let bytes = piece.bytes[start..end].to_vec();
            let complete = bytes.iter().filter(|&&byte| byte == b'\n').count();
            let commands = commands.by_ref().take(complete).collect();
            self.pieces.push_back(Piece { bytes, commands, pause: self.random.millis_below(30) });
            start = end;
        }
    }

    /// From here on the commands count as sent.
    fn send_piece(&mut self, world: &mut World) -> Result<(), String> {
        let Some(piece) = self.pieces.pop_front() else { return Ok(()) };
        if let Some(next) = self.pieces.front() {
            self.next_at = Instant::now() + next.pause;
        }
        for &command in &piece.commands {
            self.told.note_sent(command, Instant::now());
        }
        self.note_said(&piece, world);
        self.unsent = piece.bytes;
        self.push()
    }

    fn note_said(&self, piece: &Piece, world: &mut World) {
        let shown = &piece.bytes[..piece.bytes.len().min(300)];
        let text = format!("> {}", shown.escape_ascii());
        let mut keys: Vec<Key> = piece.commands.iter().filter_map(key_of).collect();
        // A RELEASE may be for any of these.
        keys.extend(self.told.keys());
        world.history.note(Some(self.id), keys, text);
    }

    /// Sends what the kernel accepts.
    pub(crate) fn push(&mut self) -> Result<(), String> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        while !self.unsent.is_empty() {
            match stream.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("the connection is lost: {e}")),
            }
        }
        Ok(())
    }

    /// Leaves in one of many ways, in any state.
    fn end(&mut self, now: Instant, world: &mut World) -> Result<(), String> {
        let stream = self.stream.as_ref().expect("a connection");
        let how = match self.random.below(100) {
            0..40 => "close",
            40..65 => {
                set_socket_linger(stream, Some(Duration::ZERO)).expect("SO_LINGER");
                "reset"
            }
            65..80 => {
                // Half a line is not a command, but the connection is about to end.
                let mut writer = stream;
                let _ = writer.write(b"RELEASE");
                "close with half a line"
            }
            80..90 if self.is_narrow => return self.gorge(now, world),
            _ => {
                world.history.note(
                    Some(self.id),
                    self.told.keys(),
                    "shuts its writing side".to_owned(),
                );
                self.life = Life::Finishing(now);
                return stream.shutdown(Shutdown::Write).map_err(|e| e.to_string());
            }
        };
        world.history.note(Some(self.id), self.told.keys(), how.to_owned());
        self.go_away(now);
        Ok(())
    }

    /// Far more than the daemon keeps for a client: it disconnects such a client.
    fn gorge(&mut self, now: Instant, world: &mut World) -> Result<(), String> {
        self.life = Life::Gorged;
        self.next_at = now + Duration::from_millis(500) + self.random.millis_below(1_500);
        world.history.note(Some(self.id), self.told.keys(), "asks for too much".to_owned());
        let mut stream = self.stream.as_ref().expect("a connection");
        // It does not matter what the kernel refuses.
        let _ = stream.write(&b"STATS FULL\n".repeat(1_000));
        Ok(())
    }

    fn go_away(&mut self, now: Instant) {
        self.life = Life::Away;
        self.stream = None;
        self.pieces.clear();
        self.unsent.clear();
        self.input.clear();
        self.next_at = now + self.random.millis_below(200);
    }

    /// Reads everything available. Returns the keys of which it got a lock.
    pub(crate) fn hear(&mut self, world: &mut World) -> Result<Vec<Key>, String> {
        let mut gained = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            let Some(mut stream) = self.stream.as_ref() else { return Ok(gained) };
            match stream.read(&mut buffer) {
                Ok(0) => return self.hear_end(world).map(|()| gained),
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(gained),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(format!("the connection is lost: {e}")),
            }
            self.hear_lines(world, &mut gained)?;
        }
    }

    fn hear_lines(&mut self, world: &mut World, gained: &mut Vec<Key>) -> Result<(), String> {
        // After the read: nothing that was read may be newer than this time.
        let now = Instant::now();
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let heard = self.told.hear(&line, now);
            let answer = heard.as_ref().copied().unwrap_or_default();
            if heard.is_err() || is_no_statistic(&line) {
                let keys = answer.key.into_iter().collect();
                world.history.note(Some(self.id), keys, format!("< {line}"));
                world.tally.count(&line);
            }
            heard?;
            gained.extend(answer.key.filter(|_| answer.locked));
        }
        self.input = rest.to_vec();
        Ok(())
    }

    fn hear_end(&mut self, world: &mut World) -> Result<(), String> {
        world.history.note(Some(self.id), Vec::new(), "< end".to_owned());
        if !matches!(self.life, Life::Finishing(_)) {
            return Err("the daemon closed the connection".to_owned());
        }
        if !self.told.may_end() || !self.input.is_empty() {
            return Err(format!("closed before all was answered: {:?}", self.told));
        }
        self.go_away(Instant::now());
        Ok(())
    }
}

fn key_of(command: &Command) -> Option<Key> {
    match command {
        Command::Acquire(asked) => Some(asked.key),
        _ => None,
    }
}

fn is_no_statistic(line: &str) -> bool {
    line.starts_with(char::is_uppercase)
}
