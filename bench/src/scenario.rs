//! The measured scenarios: each takes one fresh server through one situation and
//! returns figures by name.

use crate::Result;
use crate::fleet::{Conn, Fleet, Next, Script};
use crate::process::Cpu;
use crate::server::{Control, Program, Server};
use crate::traffic::{Mode, Request, Traffic, histogram};

/// The figures of one measurement, by the names that [`METRICS`] explains.
pub type Figures = Vec<(&'static str, f64)>;

/// A figure's name, unit and description.
pub struct Metric {
    /// Its name in scenarios.
    pub name: &'static str,
    /// Its description in the table.
    pub words: &'static str,
    /// Microseconds, milliseconds, bytes or none.
    pub unit: &'static str,
}

const fn metric(name: &'static str, words: &'static str, unit: &'static str) -> Metric {
    Metric { name, words, unit }
}

/// The share of its runnable time for which a server had to wait, because other work
/// was on its core. Shows whether the machine was quiet; no row has it.
pub const DISTURBED: &str = "disturbed";

/// Every figure of the tables, in their order.
pub const METRICS: &[Metric] = &[
    metric("cpu_request", "CPU per request", "µs"),
    metric("cpu_cycle", "CPU per cycle", "µs"),
    metric("cpu_join", "CPU per waiter that joins", "µs"),
    metric("cpu_woken", "CPU per woken waiter", "µs"),
    metric("cpu_timeout", "CPU per waiter that times out", "µs"),
    metric("cpu_leave", "CPU per waiter that disconnects", "µs"),
    metric("rate", "requests a second", "/s"),
    metric("given_up", "connects without an answer at the end", ""),
    metric("p50", "latency, median", "µs"),
    metric("p99", "latency, 99 %", "µs"),
    metric("max", "slowest", "ms"),
    metric("late_900", "not answered within 900 ms", ""),
    metric("early", "answered before their time", ""),
    metric("earliest", "earliest, from its time", "ms"),
    metric("late_median", "late, median", "ms"),
    metric("late_99", "late, 99 %", "ms"),
    metric("late_max", "late, most", "ms"),
    metric("last", "until the last had its answer", "ms"),
    metric("idle_bytes", "memory per idle connection", "bytes"),
    metric("idle_slope", "memory of one more idle connection", "bytes"),
    metric("holding_bytes", "memory per connection that holds a lock", "bytes"),
    metric("holding_slope", "memory of one more connection that holds a lock", "bytes"),
    metric("released_bytes", "memory per connection that held one", "bytes"),
    metric("waiting_bytes", "memory per connection that waits", "bytes"),
    metric("waiting_slope", "memory of one more connection that waits", "bytes"),
    metric("closed_kib", "memory kept after all closed", "KiB"),
];

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// How long steady load is measured, in seconds.
    pub window: f64,
    /// Seconds of load before it, to warm up.
    pub warm_up: f64,
    /// The timeout of waits, in whole seconds.
    pub timeout_s: u64,
}

/// One situation to measure.
pub struct Scenario {
    /// Its name for `--only`.
    pub name: &'static str,
    /// A description for the report.
    pub words: &'static str,
    /// Whether the floor supports it: the floor has no waiting.
    pub floor: bool,
    /// At most this many rounds are measured, if it takes long or varies little.
    pub rounds_max: usize,
    /// Measures a program on a core.
    pub run: fn(&Program, usize, &Scale) -> Result<Figures>,
}

impl Scenario {
    /// Whether `program` supports it.
    pub fn suits(&self, program: &Program) -> bool {
        self.floor || !program.is_floor()
    }

    /// The same in at most `rounds_max` rounds.
    const fn in_rounds(self, rounds_max: usize) -> Self {
        Scenario { rounds_max, ..self }
    }
}

const fn scenario(
    name: &'static str,
    words: &'static str,
    run: fn(&Program, usize, &Scale) -> Result<Figures>,
) -> Scenario {
    Scenario { name, words, floor: true, rounds_max: usize::MAX, run }
}

/// The same, for a scenario that the floor does not support.
const fn stateful(
    name: &'static str,
    words: &'static str,
    run: fn(&Program, usize, &Scale) -> Result<Figures>,
) -> Scenario {
    Scenario { floor: false, ..scenario(name, words, run) }
}

