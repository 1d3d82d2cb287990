//! HTTP clients: what they send, the answers that they must get, and when their time is over.

use super::moments::{Moments, Question, ReportKind};
use crate::Options;
use crate::reporting::http::head::HEAD_BYTES_MAX;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::sockets::{LocalAddress, PeerEnding};
use crate::simulation::kernel::{KernelEvent, kernel};
use crate::sockets::ids::HTTP_CONNECTIONS_MAX;
use protocol::{List, Query};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Where HTTP is served.
pub(crate) const HTTP: &str = "10.0.0.1:9531";
pub(crate) const HTTP_PORT: u16 = 9531;

/// docs/reference/http.md: how long a client may take to ask, and to read.
const ASK_NS: u64 = 5_000_000_000;
const READ_NS: u64 = 10_000_000_000;
/// And to close.
const CLOSE_NS: u64 = 2_000_000_000;

/// A client isn't evicted until it has had this long to read its answer.
const PROMPT_NS: u64 = 1_000_000_000;

/// How much input is discarded after an answer.
const DISCARDED_BYTES: usize = 16 * 2048;

/// What a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedAnswer {
    Status(u16),
    Metrics,
    Exporter,
    Json,
    /// `STATS KEY k1`.
    Key,
    /// 503 while it drains.
    Ready,
}

/// What clients send, and the answer.
const REQUESTS: &[(&str, ExpectedAnswer)] = &[
    ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", ExpectedAnswer::Metrics),
    ("GET /prometheus HTTP/1.0\r\n\r\n", ExpectedAnswer::Exporter),
    ("GET /stats.json?x=1 HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n", ExpectedAnswer::Json),
    ("GET /key?%6B1 HTTP/1.1\r\nHost: a\r\n\r\n", ExpectedAnswer::Key),
    ("GET /key?k%zz HTTP/1.1\r\nHost: a\r\n\r\n", ExpectedAnswer::Status(400)),
    ("GET / HTTP/1.1\nHost: a\n\n", ExpectedAnswer::Status(200)),
    ("HEAD /stats.json HTTP/1.1\r\nHost: a\r\n\r\n", ExpectedAnswer::Json),
    ("GET /-/healthy HTTP/1.1\r\n\r\n", ExpectedAnswer::Status(200)),
    ("GET /-/ready HTTP/1.1\r\n\r\n", ExpectedAnswer::Ready),
    ("GET /-/ready? HTTP/1.0\r\n\r\n", ExpectedAnswer::Ready),
    ("HEAD /-/ready HTTP/1.1\nHost: a\n\n", ExpectedAnswer::Ready),
    ("OPTIONS /-/ready HTTP/1.0\r\n\r\n", ExpectedAnswer::Ready),
    ("GET http://a:9531/-/healthy?x HTTP/1.1\r\nHost: a:9531\r\n\r\n", ExpectedAnswer::Status(200)),
    ("GET HTTP://a HTTP/1.1\r\nHost: a\r\n\r\n", ExpectedAnswer::Status(200)),
    ("GET /../etc/passwd HTTP/1.1\r\n\r\n", ExpectedAnswer::Status(404)),
    ("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", ExpectedAnswer::Status(405)),
    ("GET / HTTP/1.1\r\nbad header\r\n\r\n", ExpectedAnswer::Status(400)),
    ("ACQ4ME k1 1 1 1\n", ExpectedAnswer::Status(400)),
    ("\u{16}\u{3}\u{1}", ExpectedAnswer::Status(400)),
];

/// The beginning of a request that never ends.
const ENDLESS: &str = "GET / HTTP/1.1\r\nA: xxxxxxxx";

/// What clients send.
pub(crate) fn request_texts() -> impl Iterator<Item = &'static str> {
    REQUESTS.iter().map(|(text, _)| *text).chain([ENDLESS])
}

/// What has been received of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpRequest {
    /// Nothing, or the beginning of a request.
    Partial,
    Whole(ExpectedAnswer),
    /// Several requests in a row, which may be read as another one.
    Ambiguous,
}

