//! Random conversations of several clients, with Debian's daemon and with ours at the
//! same time: every reply and every counter must be the same after every step. A step is
//! over once both have handled it ([`Pair::has_handled`]): if the next one overtook it, the
//! outcome would depend on chance. A reply to a client that has just reset its connection
//! is a failed send or not; the reference drops a line that arrives with the one before.
//!
//! The random part avoids intended differences: [`is_left_out`] filters them, or
//! [`random_line`] does not generate them. `differences.rs` lists them, with a test for
//! each.
//!
//! A failure prints the conversation as a transcript (`transcripts/README.md`) and
//! the seed: `DIFF_SEED=17 cargo test --test reference differential` repeats it.
//! `DIFF_SCRIPTS=100000` runs more of them, from the usual seed on.

mod differences;

use std::fmt::Write as _;

use crate::support::random::{Random, number_from_environment};
use crate::support::shape::without_times;
use crate::support::{COUNTERS, Client, PATIENCE, Server, eventually};

const CLIENTS: usize = 8;
const STEPS: usize = 60;
/// The number of conversations and the first seed are fixed.
const SCRIPTS: u64 = 200;
const USUAL_SEED: u64 = 1;

#[test]
fn random_conversations_match() {
    // Two conversations at a time: each mostly waits for the other processes.
    let (Some(one), Some(other)) = (Pair::start(), Pair::start()) else { return };
    let replayed = number_from_environment("DIFF_SEED");
    let wanted = number_from_environment("DIFF_SCRIPTS").or(replayed.map(|_| 1));
    let (first, count) = (replayed.unwrap_or(USUAL_SEED), wanted.unwrap_or(SCRIPTS));
    let play_every_second = |mut pair: Pair, from| {
        (from..count).step_by(2).for_each(|n| play_random(first.wrapping_add(n), &mut pair));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play_every_second(one, 0));
        scope.spawn(|| play_every_second(other, 1));
    });
    println!("{count} conversations of {STEPS} steps, seeds from {first}");
}

fn play_random(seed: u64, pair: &mut Pair) {
    let mut random = Random(seed);
    let mut script = Script::default();
    for _ in 0..STEPS {
        let step = random_step(&mut random, pair, 600);
        script.play(pair, step).unwrap_or_else(|what| script.fail(seed, &what));
    }
    let ended = script.disconnect_all(pair);
    ended.unwrap_or_else(|what| script.fail(seed, &what));
}

/// Waits of one second among waits of ten minutes.
#[test]
fn timeouts_match() {
    const ROUNDS: u64 = 4;
    let Some(mut pair) = Pair::start() else { return };
    let first = number_from_environment("DIFF_SEED").unwrap_or(USUAL_SEED);
    for seed in (0..ROUNDS).map(|n| first.wrapping_add(n)) {
        let mut script = Script::default();
        let played = play_timeouts(&mut Random(seed), &mut script, &mut pair);
        played.unwrap_or_else(|what| script.fail(seed, &what));
    }
    println!("{ROUNDS} rounds, seeds from {first}");
}

/// The result does not depend on when a wait of one second times out: while such waits run,
/// no client releases or leaves, and they don't affect the answers to others.
fn play_timeouts(random: &mut Random, script: &mut Script, pair: &mut Pair) -> Result<(), String> {
    play_long_waits(random, script, pair)?;
    for client in 0..CLIENTS {
        // A waiter of the reference that sends a command loses its timeout: see the list.
        if !pair.waiting[client] {
            let action = Action::Send(short_wait(random));
            script.play(pair, Step { client, action })?;
        }
    }
    pair.wait_for_timeouts()?;
    script.note("# the waits of one second run out");
    script.compare(pair, Awaited::Nothing)?;
    // After them, the queues match too.
    play_long_waits(random, script, pair)?;
    script.disconnect_all(pair)
}

