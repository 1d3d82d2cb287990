//! `poolcounter top`: asks a server again and again and shows it on a terminal.

mod terminal;
mod top_screen;

use self::terminal::Terminal;
use self::top_screen::{Choices, ScreenData, Style, TopList, rows_beyond, rows_that_fit, screen};
use super::output::{print, print_error, stdout_is_terminal, wants_colour};
use super::parsed_report::ParsedReport;
use crate::ServerName;
use crate::stats_connection::{NoAnswer, StatsConnection};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType, size};
use crossterm::{cursor, queue};
use rustix::process::{Signal, kill_current_process_group};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Below the options of `top`.
pub(super) const AFTER_HELP: &str = "\
Keys: g groups of the daemon's rules and the keys in them, k keys that exist now, h hot keys of the last minute, o oldest holders, c clients,
s slow holds and waits; < and > choose the column to sort by, r reverses; arrows, Page Up
and Page Down scroll; n next server; q quits. Without a terminal, prints one screen and
ends.

A server lists the 200 keys with the most waiters, of equally many those that are held
for longest; 200 clients, 20 hot keys, 20 oldest holders. `200 of 5002` says that there
are more, which are not sorted either. Columns that have no room are left out, but not
the one to sort by.";

/// How soon a key or a new size is noticed at the latest, and news are shown.
const TICK: Duration = Duration::from_millis(100);

/// Shows servers until the user quits.
pub(super) fn top(servers: &[ServerName], interval: Duration) -> ExitCode {
    let mut chosen = Choices::all_of(TopList::Keys);
    if !stdout_is_terminal() || !io::stdin().is_terminal() {
        return print_once(&servers[0], &chosen);
    }
    let shown =
        Terminal::take().and_then(|terminal| interact(&terminal, servers, interval, &mut chosen));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            print_error(&format!("the terminal: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn print_once(server: &ServerName, chosen: &Choices) -> ExitCode {
    let data = poll_server(server, chosen.list, &mut None);
    let lines = screen(&data, chosen, usize::MAX, usize::MAX);
    // Without the help of the last line.
    let lines: Vec<&str> =
        lines[..lines.len() - 1].iter().map(|(_, line)| line.trim_end()).collect();
    let is_printed = print(&lines.join("\n"));
    if data.trouble.is_none() && is_printed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// An answer to `STATS FULL`, and when it came.
type PreviousFull = Option<(ParsedReport, Instant)>;

/// Asks a server. Its `last` answer gives the rates.
fn poll_server(server: &ServerName, list: TopList, last: &mut PreviousFull) -> ScreenData {
    let mut data = ScreenData::nothing_yet(server.as_str(), list);
    if let Err(e) = fill(&mut data, server, list, last) {
        data.trouble = Some(format!("{server}: {e}"));
    }
    data
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
    match connection.query(list.question()) {
        Ok(text) => data.list = Some(read_list(list, &text)?),
        Err(NoAnswer::Unknown) => data.has_lists = false,
        Err(e) => return Err(e),
    }
    Ok(())
}

fn read_list(list: TopList, text: &str) -> Result<ParsedReport, NoAnswer> {
    let read_json = || serde_json::from_str(text).map_err(|e| NoAnswer::Refused(e.to_string()));
    match list {
        TopList::Groups => Ok(ParsedReport::of_groups(&read_json()?)),
        TopList::Holders => Ok(ParsedReport::of_oldest_holds(&read_json()?)),
        _ => Ok(ParsedReport::read(text)),
    }
}

/// A thread that asks one server on request, so that a silent server delays neither the
/// user's keys nor the next server.
struct ServerPoller {
    lists: Sender<TopList>,
    answers: Receiver<ScreenData>,
}

impl ServerPoller {
    fn start(server: ServerName) -> ServerPoller {
        let (lists, wanted) = channel();
        let (tell, answers) = channel();
        thread::spawn(move || {
            let mut last = None;
            while let Ok(list) = wanted.recv() {
                // What was wanted before it is not wanted any more.
                let list = wanted.try_iter().last().unwrap_or(list);
                if tell.send(poll_server(&server, list, &mut last)).is_err() {
                    return;
                }
            }
        });
        ServerPoller { lists, answers }
    }
}

/// The server that is looked at, and what it has data.
struct TopSession<'a> {
    servers: &'a [ServerName],
    /// Those of the servers that were looked at.
    pollers: Vec<Option<ServerPoller>>,
    server: usize,
    data: ScreenData,
    data_at: Instant,
    interval: Duration,
    /// When to ask again; `None` while an answer is awaited.
    due: Option<Instant>,
}

impl<'a> TopSession<'a> {
    fn at_first_of(servers: &'a [ServerName], list: TopList, interval: Duration) -> Self {
        let pollers = servers.iter().map(|_| None).collect();
        let data = ScreenData::nothing_yet(servers[0].as_str(), list);
        let told_at = Instant::now();
        let mut session =
            TopSession { servers, pollers, server: 0, data, data_at: told_at, interval, due: None };
        session.request(list);
        session
    }

    fn poller(&mut self) -> &ServerPoller {
        let server = &self.servers[self.server];
        self.pollers[self.server].get_or_insert_with(|| ServerPoller::start(server.clone()))
    }

    fn request(&mut self, list: TopList) {
        self.due = None;
        // It fails if the thread has ended, which it does not.
        let _ = self.poller().lists.send(list);
    }

    fn show_list(&mut self, list: TopList) {
        (self.data.list_asked, self.data.list) = (list, None);
        self.request(list);
    }

    fn show_next_server(&mut self) {
        self.server = (self.server + 1) % self.servers.len();
        let list = self.data.list_asked;
        self.data = ScreenData::nothing_yet(self.servers[self.server].as_str(), list);
        self.request(list);
    }

    /// What was data before a trouble stays, and gets older.
    fn take(&mut self, data: ScreenData) {
        if data.trouble.is_some() && self.data.full.is_some() {
            self.data.trouble = data.trouble;
        } else {
            (self.data, self.data_at) = (data, Instant::now());
        }
    }

    /// Asks when it is time. True if there is something new to show.
    fn update(&mut self) -> bool {
        let list = self.data.list_asked;
        // An answer that was asked for before another list was chosen is none.
        let news = self.poller().answers.try_iter().filter(|data| data.list_asked == list).last();
        let mut is_new = news.is_some();
        if let Some(data) = news {
            self.due = Some(Instant::now() + self.interval);
            self.take(data);
        }
        let age_s = self.data_at.elapsed().as_secs();
        is_new |= std::mem::replace(&mut self.data.age_s, age_s) != age_s;
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.request(list);
        }
        is_new
    }
}

/// Until the user quits.
fn interact(
    terminal: &Terminal,
    servers: &[ServerName],
    interval: Duration,
    chosen: &mut Choices,
) -> io::Result<()> {
    let mut session = TopSession::at_first_of(servers, chosen.list, interval);
    loop {
        let mut is_new = session.update() || terminal.is_to_be_drawn();
        if poll(TICK)? {
            is_new = true;
            if let Event::Key(key) = read()? {
                let rows = rows_that_fit(&session.data, size()?.1.into());
                let columns = session.data.table().map_or(0, |table| table.columns.len());
                match react(key, chosen, columns, rows) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Stop => kill_current_process_group(Signal::TSTP)?,
                    Reaction::NextServer => session.show_next_server(),
                    Reaction::Drawn if chosen.list != session.data.list_asked => {
                        session.show_list(chosen.list);
                    }
                    Reaction::Drawn => {}
                }
            }
        }
        if is_new {
            terminal.draw(|| draw(&session.data, chosen))?;
        }
    }
}