fn request_of(received: &[u8]) -> HttpRequest {
    let is_whole = |text: &str| received.starts_with(text.as_bytes());
    let is_part = |text: &str| text.as_bytes().starts_with(received);
    if let Some((_, due)) = REQUESTS.iter().find(|(text, _)| is_whole(text)) {
        return HttpRequest::Whole(*due);
    }
    let begun = REQUESTS.iter().find(|(text, _)| is_part(text));
    match begun {
        // The error may be detected before the request is whole.
        Some((_, ExpectedAnswer::Status(400 | 405))) if !received.is_empty() => {
            HttpRequest::Ambiguous
        }
        Some(_) => HttpRequest::Partial,
        None if is_part(ENDLESS) => HttpRequest::Partial,
        None if is_endless(received) && received.len() >= HEAD_BYTES_MAX => {
            HttpRequest::Whole(ExpectedAnswer::Status(431))
        }
        None if is_endless(received) => HttpRequest::Partial,
        None => HttpRequest::Ambiguous,
    }
}

fn is_endless(received: &[u8]) -> bool {
    let (start, rest) = received.split_at(received.len().min(ENDLESS.len()));
    start == ENDLESS.as_bytes() && rest.iter().all(|&b| b == b'x')
}

/// What the client has a limited time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpStage {
    Asking,
    Reading,
    Closing,
}

/// One client of HTTP.
#[derive(Debug)]
struct HttpSession {
    ip: IpAddr,
    received: Vec<u8>,
    answer: Vec<u8>,
    /// What the answer must match, and from which moment on.
    question: Option<Question>,
    /// It was answered, and has read all of it.
    is_served: bool,
    /// It was closed for a reason, before an answer was due.
    is_excused: bool,
    /// The statuses that `/-/ready` may have, once the daemon has the request.
    ready: Option<&'static [u16]>,
    stage: HttpStage,
    /// When the stage must be over; `None` before it is accepted.
    until_ns: Option<u64>,
    /// It may be closed from then on, if the report was made at once.
    from_ns: Option<u64>,
    /// Received after its request.
    discarded: usize,
    /// How many turns it has waited for its answer.
    waited: usize,
    /// Its request came in the last turn, perhaps after the reports of that turn.
    has_just_asked: bool,
    /// The end of its request came when its time was over: perhaps behind the answer to that.
    may_be_late: bool,
}

/// All clients of HTTP, by peer.
#[derive(Default)]
pub(crate) struct HttpClients {
    all: BTreeMap<u32, HttpSession>,
    /// Whose connections are open in the daemon.
    open: BTreeSet<u32>,
    /// After the last turn, reports were still to be made.
    was_busy: bool,
    /// And it drained.
    was_draining: bool,
}

impl HttpClients {
    pub(crate) fn connect(&mut self, peer: u32, ip: IpAddr) {
        let session = HttpSession {
            ip,
            received: Vec::new(),
            answer: Vec::new(),
            question: None,
            is_served: false,
            is_excused: false,
            ready: None,
            stage: HttpStage::Asking,
            until_ns: None,
            from_ns: None,
            discarded: 0,
            waited: 0,
            has_just_asked: false,
            may_be_late: false,
        };
        self.all.insert(peer, session);
    }

    /// Whether any client waits for a report.
    pub(crate) fn any_awaits_report(&self) -> bool {
        let waits = |b: &HttpSession| b.question.is_some() && !b.is_served && !b.is_excused;
        self.all.values().any(waits)
    }

    /// Whether the daemon has sent any open client its whole answer.
    pub(crate) fn any_is_answered(&self) -> bool {
        self.open.iter().any(|peer| self.all[peer].stage == HttpStage::Closing)
    }