fn play_long_waits(
    random: &mut Random,
    script: &mut Script,
    pair: &mut Pair,
) -> Result<(), String> {
    for _ in 0..25 {
        let step = random_step(random, pair, 600);
        script.play(pair, step)?;
    }
    Ok(())
}

/// With one worker it waits exactly if the key is held; the queue has room for all
/// clients.
fn short_wait(random: &mut Random) -> Vec<u8> {
    let command = random.one_of(&["ACQ4ME", "ACQ4ANY"]);
    let key = random.one_of(&KEYS);
    format!("{command} {key} 1 1000 1").into()
}

/// Both servers, with the same clients.
struct Pair {
    reference: Side,
    ours: Side,
    /// The clients whose ACQ has no answer yet.
    waiting: [bool; CLIENTS],
    /// Those of them that wait for only one second.
    short: [bool; CLIENTS],
}

impl Pair {
    /// `None`, with a message, without a reference.
    fn start() -> Option<Pair> {
        let reference = Side::of(Server::reference()?, true);
        Some(Pair {
            reference,
            ours: Side::of(Server::start(), false),
            waiting: [false; CLIENTS],
            short: [false; CLIENTS],
        })
    }

    fn sides(&mut self) -> [&mut Side; 2] {
        [&mut self.reference, &mut self.ours]
    }

    /// Waits until both sides have sent TIMEOUT to every client that waits for one
    /// second.
    fn wait_for_timeouts(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            if !(self.waiting[client] && self.short[client]) {
                continue;
            }
            for side in self.sides() {
                let name = side.name();
                let line = side.clients[client].as_mut().and_then(|c| c.next_line(PATIENCE));
                match line.as_deref() {
                    Some("TIMEOUT") => {}
                    other => return Err(format!("{name}: client {client} got {other:?}")),
                }
            }
            self.waiting[client] = false;
        }
        Ok(())
    }

    /// Waits until both have handled the last step and given the same answers: a late
    /// answer is not a difference.
    fn observe(&mut self, awaited: &Awaited) -> Result<[Received; CLIENTS], String> {
        let (mut theirs, mut ours) = (Observed::default(), Observed::default());
        let are_equal = eventually(|| {
            self.reference.observe(&mut theirs);
            self.ours.observe(&mut ours);
            theirs == ours && self.has_handled(&ours, awaited)
        });
        if are_equal { Ok(ours.received) } else { Err(difference(&theirs, &ours)) }
    }

    /// Whether both, of which the same was observed, have handled the last step, and all
    /// their answers have arrived. Equal answers don't show that: none may have come yet,
    /// for the kernel may deliver what a client sends after the question of another one.
    fn has_handled(&self, observed: &Observed, awaited: &Awaited) -> bool {
        let received = &observed.received;
        let has_come = match *awaited {
            Awaited::Nothing | Awaited::AnswerOrWait(_) => true,
            Awaited::Answer(client) => !received[client].lines.is_empty(),
            Awaited::End(client) => received[client].ended,
        };
        let is_open =
            |&client: &usize| self.ours.clients[client].is_some() && !received[client].ended;
        let is_waiting = |&client: &usize| {
            self.waiting[client] && !received[client].ends_wait(awaited.is_request_of(client))
        };
        has_come
            && observed.connections == (0..CLIENTS).filter(is_open).count()
            && observed.waits() == (0..CLIENTS).filter(is_waiting).count()
    }
}

/// One server and its clients.
struct Side {
    is_reference: bool,
    server: Server,
    control: Client,
    /// Descriptors of the server while only `control` is connected.
    descriptors_without_clients: usize,
    clients: [Option<Client>; CLIENTS],
}

impl Side {
    fn of(server: Server, is_reference: bool) -> Side {
        let mut control = server.connect();
        control.settle();
        Side {
            is_reference,
            control,
            descriptors_without_clients: server.descriptors(),
            server,
            clients: Default::default(),
        }
    }

