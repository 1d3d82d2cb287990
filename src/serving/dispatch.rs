//! Handles lines: parses each, lets the engine decide, answers, a share of a turn for each
//! client; debug lines of both; adds addresses to samples; ended and lost connections.

use crate::clients::connection::ConnectionStage;
use crate::clients::connections::{Clients, Fate};
use crate::clients::input::{Input, Received};
use crate::clients::input_queues::{END_WORK, InputQueue, SHARE_WORK};
use crate::logging::rate_limit::limited;
use crate::platform::os::Engine;
use crate::platform::os::io::Errno;
use crate::platform::os::mio::Registry;
use crate::reporting::report_queue::{ReportRequest, Reporting, Requester};
use crate::restart::parts::Parts;
use engine::counts::measures::CommandKind;
use engine::{ClientId, Time};
use log::debug;
use protocol::lines::Line;
use protocol::{Command, Query, Reply, is_of_http};
use reports::{Peers, StatsAnswer, stats};
use std::borrow::Cow;

/// What a line with a one-line answer costs beyond its length.
const ANSWER_BYTES: usize = 16;

/// Log lines truncate keys to this length.
const LOGGED_KEY_BYTES: usize = 128;

/// The engine and the clients that it answers, for the duration of a turn.
pub(crate) struct Dispatch<'a> {
    pub(crate) clients: &'a mut Clients,
    pub(crate) engine: &'a mut Engine,
    pub(crate) reporting: &'a mut Reporting,
    pub(crate) registry: &'a Registry,
    /// When the turn's input was received. That is after it was sent, so no wait
    /// ends early.
    pub(crate) now: Time,
}

/// What became of a client's next line.
enum Handled {
    /// It has cost so much.
    Line(usize),
    /// No whole line is left.
    All,
    /// Nothing that follows is handled now: the client has gone, or waits for a report.
    Stops,
}

impl<'a> Dispatch<'a> {
    pub(crate) fn new(parts: &'a mut Parts, reporting: &'a mut Reporting, now: Time) -> Self {
        let Parts { poll, clients, engine, .. } = parts;
        Dispatch { clients, engine, reporting, registry: poll.registry(), now }
    }

    /// Handles everything in `input` and clears it.
    pub(crate) fn handle(&mut self, input: &mut Input) {
        for (client, received) in input.iter() {
            let work = self.handle_received(client, received);
            self.clients.settle(work);
        }
        input.clear();
    }

    /// Returns what it has cost.
    fn handle_received(&mut self, client: ClientId, received: Received<&[u8]>) -> usize {
        match received {
            Received::Bytes([]) => {
                self.handle_end_of_input(client);
                END_WORK
            }
            Received::Bytes(bytes) => {
                self.clients.record_received(client, bytes.len());
                self.handle_lines(client, bytes)
            }
            Received::Unhandled(queue) => {
                let Some(unhandled) = self.clients.take_unhandled(client) else {
                    return 0;
                };
                let work = self.handle_lines(client, &unhandled);
                match queue {
                    // These lines came with one that a report has answered, and are no share.
                    InputQueue::Fresh => self.clients.record_readable(client),
                    InputQueue::Rest => self.clients.record_unread(client),
                }
                work
            }
            Received::Failed(Errno::AGAIN) => {
                self.clients.record_drained(client);
                0
            }
            Received::Failed(e) => {
                self.clients.record_receive_failure(client, e);
                self.handle_lost_connection(client);
                END_WORK
            }
        }
    }

    /// Handles the lines of `input` up to the client's share of the turn. The rest
    /// waits for the next turn. Returns what it has cost.
    fn handle_lines(&mut self, client: ClientId, input: &[u8]) -> usize {
        let work = self.handle_share(client, input);
        // If many clients ask for much, their answers must not all be in memory at once.
        if self.clients.has_much_to_send(client) {
            self.flush(client);
            self.deliver_answers();
        }
        work
    }

    fn handle_share(&mut self, client: ClientId, mut input: &[u8]) -> usize {
        let mut done = 0;
        loop {
            if done >= SHARE_WORK && !input.is_empty() {
                self.put_back(client, input);
                return done;
            }
            let Handled::Line(work) = self.handle_next_line(client, &mut input) else {
                return done;
            };
            done += work;
        }
    }

