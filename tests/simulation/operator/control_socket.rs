//! What operators request on the control socket, and the answers.

use crate::simulation::driver::play::was_reset;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::{KernelEvent, kernel};
use crate::simulation::reports::moments::{Moments, Question, parse_report, report_prefix};
use std::collections::{BTreeMap, BTreeSet};

/// How long a request may be. A longer one is refused, with everything after it.
pub(crate) const REQUESTS_BYTES_MAX: usize = 1 << 20;

/// How long an operator may leave an answer unread.
const UNREAD_NS: u64 = 10_000_000_000;

/// How many operators can be connected.
const OPERATORS_MAX: usize = 16;

/// All operators, by peer.
#[derive(Default)]
pub(crate) struct OperatorSessions {
    all: BTreeMap<u32, OperatorSession>,
    /// No operator gets the answer to some restarts: a signal asked for them, the operator has
    /// left, or the send failed.
    pub(crate) may_miss_answers: bool,
    /// One of them has left: its restart is refused, unless it has begun already.
    has_requester_left: bool,
    /// How many clients there were after each turn in which an operator sent a line.
    clients: BTreeSet<usize>,
}

#[derive(Default)]
struct OperatorSession {
    /// All its requests.
    asked: Vec<String>,
    /// Received by the daemon, less than a line.
    unfinished: Vec<u8>,
    /// One of them was too long: nothing after it is read.
    is_refused: bool,
    /// The reports among them that are still to come.
    questions: Vec<Question>,
    asked_for_restart: bool,
    output: Vec<u8>,
    /// It sends no more requests.
    has_ended: bool,
    /// It did not wait for its answers.
    is_gone: bool,
    /// How many requests for reports the daemon has received.
    reports: usize,
    /// How many of these reports had been sent after the last turn, and for how many turns it has
    /// waited for the next one.
    sent: usize,
    waited: usize,
    /// When it had last read all that it was sent.
    read_ns: u64,
    /// How much of an answer the daemon had not sent after the last turn; since when that much.
    unsent: Option<usize>,
    unsent_ns: u64,
    /// The daemon has closed its connection then.
    was_cut: bool,
}

impl OperatorSessions {
    pub(crate) fn note_asked(&mut self, peer: u32, line: &str) {
        let operator = self.all.entry(peer).or_default();
        operator.asked.push(line.to_owned());
        operator.asked_for_restart |= line.starts_with("RESTART");
    }

    /// It sends too much, which is refused once the daemon has all of it.
    pub(crate) fn note_oversized(&mut self, peer: u32) {
        let operator = self.all.entry(peer).or_default();
        operator.asked.push("too long".to_owned());
        (operator.has_ended, operator.is_gone) = (true, true);
    }

    /// It has closed one side of its connection.
    pub(crate) fn note_ended(&mut self, peer: u32) {
        self.all.entry(peer).or_default().has_ended = true;
    }

    /// It has closed both.
    pub(crate) fn note_left(&mut self, peer: u32) {
        let operator = self.all.entry(peer).or_default();
        (operator.has_ended, operator.is_gone) = (true, true);
        self.may_miss_answers |= operator.asked_for_restart;
        self.has_requester_left |= operator.asked_for_restart;
    }

    /// The next image begins all reports anew.
    pub(crate) fn note_restart(&mut self) {
        let now_ns = kernel(|k| k.now_ns);
        self.all.values_mut().for_each(|it| (it.waited, it.unsent_ns) = (0, now_ns));
    }

    /// Whether an operator that asked for a restart may not be there any more: the restart is
    /// refused then.
    pub(crate) fn has_requester_left(&self) -> bool {
        self.has_requester_left
            || self.all.iter().any(|(&peer, it)| it.asked_for_restart && !is_connected(peer))
    }

    /// Another operator connects in its place: it leaves, if it is still connected.
    pub(crate) fn note_replaced(&mut self, peer: u32) {
        if self.all.contains_key(&peer) && is_connected(peer) {
            self.note_left(peer);
        }
    }

