//! Judges what the daemon does: by the plain model of the engine, and by rules that are obviously
//! right.

use crate::operator::control_socket::FreeTarget;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;
use crate::simulation::model::{Model, State, TakenAway};
use crate::simulation::os::recording_engine::{EngineCall, OwnedAcquire};
use crate::simulation::reports::moments::{
    Moments, Question, ReportKind, parse_report, report_prefix,
};
use engine::KeyWork;
use engine::counts::statistics::Counters;
use engine::{ClientId, Time};
use protocol::lines::{Line, Lines};
use protocol::{Command, List, Query, Reply, is_of_http};
use reports::HIDDEN_MATCHES;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A line of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientLine {
    Acquire(OwnedAcquire),
    Release,
    /// The engine does not answer it.
    DirectAnswer(DirectAnswer),
    /// It ends the connection.
    Http,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DirectAnswer {
    Reply(Reply),
    /// A line of statistics that begins with this.
    Line(String),
    /// Lines up to a blank one.
    Report(Question),
}

/// An answer of the engine, and how many direct answers come before it: answers come in the order
/// of the lines, but the end of a wait may come in between.
struct EngineAnswer {
    reply: Reply,
    after_at_least: usize,
    after_at_most: usize,
}

/// The work for a client, as bytes received plus bytes answered: only its bounds, because the
/// length of statistics is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnWork {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl TurnWork {
    fn add(&mut self, line: usize, answers: std::ops::Range<usize>) {
        self.least += line + answers.start;
        self.most += line + answers.end;
    }
}

/// What an answer of one line counts.
const SHORT_ANSWER: std::ops::Range<usize> = 16..16;

/// What the oracle knows about one client.
#[derive(Default)]
pub(crate) struct ClientConversation {
    lines: Lines,
    /// Received by the daemon, but not known to be handled.
    requests: VecDeque<(ClientLine, usize)>,
    /// Answers of the engine, by the model, that the client has not read.
    answers: VecDeque<EngineAnswer>,
    /// Answers without the engine that the client has not read.
    direct: VecDeque<DirectAnswer>,
    /// How many of those were received, are known to be handled, and were read.
    direct_received: usize,
    direct_handled: usize,
    direct_read: usize,
    /// Read by the client, less than a line.
    unread: Vec<u8>,
    /// A report, and the part that it has read.
    report: Option<(Question, String)>,
    /// `--keepalive` when it connected.
    pub(crate) keepalive_s: u32,
    /// The engine was asked to disconnect it.
    pub(crate) has_gone: bool,
    /// `FREE` or `--max-hold` has closed its connection.
    pub(crate) is_freed: bool,
    /// It has sent a line of HTTP; and that has ended its connection, unless something else did.
    speaks_http: bool,
    pub(crate) has_ended_by_http: bool,
    /// What was done for it in this turn.
    pub(crate) work: TurnWork,
}

impl ClientConversation {
    pub(crate) fn new(keepalive_s: u32) -> Self {
        ClientConversation { keepalive_s, ..ClientConversation::default() }
    }