    /// The daemon has received these bytes.
    pub(crate) fn receive(&mut self, peer: u32, bytes: &[u8], moments: &mut Moments) {
        let Some(session) = self.all.get_mut(&peer) else { return };
        if session.question.is_some() || session.stage != HttpStage::Asking {
            session.discarded += bytes.len();
            return;
        }
        session.received.extend_from_slice(bytes);
        let now_ns = kernel(|k| k.now_ns);
        session.may_be_late |= session.until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        let report = match request_of(&session.received) {
            HttpRequest::Whole(ExpectedAnswer::Metrics) => ReportKind::Metrics,
            HttpRequest::Whole(ExpectedAnswer::Exporter) => ReportKind::Exporter,
            HttpRequest::Whole(ExpectedAnswer::Key) => {
                ReportKind::Query(Query::List(List::Key(b"k1".to_vec())))
            }
            HttpRequest::Whole(_) => ReportKind::Query(Query::Json),
            HttpRequest::Partial | HttpRequest::Ambiguous => return,
        };
        session.question = Some(moments.question(report));
    }

    /// A client has read these bytes: the beginning of an answer, or all of it.
    pub(crate) fn read(
        &mut self,
        peer: u32,
        bytes: &[u8],
        moments: &Moments,
    ) -> Result<(), Violation> {
        let Some(session) = self.all.get_mut(&peer).filter(|_| !bytes.is_empty()) else {
            return Ok(());
        };
        if session.is_served {
            return Err(format!("HTTP client {peer} reads more than one answer"));
        }
        session.answer.extend_from_slice(bytes);
        let wrong = |why: String| format!("HTTP client {peer}: {why}");
        session.is_served = session.check_answer(moments).map_err(wrong)?;
        Ok(())
    }

    /// Invariant: A new client that `--http-allow` or `--allow` admits is served; if 16 HTTP
    /// clients already are, another one is closed.
    ///
    /// To be called before [`HttpClients::check_turn`].
    pub(crate) fn check_new_clients(
        &self,
        seen: &[KernelEvent],
        options: &Options,
    ) -> Result<(), Violation> {
        let http = LocalAddress::Tcp(HTTP.parse().expect("an address"));
        let open = kernel(|k| k.connections_to(HTTP));
        let accepted = kernel(|k| k.calls.accepted);
        // Clients that wait for a report are not evicted, and the next new client may evict this
        // one.
        let is_full = self.open.len() + accepted > HTTP_CONNECTIONS_MAX;
        if kernel(|k| !k.calls.failures.is_empty()) || is_full && (self.was_busy || accepted > 1) {
            return Ok(());
        }
        let allow =
            if options.http_allow.is_empty() { &options.allow } else { &options.http_allow };
        for one in seen {
            let KernelEvent::Accepted { peer, to, ip, is_over: false } = one else { continue };
            let is_admitted = allow.is_empty()
                || ip.is_some_and(|ip| allow.iter().any(|network| network.contains(&ip)));
            let has_sent_much = |b: &HttpSession| b.received.len() + b.discarded >= DISCARDED_BYTES;
            let has_left =
                kernel(|k| k.peers[peer].has_ended) || self.all.get(peer).is_none_or(has_sent_much);
            if *to == http && is_admitted && !has_left && !open.contains(peer) {
                return Err(format!("HTTP client {peer} of {ip:?} is refused"));
            }
        }
        Ok(())
    }

