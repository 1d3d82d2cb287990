//! `poolcounter top`: asks a server again and again and shows it on a terminal.

use super::saying::{complain, in_colour, on_a_screen, say};
use super::screen::{Chosen, List, Look, Told, rows_beyond, rows_that_fit, screen};
use super::table::Answer;
use super::terminal::Terminal;
use crate::ServerName;
use crate::question::{NoAnswer, Questions};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{self, Clear, ClearType};
use crossterm::{cursor, queue};
use rustix::process::{Signal, kill_current_process_group};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Below the options of `top`.
pub(super) const AFTER_HELP: &str = "\
Keys: k keys that exist now, h hot keys of the last minute, o oldest holders, c clients,
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
    let mut chosen = Chosen::all_of(List::Keys);
    if !on_a_screen() || !io::stdin().is_terminal() {
        return print_once(&servers[0], &chosen);
    }
    let shown =
        Terminal::take().and_then(|terminal| interact(&terminal, servers, interval, &mut chosen));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(&format!("the terminal: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn print_once(server: &ServerName, chosen: &Chosen) -> ExitCode {
    let told = look(server, chosen.list, &mut None);
    let lines = screen(&told, chosen, usize::MAX, usize::MAX);
    // Without the help of the last line.
    let lines: Vec<&str> =
        lines[..lines.len() - 1].iter().map(|(_, line)| line.trim_end()).collect();
    let is_printed = say(&lines.join("\n"));
    if told.trouble.is_none() && is_printed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What `STATS FULL` said, and when.
type Last = Option<(Answer, Instant)>;

/// Asks a server. What it said `last` gives the rates.
fn look(server: &ServerName, list: List, last: &mut Last) -> Told {
    let mut told = Told::nothing_yet(server.as_str(), list);
    if let Err(e) = fill(&mut told, server, list, last) {
        told.trouble = Some(format!("{server}: {e}"));
    }
    told
}

fn fill(told: &mut Told, server: &ServerName, list: List, last: &mut Last) -> Result<(), NoAnswer> {
    let mut questions = Questions::connect(server)?;
    let full = Answer::read(&questions.ask("FULL")?);
    let now = Instant::now();
    let before = last.replace((full.clone(), now));
    told.before = before.map(|(full, then)| (full, (now - then).as_secs_f64().max(1e-3)));
    told.full = Some(full);
    match questions.ask(list.question()) {
        Ok(text) => told.list = Some(read_list(list, &text)?),
        Err(NoAnswer::Unknown) => told.has_lists = false,
        Err(e) => return Err(e),
    }
    Ok(())
}

fn read_list(list: List, text: &str) -> Result<Answer, NoAnswer> {
    if list != List::Holders {
        return Ok(Answer::read(text));
    }
    let told = serde_json::from_str(text).map_err(|e| NoAnswer::Refused(e.to_string()))?;
    Ok(Answer::of_oldest_holds(&told))
}

/// A thread that asks one server when it is told to, so that a silent one keeps nobody
/// waiting: neither the user's keys, nor the next server.
struct Asker {
    lists: Sender<List>,
    answers: Receiver<Told>,
}

impl Asker {
    fn start(server: ServerName) -> Asker {
        let (lists, wanted) = channel();
        let (tell, answers) = channel();
        thread::spawn(move || {
            let mut last = None;
            while let Ok(list) = wanted.recv() {
                // What was wanted before it is not wanted any more.
                let list = wanted.try_iter().last().unwrap_or(list);
                if tell.send(look(&server, list, &mut last)).is_err() {
                    return;
                }
            }
        });
        Asker { lists, answers }
    }
}

/// The server that is looked at, and what it has told.
struct Looking<'a> {
    servers: &'a [ServerName],
    /// Those of the servers that were looked at.
    askers: Vec<Option<Asker>>,
    server: usize,
    told: Told,
    told_at: Instant,
    interval: Duration,
    /// When to ask again; `None` while an answer is awaited.
    due: Option<Instant>,
}

impl<'a> Looking<'a> {
    fn at_first_of(servers: &'a [ServerName], list: List, interval: Duration) -> Self {
        let askers = servers.iter().map(|_| None).collect();
        let told = Told::nothing_yet(servers[0].as_str(), list);
        let told_at = Instant::now();
        let mut looking =
            Looking { servers, askers, server: 0, told, told_at, interval, due: None };
        looking.ask(list);
        looking
    }

    fn asker(&mut self) -> &Asker {
        let server = &self.servers[self.server];
        self.askers[self.server].get_or_insert_with(|| Asker::start(server.clone()))
    }

    fn ask(&mut self, list: List) {
        self.due = None;
        // It fails if the thread has ended, which it does not.
        let _ = self.asker().lists.send(list);
    }

    fn look_at_list(&mut self, list: List) {
        (self.told.list_asked, self.told.list) = (list, None);
        self.ask(list);
    }

    fn look_at_next_server(&mut self) {
        self.server = (self.server + 1) % self.servers.len();
        let list = self.told.list_asked;
        self.told = Told::nothing_yet(self.servers[self.server].as_str(), list);
        self.ask(list);
    }

    /// What was told before a trouble stays, and gets older.
    fn take(&mut self, told: Told) {
        if told.trouble.is_some() && self.told.full.is_some() {
            self.told.trouble = told.trouble;
        } else {
            (self.told, self.told_at) = (told, Instant::now());
        }
    }

    /// Asks when it is time. True if there is something new to show.
    fn hear(&mut self) -> bool {
        let list = self.told.list_asked;
        // An answer that was asked for before another list was chosen is none.
        let news = self.asker().answers.try_iter().filter(|told| told.list_asked == list).last();
        let mut is_new = news.is_some();
        if let Some(told) = news {
            self.due = Some(Instant::now() + self.interval);
            self.take(told);
        }
        let age_s = self.told_at.elapsed().as_secs();
        is_new |= std::mem::replace(&mut self.told.age_s, age_s) != age_s;
        if self.due.is_some_and(|due| Instant::now() >= due) {
            self.ask(list);
        }
        is_new
    }
}

/// Until the user quits.
fn interact(
    terminal: &Terminal,
    servers: &[ServerName],
    interval: Duration,
    chosen: &mut Chosen,
) -> io::Result<()> {
    let mut looking = Looking::at_first_of(servers, chosen.list, interval);
    loop {
        let mut is_new = looking.hear() || terminal.is_to_be_drawn();
        if poll(TICK)? {
            is_new = true;
            if let Event::Key(key) = read()? {
                let rows = rows_that_fit(&looking.told, terminal::size()?.1.into());
                let columns = looking.told.table().map_or(0, |table| table.columns.len());
                match react(key, chosen, columns, rows) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Stop => kill_current_process_group(Signal::TSTP)?,
                    Reaction::NextServer => looking.look_at_next_server(),
                    Reaction::Drawn if chosen.list != looking.told.list_asked => {
                        looking.look_at_list(chosen.list);
                    }
                    Reaction::Drawn => {}
                }
            }
        }
        if is_new {
            terminal.draw(|| draw(&looking.told, chosen))?;
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
fn react(key: KeyEvent, chosen: &mut Chosen, columns: usize, rows: usize) -> Reaction {
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
            if let Some(list) = List::ALL.into_iter().find(|list| list.key() == letter) {
                *chosen = Chosen::all_of(list);
            }
        }
        _ => {}
    }
    Reaction::Drawn
}

fn draw(told: &Told, chosen: &mut Chosen) -> io::Result<()> {
    let (width, height) = terminal::size()?;
    chosen.skipped = chosen.skipped.min(rows_beyond(told, height.into()));
    let mut out = io::stdout().lock();
    let mut lines = screen(told, chosen, width.into(), height.into());
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

fn draw_line(out: &mut impl Write, row: u16, (look, line): &(Look, String)) -> io::Result<()> {
    // Cleared before: behind a line of full width, that would take its last character.
    queue!(out, cursor::MoveTo(0, row), Clear(ClearType::CurrentLine))?;
    match look {
        Look::Plain => {}
        Look::Reversed => queue!(out, SetAttribute(Attribute::Reverse))?,
        Look::Alarming if in_colour() => queue!(out, SetForegroundColor(Color::Red))?,
        Look::Bold | Look::Alarming => queue!(out, SetAttribute(Attribute::Bold))?,
    }
    queue!(out, Print(line), SetForegroundColor(Color::Reset), SetAttribute(Attribute::Reset))
}
