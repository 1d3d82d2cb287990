//! Scripts that have failed, as they were shrunk. What they show is mended.

use super::explore::judge;
use super::scripts::steps::{Say, Script, Start, Step, UNIX};
use crate::protocol::Mode;

const TCP: &str = "10.0.0.1:7531";

#[track_caller]
fn is_right(script: &Script) {
    judge(script).map(drop).unwrap_or_else(|why| panic!("{why}\nwith\n{script}"));
}

/// The new image does not know what operators have asked, and their connections end.
#[test]
fn what_an_operator_asks_as_a_hot_restart_begins_is_answered() {
    is_right(&Script {
        arguments: "-l 10.0.0.1 --control /run/control.sock",
        start: Start::Shell,
        logs: false,
        steps: vec![
            Step::Ask { place: 2, line: "RESTART" },
            Step::ArriveAll,
            Step::Turn { choices: 10171679538908382658, arrives: false, fails: false },
            Step::Turn { choices: 2510231640295051784, arrives: false, fails: false },
            Step::TrialEnds,
            Step::Ask { place: 2, line: "STATS CLIENTS" },
            Step::ArriveAll,
            Step::Turn { choices: 3224294555876805256, arrives: false, fails: false },
        ],
    });
}

/// A turn in which nothing fails.
fn turn(choices: u64, arrives: bool) -> Step {
    Step::Turn { choices, arrives, fails: false }
}

#[track_caller]
fn check(arguments: &'static str, start: Start, steps: Vec<Step>) {
    is_right(&Script { arguments, start, logs: false, steps });
}

/// A client was asked by an event, although it had its share of the turn without one.
#[test]
fn a_flooder_gets_no_second_share_of_a_turn() {
    let arguments = "--control /run/control.sock --listen-unix /run/pool.sock";
    let steps = vec![
        Step::Connect { place: 19, to: "/run/pool.sock", room: (4096, 40) },
        Step::Say { place: 19, what: Say::TooLong, cut: 0 },
        turn(17634774304189373635, false),
        Step::ArriveAll,
        turn(9402278574762628510, false),
        Step::Say { place: 19, what: Say::Flood { line: "STATS FULL\n", times: 3000 }, cut: 0 },
    ];
    check(arguments, Start::Shell, steps);
}

/// A restart lost a holder, and its heir was told only when something else happened.
#[test]
fn a_lock_lost_in_a_hot_restart_is_passed_on_at_once() {
    let acquire = |place, mode, workers, timeout_s| {
        let what = Say::Acquire { mode, key: 1, workers, max_queue: 100, timeout_s };
        Step::Say { place, what, cut: 0 }
    };
    let steps = vec![
        Step::Ask { place: 5, line: "DRAIN" },
        Step::Connect { place: 7, to: TCP, room: (100000, 100000) },
        turn(15352152167296200833, false),
        Step::Signal(libc::SIGUSR1),
        Step::LosesOne,
        Step::ArriveAll,
        turn(17457491452859622397, false),
        Step::Signal(libc::SIGUSR2),
        turn(5880186523255099654, false),
        Step::Connect { place: 14, to: TCP, room: (100000, 100000) },
        Step::Connect { place: 18, to: TCP, room: (100000, 100000) },
        acquire(18, Mode::ForMe, 9, 0),
        acquire(14, Mode::ForAnyone, 1, 1),
        turn(3164704099893593296, false),
    ];
    check("-l 10.0.0.1 --keepalive 0 --control /run/control.sock", Start::Shell, steps);
}

/// In a drain the loop of the next image has nothing to do: it slept, and the heir waited.
#[test]
fn a_lock_lost_in_a_hot_restart_of_a_drain_is_passed_on_at_once() {
    let acquire = |place| {
        let what =
            Say::Acquire { mode: Mode::ForMe, key: 1, workers: 1, max_queue: 9, timeout_s: 86_400 };
        Step::Say { place, what, cut: 0 }
    };
    let connect = |place| Step::Connect { place, to: TCP, room: (100_000, 100_000) };
    let mut steps = vec![connect(0), connect(1)];
    for place in 0..2 {
        steps.extend([acquire(place), Step::ArriveAll, turn(1, false), turn(2, false)]);
    }
    steps.extend([Step::Signal(libc::SIGUSR2), turn(3, false), turn(4, false)]);
    steps.extend([Step::LosesOne, Step::Signal(libc::SIGUSR1), turn(5, false), Step::TrialEnds]);
    steps.extend([turn(6, false), turn(7, false)]);
    check("-l 10.0.0.1", Start::Shell, steps);
}

