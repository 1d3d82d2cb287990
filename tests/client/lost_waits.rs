//! Waits whose connection ends, as when the daemon is restarted: they start again.

use crate::command::{binary, full, key_of, key_of_first, poolcounter, start, stderr_line};
use crate::running::{complaint, end, first_line, lasting};
use crate::support::restart::{Place, restart};
use crate::support::stopwatch::{Stopwatch, pause};
use crate::support::{
    Finished, Server, daemon_command, eventually, finish, send_signal, wait_for_exit,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A daemon where another one was.
fn again(address: SocketAddr) -> Server {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    Server::spawn(&mut daemon_command(&["-l", &ip, "-p", &port]))
}

/// The request lines that a played server got.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<String>>>);

impl Requests {
    fn list(&self) -> Vec<String> {
        self.0.lock().expect("a list").clone()
    }

    fn count(&self) -> usize {
        self.list().len()
    }

    /// The timeouts that they ask for.
    fn timeouts_s(&self) -> Vec<u64> {
        let last = |line: &String| line.rsplit(' ').next().and_then(|word| word.parse().ok());
        self.list().iter().map(|line| last(line).expect("a timeout")).collect()
    }
}

/// A server that has just been started each time it is asked for its uptime. It answers the
/// request of this number, from 1 on, with `answer`; an empty one ends the connection. It keeps
/// connections open otherwise.
fn played(answer: impl Fn(usize) -> &'static str + Send + Sync + 'static) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("an address").to_string();
    let requests = Requests::default();
    let (answer, asked) = (Arc::new(answer), requests.clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, asked) = (Arc::clone(&answer), asked.clone());
            thread::spawn(move || converse(&stream, &asked, &*answer));
        }
    });
    (name, requests)
}

fn converse(mut stream: &TcpStream, asked: &Requests, answer: &dyn Fn(usize) -> &'static str) {
    let lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    for line in lines.map_while(Result::ok) {
        let said = match line.as_str() {
            "STATS UPTIME" => "uptime: 0 days, 0h 0m 0s\n",
            "STATS JSON" => "{\"uptime_s\":0.0}\n\n",
            "RELEASE" => "RELEASED\n",
            // Who holds the key.
            line if line.starts_with("STATS ") => "ERROR WRONG_STAT\n",
            _ => {
                asked.0.lock().expect("a list").push(line);
                answer(asked.count())
            }
        };
        if said.is_empty() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
        let _ = stream.write_all(said.as_bytes());
    }
}

/// What becomes of a `poolcounter run` that prints the key of its lock.
fn run(list: &str, options: &[&str], key: &str) -> Finished {
    let command = [key, "--", "sh", "-c", "echo \"${POOLCOUNTER_KEY-none}\""];
    finish(&mut poolcounter(list, &[&["run"], options, &command].concat()))
}