enum Reaction {
    Quit,
    Stop,
    NextServer,
    Drawn,
}

/// What a key does. Not Esc: a key that arrives in pieces begins with it.
fn react(key: KeyEvent, chosen: &mut Choices, columns: usize, rows: usize) -> Reaction {
    if key.kind == KeyEventKind::Release {
        return Reaction::Drawn;
    }
    let last = columns.saturating_sub(1);
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return Reaction::Quit;
        }
        KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            return Reaction::Stop;
        }
        KeyCode::Char('q') => return Reaction::Quit,
        KeyCode::Char('n') => return Reaction::NextServer,
        KeyCode::Char('r') => chosen.is_reversed = !chosen.is_reversed,
        KeyCode::Char('<') | KeyCode::Left => {
            chosen.column = Some(chosen.column.map_or(last, |column| column.saturating_sub(1)));
        }
        KeyCode::Char('>') | KeyCode::Right => {
            chosen.column = Some(chosen.column.map_or(0, |column| (column + 1).min(last)));
        }
        KeyCode::Up => chosen.skipped = chosen.skipped.saturating_sub(1),
        KeyCode::Down => chosen.skipped = chosen.skipped.saturating_add(1),
        KeyCode::PageUp => chosen.skipped = chosen.skipped.saturating_sub(rows),
        KeyCode::PageDown => chosen.skipped = chosen.skipped.saturating_add(rows),
        KeyCode::Char(letter) => {
            if let Some(list) = TopList::ALL.into_iter().find(|list| list.key() == letter) {
                *chosen = Choices::all_of(list);
            }
        }
        _ => {}
    }
    Reaction::Drawn
}

fn draw(data: &ScreenData, chosen: &mut Choices) -> io::Result<()> {
    let (width, height) = size()?;
    chosen.skipped = chosen.skipped.min(rows_beyond(data, height.into()));
    let mut out = io::stdout().lock();
    let mut lines = screen(data, chosen, width.into(), height.into());
    let help = lines.pop();
    for (row, line) in (0..).zip(&lines) {
        draw_line(&mut out, row, line)?;
    }
    if lines.len() < height.into() {
        queue!(out, cursor::MoveTo(0, lines.len() as u16), Clear(ClearType::FromCursorDown))?;
    }
    if let Some(help) = &help {
        draw_line(&mut out, height.saturating_sub(1), help)?;
    }
    out.flush()
}

fn draw_line(out: &mut impl Write, row: u16, (look, line): &(Style, String)) -> io::Result<()> {
    // Cleared before: behind a line of full width, that would take its last character.
    queue!(out, cursor::MoveTo(0, row), Clear(ClearType::CurrentLine))?;
    match look {
        Style::Plain => {}
        Style::Reversed => queue!(out, SetAttribute(Attribute::Reverse))?,
        Style::Alarming if wants_colour() => queue!(out, SetForegroundColor(Color::Red))?,
        Style::Bold | Style::Alarming => queue!(out, SetAttribute(Attribute::Bold))?,
    }
    queue!(out, Print(line), SetForegroundColor(Color::Reset), SetAttribute(Attribute::Reset))
}
