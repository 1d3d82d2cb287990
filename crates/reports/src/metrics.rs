//! What Prometheus scrapes: the metrics of `/metrics`, and of `/prometheus` under the names of
//! older exporters. The names of `/metrics` follow
//! <https://prometheus.io/docs/practices/naming/>

use super::metrics_text::{COUNTER, GAUGE, HISTOGRAM, MetricsText};
use super::report_view::{ReportView, ServerFigures, kind_of, seconds};
use super::scan::{GroupGauges, Scan};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use engine::counts::histogram::{Histogram, LOCK_TIMES, TURN_EVENTS, TURN_TIMES};
use engine::counts::statistics::{COUNTERS_IN_FULL, Counter, CounterKind, Counters, Times};
use engine::observe::heavy_hitters::Ranked;
use engine::rules::groups::{Group, GroupCounts};

const NS_PER_S: f64 = 1e9;

/// How connections that are no longer open ended: the counter, and its label.
const FATES: [(Counter, &str); 7] = [
    (Counters::closed_connections, "closed"),
    (Counters::lost_connections, "lost"),
    (Counters::unread_connections, "unread"),
    (Counters::freed_connections, "freed"),
    (Counters::rejected_connections, "rejected"),
    (Counters::rejected_connections_per_ip, "rejected_per_ip"),
    (Counters::denied_connections, "denied"),
];

/// Counters that `/metrics` has under a name of its own.
const RENAMED: [(&str, &str); 4] = [
    (Counters::hashtable_entries.name, "keys"),
    (Counters::processing_workers.name, "holders"),
    (Counters::waiting_workers.name, "waiters"),
    (Counters::processed_count.name, "processed_total"),
];

/// `/metrics`, with at most this number of the most requested keys.
pub fn metrics(
    view: &ReportView<'_>,
    figures: &ServerFigures,
    scan: &Scan,
    hot_keys: usize,
) -> String {
    let mut text = MetricsText::default();
    write_counters(&mut text, view);
    write_measures(&mut text, view);
    write_ages(&mut text, view, scan);
    write_groups(&mut text, view, scan);
    write_connections(&mut text, view, figures);
    write_daemon(&mut text, view, figures);
    write_safety(&mut text, view, figures);
    write_process(&mut text, figures);
    // Keys that are not shown would all be one series.
    if hot_keys > 0 && !view.is_private {
        write_top(&mut text, view, hot_keys);
    }
    text.into_text()
}

/// The counters of `STATS` under modern names: `total_acquired` is `acquired_total`.
fn write_counters(text: &mut MetricsText, view: &ReportView<'_>) {
    let has_fate = |counter: &&Counter| FATES.iter().any(|(other, _)| other.name == counter.name);
    for counter in Counters::ALL.iter().filter(|counter| !has_fate(counter)) {
        let name = counter.name.strip_prefix("total_").unwrap_or(counter.name);
        let name = match RENAMED.iter().find(|(other, _)| *other == counter.name) {
            Some((_, name)) => format!("poolcounter_{name}"),
            None => format!("poolcounter_{name}_total"),
        };
        let value = (counter.get)(&view.engine.counters);
        text.single(&name, type_of(counter.kind), counter.help, value);
    }
    for (time, help) in Times::LINES.iter().filter_map(|time| Some((time, time.help?))) {
        let name = time.name.strip_suffix("_ns").unwrap_or(time.name);
        let name = format!("poolcounter_{name}_seconds_total");
        let ns = (time.ns)(&view.engine.counters, view.engine.times());
        text.single(&name, COUNTER, help, seconds(ns));
    }
}

