//! What is served under which path, what a response looks like, and the key of `/key?`.

use crate::reporting::http::head::AnswerPart;
use crate::reporting::report_queue::ReportRequest;
use protocol::{List, Query, key_from_text};
use std::borrow::Cow;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// A report, which takes a turn or more.
    Report(ReportRequest),
    /// An answer that is ready.
    Ready(Response),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Cow<'static, [u8]>,
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// What Prometheus expects of its text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page for people. It contains everything that it needs.
const PAGE: &str = include_str!("page.html");

/// What the page may do: run its own script, use its own style, and ask this server. A
/// test compares the hashes with the page and writes them
/// (`UPDATE=1 cargo test --test monitoring page_policy`).
const PAGE_POLICY: &str = include_str!("page.policy").trim_ascii();

/// What other answers may do: nothing.
const NOTHING: &str =
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

impl Response {
    fn text(status: u16, text: &'static str) -> Self {
        Response { status, content_type: TEXT, body: text.as_bytes().into() }
    }

    /// The answer to a request that is refused.
    pub(super) fn refused(status: u16) -> Self {
        Self::text(status, words_of(status).1)
    }

    /// The answer to a request for a report.
    pub(super) fn of_report(request: &ReportRequest, body: Vec<u8>) -> Self {
        let content_type = match request {
            ReportRequest::Query(Query::Json | Query::History) => "application/json",
            ReportRequest::Query(_) | ReportRequest::Rules { .. } => TEXT,
            ReportRequest::Metrics | ReportRequest::Exporter => EXPOSITION,
        };
        Response { status: 200, content_type, body: body.into() }
    }

    /// The bytes to send.
    pub(super) fn into_bytes(self, part: AnswerPart) -> Vec<u8> {
        let Response { status, content_type, body } = self;
        let policy = if content_type == HTML { PAGE_POLICY } else { NOTHING };
        let has_allow = status == 405 || part == AnswerPart::Status;
        let allow = if has_allow { "Allow: GET, HEAD, OPTIONS\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Content-Security-Policy: {policy}\r\n\r\n",
            words_of(status).0,
            if part == AnswerPart::Status { 0 } else { body.len() },
        )
        .into_bytes();
        if part == AnswerPart::All {
            bytes.extend_from_slice(&body);
        }
        bytes
    }
}

/// What a status is called, and what it tells who is refused.
fn words_of(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => ("Bad Request", "not a request\n"),
        404 => ("Not Found", "no such page\n"),
        405 => ("Method Not Allowed", "only GET, HEAD and OPTIONS are served\n"),
        408 => ("Request Timeout", "the request took too long\n"),
        431 => ("Request Header Fields Too Large", "the head of the request is too long\n"),
        503 => ("Service Unavailable", "draining\n"),
        _ => ("OK", ""),
    }
}

/// What `path` leads to, with the `query` after its question mark.
pub(super) fn find(path: &str, query: &str, is_draining: bool) -> Page {
    let ready = |answer| Page::Ready(answer);
    match path {
        "/" => ready(Response { status: 200, content_type: HTML, body: PAGE.as_bytes().into() }),
        "/metrics" => Page::Report(ReportRequest::Metrics),
        "/prometheus" => Page::Report(ReportRequest::Exporter),
        "/stats.json" => Page::Report(ReportRequest::Query(Query::Json)),
        "/history.json" => Page::Report(ReportRequest::Query(Query::History)),
        "/key" => match key_in(query) {
            Some(key) => Page::Report(ReportRequest::Query(Query::List(List::Key(key)))),
            None => ready(Response::refused(400)),
        },
        "/-/healthy" => ready(Response::text(200, "healthy\n")),
        "/-/ready" if is_draining => ready(Response::refused(503)),
        "/-/ready" => ready(Response::text(200, "ready\n")),
        _ => ready(Response::refused(404)),
    }
}

/// The key that a query names. `%c3` in a URL means what `\xc3` means in the text of a key,
/// which is accepted too.
fn key_in(query: &str) -> Option<Vec<u8>> {
    key_from_text(query.replace('%', "\\x").as_bytes()).filter(|key| !key.is_empty())
}
