//! What `STATS TOP` shows of keys and of clients' hosts: how often each has asked or was asked for,
//! and how long it has held and waited, in the running minute or hour; while that is young, in the
//! last full one.

use super::addresses::ClientAddresses;
use crate::simulation::model::End;
use crate::simulation::os::recording_engine::EngineCall;
use engine::ClientId;
use protocol::{Reply, Span, Subject};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

const MINUTE_NS: u64 = 60_000_000_000;

/// When the daemon starts.
pub(super) const START_NS: u64 = 1_000_000_000;

/// How many rows are shown, and how many in JSON.
const ROWS: usize = 20;
const ROWS_OF_JSON: usize = 10;

/// A request that was decided, or a hold or a wait that has ended.
#[derive(Debug)]
struct RequestEvent {
    minute: u64,
    key: Vec<u8>,
    host: String,
    requests: u64,
    time_ns: u128,
}

/// All of them so far.
#[derive(Debug, Default)]
pub(crate) struct RequestHistory {
    all: Vec<RequestEvent>,
    is_incomplete: bool,
}

/// One of the lists of a report: its rows, each with what it counts and a name, are the
/// first ones of all.
#[derive(Debug)]
struct RankedList {
    span: Span,
    subject: Subject,
    by_time: bool,
    rows_max: usize,
    rows: Vec<(String, String)>,
}

impl RequestHistory {
    /// The engine got this call, and gave these answers; these holds and waits have ended. Refused
    /// requests do not count.
    pub(crate) fn follow(
        &mut self,
        asked: &EngineCall,
        answers: &[(ClientId, Reply)],
        ends: &[End],
        addresses: &ClientAddresses,
    ) {
        use Reply::{BadSyntax, LockHeld, WaitForResponse};
        let now = asked.now();
        let minute = minute_of(now.as_ns());
        for end in ends {
            let (key, host) = (end.key.clone(), addresses.host(end.client.serial));
            self.all.push(RequestEvent { minute, key, host, requests: 0, time_ns: end.took_ns });
        }
        let EngineCall::Acquire { client, request, .. } = asked else { return };
        let is_refused = |(one, reply): &(ClientId, Reply)| {
            one == client && matches!(reply, BadSyntax | LockHeld | WaitForResponse)
        };
        if !answers.iter().any(is_refused) {
            let (key, host) = (request.key.clone(), addresses.host(client.serial));
            self.all.push(RequestEvent { minute, key, host, requests: 1, time_ns: 0 });
        }
    }

