//! The client for Rust, with our daemon and Debian's.

use crate::command::{full, key_of, key_of_first, servers};
use crate::support::stopwatch::Stopwatch;
use crate::support::{PATIENCE, Server, eventually, read_some};
use poolcounter::{
    Answer, Client, Conversation, Error, Lock, LockRequest, NestedLock, Outcome, Refusal,
    ServerName,
};
use rustix::net::sockopt;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

fn client(server: &Server) -> Client {
    patient([name(server)])
}

/// A client that tolerates a busy machine.
fn patient(servers: impl IntoIterator<Item = ServerName>) -> Client {
    Client::new(servers).connect_timeout(PATIENCE).answer_timeout(PATIENCE)
}

fn name(server: &Server) -> ServerName {
    server.address().to_string().parse().expect("a server")
}

#[track_caller]
fn locked<G: std::fmt::Debug>(outcome: Result<Outcome<G>, Error>) -> G {
    match outcome {
        Ok(Outcome::Locked(guard)) => guard,
        other => panic!("{other:?}"),
    }
}

fn at_once(key: &str) -> LockRequest {
    LockRequest::new(key).timeout(Duration::ZERO)
}

/// Waits until `count` locks are held.
#[track_caller]
fn held(server: &Server, count: u64) {
    assert!(eventually(|| server.counter("processing_workers") == count), "not {count}");
}

#[test]
fn a_dropped_guard_releases_its_lock() {
    for server in servers() {
        let client = client(&server);
        let lock = locked(client.lock(&at_once("k")));
        assert!(matches!(client.lock(&at_once("k")), Ok(Outcome::TimedOut)));
        assert!(matches!(client.lock(&at_once("k").max_queue(1)), Ok(Outcome::QueueFull)));
        lock.release().expect("released");
        drop(locked(client.lock(&at_once("k"))));
        held(&server, 0);
    }
}

/// A client that waits for anyone's work; the thread returns the outcome.
fn waiter(server: &Server) -> thread::JoinHandle<&'static str> {
    let client = client(server);
    let waiter = thread::spawn(move || match client.lock(&LockRequest::new("k").any()) {
        Ok(Outcome::Done) => "done",
        Ok(Outcome::Locked(_)) => "locked",
        _ => "neither",
    });
    assert!(eventually(|| server.counter("waiting_workers") == 1));
    waiter
}

/// The documents' example, with work that fails.
fn failing_job(lock: Lock) -> Result<(), Box<dyn std::error::Error>> {
    Err(std::io::Error::other("no disk"))?;
    Ok(lock.release()?)
}

#[test]
fn only_finished_work_is_reported_as_done() {
    type End = fn(Lock);
    let ends: [(End, &str); 4] = [
        (|lock| lock.release().expect("released"), "done"),
        (drop, "locked"),
        (|lock| assert!(failing_job(lock).is_err()), "locked"),
        (
            |lock| {
                let panicked = thread::spawn(move || {
                    let _lock = lock;
                    // Panics without printing a message.
                    std::panic::resume_unwind(Box::new(()));
                });
                assert!(panicked.join().is_err());
            },
            "locked",
        ),
    ];
    for server in servers() {
        for (end, expected) in ends {
            let lock = locked(client(&server).lock(&at_once("k")));
            let waiter = waiter(&server);
            end(lock);
            assert_eq!(waiter.join().expect("no panic"), expected);
            held(&server, 0);
        }
    }
}

#[test]
fn nested_locks_share_a_connection() {
    for server in servers() {
        let mut outer = locked(client(&server).lock(&at_once("outer")));
        let mut second = locked(outer.lock(&at_once("second")));
        let mut third = locked(second.lock(&at_once("third")));
        let mut fourth = locked(third.lock(&at_once("fourth")));
        held(&server, 4);
        let fifth = fourth.lock(&at_once("fifth"));
        assert!(matches!(fifth, Err(Error::Refused(Refusal::TooManyLocks))), "{fifth:?}");
        drop(fifth);
        fourth.release().expect("released");
        third.release().expect("released");
        second.release().expect("released");
        assert!(matches!(outer.lock(&at_once("outer")), Ok(Outcome::TimedOut)));
        locked(outer.lock(&at_once("second"))).release().expect("released");
        held(&server, 1);
        outer.release().expect("released");
        held(&server, 0);
    }
}

