//! The engine and the model side by side.

use crate::simulation::model::{Model, TakenAway};
use crate::simulation::script::{Script, Step};
use poolcounterd::engine::image::Image;
use poolcounterd::engine::{ClientId, Engine, HoldLimit, Time};
use poolcounterd::protocol::{Acquire, Reply};
use std::fmt::Debug;
use std::hash::RandomState;

/// Both get the same operations and have to give the same answers.
pub(crate) struct Pair {
    engine: Engine,
    model: Model,
    now: Time,
    hold_limits: Vec<HoldLimit>,
    /// The serial number of the client in each slot.
    serials: Vec<u32>,
    last_serial: u32,
    has_restarted: bool,
    /// What was answered at the last step.
    pub(crate) answers: Vec<(ClientId, Reply)>,
}

impl Pair {
    pub(crate) fn new(start_ns: u64, hold_s_max: u32) -> Self {
        let now = Time::from_ns(start_ns);
        // A hash seed of its own each time: nothing may depend on it.
        let mut engine = Engine::new(RandomState::new(), now);
        let hold_limits = hold_limits(hold_s_max);
        engine.set_hold_limits(hold_limits.clone());
        let model = Model::new((hold_s_max > 0).then(|| (key(1), hold_s_max)));
        Pair {
            engine,
            model,
            now,
            hold_limits,
            serials: Vec::new(),
            last_serial: 0,
            has_restarted: false,
            answers: Vec::new(),
        }
    }

    /// Takes one step on both sides.
    ///
    /// # Errors
    /// What is different after it.
    ///
    /// # Panics
    /// When the engine does.
    pub(crate) fn take(&mut self, step: &Step) -> Result<(), String> {
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
                self.serials[slot as usize] = self.new_serial();
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
            Step::Restart => self.restart()?,
            Step::Shrink => self.engine.shrink(),
        }
        self.compare(step)
    }

    /// Makes another engine of the image of this one.
    fn restart(&mut self) -> Result<(), String> {
        let image = self.engine.image();
        let restored = Engine::from_image(image.clone(), RandomState::new(), self.now);
        let mut restored = restored.map_err(|e| format!("no image of an engine: {e:?}"))?;
        restored.set_hold_limits(self.hold_limits.clone());
        restored.check_invariants();
        same("images", &sorted(restored.image()), &sorted(image))?;
        // With limits, who gets the lock may hang on what runs out first within
        // one tick, which no image says: this run goes on with the first engine.
        if self.hold_limits.is_empty() {
            self.engine = restored;
            self.has_restarted = true;
        }
        Ok(())
    }

    /// The client in `slot`: the first one there if there was none.
    fn client_in(&mut self, slot: u32) -> ClientId {
        while self.serials.len() <= slot as usize {
            let serial = self.new_serial();
            self.serials.push(serial);
        }
        ClientId { slot, serial: self.serials[slot as usize] }
    }

    fn new_serial(&mut self) -> u32 {
        self.last_serial += 1;
        self.last_serial
    }

    /// Time never goes back, nor beyond its end.
    fn advance_to(&mut self, moment_ns: Option<u128>, early_ns: u64) {
        let moment_ns = u64::try_from(moment_ns.unwrap_or(0)).unwrap_or(u64::MAX);
        self.now = self.now.max(Time::from_ns(moment_ns.saturating_sub(early_ns)));
    }

    fn compare(&mut self, step: &Step) -> Result<(), String> {
        self.engine.check_invariants();
        self.answers = std::iter::from_fn(|| self.engine.take_answer()).collect();
        let mut expected = self.model.take_answers();
        // An image does not say in which order waits for different keys began.
        if self.has_restarted && matches!(step, Step::Expire) {
            self.answers.sort_by_key(|(client, _)| client.serial);
            expected.sort_by_key(|(client, _)| client.serial);
        }
        same("answers", &self.answers, &expected)?;
        let taken_away = self.engine.take_expired().into_iter();
        let taken_away: Vec<TakenAway> =
            taken_away.map(|lock| (lock.client, lock.key, lock.held_ns.into())).collect();
        same("locks taken away", &taken_away, &self.model.take_taken_away())?;
        same("numbers of locks", &self.engine.len(), &self.model.len())?;
        same("counters", &self.engine.counters, &self.model.counters())?;
        same("durations", self.engine.durations(), self.model.durations())?;
        let look = self.engine.next_deadline().map(|look| u128::from(look.as_ns()));
        let now_ns = u128::from(self.now.as_ns());
        match (look, self.model.next_run_out_ns()) {
            (None, None) => Ok(()),
            // What has run out already may as well be looked at now.
            (Some(look_ns), Some(run_out_ns)) if look_ns <= run_out_ns.max(now_ns) => Ok(()),
            (look, run_out) => {
                Err(format!("what is next runs out at {run_out:?}, the next look is at {look:?}"))
            }
        }
    }

    /// Right after a look, the next one lies ahead, or the loop would spin.
    fn compare_next_look(&self) -> Result<(), String> {
        const END_OF_TIME: Time = Time::from_ns(u64::MAX);
        match self.engine.next_deadline() {
            Some(look) if look <= self.now && look < END_OF_TIME => {
                Err(format!("the next look is at {look:?}, and now it is {:?}", self.now))
            }
            _ => Ok(()),
        }
    }
}

impl Script {
    /// Runs it; `see` is shown each step and what it has made of the pair.
    ///
    /// # Errors
    /// What is different, and after which step.
    ///
    /// # Panics
    /// When the engine does.
    pub(crate) fn run(&self, mut see: impl FnMut(&Step, &Pair)) -> Result<(), String> {
        let mut pair = Pair::new(self.start_ns, self.hold_s_max);
        for (n, step) in self.steps.iter().enumerate() {
            pair.take(step).map_err(|what| format!("step {n}, {step:?}: {what}"))?;
            see(step, &pair);
        }
        Ok(())
    }
}

/// Key 0 is the missing one.
fn key(n: u8) -> Vec<u8> {
    if n == 0 { Vec::new() } else { vec![b'k', n] }
}

/// For key 1 alone.
fn hold_limits(seconds: u32) -> Vec<HoldLimit> {
    if seconds == 0 {
        return Vec::new();
    }
    vec![format!("k\u{1}={seconds}").parse().expect("a limit")]
}

/// The order of the pools and of the spent locks in an image means nothing.
fn sorted(mut image: Image) -> Image {
    image.pools.sort_by(|a, b| a.key.cmp(&b.key));
    image.spent.sort_by_key(|lock| (lock.client.slot, lock.depth));
    image
}

fn same<T: PartialEq + Debug>(what: &str, engine: &T, model: &T) -> Result<(), String> {
    if engine == model {
        return Ok(());
    }
    Err(format!("{what} are different:\n  engine: {engine:?}\n  should: {model:?}"))
}
