//! Times of the command `poolcounter`.

use crate::support::command::{binary, lists, poolcounter, scripted};
use crate::support::{Finished, Server, finish};
use std::time::{Duration, Instant};

fn ask(server: &str, arguments: &[&str]) -> Finished {
    finish(&mut poolcounter(server, arguments))
}

/// A plugin that takes longer is killed by the monitoring.
#[test]
fn check_takes_five_seconds_whatever_servers_take() {
    binary();
    let slow = || {
        scripted(|question| {
            std::thread::sleep(Duration::from_secs(6));
            lists(question)
        })
    };
    let list = format!("{},{}", slow(), slow());
    let began = Instant::now();
    let output = ask(&list, &["check"]);
    assert_eq!(output.code, Some(2), "{}", output.stdout);
    assert_eq!(output.stdout.matches("no answer").count(), 2, "{}", output.stdout);
    let took = began.elapsed();
    println!("check took {took:?}, at most 9 s");
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn full_queues_are_counted_for_a_second() {
    let server = Server::start();
    let address = server.address().to_string();
    assert_eq!(ask(&address, &["check", "--full-queues", "1,9"]).code, Some(0));
    let mut check = poolcounter(&address, &["check", "--full-queues", "0.1,9", "--for", "2"]);
    let check = std::thread::spawn(move || finish(&mut check));
    let mut holder = server.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 1 0"), "LOCKED");
    let mut other = server.connect();
    while !check.is_finished() {
        // At most nine a second.
        assert_eq!(other.ask("ACQ4ME k 1 1 0"), "QUEUE_FULL");
        std::thread::sleep(Duration::from_millis(150));
    }
    let output = check.join().expect("it ends");
    println!("from 0.1 to 9 full queues a second are expected: {}", output.stdout);
    assert_eq!(output.code, Some(1), "{}", output.stdout);
}
