//! The engine and the model side by side.

use crate::simulation::model::{Model, TakenAway};
use crate::simulation::script::{RULE_SETS, Script, Step};
use engine::rules::rule::Rule;
use engine::state::{BadState, EngineState, PoolState};
use engine::{ClientId, Engine, HashSeed, Time};
use protocol::{Acquire, Mode, Reply};
use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};

/// Both get the same operations and must give the same answers.
#[derive(Clone)]
pub(crate) struct Pair {
    engine: Engine,
    pub(crate) model: Model,
    pub(crate) now: Time,
    /// The serial number of the client in each slot.
    serials: Vec<u32>,
    /// The serial number before it.
    former_serials: Vec<Option<u32>>,
    last_serial: u32,
    /// The number of the rules in force.
    pub(crate) rules: u8,
    /// The answers to the last step.
    pub(crate) answers: Vec<(ClientId, Reply)>,
}

/// A new one each time: nothing may depend on it.
pub(crate) fn any_seed() -> HashSeed {
    let random = RandomState::new();
    HashSeed::new([0, 1].map(|n: u64| random.hash_one(n)))
}

impl Pair {
    /// With the rules of this number.
    pub(crate) fn new(start_ns: u64, rules: u8) -> Self {
        let now = Time::from_ns(start_ns);
        let mut pair = Pair {
            engine: Engine::new(any_seed(), now),
            model: Model::new(&[], &[]),
            now,
            serials: Vec::new(),
            former_serials: Vec::new(),
            last_serial: 0,
            rules,
            answers: Vec::new(),
        };
        pair.set_rules(rules);
        pair
    }

    fn set_rules(&mut self, number: u8) {
        self.rules = number;
        let (rules, groups) = rules(number);
        self.engine.set_rules(read(&rules), &groups, self.now, || {});
        self.model.set_rules(&rules, &groups, self.now);
    }

    /// Takes one step on both sides.
    ///
    /// # Errors
    /// The first difference after it.
    ///
    /// # Panics
    /// When the engine does.
    pub(crate) fn take(&mut self, step: &Step) -> Result<(), String> {
        if let Step::Acquire { slot, .. } | Step::Release { slot } | Step::Disconnect { slot } =
            *step
        {
            self.call_about_former_client(slot);
        }
        match *step {
            Step::Acquire { slot, mode, key: n, workers, max_queue, timeout_s } => {
                let client = self.client_in(slot);
                let request = Acquire { mode, key: &key(n), workers, max_queue, timeout_s };
                self.engine.acquire(client, &request, self.now);
                self.model.acquire(client, &request, self.now);
            }
            Step::Release { slot } => {
                let client = self.client_in(slot);
                self.engine.release(client, self.now);
                self.model.release(client, self.now);
            }
            Step::Disconnect { slot } => {
                let client = self.client_in(slot);
                self.engine.disconnect(client, self.now);
                self.model.disconnect(client, self.now);
                self.replace_client(slot);
            }
            Step::DisconnectAll { first, count } => {
                let slots = first..(first + count).min(self.serials.len() as u32);
                let clients: Vec<_> = slots.clone().map(|slot| self.client_in(slot)).collect();
                self.engine.disconnect_all(&clients, self.now);
                self.model.disconnect_all(&clients, self.now);
                slots.for_each(|slot| self.replace_client(slot));
            }
            Step::Advance { by_ns } => self.now = self.now.plus_ns(by_ns),
            Step::AdvanceToDeadline => self.advance_to(self.model.next_deadline_ns(), 0),
            Step::AdvanceToRunOut { early_ns } => {
                self.advance_to(self.model.next_run_out_ns(), early_ns);
            }
            Step::AdvanceToNextLook => {
                let look = self.engine.next_deadline();
                self.advance_to(look.map(|look| look.as_ns().into()), 0);
            }
            Step::Expire => {
                self.engine.expire(self.now);
                self.model.expire(self.now);
                self.compare_next_look()?;
            }
            Step::SetRules { number } => self.set_rules(number),
            Step::Restart => self.restart()?,
            Step::Shrink => self.engine.shrink(),
        }
        self.compare()
    }

