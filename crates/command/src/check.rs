//! `check`, a plugin of Nagios and Icinga: figures, thresholds, verdicts, the plugin's line.
//! The health of a server is a level, a line, and figures with their thresholds.

use super::ask::everything;
use super::duration;
use super::every_server::{ask_each, distinct};
use super::output::print;
use super::reported_rules::without_end;
use connect::{NoAnswer, ServerName, StatsConnection};
use schema::reports::Report;
use schema::table::Uptime;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Below the options of `check`.
pub(super) const AFTER_HELP: &str = "\
Exit status: 0 OK, 1 WARNING (also: a rule is set or off by an order without
--for), 2 CRITICAL (also: a server does not answer), 3 UNKNOWN (a server lacks a
figure that has thresholds). The worst server counts: its line comes first,
followed by the performance data of all servers.

WARN and CRIT are ranges as all plugins take them, ends included. 10 alerts
above 10, 10: below 10, 5:10 outside, @5:10 inside; ~ is minus infinity. WARN
must alert wherever CRIT does: 10:,100 is refused.";

/// Options of `check`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CheckOptions {
    /// Thresholds for the number of clients that wait.
    #[arg(long, value_name = "WARN,CRIT")]
    waiting: Option<Thresholds>,

    /// Thresholds for the seconds for which the oldest lock is held.
    #[arg(long, value_name = "WARN,CRIT")]
    oldest_hold: Option<Thresholds>,

    /// Thresholds for the number of QUEUE_FULL answers per second.
    #[arg(long, value_name = "WARN,CRIT")]
    full_queues: Option<Thresholds>,

    /// How long to count the answers of --full-queues.
    #[arg(long = "for", value_name = "TIME", default_value = "1", requires = "full_queues",
          value_parser = duration::parse_bounded_duration)]
    lasts: Duration,
}

/// Checks all servers at once, so that several take as long as one; prints one output of
/// a plugin, and exits with the worst level.
pub(super) fn check(servers: &[ServerName], options: &CheckOptions) -> ExitCode {
    let verdicts = ask_each(&distinct(servers), |server| {
        let verdict = answered(server, options);
        verdict.unwrap_or_else(|e| Verdict::critical(server.as_str(), &e.to_string()))
    });
    let (worst, output) = Verdict::report(verdicts);
    // A plugin that can't print its output is UNKNOWN.
    let level = if print(&output) { worst } else { worst.max(Severity::Unknown) };
    ExitCode::from(level.status())
}

/// How many seconds have passed on a server between two answers, by its uptimes, and by the time
/// `here` as far as an older one tells whole seconds.
fn passed_s(before: f64, later: f64, here: f64) -> f64 {
    let passed = later - before;
    let is_rounded = before.fract() == 0.0 && later.fract() == 0.0;
    match passed {
        // It was started again.
        ..0.0 => here,
        _ if is_rounded => here.max(passed - 1.0).min(passed + 1.0),
        0.0 => here,
        _ => passed,
    }
}

fn answered(server: &ServerName, options: &CheckOptions) -> Result<Verdict, NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let report = everything(&mut connection)?.answer.report;
    let counter = |report: &Report, name: &str| report.counters.get(name).map(|&n| n as f64);
    let queues = counter(&report, "full_queues");
    let locks = counter(&report, "processing_workers");
    let oldest_hold = oldest_hold_s(&report, locks);
    let waiting = counter(&report, "waiting_workers");
    let mut figures = vec![
        Figure::new("waiting", "", waiting, options.waiting.clone()),
        Figure::new("oldest_hold", "s", oldest_hold, options.oldest_hold.clone()),
    ];
    if options.full_queues.is_some() {
        let answered = Instant::now();
        thread::sleep(options.lasts);
        let later = everything(&mut connection)?.answer.report;
        let passed_s = passed_s(report.uptime_s, later.uptime_s, answered.elapsed().as_secs_f64());
        // One that was started again may have counted less.
        let growth = queues.zip(counter(&later, "full_queues"));
        let rate = growth.map(|(queues, later)| (later - queues).max(0.0) / passed_s);
        figures.push(Figure::new("full_queues_rate", "", rate, options.full_queues.clone()));
    }
    figures.push(Figure::new("full_queues", "c", queues, None));
    figures.push(Figure::new("locks", "", locks, None));
    let uptime = Uptime(report.uptime_s as u64).to_string();
    let verdict = Verdict::of(server.as_str(), &uptime, &figures);
    Ok(verdict.with_forgotten_rules(without_end(&report.rules)))
}

