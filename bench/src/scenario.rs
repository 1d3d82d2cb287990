//! The measured scenarios: each takes one fresh server through one situation and
//! returns figures by name.

use std::time::Duration;

use rustix::process::Signal;

use crate::Result;
use crate::fleet::{Conn, Fleet, Next, Script};
use crate::pipelines::pipelines;
use crate::process::{Cpu, program_place};
use crate::server::{Control, Program, Server};
use crate::tails::tails;
use crate::traffic::{Mode, Request, Traffic, histogram};
use crate::worst_turn::worst_turn;

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
/// was on its core. Shows whether the machine was quiet.
pub const DISTURBED: &str = "disturbed";

/// Scenarios whose figures have tables of their own.
pub const RESTART: &str = "restart";
/// As [`RESTART`].
pub const WORST_TURN: &str = "worst-turn";

/// Every figure there is, in the order of the tables.
pub const METRICS: &[Metric] = &[
    metric("cpu_request", "CPU per request", "µs"),
    metric("cpu_cycle", "CPU per cycle", "µs"),
    metric("cpu_join", "CPU per waiter that joins", "µs"),
    metric("cpu_woken", "CPU per woken waiter", "µs"),
    metric("cpu_timeout", "CPU per waiter that times out", "µs"),
    metric("cpu_leave", "CPU per waiter that disconnects", "µs"),
    metric("rate", "requests a second", "/s"),
    metric("busy", "server's core in use", "%"),
    metric(DISTURBED, "time that the server waited for its core", "%"),
    metric("given_up", "connects without an answer at the end", ""),
    metric("p50", "latency, median", "µs"),
    metric("p75", "latency, 75 %", "µs"),
    metric("p90", "latency, 90 %", "µs"),
    metric("p99", "latency, 99 %", "µs"),
    metric("p99.9", "latency, 99.9 %", "µs"),
    metric("p99.9_slice", "latency, 99.9 %, median of the slices", "µs"),
    metric("sent", "requests sent a second", ""),
    metric("other_median", "connect, lock, release by another client, median", "ms"),
    metric("max", "slowest", "ms"),
    metric("late_900", "not answered within 900 ms", ""),
    metric("early", "answered before their time", ""),
    metric("earliest", "earliest, from its time", "ms"),
    metric("late_median", "late, median", "ms"),
    metric("late_99", "late, 99 %", "ms"),
    metric("late_max", "late, most", "ms"),
    metric("last", "until the last had its answer", "ms"),
    metric("silence", "longest silence", "ms"),
    metric("silence_before", "longest silence in the same time without a restart", "ms"),
    metric("fork", "the loop stops to fork the child of the trial", "ms"),
    metric(
        "to_image",
        "write the snapshot, execute the new image, free the memory of the old one, start",
        "ms",
    ),
    metric(
        "reading",
        "read the snapshot: take over the connections, build the tables of locks and keys",
        "ms",
    ),
    metric("serving", "watch listeners and signals, accept, send pending answers", "ms"),
    metric("pause", "the final pause, together", "ms"),
    metric("forgotten", "locks forgotten", ""),
    metric("idle_bytes", "memory per idle connection", "bytes"),
    metric("idle_slope", "memory of one more idle connection", "bytes"),
    metric("holding_bytes", "memory per connection that holds a lock", "bytes"),
    metric("holding_slope", "memory of one more connection that holds a lock", "bytes"),
    metric("released_bytes", "memory per connection that held one", "bytes"),
    metric("waiting_bytes", "memory per connection that waits", "bytes"),
    metric("waiting_slope", "memory of one more connection that waits", "bytes"),
    metric("closed_kib", "memory kept after all closed", "KiB"),
    metric("quiet", "nothing", "ms"),
    metric("keys", "`STATS KEYS 200`", "ms"),
    metric("json", "`STATS JSON`", "ms"),
    metric("scrape", "a scrape of `/metrics`", "ms"),
    metric("trial", "the trial of a hot restart, whose process uses the same core", "ms"),
    metric("leave", "all 10,000 leave at once: until all are dealt with", "ms"),
    metric(
        "leave_turn",
        "all 10,000 leave at once: the longest turn, at most (`poolcounter_turn_seconds`)",
        "ms",
    ),
    metric("tidy", "their memory is given back, two seconds later", "ms"),
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
    /// Whether the reference supports it.
    pub reference: bool,
    /// At most this many rounds are measured, if it takes long or varies little.
    pub rounds_max: usize,
    /// How to measure it.
    pub run: Run,
}