/// A `poolcounter run` that prints the key of its lock; waits in the queue of `server`.
fn waiter(server: &Server, list: &str, options: &[&str], key: &str) -> Child {
    let waiting = server.counter("waiting_workers");
    let command = [key, "--", "sh", "-c", "echo \"${POOLCOUNTER_KEY-none}\"; exec cat"];
    let mut command = poolcounter(list, &[&["run"], options, &command].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("start it");
    assert!(eventually(|| server.counter("waiting_workers") == waiting + 1), "it does not wait");
    child
}

#[test]
fn a_job_that_waits_gets_its_lock_after_a_restart_of_the_daemon() {
    for options in [&["-t", "600"][..], &["-t", "600", "--fallback"], &[]] {
        let server = Server::start_apart(&[]);
        let address = server.address();
        let (holder, _) = lasting(&server, &["k"]);
        let mut waiter = waiter(&server, &address.to_string(), options, "k");
        drop(server);
        let server = again(address);
        assert_eq!(first_line(&mut waiter), "k", "{options:?}");
        assert_eq!(server.counter("processing_workers"), 1);
        assert_eq!(end(waiter).code(), Some(0));
        end(holder);
    }
}

/// Others return to it too, so the next server does not grant a second lock.
#[test]
fn a_server_that_is_back_is_asked_again_with_the_time_that_is_left() {
    let other = Server::start();
    let (first, requests) = played(|number| match number {
        1 => {
            pause(Duration::from_millis(1100));
            ""
        }
        2 => "",
        _ => "LOCKED\n",
    });
    let names = [first, other.address().to_string()];
    let key = key_of_first(&names);
    let done = run(&names.join(","), &["-t", "600", "--fallback"], &key);
    assert_eq!(done.stdout, format!("{key}\n"), "{}", done.stderr);
    assert_eq!(other.counter("total_acquired"), 0);
    let timeouts_s = requests.timeouts_s();
    assert!(timeouts_s.len() == 3 && timeouts_s[0] == 600, "{timeouts_s:?}");
    assert!(timeouts_s[1] <= 599 && timeouts_s[2] <= timeouts_s[1], "{timeouts_s:?}");
}

#[test]
fn the_next_server_is_asked_when_one_does_not_come_back() {
    let fallback = ["-v", "--fallback", "--connect-timeout", "2"];
    for options in [&[&fallback[..], &["-t", "600"]].concat(), &fallback[..]] {
        let (own, other) = (Server::start_apart(&[]), Server::start());
        let [own_name, other_name] = [&own, &other].map(|server| server.address().to_string());
        let key = key_of([&own, &other]);
        let (holder, _) = lasting(&own, &[&key]);
        let mut waiter = waiter(&own, &format!("{own_name},{other_name}"), options, &key);
        let since_loss = Stopwatch::start();
        drop(own);
        assert_eq!(first_line(&mut waiter), key);
        since_loss.at_least(Duration::from_secs(2));
        drop(waiter.stdin.take());
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
        let lines = complaint(&mut waiter);
        let lost = format!("{key}: the connection to {own_name} is lost during the wait: ");
        let passed_over = format!("{key}: {own_name} is passed over: Connection refused");
        assert!(lines.contains(&lost) && lines.contains(&passed_over), "{lines}");
        assert!(lines.contains(&format!("{key}: {other_name} gave the lock")), "{lines}");
        end(holder);
    }
}

/// "No server" means that none of the list answers.
#[test]
fn jobs_of_a_dead_server_take_turns_on_the_next_one() {
    let (own, other) = (Server::start_apart(&[]), Server::start());
    let names = [&own, &other].map(|server| server.address().to_string());
    let key = key_of([&own, &other]);
    let (holder, _) = lasting(&own, &[&key]);
    let options = ["--no-server", "run", "--fallback", "--connect-timeout", "2"];
    let start = |_| waiter(&own, &names.join(","), &options, &key);
    let mut waiters = [0, 1, 2, 3].map(start);
    drop(own);
    // One has the lock.
    assert!(eventually(|| other.counter("waiting_workers") == 3));
    assert_eq!(other.counter("processing_workers"), 1);
    // They come in any order.
    waiters.iter_mut().for_each(|waiter| drop(waiter.stdin.take()));
    for mut waiter in waiters {
        assert_eq!(first_line(&mut waiter), key);
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(0));
    }
    assert_eq!(other.counter("total_acquired"), 4);
    end(holder);
}

#[test]
fn without_a_fallback_no_other_server_is_asked_after_a_lost_wait() {
    let (own, other) = (Server::start_apart(&[]), Server::start());
    let names = [&own, &other].map(|server| server.address().to_string());
    let (list, address) = (names.join(","), own.address());
    let key = key_of([&own, &other]);
    let (holder, _) = lasting(&own, &[&key]);
    let short = ["--connect-timeout", "1"];
    let started = [&short[..], &["-t", "600"]].map(|options| waiter(&own, &list, options, &key));
    let [mut short, mut timed] = started;
    drop(own);
    assert_eq!(wait_for_exit(&mut short).code(), Some(75));
    let line = complaint(&mut short);
    assert!(line.contains(&format!("{key}: the connection to {} is lost: ", names[0])), "{line}");
    let own = again(address);
    assert_eq!(first_line(&mut timed), key);
    assert_eq!(end(timed).code(), Some(0));
    assert_eq!(other.counter("total_acquired"), 0);
    assert_eq!(own.counter("total_acquired"), 1);
    end(holder);
}