    /// Invariant: An operator that can't be sent an answer loses its place, even if more answers
    /// are due.
    pub(crate) fn check_failed(
        &self,
        seen: &[KernelEvent],
        is_operator: impl Fn(u32) -> bool,
    ) -> Result<(), Violation> {
        for one in seen {
            let KernelEvent::SendFailed(peer) = one else { continue };
            let has_place = kernel(|k| k.peers.get(peer).is_some_and(|it| it.socket.is_some()));
            if self.all.contains_key(peer) && is_operator(*peer) && has_place {
                return Err(format!("operator {peer} can't be answered, but keeps its place"));
            }
        }
        Ok(())
    }

    pub(crate) fn can_ask(&self, peer: u32) -> bool {
        is_connected(peer) && !self.all.get(&peer).is_some_and(|operator| operator.has_ended)
    }

    /// The daemon has received these bytes.
    pub(crate) fn receive(&mut self, peer: u32, bytes: &[u8], moments: &mut Moments) {
        let Some(operator) = self.all.get_mut(&peer) else { return };
        if operator.unfinished.len() + bytes.len() > REQUESTS_BYTES_MAX {
            operator.unfinished.clear();
            operator.is_refused = true;
        }
        if operator.is_refused {
            return;
        }
        operator.unfinished.extend_from_slice(bytes);
        if !bytes.contains(&b'\n') {
            return;
        }
        while let Some(end) = operator.unfinished.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = operator.unfinished.drain(..=end).collect();
            // Without an argument it is STATS FULL.
            let line = if line == b"STATS\n" { b"STATS FULL" } else { line.trim_ascii_end() };
            let report = parse_report(line);
            operator.reports += usize::from(report.is_some());
            operator.questions.extend(report.map(|it| moments.question_of_operator(it)));
        }
    }

    /// The number of clients after a turn, and before each `FREE` in it, which disconnected
    /// `freed`.
    pub(crate) fn note_clients(&mut self, seen: &[KernelEvent], clients: usize, freed: &[usize]) {
        let is_line = |one: &KernelEvent| matches!(one, KernelEvent::Input(_, bytes) if bytes.contains(&b'\n'));
        if seen.iter().any(is_line) {
            self.clients.insert(clients);
            let before = freed.iter().rev().scan(clients, |count, freed| {
                *count += freed;
                Some(*count)
            });
            self.clients.extend(before);
        }
    }

    /// Whether any operator waits for a report.
    pub(crate) fn any_awaits_report(&self) -> bool {
        self.all.values().any(|operator| !operator.questions.is_empty())
    }

    /// Invariant: An operator loses no answer unless it reads nothing for ten seconds, or another one
    /// needs its place. One that never reads is disconnected. `blocked` has those to whom a part of
    /// an answer is not sent after this turn, with its length.
    pub(crate) fn check_unsent(&mut self, blocked: &BTreeMap<u32, usize>) -> Result<(), Violation> {
        let now_ns = kernel(|k| k.now_ns);
        let is_crowd = self.all.len() >= OPERATORS_MAX;
        for (&peer, operator) in &mut self.all {
            let is_late = now_ns - operator.read_ns >= UNREAD_NS;
            if operator.unsent.is_some() && !is_connected(peer) {
                operator.was_cut = true;
                if !is_late && !is_crowd && !operator.is_gone && !was_reset(peer) {
                    return Err(format!("operator {peer} reads, but is disconnected"));
                }
            }
            let unsent = blocked.get(&peer).copied();
            if std::mem::replace(&mut operator.unsent, unsent) != unsent {
                operator.unsent_ns = now_ns;
            }
            if unsent.is_some() && now_ns - operator.unsent_ns > UNREAD_NS {
                return Err(format!("operator {peer} does not read, but keeps its place"));
            }
            if is_connected(peer) && kernel(|k| k.unread_by(peer)).is_empty() {
                operator.read_ns = now_ns;
            }
        }
        Ok(())
    }

    /// Invariant: After each turn, no operator waits for a report behind a crowd of clients.
    pub(crate) fn check_waiting(
        &mut self,
        report_turns_max: usize,
        blocked: &BTreeMap<u32, usize>,
        is_operator: impl Fn(u32) -> bool,
    ) -> Result<(), Violation> {
        for (&peer, operator) in &mut self.all {
            let is_served = is_connected(peer) && is_operator(peer) && !blocked.contains_key(&peer);
            let unsent = if is_served { operator.unsent(peer) } else { 0 };
            // Not how many are unsent: the next request may arrive in the turn of an answer.
            let sent = operator.reports.saturating_sub(unsent);
            let waits = unsent > 0 && sent <= operator.sent;
            operator.waited = if waits { operator.waited + 1 } else { 0 };
            operator.sent = sent;
            if operator.waited > report_turns_max {
                return Err(format!("operator {peer} waits for {} turns", operator.waited));
            }
        }
        Ok(())
    }

    /// An operator has read these bytes.
    pub(crate) fn read(
        &mut self,
        peer: u32,
        bytes: &[u8],
        moments: &Moments,
    ) -> Result<(), Violation> {
        let Some(operator) = self.all.get_mut(&peer) else { return Ok(()) };
        operator.output.extend_from_slice(bytes);
        operator.check_drain_counts(&self.clients)?;
        operator.take_reports(moments).map_err(|why| format!("operator {peer}: {why}"))
    }

    /// Invariant: Each request of an operator has one answer, in the order of the requests, even if
    /// a hot restart follows at once or the operator has closed its writing side. An answer is a
    /// line, except for HELP and reports, which end in a blank line. DRAINED is answered when the
    /// daemon no longer drains, or when the operator closes its writing side. An operator that asks
    /// for a restart gets a confirmation.
    ///
    /// Invariant: A seventeenth operator takes the place of another, which gets one error and may
    /// miss its other answers.
    ///
    /// Invariant: An operator that leaves without waiting changes nothing for others, and keeps no
    /// place once its input is read.
    pub(crate) fn check_quiescence(&self, restarts: usize, drains: bool) -> Result<(), Violation> {
        let confirmed: usize = self.all.values().map(OperatorSession::restarts_confirmed).sum();
        let may_miss = |(peer, operator): (&u32, &OperatorSession)| {
            let asked = operator.asked.iter().filter(|line| line.starts_with("RESTART")).count();
            let has_lost_place = was_reset(*peer) || operator.was_displaced() || operator.was_cut;
            if has_lost_place { asked.saturating_sub(operator.restarts_confirmed()) } else { 0 }
        };
        let confirmed_max = confirmed + self.all.iter().map(may_miss).sum::<usize>();
        if !(confirmed..=confirmed_max).contains(&restarts) && !self.may_miss_answers {
            return Err(format!("operators got {confirmed} confirmations of {restarts} restarts"));
        }
        for (peer, operator) in &self.all {
            if kernel(|k| k.is_open(*peer) && k.visible(*peer).1) {
                return Err(format!("operator {peer} has left, but keeps its place"));
            }
            let was_reset = was_reset(*peer) || operator.was_cut;
            let was_displaced = operator.was_displaced();
            let may_miss = operator.is_gone || was_displaced || was_reset;
            let output = operator.whole_output(was_reset);
            let answers = first_lines(&output)?;
            let answers = &answers[..answers.len() - usize::from(was_displaced)];
            let count = answers.len();
            let asked = operator.asked.len();
            let is_waiting = drains
                && !operator.has_ended
                && operator.asked.get(count).is_some_and(|line| line == "DRAINED");
            if count < asked && !may_miss && !is_waiting || count > asked {
                return Err(format!("operator {peer}: {count} answers to {asked}"));
            }
            let mut pairs = operator.asked.iter().zip(answers);
            if let Some((line, answer)) = pairs.find(|(line, answer)| !is_answer_to(line, answer)) {
                return Err(format!("operator {peer} reads {answer:?} in answer to {line:?}"));
            }
        }
        Ok(())
    }
}

