//! The scenario `worst-turn`: how long the loop keeps a client waiting while something
//! large happens.
//!
//! One client asks again as soon as it has its answer, and never sleeps. The longest time
//! for which it waits is a turn of the loop, or two; but behind a crowd that has left it
//! waits for as many turns as the crowd needs, so there the daemon's own histogram is read
//! as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::Result;
use crate::fleet::Fleet;
use crate::scenario::{Figures, hold, must_be_clean};
use crate::server::{Program, Server};
use crate::traffic::{Mode, Request, Traffic};

const SCRAPE: &str = "GET /metrics HTTP/1.0\r\n\r\n";

const HTTP_PORT: u16 = 7580;

/// How long the client asks during each of them, in seconds.
const WINDOW_S: f64 = 0.2;

/// The daemon gives memory back two seconds after many have left.
const BEFORE_TIDYING_S: f64 = 1.5;
const TIDYING_S: f64 = 1.5;

/// Measures `program` on `core` with `count` clients. No figures of another program if it
/// lacks the options.
pub fn worst_turn(program: &Program, core: usize, count: usize) -> Result<Figures> {
    let control = std::env::temp_dir().join(format!("pool-bench-{}.sock", std::process::id()));
    let options = |ip| {
        let http = SocketAddr::new(ip, HTTP_PORT).to_string();
        let control = control.display().to_string();
        ["--http", &http, "--control", &control].map(str::to_owned).to_vec()
    };
    let server = match Server::start_with(program, core, options) {
        Ok(server) => server,
        Err(why) if program.name == "ours" => return Err(why),
        Err(_) => return Ok(Vec::new()),
    };
    let figures = measure(&server, &control, count);
    drop(server);
    let _ = std::fs::remove_file(&control);
    figures
}

fn measure(server: &Server, control: &Path, count: usize) -> Result<Figures> {
    const KEYS_EACH: usize = 4;
    let mut crowd = hold(server, count * KEYS_EACH, KEYS_EACH)?;
    let mut client = Client::connect(server)?;
    let http = SocketAddr::new(server.addr.ip(), HTTP_PORT);
    let mut figures = vec![
        ("quiet", client.ask_during(|| Ok(()))?),
        ("keys", client.ask_during(|| ask(server.addr, "STATS KEYS 200\n"))?),
        ("json", client.ask_during(|| ask(server.addr, "STATS JSON\n"))?),
        ("scrape", client.ask_during(|| ask(http, SCRAPE))?),
        ("trial", client.ask_during(|| try_restart(control))?),
    ];
    let before = turns(http)?;
    // All have left before the daemon looks.
    server.signal(Signal::STOP)?;
    for index in 0..count {
        crowd.close(index);
    }
    server.signal(Signal::CONT)?;
    let leave = client.ask_for(BEFORE_TIDYING_S)?;
    figures.push(("leave", leave));
    figures.push(("leave_turn", longest_turn(&before, &turns(http)?).min(leave)));
    figures.push(("tidy", client.ask_for(TIDYING_S)?));
    Ok(figures)
}

/// Asks and reads the answer, which is long.
fn ask(address: SocketAddr, question: &str) -> std::io::Result<()> {
    match answer_to(address, question)?.len() {
        0..200 => Err(std::io::Error::other("a short answer")),
        _ => Ok(()),
    }
}

/// Sends the question, shuts down its side, and reads to the end.
fn answer_to(address: SocketAddr, question: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(question.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The daemon's histogram of turns: milliseconds, and how many turns took at most that.
fn turns(http: SocketAddr) -> Result<Vec<(f64, u64)>> {
    let page = answer_to(http, SCRAPE)?;
    let bucket = |line: &str| {
        let line = line.strip_prefix("poolcounter_turn_seconds_bucket{le=\"")?;
        let (bound, count) = line.split_once("\"} ")?;
        Some((bound.replace('+', "").parse::<f64>().ok()? * 1e3, count.parse().ok()?))
    };
    let buckets: Vec<_> = page.lines().filter_map(bucket).collect();
    if buckets.is_empty() { Err("no histogram of turns".into()) } else { Ok(buckets) }
}

/// An upper bound of the longest turn between two readings, in milliseconds.
fn longest_turn(before: &[(f64, u64)], after: &[(f64, u64)]) -> f64 {
    let counts = before.iter().zip(after).map(|(before, after)| (after.0, after.1 - before.1));
    let counts: Vec<_> = counts.collect();
    let all = counts.last().map_or(0, |(_, count)| *count);
    counts.iter().find(|(_, count)| *count == all).map_or(f64::INFINITY, |(bound, _)| *bound)
}

/// Asks for a hot restart with an address that no machine has (RFC 5737): the daemon tries
/// the new image, then refuses.
fn try_restart(control: &Path) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let path = control.display();
    writeln!(stream, r#"RESTART ["-l","192.0.2.1","--control","{path}"]"#)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.contains("192.0.2.1") {
        Ok(())
    } else {
        Err(std::io::Error::other(format!("not refused as expected: {answer}")))
    }
}

/// Asks without a break.
struct Client {
    fleet: Fleet,
    traffic: Traffic,
}

impl Client {
    fn connect(server: &Server) -> Result<Self> {
        let mut fleet = Fleet::new(server.addr, 1)?;
        let mut traffic = Traffic::new(Mode::Kept, Request::uncontended());
        traffic.prepare(&mut fleet);
        fleet.open_gently()?;
        Ok(Client { fleet, traffic })
    }

    /// The longest wait for an answer within `seconds`, in milliseconds.
    fn ask_for(&mut self, seconds: f64) -> Result<f64> {
        self.traffic.forget();
        self.traffic.stop_ns = self.fleet.now_ns() + (seconds * 1e9) as u64;
        self.traffic.begin(&mut self.fleet)?;
        while self.traffic.busy > 0 {
            self.fleet.poll(0, &mut self.traffic)?;
            if self.fleet.now_ns() > self.traffic.stop_ns + 10_000_000_000 {
                return Err("no answer within 10 s".into());
            }
        }
        must_be_clean(&self.traffic)?;
        Ok(self.traffic.latency.max() as f64 / 1e6)
    }

    /// The same while another thread acts, which mostly sleeps.
    fn ask_during(&mut self, act: impl FnOnce() -> std::io::Result<()> + Send) -> Result<f64> {
        std::thread::scope(|scope| {
            let acting = scope.spawn(|| {
                std::thread::sleep(Duration::from_secs_f64(WINDOW_S / 4.0));
                act()
            });
            let mut longest = self.ask_for(WINDOW_S)?;
            while !acting.is_finished() {
                longest = longest.max(self.ask_for(WINDOW_S / 10.0)?);
            }
            acting.join().map_err(|_| "the acting thread panicked")??;
            Ok(longest)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_in_the_last_bucket_that_grew() {
        let before = [(1.0, 5), (10.0, 6), (f64::INFINITY, 7)];
        let after = [(1.0, 9), (10.0, 11), (f64::INFINITY, 12)];
        assert_eq!(longest_turn(&before, &after), 10.0);
    }
}
