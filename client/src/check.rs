//! Checks of servers, as a plugin of Nagios and Icinga: `poolcounter check`, and the
//! daemon's `--check`.

use crate::health::{Figure, Health, Thresholds, Verdict};
use crate::question::{NoAnswer, Questions, beginning};
use crate::server_name::ServerName;
use std::time::Duration;

/// Options with thresholds.
#[derive(Clone, Debug, clap::Args)]
pub struct Limits {
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

impl Limits {
    /// Whether anything is judged besides that the server answers.
    pub fn are_given(&self) -> bool {
        [self.waiting, self.oldest_hold, self.full_queues].iter().any(Option::is_some)
    }
}

/// Judges a server.
pub fn judge(server: &ServerName, limits: &Limits) -> Verdict {
    match health(server, limits) {
        Ok(health) => health.verdict(server.as_str()),
        Err(e) => Verdict::critical(server.as_str(), &e.to_string()),
    }
}

/// Asks for the uptime: the cheapest question.
///
/// # Errors
/// Why the server is unreachable, or what it answered instead.
pub fn uptime(server: &ServerName) -> Result<String, String> {
    let answer = Questions::connect(server).map_err(NoAnswer::Io).and_then(|mut q| q.ask("UPTIME"));
    match answer {
        Ok(line) if line.starts_with("uptime: ") => Ok(line),
        Ok(line) => Err(format!("{server}: answered {:?}, not its uptime", beginning(&line))),
        Err(e) => Err(format!("{server}: {e}")),
    }
}

/// Where a daemon may be that is named `HOST:PORT`, or `HOST` on `port`; not named, it is
/// on this host.
///
/// # Errors
/// When the name means nothing.
pub fn places(name: Option<&str>, port: u16) -> Result<Vec<ServerName>, String> {
    // Not by name: a container built from scratch has no /etc/hosts.
    let names = name.map_or(vec!["127.0.0.1", "::1"], |name| vec![name]);
    let server = |name: &&str| ServerName::on_port(name, port).map_err(|e| e.to_string());
    names.iter().map(server).collect()
}

fn health(server: &ServerName, limits: &Limits) -> Result<Health, NoAnswer> {
    let mut questions = Questions::connect_in_haste(server)?;
    let full = questions.ask("FULL")?;
    let no_uptime = || NoAnswer::Refused(full.clone());
    let uptime = value(&full, "uptime").ok_or_else(no_uptime)?.to_owned();
    let queues = number(&full, "full_queues");
    let locks = number(&full, "processing_workers");
    let oldest_hold = oldest_hold_s(&mut questions, locks)?;
    let mut figures = vec![
        Figure::new("waiting", "", number(&full, "waiting_workers"), limits.waiting),
        Figure::new("oldest_hold", "s", oldest_hold, limits.oldest_hold),
    ];
    if limits.full_queues.is_some() {
        std::thread::sleep(Duration::from_secs(limits.seconds));
        let later = number(&questions.ask("FULL")?, "full_queues");
        let rate =
            queues.zip(later).map(|(queues, later)| (later - queues) / limits.seconds as f64);
        figures.push(Figure::new("full_queues_rate", "", rate, limits.full_queues));
    }
    figures.push(Figure::new("full_queues", "c", queues, None));
    figures.push(Figure::new("locks", "", locks, None));
    Ok(Health { uptime, figures })
}

/// Only newer servers tell it. Where no lock is held, none is old.
fn oldest_hold_s(questions: &mut Questions, locks: Option<f64>) -> Result<Option<f64>, NoAnswer> {
    let told = match questions.ask("JSON") {
        Ok(text) => serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|e| NoAnswer::Refused(format!("STATS JSON that is none: {e}")))?,
        Err(NoAnswer::Unknown) => serde_json::Value::Null,
        Err(e) => return Err(e),
    };
    Ok(told["oldest_hold_s"].as_f64().or_else(|| (locks == Some(0.0)).then_some(0.0)))
}

fn value<'a>(full: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = full.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(other, _)| *other == name).map(|(_, value)| value)
}

fn number(full: &str, name: &str) -> Option<f64> {
    value(full, name)?.parse().ok().filter(|number: &f64| number.is_finite())
}