    /// Invariant: After each turn at most 16 HTTP clients are served, all of them in
    /// `--http-allow`. From the first turn after an order to drain, `/-/ready` has the status 503.
    pub(crate) fn check_turn(
        &mut self,
        is_busy: bool,
        is_draining: bool,
        report_turns_max: usize,
        may_be_served: impl Fn(u32) -> bool,
    ) -> Result<(), Violation> {
        let (open, now_ns) = kernel(|k| (k.connections_to(HTTP), k.now_ns));
        if open.len() > HTTP_CONNECTIONS_MAX {
            return Err(format!("{} HTTP connections are open", open.len()));
        }
        let may_wait = std::mem::replace(&mut self.was_busy, is_busy) || is_busy;
        let was_full = self.open.len() + kernel(|k| k.calls.accepted) > HTTP_CONNECTIONS_MAX;
        let is_disturbed = kernel(|k| !k.calls.failures.is_empty() || k.calls.arrives);
        // Orders come last in a turn. An order to drain accepts once more, when answers have been
        // given.
        let begins_to_drain = is_draining && !self.was_draining;
        for (peer, session) in self.all.iter_mut().filter(|(_, b)| b.question.is_some()) {
            let may_be_both = begins_to_drain && !self.open.contains(peer);
            session.ready.get_or_insert(match (self.was_draining, may_be_both) {
                (true, _) => &[503],
                (false, true) => &[200, 503],
                (false, false) => &[200],
            });
        }
        self.was_draining = is_draining;
        let left: Vec<u32> = self.open.difference(&open).copied().collect();
        let may_choose = was_full && !is_disturbed && kernel(|k| k.calls.accepted == 1);
        if let ([replaced], true) = (&left[..], may_choose) {
            self.check_replaced(*replaced, now_ns)?;
        }
        for peer in left {
            let session = self.all.get_mut(&peer).expect("it has connected");
            let is_prompt = session.is_prompt(now_ns) && !begins_to_drain;
            let may_lose = is_disturbed || was_full && !is_prompt;
            // New clients come after the answers of a turn: one that has all of its answer to read
            // may yield.
            let is_whole = kernel(|k| k.peers[&peer].ending) == Some(PeerEnding::End);
            if was_full && is_prompt && is_whole {
                continue;
            }
            session
                .check_early_close(may_lose, kernel(|k| k.peers[&peer].has_ended), now_ns)
                .map_err(|why| format!("HTTP client {peer} is closed: {why}"))?;
        }
        for &peer in &open {
            let session = self.all.get_mut(&peer).expect("it has connected");
            if session.until_ns.is_none() && !may_be_served(peer) {
                return Err(format!("HTTP client {peer} is served, but is not admitted"));
            }
            let is_shut = kernel(|k| k.is_shut(peer));
            session
                .check_deadline(may_wait, is_shut, now_ns)
                .map_err(|why| format!("HTTP client {peer} {why}"))?;
            let is_answered =
                !session.answer.is_empty() || kernel(|k| !k.unread_by(peer).is_empty());
            let waits = session.stage == HttpStage::Reading && !is_answered;
            session.waited = if waits { session.waited + 1 } else { 0 };
            if session.waited > report_turns_max {
                return Err(format!("HTTP client {peer} waits for {} turns", session.waited));
            }
        }
        self.open = open;
        Ok(())
    }

    /// Invariant: A new HTTP client takes the place of one that has its whole answer; else of one
    /// of the address with the most, the one whose time is over first.
    ///
    /// To be called with the only one that has left, when one client was accepted.
    fn check_replaced(&self, replaced: u32, now_ns: u64) -> Result<(), Violation> {
        let session = &self.all[&replaced];
        // Others may have left by themselves, or got their answer in this turn.
        if !session.is_slow_to_ask(now_ns) || kernel(|k| k.peers[&replaced].has_ended) {
            return Ok(());
        }
        let open = || self.open.iter().map(|peer| &self.all[peer]);
        let connections = |ip| open().filter(|other| other.ip == ip).count();
        let rank = |it: &HttpSession| {
            let is_answered = it.stage == HttpStage::Closing;
            (is_answered, connections(it.ip), Reverse(it.until_ns))
        };
        let may_yield =
            |it: &HttpSession| it.stage == HttpStage::Closing || it.is_slow_to_ask(now_ns);
        match open().filter(|it| may_yield(it)).find(|it| rank(it) > rank(session)) {
            None => Ok(()),
            Some(first) => Err(format!(
                "HTTP client {replaced} is replaced, {} of {}, and not one of {}, {}",
                session.describe(),
                session.ip,
                first.ip,
                first.describe(),
            )),
        }
    }