/// It is 0 if no lock is held.
fn oldest_hold_s(report: &Report, locks: Option<f64>) -> Option<f64> {
    report.oldest_hold_s.or_else(|| (locks == Some(0.0)).then_some(0.0))
}

/// The state of a server, best first; [`Severity::status`] is the plugin's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// All is within its thresholds.
    Ok,
    /// A requested figure is not known.
    Unknown,
    /// A figure is not in its first range, or a rule was set by an order without an end.
    Warning,
    /// A figure is not in its second one, or the server does not answer.
    Critical,
}

impl Severity {
    /// The exit status that stands for it.
    pub(super) fn status(self) -> u8 {
        match self {
            Severity::Ok => 0,
            Severity::Warning => 1,
            Severity::Critical => 2,
            Severity::Unknown => 3,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Ok => "OK",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
            Severity::Unknown => "UNKNOWN",
        })
    }
}

/// In which ranges a figure must be, or it is [`Severity::Warning`] or [`Severity::Critical`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thresholds {
    warning: Range,
    critical: Range,
}

/// A range as plugins take it (Monitoring Plugins Development Guidelines, "Threshold and
/// ranges"): `[@]start:end`, both ends included. It is an alert to be outside, with `@` inside.
#[derive(Clone, Debug, PartialEq)]
struct Range {
    /// As it was given: performance data repeats it.
    text: String,
    start: f64,
    end: f64,
    is_inverted: bool,
}

impl Range {
    fn alerts(&self, value: f64) -> bool {
        (self.start..=self.end).contains(&value) == self.is_inverted
    }

    /// Whether it alerts for a value for which `other` does not: at a bound of either, between two
    /// bounds, or above all. No figure is negative.
    fn alerts_where_not(&self, other: &Range) -> bool {
        let mut bounds = vec![0.0, self.start, self.end, other.start, other.end];
        bounds.retain(|bound| bound.is_finite() && *bound >= 0.0);
        bounds.sort_by(f64::total_cmp);
        let between = bounds.windows(2).map(|two| two[0] / 2.0 + two[1] / 2.0);
        let above = bounds.last().map(|last| last * 2.0 + 1.0);
        let mut values = bounds.iter().copied().chain(between).chain(above);
        values.any(|value| self.alerts(value) && !other.alerts(value))
    }
}

impl std::str::FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite());
        let bounds = text.strip_prefix('@').unwrap_or(text);
        let (start, end) = match bounds.split_once(':') {
            None => (Some(0.0), number(bounds)),
            Some((start, end)) => {
                let start = if start == "~" { Some(f64::NEG_INFINITY) } else { number(start) };
                (start, if end.is_empty() { Some(f64::INFINITY) } else { number(end) })
            }
        };
        match start.zip(end).filter(|(start, end)| start <= end) {
            Some((start, end)) => {
                let is_inverted = text.starts_with('@');
                Ok(Range { text: text.to_owned(), start, end, is_inverted })
            }
            None => Err(format!("{text:?} is no range such as 10, 10:, ~:10, 5:10 or @5:10")),
        }
    }
}

impl std::str::FromStr for Thresholds {
    type Err = String;

    /// Reads `WARN,CRIT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (warning, critical) = text.split_once(',').ok_or("must be WARN,CRIT: two ranges")?;
        let (warning, critical): (Range, Range) = (warning.parse()?, critical.parse()?);
        if critical.alerts_where_not(&warning) {
            let (warning, critical) = (&warning.text, &critical.text);
            return Err(format!("CRIT {critical} alerts where WARN {warning} does not"));
        }
        Ok(Thresholds { warning, critical })
    }
}