#[test]
fn dropping_or_leaking_an_inner_guard_loses_the_outer_lock() {
    type End = fn(NestedLock);
    let ends: [End; 2] = [|inner| drop(inner), |inner| std::mem::forget(inner)];
    for server in servers() {
        for end in ends {
            let client = client(&server);
            let mut outer = locked(client.lock(&at_once("outer")));
            let inner = locked(outer.lock(&at_once("k")));
            let waiter = waiter(&server);
            end(inner);
            let released = outer.release();
            assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
            assert_eq!(waiter.join().expect("no panic"), "locked");
            held(&server, 0);
        }
        // Afterwards its connection takes no other lock.
        let mut outer = locked(client(&server).lock(&at_once("outer")));
        drop(locked(outer.lock(&at_once("k"))));
        held(&server, 0);
        let inner = outer.lock(&at_once("k"));
        assert!(matches!(inner, Err(Error::Lost { .. })), "{inner:?}");
    }
}

#[test]
fn a_key_of_another_server_is_refused_and_the_outer_lock_stays() {
    let (one, other) = (Server::start(), Server::start());
    let names = [name(&one), name(&other)];
    let [key_of_one, key_of_other] = [[&one, &other], [&other, &one]].map(key_of);
    let client = patient(names.clone());
    let mut outer = locked(client.lock(&at_once(&key_of_one)));
    assert_eq!(outer.server(), &name(&one));
    let inner = outer.lock(&at_once(&key_of_other));
    assert!(matches!(inner, Err(Error::Refused(Refusal::OtherServer))), "{inner:?}");
    drop(inner);
    held(&one, 1);
    outer.release().expect("released");
    // With that server down, the other guards all keys, nested ones too.
    drop(one);
    let mut outer = locked(client.lock(&at_once(&key_of_one)));
    assert_eq!(outer.key(), key_of_one.as_bytes());
    let passed_over = |list: &[(ServerName, std::io::Error)]| {
        list.iter().map(|(name, why)| (name.clone(), why.kind())).collect::<Vec<_>>()
    };
    let expected = [(names[0].clone(), std::io::ErrorKind::ConnectionRefused)];
    assert_eq!(passed_over(outer.passed_over()), expected);
    let connected = client.connect(key_of_one.as_bytes()).expect("connected");
    assert_eq!(passed_over(connected.passed_over()), expected);
    locked(outer.lock(&at_once(&key_of_other))).release().expect("released");
}

#[test]
fn without_a_fallback_only_the_keys_own_server_is_asked() {
    let (one, other) = (Server::start(), Server::start());
    let names = [name(&one), name(&other)];
    let [key_of_one, key_of_other] = [[&one, &other], [&other, &one]].map(key_of);
    let client = patient(names.clone()).no_fallback();
    drop(one);
    let result = client.lock(&at_once(&key_of_one));
    assert!(matches!(&result, Err(Error::NoServer(tried)) if tried.len() == 1), "{result:?}");
    let mut outer = locked(client.lock(&at_once(&key_of_other)));
    let inner = outer.lock(&at_once(&key_of_one));
    assert!(matches!(inner, Err(Error::Refused(Refusal::OtherServer))), "{inner:?}");
    drop(inner);
    held(&other, 1);
}

#[test]
fn a_wait_ends_when_another_thread_cancels_it() {
    for server in servers() {
        let client = client(&server);
        let _lock = locked(client.lock(&at_once("k")));
        let connected = client.connect(b"k").expect("connected");
        let canceller = connected.canceller();
        let waiter = thread::spawn(move || connected.lock(&LockRequest::new("k")).map(drop));
        assert!(eventually(|| server.counter("waiting_workers") == 1));
        canceller.clone().cancel();
        let result = waiter.join().expect("no panic");
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert!(eventually(|| server.counter("waiting_workers") == 0), "it still waits");
        canceller.cancel();
    }
}

