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

/// Checks only at `next_deadline()`, as the server's loop does, and counts the
/// checks.
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
    // Spread evenly over magnitudes: ticks, seconds, months, centuries.
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
    /// Compares with a sorted list of (tick at which a timer is due, number of its
    /// start, owner).
    #[test]
    fn behaves_like_a_sorted_list(
        start_ns in duration_ns(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut now = Time::from_ns(start_ns);
        let mut wheel = Wheel::new(now);
        let mut timers = timers(200);
        let mut list: Vec<(u64, u32, u32)> = Vec::new();
        let mut started = 0;
        let mut unused = (0..200).rev().collect::<Vec<u32>>();
        for step in steps {
            match step {
                Step::Start { in_ns } => {
                    let id = unused.pop().unwrap();
                    let deadline = Time::from_ns(now.as_ns().saturating_add(in_ns));
                    wheel.start(&mut timers, id, deadline);
                    started += 1;
                    list.push((deadline.as_ns().div_ceil(TICK_NS), started, id));
                    continue;
                }
                Step::Stop { nth } => {
                    if !list.is_empty() {
                        let (_, _, id) = list.swap_remove(nth % list.len());
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
            let due = list.partition_point(|&(tick, ..)| tick <= now.as_ns() / TICK_NS);
            let expected: Vec<u32> = list.drain(..due).map(|(_, _, id)| id).collect();
            prop_assert_eq!(drain(&mut wheel, &mut timers, now), expected);
            prop_assert_eq!(wheel.len(), list.len());
            if let Some(&(tick, ..)) = list.first() {
                let next = wheel.next_deadline().expect("timers are started");
                prop_assert!(next.as_ns() <= tick.saturating_mul(TICK_NS));
                prop_assert!(next > now);
            }
        }
    }
}