/// One number about a server's health.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    name: &'static str,
    unit: &'static str,
    value: Option<f64>,
    thresholds: Option<Thresholds>,
}

impl Figure {
    /// A figure in a unit of performance data: none, `s`, or `c` for a counter. `None`
    /// as its value means that the server does not report it.
    pub(super) fn new(
        name: &'static str,
        unit: &'static str,
        value: Option<f64>,
        thresholds: Option<Thresholds>,
    ) -> Self {
        Figure { name, unit, value, thresholds }
    }

    fn level(&self) -> Severity {
        let Some(thresholds) = &self.thresholds else { return Severity::Ok };
        match self.value {
            None => Severity::Unknown,
            Some(value) if thresholds.critical.alerts(value) => Severity::Critical,
            Some(value) if thresholds.warning.alerts(value) => Severity::Warning,
            Some(_) => Severity::Ok,
        }
    }

    /// For people: `waiting 3`.
    fn words(&self) -> String {
        let name = self.name.replace('_', " ");
        match self.value {
            Some(value) => format!("{name} {}{}", rounded(value), self.unit),
            None => format!("{name} unknown"),
        }
    }

    /// For graphs, behind the label: `3;10;50;0`. `U` is a value that is not known: a graph
    /// needs the same figures each time.
    fn performance(&self) -> String {
        let value = self.value.map(|value| format!("{}{}", rounded(value), self.unit));
        let value = value.unwrap_or_else(|| "U".to_owned());
        let thresholds = self.thresholds.as_ref();
        let ranges = thresholds.map(|t| format!("{};{}", t.warning.text, t.critical.text));
        format!("{value};{};0", ranges.unwrap_or_else(|| ";".to_owned()))
    }
}

/// To milliseconds, without needless zeros.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A plugin's verdict on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    server: String,
    level: Severity,
    text: String,
    /// Labels and what follows their equals signs.
    performance: Vec<(&'static str, String)>,
}

impl Verdict {
    /// For a server that answers: the worst of its figures. `uptime` is the server's text.
    pub(super) fn of(server: &str, uptime: &str, figures: &[Figure]) -> Verdict {
        let level = figures.iter().map(Figure::level).max().unwrap_or(Severity::Ok);
        // A total since the start says nothing about now.
        let current = figures.iter().filter(|figure| figure.unit != "c");
        let words: Vec<String> = current.map(Figure::words).collect();
        let text = format!("up {uptime}, {}", words.join(", "));
        let performance = figures.iter().map(|figure| (figure.name, figure.performance()));
        Verdict { server: server.to_owned(), level, text, performance: performance.collect() }
    }

    /// Rules that orders have set without an end outlast what they were for: at least WARNING.
    fn with_forgotten_rules(self, words: Option<String>) -> Verdict {
        let Some(words) = words else { return self };
        let (level, text) = (self.level.max(Severity::Warning), format!("{words}; {}", self.text));
        Verdict { level, text, ..self }
    }

    /// For a server that does not answer, or answers wrongly.
    pub(super) fn critical(server: &str, why: &str) -> Verdict {
        let (server, text) = (server.to_owned(), why.to_owned());
        Verdict { server, level: Severity::Critical, text, performance: Vec::new() }
    }

    /// The worst level, and the plugin's output: the worst server's line first, behind
    /// it the figures of all. With several, a label has the server's name.
    pub(super) fn report(mut verdicts: Vec<Verdict>) -> (Severity, String) {
        verdicts.sort_by_key(|verdict| std::cmp::Reverse(verdict.level));
        let worst = verdicts.first().map_or(Severity::Ok, |verdict| verdict.level);
        let mut lines: Vec<String> = verdicts.iter().map(Verdict::line).collect();
        let is_alone = verdicts.len() == 1;
        let figures = verdicts.iter().flat_map(|verdict| {
            verdict.performance.iter().map(move |(name, value)| {
                if is_alone {
                    format!("{name}={value}")
                } else {
                    format!("'{} {name}'={value}", in_label(&verdict.server))
                }
            })
        });
        let figures: Vec<String> = figures.collect();
        if let (Some(first), false) = (lines.first_mut(), figures.is_empty()) {
            *first += &format!(" | {}", figures.join(" "));
        }
        (worst, lines.join("\n"))
    }

