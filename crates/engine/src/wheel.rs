//! The timer wheel, with its levels and buckets: finds the timer that expires next. Each
//! operation is O(1).
//!
//! Eight levels of 64 buckets (G. Varghese, A. Lauck, "Hashed and Hierarchical
//! Timing Wheels", 1987). A tick is 2^20 ns, about a millisecond. Read the tick
//! of a deadline and the current tick of the wheel as numbers in base 64: the timer
//! is at the level of the highest digit in which they differ, in the bucket of the
//! deadline's digit. As the wheel turns, a timer moves down at most seven times, so
//! a deadline months ahead costs as much as one a second ahead.
//!
//! The owners store the timers ([`Timers`]); a bucket is a doubly linked list through
//! them. Stopping a timer unlinks it, so no sequence of starts and stops makes the
//! wheel grow.
//!
//! Timers of one tick expire in the order in which they were started: they join their
//! bucket at its end and move down from its front, before any timer can be started on
//! the lower level. Overdue timers share the current bucket.

use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

const TICK_BITS: u32 = 20;
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// 8 digits of 6 bits hold the 44 bits that a u64 of nanoseconds has in ticks.
const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;

/// The number of no bucket: the timer is not started.
const NO_BUCKET: u16 = u16::MAX;

/// What the wheel stores in each owner that may have a deadline.
/// Packed, so that an owner's other fields fit in its cache line.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(2))]
pub(super) struct Timer {
    deadline: Time,
    next: u32,
    previous: u32,
    /// Numbered through all levels.
    bucket: u16,
}

impl Default for Timer {
    fn default() -> Self {
        Timer { deadline: Time::default(), next: NONE, previous: NONE, bucket: NO_BUCKET }
    }
}

impl Timer {
    /// `None` unless the timer is started.
    pub(super) fn deadline(&self) -> Option<Time> {
        (self.bucket != NO_BUCKET).then_some(self.deadline)
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
struct Bucket {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct WheelLevel {
    /// Bit n is set when bucket n has a timer.
    occupied: u64,
    buckets: [Bucket; BUCKETS],
}

/// The first bucket with a timer.
struct FirstBucket {
    level: usize,
    /// Its number in the level.
    bucket: usize,
    /// Its first tick.
    tick: u64,
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
        let bucket = Bucket { first: NONE, last: NONE };
        let level = WheelLevel { occupied: 0, buckets: [bucket; BUCKETS] };
        Wheel { tick: tick_before(now), len: 0, levels: Box::new([level; LEVELS]) }
    }

    /// How many timers are started.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Starts the timer of `id`, which must not be started.
    pub(super) fn start(&mut self, timers: &mut impl Timers, id: u32, deadline: Time) {
        let timer = timers.timer_mut(id);
        debug_assert!(timer.bucket == NO_BUCKET, "timer {id} is started already");
        timer.deadline = deadline;
        self.len += 1;
        self.link(timers, id);
    }

    /// Stops the timer of `id`. Does nothing if the timer is not started.
    pub(super) fn stop(&mut self, timers: &mut impl Timers, id: u32) {
        if timers.timer(id).bucket != NO_BUCKET {
            self.unlink(timers, id);
            timers.timer_mut(id).bucket = NO_BUCKET;
            self.len -= 1;
        }
    }

    /// Stops one timer whose deadline is at or before `now`, and returns its owner.
    /// In order of ticks, then in the order in which they were started.
    pub(super) fn pop_expired(&mut self, timers: &mut impl Timers, now: Time) -> Option<u32> {
        let now = tick_before(now);
        while let Some(FirstBucket { level, bucket, tick }) = self.first_bucket() {
            if tick > now {
                break;
            }
            self.tick = self.tick.max(tick);
            if level == 0 {
                let id = self.levels[0].buckets[bucket].first;
                self.stop(timers, id);
                return Some(id);
            }
            self.move_down(timers, level, bucket);
        }
        self.tick = self.tick.max(now);
        None
    }

    /// When to call [`Wheel::pop_expired`] next: no later than the tick of the
    /// earliest deadline, perhaps earlier, to move timers down. `None` without
    /// timers.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let FirstBucket { tick, .. } = self.first_bucket()?;
        Some(Time::from_ns(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// The started timers by bucket, in the order in which those of a tick expire. All timers of
    /// a tick are in one bucket.
    pub(super) fn buckets(&self, timers: &impl Timers) -> impl Iterator<Item = Vec<u32>> {
        let buckets = self.levels.iter().flat_map(|level| &level.buckets);
        buckets.filter(|bucket| bucket.first != NONE).map(|bucket| {
            let next = |&id: &u32| Some(timers.timer(id).next).filter(|&id| id != NONE);
            core::iter::successors(Some(bucket.first), next).collect()
        })
    }

    /// The lowest level comes first: its timers differ from the current tick only in lower
    /// digits.
    fn first_bucket(&self) -> Option<FirstBucket> {
        let level = self.levels.iter().position(|l| l.occupied != 0)?;
        let bucket = self.levels[level].occupied.trailing_zeros() as usize;
        let shift = DIGIT_BITS * level as u32;
        let above = self.tick >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS);
        Some(FirstBucket { level, bucket, tick: above | (bucket as u64) << shift })
    }

    /// Moves the timers of a bucket that the wheel has reached to lower levels, in order.
    fn move_down(&mut self, timers: &mut impl Timers, level: usize, bucket: usize) {
        let empty = Bucket { first: NONE, last: NONE };
        let list = core::mem::replace(&mut self.levels[level].buckets[bucket], empty);
        self.levels[level].occupied &= !(1 << bucket);
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
        let digit = tick >> (DIGIT_BITS * level) & (BUCKETS as u64 - 1);
        let buckets = &mut self.levels[level as usize];
        buckets.occupied |= 1 << digit;
        let bucket = &mut buckets.buckets[digit as usize];
        let previous = core::mem::replace(&mut bucket.last, id);
        if previous == NONE {
            bucket.first = id;
        } else {
            timers.timer_mut(previous).next = id;
        }
        let timer = timers.timer_mut(id);
        (timer.previous, timer.next) = (previous, NONE);
        timer.bucket = (level << DIGIT_BITS) as u16 | digit as u16;
    }

    fn unlink(&mut self, timers: &mut impl Timers, id: u32) {
        let Timer { previous, next, bucket, .. } = *timers.timer(id);
        let buckets = &mut self.levels[usize::from(bucket) / BUCKETS];
        let bucket = usize::from(bucket) % BUCKETS;
        let ends = &mut buckets.buckets[bucket];
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
            buckets.occupied &= !(1 << bucket);
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
