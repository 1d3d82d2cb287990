//! The engine as plain data, and back: what a hot restart carries over.

use super::lock::{Lock, LockId, NO_POOL, State};
use super::statistics::{Counters, Durations};
use super::{ClientId, Engine, LOCKS_PER_CLIENT_MAX, Time};
use std::hash::RandomState;

/// Everything that an engine knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// When the daemon began to count.
    pub started: Time,
    /// The whole-number statistics. Gauges are counted anew, not believed.
    pub counters: Counters,
    /// The sums of time.
    pub durations: Durations,
    /// All keys, in no order.
    pub pools: Vec<PoolImage>,
    /// Locks that were held for too long and taken away, but are not given back
    /// yet: they keep their place in their clients' stacks.
    pub spent: Vec<LockImage>,
}

/// One key and its queues, each with the oldest lock first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolImage {
    /// Any bytes.
    pub key: Vec<u8>,
    /// Who holds it.
    pub holders: Vec<LockImage>,
    /// Who waits by `ACQ4ME`.
    pub waiters_for_me: Vec<LockImage>,
    /// Who waits by `ACQ4ANY`.
    pub waiters_for_anyone: Vec<LockImage>,
}

/// One lock, held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockImage {
    /// Whose it is.
    pub client: ClientId,
    /// Its place in the client's stack: 0 is the first taken.
    pub depth: usize,
    /// Since when it is held or waited for.
    pub since: Time,
    /// When the wait runs out. `None` for a lock that is held: how long it may be
    /// is for the limits of the engine that goes on to say.
    pub deadline: Option<Time>,
}

/// The kernel allows a process a million descriptors (fs.nr_open); a slot far
/// above that would make us reserve memory for all below it.
pub const SLOTS_MAX: u32 = 1 << 22;

/// Why an image is none of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage(pub &'static str);

impl Engine {
    /// What [`Engine::from_image`] needs to go on where this one stands. Answers
    /// that have not been taken are not part of it.
    pub fn image(&self) -> Image {
        let pools = self.pools.iter().map(|(_, pool)| {
            let queue = |state| {
                let members = pool.queue(state).iter(&self.locks);
                members.map(|(id, lock)| self.lock_image(id, lock)).collect()
            };
            PoolImage {
                key: pool.key().to_vec(),
                holders: queue(State::Holding),
                waiters_for_me: queue(State::WaitingForMe),
                waiters_for_anyone: queue(State::WaitingForAnyone),
            }
        });
        Image {
            started: self.started,
            counters: self.counters,
            durations: self.durations,
            pools: pools.collect(),
            spent: self.spent(),
        }
    }

    fn spent(&self) -> Vec<LockImage> {
        let spent = self.locks.iter().filter(|(_, lock)| lock.state == State::Spent);
        spent.map(|(id, lock)| self.lock_image(id as LockId, lock)).collect()
    }

    fn lock_image(&self, id: LockId, lock: &Lock) -> LockImage {
        let stack = self.stack(lock.client);
        let depth = stack.as_slice().iter().position(|&other| other == id);
        LockImage {
            client: lock.client,
            depth: depth.expect("each lock is on its client's stack"),
            since: lock.since,
            deadline: lock.timer.deadline().filter(|_| lock.state.waits()),
        }
    }

    /// An engine that goes on where the one of the image stood. Nothing about
    /// the image is taken on trust.
    ///
    /// # Errors
    /// What no engine could have written.
    pub fn from_image(image: Image, hasher: RandomState, now: Time) -> Result<Self, BadImage> {
        check_stacks(&image)?;
        check_sums(&image)?;
        let mut engine = Engine::new(hasher, now);
        let mut waits = Vec::new();
        for pool in &image.pools {
            engine.restore_pool(pool, &mut waits)?;
        }
        for lock in &image.spent {
            let spent = Lock::new(lock.client, NO_POOL, State::Spent, lock.since);
            let id = engine.locks.insert(spent) as LockId;
            engine.restore_on_stack(id, lock);
        }
        // In the order in which they began: of those that run out in one tick,
        // the first to have come is the first to be told.
        waits.sort_unstable_by_key(|wait| (wait.since, wait.lock));
        for wait in waits {
            engine.wheel.start(&mut engine.locks, wait.lock, wait.deadline);
        }
        let gauges = engine.counters;
        engine.started = image.started;
        engine.durations = image.durations;
        engine.counters = Counters {
            hashtable_entries: gauges.hashtable_entries,
            processing_workers: gauges.processing_workers,
            waiting_workers: gauges.waiting_workers,
            ..image.counters
        };
        Ok(engine)
    }

