//! What one turn of the loop does whole, whatever it costs: docs/evidence.md lists it.

use crate::support::crowd::{connect_crowd, crowd_size, start_apart};
use crate::support::restart::Place;
use crate::support::{Client, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A hundredth of systemd's watchdog in the unit.
const LONGEST_TURN: Duration = Duration::from_millis(300);

fn ask(stream: &mut UnixStream, line: &str) -> String {
    stream.write_all(line.as_bytes()).expect("send");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    answer
}

struct Scene {
    server: Server,
    place: Place,
    crowd: Vec<Client>,
}

impl Scene {
    fn new(third: u8) -> Scene {
        let place = Place::new();
        let [control, other] = ["control", "other"].map(|name| place.path(name));
        let [control, other] = [control, other].map(|path| path.display().to_string());
        let count = crowd_size(15_000);
        let server = start_apart(third, &["--control", &control, "--listen-unix", &other]);
        let crowd = connect_crowd(server.address(), count);
        Scene { server, place, crowd }
    }

    fn order(&self, order: &str) -> String {
        let mut operator = UnixStream::connect(self.place.path("control")).expect("connect");
        ask(&mut operator, &format!("{order}\n"))
    }

    /// The longest wait of another client while `act` runs. A turn is not longer.
    fn longest_wait(&mut self, what: &str, act: impl FnOnce(&mut Scene)) {
        let path: PathBuf = self.place.path("other");
        let ends = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut other = UnixStream::connect(path).expect("connect");
                let mut longest = Duration::ZERO;
                while !ends.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    assert_eq!(ask(&mut other, "RELEASE\n"), "NOT_LOCKED\n");
                    longest = longest.max(asked.elapsed());
                }
                longest
            });
            act(self);
            ends.store(true, Ordering::Relaxed);
            other.join().expect("it ends")
        });
        let count = self.crowd.len();
        println!(
            "{count} clients, {what}: another one waits for {longest:?}, at most {LONGEST_TURN:?}"
        );
        assert!(longest < LONGEST_TURN, "{longest:?}");
    }

    fn wait_for_waiters(&self) {
        let count = self.crowd.len() as u64;
        self.server.connect().wait_for_counter("waiting_workers", |n| n >= count);
    }
}

#[test]
fn waiters_that_are_all_answered_at_once_cost_one_turn() {
    let mut scene = Scene::new(4);
    let mut holder = scene.server.connect();
    holder.exchange("ACQ4ME k 1 20000 60", "LOCKED");
    scene.crowd.iter_mut().for_each(|client| client.send("ACQ4ANY k 1 20000 60"));
    scene.wait_for_waiters();
    scene.longest_wait("all get DONE", |scene| {
        holder.exchange("RELEASE", "RELEASED");
        scene.crowd.iter_mut().for_each(|client| client.expect("DONE"));
    });

    holder.exchange("ACQ4ME k 1 20000 60", "LOCKED");
    scene.longest_wait("all time out", |scene| {
        scene.crowd.iter_mut().for_each(|client| client.send("ACQ4ME k 1 20000 2"));
        scene.crowd.iter_mut().for_each(|client| client.expect("TIMEOUT"));
    });
}

#[test]
fn an_order_about_all_clients_costs_one_turn() {
    let mut scene = Scene::new(5);
    for (n, client) in scene.crowd.iter_mut().enumerate() {
        client.exchange(&format!("ACQ4ME k{n} 1 20000 60"), "LOCKED");
    }
    scene.longest_wait("a rule for the keys of all", |scene| {
        assert!(scene.order("RULE SET all k* max-hold=600").starts_with("OK"));
    });
    scene.longest_wait("free --host", |scene| {
        let answer = scene.order("FREE HOST 127.0.0.1 20000");
        assert!(!answer.starts_with("ERROR"), "{answer}");
        for client in &mut scene.crowd {
            let mut rest = Vec::new();
            client.stream().read_to_end(&mut rest).expect("the end");
        }
    });
}
