//! `/prometheus`: the names, types and values of the exporters that read `STATS FULL`
//! of the C daemon, so that their dashboards and alerts keep working. Prometheus
//! advises against such names today: [`super::metrics`] has others.

use super::metrics_text::{COUNTER, GAUGE, MetricsText, seconds, type_of};
use super::report_view::ReportView;
use crate::engine::counts::statistics::{COUNTERS_IN_FULL, CounterKind, Counters};

/// Counters of `STATS FULL` that the exporters lack.
const LEFT_OUT: [&str; 2] = ["failed_sends", "lock_while_waiting"];

/// The text.
pub fn metrics(view: &ReportView) -> String {
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