    /// A bar would begin the figures.
    fn line(&self) -> String {
        let line = format!("POOLCOUNTER {} - {}: {}", self.level, self.server, self.text);
        line.replace(['|', '\n'], "/")
    }
}

/// Replaces characters that would end a label.
fn in_label(server: &str) -> String {
    server.replace(['\'', '=', '|', '\n'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the guidelines.
    #[test]
    fn ranges_are_those_of_all_plugins() {
        for (range, alerts, is_well) in [
            ("10", &[-0.1, 10.1][..], &[0.0, 10.0][..]),
            ("10:", &[9.9], &[10.0, 1e9]),
            ("~:10", &[10.1], &[-5.0, 10.0]),
            ("10:20", &[9.9, 20.1], &[10.0, 20.0]),
            ("@10:20", &[10.0, 20.0], &[9.9, 20.1]),
            ("@1.5", &[0.0, 1.5], &[1.6]),
            ("0", &[0.001], &[0.0]),
        ] {
            let parsed: Range = range.parse().expect(range);
            assert!(alerts.iter().all(|&value| parsed.alerts(value)), "{range}");
            assert!(!is_well.iter().any(|&value| parsed.alerts(value)), "{range}");
        }
        for bad in
            ["", "1", "1,", "a,b", "1,inf", "1,nan", "20:10,5", ":10,1", "@,1", "1,~", "1,2,3"]
        {
            assert!(bad.parse::<Thresholds>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn whole_seconds_of_an_older_server_bound_the_time_that_has_passed() {
        for (before, later, here, expected) in [
            (10.0, 11.0, 0.3, 0.3),
            (10.0, 10.0, 0.3, 0.3),
            (10.0, 10.0, 5.0, 1.0),
            (10.0, 14.0, 0.1, 3.0),
            (10.0, 14.0, 4.4, 4.4),
            // Ours tells more.
            (10.5, 14.75, 0.1, 4.25),
            (10.5, 10.5, 0.1, 0.1),
            (10.5, 3.5, 4.0, 4.0),
            (f64::MIN, f64::MAX, 1.0, f64::INFINITY),
        ] {
            assert_eq!(passed_s(before, later, here), expected, "{before} {later} {here}");
        }
    }

    #[test]
    fn what_is_critical_is_a_warning_too() {
        for good in ["10,50", "10,10", "10:,5:", "5:10,3:12", "10,~:50", "@5:10,@6:7", "~:10,20"] {
            assert!(good.parse::<Thresholds>().is_ok(), "{good}");
        }
        for good in ["@11:,20", "5:10,@0:4", "0,1"] {
            assert!(good.parse::<Thresholds>().is_ok(), "{good}");
        }
        for bad in ["50,10", "5:,10:", "5:10,6:9", "@6:7,@5:10", "10,@0:5", "@20:,10"] {
            let why = bad.parse::<Thresholds>().expect_err(bad);
            assert!(why.contains(" alerts where WARN "), "{bad}: {why}");
        }
    }

    #[test]
    fn the_critical_range_counts_first_and_an_unknown_value_is_neither() {
        for (value, level, performance) in [
            (Some(10.0), Severity::Ok, "10s;10;@50:;0"),
            (Some(10.5), Severity::Warning, "10.5s;10;@50:;0"),
            (Some(50.0), Severity::Critical, "50s;10;@50:;0"),
            (None, Severity::Unknown, "U;10;@50:;0"),
        ] {
            let thresholds = "10,@50:".parse().expect("thresholds");
            let figure = Figure::new("oldest_hold", "s", value, Some(thresholds));
            assert_eq!((figure.level(), figure.performance()), (level, performance.to_owned()));
        }
        let statuses = [Severity::Ok, Severity::Warning, Severity::Critical, Severity::Unknown]
            .map(Severity::status);
        assert_eq!(statuses, [0, 1, 2, 3]);
    }
}