    fn name(&self) -> &'static str {
        if self.is_reference { "the reference" } else { "ours" }
    }

    fn act(&mut self, step: &Step) {
        let client = &mut self.clients[step.client];
        match &step.action {
            Action::Send(line) => {
                let client = client.get_or_insert_with(|| self.server.connect());
                client.send_bytes(&[line.as_slice(), b"\n"].concat());
            }
            Action::Connect => *client = Some(self.server.connect()),
            Action::Close => *client = None,
            Action::Reset => client.take().into_iter().for_each(Client::reset),
            Action::Shut => client.iter_mut().for_each(Client::shut_writing),
        }
    }

    /// Adds what was received since the last call.
    fn observe(&mut self, observed: &mut Observed) {
        // Both close the descriptor of a client that has left after they have taken its locks.
        let descriptors = self.server.descriptors();
        observed.connections = descriptors.saturating_sub(self.descriptors_without_clients);
        self.control.settle();
        let lines = self.control.stats_full();
        observed.stats = lines.iter().map(|l| without_times(l).to_owned()).collect();
        for (client, received) in self.clients.iter_mut().zip(&mut observed.received) {
            let Some(client) = client else { continue };
            let (bytes, ended) = client.take_all();
            let mut text = String::from_utf8_lossy(&bytes).into_owned();
            if self.is_reference {
                text = with_line_ends(&text);
            }
            received.lines.extend(text.lines().map(|l| without_times(l).to_owned()));
            received.ended |= ended;
        }
    }
}

/// The reference sends `ERROR WRONG_STAT` without a line end: see the list.
fn with_line_ends(text: &str) -> String {
    text.replace("ERROR WRONG_STAT", "ERROR WRONG_STAT\n")
}

#[derive(Debug, Default, PartialEq)]
struct Observed {
    received: [Received; CLIENTS],
    /// `STATS FULL`, which has the twelve counters.
    stats: Vec<String>,
    /// Clients whose connection the server has accepted and not closed.
    connections: usize,
}

impl Observed {
    /// The waits that the server knows.
    fn waits(&self) -> usize {
        let count = self.stats.iter().find_map(|line| line.strip_prefix("waiting_workers: "));
        count.and_then(|count| count.parse().ok()).expect("waiting_workers")
    }
}

/// What one client received in one step.
#[derive(Debug, Default, PartialEq)]
struct Received {
    lines: Vec<String>,
    ended: bool,
}

impl Received {
    /// Any answer to a client that just asked for a lock means that it does not wait; a
    /// wait ends with LOCKED, DONE or TIMEOUT, or with the connection.
    fn ends_wait(&self, has_just_asked: bool) -> bool {
        let is_end = |line: &String| matches!(line.as_str(), "LOCKED" | "DONE" | "TIMEOUT");
        let has_answer = has_just_asked && !self.lines.is_empty();
        has_answer || self.ended || self.lines.iter().any(is_end)
    }
}

/// What has to come before a step is over.
enum Awaited {
    Nothing,
    /// The answer to a line of this client.
    Answer(usize),
    /// The answer to this client's request for a lock, which may wait instead.
    AnswerOrWait(usize),
    /// The end of this client's connection.
    End(usize),
}

impl Awaited {
    fn is_request_of(&self, client: usize) -> bool {
        matches!(*self, Awaited::AnswerOrWait(asked) if asked == client)
    }
}

/// The differences between the two, line by line.
fn difference(theirs: &Observed, ours: &Observed) -> String {
    let mut text = String::new();
    for (client, (theirs, ours)) in theirs.received.iter().zip(&ours.received).enumerate() {
        if theirs != ours {
            let name = letter(client);
            writeln!(text, "{name}: the reference: {theirs:?}, ours: {ours:?}").expect("write");
        }
    }
    for (theirs, ours) in theirs.stats.iter().zip(&ours.stats) {
        if theirs != ours {
            writeln!(text, "the reference: {theirs}, ours: {ours}").expect("write");
        }
    }
    let (theirs, ours) = (theirs.connections, ours.connections);
    writeln!(text, "connections: the reference: {theirs}, ours: {ours}").expect("write");
    text
}

