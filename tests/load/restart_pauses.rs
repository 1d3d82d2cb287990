//! How long a hot restart stops the loop, with many locks and long keys
//! (docs/operate/procedures.md, "Hot restart").
//!
//! `RESTART_PAUSES=9 cargo test --release --test load restart_pauses -- --nocapture` prints
//! the best and median of this many restarts, with more keys.

use crate::memory::{
    ask_and_look_away, expect_all_handled, questions_until_cut_off, start_with_small_buffers,
};
use crate::support::crowd::{connect_crowd, crowd_size, private_bytes, start_apart};
use crate::support::random::number_from_environment;
use crate::support::restart::restart;
use crate::support::{Client, Server};
use std::time::Duration;

/// How many times longer than promised a pause may take here, for noisy machines.
const PATIENCE_FACTOR: u32 = 4;

const KEYS_EACH: usize = 4;

/// What the daemon's clients hold.
struct Load {
    clients: usize,
    key_bytes: usize,
    /// The bytes that the keys consist of.
    filler: u8,
}

impl Load {
    fn key_megabytes(&self) -> u32 {
        (self.clients * KEYS_EACH * self.key_bytes).div_ceil(1_000_000) as u32
    }

    /// 20 ms up to 500 MB.
    fn trial_pause_max(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn final_pause_max(&self) -> Duration {
        Duration::from_millis(5)
            + self.clients as u32 * Duration::from_micros(4)
            + self.key_megabytes() * Duration::from_micros(2500)
    }

    fn connect(&self, server: &Server) -> Vec<Client> {
        let mut crowd = connect_crowd(server.address(), self.clients);
        for (n, client) in crowd.iter_mut().enumerate() {
            for depth in 0..KEYS_EACH {
                let name = format!("{n}:{depth}:");
                let filler = vec![self.filler; self.key_bytes - name.len()];
                let line = [b"ACQ4ME ", name.as_bytes(), &filler, b" 1 9 60\n"].concat();
                client.send_bytes(&line);
            }
        }
        for client in &mut crowd {
            (0..KEYS_EACH).for_each(|_| client.expect("LOCKED"));
        }
        crowd
    }
}

/// The duration of the pause in a log line.
pub(crate) fn pause(line: &str) -> Duration {
    let number = line.split_once("pause of ").expect("a pause").1.split(' ').next();
    Duration::from_micros(number.expect("a number").parse().expect("a number"))
}

/// How long the daemon has waited for a processor that others were using
/// (proc_pid_schedstat(5)).
fn waited(server: &Server) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", server.pid()));
    let text = text.unwrap_or_default();
    let ns = text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

/// The final pause of a restart, without the part that other processes caused.
fn final_pause(server: &Server) -> (Duration, Duration) {
    let before = waited(server);
    let pause = pause(&restart(server));
    (pause, pause.saturating_sub(waited(server) - before))
}

fn check(third: u8, load: &Load) {
    let load = Load { clients: crowd_size(load.clients), ..*load };
    let rounds = number_from_environment("RESTART_PAUSES").map_or(3, |number| number as usize);
    let server = start_apart(third, &[]);
    let mut crowd = load.connect(&server);
    let mut finals: Vec<_> = (0..rounds).map(|_| final_pause(&server)).collect();
    let asked = server.log.lines().into_iter().filter(|line| line.contains("asking "));
    let mut trials: Vec<Duration> = asked.map(|line| pause(&line)).collect();
    finals.sort_unstable();
    trials.sort_unstable();
    let undisturbed = finals.iter().map(|(_, undisturbed)| *undisturbed).min();
    let undisturbed = undisturbed.expect("a restart");
    println!(
        "{} clients with {KEYS_EACH} keys of {} bytes ({} MB): \
         trial pause best {:.1?}, median {:.1?} (promised {:.1?}); \
         final pause best {:.1?}, median {:.1?} (promised {:.1?}), \
         without other processes {:.1?}; at most {PATIENCE_FACTOR} times as promised",
        load.clients,
        load.key_bytes,
        load.key_megabytes(),
        trials[0],
        trials[rounds / 2],
        load.trial_pause_max(),
        finals[0].0,
        finals[rounds / 2].0,
        load.final_pause_max(),
        undisturbed,
    );
    assert!(trials[0] <= load.trial_pause_max() * PATIENCE_FACTOR, "{trials:?}");
    assert!(undisturbed <= load.final_pause_max() * PATIENCE_FACTOR, "{finals:?}");
    let last = crowd.last_mut().expect("a client");
    last.exchange("ACQ4ME another 1 1 0", "LOCK_HELD");
    last.exchange("RELEASE", "RELEASED");
}

#[test]
fn many_clients_with_plain_keys() {
    check(11, &Load { clients: 10_000, key_bytes: 60, filler: b'k' });
}

#[test]
fn long_keys_of_control_characters() {
    check(12, &Load { clients: 4_000, key_bytes: 4_000, filler: 1 });
}

/// 160 MB of keys.
#[test]
fn many_clients_with_long_keys() {
    if std::env::var_os("RESTART_PAUSES").is_some() {
        check(13, &Load { clients: 10_000, key_bytes: 4_000, filler: b'k' });
    }
}

/// A gigabyte, to check the promise for more than 500 MB too.
#[test]
fn unread_answers() {
    if std::env::var_os("RESTART_PAUSES").is_none() {
        return;
    }
    let server = start_with_small_buffers();
    let questions = questions_until_cut_off(&server);
    let clients = crowd_size(15_000);
    let crowd: Vec<_> =
        (0..clients).map(|_| ask_and_look_away(server.address(), questions)).collect();
    expect_all_handled(&mut server.connect());
    let megabytes = private_bytes(&server) as u32 / 1_000_000;
    let finals: Vec<_> = (0..3).map(|_| final_pause(&server).0).collect();
    let asked = server.log.lines().into_iter().filter(|line| line.contains("asking "));
    let trials: Vec<Duration> = asked.map(|line| pause(&line)).collect();
    println!(
        "{clients} clients, {megabytes} MB: trial pauses {trials:.1?}, final pauses {finals:.1?}"
    );
    let beyond = megabytes.saturating_sub(500).div_ceil(1_000);
    let promised = Duration::from_millis(20 + 30 * u64::from(beyond));
    assert!(trials.iter().min() <= Some(&(promised * PATIENCE_FACTOR)), "{trials:?}");
    assert_eq!(crowd.len(), clients);
}
