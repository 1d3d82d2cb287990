//! Random options: a reload of a running daemon gives the same verdict and the same sockets as
//! a cold start, unless an address that is open would get another purpose. `RELOADS_SEED` repeats
//! a failure, `RELOADS_SEEDS` tries more.

use crate::addresses::{has_ipv6, quiet_port};
use crate::support::operated::{Operated, Operator};
use crate::support::random::{Random, number_from_environment};
use crate::support::restart::Place;
use crate::support::{PATIENCE, daemon_command, skip};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

const ROUNDS: usize = 8;
const STEPS: usize = 3;

/// Names for the socket of operators.
const NAMES: [&str; 3] = ["control.sock", "one.sock", "two.sock"];

/// An address that no other test process uses.
fn own(number: u8) -> Ipv4Addr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    // Below the addresses of `Server::start_apart`.
    Ipv4Addr::new(127, high.max(1), low, number)
}

/// The address that another process may have taken.
fn theirs() -> Ipv4Addr {
    own(4)
}

/// Options with gaps: `{p}`, `{q}` and `{d}` stand for the ports of clients and HTTP, and
/// for the directory.
#[derive(Clone, Debug)]
struct Wish {
    words: Vec<String>,
    /// Without its directory.
    control: &'static str,
}

/// What fills the gaps.
struct There<'a> {
    ports: [u16; 2],
    directory: &'a Path,
}

impl There<'_> {
    fn fill(&self, wish: &Wish) -> Vec<String> {
        let directory = self.directory.display().to_string();
        let [p, q] = self.ports.map(|port| port.to_string());
        let fill =
            |word: &String| word.replace("{p}", &p).replace("{q}", &q).replace("{d}", &directory);
        wish.words.iter().map(fill).collect()
    }

    /// What answers at each address and path that is served. `ours` tells which addresses
    /// may be this daemon's.
    fn served(&self, ours: impl Fn(IpAddr, usize) -> bool) -> BTreeMap<String, &'static str> {
        let ips = (1..=4).map(|n| IpAddr::from(own(n))).chain([IpAddr::from([0; 16]), localhost()]);
        let mut served = BTreeMap::new();
        for ip in ips.filter(|ip| !ip.is_unspecified()) {
            for n in [0, 1].into_iter().filter(|&n| ours(ip, n)) {
                let kind = at_address(SocketAddr::new(ip, self.ports[n]));
                served.extend(kind.map(|kind| (format!("{ip}, port {n}"), kind)));
            }
        }
        for name in NAMES {
            let kind = UnixStream::connect(self.directory.join(name)).ok().map(|stream| {
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                kind_of_server(stream)
            });
            served.extend(kind.map(|kind| (name.to_owned(), kind)));
        }
        served
    }
}

fn localhost() -> IpAddr {
    "::1".parse().expect("an address")
}

fn at_address(address: SocketAddr) -> Option<&'static str> {
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(stream) => {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            Some(kind_of_server(stream))
        }
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::ConnectionRefused, "{address}");
            None
        }
    }
}

fn kind_of_server(mut stream: impl Read + Write) -> &'static str {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("send");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    match line {
        line if line.starts_with("HTTP/") => "HTTP",
        line if line.starts_with("ERROR BAD_COMMAND") => "clients",
        line if line.starts_with("ERROR no such order") => "operators",
        line => panic!("an unknown answer: {line:?}"),
    }
}

fn some_ip(random: &mut Random) -> String {
    match random.next() % 20 {
        0..4 => own(1).to_string(),
        4..7 => own(2).to_string(),
        7..9 => own(3).to_string(),
        9..11 => "::1".to_owned(),
        11..13 => "0.0.0.0".to_owned(),
        13..15 => "::".to_owned(),
        15..17 => format!("::ffff:{}", own(1)),
        17 => format!("::ffff:{}", own(2)),
        18 => "::ffff:0.0.0.0".to_owned(),
        // TEST-NET-1 (RFC 5737): no machine has it.
        _ => "192.0.2.1".to_owned(),
    }
}

/// A path to a name, in a random spelling.
fn some_path(random: &mut Random, name: &str) -> String {
    match random.next() % 16 {
        0..8 => format!("{{d}}/{name}"),
        8..10 => format!("{{d}}/./{name}"),
        10..12 => format!("{{d}}/link/{name}"),
        12..14 => format!("{{d}}/link/../link/{name}"),
        14 => format!("{{d}}//{name}"),
        _ => format!("{{d}}/missing/{name}"),
    }
}

