use super::*;
use crate::rules::rule::Rule;
use alloc::vec;
use alloc::vec::Vec;
use protocol::{Acquire, Mode, Reply};

const SEED: HashSeed = HashSeed::new([1, 2]);
const START: Time = Time::from_ns(10_000_000_000);

fn client(slot: u32) -> ClientId {
    ClientId { slot, serial: slot + 100 }
}

fn at_ms(ms: u64) -> Time {
    START.plus_ns(ms * 1_000_000)
}

fn acquire(engine: &mut Engine, client: ClientId, key: &[u8], timeout_s: u64, now: Time) {
    let request = Acquire { mode: Mode::ForMe, key, workers: 1, max_queue: 10, timeout_s };
    engine.acquire(client, &request, now);
}

fn answers(engine: &mut Engine) -> Vec<(u32, Reply)> {
    core::iter::from_fn(|| engine.take_answer())
        .map(|(client, reply)| (client.slot, reply))
        .collect()
}

fn set_max_holds(engine: &mut Engine, limits: &[&str]) {
    let limits = limits.iter().map(|limit| Rule::parse_max_hold(limit).expect("a limit"));
    engine.set_rules(limits.collect(), &[], at_ms(0), || {});
}

/// The hold and the waits end in one tick. The hold began first; its timer is started again
/// only if its own limit changes, and is then the last one of its tick, also after a restart.
#[test]
fn a_timer_that_new_rules_start_again_is_the_last_of_its_tick() {
    let mut engine = Engine::new(SEED, START);
    set_max_holds(&mut engine, &["a=1"]);
    for (slot, key, timeout_s) in [(0, b"a", 0), (1, b"b", 0), (2, b"a", 1), (3, b"b", 1)] {
        acquire(&mut engine, client(slot), key, timeout_s, at_ms(0));
    }
    answers(&mut engine);
    for (limits, answer) in [
        (&["a=1"][..], Reply::Locked),
        (&["x=5", "a=1"], Reply::Locked),
        (&["a=9"], Reply::Timeout),
        (&["a=1"], Reply::Timeout),
        (&[], Reply::Timeout),
    ] {
        set_max_holds(&mut engine, limits);
        let pools: Vec<_> = engine.pool_states().map(Ok::<_, BadState>).collect();
        let resumed = Engine::resume(engine.state(), pools, SEED, at_ms(1));
        for mut engine in [engine.clone(), resumed.expect("a state")] {
            engine.expire(at_ms(1_500));
            assert_eq!(answers(&mut engine), [(2, answer), (3, Reply::Timeout)], "{limits:?}");
        }
    }
}

#[test]
fn a_newer_client_of_a_slot_ends_the_former_one() {
    let newer = ClientId { serial: u32::MAX.wrapping_add(5), ..client(0) };
    let former = ClientId { serial: u32::MAX, ..client(0) };
    let mut engine = Engine::new(SEED, START);
    acquire(&mut engine, former, b"a", 0, at_ms(0));
    acquire(&mut engine, client(1), b"a", 9, at_ms(0));
    engine.release(newer, at_ms(1));
    engine.check_invariants();
    assert_eq!(
        answers(&mut engine),
        [(0, Reply::Locked), (1, Reply::Locked), (0, Reply::NotLocked)]
    );
    engine.disconnect(former, at_ms(2));
    assert_eq!(engine.lock_count(), 1);
}

/// Three clients: the first holds `k` and waits for `l`, the second holds `l` and
/// `m`, the third waits for `l` after ACQ4ANY.
fn sample() -> (EngineState, Vec<PoolState<'static>>) {
    let lock = |slot, sequence, timeout_s: Option<u64>| LockState {
        client: client(slot),
        sequence,
        since: at_ms(sequence),
        deadline: timeout_s.map(|seconds| at_ms(sequence).plus_seconds(seconds)),
        for_anyone: false,
        weight: 0,
        workers: u16::from(timeout_s.is_some()),
        shortened_by: None,
        timer_place: 0,
    };
    let pools = vec![
        PoolState {
            key: Cow::Borrowed(b"k"),
            holders: vec![lock(0, 1, None)],
            ..PoolState::default()
        },
        PoolState {
            key: Cow::Borrowed(b"l"),
            holders: vec![lock(1, 3, None)],
            waiters_for_me: vec![lock(0, 4, Some(7))],
            waiters_for_anyone: vec![lock(2, 5, Some(u64::MAX))],
        },
        PoolState {
            key: Cow::Borrowed(b"m"),
            holders: vec![lock(1, 2, None)],
            ..PoolState::default()
        },
    ];
    let state = EngineState {
        started: START,
        started_wall_ns: Some(9),
        last_sequence: 5,
        ..EngineState::default()
    };
    (state, pools)
}