#[test]
fn cancelling_prevents_a_request_and_gives_up_a_granted_lock() {
    for server in servers() {
        let client = client(&server);
        let connected = client.connect(b"k").expect("connected");
        connected.canceller().cancel();
        let result = connected.lock(&at_once("k"));
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        let connected = client.connect(b"k").expect("connected");
        let canceller = connected.canceller();
        let lock = locked(connected.lock(&at_once("k").any()));
        assert_eq!(server.counter("total_acquired"), 1);
        let waiter = waiter(&server);
        canceller.cancel();
        assert!(lock.is_lost());
        let result = lock.release();
        assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert_eq!(waiter.join().expect("no panic"), "locked");
    }
}

#[test]
fn a_lock_whose_server_has_ended_is_lost() {
    for server in servers() {
        let client = client(&server);
        let connected = client.connect(b"k").expect("connected");
        let mut lock = locked(client.lock(&at_once("k")));
        let inner = locked(lock.lock(&at_once("inner")));
        assert!(!connected.is_lost() && !inner.is_lost());
        inner.release().expect("released");
        assert!(!lock.is_lost());
        drop(server);
        assert!(eventually(|| lock.is_lost() && connected.is_lost()));
        let released = lock.release();
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    }
}

/// How long the host of a connection may be silent before the connection is lost.
fn silence(connection: impl AsFd) -> Option<Duration> {
    let connection = connection.as_fd();
    if !sockopt::socket_keepalive(connection).expect("an option") {
        return None;
    }
    let idle = sockopt::tcp_keepidle(connection).expect("an option");
    let interval = sockopt::tcp_keepintvl(connection).expect("an option");
    let silence = idle + interval * sockopt::tcp_keepcnt(connection).expect("an option");
    let unacknowledged = sockopt::tcp_user_timeout(connection).expect("an option");
    assert_eq!(Duration::from_millis(unacknowledged.into()), silence);
    Some(silence)
}

#[test]
fn a_silent_host_counts_as_gone_after_the_clients_keepalive() {
    let server = Server::start();
    let client = client(&server);
    let of = |client: &Client| silence(client.connect(b"k").expect("connected"));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(of(&client), seconds(25));
    for (asked, set) in [(60, 60), (9, 9), (4, 4), (1, 4), (81_915, 81_915)] {
        assert_eq!(of(&client.clone().keepalive(seconds(asked))), seconds(set));
    }
    assert!(of(&client.clone().keepalive(Some(Duration::MAX))) >= seconds(81_915));
    assert_eq!(of(&client.keepalive(None)), None);
}

#[test]
fn connecting_is_tried_twice_for_a_tenth_of_a_second_then_at_the_next_server() {
    let (full, _queued) = full();
    let address = full.local_addr().expect("an address");
    let other = Server::start();
    let names = [address.to_string().parse().expect("a server"), name(&other)];
    let connecting = Stopwatch::start();
    let lock = locked(Client::new(names.clone()).lock(&at_once(&key_of_first(&names))));
    connecting.at_least(Duration::from_millis(200));
    assert_eq!(lock.server(), &names[1]);
}

#[test]
fn a_server_that_accepts_is_not_skipped_when_silent() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = Server::start();
    let address = silent.local_addr().expect("an address").to_string();
    let names = [address.parse().expect("a server"), name(&other)];
    let client = patient(names.clone()).answer_timeout(Duration::from_millis(200));
    let result = client.lock(&at_once(&key_of_first(&names)));
    assert!(matches!(result, Err(Error::Lost { .. })), "{result:?}");
    assert_eq!(other.counter("total_acquired"), 0);
}

#[test]
fn a_lock_held_for_too_long_is_lost_with_its_connection() {
    let server = Server::start_with(&["--max-hold", "k=1"]);
    let lock = locked(client(&server).lock(&at_once("k")));
    held(&server, 0);
    assert!(lock.is_lost());
    assert!(matches!(lock.release(), Err(Error::Lost { .. })));
}