fn some_wish(random: &mut Random, is_port_0: bool) -> Wish {
    let mut words = vec!["-l".to_owned()];
    let ips: Vec<String> = (0..1 + random.next() % 3).map(|_| some_ip(random)).collect();
    words.push(if random.next() % 20 == 0 { "nonsense".to_owned() } else { ips.join(",") });
    words.extend(["-p".to_owned(), if is_port_0 { "0" } else { "{p}" }.to_owned()]);
    for _ in 0..random.next() % 4 {
        let ip = some_ip(random);
        let ip = if ip.contains(':') { format!("[{ip}]") } else { ip };
        // Rarely the port of the clients.
        let port = if random.next() % 8 == 0 && !is_port_0 { "{p}" } else { "{q}" };
        words.extend(["--http".to_owned(), format!("{ip}:{port}")]);
    }
    let control = if random.next() % 2 == 0 { NAMES[0] } else { random.one_of(&NAMES) };
    words.extend(["--control".to_owned(), some_path(random, control)]);
    Wish { words, control }
}

/// Adds another path to the directory.
fn prepare(place: &Place) {
    std::os::unix::fs::symlink(place.directory(), place.path("link")).expect("a link");
}

/// What a cold start serves; `None` if it is refused.
fn cold_start(wish: &Wish, is_theirs: bool) -> Option<BTreeMap<String, &'static str>> {
    let place = Place::new();
    prepare(&place);
    let mut there = There { ports: [quiet_port(), quiet_port()], directory: place.directory() };
    let _taken = is_theirs.then(|| TcpListener::bind((theirs(), there.ports[0])).expect("free"));
    let words = there.fill(wish);
    let mut command = daemon_command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("start");
    let stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let mut lines = stderr.lines().map(|line| line.expect("a line"));
    let served = lines.find_map(|line| {
        let first = line.split_once("listening on ")?.1.split(',').next()?.trim().to_owned();
        there.ports[0] = first.parse::<SocketAddr>().expect("an address").port();
        let is_port_0 = wish.words[3] == "0";
        Some(there.served(|ip, n| may_be_ours(ip, n, is_port_0, is_theirs)))
    });
    let _ = child.kill();
    child.wait().expect("wait");
    served
}

/// The kernel may give the same port to another daemon on another address.
fn may_be_ours(ip: IpAddr, n: usize, is_port_0: bool, is_theirs: bool) -> bool {
    let is_taken = is_theirs && ip == IpAddr::from(theirs()) && n == 0;
    let may_be_anothers = is_port_0 && n == 0 && ip.is_ipv6();
    !is_taken && !may_be_anothers
}

/// With random options, random states (draining or not, changed before or not) and sometimes
/// an address taken by another process.
#[test]
fn a_reload_gives_the_same_result_as_a_cold_start() {
    if !has_ipv6() {
        skip("no IPv6 here, so `::` can't be tested");
        return;
    }
    let first = number_from_environment("RELOADS_SEED");
    let count =
        number_from_environment("RELOADS_SEEDS").unwrap_or(if first.is_some() { 1 } else { 3 });
    for seed in (first.unwrap_or(1)..).take(count as usize) {
        let mut random = Random(seed);
        for round in 0..ROUNDS {
            Round::start(&mut random, format!("RELOADS_SEED={seed}, round {round}"))
                .play(&mut random);
        }
    }
}

struct Round {
    daemon: Operated,
    is_port_0: bool,
    ports: [u16; 2],
    /// What the daemon serves.
    wish: Wish,
    name: String,
}

impl Round {
    fn start(random: &mut Random, name: String) -> Round {
        let is_port_0 = random.next() % 4 == 0;
        let first = format!("-l {} -p {}", own(1), if is_port_0 { "0" } else { "{p}" });
        let words = first.split(' ').chain(["--control", "{d}/control.sock"]);
        let wish = Wish { words: words.map(str::to_owned).collect(), control: NAMES[0] };
        let mut ports = [quiet_port(), quiet_port()];
        let daemon =
            Operated::start_at(&["-l", &wish.words[1], "-p", &port_text(is_port_0, ports[0])]);
        prepare(&daemon.place);
        ports[0] = daemon.server.address().port();
        Round { daemon, is_port_0, ports, wish, name }
    }

