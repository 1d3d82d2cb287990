//! `poolcounter-bench load`: puts load on any server, and reports the results.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Result;
use crate::figures::human;
use crate::fleet::{Fleet, raise_descriptor_limit};
use crate::process;
use crate::traffic::{Mode, Pace, Request, Traffic, histogram};

/// Put load on a server and report requests a second, latencies and errors.
///
/// Every connection takes a lock, gives it back, and begins again as soon as it has its answer;
/// with --rate, requests are sent at that rate instead, and latency counts from when a request was
/// due. One thread: pin it to a core of its own with --core, and the server to another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  poolcounter-bench load --connections 1000 --pid $(pidof poolcounterd)
      1000 connections to localhost; what a request costs the daemon
  poolcounter-bench load --mode cycle --connections 100
      connect, lock, release, close, 100 at a time, as MediaWiki does
  poolcounter-bench load --keys 10 --workers 2 --max-queue 50 --timeout 3
      contention: 50 connections want one of ten keys, two may work on each
  poolcounter-bench load --rate 5000 --seconds 60
      5000 requests a second for a minute: latency alongside real traffic

The keys begin with `bench:`: no wiki has such keys. But the load is real: think before
you point it at a server that is in use.")]
pub struct Args {
    /// Where the server listens
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7531")]
    server: String,
    /// Connections at once (the limit of descriptors is raised as far as allowed)
    #[arg(long, value_name = "N", default_value_t = 50)]
    connections: usize,
    /// How long
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Keep connections, or open one for each lock
    #[arg(long, value_enum, default_value_t = Mode::Kept)]
    mode: Mode,
    /// Choose among N keys at random; without it each connection has its own
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Bytes in a key
    #[arg(long, value_name = "N", default_value_t = 40)]
    key_bytes: usize,
    /// How many clients may hold a key at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: u32,
    /// How many clients may hold a key or wait for it
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_queue: u32,
    /// Whole seconds to wait for a lock
    #[arg(long, value_name = "S", default_value_t = 15)]
    timeout: u32,
    /// Ask with ACQ4ANY instead of ACQ4ME: waiters get DONE
    #[arg(long)]
    any: bool,
    /// Requests a second, all connections together; kept connections only
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// The server's process id, to report its CPU time and memory too
    #[arg(long)]
    pid: Option<u32>,
    /// Local addresses to connect from, in turn: one has 28,000 ports, and in mode
    /// `cycle` each is in use for up to a minute after its connection
    #[arg(long, value_name = "IP,…", value_delimiter = ',')]
    source: Vec<IpAddr>,
    /// Stay on this core
    #[arg(long, value_name = "N")]
    core: Option<usize>,
}

/// Runs the load and prints the report on stdout, progress on stderr.
pub fn run(args: &Args) -> Result<()> {
    if args.rate.is_some() && args.mode == Mode::Cycle {
        return Err("--rate is for kept connections".into());
    }
    if let Some(core) = args.core {
        process::pin_to(core)?;
    }
    let limit = raise_descriptor_limit()?;
    if args.connections as u64 + 10 > limit {
        return Err(format!("only {limit} descriptors are allowed here (ulimit -Hn)").into());
    }
    let server = resolve(&args.server)?;
    let mut fleet = Fleet::new(server, args.connections)?.connecting_from(args.source.clone());
    let mut traffic = Traffic::new(args.mode, request(args));
    traffic.prepare(&mut fleet);

    let memory_before = args.pid.map(process::memory).transpose()?;
    if args.mode == Mode::Kept {
        fleet.open_gently().map_err(|e| format!("{server}: {e}"))?;
    }
    let idle_bytes = args.pid.map(process::memory).transpose()?;
    let cpu_before = args.pid.map(process::settled_cpu).transpose()?;
    let mut totals = Totals::new(fleet.now_ns());
    drive(args, &mut fleet, &mut traffic, &mut totals)?;
    totals.take(&traffic);
    let cpu_after = args.pid.map(process::settled_cpu).transpose()?;

    print_report(args, &totals, fleet.now_ns());
    if let (Some(before), Some(after)) = (cpu_before, cpu_after) {
        let used_us = (after.used_ns - before.used_ns) as f64 / 1e3;
        println!("server CPU      {} µs a request", human(used_us / totals.requests.max(1) as f64));
    }
    if let (Some(before), Some(idle)) = (memory_before, idle_bytes) {
        let count = args.connections.max(1) as f64;
        let more = idle.private_dirty_bytes as f64 - before.private_dirty_bytes as f64;
        // Memory is allocated in pages: with few connections, the figure per
        // connection means nothing.
        if args.mode == Mode::Kept && args.connections >= 1000 {
            println!("server memory   {} bytes more for each idle connection", human(more / count));
        }
        let now = process::memory(args.pid.unwrap_or(0))?;
        println!(
            "                {} KiB resident at the end",
            human(now.rss_bytes as f64 / 1024.0)
        );
    }
    Ok(())
}