    /// The daemon has received these bytes.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], moments: &mut Moments) {
        while !self.speaks_http {
            let before = bytes.len();
            let request = match self.lines.next_line(&mut bytes) {
                None => return,
                Some(Line::TooLong(start)) if is_of_http(&start) => ClientLine::Http,
                Some(Line::TooLong(_)) => {
                    ClientLine::DirectAnswer(DirectAnswer::Reply(Reply::LineTooLong))
                }
                Some(Line::Complete(line)) => parse_line(line, moments),
            };
            if let ClientLine::DirectAnswer(direct) = &request {
                self.direct.push_back(direct.clone());
                self.direct_received += 1;
            }
            self.speaks_http = request == ClientLine::Http;
            self.requests.push_back((request, before - bytes.len()));
        }
    }

    /// The engine is asked to disconnect it.
    ///
    /// Invariant: A line of HTTP ends the connection: what was before is answered, what follows is
    /// not handled.
    fn note_gone(&mut self) {
        self.has_gone = true;
        let is_direct =
            |(line, _): &(ClientLine, usize)| matches!(line, ClientLine::DirectAnswer(_));
        let next = self.requests.iter().find(|request| !is_direct(request));
        self.has_ended_by_http = next.is_some_and(|(line, _)| *line == ClientLine::Http);
    }

    /// This call must be the client's next line.
    ///
    /// Invariant: The engine gets exactly the lines that a client has sent, each once and in order.
    fn match_request(&mut self, asked: &ClientLine) -> Result<(), Violation> {
        loop {
            match self.requests.pop_front() {
                Some((ClientLine::DirectAnswer(direct), len)) => self.note_handled(direct, len),
                Some((request, len)) if request == *asked => {
                    self.work.add(len, SHORT_ANSWER);
                    return Ok(());
                }
                other => return Err(format!("the engine gets {asked:?}, not {other:?}")),
            }
        }
    }

    fn note_handled(&mut self, direct: DirectAnswer, len: usize) {
        self.direct_handled += 1;
        let answer = match direct {
            DirectAnswer::Reply(_) => SHORT_ANSWER,
            DirectAnswer::Line(_) => 10..64,
            DirectAnswer::Report(Question { report: ReportKind::Query(Query::Full), .. }) => {
                500..1000
            }
            // It takes turns of its own.
            DirectAnswer::Report(_) => 0..100_000,
        };
        self.work.add(len, answer);
    }

    /// A turn is over: of all lines received, only those in `kept` are not handled.
    pub(crate) fn check_all_handled(&mut self, kept: &[u8]) -> Result<(), Violation> {
        let lines: Vec<&[u8]> =
            kept.split_inclusive(|&b| b == b'\n').filter(|line| line.ends_with(b"\n")).collect();
        // What follows a line of HTTP is none of its requests.
        let http = lines.iter().position(|line| is_of_http(line));
        let left = http.map_or(lines.len(), |n| n + 1);
        while self.requests.len() > left {
            match self.requests.pop_front() {
                Some((ClientLine::DirectAnswer(direct), len)) => self.note_handled(direct, len),
                other => return Err(format!("it was received, but not handled: {other:?}")),
            }
        }
        Ok(())
    }

    /// The engine answers its last line, or ends an earlier wait.
    ///
    /// Invariant: Only the end of a wait comes between the answers to later lines.
    fn expect_answer(&mut self, reply: Reply, has_waited: bool) {
        let after_at_least = self.direct_handled;
        let after_at_most = if has_waited { self.direct_received } else { after_at_least };
        self.answers.push_back(EngineAnswer { reply, after_at_least, after_at_most });
    }

    /// The client reads these bytes: each line must be the next answer.
    pub(crate) fn read(&mut self, bytes: &[u8], moments: &Moments) -> Result<(), Violation> {
        self.unread.extend_from_slice(bytes);
        while let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            self.check_line(&line, moments)?;
        }
        Ok(())
    }

    /// Invariant: A client reads its answers in the order of its lines.
    fn check_line(&mut self, line: &[u8], moments: &Moments) -> Result<(), Violation> {
        if let Some((question, mut text)) = self.report.take() {
            if line == b"\n" {
                return moments.judge(&question, &text);
            }
            text.push_str(&String::from_utf8_lossy(line));
            self.report = Some((question, text));
            return Ok(());
        }
        let is_next = |answer: &&EngineAnswer| answer.reply.as_bytes() == line;
        if let Some(answer) = self.answers.front().filter(is_next) {
            let is_in_order = answer.after_at_least <= self.direct_read;
            self.answers.pop_front();
            return check_order(is_in_order, line);
        }
        match self.direct.pop_front() {
            Some(DirectAnswer::Reply(reply)) if reply.as_bytes() == line => {}
            Some(DirectAnswer::Line(start)) if line.starts_with(start.as_bytes()) => {}
            Some(DirectAnswer::Report(question)) if line == HIDDEN_MATCHES.as_bytes() => {
                moments.judge_hidden_matches(&question)?;
            }
            Some(DirectAnswer::Report(question))
                if line.starts_with(report_prefix(&question.report).as_bytes()) =>
            {
                self.report = Some((question, String::from_utf8_lossy(line).into_owned()));
            }
            direct => {
                let of_engine = self.answers.front().map(|answer| answer.reply);
                return Err(unexpected_line(line, &format!("{of_engine:?} or {direct:?}")));
            }
        }
        self.direct_read += 1;
        let next = self.answers.front();
        check_order(next.is_none_or(|next| self.direct_read <= next.after_at_most), line)
    }

    /// Whether it waits for a report, or reads one.
    fn awaits_report(&self) -> bool {
        let is_report = |direct: &DirectAnswer| matches!(direct, DirectAnswer::Report(_));
        !self.has_gone && (self.report.is_some() || self.direct.iter().any(is_report))
    }

    /// At most the size of what it has not read.
    pub(crate) fn unread_bytes(&self) -> usize {
        let of_report = |question: &Question| match question.report {
            ReportKind::Query(Query::Full) => 700,
            ReportKind::Query(Query::Json | Query::History) => 40_000,
            ReportKind::Query(Query::List(List::Slow(rows))) => 100 + 120 * rows as usize,
            // Wordier.
            ReportKind::Query(Query::MatchingKeys(_) | Query::JsonList(_)) => 40_000,
            _ => 8_000,
        };
        let direct = self.direct.iter().map(|direct| match direct {
            DirectAnswer::Reply(reply) => reply.as_bytes().len(),
            DirectAnswer::Line(_) => 40,
            DirectAnswer::Report(question) => of_report(question),
        });
        // It may have read the beginning of a report.
        let begun = self.report.iter().map(|(question, _)| of_report(question));
        let answers = self.answers.iter().map(|answer| answer.reply.as_bytes().len());
        direct.chain(begun).chain(answers).sum()
    }

    /// Whether it should have been sent something by now that it has not read.
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.has_gone && self.unread.is_empty() && self.unread_bytes() > 0
    }

    /// Invariant: A client that reads gets all its answers.
    pub(crate) fn check_all_answered(&self) -> Result<(), Violation> {
        let nothing = self.answers.is_empty() && self.direct.is_empty();
        if self.is_freed || nothing && self.unread.is_empty() && self.report.is_none() {
            return Ok(());
        }
        Err(format!(
            "it never gets {} answers, first {:?}, and {} others, first {:?}; half a line: {:?}",
            self.answers.len(),
            self.answers.front().map(|answer| answer.reply),
            self.direct.len(),
            self.direct.front(),
            self.unread
        ))
    }
}

