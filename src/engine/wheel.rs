//! The timer wheel: which waits run out next, in O(1) for each operation.
//!
//! Eight levels of 64 slots (G. Varghese, A. Lauck, "Hashed and Hierarchical
//! Timing Wheels", 1987). A tick is 2^20 ns, about a millisecond. Read the tick
//! of a deadline and the tick the wheel stands at as numbers in base 64: a timer
//! lies at the level of the highest digit in which they differ, in the slot of
//! the deadline's digit. As the wheel turns, a timer moves down at most seven
//! times, so one that is months ahead costs what one a second ahead costs.
//!
//! The timers themselves lie with their owners ([`Timers`]); a slot is a doubly
//! linked list through them. Taking one out unlinks it, so that no sequence of
//! starting and cancelling makes the wheel grow.

use super::time::Time;

const TICK_BITS: u32 = 20;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// 8 digits of 6 bits hold the 44 bits that a u64 of nanoseconds has in ticks.
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;

/// The wheel's part of something that has a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    deadline: Time,
    next: u32,
    previous: u32,
    level: u8,
    slot: u8,
    linked: bool,
}

impl Default for Timer {
    fn default() -> Self {
        Timer {
            deadline: Time::default(),
            next: NONE,
            previous: NONE,
            level: 0,
            slot: 0,
            linked: false,
        }
    }
}

impl Timer {
    /// Until when, or `None` when the timer is not started.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.linked.then_some(self.deadline)
    }
}

/// Where the wheel finds the timers of which it knows the numbers.
pub(super) trait Timers {
    /// The timer of owner `id`.
    fn timer(&mut self, id: u32) -> &mut Timer;
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Bit n is set when slot n has a timer.
    occupied: u64,
    slots: [Slot; SLOTS],
}

/// Started timers, by deadline.
#[derive(Debug)]
pub(super) struct Wheel {
    /// The tick the wheel stands at: everything before it has run out.
    tick: u64,
    len: usize,
    levels: Box<[Level; LEVELS]>,
}

impl Wheel {
    /// A wheel without timers that stands at `now`.
    pub(super) fn new(now: Time) -> Self {
        let slot = Slot { first: NONE, last: NONE };
        let level = Level { occupied: 0, slots: [slot; SLOTS] };
        Wheel { tick: tick_before(now), len: 0, levels: Box::new([level; LEVELS]) }
    }

    /// How many timers are started.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Starts the timer of `id`, which must not be started.
    pub(super) fn start(&mut self, timers: &mut impl Timers, id: u32, deadline: Time) {
        let timer = timers.timer(id);
        debug_assert!(!timer.linked, "timer {id} is started already");
        timer.deadline = deadline;
        timer.linked = true;
        self.len += 1;
        self.link(timers, id);
    }

    /// Stops the timer of `id`; nothing happens when it is not started.
    pub(super) fn stop(&mut self, timers: &mut impl Timers, id: u32) {
        if timers.timer(id).linked {
            self.unlink(timers, id);
            timers.timer(id).linked = false;
            self.len -= 1;
        }
    }

    /// Stops and returns one timer whose deadline is at or before `now`, never
    /// one whose deadline is later. Those of an earlier tick come first.
    pub(super) fn pop_expired(&mut self, timers: &mut impl Timers, now: Time) -> Option<u32> {
        let now = tick_before(now);
        while let Some((level, slot, tick)) = self.first_slot() {
            if tick > now {
                break;
            }
            self.tick = self.tick.max(tick);
            if level == 0 {
                let id = self.levels[0].slots[slot].first;
                self.stop(timers, id);
                return Some(id);
            }
            self.move_down(timers, level, slot);
        }
        self.tick = self.tick.max(now);
        None
    }