fn write_measures(text: &mut MetricsText, view: &ReportView<'_>) {
    let measures = &view.engine.measures;
    for (name, of_holds, what) in
        [("poolcounter_wait_seconds", false, "Waits"), ("poolcounter_hold_seconds", true, "Holds")]
    {
        text.metric(name, HISTOGRAM, &format!("{what}, by what was asked and how they ended."));
        for (mode, outcome, histogram) in measures.locks.iter() {
            if outcome.is_of_hold() == of_holds {
                let kind = kind_of(mode);
                let labels = [("kind", kind.word()), ("outcome", outcome.word())];
                text.histogram(name, &labels, (histogram, &LOCK_TIMES), NS_PER_S);
            }
        }
    }
    let name = "poolcounter_replies_total";
    text.metric(name, COUNTER, "Answers to clients, by command.");
    for (command, answer, count) in measures.replies.iter() {
        text.sample(name, &[("command", command), ("answer", answer)], count);
    }
}

fn write_ages(text: &mut MetricsText, view: &ReportView<'_>, scan: &Scan) {
    let age_s = |since| seconds(view.age_ns(since));
    for (name, since, help) in [
        ("poolcounter_oldest_hold_seconds", scan.oldest_hold, "Age of the oldest lock."),
        ("poolcounter_oldest_wait_seconds", scan.oldest_wait, "Age of the oldest wait."),
    ] {
        text.single(name, GAUGE, help, since.map_or(0.0, age_s));
    }
}

/// Of each group of keys that the file of rules names, and of `other`, all other keys. The
/// counts of `other` begin with the first rule.
fn write_groups(text: &mut MetricsText, view: &ReportView<'_>, scan: &Scan) {
    let rules = view.engine.rules();
    let all = || rules.groups().iter().enumerate();
    type Gauge = fn(GroupGauges) -> u64;
    let gauges: [(&str, &str, Gauge); 4] = [
        ("keys", "Keys that are held.", |gauges| gauges.keys),
        ("holders", "Locks that are held.", |gauges| gauges.holders),
        ("waiters", "Clients that wait.", |gauges| gauges.waiters),
        ("stuck_keys", "Keys that are held for longer than stuck-after.", |gauges| gauges.stuck),
    ];
    for (name, help, value) in gauges {
        let name = format!("poolcounter_group_{name}");
        text.metric(&name, GAUGE, help);
        for (n, group) in all() {
            text.sample(&name, &[("group", &group.name)], value(scan.of_group(n)));
        }
    }
    let name = "poolcounter_group_oldest_hold_seconds";
    text.metric(name, GAUGE, "Age of the oldest lock.");
    for (n, group) in all() {
        let age_s = scan.of_group(n).oldest_hold.map(|since| seconds(view.age_ns(since)));
        text.sample(name, &[("group", &group.name)], age_s.unwrap_or(0.0));
    }
    if rules.are_active() {
        write_group_counts(text, rules.groups());
    }
}

fn write_group_counts(text: &mut MetricsText, groups: &[Group]) {
    type Count = fn(&GroupCounts) -> u64;
    let counters: [(&str, &str, Count); 5] = [
        ("requests", "Requests for a lock that were decided.", |counts| counts.requests),
        ("acquired", "Locks that clients got.", |counts| counts.acquired),
        ("queue_full", "Requests refused by a full queue or a total.", |counts| counts.queue_full),
        ("timeouts", "Requests and waits that ended with TIMEOUT.", |counts| counts.timeouts),
        ("denied", "Requests refused by deny.", |counts| counts.denied),
    ];
    for (name, help, value) in counters {
        let name = format!("poolcounter_group_{name}_total");
        text.metric(&name, COUNTER, help);
        for group in groups {
            text.sample(&name, &[("group", &group.name)], value(&group.counts));
        }
    }
    type GroupTimes = fn(&GroupCounts) -> &Histogram;
    let histograms: [(&str, &str, GroupTimes); 2] = [
        ("poolcounter_group_wait_seconds", "Waits, however they ended.", |counts| &counts.waits),
        ("poolcounter_group_hold_seconds", "Holds, however they ended.", |counts| &counts.holds),
    ];
    for (name, help, histogram) in histograms {
        text.metric(name, HISTOGRAM, help);
        for group in groups {
            let histogram = (histogram(&group.counts), &LOCK_TIMES);
            text.histogram(name, &[("group", &group.name)], histogram, NS_PER_S);
        }
    }
}

