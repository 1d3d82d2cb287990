//! `poolcounter top` in a terminal.

use crate::command::{binary, lists, lists_with_rules, scripted, scripted_by_connection, shell};
use crate::support::operated::Operated;
use crate::support::{Server, eventually, is_alive};
use crate::terminal_jobs::Terminal;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Signal, kill_process};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// `top` of these servers, once its screen contains `first`. A key that is pressed before comes
/// while the shell has the terminal, or concerns a list that is not there yet.
///
/// tmux may show the screen between two parts of a drawing: what a test expects, it waits for.
pub(crate) fn top(servers: &str, first: &str) -> Option<Terminal> {
    let top = format!("{} -s {servers} top", binary().display());
    let terminal = Terminal::start(90, 24, &format!("{top}; echo; echo left with $?; exec cat"))?;
    terminal.shows(|screen| screen.contains(first));
    Some(terminal)
}

/// The line of the screen that contains a text.
fn line_of(screen: &str, text: &str) -> usize {
    screen.lines().position(|line| line.contains(text)).unwrap_or(usize::MAX)
}

#[test]
fn it_shows_sorts_resizes_and_quits() {
    let Some(terminal) = top(&scripted(lists), "article:stuck") else { return };
    terminal.shows(|screen| {
        screen.contains("keys 2   locks 3   waiting 7")
            && screen.contains("article:stuck")
            && line_of(screen, "article:busy") < line_of(screen, "article:stuck")
    });
    // By the fourth column: the oldest holders.
    terminal.press(&[">", ">", ">", ">"]);
    terminal.shows(|screen| {
        screen.contains("oldest_holdv")
            && line_of(screen, "article:stuck") < line_of(screen, "article:busy")
    });
    // All three rows fit, so nothing scrolls; then only one fits, the selected one.
    terminal.press(&["Down", "Up", "r"]);
    terminal.shows(|screen| line_of(screen, "article:busy") < line_of(screen, "article:stuck"));
    terminal.resize(90, 7);
    terminal.shows(|screen| screen.contains("0.001s") && !screen.contains("article:busy"));
    terminal.press(&["End"]);
    terminal.shows(|screen| screen.contains("article:stuck") && !screen.contains("0.001s"));
    terminal.press(&["Home"]);
    terminal.shows(|screen| screen.contains("0.001s") && !screen.contains("article:busy"));
    terminal.press(&["NPage", "NPage", "NPage"]);
    terminal.shows(|screen| screen.contains("article:stuck") && !screen.contains("0.001s"));
    terminal.press(&["PPage"]);
    terminal.shows(|screen| screen.contains("article:busy"));
    terminal.resize(90, 24);
    terminal.shows(|screen| screen.contains("article:stuck"));
    terminal.press(&["c"]);
    terminal.shows(|screen| screen.contains("10.0.0.9") && !screen.contains("article"));
    terminal.press(&["o"]);
    let oldest = ["12.500s", "me", "2", "#7", "10.0.0.9:4711", "article:stuck"];
    terminal.shows(|screen| screen.lines().any(|line| line.split_whitespace().eq(oldest)));
    terminal.press(&["k"]);
    terminal.shows(|screen| screen.contains("article:busy"));
    // Its last line, the help, is always the terminal's last.
    for (columns, lines) in [(40, 12), (120, 40)] {
        terminal.resize(columns, lines);
        terminal.shows(|screen| {
            let last = screen.lines().last().unwrap_or_default();
            screen.lines().count() <= lines as usize
                && last.starts_with("q quit")
                && (last.len() > 40) == (columns > 40)
        });
    }
    terminal.press(&["q"]);
    terminal.shows(|screen| screen.contains("left with 0") && !screen.contains("article"));
}