/// The new image did not know yet what is slow when it noticed that a holder was lost.
#[test]
fn a_slow_hold_that_a_hot_restart_loses_is_listed() {
    let what = Say::Acquire { mode: Mode::ForMe, key: 1, workers: 1, max_queue: 9, timeout_s: 1 };
    let steps = vec![
        Step::Connect { place: 0, to: TCP, room: (100_000, 100_000) },
        Step::Say { place: 0, what, cut: 0 },
        Step::ArriveAll,
        turn(1, false),
        turn(2, false),
        Step::Advance { ms: 3000 },
        Step::LosesOne,
        Step::Signal(libc::SIGUSR1),
        turn(3, false),
        Step::TrialEnds,
        turn(4, false),
        Step::Ask { place: 0, line: "STATS SLOW" },
        Step::ArriveAll,
        turn(5, false),
    ];
    check("-l 10.0.0.1 --control /run/control.sock --slow 0.5", Start::Shell, steps);
}

/// After UNDRAIN the daemon counted operators, who have descriptors in reserve, among its
/// own, and clients waited although there was room.
#[test]
fn operators_who_are_connected_take_no_descriptors_from_clients() {
    let ask = |place| Step::Ask { place, line: "HELP" };
    let mut steps = vec![Step::Connect { place: 0, to: TCP, room: (100_000, 100_000) }];
    steps.extend((0..16).map(ask));
    steps.extend([Step::ArriveAll, turn(1, false), turn(2, false)]);
    steps.extend([Step::Descriptors { max: 60 }, Step::Signal(libc::SIGUSR2), turn(3, false)]);
    steps.extend([turn(4, false), Step::Signal(libc::SIGUSR2), turn(5, false)]);
    steps.extend([Step::Advance { ms: 3000 }, turn(6, false), Step::Crowd { clients: 20 }]);
    steps.extend((7..12).map(|choices| turn(choices, false)));
    check("-l 10.0.0.1 --control /run/control.sock", Start::Shell, steps);
}

/// An answer could not be sent, and the connection stayed.
#[test]
fn a_failed_send_ends_a_connection_whose_input_has_ended() {
    let steps = vec![
        Step::Connect { place: 0, to: "10.0.0.2:7531", room: (64, 1) },
        Step::Say { place: 0, what: Say::Release, cut: 90 },
        Step::End { place: 0 },
        Step::ArriveAll,
        turn(3547225304355257673, false),
        turn(5053178845890615037, false),
        Step::Close { place: 0 },
    ];
    check("-l :: --control /run/control.sock", Start::Shell, steps);
}

#[test]
fn unread_output_stays_within_its_bound() {
    let flood = Say::Flood { line: "STATS FULL\n", times: 800 };
    let mut steps = vec![
        Step::Connect { place: 0, to: TCP, room: (8192, 8) },
        Step::Say { place: 0, what: flood, cut: 223 },
        Step::ArriveAll,
    ];
    steps.extend((0..40).map(|choices| turn(choices, false)));
    check("-l 10.0.0.1 --keepalive 0 --control /run/control.sock", Start::Shell, steps);
}

/// A reset takes the address along by which `--allow` decides.
#[test]
fn a_reset_does_not_slip_past_allow() {
    let arguments = "-l 0.0.0.0 --control /run/control.sock --allow 10.9.0.0/16";
    let steps =
        vec![Step::Connect { place: 3, to: TCP, room: (100000, 100000) }, Step::Reset { place: 3 }];
    check(arguments, Start::Shell, steps);
}

