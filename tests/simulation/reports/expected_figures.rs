//! What only JSON and `/metrics` show: figures of turns, hot restarts and drains.

use super::moments::{KeyRow, Moments, Question};
use super::top_lists::START_NS;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;
use serde_json::Value;
use std::cell::Cell;

/// How long the hot restarts have taken so far, in nanoseconds each.
#[derive(Debug, Default)]
pub(crate) struct ExpectedFigures {
    pauses_ns: Vec<u64>,
    /// How many were refused so far.
    refused: u64,
    restart_began_ns: u64,
    /// Whether the last turn of this image had events, and whether one before it had.
    events: [bool; 2],
    /// Whether it drains, and how often that has changed.
    draining: (bool, usize),
    /// When it was started, as the first `/metrics` showed it.
    started_s: Cell<Option<f64>>,
}

impl ExpectedFigures {
    /// A turn is followed now: its events count in the next one.
    pub(crate) fn note_turn(&mut self) {
        let [last, before] = self.events;
        self.events = [kernel(|k| k.calls.events > 0), last || before];
    }

    /// Whether events should have been counted.
    pub(crate) fn had_events(&self) -> bool {
        self.events[1]
    }

    /// The number of hot restarts that were refused so far.
    pub(crate) fn note_refused(&mut self, refused: u64) {
        self.refused = refused;
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// After a turn.
    pub(crate) fn note_draining(&mut self, drains: bool) {
        let (before, changes) = self.draining;
        self.draining = (drains, changes + usize::from(drains != before));
    }

    pub(crate) fn draining(&self) -> (bool, usize) {
        self.draining
    }

    /// The next image begins: that takes a moment.
    pub(crate) fn note_restart(&mut self) {
        self.events = [false; 2];
        kernel(|k| {
            self.restart_began_ns = k.now_ns;
            let takes_ns = 1_000_000 + k.below(3_000_000) as u64;
            k.advance(takes_ns);
        });
    }

    /// The next image has started: it may have waited for scarce descriptors.
    pub(crate) fn note_resumed(&mut self) {
        self.pauses_ns.push(kernel(|k| k.now_ns) - self.restart_began_ns);
    }

    /// Invariant: `/metrics` and JSON show whether the daemon drains, as it was at some time since
    /// the question.
    fn judge_draining(&self, is_shown: bool, question: &Question) -> Result<(), Violation> {
        let (drained, changes) = question.draining;
        if is_shown == drained || self.draining.1 != changes {
            Ok(())
        } else {
            Err(format!("draining is shown as {is_shown}"))
        }
    }

    /// Invariant: `/metrics` shows whether it is safe to end the daemon, and when it was started:
    /// that stays, however the wall clock jumps.
    pub(super) fn judge_metrics(&self, text: &str, question: &Question) -> Result<(), Violation> {
        let value = |name: &str| {
            let mut values =
                text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value = values.next().and_then(|value| value.parse::<f64>().ok());
            value.ok_or_else(|| format!("{name} is missing"))
        };
        let drains = value("poolcounter_draining")? == 1.0;
        self.judge_draining(drains, question)?;
        let is_safe = drains && value("poolcounter_holders")? == 0.0;
        let started_s = value("process_start_time_seconds")?;
        let unsafe_s = if is_safe { 0.0 } else { started_s };
        if (value("poolcounter_safe_to_end")? == 1.0) != is_safe
            || value("poolcounter_unsafe_start_time_seconds")? != unsafe_s
        {
            return Err(format!("whether it is safe to end should be {is_safe}: {text}"));
        }
        let first_s = self.started_s.get().unwrap_or(started_s);
        self.started_s.set(Some(first_s));
        if first_s == started_s {
            Ok(())
        } else {
            Err(format!("the start time is {started_s} s, but was {first_s} s"))
        }
    }

    /// Invariant: JSON counts the hot restarts, with the time that they took, and those refused.
    fn judge(&self, json: &Value, question: &Question) -> Result<(), Violation> {
        let drains = json["draining"].as_bool().ok_or("no draining")?;
        self.judge_draining(drains, question)?;
        let restarts = &json["hot_restarts"];
        let done = restarts["done"].as_u64().unwrap_or(u64::MAX) as usize;
        let pauses_ns = self.pauses_ns.get(..done).ok_or("fewer restarts were done")?;
        let is_shown = |name: &str, ns: u64| {
            let shown_s = restarts[name].as_f64().unwrap_or(f64::MAX);
            (shown_s * 1e9 - ns as f64).abs() < 1e3
        };
        let last_ns = pauses_ns.last().copied().unwrap_or(0);
        if !is_shown("pause_s", pauses_ns.iter().sum()) || !is_shown("last_pause_s", last_ns) {
            return Err(format!("{restarts} instead of {pauses_ns:?}"));
        }
        let refused = restarts["refused"].as_u64().unwrap_or(u64::MAX);
        if !(question.refused..=self.refused).contains(&refused) {
            return Err(format!("{restarts}, but {} were refused", self.refused));
        }
        let turns = &json["turns"]["events"];
        if question.had_events && turns["sum"].as_f64() == Some(0.0) {
            return Err(format!("no turn had an event: {turns}"));
        }
        Ok(())
    }
}

impl Moments {
    /// Invariant: JSON has the uptime of one of the moments.
    pub(super) fn judge_json(
        &self,
        question: &Question,
        text: &str,
        is_private: bool,
    ) -> Result<(), Violation> {
        let json: Value = serde_json::from_str(text).map_err(|e| format!("{text:?}: {e}"))?;
        self.figures.judge(&json, question)?;
        let uptime_s = json["uptime_s"].as_f64().ok_or("no uptime")?;
        self.check_any_moment(question, &format!("an uptime of {uptime_s} s"), |moment| {
            let due_ns = moment.now_ns - START_NS;
            (uptime_s * 1e9 - due_ns as f64).abs() < 1e3
        })?;
        let object = json["counters"].as_object().ok_or("no counters")?;
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        let counters = object.iter().map(|(name, value)| (name.as_str(), number(value)));
        self.judge_counters(question, &counters.collect())?;
        for row in
            ["oldest_holds", "slow"].iter().filter_map(|list| json[list].as_array()).flatten()
        {
            let serial = number(&row["client"]) as u32;
            let address = row["address"].as_str().unwrap_or("?");
            if !self.addresses.is_address_of(serial, address, is_private) {
                return Err(format!("{row} is shown, but is another client's"));
            }
        }
        self.judge_requests(question, &json["top"].to_string(), |moments| {
            self.requests.match_json(&json["top"], is_private, moments)
        })?;
        let row = |row: &Value| {
            let name = row["key"].as_str().unwrap_or_default().as_bytes().to_vec();
            let queues = ["holders", "for_me", "for_anyone"];
            (name, queues.map(|queue| number(&row[queue]) as usize))
        };
        let shown: Vec<KeyRow> =
            json["keys"].as_array().ok_or("no keys")?.iter().map(row).collect();
        // It has at most twenty rows.
        self.check_key_rows(question, &shown, 20, is_private)
    }
}
