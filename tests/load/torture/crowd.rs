//! The crowd and its judge: lets every client act at its time, reads the answers,
//! restarts the daemon, and compares what all clients know.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::actor::{self, Actor};
use super::told::Key;
use crate::support::Server;
use crate::support::random::Random;
use crate::support::restart::WENT_ON;

const CLIENTS: usize = 400;

/// How often the judge checks whether an answer is missing.
const LOOK: Duration = Duration::from_millis(200);

/// All answers that a client may get, except statistics.
const REPLIES: [&str; 12] = [
    "LOCKED",
    "DONE",
    "RELEASED",
    "TIMEOUT",
    "QUEUE_FULL",
    "LOCK_HELD",
    "NOT_LOCKED",
    "ERROR WAIT_FOR_RESPONSE",
    "ERROR BAD_SYNTAX",
    "ERROR BAD_COMMAND",
    "ERROR WRONG_STAT",
    "ERROR LINE_TOO_LONG a line has at most 4096 bytes",
];

/// How much of the past a failure reports.
const HISTORY_MAX: usize = 50_000;

/// The kind of a round.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) restarts: bool,
    pub(crate) hold_max: Option<Duration>,
}

impl Rules {
    pub(crate) fn of(seed: u64) -> Rules {
        Rules {
            restarts: !matches!(seed % 8, 2 | 5),
            hold_max: (seed % 2 == 1).then_some(Duration::from_secs(1)),
        }
    }

    /// The keys of [`super::order`] may be held for long.
    pub(crate) fn arguments(&self) -> Vec<&'static str> {
        match self.hold_max {
            None => Vec::new(),
            Some(_) => vec!["--max-hold", "order-*=3600", "--max-hold", "*=1"],
        }
    }
}

impl Display for Rules {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let with = |what: bool| if what { "with" } else { "without" };
        let (restarts, max) = (with(self.restarts), with(self.hold_max.is_some()));
        write!(f, "{CLIENTS} clients, {restarts} restarts, {max} --max-hold")
    }
}

/// What the clients saw.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    replies: BTreeMap<String, u64>,
    pub(crate) connected: u64,
    pub(crate) restarts: usize,
}

impl Tally {
    pub(crate) fn count(&mut self, reply: &str) {
        *self.replies.entry(reply.to_owned()).or_default() += 1;
    }

    pub(crate) fn times(&self, reply: &str) -> u64 {
        self.replies.get(reply).copied().unwrap_or(0)
    }

    /// Torture shows nothing about what it never reaches.
    pub(crate) fn assert_all_was_tried(&self, rules: Rules) {
        for reply in REPLIES {
            assert!(self.times(reply) > 0, "never {reply}: {self}");
        }
        assert!(self.restarts > 0 || !rules.restarts, "no restart");
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections, {} restarts", self.connected, self.restarts)?;
        self.replies.iter().try_for_each(|(reply, times)| write!(f, ", {times} {reply}"))
    }
}

/// What the clients share.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) rules: Rules,
    pub(crate) tally: Tally,
    pub(crate) history: History,
}