    /// A hot restart has lost a client, whose host is not known any more.
    pub(crate) fn note_lost(&mut self) {
        self.is_incomplete = true;
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether `text` shows them as they were at one of `moments`, each a time and the number of
    /// events until then. Sampled lists are not judged.
    pub(crate) fn match_text(
        &self,
        text: &str,
        (span, subject): (Span, Subject),
        is_private: bool,
        moments: impl Iterator<Item = (u64, usize)>,
    ) -> bool {
        if !text.contains("\nsampled_one_in: 1\n") {
            return true;
        }
        let lists = [false, true].map(|by_time| {
            let rows = rows_of(text, by_time);
            RankedList { span, subject, by_time, rows_max: ROWS, rows }
        });
        self.match_lists(&lists, is_private, moments)
    }

    /// The same for JSON, which shows requests of both spans.
    pub(crate) fn match_json(
        &self,
        top: &Value,
        is_private: bool,
        moments: impl Iterator<Item = (u64, usize)>,
    ) -> bool {
        let mut lists = Vec::new();
        for (subject, name) in [(Subject::Keys, "keys"), (Subject::Clients, "clients")] {
            for (span, word) in [(Span::Minute, "minute"), (Span::Hour, "hour")] {
                let list = &top[name][word];
                if list["sampled_one_in"] != 1 {
                    return true;
                }
                let row = |row: &Value| {
                    let count = row["count"].as_f64().unwrap_or(f64::MAX);
                    let count = count - row["error"].as_f64().unwrap_or(0.0);
                    let name = row["name"].as_str().unwrap_or_default();
                    (format!("{count}"), name.to_owned())
                };
                let rows = list["by_requests"].as_array();
                let rows = rows.into_iter().flatten().map(row).collect();
                lists.push(RankedList {
                    span,
                    subject,
                    by_time: false,
                    rows_max: ROWS_OF_JSON,
                    rows,
                });
            }
        }
        self.match_lists(&lists, is_private, moments)
    }

    fn match_lists(
        &self,
        lists: &[RankedList],
        is_private: bool,
        moments: impl Iterator<Item = (u64, usize)>,
    ) -> bool {
        if self.is_incomplete {
            return true;
        }
        let mut moments: Vec<(u64, usize)> = moments.collect();
        moments.dedup_by_key(|(now_ns, events)| (window_at(Span::Minute, *now_ns), *events));
        // What clients have done counts at the end of a turn.
        [Subject::Keys, Subject::Clients].into_iter().all(|subject| {
            let of_it = || lists.iter().filter(|list| list.subject == subject);
            let was_so = |moment: &(u64, usize)| {
                of_it().all(|list| self.is_ranking(list, is_private, *moment))
            };
            moments.iter().any(was_so)
        })
    }

    /// Whether the rows are the first ones of all, the most frequent first, then by name. The host
    /// of a client that has gone may be unknown, and that may be the first row that is not listed.
    fn is_ranking(
        &self,
        list: &RankedList,
        is_private: bool,
        (now_ns, events): (u64, usize),
    ) -> bool {
        let is_unknown = |name: &str| ["unknown", "hidden"].contains(&name);
        let may_be_unknown =
            list.rows.len() == list.rows_max || list.rows.iter().any(|(_, name)| is_unknown(name));
        if list.subject == Subject::Clients && may_be_unknown {
            return true;
        }
        let window = window_at(list.span, now_ns);
        let mut sums: BTreeMap<&[u8], u128> = BTreeMap::new();
        for event in self.all[..events].iter().filter(|event| window.contains(&event.minute)) {
            let name = match list.subject {
                Subject::Keys => &event.key[..],
                Subject::Clients => event.host.as_bytes(),
            };
            let count = if list.by_time { event.time_ns } else { event.requests.into() };
            if count > 0 {
                *sums.entry(name).or_default() += count;
            }
        }
        let mut rows: Vec<(u128, &[u8])> =
            sums.into_iter().map(|(name, sum)| (sum, name)).collect();
        rows.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        rows.truncate(list.rows_max);
        rows.len() == list.rows.len()
            && rows.iter().zip(&list.rows).all(|((sum, name), (shown, shown_name))| {
                let is_it = *name == shown_name.as_bytes() || is_private && shown_name == "hidden";
                let ms = |ns: u128| (ns / 1_000_000) as f64 / 1e3;
                let sum = if list.by_time { ms(*sum).to_string() } else { sum.to_string() };
                is_it && sum == *shown
            })
    }
}

fn minute_of(now_ns: u64) -> u64 {
    (now_ns - START_NS) / MINUTE_NS
}

/// The minutes that are shown at this time.
fn window_at(span: Span, now_ns: u64) -> Range<u64> {
    let minute = minute_of(now_ns);
    let minute_is_young = (now_ns - START_NS) % MINUTE_NS < 10_000_000_000;
    match (span, minute) {
        (_, 0) => 0..1,
        (Span::Minute, _) if minute_is_young => minute - 1..minute,
        (Span::Minute, _) => minute..minute + 1,
        (Span::Hour, 60..) if minute % 60 < 10 => minute / 60 * 60 - 60..minute / 60 * 60,
        (Span::Hour, _) => minute / 60 * 60..minute + 1,
    }
}

/// A list: counts, less their possible error, and names.
fn rows_of(text: &str, by_time: bool) -> Vec<(String, String)> {
    let begin = if by_time { "\nby_time: " } else { "\nby_requests: " };
    let list = text.split(begin).nth(1).unwrap_or_default();
    let list = list.split("\nby_time: ").next().unwrap_or_default();
    let rows = list.lines().skip(2).map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok());
        let less = number(0).zip(number(1)).map(|(count, error)| (count - error).to_string());
        let first = words.first().copied().unwrap_or_default();
        let name = words.last().copied().unwrap_or_default();
        (less.unwrap_or_else(|| first.to_owned()), name.to_owned())
    });
    rows.collect()
}