/// What a program says of its own work, or of its lock.
#[derive(Debug)]
enum JobError {
    NoDisk,
    Lock(Error),
}

impl From<Error> for JobError {
    fn from(e: Error) -> Self {
        JobError::Lock(e)
    }
}

#[test]
fn work_under_a_lock_is_done_if_it_succeeds() {
    for server in servers() {
        let client = client(&server);
        let request = at_once("k");
        let done = client.with_lock(&request, |lock| {
            assert_eq!(lock.key(), b"k");
            held(&server, 1);
            let waiter = waiter(&server);
            Ok::<_, Error>(waiter)
        });
        let waiter_for_success = locked(done);
        assert_eq!(waiter_for_success.join().expect("no panic"), "done");
        held(&server, 0);
        let mut waiter_for_failure = None;
        let failed = client.with_lock(&request, |_| {
            waiter_for_failure = Some(waiter(&server));
            Err::<(), _>(JobError::NoDisk)
        });
        assert!(matches!(failed, Err(JobError::NoDisk)), "{failed:?}");
        let waiter_for_failure = waiter_for_failure.expect("a waiter");
        assert_eq!(waiter_for_failure.join().expect("no panic"), "locked");
        held(&server, 0);
        let _lock = locked(client.lock(&request));
        let busy = client.with_lock(&request, |_| -> Result<(), Error> { panic!("no lock") });
        assert!(matches!(busy, Ok(Outcome::TimedOut)), "{busy:?}");
    }
}

#[test]
fn work_whose_lock_was_lost_is_not_done() {
    let server = Server::start_with(&["--max-hold", "k=1"]);
    let lost = client(&server).with_lock(&at_once("k"), |lock| {
        held(&server, 0);
        assert!(lock.is_lost());
        Ok::<_, JobError>(())
    });
    assert!(matches!(lost, Err(JobError::Lock(Error::Lost { .. }))), "{lost:?}");
}

/// A connection of a program that has its own I/O, which has asked for `k`.
fn asking(server: &Server) -> (TcpStream, Conversation) {
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    let mut conversation = Conversation::new();
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    conversation.lock(&LockRequest::new("k")).expect("a request");
    stream.write_all(&conversation.take_output()).expect("sent");
    (stream, conversation)
}

/// Sends what is to be sent, and waits for the answer.
fn answer((stream, conversation): &mut (TcpStream, Conversation)) -> Answer {
    stream.write_all(&conversation.take_output()).expect("sent");
    loop {
        let mut buffer = [0; 64];
        let received = read_some(stream, &mut buffer).expect("an answer");
        if let Some(answer) = conversation.receive(&buffer[..received]).expect("a valid one") {
            return answer;
        }
    }
}

#[test]
fn a_conversation_cancels_its_wait_and_goes_on() {
    let server = Server::start();
    let mut holder = asking(&server);
    assert_eq!(answer(&mut holder), Answer::Locked);
    let mut waiter = asking(&server);
    assert!(eventually(|| server.counter("waiting_workers") == 1));
    waiter.1.cancel().expect("it waits");
    assert_eq!(answer(&mut waiter), Answer::Cancelled);
    held(&server, 1);
    assert_eq!(server.counter("waiting_workers"), 0);
    // Now the lock is granted first.
    waiter.1.lock(&LockRequest::new("k")).expect("a request");
    waiter.0.write_all(&waiter.1.take_output()).expect("sent");
    assert!(eventually(|| server.counter("waiting_workers") == 1));
    holder.1.release().expect("it holds");
    assert_eq!(answer(&mut holder), Answer::Released);
    waiter.1.cancel().expect("it waits, as far as it knows");
    assert_eq!(answer(&mut waiter), Answer::Cancelled);
    held(&server, 0);
    waiter.1.lock(&LockRequest::new("k")).expect("a request");
    assert_eq!(answer(&mut waiter), Answer::Locked);
}