/// Without root: which rules limit keys, what they deny, and that orders have set some.
#[test]
fn it_shows_what_rules_do_and_that_orders_have_set_some() {
    let Some(terminal) = top(&scripted(lists_with_rules), "article:busy") else { return };
    let orders = "rules set by orders: 2, since 2026-11-21T18:03:07.250Z";
    terminal.shows(|screen| screen.contains(orders));
    terminal.resize(220, 24);
    terminal.press(&["g"]);
    let has_row = |screen: &str, row: &[&str]| {
        screen.lines().any(|line| line.split_whitespace().eq(row.iter().copied()))
    };
    terminal.shows(|screen| {
        has_row(screen, &["9", "4", "2", "3", "0", "1", "1", "1.000s", "0", "-", "-", "other"])
            && screen.lines().any(|line| line.ends_with(" search,bots bots      other  bot:1"))
            && screen.contains(orders)
    });
    terminal.press(&["o"]);
    let held = ["1.000s", "me", "1", "#7", "10.0.0.9:4711", "bots", "bots", "bot:1"];
    terminal.shows(|screen| has_row(screen, &held));
}

#[test]
fn it_fits_any_terminal_and_leaves_it_as_it_was() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("ACQ4ME article:hot 1 9 0"), "LOCKED");
    let Some(terminal) = Terminal::start(20, 5, "env PS1='ready> ' bash --norc --noprofile -i")
    else {
        return;
    };
    terminal.shows(|screen| screen.contains("ready>"));
    let top = format!("P='{} -s {}'", binary().display(), server.address());
    terminal.type_line(&top);
    terminal.type_line("clear; $P top");
    terminal.shows(|screen| screen.starts_with("poolcounter top") && screen.contains("q quit"));
    terminal.press(&["h"]);
    for (columns, lines) in [(2, 2), (100, 30)] {
        terminal.resize(columns, lines);
    }
    terminal.shows(|screen| screen.contains("[h hot keys in ") && screen.contains("article:hot"));
    terminal.press(&["o"]);
    terminal.shows(|screen| {
        screen.lines().any(|line| line.contains(" #1 127.0.0.1:") && line.ends_with(" article:hot"))
    });
    // Stopped, it restores the terminal; continued, it takes it again.
    terminal.press(&["C-z"]);
    terminal.shows(|screen| screen.contains("Stopped") && !screen.contains("article:hot"));
    terminal.type_line("clear; fg");
    terminal.shows(|screen| screen.contains("article:hot") && !screen.contains("ready>"));
    terminal.press(&["q"]);
    terminal.shows(|screen| screen.contains("ready>"));
    // It restores it on SIGTERM too. `stty` prints the settings of the terminal.
    terminal.type_line("clear; timeout --foreground 1 $P top; echo status $?; stty -a");
    terminal.shows(|screen| screen.contains("status 124") && screen.contains(" icanon "));
    // A terminal that can't move its cursor gets one screen.
    terminal.type_line("clear; TERM=dumb $P top; echo status $?");
    terminal.shows(|screen| screen.contains("article:hot") && screen.contains("status 0"));
}

/// `kill -TSTP` works like Ctrl-Z. After SIGSTOP, it can't restore the terminal, but
/// redraws everything when continued.
#[test]
fn it_is_stopped_and_ended_by_kill_like_any_job() {
    let Some(terminal) = Terminal::start(90, 12, "env PS1='ready> ' bash --norc --noprofile -i")
    else {
        return;
    };
    let line = format!("P='{} -s {}'", binary().display(), scripted(lists));
    terminal.type_line(&line);
    terminal.type_line("clear; $P top");
    terminal.shows(|screen| screen.contains("article:stuck") && !screen.contains("ready>"));
    let top = terminal.foreground_process();
    for signal in [Signal::TSTP, Signal::STOP] {
        kill_process(top, signal).expect("a signal");
        terminal.shows(|screen| screen.contains("ready>"));
        terminal.type_line("clear; fg");
        terminal.shows(|screen| screen.contains("article:stuck") && !screen.contains("ready>"));
    }
    kill_process(top, Signal::TSTP).expect("a signal");
    terminal.shows(|screen| screen.contains("Stopped") && !screen.contains("article:stuck"));
    // As bash's `kill` of a stopped job, which can't draw in the background.
    terminal.type_line("clear; kill %1");
    assert!(eventually(|| !is_alive(top)), "{}", terminal.screen());
}