struct Step {
    client: usize,
    action: Action,
}

enum Action {
    Send(Vec<u8>),
    Connect,
    Close,
    Reset,
    Shut,
}

/// The steps so far, as a transcript.
#[derive(Default)]
struct Script {
    text: String,
}

impl Script {
    fn play(&mut self, pair: &mut Pair, step: Step) -> Result<(), String> {
        if is_left_out(&step, pair) {
            return Ok(());
        }
        self.note(&transcribed(&step));
        for side in pair.sides() {
            side.act(&step);
        }
        let client = step.client;
        let awaited = match &step.action {
            Action::Send(line) if !pair.waiting[client] && line.starts_with(b"ACQ4") => {
                pair.waiting[client] = true;
                pair.short[client] = line.ends_with(b" 1");
                Awaited::AnswerOrWait(client)
            }
            Action::Send(_) => Awaited::Answer(client),
            Action::Shut => Awaited::End(client),
            Action::Connect | Action::Close | Action::Reset => {
                pair.waiting[client] = false;
                Awaited::Nothing
            }
        };
        self.compare(pair, awaited)
    }

    /// Compares what all clients received.
    fn compare(&mut self, pair: &mut Pair, awaited: Awaited) -> Result<(), String> {
        for (client, received) in pair.observe(&awaited)?.into_iter().enumerate() {
            let name = letter(client);
            pair.waiting[client] &= !received.ends_wait(awaited.is_request_of(client));
            for line in &received.lines {
                self.note(&format!("{name}< {line}"));
            }
            if received.ended {
                self.note(&format!("{name}! ended"));
                for side in pair.sides() {
                    side.clients[client] = None;
                }
            }
        }
        Ok(())
    }

    /// All clients disconnect. Neither side may keep any of their state.
    fn disconnect_all(&mut self, pair: &mut Pair) -> Result<(), String> {
        for client in 0..CLIENTS {
            if pair.ours.clients[client].is_some() {
                self.play(pair, Step { client, action: Action::Shut })?;
            }
        }
        for gauge in ["hashtable_entries", "processing_workers", "waiting_workers"] {
            pair.ours.control.wait_for_counter(gauge, |n| n == 0);
        }
        Ok(())
    }

    fn note(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("write to a string");
    }

    fn fail(&self, seed: u64, what: &str) -> ! {
        panic!("DIFF_SEED={seed}\n{}{what}", self.text);
    }
}

/// Lines of the list in `differences.rs` that random steps could produce.
fn is_left_out(step: &Step, pair: &Pair) -> bool {
    match &step.action {
        Action::Send(line) => pair.waiting[step.client] && line.starts_with(b"RELEASE"),
        _ => false,
    }
}

fn transcribed(step: &Step) -> String {
    let name = letter(step.client);
    match &step.action {
        Action::Send(line) => format!("{name}> {}", line.escape_ascii()),
        Action::Connect => format!("{name}! connect"),
        Action::Close => format!("{name}! close"),
        Action::Reset => format!("{name}! reset"),
        Action::Shut => format!("{name}! shut"),
    }
}

fn letter(client: usize) -> char {
    (b'A' + client as u8) as char
}

fn random_step(random: &mut Random, pair: &Pair, timeout_s: u32) -> Step {
    let client = random.below(CLIENTS);
    let connected = pair.ours.clients[client].is_some();
    let action = match random.below(100) {
        0..2 if !connected => Action::Connect,
        2..6 if connected => Action::Close,
        6..8 if connected => Action::Reset,
        8..10 if connected => Action::Shut,
        _ => Action::Send(random_line(random, timeout_s)),
    };
    Step { client, action }
}

