//! Sequences of operators' steps, and coincidences that random steps reach only once in many seeds.

use super::generate::FIRST_HTTP_CLIENT;
use super::steps::{OTHER_CONTROL, Say, Step};
use crate::simulation::driver::play::OPERATORS;
use crate::simulation::kernel::draws::Choices;
use crate::simulation::random::Random;
use crate::simulation::reports::http::{self, HTTP};

/// A turn after everything has arrived.
fn turn(random: &mut Random, fails: bool) -> [Step; 2] {
    let choices = Choices::Seed(random.next());
    [Step::ArriveAll, Step::Turn { choices, arrives: false, fails }]
}

/// A random scene.
pub(super) fn scene(main: &'static str, fails: bool, random: &mut Random) -> Vec<Step> {
    match random.next() % 8 {
        7 => change_rules_in_a_crowd(random),
        0 => close_before_a_crowd(main, random),
        6 => outlast_restart(random),
        1 => leave_before_answer(random),
        2 => report_on_a_crowd(random),
        3 => exhaust_descriptors_twice(random),
        _ => drain_and_undrain(main, fails, random),
    }
}

/// A drain in which a client stays. A hot restart may come between, and another daemon may listen
/// where this one did.
fn drain_and_undrain(main: &'static str, fails: bool, random: &mut Random) -> Vec<Step> {
    let ask = |line| Step::Ask { place: 0, line };
    let mut steps = vec![Step::Connect { place: 0, to: main, room: (100_000, 100_000) }];
    steps.extend(turn(random, false));
    steps.push(ask("DRAIN"));
    if random.next() % 3 > 0 {
        steps.extend(turn(random, false));
        steps.extend(request_readiness(random));
    }
    if random.next() % 2 == 0 {
        steps.push(ask("RESTART"));
        steps.extend(turn(random, false));
        steps.push(Step::TrialEnds);
        steps.extend(turn(random, false));
    }
    let other = match random.next() % 6 {
        0 => Some(Step::ForeignPort { port: 7531, listens: true }),
        1 => Some(Step::Foreign { path: OTHER_CONTROL, listens: true }),
        _ => None,
    };
    steps.extend(other);
    // Where calls fail, one of several may fail late.
    let times = if fails { 6 } else { 1 };
    for _ in 0..times {
        steps.push(ask("UNDRAIN"));
        steps.extend(turn(random, fails));
    }
    match other {
        Some(Step::Foreign { path, .. }) => steps.push(Step::Remove { path }),
        Some(_) => steps.push(Step::ForeignPort { port: 7531, listens: false }),
        None => {}
    }
    steps
}

/// Addresses are closed while a crowd keeps connecting. A hot restart may come between.
pub(super) fn close_before_a_crowd(main: &'static str, random: &mut Random) -> Vec<Step> {
    let order = random.one_of(&[
        "DRAIN",
        "DRAIN",
        "RESTART [\"-l\",\"10.0.0.2\",\"--control\",\"/run/control.sock\",\"--keepalive\",\"0\"]",
        "RESTART [\"-l\",\"10.0.0.1\",\"-p\",\"7532\",\"--control\",\"/run/control.sock\"]",
    ]);
    let ask = |line| Step::Ask { place: 0, line };
    let mut steps = vec![ask("HELP")];
    steps.extend(turn(random, false));
    steps.extend([ask(order), Step::Insist { clients: 70, to: main }]);
    steps.push(Step::Crowd { clients: random.one_of(&[1, 60, 64, 110]) });
    for _ in 0..random.next() % 4 {
        steps.extend(turn(random, false));
        steps.push(Step::TrialEnds);
    }
    if random.next() % 2 == 0 {
        steps.push(ask("RESTART"));
        steps.extend(turn(random, false));
        steps.push(Step::TrialEnds);
    }
    steps.extend((0..5).flat_map(|_| turn(random, false)));
    steps.extend([ask("UNDRAIN"), Step::CrowdLeaves]);
    steps
}

/// A client asks over HTTP whether the daemon is ready.
fn request_readiness(random: &mut Random) -> Vec<Step> {
    let place = FIRST_HTTP_CLIENT;
    let text = http::request_texts().find(|text| text.contains("/-/ready")).expect("one of them");
    let mut steps = vec![
        Step::Connect { place, to: HTTP, room: (100_000, 100_000) },
        Step::Say { place, what: Say::Http(text), cut: 0 },
    ];
    steps.extend(turn(random, false));
    steps.push(Step::Read { place, max: 100_000 });
    steps
}

