//! Checks of servers, as a plugin of Nagios and Icinga: `check`.

use super::every_server::{ask_each, distinct};
use super::health::{Figure, Severity, Thresholds, Verdict};
use super::output::print;
use super::parsed_report::ParsedReport;
use crate::ServerName;
use crate::stats_connection::{NoAnswer, StatsConnection};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Options with thresholds.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Limits {
    /// Clients that wait now: from how many on it is WARNING and CRITICAL.
    #[arg(long, value_name = "WARN,CRIT")]
    waiting: Option<Thresholds>,

    /// Seconds for which the oldest lock is held.
    #[arg(long, value_name = "WARN,CRIT")]
    oldest_hold: Option<Thresholds>,

    /// QUEUE_FULL answers per second, counted for --for seconds.
    #[arg(long, value_name = "WARN,CRIT")]
    full_queues: Option<Thresholds>,

    /// For how long to count QUEUE_FULL answers for --full-queues.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 1, requires = "full_queues",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// Checks all servers at once, so that several take as long as one; prints one output of
/// a plugin, and exits with the worst level.
pub(super) fn check(servers: &[ServerName], limits: &Limits) -> ExitCode {
    let verdicts = ask_each(&distinct(servers), |server| judge(server, limits));
    let (worst, output) = Verdict::report(verdicts);
    // A plugin that can't say anything knows nothing.
    let level = if print(&output) { worst } else { worst.max(Severity::Unknown) };
    ExitCode::from(level.status())
}

fn judge(server: &ServerName, limits: &Limits) -> Verdict {
    answered(server, limits).unwrap_or_else(|e| Verdict::critical(server.as_str(), &e.to_string()))
}

fn answered(server: &ServerName, limits: &Limits) -> Result<Verdict, NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let text = connection.query("FULL")?;
    let full = ParsedReport::read(&text);
    let uptime = full.value("uptime").ok_or(NoAnswer::Refused(text))?;
    let queues = full.number("full_queues");
    let locks = full.number("processing_workers");
    let oldest_hold = oldest_hold_s(&mut connection, locks)?;
    let mut figures = vec![
        Figure::new("waiting", "", full.number("waiting_workers"), limits.waiting),
        Figure::new("oldest_hold", "s", oldest_hold, limits.oldest_hold),
    ];
    if limits.full_queues.is_some() {
        thread::sleep(Duration::from_secs(limits.seconds));
        let later = ParsedReport::read(&connection.query("FULL")?).number("full_queues");
        let rate =
            queues.zip(later).map(|(queues, later)| (later - queues) / limits.seconds as f64);
        figures.push(Figure::new("full_queues_rate", "", rate, limits.full_queues));
    }
    figures.push(Figure::new("full_queues", "c", queues, None));
    figures.push(Figure::new("locks", "", locks, None));
    Ok(Verdict::of(server.as_str(), uptime, &figures))
}

/// Only newer servers tell it. Where no lock is held, none is old.
fn oldest_hold_s(
    connection: &mut StatsConnection,
    locks: Option<f64>,
) -> Result<Option<f64>, NoAnswer> {
    let report = match connection.query("JSON") {
        Ok(text) => serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|e| NoAnswer::Refused(format!("STATS JSON that is none: {e}")))?,
        Err(NoAnswer::Unknown) => serde_json::Value::Null,
        Err(e) => return Err(e),
    };
    Ok(report["oldest_hold_s"].as_f64().or_else(|| (locks == Some(0.0)).then_some(0.0)))
}