#[test]
fn an_arrow_key_in_two_parts_does_not_quit() {
    let Some(terminal) = top(&scripted(lists), "article:stuck") else { return };
    terminal.press(&["Escape"]);
    terminal.press(&["["]);
    terminal.press(&["B"]);
    terminal.press(&["c"]);
    terminal.shows(|screen| screen.contains("10.0.0.9"));
}

/// Whether the other side keeps this connection open.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0; 1];
    let peeked = recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    peeked.is_err_and(|e| e == Errno::AGAIN)
}

#[test]
fn a_silent_server_hides_neither_the_next_server_nor_its_own_lists() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = Arc::clone(&is_silent);
    // The question that the first server leaves unanswered.
    let waiting: Arc<Mutex<Option<TcpStream>>> = Arc::default();
    let asked = Arc::clone(&waiting);
    let first = scripted_by_connection(move |question, stream| {
        if silent.load(Ordering::Relaxed) {
            *asked.lock().expect("no panic") = stream.try_clone().ok();
        }
        while !eventually(|| !silent.load(Ordering::Relaxed)) {}
        lists(question)
    });
    let is_asked_meanwhile = Arc::new(AtomicBool::new(false));
    let meanwhile = Arc::clone(&is_asked_meanwhile);
    let second = scripted(move |question| {
        if waiting.lock().expect("no panic").as_ref().is_some_and(is_open) {
            meanwhile.store(true, Ordering::Relaxed);
        }
        lists(question)
    });
    let Some(terminal) = top(&format!("{first},{second}"), "article:stuck") else { return };
    terminal.shows(|screen| screen.matches("article:stuck").count() == 2);
    is_silent.store(true, Ordering::Relaxed);
    terminal.press(&["Down", "Up", "Down", "Up", "c"]);
    terminal.shows(|screen| screen.contains("[c clients]") && !screen.contains("article"));
    let clients_of = |screen: &str| -> Vec<String> {
        let rows = screen.lines().filter(|line| line.ends_with(" 10.0.0.9"));
        rows.map(|row| row.split_whitespace().next().unwrap_or_default().to_owned()).collect()
    };
    terminal.shows(|screen| clients_of(screen) == [second.clone()]);
    let is_met = eventually(|| is_asked_meanwhile.load(Ordering::Relaxed));
    assert!(is_met, "the second is asked only when the first one has no question");
    terminal.shows(|screen| screen.contains(" s ago: "));
    terminal.press(&["n"]);
    terminal.shows(|screen| screen.contains(&first) && !screen.contains("10.0.0.9"));
    terminal.press(&["n"]);
    terminal.shows(|screen| !screen.contains(&first) && screen.contains("10.0.0.9"));
    is_silent.store(false, Ordering::Relaxed);
    terminal.press(&["n"]);
    let both = [first.clone(), second.clone()];
    terminal.shows(|screen| clients_of(screen) == both && !screen.contains(" s ago: "));
}

/// All servers, then each alone, with the same sort order.
#[test]
fn several_servers_are_shown_in_one_list_or_each_alone() {
    let (first, second) = (scripted(lists), scripted(lists));
    let Some(terminal) = top(&format!("{first},{second},127.0.0.1:1"), "article:stuck") else {
        return;
    };
    let rows = |screen: &str| screen.matches(" article:").count();
    terminal.shows(|screen| {
        screen.contains("poolcounter top  3 servers")
            && screen.lines().any(|line| {
                line.starts_with("127.0.0.1:1 ")
                    && line.contains(" down or draining: Connection refused")
            })
            && rows(screen) == 4
            && line_of(screen, "article:stuck") == line_of(screen, "article:busy").saturating_add(2)
    });
    // By the fifth column, which is the fourth of one server.
    terminal.press(&[">", ">", ">", ">", ">"]);
    terminal.shows(|screen| screen.contains("oldest_holdv"));
    for (shown, hidden) in [(&first, &second), (&second, &first)] {
        terminal.press(&["n"]);
        terminal.shows(|screen| {
            let is_alone = screen.contains(shown.as_str()) && !screen.contains(hidden.as_str());
            is_alone && rows(screen) == 2 && screen.contains("oldest_holdv")
        });
    }
    terminal.press(&["n"]);
    terminal
        .shows(|screen| screen.contains("127.0.0.1:1: Connection refused") && rows(screen) == 0);
    terminal.press(&["n", "c"]);
    terminal.shows(|screen| {
        screen.lines().filter(|line| line.ends_with(" 10.0.0.9")).count() == 2
            && screen.contains("3 servers")
    });
}