/// The trial of a hot restart ends in the same turn.
#[test]
fn a_signal_to_stop_comes_before_a_restart() {
    let steps = vec![
        Step::Signal(libc::SIGUSR1),
        turn(8310150216329656023, false),
        Step::Signal(libc::SIGINT),
    ];
    check("-l 10.0.0.1 --control /run/control.sock", Start::Shell, steps);
}

/// unix(7): a receive ends with a message that has descriptors.
#[test]
fn lines_behind_a_passed_descriptor_are_answered() {
    let steps = vec![
        Step::Connect { place: 12, to: "/run/pool.sock", room: (100000, 9000) },
        Step::Pass { place: 12, what: Say::Release },
        Step::Say { place: 12, what: Say::Release, cut: 0 },
    ];
    let arguments = "--control /run/control.sock --listen-unix /run/pool.sock";
    check(arguments, Start::Shell, steps);
}

/// Once all keys were seen, memory was returned, and a new key had a new place at the end:
/// it was seen too, as long as there were connections to see.
#[test]
fn keys_that_a_report_shows_are_of_one_moment() {
    let acquire = |place, key| {
        let mode = Mode::ForMe;
        let what = Say::Acquire { mode, key, workers: 2, max_queue: 9, timeout_s: 1 };
        Step::Say { place, what, cut: 0 }
    };
    let connect = |place| Step::Connect { place, to: TCP, room: (100_000, 100_000) };
    let mut steps: Vec<Step> = (0..12).map(connect).collect();
    steps.push(Step::Crowd { clients: 110 });
    steps.extend((0..4).map(|choices| turn(choices, false)));
    steps.extend([acquire(0, 1), Step::CrowdLeaves, Step::ArriveAll]);
    steps.extend((0..4).map(|choices| turn(choices, false)));
    steps.extend([
        Step::Advance { ms: 3000 },
        turn(1, false),
        Step::Say { place: 1, what: Say::Stats("JSON"), cut: 0 },
        Step::ArriveAll,
        turn(2, false),
        acquire(2, 1),
        Step::ArriveAll,
        turn(3, false),
        acquire(3, 2),
        Step::ArriveAll,
        turn(4, false),
    ]);
    check("-l 10.0.0.1 --control /run/control.sock", Start::Shell, steps);
}

/// The rest of the request came too late: its client takes no body for an answer to HEAD.
#[test]
fn a_late_head_request_is_answered_without_a_body() {
    let arguments = "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531";
    let head = Say::Http("HEAD /stats.json HTTP/1.1\r\nHost: a\r\n\r\n");
    let steps = vec![
        Step::Connect { place: 53, to: "10.0.0.1:9531", room: (100000, 100000) },
        Step::Say { place: 53, what: head, cut: 98 },
        turn(1216232393530080666, false),
        Step::Advance { ms: 5000 },
        Step::Arrive { place: 53 },
        turn(5181590832341005383, false),
    ];
    check(arguments, Start::Shell, steps);
}

/// One of a crowd had stayed, in a high slot; when it left too, nothing was returned, as
/// long as no other crowd came.
#[test]
fn memory_is_returned_when_the_last_of_a_crowd_leaves() {
    let mut steps = vec![Step::Crowd { clients: 150 }];
    steps.extend((0..4).map(|choices| turn(choices, false)));
    steps.extend([Step::Connect { place: 0, to: TCP, room: (100_000, 100_000) }, turn(4, false)]);
    for leaves in [Step::CrowdLeaves, Step::Close { place: 0 }] {
        steps.extend([leaves, Step::ArriveAll, turn(5, false), turn(6, false), turn(7, false)]);
        steps.extend([Step::Advance { ms: 3000 }, turn(8, false), turn(9, false)]);
    }
    check("-l 10.0.0.1 --control /run/control.sock", Start::Shell, steps);
}

/// The loop pauses after a failed wait. It took the time before the pause for that of the turn.
#[test]
fn a_newcomer_has_all_its_time_even_if_waiting_for_events_fails() {
    let connect = |place| Step::Connect { place, to: "10.0.0.1:9531", room: (300, 200) };
    // More than a turn accepts: the rest need no event.
    let mut steps: Vec<Step> = (0..70).map(connect).collect();
    steps.extend([turn(0, false), Step::Turn { choices: 19, arrives: false, fails: true }]);
    let arguments = "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531";
    check(arguments, Start::Shell, steps);
}

