//! The scenario `pipelines`: what another client notices while all clients have much to be handled.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Result;
use crate::figures::quantile;
use crate::scenario::Figures;
use crate::server::{Program, Server};

/// What each client has sent when the server begins to look: six shares of a turn of ours.
const SENT_BYTES: usize = 6 * 4096;

/// How long another client connects, locks and releases meanwhile.
const WINDOW: Duration = Duration::from_millis(1_500);

/// A server that takes longer does not serve it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures `program` on `core` with `count` clients that pipeline.
pub fn pipelines(program: &Program, core: usize, count: usize) -> Result<Figures> {
    let server = Server::start(program, core)?;
    let mut crowd = Vec::new();
    for _ in 0..count {
        let mut client = TcpStream::connect(server.addr)?;
        // It is accepted.
        ask(&mut client, "RELEASE\n")?;
        crowd.push(client);
    }
    server.signal(Signal::STOP)?;
    let requests = b"RELEASE\n".repeat(SENT_BYTES / 8);
    crowd.iter_mut().try_for_each(|client| client.write_all(&requests))?;
    server.signal(Signal::CONT)?;
    let began = Instant::now();
    let mut times_ms = Vec::new();
    while began.elapsed() < WINDOW {
        let asked = Instant::now();
        let mut client = TcpStream::connect(server.addr)?;
        ask(&mut client, "ACQ4ME another 1 1 0\n")?;
        ask(&mut client, "RELEASE\n")?;
        times_ms.push(asked.elapsed().as_secs_f64() * 1e3);
    }
    let median = quantile(&times_ms, 0.5).ok_or("no answer")?;
    let slowest = times_ms.iter().copied().fold(0.0, f64::max);
    Ok(vec![("other_median", median), ("max", slowest)])
}

fn ask(client: &mut TcpStream, line: &str) -> Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer)?;
    match answer.trim_end() {
        "LOCKED" | "RELEASED" | "NOT_LOCKED" => Ok(()),
        other => Err(format!("{line:?} gets {other:?}").into()),
    }
}