    /// The next client in `slot` is a new one.
    fn replace_client(&mut self, slot: u32) {
        let serial = self.new_serial();
        let former = std::mem::replace(&mut self.serials[slot as usize], serial);
        self.former_serials[slot as usize] = Some(former);
    }

    /// As long as a client has locks, calls for the former client of its slot have no
    /// effect: the model does not get them.
    fn call_about_former_client(&mut self, slot: u32) {
        let client = self.client_in(slot);
        let Some(serial) = self.former_serials[slot as usize] else {
            return;
        };
        if self.engine.locks_of(client).next().is_none() {
            return;
        }
        let former = ClientId { slot, serial };
        assert!(self.engine.locks_of(former).next().is_none(), "a former client has locks");
        let key = key(1);
        let mode = Mode::ForMe;
        let request = Acquire { mode, key: &key, workers: 9, max_queue: 99, timeout_s: 9 };
        self.engine.acquire(former, &request, self.now);
        self.engine.release(former, self.now);
        self.engine.disconnect(former, self.now);
    }

    /// Continues with another engine, made from the state of this one, which was
    /// written and read back.
    fn restart(&mut self) -> Result<(), String> {
        let written = serde_json::to_string(&self.engine.state()).expect("plain data");
        let pools = self.engine.pool_states().map(|pool| serde_json::to_string(&pool));
        let pools: Vec<String> = pools.map(|pool| pool.expect("plain data")).collect();
        let state = serde_json::from_str(&written).expect("the engine's state");
        let pools = pools.iter().map(|pool| serde_json::from_str(pool).expect("a pool's state"));
        let pools = pools.map(Ok::<_, BadState>);
        let resumed = Engine::resume(state, pools, any_seed(), self.now);
        let resumed = resumed.map_err(|e| format!("invalid engine state: {e:?}"))?;
        resumed.check_invariants();
        same("states", &state_of(&resumed), &state_of(&self.engine))?;
        self.engine = resumed;
        Ok(())
    }

    /// The client in `slot`, which is the first one if there was none.
    fn client_in(&mut self, slot: u32) -> ClientId {
        while self.serials.len() <= slot as usize {
            let serial = self.new_serial();
            self.serials.push(serial);
            self.former_serials.push(None);
        }
        ClientId { slot, serial: self.serials[slot as usize] }
    }

    fn new_serial(&mut self) -> u32 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Time never goes backwards, nor beyond its end.
    fn advance_to(&mut self, moment_ns: Option<u128>, early_ns: u64) {
        let moment_ns = u64::try_from(moment_ns.unwrap_or(0)).unwrap_or(u64::MAX);
        self.now = self.now.max(Time::from_ns(moment_ns.saturating_sub(early_ns)));
    }

    fn compare(&mut self) -> Result<(), String> {
        self.engine.check_invariants();
        self.answers = std::iter::from_fn(|| self.engine.take_answer()).collect();
        same("answers", &self.answers, &self.model.take_answers())?;
        let taken_away = self.engine.take_expired().into_iter();
        let taken_away: Vec<TakenAway> =
            taken_away.map(|lock| (lock.client, lock.key, lock.held_ns.into())).collect();
        same("locks taken away", &taken_away, &self.model.take_taken_away())?;
        same("numbers of locks", &self.engine.lock_count(), &self.model.len())?;
        same("counters", &self.engine.counters, &self.model.counters())?;
        same("sums of time", self.engine.times(), self.model.times())?;
        same("counts of rules", &counts_of_rules(&self.engine), &self.model.counts_of_rules())?;
        let look = self.engine.next_deadline().map(|look| u128::from(look.as_ns()));
        let now_ns = u128::from(self.now.as_ns());
        match (look, self.model.next_run_out_ns()) {
            (None, None) => Ok(()),
            // What has expired already may be checked now.
            (Some(look_ns), Some(run_out_ns)) if look_ns <= run_out_ns.max(now_ns) => Ok(()),
            (look, run_out) => {
                Err(format!("the next deadline is {run_out:?}, but the next look is at {look:?}"))
            }
        }
    }