    /// A hot restart has closed all connections.
    pub(crate) fn note_restart(&mut self) {
        self.open.clear();
        for (peer, session) in &mut self.all {
            session.is_excused |= kernel(|k| k.peers[peer].socket.is_none());
        }
    }

    /// Invariant: The loop does not sleep past the deadline of an HTTP client, nor with unread
    /// input of one.
    pub(crate) fn check_sleep(&self, until_ns: Option<u64>) -> Result<(), Violation> {
        for peer in &self.open {
            let session = &self.all[peer];
            let is_asking = session.stage == HttpStage::Asking
                && request_of(&session.received) == HttpRequest::Partial;
            if is_asking && kernel(|k| k.visible(*peer).0) > 0 {
                return Err(format!("it sleeps, but HTTP client {peer} has unread bytes"));
            }
            let is_clear = request_of(&session.received) != HttpRequest::Ambiguous;
            let over_ns = session.until_ns.filter(|_| is_clear);
            if over_ns.is_some_and(|over_ns| until_ns.is_none_or(|until_ns| until_ns > over_ns)) {
                return Err(format!(
                    "it sleeps past the deadline of HTTP client {peer}: {}",
                    session.describe()
                ));
            }
        }
        Ok(())
    }

    /// Invariant: Each whole HTTP request has one whole answer at rest, or the connection was lost
    /// for a reason: the end of the client, its time, too many clients, a hot restart, a failed
    /// call.
    pub(crate) fn check_quiescence(
        &self,
        may_have_lost: impl Fn(u32) -> bool,
    ) -> Result<(), Violation> {
        for (&peer, session) in &self.all {
            let is_owed = session.question.is_some() && !session.is_excused && !session.is_served;
            if is_owed && !may_have_lost(peer) {
                let answer = String::from_utf8_lossy(&session.answer);
                return Err(format!("HTTP client {peer} never gets its whole answer: {answer:?}"));
            }
        }
        Ok(())
    }
}