/// All scenarios, in the order of the report.
pub const SCENARIOS: &[Scenario] = &[
    scenario("kept-1", "1 kept connection locks and releases", |p, c, s| kept(p, c, s, 1)),
    scenario("kept-50", "50 kept connections", |p, c, s| kept(p, c, s, 50)),
    scenario("kept-1000", "1000 kept connections", |p, c, s| kept(p, c, s, 1000)),
    scenario("kept-10000", "10,000 kept connections", |p, c, s| kept(p, c, s, 10_000)),
    scenario("cycle-20", "connect, lock, release, close: 20 at once", |p, c, s| cycle(p, c, s, 20)),
    scenario("cycle-100", "connect, lock, release, close: 100 at once", |p, c, s| {
        cycle(p, c, s, 100)
    }),
    scenario("cycle-300", "connect, lock, release, close: 300 at once", |p, c, s| {
        cycle(p, c, s, 300)
    }),
    scenario("burst-5000", "5000 connect at once and lock, watched for 4 s", |p, c, _| {
        burst(p, c, 5000)
    })
    .in_rounds(7),
    stateful("wake-any", "10,000 ACQ4ANY waiters woken by one RELEASE", |p, c, _| {
        wake(p, c, "ACQ4ANY", 10_000)
    }),
    stateful(
        "wake-me",
        "10,000 ACQ4ME waiters, each woken by the RELEASE of the one before",
        |p, c, _| wake(p, c, "ACQ4ME", 10_000),
    ),
    stateful("timeouts", "10,000 waits that run out", |p, c, s| timeouts(p, c, s, 10_000)),
    stateful(
        "memory",
        "15,000 connections, a 40-byte key each; one more: between 5000 and these",
        |p, c, _| memory(p, c, 15_000),
    )
    .in_rounds(5),
    stateful(
        "one-key",
        "15,000 waiters of one 40-byte key; one more: between 5000 and these",
        |p, c, _| one_key(p, c, 15_000),
    )
    .in_rounds(5),
];

/// Microseconds of CPU since `before`, divided by `count`.
fn cpu_each(server: &Server, before: Cpu, count: usize) -> Result<f64> {
    let used_ns = server.cpu()?.used_ns - before.used_ns;
    Ok(used_ns as f64 / 1e3 / count.max(1) as f64)
}

fn disturbed_percent(server: &Server, before: Cpu) -> Result<f64> {
    let now = server.cpu()?;
    let waited_ns = (now.waited_ns - before.waited_ns) as f64;
    Ok(100.0 * waited_ns / (waited_ns + (now.used_ns - before.used_ns) as f64).max(1.0))
}

/// An error if there were unexpected answers.
pub fn must_be_clean(traffic: &Traffic) -> Result<()> {
    if traffic.lost > 0 || traffic.replies.other > 0 {
        return Err(format!("{} lost, answers: {:?}", traffic.lost, traffic.replies).into());
    }
    Ok(())
}

pub fn latency_figures(traffic: &Traffic) -> Figures {
    let at = |q| traffic.latency.value_at_quantile(q) as f64 / 1e3;
    vec![("p50", at(0.5)), ("p99", at(0.99))]
}

/// `count` open connections with uncontended locks to ask for.
pub fn warm_fleet(server: &Server, scale: &Scale, count: usize) -> Result<(Fleet, Traffic)> {
    let mut fleet = Fleet::new(server.addr, count)?;
    let mut traffic = Traffic::new(Mode::Kept, Request::uncontended());
    traffic.prepare(&mut fleet);
    fleet.open_gently()?;
    traffic.run(&mut fleet, scale.warm_up)?;
    traffic.forget();
    Ok((fleet, traffic))
}

fn kept(program: &Program, core: usize, scale: &Scale, count: usize) -> Result<Figures> {
    let server = Server::start(program, core)?;
    let (mut fleet, mut traffic) = warm_fleet(&server, scale, count)?;
    kept_figures(&server, &mut fleet, &mut traffic, scale)
}

fn kept_figures(
    server: &Server,
    fleet: &mut Fleet,
    traffic: &mut Traffic,
    scale: &Scale,
) -> Result<Figures> {
    let before = server.cpu()?;
    let start_ns = fleet.now_ns();
    traffic.run(fleet, scale.window)?;
    let took_ns = fleet.now_ns() - start_ns;
    must_be_clean(traffic)?;
    let cpu_request = cpu_each(server, before, traffic.requests as usize)?;
    let disturbed = disturbed_percent(server, before)?;
    let rate = traffic.requests as f64 * 1e9 / took_ns as f64;
    let mut figures = vec![("cpu_request", cpu_request), ("rate", rate), (DISTURBED, disturbed)];
    figures.extend(latency_figures(traffic));
    Ok(figures)
}