fn check_order(is_in_order: bool, line: &[u8]) -> Result<(), Violation> {
    if is_in_order { Ok(()) } else { Err(unexpected_line(line, "the answer to an earlier line")) }
}

fn unexpected_line(line: &[u8], instead: &str) -> Violation {
    format!("it reads {:?} instead of {instead}", line.escape_ascii().to_string())
}

fn parse_line(line: &[u8], moments: &mut Moments) -> ClientLine {
    if let Some(report) = parse_report(line) {
        return ClientLine::DirectAnswer(DirectAnswer::Report(moments.question(report)));
    }
    match Command::parse(line) {
        Command::Acquire(request) => ClientLine::Acquire(OwnedAcquire::of(&request)),
        Command::Release => ClientLine::Release,
        Command::Http => ClientLine::Http,
        Command::Unknown => ClientLine::DirectAnswer(DirectAnswer::Reply(Reply::BadCommand)),
        Command::Stats(query) => ClientLine::DirectAnswer(match query {
            Query::Uptime => DirectAnswer::Line("uptime: ".to_owned()),
            Query::Counter(name) if Counters::ALL.iter().any(|c| c.name == name) => {
                DirectAnswer::Line(format!("{name}: "))
            }
            _ => DirectAnswer::Reply(Reply::WrongStat),
        }),
    }
}

/// The model, and all conversations.
pub(crate) struct Oracle {
    pub(crate) model: Model,
    pub(crate) conversations: BTreeMap<u32, ClientConversation>,
    /// Which peer each client of the engine is.
    pub(crate) peers: HashMap<ClientId, u32>,
    /// What reports may show.
    pub(crate) moments: Moments,
    /// When the engine was last asked to end the waits that have run out.
    pub(crate) expired: Option<Time>,
    /// The clients that were disconnected in this turn because they held a lock for too long.
    expired_clients: Vec<ClientId>,
    /// The locks that were held for too long so far.
    pub(crate) taken_away: Vec<TakenAway>,
    /// The clients that `FREE` disconnected in this turn.
    pub(crate) freed: Vec<Freed>,
    /// There was such a `FREE`.
    pub(crate) has_freed: bool,
    /// The rules have changed in this turn, perhaps at its end.
    pub(crate) has_new_rules: bool,
    /// What changes of rules in this turn may have done for keys.
    pub(crate) work_of_rules: KeyWork,
}

/// A client that has left, by the calls of the engine.
pub(crate) struct GonePeer {
    pub(crate) peer: u32,
    /// How much it has not read.
    pub(crate) unread_bytes: usize,
    /// Its next line was one of HTTP.
    pub(crate) speaks_http: bool,
}