    /// When to look again: not after the earliest deadline's tick, though maybe
    /// before it, when timers must move down a level. `None` without timers.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let (_, _, tick) = self.first_slot()?;
        Some(Time::from_ns(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// The first slot with a timer, and the first tick that it stands for. The
    /// lowest level goes first: what is there differs from the wheel's own tick
    /// in lower digits only.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|l| l.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros() as usize;
        let shift = DIGIT_BITS * level as u32;
        let above = self.tick >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some((level, slot, above | (slot as u64) << shift))
    }

    /// Sorts the timers of a slot that the wheel has reached into lower levels.
    fn move_down(&mut self, timers: &mut impl Timers, level: usize, slot: usize) {
        let empty = Slot { first: NONE, last: NONE };
        let list = std::mem::replace(&mut self.levels[level].slots[slot], empty);
        self.levels[level].occupied &= !(1 << slot);
        let mut id = list.first;
        while id != NONE {
            let next = timers.timer(id).next;
            self.link(timers, id);
            id = next;
        }
    }

    fn link(&mut self, timers: &mut impl Timers, id: u32) {
        // A deadline in the past runs out at the next look.
        let tick = tick_after(timers.timer(id).deadline).max(self.tick);
        let difference = tick ^ self.tick;
        let level = (63 - (difference | 1).leading_zeros()) / DIGIT_BITS;
        let digit = tick >> (DIGIT_BITS * level) & (SLOTS as u64 - 1);
        let slots = &mut self.levels[level as usize];
        slots.occupied |= 1 << digit;
        let slot = &mut slots.slots[digit as usize];
        let previous = std::mem::replace(&mut slot.last, id);
        if previous == NONE {
            slot.first = id;
        } else {
            timers.timer(previous).next = id;
        }
        let timer = timers.timer(id);
        (timer.previous, timer.next) = (previous, NONE);
        (timer.level, timer.slot) = (level as u8, digit as u8);
    }

    fn unlink(&mut self, timers: &mut impl Timers, id: u32) {
        let Timer { previous, next, level, slot, .. } = *timers.timer(id);
        let slots = &mut self.levels[usize::from(level)];
        let ends = &mut slots.slots[usize::from(slot)];
        if previous == NONE {
            ends.first = next;
        } else {
            timers.timer(previous).next = next;
        }
        if next == NONE {
            ends.last = previous;
        } else {
            timers.timer(next).previous = previous;
        }
        if ends.first == NONE {
            slots.occupied &= !(1 << slot);
        }
    }
}

/// The last tick that has begun at `now`.
fn tick_before(now: Time) -> u64 {
    now.as_ns() >> TICK_BITS
}

/// The first tick that begins at or after `deadline`: never early.
fn tick_after(deadline: Time) -> u64 {
    let ns = deadline.as_ns();
    (ns >> TICK_BITS) + u64::from(ns & ((1 << TICK_BITS) - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Timers for Vec<Timer> {
        fn timer(&mut self, id: u32) -> &mut Timer {
            &mut self[id as usize]
        }
    }

    const TICK_NS: u64 = 1 << TICK_BITS;

    fn timers(n: usize) -> Vec<Timer> {
        vec![Timer::default(); n]
    }

    fn drain(wheel: &mut Wheel, timers: &mut Vec<Timer>, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_expired(timers, now)).collect()
    }

    #[test]
    fn a_deadline_is_never_early_and_at_most_a_tick_late() {
        let deadline = Time::from_ns(1_234_567_890);
        let mut wheel = Wheel::new(Time::from_ns(0));
        let mut timers = timers(1);
        wheel.start(&mut timers, 0, deadline);
        assert!(drain(&mut wheel, &mut timers, Time::from_ns(deadline.as_ns() - 1)).is_empty());
        let late = Time::from_ns(deadline.as_ns() + TICK_NS);
        assert_eq!(drain(&mut wheel, &mut timers, late), [0]);
    }

    #[test]
    fn a_deadline_in_the_past_runs_out_at_the_next_look() {
        let now = Time::from_ns(77 * TICK_NS);
        let mut wheel = Wheel::new(now);
        let mut timers = timers(1);
        wheel.start(&mut timers, 0, Time::from_ns(5));
        assert_eq!(drain(&mut wheel, &mut timers, now), [0]);
    }

    #[test]
    fn a_wheel_without_timers_wakes_nobody() {
        let mut wheel = Wheel::new(Time::from_ns(9));
        let mut timers = timers(1);
        assert_eq!(wheel.next_deadline(), None);
        wheel.start(&mut timers, 0, Time::from_ns(1_000_000_000));
        wheel.stop(&mut timers, 0);
        assert_eq!(wheel.next_deadline(), None);
        assert_eq!(wheel.len(), 0);
    }

    /// Follows `next_deadline()` alone, as the loop does, and counts the looks.
    fn looks_until_expired(seconds: u64) -> usize {
        let start = Time::from_ns(123_456_789);
        let deadline = start.plus_seconds(seconds);
        let mut wheel = Wheel::new(start);
        let mut timers = timers(1);
        wheel.start(&mut timers, 0, deadline);
        for looks in 1.. {
            let now = wheel.next_deadline().expect("a timer is started");
            if drain(&mut wheel, &mut timers, now) == [0] {
                assert!(now >= deadline);
                assert!(now.ns_since(deadline) <= TICK_NS);
                return looks;
            }
        }
        unreachable!()
    }

    #[test]
    fn a_deadline_months_ahead_costs_at_most_a_look_a_level() {
        const DAY_S: u64 = 24 * 3600;
        for seconds in [0, 1, 60, DAY_S, 200 * DAY_S, 100 * 365 * DAY_S] {
            assert!(looks_until_expired(seconds) <= LEVELS, "{seconds} s");
        }
    }

    #[test]
    fn the_end_of_time_is_a_deadline_like_any_other() {
        let mut wheel = Wheel::new(Time::from_ns(0));
        let mut timers = timers(2);
        wheel.start(&mut timers, 0, Time::from_ns(u64::MAX));
        wheel.start(&mut timers, 1, Time::from_ns(1));
        assert_eq!(drain(&mut wheel, &mut timers, Time::from_ns(u64::MAX - TICK_NS)), [1]);
        assert!(wheel.next_deadline().is_some());
        wheel.stop(&mut timers, 0);
        assert_eq!(wheel.len(), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Start { in_ns: u64 },
        Stop { nth: usize },
        Advance { by_ns: u64 },
        AdvanceToNextDeadline,
    }

    fn duration_ns() -> impl Strategy<Value = u64> {
        // Even over magnitudes: ticks, seconds, months, centuries.
        (0u32..63, any::<u64>()).prop_map(|(bits, r)| r & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => duration_ns().prop_map(|in_ns| Step::Start { in_ns }),
            1 => any::<usize>().prop_map(|nth| Step::Stop { nth }),
            2 => (0u32..45, any::<u64>())
                .prop_map(|(bits, r)| Step::Advance { by_ns: r & ((1 << bits) - 1) }),
            2 => Just(Step::AdvanceToNextDeadline),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// Against a sorted list of (tick at which it is due, number).
        #[test]
        fn behaves_like_a_sorted_list(
            start_ns in duration_ns(),
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut now = Time::from_ns(start_ns);
            let mut wheel = Wheel::new(now);
            let mut timers = timers(200);
            let mut list: Vec<(u64, u32)> = Vec::new();
            let mut unused = (0..200).rev().collect::<Vec<u32>>();
            for step in steps {
                match step {
                    Step::Start { in_ns } => {
                        let id = unused.pop().unwrap();
                        let deadline = Time::from_ns(now.as_ns().saturating_add(in_ns));
                        wheel.start(&mut timers, id, deadline);
                        list.push((deadline.as_ns().div_ceil(TICK_NS), id));
                        continue;
                    }
                    Step::Stop { nth } => {
                        if !list.is_empty() {
                            let (_, id) = list.swap_remove(nth % list.len());
                            wheel.stop(&mut timers, id);
                            unused.push(id);
                        }
                        continue;
                    }
                    Step::Advance { by_ns } => {
                        now = Time::from_ns(now.as_ns().saturating_add(by_ns));
                    }
                    Step::AdvanceToNextDeadline => {
                        if let Some(deadline) = wheel.next_deadline() {
                            now = now.max(deadline);
                        }
                    }
                }
                list.sort_unstable();
                let due = list.partition_point(|&(tick, _)| tick <= now.as_ns() / TICK_NS);
                let expected: Vec<(u64, u32)> = list.drain(..due).collect();
                let found: Vec<u32> = drain(&mut wheel, &mut timers, now);
                // In the order of ticks; within one tick in any order.
                let ticks: Vec<u64> = found
                    .iter()
                    .map(|&id| timers.timer(id).deadline.as_ns().div_ceil(TICK_NS))
                    .collect();
                prop_assert!(ticks.is_sorted());
                let mut found: Vec<(u64, u32)> = ticks.into_iter().zip(found).collect();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(wheel.len(), list.len());
                if let Some(&(tick, _)) = list.first() {
                    let next = wheel.next_deadline().expect("timers are started");
                    prop_assert!(next.as_ns() <= tick.saturating_mul(TICK_NS));
                    prop_assert!(next > now);
                }
            }
        }
    }
}