/// A report of many connections, which takes several turns.
fn report_on_a_crowd(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![Step::Crowd { clients: 20 }, Step::Ask { place: 0, line: "HELP" }];
    steps.extend(turn(random, false));
    steps.extend(turn(random, false));
    steps.push(Step::Ask { place: 0, line: "STATS CLIENTS" });
    steps.extend((0..10).flat_map(|_| turn(random, false)));
    steps.extend([Step::Read { place: OPERATORS as u8, max: 100_000 }, Step::CrowdLeaves]);
    steps
}

/// Orders about rules for the keys of a crowd, while reports look at them. A large crowd has more
/// than 1,000 keys.
fn change_rules_in_a_crowd(random: &mut Random) -> Vec<Step> {
    const ORDERS: &[&str] = &[
        "RULE SET crowd c* total=9",
        "RULE SET back *b workers=1 max-hold=1s",
        "RULE SET crowd FOR 1s c* workers=3 total=40",
        "RULE SET all FOR 1s * workers=3 total=40",
        "RULE SET shared s* workers=1 timeout=1s",
        "RULE SET shared s* workers=5",
        "RULE SET front *c* total=300 max-hold=2s",
        "RULE OFF shared",
        "RULE RESET crowd",
        "RULE RESET shared",
        "RULE RESET all",
        "RULES",
        "STATS JSON",
        "STATS KEYS",
        "STATS KEY s1",
    ];
    let is_large = random.next() % 24 == 0;
    let clients = if is_large { 340 } else { random.one_of(&[20, 20, 60]) };
    let mut steps = vec![Step::Crowd { clients }, Step::Ask { place: 0, line: "HELP" }];
    let turns = clients / 3 + 4;
    steps.extend((0..turns).flat_map(|_| turn(random, false)));
    steps.push(Step::CrowdHolds);
    for _ in 0..12 {
        let place = (random.next() % 3) as u8;
        steps.push(Step::Ask { place, line: random.one_of(ORDERS) });
        steps.extend(turn(random, false));
        if random.next() % 4 == 0 {
            steps.push(Step::Advance { ms: random.one_of(&[300, 1000, 3000]) });
        }
    }
    steps.push(Step::CrowdLeaves);
    steps
}

/// New clients wait for descriptors; once there are some again, others wait.
fn exhaust_descriptors_twice(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    for max in [34, 20_000, 34] {
        steps.extend([Step::Descriptors { max }, Step::CrowdLeaves, Step::Crowd { clients: 20 }]);
        steps.push(Step::Advance { ms: 2000 });
        steps.extend((0..5).flat_map(|_| turn(random, false)));
    }
    steps.extend([Step::Descriptors { max: 20_000 }, Step::CrowdLeaves]);
    steps
}

/// The log is not read while clients connect, and until a hot restart is done.
pub(super) fn leave_log_unread(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![Step::LogReads(false), Step::Crowd { clients: 70 }];
    steps.extend(turn(random, false));
    steps.extend(turn(random, false));
    steps.push(Step::Ask { place: 0, line: "RESTART" });
    steps.extend(turn(random, false));
    steps.extend(turn(random, false));
    steps.extend([Step::LosesOne, Step::TrialEnds]);
    steps.extend(turn(random, false));
    steps.extend([Step::LogReads(true), Step::CrowdLeaves]);
    steps
}

/// Reports that take longer than a hot restart waits for them; one of a crowd may be under
/// way.
fn outlast_restart(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_under_way = random.next() % 2 == 0;
    if is_under_way {
        steps.push(Step::Crowd { clients: 20 });
        steps.extend(turn(random, false));
    }
    steps.push(Step::Ask { place: 0, line: "RESTART" });
    // The daemon reads from an operator in the turn after it accepts it.
    steps.extend((1..4).map(|place| Step::Ask { place, line: "HELP" }));
    steps.extend(turn(random, false));
    steps.extend(turn(random, false));
    steps.extend((1..4).map(|place| Step::Ask { place, line: "STATS JSON" }));
    if is_under_way {
        steps.extend(turn(random, false));
    }
    steps.extend([Step::TrialEnds, Step::Advance { ms: 20_000 }]);
    steps.extend(turn(random, false));
    steps
}

/// An operator leaves before an answer, and another one comes.
fn leave_before_answer(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![
        Step::Ask { place: 0, line: "RESTART [\"--nonsense\"]" },
        Step::Ask { place: 0, line: "HELP" },
        Step::OperatorLeaves { place: 0 },
    ];
    steps.extend(turn(random, false));
    steps.push(Step::Ask { place: 0, line: "HELP" });
    steps.extend(turn(random, false));
    steps.push(Step::TrialEnds);
    steps.extend(turn(random, false));
    steps
}
