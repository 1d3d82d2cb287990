//! The timer wheel, with its levels and slots: finds the timer that expires next. Each
//! operation is O(1).
//!
//! Eight levels of 64 slots (G. Varghese, A. Lauck, "Hashed and Hierarchical
//! Timing Wheels", 1987). A tick is 2^20 ns, about a millisecond. Read the tick
//! of a deadline and the current tick of the wheel as numbers in base 64: the timer
//! is at the level of the highest digit in which they differ, in the slot of the
//! deadline's digit. As the wheel turns, a timer moves down at most seven times, so
//! a deadline months ahead costs as much as one a second ahead.
//!
//! The owners store the timers ([`Timers`]); a slot is a doubly linked list through
//! them. Stopping a timer unlinks it, so no sequence of starts and stops makes the
//! wheel grow.
//!
//! Timers of one tick expire in the order in which they were started: they join their
//! slot at its end and move down from its front, before any timer can be started on
//! the lower level. Overdue timers share the current slot.

use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

const TICK_BITS: u32 = 20;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// 8 digits of 6 bits hold the 44 bits that a u64 of nanoseconds has in ticks.
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;

/// The number of no slot: the timer is not started.
const NO_SLOT: u16 = u16::MAX;

/// What the wheel stores in each owner that may have a deadline.
/// Packed, so that an owner's other fields fit in its cache line.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(2))]
pub(super) struct Timer {
    deadline: Time,
    next: u32,
    previous: u32,
    /// Numbered through all levels.
    slot: u16,
}

impl Default for Timer {
    fn default() -> Self {
        Timer { deadline: Time::default(), next: NONE, previous: NONE, slot: NO_SLOT }
    }
}

impl Timer {
    /// `None` unless the timer is started.
    pub(super) fn deadline(&self) -> Option<Time> {
        (self.slot != NO_SLOT).then_some(self.deadline)
    }
}

/// The owners of the timers, by number.
pub(super) trait Timers {
    /// The timer of owner `id`.
    fn timer(&self, id: u32) -> &Timer;

    /// The same, to change it.
    fn timer_mut(&mut self, id: u32) -> &mut Timer;
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct WheelLevel {
    /// Bit n is set when slot n has a timer.
    occupied: u64,
    slots: [Slot; SLOTS],
}

/// Started timers, by deadline.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    /// The current tick: everything before it has expired.
    tick: u64,
    len: usize,
    levels: Box<[WheelLevel; LEVELS]>,
}

impl Wheel {
    /// A wheel without timers, at `now`.
    pub(super) fn new(now: Time) -> Self {
        let slot = Slot { first: NONE, last: NONE };
        let level = WheelLevel { occupied: 0, slots: [slot; SLOTS] };
        Wheel { tick: tick_before(now), len: 0, levels: Box::new([level; LEVELS]) }
    }

    /// How many timers are started.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Starts the timer of `id`, which must not be started.
    pub(super) fn start(&mut self, timers: &mut impl Timers, id: u32, deadline: Time) {
        let timer = timers.timer_mut(id);
        debug_assert!(timer.slot == NO_SLOT, "timer {id} is started already");
        timer.deadline = deadline;
        self.len += 1;
        self.link(timers, id);
    }

    /// Stops the timer of `id`. Does nothing if the timer is not started.
    pub(super) fn stop(&mut self, timers: &mut impl Timers, id: u32) {
        if timers.timer(id).slot != NO_SLOT {
            self.unlink(timers, id);
            timers.timer_mut(id).slot = NO_SLOT;
            self.len -= 1;
        }
    }

    /// Stops one timer whose deadline is at or before `now`, and returns its owner.
    /// In order of ticks, then in the order in which they were started.
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