/// A list that was cut at the server's maximum.
fn crowded(question: &str) -> String {
    let hot = serde_json::json!({
        "name": LONG_KEY, "count": 12.0, "error": 0.0, "requests": 1, "acquired": 2, "done": 3,
        "refused": 4, "timed_out": 5, "waited_s": 6.0, "held_s": 7.0,
    });
    let json = match question {
        "STATS JSON KEYS 200" => {
            let key = serde_json::json!({ "key": LONG_KEY, "holders": 1, "for_me": 0 });
            serde_json::json!({ "keys_total": 5002, "keys": [key] })
        }
        "STATS JSON TOP minute keys" => {
            serde_json::json!({ "requests_total": 612, "covered_s": 12.5, "by_requests": [hot] })
        }
        question => return lists(question),
    };
    format!("{json}\n\n")
}

/// 40 characters: half of a terminal.
const LONG_KEY: &str = "6b05410dccc1aca656850f122dce578470068867";

/// Of a key that the list has cut: all of it, its holders and waiters, and the command that frees
/// it, which works as it is shown.
#[test]
fn enter_shows_one_key_and_how_to_free_it() {
    let daemon = Operated::start();
    let (server, control) = (&daemon.server, daemon.path());
    let key = |n: u32| format!("page:{}:café:{n}", "x".repeat(200));
    let mut holder = server.connect();
    for n in 1..=2 {
        assert_eq!(holder.ask(&format!("ACQ4ME {} 1 9 0", key(n))), "LOCKED");
    }
    let mut waiter = server.connect();
    waiter.send(&format!("ACQ4ME {} 1 9 60", key(1)));
    waiter.settle();
    let Some(terminal) = top(&server.address().to_string(), "page:") else { return };
    terminal.press(&["Enter"]);
    terminal.shows(|screen| screen.contains("2 keys begin with page:xxx"));
    terminal.press(&["Enter"]);
    terminal.shows(|screen| screen.contains("[k keys now]"));
    holder.exchange("RELEASE", "RELEASED");
    terminal.press(&["Enter"]);
    let one_line = |screen: &str| screen.lines().collect::<String>();
    let screen = terminal.shows(|screen| {
        one_line(screen).contains(&format!("key: {}", key(1)))
            && ["holders: 1", "for_me: 1", "holder me", "waiter me", "Enter back"]
                .iter()
                .all(|words| screen.contains(words))
    });
    let all = one_line(&screen);
    let (_, free) = all.split_once("poolcounter free ").expect("the command");
    let (free, _) = free.split_once("' ").or_else(|| free.split_once("'w")).expect("its end");
    let line = format!("exec \"$0\" free {free}' --control-socket {control}");
    let freed = shell("", &line);
    assert_eq!(freed.code, Some(0), "{line}: {}{}", freed.stdout, freed.stderr);
    waiter.expect("LOCKED");
    holder.expect_end();
    terminal.shows(|screen| screen.contains("for_me: 0"));
    terminal.press(&["q"]);
    terminal.shows(|screen| screen.contains("left with 0"));
}