/// Half the ports of one address are enough for all cycles, including the warm-up, so
/// that no connect waits for a port. A client without an answer because the server's
/// backlog dropped its SYN (as the reference's does) is given up at the end.
fn cycle(program: &Program, core: usize, scale: &Scale, at_once: usize) -> Result<Figures> {
    const CYCLES_MAX: u64 = 10_000;
    const GRACE_MS: u64 = 100;
    let server = Server::start(program, core)?;
    let mut fleet = Fleet::new(server.addr, at_once)?;
    let mut traffic = Traffic::new(Mode::Cycle, Request::uncontended());
    traffic.prepare(&mut fleet);
    traffic.begins_left = 2000;
    traffic.run_and_give_up(&mut fleet, scale.warm_up, GRACE_MS)?;
    traffic.forget();
    traffic.begins_left = CYCLES_MAX;
    let before = server.cpu()?;
    let given_up = traffic.run_and_give_up(&mut fleet, scale.window, GRACE_MS)?;
    must_be_clean(&traffic)?;
    let mut figures = vec![
        ("cpu_cycle", cpu_each(&server, before, traffic.cycles as usize)?),
        ("given_up", given_up as f64),
        (DISTURBED, disturbed_percent(&server, before)?),
    ];
    figures.extend(latency_figures(&traffic));
    Ok(figures)
}

/// All connect before any is accepted, like MediaWiki's servers after a purge.
fn burst(program: &Program, core: usize, count: usize) -> Result<Figures> {
    let server = Server::start(program, core)?;
    let mut fleet = Fleet::new(server.addr, count)?;
    let mut script =
        Burst { answers: histogram(), answered: vec![false; count], late: 0, busy: count };
    Traffic::new(Mode::Kept, Request::uncontended()).prepare(&mut fleet);
    for index in 0..count {
        fleet.open(index, true)?;
    }
    let end_ns = fleet.now_ns() + BURST_MS_MAX * 1_000_000;
    while script.busy > 0 && fleet.now_ns() < end_ns {
        fleet.poll(20, &mut script)?;
    }
    // A client that is still waiting has waited since the start.
    for conn in fleet.conns.iter().filter(|c| !script.answered[c.index]) {
        script.answers.saturating_record(fleet.now_ns() - conn.opened_ns);
    }
    Ok(vec![
        ("late_900", (script.late + script.busy) as f64),
        ("p50", script.answers.value_at_quantile(0.5) as f64 / 1e3),
        ("max", script.answers.max() as f64 / 1e6),
    ])
}

/// The reference makes some clients wait for half a minute; a longer limit would not
/// show more.
const BURST_MS_MAX: u64 = 4000;

struct Burst {
    answers: hdrhistogram::Histogram<u64>,
    answered: Vec<bool>,
    late: usize,
    busy: usize,
}

impl Script for Burst {
    fn replied(&mut self, conn: &mut Conn, _: &[u8], now_ns: u64) -> Next {
        let took_ns = now_ns - conn.opened_ns;
        self.answers.saturating_record(took_ns);
        self.answered[conn.index] = true;
        self.late += usize::from(took_ns > 900_000_000);
        self.busy -= 1;
        Next::Nothing
    }

    fn lost(&mut self, conn: &mut Conn, _: u64) -> Next {
        self.answered[conn.index] = true;
        self.late += 1;
        self.busy -= 1;
        Next::Nothing
    }
}

/// Waiters that record when they are answered, and give back each lock that they get.
struct Waiting {
    busy: usize,
    timeout_ns: u64,
    early: usize,
    /// The delay of each waiter's answer after its timeout; negative if early.
    late_ns: Vec<i64>,
    unexpected: usize,
}

impl Waiting {
    fn new(busy: usize, timeout_s: u64) -> Self {
        Self {
            busy,
            timeout_ns: timeout_s * 1_000_000_000,
            early: 0,
            late_ns: Vec::with_capacity(busy),
            unexpected: 0,
        }
    }

    fn must_be_clean(&self) -> Result<()> {
        match self.unexpected {
            0 => Ok(()),
            n => Err(format!("{n} waiters were lost or got another answer").into()),
        }
    }
}