    fn put_back(&mut self, client: ClientId, rest: &[u8]) {
        if let Some(connection) = self.clients.open_mut(client) {
            connection.lines.put_back(rest);
            self.clients.record_unread(client);
        }
    }

    /// Handles the next line of `input`.
    fn handle_next_line(&mut self, client: ClientId, input: &mut &[u8]) -> Handled {
        let Some(connection) = self.clients.get_mut(client) else { return Handled::Stops };
        let before = *input;
        let has_failed_output = connection.has_failed_output();
        let mut answer_bytes = ANSWER_BYTES;
        let Some(line) = connection.lines.next_line(input) else { return Handled::All };
        let reply = match line {
            Line::TooLong(start) if is_of_http(&start) => return self.refuse_http(client),
            Line::TooLong(_) => Some((CommandKind::Other, Reply::LineTooLong)),
            Line::Complete(line) => {
                debug!("#{} > {}", client.serial, line.escape_ascii());
                match Command::parse(line) {
                    Command::Acquire(request) => {
                        self.engine.acquire(client, &request, self.now);
                        None
                    }
                    Command::Release => {
                        self.engine.release(client, self.now);
                        None
                    }
                    Command::Stats(query) => match self.stats(&query) {
                        StatsAnswer::Text(text) => {
                            answer_bytes = text.len();
                            self.owe_text(client, text);
                            None
                        }
                        StatsAnswer::Report if has_failed_output => None,
                        StatsAnswer::Report => {
                            let taken = &before[..before.len() - input.len()];
                            self.request_report(client, query, taken, std::mem::take(input));
                            return Handled::Stops;
                        }
                        StatsAnswer::Unknown => Some((CommandKind::Stats, Reply::WrongStat)),
                    },
                    Command::Http => return self.refuse_http(client),
                    Command::Unknown => Some((CommandKind::Other, Reply::BadCommand)),
                }
            }
        };
        if let Some((asked, reply)) = reply {
            self.engine.measures.replies.count(asked, Some(reply));
            self.reply(client, reply);
        }
        self.deliver_answers();
        Handled::Line(before.len() - input.len() + answer_bytes)
    }

    fn stats(&self, query: &Query) -> StatsAnswer {
        stats(query, self.engine, self.now, self.reporting.is_private())
    }

    /// A forged request, or a page in somebody's browser, has reached the port, and may have
    /// written commands into its body: nothing more of the client is handled.
    fn refuse_http(&mut self, client: ClientId) -> Handled {
        if let Some(connection) = self.clients.open_mut(client) {
            let peer = connection.peer();
            limited!(warn, "{peer} speaks HTTP on the clients' port: closed its connection");
            self.engine.counters.freed_connections += 1;
            self.engine.disconnect(client, self.now);
            self.deliver_answers();
            self.clients.close_after_output(client);
        }
        Handled::Stops
    }

    /// Asks for a report. The line and what follows it are held until the report is made:
    /// answers come in the order of the lines. A hot restart hands them over, and the new
    /// image handles the line again.
    fn request_report(&mut self, client: ClientId, query: Query, taken: &[u8], rest: &[u8]) {
        if let Some(connection) = self.clients.get_mut(client) {
            connection.lines.hold_line(taken, rest);
            self.reporting.enqueue(Requester::Client(client), ReportRequest::Query(query));
        }
    }

    /// Passes a report on to the client that asked for it.
    pub(crate) fn deliver_report(&mut self, client: ClientId, text: Vec<u8>) {
        let Some(connection) = self.clients.get_mut(client) else { return };
        if connection.lines.finish_line() {
            if connection.stage == ConnectionStage::Finishing {
                // The beginning of a line that has no end.
                connection.lines.take_unhandled();
                self.clients.record_end_handled(client);
            }
            self.clients.record_readable(client);
            self.owe_text(client, text);
        }
    }

    fn owe_text(&mut self, client: ClientId, text: Vec<u8>) {
        debug!("#{} < {}", client.serial, beginning_of(&text));
        self.engine.measures.replies.count(CommandKind::Stats, None);
        self.owe(client, text.into());
    }

