//! The command `poolcounter`, by the clock.

use crate::support::command::{binary, lists, poolcounter, scripted};
use crate::support::{Finished, Server, finish, in_shell};
use std::time::{Duration, Instant};

fn ask(server: &str, arguments: &[&str]) -> Finished {
    finish(&mut poolcounter(server, arguments))
}

/// The rate is by the time that has passed, whatever the other server takes.
#[test]
fn watch_tells_rates_while_a_server_is_slow_or_down() {
    let began = Instant::now();
    let growing = scripted(move |question| {
        if !question.ends_with("FULL") {
            return "ERROR WRONG_STAT\n".to_owned();
        }
        let total = began.elapsed().as_millis() / 10;
        format!("uptime: 0 days, 0h 0m 1s\ntotal_acquired: {total}\n\n")
    });
    let slow = scripted(|question| {
        std::thread::sleep(Duration::from_secs(1));
        lists(question)
    });
    let list = format!("{slow},127.0.0.1:1,{growing}");
    let line = format!("timeout 40 \"$2\" -s {list} stats --watch | grep -m 2 '+.*/s'");
    let mut command = in_shell(&line, &[binary().to_str().expect("text")]);
    let said = finish(&mut command).stdout;
    assert_eq!(said.lines().count(), 2, "{said}");
    for line in said.lines() {
        let rate = line.rsplit_once('+').and_then(|(_, rate)| rate.strip_suffix("/s"));
        let rate: f64 = rate.and_then(|rate| rate.parse().ok()).expect("a rate");
        println!("a rate of 100 a second is told as {rate}, from 50 to 150");
        assert!((50.0..150.0).contains(&rate), "100 a second, not {line}");
    }
}

/// A plugin that takes longer is killed by the monitoring.
#[test]
fn check_takes_five_seconds_whatever_servers_take() {
    binary();
    let slow = || {
        scripted(|question| {
            std::thread::sleep(Duration::from_secs(3));
            lists(question)
        })
    };
    let list = format!("{},{}", slow(), slow());
    let began = Instant::now();
    let said = ask(&list, &["check"]);
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert_eq!(said.stdout.matches("no answer").count(), 2, "{}", said.stdout);
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
    let said = check.join().expect("it ends");
    println!("from 0.1 to 9 full queues a second are expected: {}", said.stdout);
    assert_eq!(said.code, Some(1), "{}", said.stdout);
}