#[test]
fn rows_are_filtered_and_all_keyboard_commands_are_listed() {
    let Some(terminal) = top(&scripted(lists), "article:stuck") else { return };
    terminal.press(&["?"]);
    terminal.shows(|screen| screen.contains("Keyboard commands") && screen.contains("Ctrl-Z"));
    terminal.press(&["x"]);
    terminal.shows(|screen| screen.contains("article:stuck") && !screen.contains("Ctrl-Z"));
    terminal.press(&["/", "q", "q"]);
    terminal.shows(|screen| screen.contains("filter: qq_") && !screen.contains("article"));
    terminal.press(&["C-u", "B", "U", "S", "Enter"]);
    terminal.shows(|screen| {
        screen.contains("[k keys now with BUS]")
            && screen.contains("article:busy")
            && !screen.contains("article:stuck")
            && screen.contains("q quit")
    });
    terminal.press(&["k"]);
    terminal.shows(|screen| screen.contains("article:stuck"));
    terminal.press(&["G", "Enter"]);
    terminal.shows(|screen| screen.contains("key: 7"));
}

#[test]
fn a_key_keeps_half_of_the_width() {
    let is_cut = |screen: &str| {
        let ends = screen.contains(&LONG_KEY[..10]) && screen.contains(&LONG_KEY[30..]);
        ends && !screen.contains(LONG_KEY) && screen.contains('…')
    };
    let Some(terminal) = top(&scripted(crowded), LONG_KEY) else { return };
    terminal.press(&["h"]);
    terminal.resize(80, 24);
    let names = |screen: &str| -> Vec<String> {
        let names = screen.lines().find(|line| line.ends_with(" name")).unwrap_or_default();
        names.split_whitespace().map(str::to_owned).collect()
    };
    terminal.shows(|screen| screen.contains(LONG_KEY) && names(screen).contains(&"refused".into()));
    terminal.resize(60, 24);
    terminal.shows(|screen| {
        let has_errors = names(screen).iter().any(|name| name.starts_with("error"));
        is_cut(screen) && !has_errors
    });
    // The column that sorts the list is shown.
    terminal.press(&[">", ">"]);
    terminal.shows(|screen| is_cut(screen) && screen.contains(" errorv "));
    terminal.resize(140, 24);
    terminal.shows(|screen| names(screen).len() == 10);
}

#[test]
fn a_list_shows_how_many_rows_it_omits() {
    let Some(terminal) = top(&scripted(crowded), "[k keys now: 1 of 5002]") else { return };
    terminal.press(&["h"]);
    terminal.shows(|screen| screen.contains("[h hot keys: 1 of 612 in 12.500s]"));
    terminal.press(&["o"]);
    terminal.shows(|screen| screen.contains("[o oldest holders: 1 of 2]"));
    terminal.resize(40, 24);
    terminal.shows(|screen| screen.contains("[o oldest holders: 1 of 2]"));
}

/// They stay on the screen, with their age.
#[test]
fn numbers_of_a_hung_daemon_are_marked_old() {
    let server = Server::start();
    let mut client = server.connect();
    assert_eq!(client.ask("ACQ4ME article:hot 1 9 0"), "LOCKED");
    let Some(terminal) = top(&server.address().to_string(), "article:hot") else { return };
    let is_there = |screen: &str| screen.contains("article:hot") && screen.contains("keys 1 ");
    terminal.shows(is_there);
    server.signal(Signal::STOP);
    terminal.shows(|screen| is_there(screen) && screen.contains(" s ago: "));
    terminal.shows(|screen| is_there(screen) && screen.contains("no answer within 5 seconds"));
    server.signal(Signal::CONT);
    terminal.shows(|screen| is_there(screen) && !screen.contains(" s ago"));
}

#[test]
fn for_the_c_daemon_it_shows_the_statistics() {
    let Some(reference) = Server::reference() else { return };
    let Some(terminal) = top(&reference.address().to_string(), "This server has no lists") else {
        return;
    };
    terminal.shows(|screen| screen.contains("waiting time for anyone"));
    terminal.press(&["C-c"]);
    terminal.shows(|screen| screen.contains("left with 0"));
}

#[test]
fn a_server_that_ends_is_reported() {
    let server = Server::start();
    let Some(terminal) = top(&server.address().to_string(), "up 0 days") else { return };
    drop(server);
    terminal.shows(|screen| screen.contains("Connection refused"));
    terminal.press(&["q"]);
    terminal.shows(|screen| screen.contains("left with 0"));
}