impl Script for Waiting {
    fn replied(&mut self, conn: &mut Conn, line: &[u8], now_ns: u64) -> Next {
        match line {
            b"LOCKED" => return Next::Release,
            b"RELEASED" | b"DONE" => {}
            b"TIMEOUT" => {
                let late_ns = (now_ns - conn.sent_ns) as i64 - self.timeout_ns as i64;
                self.late_ns.push(late_ns);
                self.early += usize::from(late_ns < 0);
            }
            _ => self.unexpected += 1,
        }
        self.busy -= 1;
        Next::Nothing
    }

    fn lost(&mut self, _: &mut Conn, _: u64) -> Next {
        self.unexpected += 1;
        self.busy -= 1;
        Next::Nothing
    }
}

/// A client that holds the one key, and a fleet that waits for it.
struct Queue {
    server: Server,
    holder: Control,
    fleet: Fleet,
    /// CPU per waiter that joins the queue, in microseconds.
    cpu_join: f64,
    /// Memory once all were connected and none waited yet.
    idle_bytes: f64,
}

impl Queue {
    fn form(
        program: &Program,
        core: usize,
        command: &'static str,
        count: usize,
        timeout_s: u64,
    ) -> Result<Self> {
        let server = Server::start(program, core)?;
        ask_for_many_keys(&server)?;
        let mut holder = Control::connect(server.addr)?;
        let mut fleet = Fleet::new(server.addr, count)?;
        Traffic::new(Mode::Kept, Request::uncontended()).prepare(&mut fleet);
        fleet.open_gently()?;
        let idle_bytes = server.own_bytes()?;

        let request = Request::with(command, &format!("1 {} {timeout_s}", count + 1));
        let mut line = Vec::new();
        request.write(0, &mut line);
        holder.lock(std::str::from_utf8(&line)?.trim_end())?;
        let before = server.cpu()?;
        for index in 0..count {
            fleet.conns[index].acquire.clone_from(&line);
            let now_ns = fleet.now_ns();
            fleet.acquire(index, now_ns);
        }
        let cpu_join = cpu_each(&server, before, count)?;
        Control::connect(server.addr)?.wait_for("waiting_workers", count)?;
        Ok(Self { server, holder, fleet, cpu_join, idle_bytes })
    }
}

fn wake(program: &Program, core: usize, command: &'static str, count: usize) -> Result<Figures> {
    let mut queue = Queue::form(program, core, command, count, 60)?;
    let mut script = Waiting::new(count, 60);
    let before = queue.server.cpu()?;
    let start_ns = queue.fleet.now_ns();
    queue.holder.send("RELEASE")?;
    queue.fleet.poll_until(30, &mut script, |s| s.busy == 0)?;
    let took_ns = queue.fleet.now_ns() - start_ns;
    script.must_be_clean()?;
    Ok(vec![
        ("cpu_woken", cpu_each(&queue.server, before, count)?),
        ("cpu_join", queue.cpu_join),
        ("last", took_ns as f64 / 1e6),
    ])
}

fn timeouts(program: &Program, core: usize, scale: &Scale, count: usize) -> Result<Figures> {
    let mut queue = Queue::form(program, core, "ACQ4ME", count, scale.timeout_s)?;
    let mut script = Waiting::new(count, scale.timeout_s);
    let before = queue.server.cpu()?;
    let begun_ns = queue.fleet.conns[0].sent_ns;
    if queue.fleet.now_ns() > begun_ns + scale.timeout_s * 1_000_000_000 {
        return Err("the machine is too slow: waits ran out before all had begun".into());
    }
    queue.fleet.poll_until(30, &mut script, |s| s.busy == 0)?;
    script.must_be_clean()?;
    let cpu_timeout = cpu_each(&queue.server, before, count)?;
    script.late_ns.sort_unstable();
    let late_ms = |place: usize| script.late_ns[place] as f64 / 1e6;
    Ok(vec![
        ("cpu_timeout", cpu_timeout),
        ("early", script.early as f64),
        ("earliest", late_ms(0)),
        ("late_median", late_ms(count / 2)),
        ("late_99", late_ms(count * 99 / 100)),
        ("late_max", late_ms(count - 1)),
    ])
}

fn memory(program: &Program, core: usize, count: usize) -> Result<Figures> {
    let fewer = memory_of(program, core, count / 3)?;
    let all = memory_of(program, core, count)?;
    let each = |bytes: f64| (bytes - all.start) / count as f64;
    let slope = |of: fn(&MemoryOf) -> f64| (of(&all) - of(&fewer)) / (count - count / 3) as f64;
    Ok(vec![
        ("idle_bytes", each(all.idle)),
        ("idle_slope", slope(|m| m.idle)),
        ("holding_bytes", each(all.holding)),
        ("holding_slope", slope(|m| m.holding)),
        ("released_bytes", each(all.released)),
        ("closed_kib", (all.closed - all.start) / 1024.0),
    ])
}