    /// Passes the engine the addresses of the clients that it follows, and logs slow
    /// holds and waits.
    pub(crate) fn record_observed(&mut self) {
        let mut address = String::new();
        while let Some(sample) = self.engine.observer.take_sample() {
            if self.clients.write_address(sample.client, &mut address) {
                self.engine.observer.count_sample(&sample, address.as_bytes(), self.now);
            }
        }
        while let Some(slow) = self.engine.observer.take_slow() {
            // A row without it would be a column short.
            let peer = self.clients.peer(slow.client).unwrap_or_else(|| "unknown".to_owned());
            limited!(
                warn,
                "slow: {} on {} by {peer} took {:.3} s, ended: {}, rule: {}",
                if slow.outcome.is_of_hold() { "hold" } else { "wait" },
                slow.key[..slow.key.len().min(LOGGED_KEY_BYTES)].escape_ascii(),
                slow.took_ns as f64 / 1e9,
                slow.outcome.word(),
                slow.rules,
            );
            self.engine.observer.log_slow(slow, peer);
        }
    }

    /// Ends the waits that have timed out, and closes the connections of clients that have
    /// held a lock for too long. Returns whether there are such clients.
    pub(crate) fn expire(&mut self) -> bool {
        self.engine.expire(self.now);
        let expired = self.engine.take_expired();
        for lock in &expired {
            // Operators should look: the holder hangs, or the limit is too low.
            limited!(
                warn,
                "max-hold: closed {}, which held {} for {} s",
                self.clients.peer(lock.client).unwrap_or_default(),
                lock.key[..lock.key.len().min(LOGGED_KEY_BYTES)].escape_ascii(),
                lock.held_ns / 1_000_000_000,
            );
            self.clients.free(lock.client, &mut self.engine.counters);
        }
        !expired.is_empty()
    }

    /// Sends everything owed before the loop sleeps.
    pub(crate) fn send(&mut self) {
        self.deliver_answers();
        while let Some(client) = self.clients.next_owed() {
            self.flush(client);
            self.deliver_answers();
        }
    }

    /// Passes the engine's answers on to their clients.
    fn deliver_answers(&mut self) {
        while let Some((client, reply)) = self.engine.take_answer() {
            self.reply(client, reply);
        }
    }

    fn reply(&mut self, client: ClientId, reply: Reply) {
        debug!("#{} < {}", client.serial, reply.as_bytes().trim_ascii_end().escape_ascii());
        self.owe(client, reply.as_bytes().into());
    }

    fn owe(&mut self, client: ClientId, bytes: Cow<'static, [u8]>) {
        if !self.clients.owe(client, bytes) {
            self.flush(client);
        }
    }

    fn flush(&mut self, client: ClientId) {
        let fate = self.clients.flush(client, self.registry, &mut self.engine.counters);
        if fate == Fate::Gone {
            self.engine.disconnect(client, self.now);
        }
    }

    /// The client's input has ended: it loses its locks and waits, but still gets the
    /// answers to its earlier requests.
    fn handle_end_of_input(&mut self, client: ClientId) {
        if self.clients.open_mut(client).is_some() {
            debug!("#{} closed", client.serial);
            self.engine.counters.closed_connections += 1;
            self.engine.disconnect(client, self.now);
            self.deliver_answers();
            self.clients.close_after_output(client);
        }
    }

    /// The connection is lost: the client loses its locks and waits, and gets nothing
    /// more.
    fn handle_lost_connection(&mut self, client: ClientId) {
        if self.clients.schedule_close(client) == Fate::Gone {
            self.engine.counters.lost_connections += 1;
            self.engine.disconnect(client, self.now);
            self.deliver_answers();
        }
    }
}

/// A text as the log shows it: its first line, and how much follows.
fn beginning_of(text: &[u8]) -> String {
    let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
    let shown = &line[..line.len().min(LOGGED_KEY_BYTES)];
    match text.len().saturating_sub(shown.len() + 1) {
        0 => shown.escape_ascii().to_string(),
        more => format!("{} (and {more} bytes)", shown.escape_ascii()),
    }
}