#[test]
fn a_wait_ends_in_time_if_no_server_comes_back() {
    let server = Server::start_apart(&[]);
    let list = server.address().to_string();
    let (holder, _) = lasting(&server, &["k"]);
    let since_asked = Stopwatch::start();
    let start = |policy| waiter(&server, &list, &["-t", "5", "--no-server", policy], "k");
    let waiters = [("fail", 75, ""), ("run", 0, "none")]
        .map(|(policy, code, printed)| (start(policy), code, printed));
    drop(server);
    for (mut waiter, code, printed) in waiters {
        drop(waiter.stdin.take());
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(code));
        since_asked.at_least(Duration::from_secs(5));
        assert_eq!(first_line(&mut waiter), printed);
        let line = complaint(&mut waiter);
        assert!(line.contains(&format!("k: the connection to {list} is lost: ")), "{line}");
    }
    end(holder);
}

/// The time is over with a server that hangs.
#[test]
fn a_server_that_answers_is_no_missing_server() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = Server::start();
    let first = silent.local_addr().expect("an address").to_string();
    let names = [first, other.address().to_string()];
    let (list, key) = (names.join(","), key_of_first(&names));
    let options = ["run", "--no-server", "run", "--fallback", "-t", "1"];
    let command = [&options[..], &[&key, "--", "echo", "ran"]].concat();
    let output = finish(&mut poolcounter(&list, &command));
    assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
    assert!(output.stderr.contains(" answers; \"echo\" was not run"), "{}", output.stderr);
    assert_eq!(other.counter("total_acquired"), 0);
}

#[test]
fn a_connection_that_ends_before_the_request_is_read_is_a_lost_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let requests = Requests::default();
    let asked = requests.clone();
    thread::spawn(move || {
        drop(listener.accept());
        for stream in listener.incoming().flatten() {
            converse(&stream, &asked, &|_| "LOCKED\n");
        }
    });
    let done = run(&address.to_string(), &["-t", "600"], "k");
    assert_eq!(done.stdout, "k\n", "{}", done.stderr);
    assert_eq!(requests.count(), 1);
}

#[test]
fn an_answer_ends_the_attempt() {
    for (answer, code) in
        [("QUEUE_FULL\n", 1), ("TIMEOUT\n", 1), ("DONE\n", 0), ("ERROR BAD_SYNTAX\n", 76)]
    {
        let (server, requests) = played(move |number| if number == 1 { "" } else { answer });
        let done = run(&server, &["-t", "600"], "k");
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(code), ""),
            "{answer}: {}",
            done.stderr
        );
        assert_eq!(requests.count(), 2, "{answer}");
    }
}

#[test]
fn a_wait_that_an_operator_ends_does_not_start_again() {
    let place = Place::with_daemon();
    let control = place.path("c").display().to_string();
    let own = place.start(&["--control", &control]);
    let other = Server::start();
    let names = [&own, &other].map(|server| server.address().to_string());
    let key = key_of([&own, &other]);
    let mut holder = own.connect();
    let sent_key = key.replace(' ', "%20");
    assert_eq!(holder.ask(&format!("ACQ4ME {sent_key} 1 99 60")), "LOCKED");
    let options = ["--no-server", "run", "--fallback", "-t", "600"];
    let mut waiter = waiter(&own, &names.join(","), &options, &key);
    let free = ["free", "--control-socket", &control, "--host", "127.0.0.1"];
    assert_eq!(finish(&mut poolcounter("", &free)).code, Some(0));
    assert_eq!(wait_for_exit(&mut waiter).code(), Some(75));
    let line = complaint(&mut waiter);
    assert!(line.starts_with(&format!("poolcounter: {key}: {} closed", names[0])), "{line}");
    assert_eq!(first_line(&mut waiter), "");
    assert_eq!(own.counter("total_acquired") + other.counter("total_acquired"), 1);
}