impl HttpSession {
    /// Invariant: An answer has the status of docs/reference/http.md and a length, even to HEAD; JSON
    /// has the content type of JSON.
    ///
    /// Returns whether that was the whole answer.
    fn check_answer(&self, moments: &Moments) -> Result<bool, Violation> {
        let answer = String::from_utf8_lossy(&self.answer);
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            return if "HTTP/1.1 ".starts_with(&answer[..answer.len().min(9)]) {
                Ok(false)
            } else {
                Err(format!("it reads {answer:?}"))
            };
        };
        let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or("no status")?;
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len: usize = len.and_then(|len| len.parse().ok()).ok_or("no length")?;
        if status == 408 && self.may_be_late {
            let has_body =
                ![&b"HEAD "[..], b"OPTIONS "].iter().any(|it| self.received.starts_with(it));
            if !has_body && !body.is_empty() {
                return Err(format!("an answer with a body: {answer:?}"));
            }
            return Ok(body.ends_with('\n') || !has_body);
        }
        if (len == 0) != self.received.starts_with(b"OPTIONS ") {
            return Err(format!("an answer with length {len}: {answer:?}"));
        }
        let is_json = request_of(&self.received) == HttpRequest::Whole(ExpectedAnswer::Json);
        if is_json && !head.contains("\r\nContent-Type: application/json\r\n") {
            return Err(format!("JSON with another content type: {head:?}"));
        }
        let len = if self.received.starts_with(b"HEAD ") { 0 } else { len };
        if body.len() < len {
            return Ok(false);
        }
        if body.len() > len {
            return Err(format!("more than one answer: {answer:?}"));
        }
        let due = request_of(&self.received);
        let should: &[u16] = match due {
            HttpRequest::Whole(ExpectedAnswer::Status(status)) => &[status],
            HttpRequest::Whole(ExpectedAnswer::Ready) => self.ready.unwrap_or(&[200]),
            HttpRequest::Whole(_) => &[200],
            HttpRequest::Partial => &[408],
            HttpRequest::Ambiguous => &[200, 400, 404, 405, 408, 431],
        };
        if !should.contains(&status) {
            return Err(format!("{status} instead of {should:?} for {due:?}"));
        }
        let is_report = matches!(
            due,
            HttpRequest::Whole(
                ExpectedAnswer::Metrics
                    | ExpectedAnswer::Exporter
                    | ExpectedAnswer::Json
                    | ExpectedAnswer::Key
            )
        );
        if let Some(question) = self.question.as_ref().filter(|_| is_report && len > 0) {
            moments.judge(question, body.trim_end())?;
        }
        Ok(true)
    }

    fn describe(&self) -> String {
        let HttpSession { stage, until_ns, received, discarded, .. } = self;
        let start = received[..received.len().min(60)].escape_ascii();
        format!("{stage:?} until {until_ns:?}, asked {start}, then {discarded} bytes")
    }

    /// A part of its request has not come, and it still has time.
    fn is_slow_to_ask(&self, now_ns: u64) -> bool {
        self.stage == HttpStage::Asking
            && request_of(&self.received) == HttpRequest::Partial
            && self.until_ns.is_some_and(|until_ns| now_ns < until_ns)
    }

    /// Invariant: An HTTP client that has asked less than a second ago keeps its connection, even
    /// if a new client needs a place.
    fn is_prompt(&self, now_ns: u64) -> bool {
        let is_early = |from_ns: u64| now_ns + READ_NS <= from_ns + PROMPT_NS;
        self.stage == HttpStage::Reading && self.from_ns.is_some_and(is_early)
    }

    /// It was open before a turn, and is closed.
    ///
    /// Invariant: No HTTP client is closed before its time is over, unless it has ended itself, its
    /// place is needed, or a call fails.
    fn check_early_close(
        &mut self,
        may_lose: bool,
        has_ended: bool,
        now_ns: u64,
    ) -> Result<(), Violation> {
        let is_over = self.from_ns.is_none_or(|from_ns| now_ns >= from_ns);
        let is_partly =
            request_of(&self.received) == HttpRequest::Partial && !self.received.is_empty();
        if is_partly && self.stage == HttpStage::Asking && !may_lose && !has_ended {
            return Err(format!("without an answer, {}", self.describe()));
        }
        self.is_excused |= may_lose || is_over;
        let may_be = self.is_excused
            || has_ended
            || self.discarded >= DISCARDED_BYTES
            || request_of(&self.received) == HttpRequest::Ambiguous;
        if may_be { Ok(()) } else { Err(format!("too early, {}", self.describe())) }
    }

    /// It is open after a turn.
    ///
    /// Invariant: An HTTP client is served for at most 5 seconds to ask, 10 to read and 2 to close.
    fn check_deadline(
        &mut self,
        may_wait: bool,
        is_shut: bool,
        now_ns: u64,
    ) -> Result<(), Violation> {
        let until_ns = *self.until_ns.get_or_insert(now_ns + ASK_NS);
        self.from_ns.get_or_insert(now_ns + ASK_NS);
        let is_asked = matches!(request_of(&self.received), HttpRequest::Whole(_));
        let may_wait = std::mem::take(&mut self.has_just_asked) || may_wait;
        let (stage, for_ns) = match self.stage {
            HttpStage::Asking | HttpStage::Reading if is_shut => (HttpStage::Closing, CLOSE_NS),
            HttpStage::Asking if is_asked => (HttpStage::Reading, READ_NS),
            // It may still wait for the report.
            HttpStage::Reading if may_wait => (HttpStage::Reading, READ_NS),
            _ if now_ns < until_ns => return Ok(()),
            // It gets an answer with the status 408.
            HttpStage::Asking if !self.received.is_empty() => (HttpStage::Reading, READ_NS),
            _ => return Err(format!("stays, {}", self.describe())),
        };
        if stage != self.stage {
            self.from_ns = Some(now_ns + for_ns);
            self.has_just_asked = stage == HttpStage::Reading;
        }
        (self.stage, self.until_ns) = (stage, Some(now_ns + for_ns));
        Ok(())
    }
}