/// The daemon has not closed its connection.
pub(crate) fn is_connected(peer: u32) -> bool {
    kernel(|k| k.peers.get(&peer).is_some_and(|peer| peer.ending.is_none()))
}

impl OperatorSession {
    /// How many reports the daemon has not sent.
    fn unsent(&self, peer: u32) -> usize {
        if self.questions.is_empty() {
            return 0;
        }
        let output = [&self.output[..], &kernel(|k| k.unread_by(peer))].concat();
        let mut left = OperatorSession {
            output,
            questions: self.questions.clone(),
            ..OperatorSession::default()
        };
        while left.take_report().is_some() {}
        left.questions.len()
    }

    /// Invariant: An operator that drains gets the number of clients that are left.
    fn check_drain_counts(&self, clients: &BTreeSet<usize>) -> Result<(), Violation> {
        let output = String::from_utf8_lossy(&self.output);
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let left = whole.lines().filter_map(|l| l.strip_prefix("OK draining, connections left: "));
        for left in left {
            if !left.parse().is_ok_and(|left| clients.contains(&left)) {
                return Err(format!("an operator reads that {left} clients are left"));
            }
        }
        Ok(())
    }

    /// Its output, without the partial answer in which a lost connection may end.
    fn whole_output(&self, was_reset: bool) -> String {
        let mut text = String::from_utf8_lossy(&self.output).into_owned();
        if was_reset {
            let reports = self.questions.iter();
            let begun =
                reports.filter_map(|it| start_of_line(&text, report_prefix(&it.report))).min();
            text.truncate(begun.unwrap_or_else(|| text.rfind('\n').map_or(0, |last| last + 1)));
        }
        text
    }

