//! Shrunk scripts that have failed. The bugs they found are fixed.
//!
//! The doc comment of each test names the bug: with that bug put back, the test fails. A script
//! records the numbers that its turns drew, not the seeds: a seed gives other numbers as soon as
//! the simulated kernel draws one more.

use super::explore::judge;
use super::kernel::draws::Choices;
use super::kernel::kernel;
use super::scripts::steps::{Say, Script, Start, Step};
use protocol::Mode;

const TCP: &str = "10.0.0.1:7531";
const HTTP: &str = "10.0.0.1:9531";

/// A turn in which nothing unusual happens.
const TURN: Step = Step::Turn { choices: Choices::USUAL, arrives: false, fails: false };

#[track_caller]
fn check(arguments: &'static str, steps: Vec<Step>) {
    check_started_by(Start::Shell, arguments, steps);
}

#[track_caller]
fn check_started_by(start: Start, arguments: &'static str, steps: Vec<Step>) {
    let script = Script { arguments, start, logs: false, steps };
    judge(&script).map(drop).unwrap_or_else(|why| panic!("{why}\nwith\n{script}"));
}

/// A client that reads its answers connects over TCP.
fn connect(place: u8) -> Step {
    Step::Connect { place, to: TCP, room: (100_000, 100_000) }
}

/// A client asks for a lock that one client holds at a time.
fn acquire(place: u8, key: u8, timeout_s: u64) -> Step {
    let mode = Mode::ForMe;
    Step::Say {
        place,
        what: Say::Acquire { mode, key, workers: 1, max_queue: 9, timeout_s },
        cut: 0,
    }
}

