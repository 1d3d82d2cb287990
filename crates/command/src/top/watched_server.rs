//! Polls one server in a thread; notices when nothing listens there.

use super::top_lists::TopList;
use super::top_screen::{ScreenData, Trouble};
use crate::parsed_report::ParsedReport;
use crate::reported_rules::by_orders;
use connect::{NoAnswer, ServerName, StatsConnection};
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An answer to `STATS FULL`, and when it came.
type PreviousFull = Option<(ParsedReport, Instant)>;

/// Asks a server. Its `last` answer gives the rates.
pub(super) fn poll_server(
    server: &ServerName,
    list: TopList,
    last: &mut PreviousFull,
) -> ScreenData {
    let mut data = ScreenData::nothing_yet(server.as_str(), list);
    if let Err(e) = fill(&mut data, server, list, last) {
        data.trouble = Some(Trouble { why: e.to_string(), is_closed: nobody_listens(&e) });
    }
    data
}

/// NotFound: the file of its Unix socket is gone.
fn nobody_listens(why: &NoAnswer) -> bool {
    matches!(why, NoAnswer::Io(e)
        if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound))
}

fn fill(
    data: &mut ScreenData,
    server: &ServerName,
    list: TopList,
    last: &mut PreviousFull,
) -> Result<(), NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let full = ParsedReport::read(&connection.query("FULL")?);
    let now = Instant::now();
    let before = last.replace((full.clone(), now));
    data.before = before.map(|(full, then)| (full, (now - then).as_secs_f64().max(1e-3)));
    data.full = Some(full);
    if let Some(question) = list.question() {
        match connection.query(question) {
            Ok(text) => data.list = Some(ParsedReport::read(&text)),
            Err(NoAnswer::Unknown) => data.has_lists = false,
            Err(e) => return Err(e),
        }
    }
    match connection.query("JSON") {
        Ok(text) => fill_from_json(data, list, &text),
        Err(NoAnswer::Unknown) => {
            data.has_lists &= list.question().is_some();
            Ok(())
        }
        Err(e) => Err(e),
    }
}

fn fill_from_json(data: &mut ScreenData, list: TopList, text: &str) -> Result<(), NoAnswer> {
    let report = match serde_json::from_str(text) {
        Err(e) if list.question().is_none() => return Err(NoAnswer::Refused(e.to_string())),
        // The other lists do not need it.
        report => report.unwrap_or_default(),
    };
    data.rules_by_orders = by_orders(&report);
    data.list = list.in_json(&report).or(data.list.take());
    Ok(())
}

/// A server's last data, and its thread.
pub(super) struct WatchedServer {
    lists: Sender<TopList>,
    answers: Receiver<ScreenData>,
    data: ScreenData,
    data_at: Instant,
    interval: Duration,
    /// When to ask again; `None` while an answer is awaited.
    due: Option<Instant>,
}

impl WatchedServer {
    /// Asks at once, and then whenever [`WatchedServer::update`] finds that it is due.
    pub(super) fn start(server: ServerName, list: TopList, interval: Duration) -> WatchedServer {
        let (lists, wanted) = channel();
        let (sender, answers) = channel();
        let data = ScreenData::nothing_yet(server.as_str(), list);
        thread::spawn(move || {
            let mut last = None;
            while let Ok(list) = wanted.recv() {
                // Earlier requests are obsolete.
                let list = wanted.try_iter().last().unwrap_or(list);
                if sender.send(poll_server(&server, list, &mut last)).is_err() {
                    return;
                }
            }
        });
        let data_at = Instant::now();
        let mut server = WatchedServer { lists, answers, data, data_at, interval, due: None };
        server.request();
        server
    }

    pub(super) fn data(&self) -> &ScreenData {
        &self.data
    }

    fn request(&mut self) {
        self.due = None;
        // Fails if the thread has ended, which it does not.
        let _ = self.lists.send(self.data.list_asked);
    }

    /// Takes new data, and asks for this list when it is due or another one was shown. True
    /// if there is something new to show.
    pub(super) fn update(&mut self, list: TopList) -> bool {
        if self.data.list_asked != list {
            (self.data.list_asked, self.data.list) = (list, None);
            self.request();
        }
        // Answers for a list that was chosen before are dropped.
        let news = self.answers.try_iter().filter(|data| data.list_asked == list).last();
        let mut is_new = news.is_some();
        if let Some(data) = news {
            self.due = Some(Instant::now() + self.interval);
            self.take(data);
        }
        let age_s = self.data_at.elapsed().as_secs();
        is_new |= std::mem::replace(&mut self.data.age_s, age_s) != age_s;
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.request();
        }
        is_new
    }

    /// Data from before a trouble stays, and gets older.
    fn take(&mut self, data: ScreenData) {
        if data.trouble.is_some() && self.data.full.is_some() {
            self.data.trouble = data.trouble;
        } else {
            (self.data, self.data_at) = (data, Instant::now());
        }
    }
}
