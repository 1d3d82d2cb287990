//! Prometheus's text format.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use core::fmt::{Display, Write as _};
use engine::counts::histogram::{Histogram, Scale};

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

/// The types of metrics.
pub(super) const COUNTER: &str = "counter";
pub(super) const GAUGE: &str = "gauge";
pub(super) const HISTOGRAM: &str = "histogram";

impl MetricsText {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Begins a metric; its samples follow.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A metric with one sample.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (n, (label, content)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            self.write(format_args!("{before}{label}=\"{}\"", escaped(content)));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.write(format_args!("{after} {value}\n"));
    }

    /// The samples of a histogram whose values are `per_unit` times as large as those
    /// of the metric.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        (histogram, scale): (&Histogram, &Scale),
        per_unit: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (n, in_bucket) in histogram.counts(scale).iter().enumerate() {
            count += in_bucket;
            let bound = scale.bounds.get(n).map(|&bound| (bound as f64 / per_unit).to_string());
            let bound = bound.unwrap_or_else(|| "+Inf".to_owned());
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&bucket, &labels, count);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum() as f64 / per_unit);
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn write(&mut self, text: core::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String");
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