#[track_caller]
fn refused(why: &'static str, change: impl Fn(&mut EngineState, &mut Vec<PoolState<'_>>)) {
    let (mut state, mut pools) = sample();
    change(&mut state, &mut pools);
    let pools = pools.into_iter().map(Ok::<_, BadState>);
    let refusal = Engine::resume(state, pools, SEED, at_ms(1_000));
    assert_eq!(refusal.map(|_| ()), Err(BadState(why)));
}

#[test]
fn impossible_pools_are_refused() {
    refused("a key without a holder", |_, pools| pools[1].holders.clear());
    refused("a key without a holder", |_, pools| {
        pools.push(PoolState { key: b"n".into(), ..PoolState::default() })
    });
    refused("a key twice", |_, pools| pools[0].key = b"l".into());
    for key in [&b""[..], b"a b", b"a\n", &[b'x'; LINE_BYTES_MAX]] {
        refused("a key that no command could hold", |_, pools| pools[0].key = Cow::Borrowed(key));
    }
    refused("a queue in which a newer lock precedes an older one", |state, pools| {
        state.last_sequence = 6;
        let older = pools[1].waiters_for_me[0];
        pools[1].waiters_for_me.insert(0, LockState { client: client(3), sequence: 6, ..older });
    });
}

#[test]
fn impossible_stacks_are_refused() {
    refused("two clients in one slot", |_, pools| pools[0].holders[0].client.serial += 1);
    refused("two clients in one slot", |_, pools| pools[2].holders[0].client.serial += 1);
    refused("a wait below another lock of its client", |state, pools| {
        (state.last_sequence, pools[0].holders[0].sequence) = (6, 6);
    });
    refused("a wait below another lock of its client", |_, pools| {
        pools[1].waiters_for_anyone[0].client = client(0);
    });
    refused("a client with too many locks", |state, pools| {
        state.last_sequence = 9;
        let lock = pools[1].holders[0];
        pools[1].holders.extend((6..9).map(|sequence| LockState { sequence, ..lock }));
    });
    refused("a client in a slot that no connection could have", |_, pools| {
        pools[2].holders[0].client.slot = SLOTS_MAX;
    });
}

#[test]
fn impossible_order_and_times_are_refused() {
    refused("a sequence number twice", |_, pools| pools[2].holders[0].sequence = 1);
    refused("a sequence number that was not given yet", |state, _| state.last_sequence = 4);
    refused("a sequence number that was not given yet", |_, pools| {
        pools[2].holders[0].sequence = 0
    });
    refused("an impossible sequence number", |state, _| {
        state.last_sequence = u64::MAX;
    });
    refused("a lock from the future", |_, pools| pools[0].holders[0].since = at_ms(1_001));
    refused("a wait without a deadline", |_, pools| pools[1].waiters_for_me[0].deadline = None);
    refused("a held lock with a deadline", |_, pools| {
        pools[0].holders[0].deadline = Some(at_ms(1_001));
    });
    refused("a wait for none of the workers", |_, pools| pools[1].waiters_for_me[0].workers = 0);
    refused("a wait that an unknown rule has shortened", |_, pools| {
        pools[1].waiters_for_me[0].shortened_by = Some(RuleNumber::new(0));
    });
    for (deadline, why) in [
        (None, "a held lock without its deadline"),
        (Some(at_ms(1_500)), "a hold that ends too early"),
    ] {
        refused(why, |state, pools| {
            state.rules.rules.push(Rule::parse_max_hold("k=2").expect("a limit"));
            pools[0].holders[0].deadline = deadline;
        });
    }
    for deadline in [at_ms(4), START, at_ms(1_005)] {
        refused("a wait that is not a whole number of seconds", |_, pools| {
            pools[1].waiters_for_me[0].deadline = Some(deadline);
        });
    }
}