fn write_connections(text: &mut MetricsText, view: &ReportView<'_>, figures: &ServerFigures) {
    let open = figures.connections;
    text.single("poolcounter_connections", GAUGE, "Connections that are open.", open);
    let name = "poolcounter_ended_connections_total";
    text.metric(name, COUNTER, "Connections that are no longer open, by fate.");
    for (counter, fate) in FATES {
        text.sample(name, &[("fate", fate)], (counter.get)(&view.engine.counters));
    }
}

fn write_daemon(text: &mut MetricsText, view: &ReportView<'_>, figures: &ServerFigures) {
    let uptime_s = seconds(view.age_ns(view.engine.started()));
    let help = "Since the daemon was started, hot restarts included.";
    text.single("poolcounter_uptime_seconds", GAUGE, help, uptime_s);
    let help = "Whether new clients are refused.";
    text.single("poolcounter_draining", GAUGE, help, u8::from(figures.is_draining));
    let help = "Rules that operators' orders have set or turned off.";
    text.single("poolcounter_rules_by_orders", GAUGE, help, figures.rule_orders.rules);
    let restarts = &view.engine.measures.restarts;
    let name = "poolcounter_hot_restarts_total";
    text.metric(name, COUNTER, "Hot restarts, by result.");
    text.sample(name, &[("result", "done")], restarts.done);
    text.sample(name, &[("result", "refused")], restarts.refused);
    let name = "poolcounter_hot_restart_pause_seconds_total";
    let help = "For how long hot restarts stopped the daemon.";
    text.single(name, COUNTER, help, seconds(restarts.pause_ns));
    let name = "poolcounter_last_hot_restart_pause_seconds";
    let help = "For how long the last hot restart stopped the daemon.";
    text.single(name, GAUGE, help, seconds(restarts.last_pause_ns));
    let turns = &view.engine.measures.turns;
    let name = "poolcounter_turn_seconds";
    text.metric(name, HISTOGRAM, "Turns of the loop, without the wait for events.");
    text.histogram(name, &[], (&turns.times, &TURN_TIMES), NS_PER_S);
    let name = "poolcounter_turn_events";
    text.metric(name, HISTOGRAM, "Events that a turn of the loop handled.");
    text.histogram(name, &[], (&turns.events, &TURN_EVENTS), 1.0);
    let name = "poolcounter_build_info";
    text.metric(name, GAUGE, "The version of the daemon; the value is 1.");
    text.sample(name, &[("version", figures.version)], 1);
}

/// Distinguishes a start that lost locks from others, even between two scrapes: the second
/// metric changes without the first (monitoring/alerts.yml).
fn write_safety(text: &mut MetricsText, view: &ReportView<'_>, figures: &ServerFigures) {
    let is_safe = figures.is_draining && view.engine.counters.processing_workers == 0;
    let help = "Whether it drains and no lock is held: its end loses none.";
    text.single("poolcounter_safe_to_end", GAUGE, help, u8::from(is_safe));
    let help = "process_start_time_seconds, but 0 while poolcounter_safe_to_end is 1.";
    let start_s = if is_safe { 0.0 } else { seconds(figures.started_wall_ns) };
    text.single("poolcounter_unsafe_start_time_seconds", GAUGE, help, start_s);
}

