//! `top`: the session, the keys pressed, when to ask the servers again and when to draw.

mod choices;
mod figures;
mod key_screen;
mod server_data;
mod terminal;
mod top_lists;
mod top_screen;
mod watched_server;

use self::choices::{Choices, Reaction};
use self::server_data::{Asked, View};
use self::terminal::{Style, Terminal, screen_size, stdout_is_terminal, wants_colour};
use self::top_lists::TopList;
use self::top_screen::{keep_in_view, rows_that_fit, screen};
use self::watched_server::{Known, WatchedServer, poll_server};
use super::every_server::{ask_each, distinct};
use super::output::{print, print_error};
use connect::ServerName;
use crossterm::event::{Event, poll, read};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue};
use rustix::process::{Signal, kill_current_process_group};
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Below the options of `top`.
pub(super) const AFTER_HELP: &str = "\
Keys: g groups of the daemon's rules and their keys, k keys that exist now,
h hot keys of the last minute, o oldest holders, c clients, s slow holds and
waits; arrows, Page Up, Page Down, Home, End and G choose a row, and Enter shows
its key: all of it, its rules, holders and waiters, and the command that frees
it; / filters the rows; < and > choose the column to sort by, r reverses; ?
lists the keys; q quits. Several servers are one list; n shows each alone, then
all again; [ and ] scroll them. Without a terminal, prints one screen and exits.

A server lists the 200 keys with the most waiters and, among equals, the longest
holds; 200 clients, 20 hot keys, 20 oldest holders. `200 of 5002` means that
there are more, which are not sorted either. Columns that do not fit are left
out, except the one to sort by; a key that does not fit is cut in its middle,
with a mark.";

/// How soon a key, a new size or new data is noticed at the latest.
const TICK: Duration = Duration::from_millis(100);

/// Shows servers until the user quits.
pub(super) fn top(servers: &[ServerName], interval: Duration) -> ExitCode {
    let servers = distinct(servers);
    let mut chosen = Choices::all_of(TopList::Keys);
    if !stdout_is_terminal() || !io::stdin().is_terminal() {
        return print_once(&servers, &chosen);
    }
    let shown =
        Terminal::take().and_then(|terminal| interact(&terminal, &servers, interval, &mut chosen));
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            print_error(&format!("the terminal: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn print_once(servers: &[ServerName], chosen: &Choices) -> ExitCode {
    let asked = Asked { list: chosen.list, key: None };
    let answers = ask_each(servers, |server| poll_server(server, &asked, &mut Known::nothing()));
    let lines = screen(&View::of(answers.iter().collect()), chosen, usize::MAX, usize::MAX);
    // Without the help of the last line.
    let lines: Vec<&str> =
        lines[..lines.len() - 1].iter().map(|(_, line)| line.trim_end()).collect();
    let is_printed = print(&lines.join("\n"));
    if !is_printed {
        return ExitCode::FAILURE;
    }
    let trouble = answers.iter().filter_map(|data| data.trouble.as_ref()).next_back();
    trouble.map_or(ExitCode::SUCCESS, |trouble| ExitCode::from(trouble.status))
}

/// The servers, and which of them are shown.
struct TopSession {
    servers: Vec<WatchedServer>,
    /// The only one that is shown, if any.
    alone: Option<usize>,
}

impl TopSession {
    fn start(servers: &[ServerName], list: TopList, interval: Duration) -> TopSession {
        let watched = |server: &ServerName| WatchedServer::start(server.clone(), list, interval);
        TopSession { servers: servers.iter().map(watched).collect(), alone: None }
    }

    fn view(&self) -> View<'_> {
        let is_shown = |number| self.alone.is_none_or(|alone| alone == number);
        let shown = self.servers.iter().enumerate().filter(|(number, _)| is_shown(*number));
        View::of(shown.map(|(_, server)| server.data()).collect())
    }

    /// All servers, then each alone, then all again. Sorted by the same column as before,
    /// which in the list of all has that of the servers in front of it.
    fn show_next(&mut self, chosen: &mut Choices) {
        if self.servers.len() < 2 {
            return;
        }
        (self.alone, chosen.column) = match (self.alone, chosen.column) {
            (None, column) => (Some(0), column.and_then(|column| column.checked_sub(1))),
            (Some(last), column) if last + 1 == self.servers.len() => {
                (None, column.map(|column| column + 1))
            }
            (Some(number), column) => (Some(number + 1), column),
        };
    }

    /// Asks the servers that are due. True if there is something new to show.
    fn update(&mut self, chosen: &Choices) -> bool {
        let mut is_new = false;
        for server in &mut self.servers {
            let key = chosen.key_at(&server.data().server);
            is_new |= server.update(&Asked { list: chosen.list, key });
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
    let mut session = TopSession::start(servers, chosen.list, interval);
    loop {
        let mut is_new = session.update(chosen) || terminal.is_to_be_drawn();
        if poll(TICK)? {
            is_new = true;
            if let Event::Key(key) = read()? {
                let view = session.view();
                let rows = rows_that_fit(&view, screen_size().1.into());
                match chosen.react(key, &view, rows) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Stop => kill_current_process_group(Signal::TSTP)?,
                    Reaction::NextServer => session.show_next(chosen),
                    Reaction::Drawn => {}
                }
                // The rows of another list are not drawn.
                session.update(chosen);
            }
        }
        if is_new {
            terminal.draw(|| draw(&session.view(), chosen))?;
        }
    }
}

fn draw(view: &View<'_>, chosen: &mut Choices) -> io::Result<()> {
    let (width, height) = screen_size();
    keep_in_view(view, chosen, width.into(), height.into());
    let mut out = io::stdout().lock();
    let mut lines = screen(view, chosen, width.into(), height.into());
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
    // Cleared first: after a line of full width, clearing would erase its last character.
    queue!(out, cursor::MoveTo(0, row), Clear(ClearType::CurrentLine))?;
    match look {
        Style::Plain => {}
        Style::Reversed | Style::Selected => queue!(out, SetAttribute(Attribute::Reverse))?,
        Style::Alarming if wants_colour() => queue!(out, SetForegroundColor(Color::Red))?,
        Style::Bold | Style::Alarming => queue!(out, SetAttribute(Attribute::Bold))?,
    }
    queue!(out, Print(line), SetForegroundColor(Color::Reset), SetAttribute(Attribute::Reset))
}