    fn restore_pool(&mut self, image: &PoolImage, waits: &mut Vec<Wait>) -> Result<(), BadImage> {
        if image.key.is_empty() || image.key.iter().any(|byte| b" \n".contains(byte)) {
            return Err(BadImage("a key that no command could hold"));
        }
        if image.locks().next().is_none() {
            return Err(BadImage("a key that nobody holds or waits for"));
        }
        let hash = self.pools.hash(&image.key);
        if self.pools.find(&image.key, hash).is_some() {
            return Err(BadImage("a key twice"));
        }
        let pool = self.add_pool(&image.key, hash);
        for (state, lock) in image.locks() {
            let id = self.restore_lock(pool, state, lock);
            if let Some(deadline) = lock.deadline {
                waits.push(Wait { since: lock.since, deadline, lock: id });
            }
        }
        Ok(())
    }

    fn restore_lock(&mut self, pool: u32, state: State, image: &LockImage) -> LockId {
        let id = self.queue_lock(Lock::new(image.client, pool, state, image.since));
        self.restore_on_stack(id, image);
        match state {
            State::Holding => self.counters.processing_workers += 1,
            _ => self.counters.waiting_workers += 1,
        }
        id
    }

    /// The stacks were checked: in the end each place is filled once.
    fn restore_on_stack(&mut self, id: LockId, image: &LockImage) {
        let stack = self.stack_mut(image.client);
        stack.locks[image.depth] = id;
        stack.len = stack.len.max(image.depth as u8 + 1);
    }
}

/// A timer to start.
struct Wait {
    since: Time,
    deadline: Time,
    lock: LockId,
}

impl Image {
    /// Whose locks there are; who has several comes up several times.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.locks().map(|(_, lock)| lock.client)
    }

    fn locks(&self) -> impl Iterator<Item = (State, &LockImage)> {
        let spent = std::iter::repeat(State::Spent).zip(&self.spent);
        self.pools.iter().flat_map(PoolImage::locks).chain(spent)
    }
}

impl PoolImage {
    fn locks(&self) -> impl Iterator<Item = (State, &LockImage)> {
        let queues = [
            (State::Holding, &self.holders),
            (State::WaitingForMe, &self.waiters_for_me),
            (State::WaitingForAnyone, &self.waiters_for_anyone),
        ];
        let with_state = |(state, queue)| std::iter::repeat(state).zip(queue);
        queues.into_iter().flat_map(with_state)
    }
}

/// What is counted on must not overflow within any daemon's life.
fn check_sums(image: &Image) -> Result<(), BadImage> {
    let counters = Counters::ALL.iter().map(|counter| (counter.get)(&image.counters));
    let durations = image.durations;
    let sums_ns = [
        durations.processing_ns,
        durations.gained_ns,
        durations.waiting_for_me_ns,
        durations.waiting_for_anyone_ns,
        durations.waiting_for_good_ns,
        durations.wasted_timeout_ns,
    ];
    if counters.max() > Some(u64::MAX / 2) || sums_ns.iter().max() > Some(&(u128::MAX / 2)) {
        return Err(BadImage("a sum that nothing could have come to"));
    }
    Ok(())
}

/// Each client's stack has no gap, no place taken twice, one serial number, and
/// a wait only on top; and waits have deadlines, locks that are held have none.
fn check_stacks(image: &Image) -> Result<(), BadImage> {
    let mut locks: Vec<(State, &LockImage)> = image.locks().collect();
    locks.sort_unstable_by_key(|(_, lock)| (lock.client.slot, lock.depth));
    let mut stacks = locks.chunk_by(|(_, one), (_, next)| one.client.slot == next.client.slot);
    stacks.try_for_each(check_stack)
}

/// The locks of one slot, sorted by depth.
fn check_stack(stack: &[(State, &LockImage)]) -> Result<(), BadImage> {
    if stack.len() > LOCKS_PER_CLIENT_MAX {
        return Err(BadImage("a stack too deep"));
    }
    for (place, (state, lock)) in stack.iter().enumerate() {
        if lock.client.slot >= SLOTS_MAX {
            return Err(BadImage("a client in a slot that no connection could have"));
        }
        if lock.client != stack[0].1.client {
            return Err(BadImage("two clients in one slot"));
        }
        if lock.depth != place {
            return Err(BadImage("a gap in a stack, or two locks in one place"));
        }
        if state.waits() && place + 1 < stack.len() {
            return Err(BadImage("a wait below another lock of its stack"));
        }
        if lock.deadline.is_some() != state.waits() {
            return Err(BadImage("a deadline on a lock that is held, or a wait without one"));
        }
    }
    Ok(())
}
