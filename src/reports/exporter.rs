//! `/prometheus`: the names, types and values of the exporters that read `STATS FULL`
//! of the C daemon, so that their dashboards and alerts keep working. Prometheus
//! advises against such names today: [`super::prometheus`] has others.

use super::exposition::{Exposition, Type, seconds};
use super::shown::View;
use crate::engine::statistics::{Counters, Times};

/// A sum of time, and its sentence.
type TimeOf = (&'static str, &'static str, fn(&Times) -> u128);

const TIMES: [TimeOf; 4] = [
    ("total_processing_time_seconds", "Time for which locks were held.", |t| t.processing_ns),
    ("total_gained_time_seconds", "Work saved by waiting for another client's.", |t| t.gained_ns),
    ("total_excl_wait_time_seconds", "Waits of ACQ4ME for locks.", |t| t.waiting_for_me_ns),
    ("total_shared_wait_time_seconds", "Waits of ACQ4ANY for locks.", |t| t.waiting_for_anyone_ns),
];

/// Under the names of `STATS FULL`.
const COUNTERS: [&str; 7] = [
    "total_acquired",
    "total_releases",
    "connect_errors",
    "full_queues",
    "lock_mismatch",
    "release_mismatch",
    "processed_count",
];

const GAUGES: [&str; 3] = ["hashtable_entries", "processing_workers", "waiting_workers"];

/// The text.
pub fn metrics(view: &View) -> String {
    let mut text = Exposition::default();
    let (counters, times) = (&view.engine.counters, view.engine.times());
    for (name, help, ns) in TIMES {
        let name = format!("poolcounter_{name}");
        text.single(&name, Type::Counter, help, seconds(ns(times)));
    }
    for (names, kind) in [(&COUNTERS[..], Type::Counter), (&GAUGES, Type::Gauge)] {
        for counter in Counters::ALL.iter().filter(|counter| names.contains(&counter.name)) {
            let name = format!("poolcounter_{}", counter.name);
            text.single(&name, kind, counter.help, (counter.get)(counters));
        }
    }
    let average_ns = times.processing_ns.checked_div(counters.processed_count.into());
    text.single(
        "poolcounter_avg_processing_time_seconds",
        Type::Gauge,
        "Time for which a lock was held, on average.",
        seconds(average_ns.unwrap_or(0)),
    );
    text.single("poolcounter_up", Type::Gauge, "Whether the daemon answers.", 1);
    text.into_text()
}