fn random_line(random: &mut Random, timeout_s: u32) -> Vec<u8> {
    match random.below(100) {
        0..55 => random_acquire(random, &[0, timeout_s, timeout_s, timeout_s]),
        55..82 => {
            random.one_of(&["RELEASE", "RELEASE", "RELEASE a", "RELEASED", "RELEASE\r"]).into()
        }
        82..88 => random_stats(random),
        88..94 => random.one_of(&ODD_LINES).into(),
        _ => random_mutant(random),
    }
}

const KEYS: [&str; 5] = ["a", "a", "b", "c:d", "\u{e9}"];

fn random_acquire(random: &mut Random, timeouts_s: &[u32]) -> Vec<u8> {
    let command = random.one_of(&["ACQ4ME", "ACQ4ME", "ACQ4ANY"]);
    let key = random.one_of(&KEYS);
    let workers = 1 + random.below(3);
    let queue = 1 + random.below(7);
    let timeout_s = random.one_of(timeouts_s);
    format!("{command} {key} {workers} {queue} {timeout_s}").into()
}

fn random_stats(random: &mut Random) -> Vec<u8> {
    let mut name = match random.below(4) {
        0 => "FULL".to_owned(),
        1 => "UPTIME".to_owned(),
        _ => random.one_of(&COUNTERS).to_owned(),
    };
    if random.below(3) == 0 {
        name = name.to_ascii_uppercase();
    }
    if random.below(6) == 0 {
        name.push(random.one_of(&[' ', 'x', '\r', '\t']));
    }
    format!("STATS {name}").into()
}

/// From the table of edge cases in docs/reference/protocol.md, and more like them.
const ODD_LINES: [&str; 38] = [
    "",
    " ",
    "\r",
    "QUIT",
    "ACQ4ME",
    "ACQ4ME ",
    "ACQ4ANY",
    "ACQ4ANY  ",
    "ACQ4ANYX a 1 1 1",
    "acq4me a 1 1 1",
    " ACQ4ME a 1 1 1",
    "ACQ4ME\ta 1 1 1",
    "ACQ4ME a",
    "ACQ4ME a 1",
    "ACQ4ME a 1 1",
    "ACQ4ME  a  1  1  0",
    "ACQ4ME a 1 1 0 extra junk",
    "ACQ4ME a 01 02 00\r",
    "ACQ4ME a -1 1 1",
    "ACQ4ME a +1 1 1",
    "ACQ4ME a 1.5 1 1",
    "ACQ4ME a 1 1.5 1",
    "ACQ4ME a 1 9 1.5",
    "ACQ4ME a 0 1 1",
    "ACQ4ME a 1 0 1",
    "ACQ4ME a\t1\t1\t1",
    "ACQ4ME a\t1 1 1 1",
    "ACQ4ME a 1 9 1\t5",
    "ACQ4ME a 4294967295 4294967295 0",
    "release",
    " RELEASE",
    "RELEAS",
    "STATS",
    "STATS ",
    "STATS nope",
    "STATS  FULL",
    "stats FULL",
    "GET / HTTP/1.1",
];

/// A valid line with one byte changed, added or removed. Never with a NUL, a line end or
/// more than 1024 bytes: see the list.
fn random_mutant(random: &mut Random) -> Vec<u8> {
    let mut line = match random.below(3) {
        0 => b"RELEASE a".to_vec(),
        1 => random_stats(random),
        _ => random_acquire(random, &[600]),
    };
    // A space after the 6 of 600 would make a wait so short that it might run out.
    let zeros = line.iter().rev().take_while(|&&byte| byte == b'0').count();
    let place = random.below(line.len() - zeros);
    let byte = random.one_of(b" \t\r019AaSkx-+.:%\x01\x7f\x80\xff");
    match random.below(3) {
        0 => line[place] = byte,
        1 => line.insert(place, byte),
        _ => drop(line.remove(place)),
    }
    line
}

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
