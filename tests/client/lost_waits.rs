//! Waits whose connection ends, as when the daemon is restarted: they start again.

use crate::command::{binary, full, key_of, key_of_first, poolcounter, start, stderr_line};
use crate::running::{complaint, end, first_line, lasting};
use crate::support::operated::Operated;
use crate::support::stopwatch::pause;
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
    fn count(&self) -> usize {
        self.0.lock().expect("a list").len()
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
fn a_wait_that_an_operator_ends_does_not_start_again() {
    let daemon = Operated::start();
    let (own, other) = (&daemon.server, Server::start());
    let names = [own, &other].map(|server| server.address().to_string());
    let key = key_of([own, &other]);
    let mut holder = own.connect();
    let sent_key = key.replace(' ', "%20");
    assert_eq!(holder.ask(&format!("ACQ4ME {sent_key} 1 99 60")), "LOCKED");
    let options = ["--no-server", "run", "--fallback", "-t", "600"];
    let mut waiter = waiter(own, &names.join(","), &options, &key);
    assert_eq!(daemon.poolcounter(&["free", "--host", "127.0.0.1"]).code, Some(0));
    assert_eq!(wait_for_exit(&mut waiter).code(), Some(75));
    let line = complaint(&mut waiter);
    assert!(line.starts_with(&format!("poolcounter: {key}: {} closed", names[0])), "{line}");
    assert_eq!(first_line(&mut waiter), "");
    assert_eq!(own.counter("total_acquired") + other.counter("total_acquired"), 1);
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
        let daemon = Operated::start();
        let server = &daemon.server;
        let mut holder = server.connect();
        assert_eq!(holder.ask("ACQ4ME k 1 99 60"), "LOCKED");
        let mut waiter = waiter(server, &server.address().to_string(), &["-t", "600"], "k");
        send_signal(&waiter, Signal::STOP);
        assert_eq!(holder.ask("RELEASE"), "RELEASED");
        assert_eq!(daemon.poolcounter(order).code, Some(0), "{order:?}");
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