/// The memory of a server, in bytes.
struct MemoryOf {
    /// Without connections.
    start: f64,
    /// With all of them, idle.
    idle: f64,
    /// With a lock each.
    holding: f64,
    /// The locks are given back.
    released: f64,
    /// The connections are closed.
    closed: f64,
}

fn memory_of(program: &Program, core: usize, count: usize) -> Result<MemoryOf> {
    let server = Server::start(program, core)?;
    ask_for_many_keys(&server)?;
    let start = server.own_bytes()?;
    let mut fleet = Fleet::new(server.addr, count)?;
    Traffic::new(Mode::Kept, Request::uncontended()).prepare(&mut fleet);
    fleet.open_gently()?;
    let idle = server.own_bytes()?;
    all_send(&mut fleet, Fleet::acquire)?;
    let holding = server.own_bytes()?;
    all_send(&mut fleet, Fleet::release)?;
    let released = server.own_bytes()?;
    for index in 0..count {
        fleet.close(index);
    }
    let closed = server.own_bytes()?;
    Ok(MemoryOf { start, idle, holding, released, closed })
}

/// The memory of our daemon for hot keys is bounded and does not depend on the number of
/// connections, so it is filled before these are counted. Some 2,500 different keys are
/// enough: by then the least frequent ones have twice lost their places to others.
fn ask_for_many_keys(server: &Server) -> Result<()> {
    let mut control = Control::connect(server.addr)?;
    for key in 0..4_000 {
        control.ask(&format!("ACQ4ME bench:{key:034} 1 1 0"))?;
        control.ask("RELEASE")?;
    }
    Ok(())
}

/// Every connection sends one line and receives the answer, a thousand at a time.
fn all_send(fleet: &mut Fleet, send: fn(&mut Fleet, usize, u64)) -> Result<()> {
    struct Answers(usize);
    impl Script for Answers {
        fn replied(&mut self, _: &mut Conn, _: &[u8], _: u64) -> Next {
            self.0 += 1;
            Next::Nothing
        }
        fn lost(&mut self, _: &mut Conn, _: u64) -> Next {
            Next::Nothing
        }
    }
    let mut answers = Answers(0);
    for index in 0..fleet.conns.len() {
        let now_ns = fleet.now_ns();
        send(fleet, index, now_ns);
        if (index + 1) % 1000 == 0 || index + 1 == fleet.conns.len() {
            fleet.poll_until(10, &mut answers, |a| a.0 == index + 1)?;
        }
    }
    Ok(())
}

/// 15,000 clients wait; half of them leave in a mixed order, then all.
fn one_key(program: &Program, core: usize, count: usize) -> Result<Figures> {
    let fewer = Queue::form(program, core, "ACQ4ME", count / 3, 600)?;
    let fewer_waiting = fewer.server.own_bytes()?;
    drop(fewer);
    let mut queue = Queue::form(program, core, "ACQ4ME", count, 600)?;
    let start = queue.idle_bytes;
    let waiting = queue.server.own_bytes()?;
    // A stride that shares no divisor with `count` visits each once.
    let order = (0..count).map(|i| i * 7919 % count);
    let before = queue.server.cpu()?;
    for index in order.clone().take(count / 2) {
        queue.fleet.close(index);
    }
    Control::connect(queue.server.addr)?.wait_for("waiting_workers", count - count / 2)?;
    let cpu_leave = cpu_each(&queue.server, before, count / 2)?;
    for index in order.skip(count / 2) {
        queue.fleet.close(index);
    }
    Control::connect(queue.server.addr)?.wait_for("waiting_workers", 0)?;
    let closed = queue.server.own_bytes()?;
    let fresh = Server::start(program, core)?;
    ask_for_many_keys(&fresh)?;
    let fresh = fresh.own_bytes()?;
    Ok(vec![
        ("cpu_join", queue.cpu_join),
        ("cpu_leave", cpu_leave),
        ("waiting_bytes", (waiting - fresh) / count as f64),
        ("waiting_slope", (waiting - fewer_waiting) / (count - count / 3) as f64),
        ("idle_bytes", (start - fresh) / count as f64),
        ("closed_kib", (closed - fresh) / 1024.0),
    ])
}