/// The clients that one `FREE` disconnected, and the holders of each key before it.
pub(crate) struct Freed {
    pub(crate) clients: HashSet<ClientId>,
    pub(crate) holders: BTreeMap<Vec<u8>, HashSet<ClientId>>,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Oracle {
            model: Model::new(&[], &[]),
            conversations: BTreeMap::new(),
            peers: HashMap::new(),
            moments: Moments::default(),
            expired: None,
            expired_clients: Vec::new(),
            taken_away: Vec::new(),
            freed: Vec::new(),
            has_freed: false,
            has_new_rules: false,
            work_of_rules: KeyWork::default(),
        }
    }

    /// The peers that hold a lock, by the model.
    pub(crate) fn holders(&self) -> Vec<u32> {
        let held = self.model.locks.iter().filter(|lock| lock.state == State::Held);
        held.filter_map(|lock| self.peers.get(&lock.client).copied()).collect()
    }

    /// A turn is followed now. `others_wait` for reports, besides clients.
    pub(crate) fn begin_turn(&mut self, others_wait: bool) {
        if !others_wait && !self.conversations.values().any(ClientConversation::awaits_report) {
            self.moments.clear();
        }
        self.work_of_rules = KeyWork::default();
        self.moments.figures.note_turn();
        self.moments.note(&self.model);
    }

    /// Follows what the engine was asked in a turn.
    pub(crate) fn replay_calls(
        &mut self,
        asked: &[EngineCall],
        others_wait: bool,
    ) -> Result<(), Violation> {
        let is_watched =
            others_wait || self.conversations.values().any(ClientConversation::awaits_report);
        for conversation in self.conversations.values_mut() {
            conversation.work = TurnWork::default();
        }
        self.has_new_rules = asked.iter().any(|one| matches!(one, EngineCall::Rules { .. }));
        self.has_freed = asked.iter().any(|one| matches!(one, EngineCall::DisconnectAll { .. }));
        for one in asked {
            self.replay_call(one)?;
            let (ends, answers) = (self.model.take_ends(), self.model.take_answers());
            self.moments.follow(one, &answers, &ends);
            for (client, reply) in answers {
                let has_waited = one.client() != Some(client);
                if let Some(conversation) = self.conversation(client) {
                    conversation.expect_answer(reply, has_waited);
                }
            }
            for lock in self.model.take_taken_away() {
                if let Some(conversation) = self.conversation(lock.0) {
                    (conversation.has_gone, conversation.is_freed) = (true, true);
                }
                self.expired_clients.push(lock.0);
                self.taken_away.push(lock);
            }
            if is_watched {
                self.moments.note(&self.model);
            }
        }
        Ok(())
    }

    /// A turn is over, and the connection of `client` keeps these bytes for the next one.
    pub(crate) fn check_all_handled(
        &mut self,
        client: ClientId,
        kept: &[u8],
    ) -> Result<(), Violation> {
        match self.conversation(client) {
            Some(conversation) if !conversation.has_gone => {
                conversation.check_all_handled(kept).map_err(|why| format!("{client:?}: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// How many clients `FREE` disconnected in the turn in which they were accepted.
    pub(crate) fn freed_new_clients(&self) -> usize {
        let clients = self.freed.iter().flat_map(|freed| &freed.clients);
        clients.filter(|client| !self.peers.contains_key(client)).count()
    }

    /// How many clients each `FREE` of this turn disconnected.
    pub(crate) fn freed_counts(&self) -> Vec<usize> {
        self.freed.iter().map(|freed| freed.clients.len()).collect()
    }

    /// The peers that `FREE` or `--max-hold` disconnected in this turn.
    pub(crate) fn freed_peers(&mut self) -> Vec<u32> {
        let expired = std::mem::take(&mut self.expired_clients);
        let clients = self.freed.iter().flat_map(|freed| &freed.clients).chain(&expired);
        clients.filter_map(|client| self.peers.get(client).copied()).collect()
    }

    /// Invariant: `FREE` disconnects exactly the clients that it names: the holders of a key, one
    /// connection, or all of a host. Nothing else does.
    pub(crate) fn check_freed(&mut self, orders: Vec<FreeTarget>) -> Result<(), Violation> {
        let mut freed = std::mem::take(&mut self.freed).into_iter().peekable();
        for order in orders {
            let is_exact = |freed: &Freed| match &order {
                FreeTarget::Key(key) => freed.holders.get(key) == Some(&freed.clients),
                FreeTarget::Connection(serial) => {
                    freed.clients.iter().map(|client| client.serial).eq([*serial])
                }
                FreeTarget::Host(host) => freed.clients.iter().all(|&it| self.may_be_of(it, host)),
            };
            let was_freed = freed.next_if(is_exact).is_some();
            let is_left = match &order {
                FreeTarget::Host(host) => self.has_client_of(host),
                FreeTarget::Key(key) if !was_freed => {
                    self.model.locks.iter().any(|it| it.state == State::Held && it.key == *key)
                }
                FreeTarget::Connection(serial) if !was_freed => {
                    self.model.locks.iter().any(|it| it.client.serial == *serial)
                }
                _ => false,
            };
            if is_left {
                return Err(format!("{order:?} is not freed"));
            }
        }
        match freed.next() {
            Some(freed) => {
                Err(format!("{:?} are freed, but no operator asked for it", freed.clients))
            }
            None => Ok(()),
        }
    }

    /// The address of a client that was freed in the turn in which it was accepted is unknown.
    fn may_be_of(&self, client: ClientId, host: &str) -> bool {
        !self.peers.contains_key(&client) || self.moments.addresses.host(client.serial) == host
    }

    /// The daemon may not learn the address of a client that has left.
    fn has_client_of(&self, host: &str) -> bool {
        let is_connected = |&peer: &u32| {
            self.conversations.get(&peer).is_some_and(|it| !it.has_gone)
                && kernel(|k| k.is_open(peer) && !k.has_closed(peer))
        };
        let mut clients = self.peers.iter().filter(|(_, peer)| is_connected(peer));
        clients.any(|(client, _)| self.moments.addresses.host(client.serial) == host)
    }

    /// The peers that have left.
    pub(crate) fn disconnected(&self, asked: &[EngineCall]) -> Vec<GonePeer> {
        let gone = asked.iter().filter_map(|one| match one {
            EngineCall::Disconnect { client, .. } => self.peers.get(client),
            _ => None,
        });
        let of_peer = |&peer: &u32| {
            let conversation = self.conversations.get(&peer);
            GonePeer {
                peer,
                unread_bytes: conversation.map_or(0, ClientConversation::unread_bytes),
                speaks_http: conversation.is_some_and(|it| it.has_ended_by_http),
            }
        };
        gone.map(of_peer).collect()
    }

    fn conversation(&mut self, client: ClientId) -> Option<&mut ClientConversation> {
        self.conversations.get_mut(self.peers.get(&client)?)
    }

    fn replay_call(&mut self, asked: &EngineCall) -> Result<(), Violation> {
        match asked {
            EngineCall::Acquire { client, request, now } => {
                self.match_request(*client, &ClientLine::Acquire(request.clone()))?;
                self.model.acquire(*client, &request.borrow(), *now);
            }
            EngineCall::Release { client, now } => {
                self.match_request(*client, &ClientLine::Release)?;
                self.model.release(*client, *now);
            }
            EngineCall::Disconnect { client, now } => {
                if let Some(conversation) = self.conversation(*client) {
                    conversation.note_gone();
                }
                self.model.disconnect(*client, *now);
            }
            EngineCall::DisconnectAll { clients, now } => {
                let mut holders = BTreeMap::<_, HashSet<_>>::new();
                for lock in self.model.locks.iter().filter(|lock| lock.state == State::Held) {
                    holders.entry(lock.key.clone()).or_default().insert(lock.client);
                }
                for client in clients {
                    if let Some(conversation) = self.conversation(*client) {
                        (conversation.has_gone, conversation.is_freed) = (true, true);
                    }
                }
                self.model.disconnect_all(clients, *now);
                self.freed.push(Freed { clients: clients.iter().copied().collect(), holders });
            }
            EngineCall::Expire { now } => {
                self.expired = Some(*now);
                self.model.expire(*now);
            }
            EngineCall::Rules { rules, groups, now, keys } => {
                self.model.set_rules(rules, groups, *now);
                self.work_of_rules.visited += keys.visited;
                self.work_of_rules.matched_bytes += keys.matched_bytes;
            }
        }
        Ok(())
    }

    /// Invariant: Only connected clients' lines reach the engine, never those of HTTP clients or
    /// operators.
    fn match_request(&mut self, client: ClientId, request: &ClientLine) -> Result<(), Violation> {
        let conversation =
            self.conversation(client).ok_or("the engine is called for an unknown client")?;
        if conversation.has_gone {
            return Err(format!("{request:?} of a client that has gone"));
        }
        conversation.match_request(request)
    }
}