/// The turn in which somebody could go for a newcomer forgot that one was waiting: it
/// waited for a second.
#[test]
fn a_newcomer_to_http_is_served_as_soon_as_there_is_room() {
    let http = "10.0.0.1:9531";
    let what = Say::Http("GET /stats.json?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
    let ask = |place| {
        let connect = Step::Connect { place, to: http, room: (300, 200) };
        [connect, Step::Say { place, what, cut: 0 }]
    };
    let mut steps: Vec<Step> = (54..70).flat_map(ask).collect();
    steps.extend([
        Step::ArriveAll,
        turn(10938704837133305548, false),
        turn(660659294699240979, false),
        turn(12405504544076736817, true),
        turn(6340653334539635944, true),
        turn(3674339118053318309, true),
        turn(18188605330532809036, true),
        Step::Advance { ms: 1000 },
        turn(7626129434819026571, false),
        Step::Connect { place: 63, to: http, room: (64, 1) },
        Step::Advance { ms: 1 },
        turn(16703266075664131347, true),
        turn(14305503248074103288, true),
        turn(14130450363402124353, false),
        turn(6893207457180577676, true),
        turn(11651612700726811296, false),
        Step::ArriveAll,
        turn(3767866095714734414, true),
        turn(6879530061893817827, false),
        turn(10173017440154593518, false),
        turn(14059378646125888436, true),
        turn(17919572271902321148, false),
    ]);
    let arguments =
        "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 --http-keys 3 --slow 0.5";
    check(arguments, Start::UnixSocket, steps);
}

/// A drain and a reload took whoever came into one turn, and nobody else was answered.
#[test]
fn a_closing_listener_waits_only_for_those_who_are_in_its_queue() {
    const RELOAD: &str = "RESTART [\"-l\",\"10.0.0.2\",\"--control\",\"/run/control.sock\"]";
    for (order, to) in [("DRAIN", TCP), (RELOAD, TCP), ("DRAIN", UNIX), (RELOAD, UNIX)] {
        let arguments = "-l 10.0.0.1 --listen-unix /run/pool.sock --control /run/control.sock";
        let ask = |line| Step::Ask { place: 0, line };
        let mut steps = vec![ask("HELP"), Step::ArriveAll, turn(1, false)];
        steps.extend([Step::Crowd { clients: 200 }, Step::Insist { clients: 400, to }]);
        steps.extend([ask(order), Step::ArriveAll, turn(2, false), Step::TrialEnds]);
        steps.extend((3..9).map(|choices| turn(choices, false)));
        check(arguments, Start::Shell, steps);
    }
}

/// Their reports were made after all those that clients had asked for.
#[test]
fn operators_and_monitoring_do_not_wait_behind_a_crowd_that_asks_for_reports() {
    let room = (100_000, 100_000);
    let crowd = Say::Flood { line: "STATS JSON\n", times: 8 };
    let mut steps: Vec<Step> =
        (0..60).map(|place| Step::Connect { place, to: TCP, room }).collect();
    steps.extend((0..4).map(|choices| turn(choices, false)));
    steps.extend((0..60).map(|place| Step::Say { place, what: crowd, cut: 0 }));
    steps.push(Step::Ask { place: 0, line: "HELP" });
    for text in ["GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "GET /prometheus HTTP/1.0\r\n\r\n"] {
        let place = 60 + text.len() as u8 % 30;
        steps.push(Step::Connect { place, to: "10.0.0.1:9531", room });
        steps.push(Step::Say { place, what: Say::Http(text), cut: 0 });
    }
    steps.extend([Step::ArriveAll, turn(4, false), turn(5, false)]);
    steps.extend([Step::Ask { place: 0, line: "STATS KEYS" }, Step::ArriveAll]);
    steps.extend((6..400).map(|choices| turn(choices, false)));
    let arguments = "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531";
    check(arguments, Start::Shell, steps);
}