/// How a scenario is measured.
#[derive(Clone, Copy)]
pub enum Run {
    /// One program on a core. No figures if the program can't do this.
    Alone(fn(&Program, usize, &Scale) -> Result<Figures>),
    /// All programs on one core, in turn in short slices; the figures of each.
    Together(fn(&[&Program], usize, &Scale) -> Result<Vec<Figures>>),
}

impl Scenario {
    /// Whether `program` supports it.
    pub fn suits(&self, program: &Program) -> bool {
        (self.floor || !program.is_floor()) && (self.reference || !program.is_reference())
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
    let run = Run::Alone(run);
    Scenario { name, words, floor: true, reference: true, rounds_max: usize::MAX, run }
}

/// The same, for a scenario that the floor does not support.
const fn stateful(
    name: &'static str,
    words: &'static str,
    run: fn(&Program, usize, &Scale) -> Result<Figures>,
) -> Scenario {
    Scenario { floor: false, ..scenario(name, words, run) }
}

/// The same, for a scenario that only ours supports.
const fn own(
    name: &'static str,
    words: &'static str,
    run: fn(&Program, usize, &Scale) -> Result<Figures>,
) -> Scenario {
    Scenario { reference: false, ..stateful(name, words, run) }
}

/// All scenarios, in the order of the report.
pub const SCENARIOS: &[Scenario] = &[
    scenario("kept-1", "1 kept connection locks and releases", |p, c, s| kept(p, c, s, 1)),
    scenario("kept-50", "50 kept connections", |p, c, s| kept(p, c, s, 50)),
    scenario("kept-1000", "1000 kept connections", |p, c, s| kept(p, c, s, 1000)),
    scenario("kept-10000", "10,000 kept connections", |p, c, s| kept(p, c, s, 10_000)),
    scenario("paced-50", "50 kept connections, 40,000 requests a second in all", |p, c, s| {
        paced(p, c, s, 50, 40_000.0)
    }),
    Scenario {
        name: "tails",
        words: "50 kept connections, all at half the highest rate of ours, in turn for 50 ms each",
        floor: true,
        reference: true,
        rounds_max: usize::MAX,
        run: Run::Together(tails),
    },
    scenario("cycle-20", "connect, lock, release, close: 20 at once", |p, c, s| cycle(p, c, s, 20)),
    scenario("cycle-100", "connect, lock, release, close: 100 at once", |p, c, s| cycle(p, c, s, 100)),
    scenario("cycle-300", "connect, lock, release, close: 300 at once", |p, c, s| cycle(p, c, s, 300)),
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
    stateful("keys-1000", "50 kept connections, others hold 1000 keys", |p, c, s| {
        keys(p, c, s, 1000)
    }),
    stateful("keys-10000", "50 kept connections, others hold 10,000 keys", |p, c, s| {
        keys(p, c, s, 10_000)
    }),
    stateful("keys-50000", "50 kept connections, others hold 50,000 keys", |p, c, s| {
        keys(p, c, s, 50_000)
    }),
    stateful(
        "pipelines",
        "15,000 clients have sent 3,072 requests each, and another client connects, locks, releases",
        |p, c, _| pipelines(p, c, 15_000),
    )
    .in_rounds(7),
    own(RESTART, "hot restart (SIGUSR1) with 10,000 held locks", |p, c, s| {
        restart(p, c, s, 10_000)
    }),
    own(WORST_TURN, "10,000 connections with four locks each", |p, c, _| worst_turn(p, c, 10_000))
        .in_rounds(7),
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
    vec![
        ("p50", at(0.5)),
        ("p75", at(0.75)),
        ("p90", at(0.9)),
        ("p99", at(0.99)),
        ("p99.9", at(0.999)),
    ]
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
    let mut figures = vec![
        ("cpu_request", cpu_request),
        ("rate", rate),
        ("busy", cpu_request * rate / 1e4),
        (DISTURBED, disturbed),
    ];
    figures.extend(latency_figures(traffic));
    Ok(figures)
}

fn paced(
    program: &Program,
    core: usize,
    scale: &Scale,
    count: usize,
    rate: f64,
) -> Result<Figures> {
    let server = Server::start(program, core)?;
    let (mut fleet, mut traffic) = warm_fleet(&server, scale, count)?;
    let before = server.cpu()?;
    traffic.run_paced(&mut fleet, scale.window, rate)?;
    must_be_clean(&traffic)?;
    let mut figures = vec![("cpu_request", cpu_each(&server, before, traffic.requests as usize)?)];
    figures.extend(latency_figures(&traffic));
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

/// A fleet that holds `count` keys, `keys_each` on each connection, which may have four.
pub fn hold(server: &Server, count: usize, keys_each: usize) -> Result<Fleet> {
    let mut fleet = Fleet::new(server.addr, count / keys_each)?;
    Traffic::new(Mode::Kept, Request::uncontended()).prepare(&mut fleet);
    fleet.open_gently()?;
    let request = Request::uncontended();
    for turn in 0..keys_each {
        for conn in &mut fleet.conns {
            let key = 1_000_000 + conn.index * keys_each + turn;
            request.write(key as u64, &mut conn.acquire);
        }
        all_send(&mut fleet, Fleet::acquire)?;
    }
    Ok(fleet)
}

fn keys(program: &Program, core: usize, scale: &Scale, count: usize) -> Result<Figures> {
    let server = Server::start(program, core)?;
    let _held = hold(&server, count, 4)?;
    Control::connect(server.addr)?.wait_for("hashtable_entries", count)?;
    let (mut fleet, mut traffic) = warm_fleet(&server, scale, 50)?;
    kept_figures(&server, &mut fleet, &mut traffic, scale)
}

/// One client cycles; the longest time without an answer is the pause. The log shows where
/// the time went.
fn restart(program: &Program, core: usize, scale: &Scale, held: usize) -> Result<Figures> {
    let mut server = Server::start_with(program, core, |_| Vec::new())?;
    let holders = hold(&server, held, 1)?;
    let before = silence(&server, scale, || Ok(()))?;
    let old_place = program_place(server.pid())?;
    let during = silence(&server, scale, || server.signal(Signal::USR1))?;
    if !server.is_alive() || program_place(server.pid())? == old_place {
        return Ok(Vec::new());
    }
    let mut control = Control::connect(server.addr)?;
    let answer = control.ask("STATS processing_workers")?;
    let kept: usize = answer.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    drop(holders);
    let log = server.end_and_read_log()?;
    let ms_after = |words: &str| {
        let (_, rest) = log.split_once(words)?;
        rest.split(' ').next()?.parse().ok().map(|us: f64| us / 1e3)
    };
    let mut figures = vec![
        ("silence", during),
        ("silence_before", before),
        ("forgotten", held.saturating_sub(kept) as f64),
    ];
    // Older builds log fewer of them.
    let began = ms_after("began to read after a pause of ");
    let read = ms_after("and had read after ");
    let pause = ms_after("continued after a pause of ");
    figures.extend(ms_after("take over, after a pause of ").map(|fork| ("fork", fork)));
    if let (Some(began), Some(read), Some(pause)) = (began, read, pause) {
        figures.extend([("to_image", began), ("reading", read - began), ("serving", pause - read)]);
    }
    figures.extend(pause.map(|pause| ("pause", pause)));
    Ok(figures)
}

/// The longest time without an answer to a cycling client, in milliseconds, over a
/// period with `act` in the middle. At most 10,000 cycles.
fn silence(server: &Server, scale: &Scale, mut act: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut fleet = Fleet::new(server.addr, 1)?;
    let mut traffic = Traffic::new(Mode::Cycle, Request::uncontended());
    traffic.prepare(&mut fleet);
    traffic.begins_left = 10_000;
    let start_ns = fleet.now_ns();
    let window_ns = (scale.window * 1e9) as u64;
    traffic.stop_ns = start_ns + window_ns;
    traffic.begin(&mut fleet)?;
    let mut acted = false;
    let mut answered = 0;
    let mut answered_ns = start_ns;
    let mut longest_ns = 0;
    while traffic.busy > 0 && answered_ns < start_ns + window_ns + 10_000_000_000 {
        if !acted && fleet.now_ns() > start_ns + window_ns / 4 {
            acted = true;
            act()?;
        }
        fleet.poll(10, &mut traffic)?;
        let now_ns = fleet.now_ns();
        if traffic.requests > answered {
            answered = traffic.requests;
            longest_ns = longest_ns.max(now_ns - answered_ns);
            answered_ns = now_ns;
        }
        // Slow enough that the cycles do not run out before the time is up.
        std::thread::sleep(Duration::from_micros(50));
    }
    must_be_clean(&traffic)?;
    Ok(longest_ns as f64 / 1e6)
}