    fn there(&self) -> There<'_> {
        There { ports: self.ports, directory: self.daemon.place.directory() }
    }

    fn served(&self, is_theirs: bool) -> BTreeMap<String, &'static str> {
        self.there().served(|ip, n| may_be_ours(ip, n, self.is_port_0, is_theirs))
    }

    fn operator(&self) -> Operator {
        let path = self.daemon.place.path(self.wish.control);
        assert!(path.exists(), "{}: no control socket with {:?}", self.name, self.wish.words);
        Operator::connect(&path.display().to_string())
    }

    /// Reloads, and ends the drain if there is one.
    fn reload(&mut self, wish: &Wish, drains: bool) -> String {
        let answer = self.operator().restart(&self.there().fill(wish));
        if !answer.starts_with("OK restarted") {
            return answer;
        }
        self.wish = wish.clone();
        if drains { self.operator().ask("UNDRAIN") } else { answer }
    }

    fn play(mut self, random: &mut Random) {
        let _client = self.daemon.server.connect();
        self.daemon.server.settle();
        for step in 0..STEPS {
            if !self.step(random, step) {
                return;
            }
        }
    }

    /// Returns whether the daemon can take more steps.
    fn step(&mut self, random: &mut Random, step: usize) -> bool {
        // An address that the daemon already serves can't be taken.
        let taken = (random.next() % 3 == 0).then(|| TcpListener::bind((theirs(), self.ports[0])));
        let taken = taken.and_then(Result::ok);
        let wish = some_wish(random, self.is_port_0);
        let drains = random.next() % 3 == 0;
        let what = format!(
            "{}, step {step}: {:?} → {:?}, taken: {}, drains: {drains}",
            self.name,
            self.wish.words,
            wish.words,
            taken.is_some()
        );
        if drains {
            assert!(self.operator().ask("DRAIN").starts_with("OK "), "{what}");
        }
        let before = self.served(taken.is_some());
        assert!(!drains || !before.values().any(|kind| *kind == "clients"), "{what}: {before:?}");
        let answer = self.reload(&wish, drains);
        let after = self.served(taken.is_some());
        // Another process may have the kernel's port on another address.
        let is_anothers = self.is_port_0 && answer.contains("Address already in use");
        let cold = cold_start(&wish, taken.is_some()).filter(|_| !is_anothers);
        let is_another = |cold: &BTreeMap<_, _>| {
            cold.iter().any(|(at, kind)| before.get(at).is_some_and(|before| before != kind))
        };
        match cold.filter(|cold| !is_another(cold)) {
            Some(cold) => {
                assert!(answer.starts_with("OK "), "{what}: {answer:?}");
                assert_eq!(after, cold, "{what}");
            }
            None => {
                assert!(answer.starts_with("ERROR "), "{what}: {answer:?}");
                // A daemon that keeps draining may have new options.
                assert!(drains || after == before, "{what}: {before:?}, {after:?}");
                let clients = after.values().filter(|kind| **kind == "clients").count();
                assert!(!drains || clients == 0, "{what}: {after:?}");
            }
        }
        if let Some(taken) = taken {
            // A child of a parallel test may briefly have a copy.
            rustix::net::shutdown(&taken, rustix::net::Shutdown::Both).expect("shutdown");
        }
        answer.starts_with("OK ") || !drains || self.recover(&what)
    }

    /// Ends a drain by options that work.
    fn recover(&mut self, what: &str) -> bool {
        let port = port_text(self.is_port_0, self.ports[0]);
        let control = format!("{{d}}/{}", self.wish.control);
        let words = ["-l", &own(1).to_string(), "-p", &port, "--control", &control];
        let wish = Wish { words: words.map(str::to_owned).to_vec(), ..self.wish };
        let answer = self.reload(&wish, true);
        // Another process may have got the kernel's port while it was closed, or HTTP has it.
        let is_taken = self.is_port_0 && answer.contains("Address already in use")
            || answer.contains("that address is open for another purpose");
        assert!(answer.starts_with("OK ") || is_taken, "{what}: {answer:?}");
        !is_taken
    }
}

fn port_text(is_port_0: bool, port: u16) -> String {
    if is_port_0 { "0".to_owned() } else { port.to_string() }
}
