//! The example for async programs, with our daemon and Debian's: whatever ends a wait, no lock is
//! left behind.

use crate::command::{full, key_of_first, servers};
use crate::support::{PATIENCE, Server, eventually};
use async_client::{AsyncClient, AsyncLock};
use poolcounter::{Error, LockRequest, Outcome, ServerName};
use rustix::process::Signal;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

#[path = "../../crates/client/examples/tokio/async_client.rs"]
mod async_client;

/// Runs a test that is a future, in the thread that it blocks.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn name(server: &Server) -> ServerName {
    server.address().into()
}

/// A client that tolerates a busy machine.
fn patient(servers: impl IntoIterator<Item = ServerName>) -> AsyncClient {
    let mut client = AsyncClient::new(servers);
    (client.connect_timeout, client.answer_timeout) = (PATIENCE, PATIENCE);
    client
}

fn at_once(key: &str) -> LockRequest {
    LockRequest::new(key).timeout(Duration::ZERO)
}

#[track_caller]
fn locked(outcome: Result<Outcome<AsyncLock>, Error>) -> AsyncLock {
    match outcome {
        Ok(Outcome::Locked(lock)) => lock,
        other => panic!("{other:?}"),
    }
}

/// Waits, and lets other futures run meanwhile, until a counter of the server has this value.
async fn reached(server: &Arc<Server>, counter: &'static str, value: u64) {
    let server = Arc::clone(server);
    let wait = move || eventually(|| server.counter(counter) == value);
    assert!(spawn_blocking(wait).await.expect("no panic"), "{counter} is not {value}");
}

#[test]
fn a_wait_whose_future_is_dropped_gets_no_lock() {
    for server in servers().into_iter().map(Arc::new) {
        run(async {
            let client = patient([name(&server)]);
            let holder = locked(client.lock(&at_once("k")).await);
            let request = LockRequest::new("k");
            tokio::select! {
                outcome = client.lock(&request) => panic!("{outcome:?}"),
                () = reached(&server, "waiting_workers", 1) => {}
            }
            reached(&server, "waiting_workers", 0).await;
            holder.release().await.expect("released");
            reached(&server, "processing_workers", 0).await;
            assert_eq!(server.counter("total_acquired"), 1);
        });
    }
}

#[test]
fn a_guard_that_is_dropped_leaves_its_work_to_the_next() {
    for server in servers().into_iter().map(Arc::new) {
        run(async {
            let client = patient([name(&server)]);
            let holder = locked(client.lock(&at_once("k")).await);
            let request = LockRequest::new("k").any();
            let waiter = client.lock(&request);
            let (next, ()) = tokio::join!(waiter, async {
                reached(&server, "waiting_workers", 1).await;
                drop(holder);
            });
            let next = locked(next);
            let waiter = client.lock(&request);
            let (done, released) = tokio::join!(waiter, async {
                reached(&server, "waiting_workers", 1).await;
                next.release().await
            });
            released.expect("released");
            assert!(matches!(done, Ok(Outcome::Done)), "{done:?}");
        });
    }
}

#[test]
fn a_daemon_that_hangs_is_not_waited_for() {
    for server in servers().into_iter().map(Arc::new) {
        run(async {
            let mut client = patient([name(&server)]);
            let holder = locked(client.lock(&at_once("held")).await);
            drop(locked(client.lock(&at_once("k")).await));
            let mut short = locked(client.lock(&at_once("short")).await);
            short.answer_timeout = Duration::from_millis(200);
            client.answer_timeout = Duration::from_millis(200);
            server.signal(Signal::STOP);
            for late in [client.lock(&at_once("k")).await.map(drop), short.release().await] {
                let is_late = matches!(&late, Err(Error::Lost { cause, .. })
                    if cause.kind() == ErrorKind::TimedOut);
                assert!(is_late, "{late:?}");
            }
            server.signal(Signal::CONT);
            // Nothing is left of both when it continues; what was held stays held.
            reached(&server, "processing_workers", 1).await;
            reached(&server, "waiting_workers", 0).await;
            holder.release().await.expect("released");
        });
    }
}

#[test]
fn a_server_that_refuses_or_is_silent_is_passed_over() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let refusing: ServerName = closed.expect("an address").into();
    let (full, _queued) = full();
    let silent: ServerName = full.local_addr().expect("an address").into();
    let live = Server::start();
    run(async {
        for down in [refusing.clone(), silent.clone()] {
            let names = [down, name(&live)];
            let mut client = patient(names.clone());
            client.connect_timeout = AsyncClient::new([]).connect_timeout;
            let lock = locked(client.lock(&at_once(&key_of_first(&names))).await);
            assert_eq!(lock.server, names[1]);
            lock.release().await.expect("released");
        }
        let none = AsyncClient::new([refusing, silent]).lock(&at_once("k")).await;
        assert!(matches!(&none, Err(Error::NoServer(tried)) if tried.len() == 2), "{none:?}");
        let invalid = AsyncClient::new([]).lock(&at_once("")).await;
        assert!(matches!(invalid, Err(Error::Refused(_))), "{invalid:?}");
    });
}

#[test]
fn a_lock_whose_daemon_ends_is_lost() {
    run(async {
        let server = Server::start();
        let mut lock = locked(patient([name(&server)]).lock(&at_once("k")).await);
        let lost = lock.lost();
        drop(server);
        assert!(matches!(lost.await.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
        assert!(matches!(lock.release().await, Err(Error::Lost { .. })));
    });
}
