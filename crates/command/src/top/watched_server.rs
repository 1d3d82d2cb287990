//! Polls one server in a thread; notices when nothing listens there.

use super::figures::{Figures, PastFigures};
use super::server_data::{Asked, KeyAnswer, ScreenData, Trouble};
use super::top_lists::TopList;
use crate::ask::{
    Alike, Answer, CUT, Everything, ask_about_key, everything, failure_status, key_from_user,
    keys_that_begin,
};
use crate::reported_rules::by_orders;
use connect::failed_call::named;
use connect::{NoAnswer, ServerName, StatsConnection};
use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What is known of a server from earlier answers.
#[derive(Debug)]
pub(super) struct Known {
    began: Instant,
    past: PastFigures,
    /// A key that a list has cut, and the whole key.
    whole: Option<(String, String)>,
}

impl Known {
    pub(super) fn nothing() -> Known {
        Known { began: Instant::now(), past: PastFigures::default(), whole: None }
    }
}

/// Asks a server.
pub(super) fn poll_server(server: &ServerName, asked: &Asked, known: &mut Known) -> ScreenData {
    let mut data = ScreenData::nothing_yet(server.as_str(), asked.clone());
    data.trouble = fill(&mut data, server, known).err().map(|e| trouble(&e));
    data
}

fn trouble(why: &NoAnswer) -> Trouble {
    let is_closed = matches!(why, NoAnswer::Io(e) if e.kind() == ErrorKind::ConnectionRefused);
    Trouble { why: why.to_string(), is_closed, status: failure_status(why) }
}

fn fill(data: &mut ScreenData, server: &ServerName, known: &mut Known) -> Result<(), NoAnswer> {
    let mut connection = StatsConnection::connect(server)?;
    let Everything { answer: Answer { report, .. }, full } = everything(&mut connection)?;
    let figures = Figures::of(&report);
    [data.before, data.minute] = known.past.add(&figures, known.began.elapsed());
    data.figures = Some(figures);
    data.full = full;
    if data.full.is_some() {
        return Ok(());
    }
    data.rules_by_orders = by_orders(&report.rules);
    data.list = Some(data.asked.list.ask(&mut connection, &report)?);
    if let Some(key) = &data.asked.key {
        data.key = Some(match ask_key(&mut connection, key, known) {
            // Such as a key that is too long for a line as text.
            Err(why @ NoAnswer::Refused(_)) => KeyAnswer::Refused(why.to_string()),
            answer => answer?,
        });
    }
    Ok(())
}

fn ask_key(
    connection: &mut StatsConnection,
    key: &str,
    known: &mut Known,
) -> Result<KeyAnswer, NoAnswer> {
    let Some(beginning) = key.strip_suffix(CUT) else {
        let answer = ask_about_key(connection, &key_from_user(key.as_bytes()))?;
        return Ok(KeyAnswer::Key(answer.report));
    };
    let alike = match known.whole.take().filter(|(cut, _)| cut == key) {
        Some((_, whole)) => Alike::One(whole),
        None => keys_that_begin(connection, beginning.as_bytes())?,
    };
    match alike {
        Alike::None => Ok(KeyAnswer::Gone),
        Alike::One(whole) => {
            let answer = ask_about_key(connection, &key_from_user(whole.as_bytes()))?;
            known.whole = Some((key.to_owned(), whole));
            Ok(KeyAnswer::Key(answer.report))
        }
        // Where only others are listed, it may be among the rest.
        Alike::Several { keys, left_out } => {
            Ok(KeyAnswer::Several(left_out.saturating_add(keys.len() as u64)))
        }
    }
}

/// A server's last data, and its thread.
pub(super) struct WatchedServer {
    asking: Sender<Asked>,
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
        let (asking, wanted) = channel();
        let (sender, answers) = channel();
        let mut data = ScreenData::nothing_yet(server.as_str(), Asked { list, key: None });
        let thread = thread::Builder::new().spawn(move || {
            let mut known = Known::nothing();
            while let Ok(asked) = wanted.recv() {
                // Earlier requests are obsolete.
                let asked = wanted.try_iter().last().unwrap_or(asked);
                if sender.send(poll_server(&server, &asked, &mut known)).is_err() {
                    return;
                }
            }
        });
        data.trouble = thread.err().map(|e| trouble(&named("clone3, clone")(e).into()));
        let data_at = Instant::now();
        let mut server = WatchedServer { asking, answers, data, data_at, interval, due: None };
        server.request();
        server
    }

    pub(super) fn data(&self) -> &ScreenData {
        &self.data
    }

    fn request(&mut self) {
        self.due = None;
        // Fails if the thread has ended, which it does not.
        let _ = self.asking.send(self.data.asked.clone());
    }

    /// Takes new data, and asks for this when it is due or something else was asked for before.
    /// True if there is something new to show.
    pub(super) fn update(&mut self, asked: &Asked) -> bool {
        if self.data.asked != *asked {
            if self.data.asked.list != asked.list {
                self.data.list = None;
            }
            (self.data.asked, self.data.key) = (asked.clone(), None);
            self.request();
        }
        // Answers to what was asked for before are dropped.
        let news = self.answers.try_iter().filter(|data| data.asked == *asked).last();
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
        if data.trouble.is_some() && self.data.figures.is_some() {
            self.data.trouble = data.trouble;
        } else {
            (self.data, self.data_at) = (data, Instant::now());
        }
    }
}
