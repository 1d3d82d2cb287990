//! The requests of one client do not delay the others. tests/simulation/clients/shares.rs
//! checks the share of a turn, and that every request is handled.

use crate::support::{Client, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A connection that always has this many questions in flight.
struct Flooder {
    stream: TcpStream,
    unanswered: usize,
    last: u8,
}

impl Flooder {
    const QUESTIONS: usize = 400;

    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("connect");
        stream.set_nonblocking(true).expect("non-blocking");
        Flooder { stream, unanswered: 0, last: 0 }
    }

    fn pump(&mut self, buffer: &mut [u8]) {
        if self.unanswered < Self::QUESTIONS {
            let questions = "STATS FULL\n".repeat(Self::QUESTIONS);
            self.stream.write_all(questions.as_bytes()).expect("room for some questions");
            self.unanswered += Self::QUESTIONS;
        }
        match self.stream.read(buffer) {
            Ok(0) => panic!("a flooder that reads was disconnected"),
            // A blank line ends each answer: only there are two line feeds in a row.
            Ok(len) => self.count_answers(&buffer[..len]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }

    fn count_answers(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.unanswered -= usize::from(byte == b'\n' && self.last == b'\n');
            self.last = byte;
        }
    }
}

/// Asks for statistics without a break on `count` connections until `stop`. Waits at
/// `under_way` when the flood has begun.
fn flood_of_statistics(server: &Server, count: usize, under_way: &Barrier, stop: &AtomicBool) {
    let mut flooders: Vec<Flooder> = (0..count).map(|_| Flooder::connect(server)).collect();
    let mut buffer = vec![0; 1 << 20];
    flooders.iter_mut().for_each(|flooder| flooder.pump(&mut buffer));
    under_way.wait();
    while !stop.load(Ordering::Relaxed) {
        flooders.iter_mut().for_each(|flooder| flooder.pump(&mut buffer));
    }
}

/// The median time that another client waits for an answer meanwhile.
fn median_wait(flooders: usize) -> Duration {
    const QUESTIONS: usize = 30;
    let server = Server::start();
    let (under_way, stop) = (Barrier::new(2), AtomicBool::new(false));
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| flood_of_statistics(&server, flooders, &under_way, &stop));
        let mut client = Client::connect(server.address());
        under_way.wait();
        for _ in 0..QUESTIONS {
            let asked = Instant::now();
            client.settle();
            // `settle` asks two questions, one after the other.
            waits.push(asked.elapsed() / 2);
        }
        stop.store(true, Ordering::Relaxed);
    });
    waits.sort_unstable();
    println!(
        "{flooders} flooders: median {:?}, worst {:?}",
        waits[QUESTIONS / 2],
        waits[QUESTIONS - 1]
    );
    waits[QUESTIONS / 2]
}

/// docs/development/evidence.md promises 30 and 100 ms on an idle machine; four times that here.
#[test]
fn floods_of_statistics_delay_no_client() {
    for (flooders, max_ms) in [(50, 4 * 30), (200, 4 * 100)] {
        let wait = median_wait(flooders);
        println!("{flooders} flooders: median wait {wait:?}, at most {max_ms} ms");
        assert!(wait < Duration::from_millis(max_ms), "{wait:?}");
    }
}