#[test]
fn a_lock_that_is_not_waited_for_survives_a_restart() {
    let (server, requests) = played(|number| if number < 5 { "" } else { "LOCKED\n" });
    let done = run(&server, &["-t", "0"], "k");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "k\n"), "{}", done.stderr);
    assert_eq!(requests.timeouts_s(), [0; 5]);
}

/// It gains no time by that: the next server is asked, or the wait ends.
#[test]
fn a_server_that_ends_again_and_again_is_passed_over() {
    let (broken, requests) = played(|_| "");
    let trying = Stopwatch::start();
    assert_eq!(run(&broken, &["--connect-timeout", "2"], "k").code, Some(75));
    trying.at_least(Duration::from_secs(2));
    assert!(requests.count() <= 21, "{} requests in two seconds", requests.count());
    let other = Server::start();
    let names = [broken, other.address().to_string()];
    let key = key_of_first(&names);
    let fallback = ["--fallback", "--connect-timeout", "2", "-t", "600"];
    let done = run(&names.join(","), &fallback, &key);
    assert_eq!(done.stdout, format!("{key}\n"), "{}", done.stderr);
    let passed_over = format!("{} is passed over: it ends again and again\n", names[0]);
    assert!(done.stderr.contains(&passed_over), "{}", done.stderr);
    let trying = Stopwatch::start();
    assert_eq!(run(&names[0], &["-t", "4"], "k").code, Some(75));
    trying.at_least(Duration::from_secs(4));
}

#[test]
fn a_signal_ends_the_command_between_two_tries_and_in_the_second_wait() {
    binary();
    let server = Server::start_apart(&[]);
    let (holder, _) = lasting(&server, &["k"]);
    let mut between = start(&server, &["-v", "-t", "600", "k", "--", "echo", "ran"]);
    assert!(eventually(|| server.counter("waiting_workers") == 1));
    drop(server);
    while !stderr_line(&mut between).contains(" is lost during the wait") {}
    let (again, requests) = played(|number| match number {
        1 => "",
        _ => loop {
            thread::park();
        },
    });
    let command = ["run", "-t", "600", "k", "--", "echo", "ran"];
    let mut waiting = poolcounter(&again, &command);
    let waiting = waiting.stdout(Stdio::piped()).spawn().expect("start it");
    assert!(eventually(|| requests.count() == 2));
    for mut run in [between, waiting] {
        kill_process(Pid::from_child(&run), Signal::TERM).expect("a signal");
        assert_eq!(wait_for_exit(&mut run).signal(), Some(15));
        let mut printed = String::new();
        run.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
        assert_eq!(printed, "");
    }
    end(holder);
}

/// Also one that does not wait for the lock: the kernel sends a lost packet again after a second.
#[test]
fn a_lost_packet_costs_no_lock() {
    let (listener, queued) = full();
    let address = listener.local_addr().expect("an address").to_string();
    let mut run = poolcounter(&address, &["run", "-t", "0", "k", "--", "echo", "ran"]);
    let mut run = run.stdout(Stdio::piped()).spawn().expect("start it");
    // The kernel tells nobody that it drops the first packet.
    pause(Duration::from_millis(300));
    drop(queued);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || converse(&stream, &Requests::default(), &|_| "LOCKED\n"));
        }
    });
    assert_eq!(first_line(&mut run), "ran");
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
}

#[test]
fn a_job_that_starts_while_the_daemon_restarts_waits_for_it() {
    let server = Server::start();
    let address = server.address();
    drop(server);
    let mut run = poolcounter(&address.to_string(), &["run", "-t", "20", "k", "--", "echo", "ran"]);
    let mut run = run.stdout(Stdio::piped()).spawn().expect("start it");
    pause(Duration::from_secs(1));
    let _server = again(address);
    assert_eq!(first_line(&mut run), "ran");
    assert_eq!(wait_for_exit(&mut run).code(), Some(0));
}