pub(crate) struct Crowd<'a> {
    server: &'a Server,
    seed: u64,
    random: Random,
    world: World,
    actors: Vec<Actor>,
    next_look: Instant,
    next_restart: Instant,
    asked_restarts: usize,
    restarts_before: usize,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(server: &'a Server, rules: Rules, seed: u64) -> Crowd<'a> {
        let now = Instant::now();
        let history = History { start: now, entries: VecDeque::new() };
        let address = server.address();
        let restarts_before = server.log.count(WENT_ON);
        Crowd {
            server,
            seed,
            random: Random(seed),
            world: World { address, rules, tally: Tally::default(), history },
            actors: (0..CLIENTS).map(|id| Actor::new(id, seed, now)).collect(),
            next_look: now,
            next_restart: now,
            asked_restarts: 0,
            restarts_before,
        }
    }

    /// Runs one turn: waits until there is something to do, and does it.
    pub(crate) fn go_on(&mut self) {
        let next_act = self.actors.iter().map(Actor::next_at).min().expect("clients");
        self.hear_and_push(next_act);
        let now = Instant::now();
        for n in 0..self.actors.len() {
            if self.actors[n].next_at() <= now {
                let result = self.actors[n].act(now, &mut self.world);
                result.unwrap_or_else(|why| self.fail(n, None, &why));
            }
        }
        if self.world.rules.restarts && now >= self.next_restart {
            self.restart(now);
        }
    }

    /// Lets no client send until everything sent has its answer.
    pub(crate) fn rest(&mut self) {
        while !self.actors.iter().all(Actor::is_at_rest) {
            self.hear_and_push(self.next_look);
        }
    }

    /// Waits for something to read, at most until `until`.
    fn hear_and_push(&mut self, until: Instant) {
        let (readable, writable) = self.wait(until.min(self.next_look));
        for &n in &readable {
            self.hear(n);
        }
        for &n in &writable {
            let result = self.actors[n].push();
            result.unwrap_or_else(|why| self.fail(n, None, &why));
        }
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.look_for_missing_answers(now);
        }
    }

    /// All clients close. Returns what happened.
    pub(crate) fn leave(mut self) -> Tally {
        self.actors.clear();
        self.world.tally.restarts = self.server.log.count(WENT_ON) - self.restarts_before;
        self.world.tally
    }

    /// The numbers of the clients that can be read, and of those that can be written
    /// to.
    fn wait(&self, until: Instant) -> (Vec<usize>, Vec<usize>) {
        let now = Instant::now();
        let mut fds = Vec::new();
        let mut of = Vec::new();
        for (n, actor) in self.actors.iter().enumerate() {
            let Some(stream) = actor.stream() else { continue };
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, actor.reads(now));
            wanted.set(PollFlags::OUT, actor.is_stuck());
            if !wanted.is_empty() {
                fds.push(PollFd::new(stream, wanted));
                of.push(n);
            }
        }
        let timeout = until.saturating_duration_since(now).try_into().expect("a short time");
        poll(&mut fds, Some(&timeout)).expect("poll");
        let of_event = |flags: PollFlags| {
            let hit = fds.iter().zip(&of).filter(|(fd, _)| fd.revents().intersects(flags));
            hit.map(|(_, &n)| n).collect()
        };
        let read = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        (of_event(read), of_event(PollFlags::OUT))
    }

    /// Reads the answers to a client. When the client got a lock, the key must not
    /// have too many holders: a client that certainly holds the key now has held it
    /// all the time.
    fn hear(&mut self, n: usize) {
        let result = self.actors[n].hear(&mut self.world);
        let gained = result.unwrap_or_else(|why| self.fail(n, None, &why));
        let now = Instant::now();
        for key in gained {
            let holds = |actor: &Actor| actor.holds_for_sure(key, now);
            let holders = self.actors.iter().map(holds).sum::<usize>();
            if holders > actor::workers(key) {
                let who = self.actors.iter().filter(|actor| holds(actor) > 0);
                let who: Vec<usize> = who.map(Actor::id).collect();
                self.fail(n, Some(key), &format!("{holders} holders at once: clients {who:?}"));
            }
        }
    }

    fn look_for_missing_answers(&self, now: Instant) {
        for (n, actor) in self.actors.iter().enumerate() {
            if let Some((why, key)) = actor.overdue(now) {
                self.fail(n, key, &why);
            }
        }
    }

    /// Usually restarts after the last restart is done; sometimes during it.
    fn restart(&mut self, now: Instant) {
        let done = self.server.log.count(WENT_ON) - self.restarts_before;
        if done < self.asked_restarts && !self.random.percent(2) {
            self.next_restart = now + Duration::from_millis(20);
            return;
        }
        self.server.signal(Signal::USR1);
        self.world.history.note(None, Vec::new(), "hot restart".to_owned());
        // Restarts requested during another one are merged into it.
        self.asked_restarts = done + 1;
        let often = if self.random.percent(50) { 400 } else { 3000 };
        self.next_restart = now + Duration::from_millis(50) + self.random.millis_below(often);
    }

    fn fail(&self, client: usize, key: Option<Key>, why: &str) -> ! {
        let history = &self.world.history;
        let mut text = format!("client {client}: {why}\n\nThe last of that client:\n");
        text += &history.last(40, |entry| entry.client.is_none_or(|c| c == client));
        // The history of the key in question, or of the last one that the client
        // named.
        let mut of_client = history.entries.iter().rev().filter(|e| e.client == Some(client));
        let mut named = || of_client.find_map(|entry| entry.keys.last().copied());
        if let Some(key) = key.or_else(&mut named) {
            text += &format!("\nThe last of key {}:\n", actor::name(key).escape_ascii());
            text += &history.last(60, |entry| entry.client.is_none() || entry.keys.contains(&key));
        }
        let log = self.server.log.lines();
        let log = log[log.len().saturating_sub(10)..].join("\n");
        let seed = self.seed;
        panic!("{text}\nThe daemon's log:\n{log}\n\nRepeat with: make torture TORTURE_SEED={seed}");
    }
}

/// What happened, to be reported with a failure.
pub(crate) struct History {
    start: Instant,
    entries: VecDeque<Entry>,
}

struct Entry {
    at: Duration,
    client: Option<usize>,
    keys: Vec<Key>,
    what: String,
}

impl History {
    pub(crate) fn note(&mut self, client: Option<usize>, keys: Vec<Key>, what: String) {
        if self.entries.len() == HISTORY_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(Entry { at: self.start.elapsed(), client, keys, what });
    }

    fn last(&self, count: usize, wanted: impl Fn(&Entry) -> bool) -> String {
        let mut entries: Vec<&Entry> =
            self.entries.iter().rev().filter(|e| wanted(e)).take(count).collect();
        entries.reverse();
        let line = |entry: &&Entry| {
            let client = entry.client.map(|n| format!("client {n}")).unwrap_or_default();
            format!("{:11.6} s  {client:10}  {}\n", entry.at.as_secs_f64(), entry.what)
        };
        entries.iter().map(line).collect()
    }
}
