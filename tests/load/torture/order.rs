//! First come, first served: checks one key at a time, with its waiters in a known
//! order.
//!
//! A waiter sends a question after its ACQ. The answer shows that the client now
//! waits, and that later clients come after it. The same question shows that a client
//! still waits.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::Client;
use crate::support::random::Random;

struct Waiter {
    client: Client,
    for_anyone: bool,
}

/// Makes queue after queue until told to stop. Returns how many locks were handed on.
pub(crate) fn watch(address: SocketAddr, mut random: Random, stop: &AtomicBool) -> u64 {
    let mut handed_on = 0;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        handed_on += watch_queue(address, &mut random, &format!("order-{n}"));
    }
    handed_on
}

/// Uses one key until no client holds it or waits for it any more.
fn watch_queue(address: SocketAddr, random: &mut Random, key: &str) -> u64 {
    let mut holder = Client::connect(address);
    holder.exchange(&format!("ACQ4ME {key} 1 1000 600"), "LOCKED");
    let mut waiters: Vec<Waiter> = Vec::new();
    let mut newcomers = 2 + random.below(12);
    let mut handed_on = 0;
    loop {
        // Some waiters come before the first release, some between releases.
        let come_now = if handed_on == 0 { newcomers / 2 } else { newcomers.min(random.below(3)) };
        newcomers -= come_now;
        for _ in 0..come_now {
            waiters.push(join(address, key, random.percent(30)));
        }
        if !waiters.is_empty() && random.percent(20) {
            leave(&mut waiters, random);
        }
        let heir = if random.percent(70) {
            release(&mut holder, &mut waiters)
        } else {
            drop(holder);
            heir_of_disconnect(&mut waiters)
        };
        waiters.iter_mut().for_each(still_waits);
        match heir {
            Some(heir) => holder = heir,
            None => return handed_on,
        }
        handed_on += 1;
    }
}

fn join(address: SocketAddr, key: &str, for_anyone: bool) -> Waiter {
    let mut client = Client::connect(address);
    let command = if for_anyone { "ACQ4ANY" } else { "ACQ4ME" };
    client.send(&format!("{command} {key} 1 1000 600"));
    let mut waiter = Waiter { client, for_anyone };
    still_waits(&mut waiter);
    waiter
}

/// The answer to a question comes before any to the ACQ.
fn still_waits(waiter: &mut Waiter) {
    let answer = waiter.client.ask("STATS UPTIME");
    assert!(answer.starts_with("uptime: "), "told {answer:?} out of turn");
}

/// One of the waiters leaves.
fn leave(waiters: &mut Vec<Waiter>, random: &mut Random) {
    let mut waiter = waiters.remove(random.below(waiters.len()));
    if random.percent(50) {
        waiter.client.exchange("RELEASE", "RELEASED");
    }
    // Otherwise, dropping the client closes the connection during its wait.
}

/// The work is done: all waiters that accept another client's work get DONE, and the
/// lock goes to the first of the others.
fn release(holder: &mut Client, waiters: &mut Vec<Waiter>) -> Option<Client> {
    holder.exchange("RELEASE", "RELEASED");
    let (content, others) = waiters.drain(..).partition(|waiter| waiter.for_anyone);
    *waiters = others;
    let content: Vec<Waiter> = content;
    for mut waiter in content {
        waiter.client.expect("DONE");
    }
    let mut heir = (!waiters.is_empty()).then(|| waiters.remove(0).client)?;
    heir.expect("LOCKED");
    Some(heir)
}

/// The work was not done: the lock goes to the first waiter that wants it for itself,
/// or else to the first of the others.
fn heir_of_disconnect(waiters: &mut Vec<Waiter>) -> Option<Client> {
    let for_me = waiters.iter().position(|waiter| !waiter.for_anyone);
    let place = for_me.or((!waiters.is_empty()).then_some(0))?;
    let mut heir = waiters.remove(place).client;
    heir.expect("LOCKED");
    Some(heir)
}