/// The new image does not inherit operators' requests, and their connections end.
///
/// Fails if the hot restart is finished as soon as the loop meets `Source::Trial`, before the
/// orders of that turn.
#[test]
fn requests_that_come_with_the_end_of_a_trial_are_answered() {
    // The kernel reports the trial before the operator.
    let choices = Choices::Drawn(&[1]);
    let steps = vec![
        Step::Ask { place: 2, line: "RESTART" },
        Step::ArriveAll,
        TURN,
        TURN,
        TURN,
        Step::TrialEnds,
        Step::Ask { place: 2, line: "STATS CLIENTS" },
        Step::ArriveAll,
        Step::Turn { choices, arrives: false, fails: false },
    ];
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// Live clients were lost by the thousand, and the log said nothing.
///
/// Fails if `Losses::end_turn` does not log.
#[test]
fn the_log_tells_that_many_hosts_are_lost_at_once() {
    let mut steps: Vec<Step> = (0..12).map(connect).collect();
    steps.extend([Step::ArriveAll, TURN, TURN]);
    steps.extend((0..12).map(|place| Step::Vanish { place }));
    steps.extend([Step::Advance { ms: 16_000 }, TURN, TURN, TURN]);
    let script =
        Script { arguments: "-l 10.0.0.1 --keepalive 10", start: Start::Shell, logs: true, steps };
    judge(&script).map(drop).unwrap_or_else(|why| panic!("{why}\nwith\n{script}"));
}

/// A client had its share of the turn without an event, and the event gave it another share.
///
/// Fails if `Clients::record_event` pushes a client that is unread already.
#[test]
fn a_flooder_gets_no_second_share_of_a_turn() {
    let steps = vec![
        Step::Connect { place: 19, to: TCP, room: (4096, 40) },
        Step::Say { place: 19, what: Say::TooLong, cut: 0 },
        TURN,
        Step::ArriveAll,
        TURN,
        Step::Say { place: 19, what: Say::Flood { line: "STATS FULL\n", times: 3000 }, cut: 0 },
    ];
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// A hot restart lost a holder, and the next waiter got its answer only when something else
/// happened.
///
/// Fails if `Server::resume` does not call `send_owed`, or if `Dispatch::send` does not call
/// `deliver_answers` before it flushes.
#[test]
fn a_lock_lost_in_a_hot_restart_is_passed_on_at_once() {
    let mut steps = vec![connect(0), connect(1)];
    for place in 0..2 {
        steps.extend([acquire(place, 1, 86_400), Step::ArriveAll, TURN, TURN]);
    }
    steps.extend([Step::LosesOne, Step::Signal(libc::SIGUSR1), TURN, Step::TrialEnds, TURN, TURN]);
    check("-l 10.0.0.1", steps);
}

/// The new image noticed that a holder was lost before it had set the limit of slow holds.
///
/// Fails if `Server::resume` calls `set_slow` after `disconnect_lost`.
#[test]
fn a_slow_hold_that_a_hot_restart_loses_is_listed() {
    let steps = vec![
        connect(0),
        acquire(0, 1, 1),
        Step::ArriveAll,
        TURN,
        TURN,
        Step::Advance { ms: 3000 },
        Step::LosesOne,
        Step::Signal(libc::SIGUSR1),
        TURN,
        Step::TrialEnds,
        TURN,
        Step::Ask { place: 0, line: "STATS SLOW" },
        Step::ArriveAll,
        TURN,
    ];
    check("-l 10.0.0.1 --control /run/control.sock --slow 0.5", steps);
}

/// Each turn with a report under way read the figures of the process, and before Linux 6.2 a list of
/// all descriptors, for which the other clients waited.
///
/// Fails if `Reporting::step` reads them for all reports.
#[test]
fn figures_of_the_process_are_read_for_the_reports_that_show_them() {
    for (line, reads) in [
        ("STATS KEY a\n", 0),
        ("STATS KEYS\n", 0),
        ("STATS TOP\n", 0),
        ("STATS JSON TOP\n", 0),
        ("STATS JSON HISTORY\n", 0),
        ("STATS JSON\n", 3),
    ] {
        let mut steps = vec![connect(0), TURN];
        steps.push(Step::Say { place: 0, what: Say::Flood { line, times: 3 }, cut: 0 });
        steps.push(Step::ArriveAll);
        steps.extend([TURN; 12]);
        check("-l 10.0.0.1", steps);
        assert_eq!(kernel(|k| k.process_reads), reads, "{line}");
    }
}

/// After UNDRAIN the daemon counted operators' connections, for which descriptors are reserved, as
/// its own descriptors, and clients waited although there was room.
///
/// Fails if `Server::undrain` calls `Listeners::count_own_descriptors`.
#[test]
fn connected_operators_take_no_descriptors_from_clients() {
    let ask = |place| Step::Ask { place, line: "HELP" };
    let mut steps = vec![connect(0)];
    steps.extend((0..16).map(ask));
    steps.extend([Step::ArriveAll, TURN, TURN, Step::Descriptors { max: 60 }]);
    steps.extend([Step::Signal(libc::SIGUSR2), TURN, TURN, Step::Signal(libc::SIGUSR2), TURN]);
    steps.extend([Step::Advance { ms: 3000 }, TURN, Step::Crowd { clients: 20 }]);
    steps.extend([TURN; 5]);
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// An answer could not be sent, and the connection stayed.
///
/// Fails if `Clients::flush` calls `record_output_failure` for a connection that is `finishing`.
#[test]
fn a_failed_send_ends_a_connection_whose_input_has_ended() {
    let steps = vec![
        Step::Connect { place: 0, to: "10.0.0.2:7531", room: (64, 1) },
        Step::Say { place: 0, what: Say::Release, cut: 90 },
        Step::End { place: 0 },
        Step::ArriveAll,
        TURN,
        TURN,
        Step::Close { place: 0 },
    ];
    check("-l :: --control /run/control.sock", steps);
}

/// A client kept asking and read nothing.
///
/// Fails if `Clients::flush` watches a connection that is blocked and `exceeds_bound`, instead of
/// closing it.
#[test]
fn unread_output_stays_within_its_bound() {
    let flood = Say::Flood { line: "STATS FULL\n", times: 800 };
    let mut steps = vec![
        Step::Connect { place: 0, to: TCP, room: (8192, 8) },
        Step::Say { place: 0, what: flood, cut: 223 },
        Step::ArriveAll,
    ];
    steps.extend([TURN; 40]);
    check("-l 10.0.0.1 --keepalive 0 --control /run/control.sock", steps);
}

/// After a reset, the address that `--allow` checks can't be read any more.
///
/// Fails if `Admission::judge` returns `Verdict::Admitted` when `peer_address` fails.
#[test]
fn a_reset_does_not_slip_past_allow() {
    let arguments = "-l 0.0.0.0 --control /run/control.sock --allow 10.9.0.0/16";
    check(arguments, vec![connect(3), Step::Reset { place: 3 }]);
}

/// The trial of a hot restart ends in the turn in which a signal tells the daemon to stop.
///
/// Fails if `Server::execute_orders` returns `Ended::Stopped` only after `finish_restart`.
#[test]
fn a_signal_to_stop_comes_before_a_restart() {
    let steps = vec![Step::Signal(libc::SIGUSR1), TURN, Step::Signal(libc::SIGINT)];
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// Once a scan had seen all keys, memory was returned, and a new key got a new place at the end.
/// The scan also saw that key, if it still had connections to see.
///
/// Fails if `RunningScan::walk` calls `Scan::step` after all keys were seen.
#[test]
fn a_report_shows_the_keys_of_one_moment() {
    let acquire = |place, key| {
        let mode = Mode::ForMe;
        let what = Say::Acquire { mode, key, workers: 2, max_queue: 9, timeout_s: 1 };
        Step::Say { place, what, cut: 0 }
    };
    let mut steps: Vec<Step> = (0..12).map(connect).collect();
    steps.push(Step::Crowd { clients: 110 });
    steps.extend([TURN; 4]);
    steps.extend([acquire(0, 1), Step::CrowdLeaves, Step::ArriveAll]);
    steps.extend([TURN; 4]);
    let report = Step::Say { place: 1, what: Say::Stats("JSON"), cut: 0 };
    steps.extend([Step::Advance { ms: 3000 }, TURN, report, Step::ArriveAll, TURN]);
    for (place, key) in [(2, 1), (3, 2)] {
        steps.extend([acquire(place, key), Step::ArriveAll, TURN]);
    }
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// A walk over all keys compares them with one pattern.
///
/// Fails if `ReportQueue::next_scan` serves requests that have another one.
#[test]
fn requests_with_different_patterns_get_different_answers() {
    let mut steps: Vec<Step> = (0..6).map(connect).collect();
    steps.extend([acquire(0, 1, 9), acquire(1, 2, 9), Step::ArriveAll, TURN]);
    let questions = ["JSON KEYS 9 *1", "JSON KEYS 9 *2", "JSON KEYS 1 *", "JSON KEYS 9 *1"];
    for (place, question) in (2..).zip(questions) {
        steps.push(Step::Say { place, what: Say::Stats(question), cut: 0 });
    }
    steps.push(Step::ArriveAll);
    steps.extend([TURN; 8]);
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// The rest of the request came too late. An answer to HEAD has no body.
///
/// Fails if `Exchange::answer` sends `AnswerPart::All` when the head is not complete.
#[test]
fn a_late_head_request_is_answered_without_a_body() {
    let head = Say::Http("HEAD /stats.json HTTP/1.1\r\nHost: a\r\n\r\n");
    let steps = vec![
        Step::Connect { place: 53, to: HTTP, room: (100_000, 100_000) },
        Step::Say { place: 53, what: head, cut: 98 },
        TURN,
        Step::Advance { ms: 5000 },
        Step::Arrive { place: 53 },
        TURN,
    ];
    check("-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531", steps);
}

/// One client of a crowd had stayed, in a high slot. When it left, no memory was returned until
/// another crowd had come.
///
/// Fails if `Server::release_memory` works only once between two times when there is
/// `SpareCapacity::Little`.
#[test]
fn memory_is_returned_when_the_last_of_a_crowd_leaves() {
    let mut steps = vec![Step::Crowd { clients: 150 }];
    steps.extend([TURN; 4]);
    steps.extend([connect(0), TURN]);
    for leaves in [Step::CrowdLeaves, Step::Close { place: 0 }] {
        steps.extend([leaves, Step::ArriveAll, TURN, TURN, TURN]);
        steps.extend([Step::Advance { ms: 3000 }, TURN, TURN]);
    }
    check("-l 10.0.0.1 --control /run/control.sock", steps);
}

/// The loop pauses after a failed wait, and used the time before the pause as the time of the turn.
///
/// Fails if `Server::wait` sets `turn_began` before `thread::sleep`.
#[test]
fn a_new_client_has_its_full_time_even_if_waiting_for_events_fails() {
    let connect = |place| Step::Connect { place, to: HTTP, room: (300, 200) };
    // More than a turn accepts: the rest need no event.
    let mut steps: Vec<Step> = (0..70).map(connect).collect();
    // epoll_wait(2) fails with EFAULT.
    let choices = Choices::Drawn(&[0, 11, 3]);
    steps.extend([TURN, Step::Turn { choices, arrives: false, fails: true }]);
    check("-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531", steps);
}

/// In the turn in which a connection could be closed for a new client, the daemon forgot that the
/// new client waited, and served it a second later.
#[test]
fn a_new_http_client_is_served_as_soon_as_there_is_room() {
    let what = Say::Http("GET /stats.json?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
    let ask = |place| {
        let connect = Step::Connect { place, to: HTTP, room: (300, 200) };
        [connect, Step::Say { place, what, cut: 0 }]
    };
    let mut steps: Vec<Step> = (54..70).flat_map(ask).collect();
    steps.extend([Step::ArriveAll, TURN, TURN, TURN, TURN, TURN, TURN]);
    steps.extend([Step::Advance { ms: 1000 }, TURN]);
    steps.push(Step::Connect { place: 63, to: HTTP, room: (64, 1) });
    steps.extend([Step::Advance { ms: 1 }, TURN, TURN, TURN, TURN, TURN, Step::ArriveAll]);
    steps.extend([TURN; 5]);
    let arguments =
        "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 --http-keys 3 --slow 0.5";
    check_started_by(Start::Socket, arguments, steps);
}

/// All sixteen wait for the same report; then a new client may take the place of one that has it.
///
/// Fails if `Server::send_owed` ends the pause only when a connection has closed.
#[test]
fn an_http_client_that_has_its_answer_makes_room() {
    let what = Say::Http("HEAD /stats.json HTTP/1.1\r\nHost: a\r\n\r\n");
    let ask = |place| {
        let connect = Step::Connect { place, to: HTTP, room: (5000, 3000) };
        [connect, Step::Say { place, what, cut: 0 }]
    };
    // They make the report take many turns.
    let mut steps = vec![Step::Advance { ms: 3000 }, Step::Crowd { clients: 60 }];
    steps.extend([TURN; 30]);
    steps.extend((54..71).flat_map(ask));
    steps.push(Step::ArriveAll);
    steps.extend([TURN; 100]);
    check("-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531", steps);
}

/// After accept(2) had failed for HTTP, it was called again as soon as a connection could be
/// evicted.
///
/// Fails if `Listener::is_ready` ignores all pauses when there is room.
#[test]
fn room_for_http_does_not_end_the_pause_after_a_failure() {
    let what = Say::Http("GET /stats.json?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
    let connect = |place| Step::Connect { place, to: HTTP, room: (5000, 3000) };
    let turn = |choices, arrives, fails| Step::Turn { choices, arrives, fails };
    let usual = Choices::USUAL;
    let ask = |place| [connect(place), Step::Say { place, what, cut: 0 }];
    let mut steps: Vec<Step> =
        (50..68).filter(|&place| place != 58).flat_map(ask).chain([connect(68)]).collect();
    steps.extend([Step::ArriveAll, turn(usual, true, false), turn(usual, false, true), TURN]);
    steps.extend([turn(usual, false, true), connect(56), connect(71), TURN, connect(72)]);
    steps.extend([turn(usual, true, false), connect(58)]);
    steps.push(turn(Choices::Drawn(&[0, 0, 11, 2]), true, true));
    steps.extend([turn(usual, true, false), connect(58), Step::Advance { ms: 1000 }]);
    let accept_fails = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 16];
    steps.push(turn(Choices::Drawn(accept_fails), false, true));
    let arguments = "-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531 \
        --http 0.0.0.0:9531 --private --http-keys 9 --slow 0";
    check_started_by(Start::Socket, arguments, steps);
}

/// A drain or a reload kept accepting new clients in one turn, and answered no other client.
///
/// Fails if `Server::drain` or `Server::resume` sets the acceptor's `left` to `usize::MAX` before it
/// calls `accept`.
#[test]
fn a_closing_listener_waits_only_for_the_clients_in_its_queue() {
    const RELOAD: &str = "RESTART [\"-l\",\"10.0.0.2\",\"--control\",\"/run/control.sock\"]";
    for (order, to) in [("DRAIN", TCP), (RELOAD, TCP)] {
        let arguments = "-l 10.0.0.1 --control /run/control.sock";
        let ask = |line| Step::Ask { place: 0, line };
        let mut steps = vec![ask("HELP"), Step::ArriveAll, TURN, TURN];
        steps.extend([Step::Crowd { clients: 200 }, Step::Insist { clients: 400, to }]);
        steps.extend([ask(order), Step::ArriveAll, TURN, Step::TrialEnds]);
        steps.extend([TURN; 6]);
        check(arguments, steps);
    }
}

/// Their reports were made after those of all clients.
///
/// Fails if `Reporting::enqueue` puts requests of operators and HTTP into the queue of clients.
#[test]
fn operators_and_monitoring_do_not_wait_behind_a_crowd_that_asks_for_reports() {
    let room = (100_000, 100_000);
    let crowd = Say::Flood { line: "STATS JSON\n", times: 8 };
    let mut steps: Vec<Step> = (0..60).map(connect).collect();
    steps.extend([TURN; 4]);
    steps.extend((0..60).map(|place| Step::Say { place, what: crowd, cut: 0 }));
    steps.push(Step::Ask { place: 0, line: "HELP" });
    for text in ["GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "GET /prometheus HTTP/1.0\r\n\r\n"] {
        let place = 60 + text.len() as u8 % 30;
        steps.push(Step::Connect { place, to: HTTP, room });
        steps.push(Step::Say { place, what: Say::Http(text), cut: 0 });
    }
    steps.extend([Step::ArriveAll, TURN, TURN]);
    steps.extend([Step::Ask { place: 0, line: "STATS KEYS" }, Step::ArriveAll]);
    steps.extend([TURN; 394]);
    check("-l 10.0.0.1 --control /run/control.sock --http 10.0.0.1:9531", steps);
}

/// A client that had left kept its locks until the report that it had asked for was made, behind
/// those of a crowd.
///
/// Fails if `Clients::receive` takes no look behind held lines.
#[test]
fn a_client_that_leaves_before_its_report_loses_its_locks_at_once() {
    let json = |place| Step::Say { place, what: Say::Stats("JSON"), cut: 0 };
    for end in [Step::End { place: 40 }, Step::Reset { place: 40 }, Step::Close { place: 40 }] {
        let mut steps: Vec<Step> = (0..41).map(connect).collect();
        steps.extend([TURN; 20]);
        steps.extend([acquire(40, 1, 9), Step::ArriveAll, TURN]);
        steps.extend((0..41).map(json));
        steps.extend([Step::ArriveAll, end, Step::ArriveAll]);
        steps.extend([TURN; 60]);
        check("-l 10.0.0.1", steps);
    }
}

/// The look behind a held line had consumed the error of a lost connection: its unsent output
/// stayed, and the connection was never closed.
///
/// Fails if `Clients::record_output_failure` keeps the output.
#[test]
fn a_connection_that_is_lost_while_a_line_is_held_is_closed() {
    let room = (64, 1);
    let junk = Say::Junk(b"\xff\x00\x80\n");
    let mut steps = vec![Step::Connect { place: 1, to: TCP, room }];
    steps.extend([Step::Say { place: 1, what: junk, cut: 0 }, Step::Arrive { place: 1 }]);
    steps.extend([Step::Urgent { place: 1 }, TURN]);
    steps.extend([Step::Say { place: 1, what: Say::Stats("CLIENTS"), cut: 0 }, Step::ArriveAll]);
    steps.extend((0..30).map(|place| Step::Connect { place: 10 + place, to: TCP, room }));
    steps.extend([TURN, TURN, TURN]);
    for call in 0..12 {
        // One call of this turn fails.
        let numbers = [vec![0; call], vec![11, 1]].concat();
        let choices = Choices::Drawn(numbers.leak());
        let fails = Step::Turn { choices, arrives: false, fails: true };
        let end = [Step::Urgent { place: 1 }, Step::ArriveAll, fails, TURN, TURN];
        check("-l 10.0.0.1", [steps.clone(), end.to_vec()].concat());
    }
}