/// Under the names that all exporters use.
fn write_process(text: &mut MetricsText, figures: &ServerFigures) {
    let process = &figures.process;
    let help = "User and system time.";
    text.single("process_cpu_seconds_total", COUNTER, help, process.cpu_s);
    let mut gauge = |name, help, value: f64| text.single(name, GAUGE, help, value);
    gauge("process_resident_memory_bytes", "Memory in use.", process.resident_bytes as f64);
    gauge("process_virtual_memory_bytes", "Address space.", process.virtual_bytes as f64);
    gauge("process_open_fds", "Open descriptors.", process.open_descriptors as f64);
    let help = "How many descriptors the process may have.";
    gauge("process_max_fds", help, process.descriptors_max as f64);
    let help = "When the daemon was started, in seconds since 1970.";
    gauge("process_start_time_seconds", help, seconds(figures.started_wall_ns));
}

fn write_top(text: &mut MetricsText, view: &ReportView<'_>, rows: usize) {
    let top = view.engine.observer.top_keys_of_full_minute(view.now);
    let name = "poolcounter_hot_key_sampled_one_in";
    let help = "At some time of the last full minute, one request in this many was recorded; 1 if all were.";
    text.single(name, GAUGE, help, top.sampled_one_in);
    let name = "poolcounter_hot_key_requests";
    let help = "Requests in the last full minute, of the keys that had most; of sampled ones, an estimate.";
    text.metric(name, GAUGE, help);
    for (key, count) in by_label(view, &top.by_requests, rows) {
        text.sample(name, &[("key", &key)], count);
    }
    let name = "poolcounter_hot_key_seconds";
    let help = "Time waited and held that ended in the last full minute, of the keys that had most; of \
        sampled requests, an estimate.";
    text.metric(name, GAUGE, help);
    for (key, count) in by_label(view, &top.by_time, rows) {
        text.sample(name, &[("key", &key)], seconds(count));
    }
}

/// Long keys that are the same when cut count as one: a series has one sample.
fn by_label(view: &ReportView<'_>, ranked: &[Ranked], rows: usize) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for row in ranked.iter().take(rows) {
        let key = view.key(&row.name);
        match counts.iter_mut().find(|(other, _)| *other == key) {
            Some((_, count)) => *count += row.count,
            None => counts.push((key, row.count)),
        }
    }
    counts
}

/// Counters of `STATS FULL` that the exporters lack.
const LEFT_OUT: [&str; 2] = [Counters::failed_sends.name, Counters::lock_while_waiting.name];

/// `/prometheus`: the names, types and values of the exporters that read `STATS FULL` of the C
/// daemon, so that their dashboards and alerts keep working. Prometheus advises against such names
/// today.
pub fn legacy(view: &ReportView<'_>) -> String {
    let mut text = MetricsText::default();
    let (counters, times) = (&view.engine.counters, view.engine.times());
    for (name, ns, help) in [
        ("processing", times.processing_ns, "Time for which locks were held."),
        ("gained", times.gained_ns, "Work saved by waiting for another client's."),
        ("excl_wait", times.waiting_for_me_ns, "Waits of ACQ4ME for locks."),
        ("shared_wait", times.waiting_for_anyone_ns, "Waits of ACQ4ANY for locks."),
    ] {
        let name = format!("poolcounter_total_{name}_time_seconds");
        text.single(&name, COUNTER, help, seconds(ns));
    }
    for kind in [CounterKind::Total, CounterKind::Gauge] {
        for counter in &Counters::ALL[..COUNTERS_IN_FULL] {
            if counter.kind == kind && !LEFT_OUT.contains(&counter.name) {
                let name = format!("poolcounter_{}", counter.name);
                text.single(&name, type_of(kind), counter.help, (counter.get)(counters));
            }
        }
    }
    let average_ns = times.processing_ns.checked_div(counters.processed_count.into());
    let name = "poolcounter_avg_processing_time_seconds";
    let help = "Time for which a lock was held, on average.";
    text.single(name, GAUGE, help, seconds(average_ns.unwrap_or(0)));
    text.single("poolcounter_up", GAUGE, "Whether the daemon answers.", 1);
    text.into_text()
}

/// The type of a counter's metric.
fn type_of(kind: CounterKind) -> &'static str {
    if kind == CounterKind::Total { COUNTER } else { GAUGE }
}