fn request(args: &Args) -> Request {
    Request {
        command: if args.any { "ACQ4ANY" } else { "ACQ4ME" },
        key_bytes: args.key_bytes,
        limits: format!("{} {} {}", args.workers, args.max_queue, args.timeout),
        keys: args.keys,
    }
}

fn resolve(server: &str) -> Result<SocketAddr> {
    let mut found = server.to_socket_addrs().map_err(|e| format!("{server}: {e}"))?;
    found.next().ok_or_else(|| format!("{server}: no such host").into())
}

/// Runs for the wanted time, with a line on stderr each second.
fn drive(args: &Args, fleet: &mut Fleet, traffic: &mut Traffic, totals: &mut Totals) -> Result<()> {
    let mut pace = args.rate.map(|rate| Pace::new(fleet.now_ns(), rate));
    if pace.is_some() {
        traffic.start_paced(fleet, args.seconds);
    } else {
        traffic.stop_ns = fleet.now_ns() + (args.seconds * 1e9) as u64;
        traffic.begin(fleet)?;
    }
    let mut printed_ns = fleet.now_ns();
    while fleet.now_ns() < traffic.stop_ns {
        match &mut pace {
            Some(pace) => traffic.turn_paced(fleet, pace)?,
            None => {
                fleet.poll(100, traffic)?;
                if traffic.busy == 0 {
                    return Err("the server closed or refused every connection".into());
                }
            }
        }
        if fleet.now_ns() - printed_ns >= 1_000_000_000 {
            totals.print(traffic, (fleet.now_ns() - printed_ns) as f64 / 1e9, fleet.now_ns());
            printed_ns = fleet.now_ns();
        }
    }
    traffic.finish(fleet)
}

/// All seconds together.
struct Totals {
    start_ns: u64,
    requests: u64,
    cycles: u64,
    lost: u64,
    replies: crate::traffic::Replies,
    latency: hdrhistogram::Histogram<u64>,
}

impl Totals {
    fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            requests: 0,
            cycles: 0,
            lost: 0,
            replies: crate::traffic::Replies::default(),
            latency: histogram(),
        }
    }

    fn take(&mut self, traffic: &Traffic) {
        self.requests += traffic.requests;
        self.cycles += traffic.cycles;
        self.lost += traffic.lost;
        self.replies.add(&traffic.replies);
        // Both histograms have the same bounds: this can't fail.
        let _ = self.latency.add(&traffic.latency);
    }

    /// Prints the line of one second and adds its counts to the totals.
    fn print(&mut self, traffic: &mut Traffic, seconds: f64, now_ns: u64) {
        let at = |q| human(traffic.latency.value_at_quantile(q) as f64 / 1e3);
        let _ = writeln!(
            std::io::stderr(),
            "{:4.0} s  {:>9} requests/s  median {} µs  99 % {} µs  lost {}",
            (now_ns - self.start_ns) as f64 / 1e9,
            human((traffic.requests as f64 / seconds).round()),
            at(0.5),
            at(0.99),
            traffic.lost,
        );
        self.take(traffic);
        traffic.forget();
    }
}

fn print_report(args: &Args, totals: &Totals, now_ns: u64) {
    let seconds = (now_ns - totals.start_ns) as f64 / 1e9;
    let per_second = |n: u64| human((n as f64 / seconds).round());
    println!(
        "requests        {} in {seconds:.1} s: {} a second",
        human(totals.requests as f64),
        per_second(totals.requests)
    );
    println!(
        "locks           {} taken and given back, or refused: {} a second",
        human(totals.cycles as f64),
        per_second(totals.cycles)
    );
    let what = match args.mode {
        Mode::Kept => "of a request",
        Mode::Cycle => "from connect to RELEASED",
    };
    println!("latency         {what}, in µs");
    for (name, q) in
        [("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("slowest", 1.0)]
    {
        println!("    {name:<12}{:>10}", human(totals.latency.value_at_quantile(q) as f64 / 1e3));
    }
    let r = &totals.replies;
    println!(
        "answers         LOCKED {}, RELEASED {}, DONE {}, QUEUE_FULL {}, TIMEOUT {}, other {}",
        r.locked, r.released, r.done, r.queue_full, r.timeout, r.other
    );
    println!("errors          {} connections lost, {} unexpected answers", totals.lost, r.other);
}
