//! What one turn of the loop does whole, whatever it costs: docs/development/evidence.md lists it.

use crate::restart_pauses::pause;
use crate::support::crowd::{connect_crowd, crowd_size, start_apart};
use crate::support::operated::Operator;
use crate::support::restart::{Place, restart};
use crate::support::{Client, Server};
use std::fs;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A hundredth of systemd's watchdog in the unit.
const LONGEST_TURN: Duration = Duration::from_millis(300);

/// Four times what 40 MB of keys take, half of it for 64 rules.
const RESTART_PAUSE: Duration = Duration::from_millis(1_000);

struct Scene {
    server: Server,
    place: Place,
    crowd: Vec<Client>,
}

impl Scene {
    fn new(third: u8) -> Scene {
        Self::with_rules(third, 15_000, "")
    }

    fn with_rules(third: u8, clients: usize, rules: &str) -> Scene {
        let place = Place::new();
        let [control, file] = ["control", "rules"].map(|name| place.path(name));
        fs::write(&file, rules).expect("write");
        let [control, file] = [control, file].map(|path| path.display().to_string());
        let options = ["--control", &control, "--rules", &file];
        let server = start_apart(third, &options);
        let crowd = connect_crowd(server.address(), crowd_size(clients));
        Scene { server, place, crowd }
    }

    fn order(&self, order: &str) -> String {
        Operator::connect(&self.place.path("control").display().to_string()).ask(order)
    }

    /// The longest wait of another client while `act` runs. A turn is not longer.
    fn longest_wait(&mut self, what: &str, act: impl FnOnce(&mut Scene)) {
        let address = self.server.address();
        let ends = AtomicBool::new(false);
        let longest = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut other = Client::connect(address);
                let mut longest = Duration::ZERO;
                while !ends.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    other.exchange("RELEASE", "NOT_LOCKED");
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

/// 64 rules, and 10,000 keys of which each byte begins a piece of all of them.
#[test]
fn rules_for_the_worst_keys_cost_one_turn() {
    let rules: String = (0..64).map(|n| format!("r{n} *:pcache{n}:*\n")).collect();
    let mut scene = Scene::with_rules(15, 2_500, &rules);
    for (n, client) in scene.crowd.iter_mut().enumerate() {
        for depth in 0..4 {
            let key = format!("{n}:{depth}{}", ":".repeat(4_000));
            client.send(&format!("ACQ4ME {key} 1 9 60"));
        }
    }
    scene.crowd.iter_mut().for_each(|client| (0..4).for_each(|_| client.expect("LOCKED")));
    scene.longest_wait("one of 64 rules changes, for 10,000 of the worst keys", |scene| {
        assert!(scene.order("RULE SET r7 *:other:* total=3").starts_with("OK"));
    });
    let pause = pause(&restart(&scene.server));
    println!("a hot restart with them: a pause of {pause:?}, at most {RESTART_PAUSE:?}");
    assert!(pause < RESTART_PAUSE, "{pause:?}");
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