    /// When to call [`Wheel::pop_expired`] next: no later than the tick of the
    /// earliest deadline, perhaps earlier, to move timers down. `None` without
    /// timers.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let (_, _, tick) = self.first_slot()?;
        Some(Time::from_ns(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// The started timers by slot, in the order in which those of a tick expire. All timers of
    /// a tick are in one slot.
    pub(super) fn slots(&self, timers: &impl Timers) -> impl Iterator<Item = Vec<u32>> {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.filter(|slot| slot.first != NONE).map(|slot| {
            let next = |&id: &u32| Some(timers.timer(id).next).filter(|&id| id != NONE);
            core::iter::successors(Some(slot.first), next).collect()
        })
    }

    /// The level and number of the first slot with a timer, and the slot's first
    /// tick. The lowest level comes first: its timers differ from the current tick
    /// only in lower digits.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|l| l.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros() as usize;
        let shift = DIGIT_BITS * level as u32;
        let above = self.tick >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some((level, slot, above | (slot as u64) << shift))
    }

    /// Moves the timers of a slot that the wheel has reached to lower levels, in order.
    fn move_down(&mut self, timers: &mut impl Timers, level: usize, slot: usize) {
        let empty = Slot { first: NONE, last: NONE };
        let list = core::mem::replace(&mut self.levels[level].slots[slot], empty);
        self.levels[level].occupied &= !(1 << slot);
        let mut id = list.first;
        while id != NONE {
            let next = timers.timer(id).next;
            self.link(timers, id);
            id = next;
        }
    }

    fn link(&mut self, timers: &mut impl Timers, id: u32) {
        // A deadline in the past expires at the next check.
        let tick = tick_after(timers.timer(id).deadline).max(self.tick);
        let difference = tick ^ self.tick;
        let level = (63 - (difference | 1).leading_zeros()) / DIGIT_BITS;
        let digit = tick >> (DIGIT_BITS * level) & (SLOTS as u64 - 1);
        let slots = &mut self.levels[level as usize];
        slots.occupied |= 1 << digit;
        let slot = &mut slots.slots[digit as usize];
        let previous = core::mem::replace(&mut slot.last, id);
        if previous == NONE {
            slot.first = id;
        } else {
            timers.timer_mut(previous).next = id;
        }
        let timer = timers.timer_mut(id);
        (timer.previous, timer.next) = (previous, NONE);
        timer.slot = (level << DIGIT_BITS) as u16 | digit as u16;
    }

    fn unlink(&mut self, timers: &mut impl Timers, id: u32) {
        let Timer { previous, next, slot, .. } = *timers.timer(id);
        let slots = &mut self.levels[usize::from(slot) / SLOTS];
        let slot = usize::from(slot) % SLOTS;
        let ends = &mut slots.slots[slot];
        if previous == NONE {
            ends.first = next;
        } else {
            timers.timer_mut(previous).next = next;
        }
        if next == NONE {
            ends.last = previous;
        } else {
            timers.timer_mut(next).previous = previous;
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
pub(super) fn tick_after(deadline: Time) -> u64 {
    let ns = deadline.as_ns();
    (ns >> TICK_BITS) + u64::from(ns & ((1 << TICK_BITS) - 1) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Timers for Timer {
        fn timer(&self, _: u32) -> &Timer {
            self
        }

        fn timer_mut(&mut self, _: u32) -> &mut Timer {
            self
        }
    }

    /// Checks only at `next_deadline()`, as the server's loop does, and counts the checks.
    fn checks_until_expired(seconds: u64) -> usize {
        let start = Time::from_ns(123_456_789);
        let deadline = start.plus_seconds(seconds);
        let (mut wheel, mut timer) = (Wheel::new(start), Timer::default());
        wheel.start(&mut timer, 0, deadline);
        for checks in 1.. {
            let now = wheel.next_deadline().expect("a timer is started");
            if wheel.pop_expired(&mut timer, now).is_some() {
                assert!(now >= deadline && now.ns_since(deadline) <= 1 << TICK_BITS);
                return checks;
            }
        }
        unreachable!()
    }

    #[test]
    fn a_deadline_months_ahead_costs_at_most_a_check_per_level() {
        const DAY_S: u64 = 24 * 3600;
        for seconds in [0, 1, 60, DAY_S, 200 * DAY_S, 100 * 365 * DAY_S] {
            assert!(checks_until_expired(seconds) <= LEVELS, "{seconds} s");
        }
    }
}