    /// Right after a check, the next one is in the future; otherwise the server's
    /// loop would spin.
    fn compare_next_look(&self) -> Result<(), String> {
        const END_OF_TIME: Time = Time::from_ns(u64::MAX);
        match self.engine.next_deadline() {
            Some(look) if look <= self.now && look < END_OF_TIME => {
                Err(format!("the next look is at {look:?}, but now is {:?}", self.now))
            }
            _ => Ok(()),
        }
    }
}

impl Script {
    /// Runs it. Calls `see` after each step with the step and the pair.
    ///
    /// # Errors
    /// The first difference, and the step that it follows.
    ///
    /// # Panics
    /// When the engine does.
    pub(crate) fn run(&self, mut see: impl FnMut(&Step, &Pair)) -> Result<(), String> {
        let mut pair = Pair::new(self.start_ns, self.rules);
        for (n, step) in self.steps.iter().enumerate() {
            pair.take(step).map_err(|what| format!("step {n}, {step:?}: {what}"))?;
            see(step, &pair);
        }
        Ok(())
    }
}

/// Key 0 means no key.
fn key(n: u8) -> Vec<u8> {
    if n == 0 { Vec::new() } else { vec![b'k', b'0' + n] }
}

/// Rules for keys 1 to 4, and which of them are groups.
const RULES: [(&[&str], &[&str]); RULE_SETS as usize] = [
    (&[], &[]),
    (&["a k1 max-hold=1"], &["a"]),
    (&["a k1 workers=1 maxqueue=3", "b k* total=2"], &["a", "b"]),
    (&["b k* total=1", "- k2 max-hold=2"], &[]),
    (&["d k3 deny", "t k* timeout=1", "b *2 total=3 workers=4"], &["b", "d"]),
    (&["w k* workers=3", "q * maxqueue=2", "b *k* total=4", "h k2 max-hold=3"], &["w", "b"]),
    (&["t * timeout=2 max-hold=2", "b k1* total=1 stuck-after=never"], &["t"]),
    (&["b k* workers=2 total=1 timeout=1"], &["b"]),
    (&["t k* timeout=2", "h * max-hold=1", "b *k* total=4", "w k1 workers=2"], &["b"]),
    (&["h *k* max-hold=2", "b *1 total=2", "t k* timeout=1", "- k* max-hold=1"], &["t", "h"]),
    // Between these two, all states of a small scope are explored.
    (&["w k1 workers=1 timeout=1"], &["w"]),
    (&["b k* total=2 max-hold=1"], &["w"]),
];

/// The rules of this number, and the names of those that are groups.
pub(crate) fn rules(number: u8) -> (Vec<String>, Vec<String>) {
    let (rules, groups) = RULES[usize::from(number) % RULES.len()];
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    (owned(rules), owned(groups))
}

pub(crate) fn read(rules: &[String]) -> Vec<Rule> {
    rules.iter().map(|text| Rule::try_from(text.clone()).expect("a rule")).collect()
}

/// As [`Model::counts_of_rules`]. Without rules the engine counts nothing for groups.
fn counts_of_rules(engine: &Engine) -> (Vec<u64>, Vec<(String, [u64; 7])>) {
    let rules = engine.rules();
    let groups = rules.groups().iter().map(|group| {
        let counts = &group.counts;
        let numbers = [
            counts.requests,
            counts.acquired,
            counts.queue_full,
            counts.timeouts,
            counts.denied,
            counts.waits.count(),
            counts.holds.count(),
        ];
        (group.name.clone(), numbers)
    });
    (rules.in_force().iter().map(|rule| rule.changed).collect(), groups.collect())
}

fn state_of(engine: &Engine) -> (EngineState, Vec<PoolState<'_>>) {
    let (state, mut pools) = (engine.state(), engine.pool_states().collect::<Vec<_>>());
    // Their order has no meaning.
    pools.sort_by(|one, other| one.key.cmp(&other.key));
    (state, pools)
}

fn same<T: PartialEq + Debug>(what: &str, engine: &T, model: &T) -> Result<(), String> {
    if engine == model {
        return Ok(());
    }
    Err(format!("{what} are different:\n  engine: {engine:?}\n  should: {model:?}"))
}