/// Whether the end of a connection has reached the process, which has not closed its own side
/// (proc_net_tcp(5)).
fn has_an_end_to_read(run: &Child) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", run.id())).expect("descriptors");
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let sockets: Vec<String> = targets.map(|target| target.display().to_string()).collect();
    let connections = std::fs::read_to_string("/proc/net/tcp").expect("connections");
    let mut rows = connections.lines().skip(1).map(|row| row.split_whitespace());
    rows.any(|mut row| {
        let (state, inode) = (row.nth(3).expect("a state"), row.nth(5).expect("an inode"));
        state == CLOSE_WAIT && sockets.contains(&format!("socket:[{inode}]"))
    })
}

/// As the kernel's tcp_states.h has it.
const CLOSE_WAIT: &str = "08";

/// The end is behind `LOCKED`, and both are there when `run` continues.
#[test]
fn no_command_is_started_when_the_daemon_has_taken_the_lock_back() {
    for order in [&["free", "--key", "k"][..], &["rule", "set", "r", "k", "max-hold=1s"]] {
        let place = Place::with_daemon();
        let control = place.path("c").display().to_string();
        let server = place.start(&["--control", &control]);
        let mut holder = server.connect();
        assert_eq!(holder.ask("ACQ4ME k 1 99 60"), "LOCKED");
        let mut waiter = waiter(&server, &server.address().to_string(), &["-t", "600"], "k");
        send_signal(&waiter, Signal::STOP);
        assert_eq!(holder.ask("RELEASE"), "RELEASED");
        let order = [order, &["--control-socket", &control]].concat();
        assert_eq!(finish(&mut poolcounter("", &order)).code, Some(0), "{order:?}");
        assert!(eventually(|| has_an_end_to_read(&waiter)), "{order:?}");
        send_signal(&waiter, Signal::CONT);
        assert_eq!(wait_for_exit(&mut waiter).code(), Some(75), "{order:?}");
        assert_eq!(first_line(&mut waiter), "", "{order:?}");
        let said = complaint(&mut waiter);
        let gave = format!("poolcounter: k: {} gave the lock, and closed", server.address());
        assert!(said.starts_with(&gave), "{said}");
        assert!(said.ends_with("; \"sh\" was not run\n"), "{said}");
    }
}

#[test]
fn a_lock_that_is_lost_by_a_restart_before_the_command_is_started_is_asked_for_again() {
    let server = Server::start_apart(&[]);
    let address = server.address();
    let mut holder = server.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 99 60"), "LOCKED");
    let mut waiter = waiter(&server, &address.to_string(), &["-t", "600"], "k");
    send_signal(&waiter, Signal::STOP);
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    drop(server);
    assert!(eventually(|| has_an_end_to_read(&waiter)));
    let server = again(address);
    let mut holder = server.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 99 60"), "LOCKED");
    send_signal(&waiter, Signal::CONT);
    assert!(eventually(|| server.counter("waiting_workers") == 1), "it does not wait");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    assert_eq!(first_line(&mut waiter), "k");
    assert_eq!(end(waiter).code(), Some(0));
}

#[test]
fn a_lock_that_survives_a_hot_restart_is_used_by_a_run_that_was_stopped() {
    let place = Place::with_daemon();
    let server = place.start(&[]);
    let mut holder = server.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 99 60"), "LOCKED");
    let mut waiter = waiter(&server, &server.address().to_string(), &["-t", "600"], "k");
    send_signal(&waiter, Signal::STOP);
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    restart(&server);
    send_signal(&waiter, Signal::CONT);
    assert_eq!(first_line(&mut waiter), "k");
    assert_eq!(end(waiter).code(), Some(0));
    assert_eq!(server.counter("total_acquired"), 2);
}