    /// Whether another operator has taken its place.
    fn was_displaced(&self) -> bool {
        self.output.ends_with(b"ERROR too many control connections\n")
    }

    fn restarts_confirmed(&self) -> usize {
        self.output.split(|&b| b == b'\n').filter(|line| line.starts_with(b"OK restarted")).count()
    }

    fn take_reports(&mut self, moments: &Moments) -> Result<(), Violation> {
        while let Some((question, report)) = self.take_report() {
            moments.judge(&question, &report)?;
        }
        Ok(())
    }

    /// Replaces a whole report by `OK`. It may come later than answers to later requests.
    fn take_report(&mut self) -> Option<(Question, String)> {
        let text = String::from_utf8_lossy(&self.output).into_owned();
        let (n, from, to) = self.questions.iter().enumerate().find_map(|(n, question)| {
            let at = start_of_line(&text, report_prefix(&question.report))?;
            Some((n, at, at + text[at..].find("\n\n")?))
        })?;
        // The answer may belong to any of several equal questions.
        let question = self.questions.remove(n);
        self.output = [&text[..from], "OK report\n", &text[to + 2..]].concat().into_bytes();
        Some((question, text[from..=to].to_owned()))
    }
}

/// Where a line begins with this prefix.
fn start_of_line(text: &str, report_prefix: &str) -> Option<usize> {
    let mut found = text.match_indices(report_prefix).map(|(at, _)| at);
    found.find(|&at| at == 0 || text[..at].ends_with('\n'))
}

/// What a restart without options answers, and what no other one says.
const RESTARTED_UNCHANGED: &str =
    concat!("OK restarted, poolcounterd ", env!("CARGO_PKG_VERSION"), "; options unchanged");
const UNCHANGED: &str = "options unchanged";

/// What the answer to `FREE --json` begins with.
const FREED: &str = "{\"freed\":";

/// Whether this can be the first line of the answer to `request`.
fn is_answer_to(request: &str, answer: &str) -> bool {
    let start = match request.split(' ').next() {
        Some("RESTART") if request == "RESTART" => RESTARTED_UNCHANGED,
        Some("RESTART") if answer.contains(UNCHANGED) => return false,
        Some("RESTART") => "OK restarted",
        Some("DRAIN") => "OK draining",
        Some("DRAINED") => "OK drained",
        Some("UNDRAIN") => "OK listening",
        Some("LOG") => "OK log filter",
        Some("RULES" | "STATS") => "OK report",
        Some("RULE") => "OK rule",
        Some("FREE") if request.contains("--json") => FREED,
        Some("FREE") if request.contains("--dry-run") => "OK would close",
        Some("FREE") => "OK closed",
        Some("HELP") => "RESTART",
        _ => "ERROR",
    };
    answer.starts_with(start) || answer.starts_with("ERROR")
}

/// The first lines of all answers.
fn first_lines(output: &str) -> Result<Vec<&str>, Violation> {
    let mut answers = Vec::new();
    let mut is_help = false;
    for line in output.lines() {
        match line {
            "" if is_help => is_help = false,
            _ if is_help => {}
            _ if line.starts_with("OK ") || line.starts_with("ERROR ") => {
                // The locks follow.
                is_help = ["OK closed ", "OK would close "].iter().any(|it| line.starts_with(it));
                answers.push(line);
            }
            _ if line.starts_with("RESTART ") || line.starts_with(FREED) => {
                is_help = true;
                answers.push(line);
            }
            _ => return Err(format!("an operator reads {line:?}")),
        }
    }
    Ok(answers)
}
