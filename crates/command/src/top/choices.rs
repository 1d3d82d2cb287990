//! What the user of `top` has chosen, and what each keyboard command changes about it. Pure.

use super::server_data::View;
use super::top_lists::TopList;
use crate::table::Table;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use schema::table::Column;

/// What the user has chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    pub(super) list: TopList,
    /// The column to sort by, counted from 0. `None` keeps the server's order.
    pub(super) column: Option<usize>,
    pub(super) is_reversed: bool,
    /// Only rows that contain this are shown, in any case.
    pub(super) filter: String,
    /// How many rows are scrolled off.
    pub(super) skipped: usize,
    /// The row that Enter opens.
    pub(super) selected: usize,
    /// How many servers are scrolled off.
    pub(super) servers_skipped: usize,
    pub(super) mode: Mode,
}

/// What is on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    List,
    /// The filter is typed.
    Filter,
    /// The keyboard commands.
    Help,
    Key(ChosenKey),
}

/// A key that is shown alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenKey {
    pub(super) server: String,
    /// As the list has it: perhaps cut.
    pub(super) key: String,
    /// How many lines are scrolled off.
    pub(super) skipped: usize,
}

/// What else a keyboard command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Quit,
    Stop,
    NextServer,
    Drawn,
}

impl Choices {
    pub(super) fn all_of(list: TopList) -> Choices {
        Choices { list, ..Choices::default() }
    }

    /// The key that is to be asked for at this server.
    pub(super) fn key_at(&self, server: &str) -> Option<String> {
        match &self.mode {
            Mode::Key(chosen) if chosen.server == server => Some(chosen.key.clone()),
            _ => None,
        }
    }

    /// The rows that are shown, sorted as chosen.
    pub(super) fn apply(&self, table: &Table) -> Table {
        let mut shown = table.clone();
        if !self.filter.is_empty() {
            let wanted = self.filter.to_lowercase();
            let has_it = |text: &str| text.to_lowercase().contains(&wanted);
            shown.rows.retain(|row| row.cells.iter().any(|cell| has_it(&cell.text)));
        }
        let column = self.column.filter(|&column| column < table.columns.len());
        if let Some(column) = column {
            shown.sort_by_column(column);
        }
        if self.is_reversed {
            shown.rows.reverse();
        }
        shown
    }

    /// Keeps what is selected on the screen, of which `fitting` rows are for the list.
    pub(super) fn keep_in_view(&mut self, rows: usize, fitting: usize) {
        self.selected = self.selected.min(rows.saturating_sub(1));
        self.skipped = self.skipped.min(self.selected).min(rows.saturating_sub(fitting));
        self.skipped = self.skipped.max((self.selected + 1).saturating_sub(fitting));
    }

    /// What a keyboard command does. `fitting` rows of the list are on the screen.
    pub(super) fn react(&mut self, key: KeyEvent, view: &View<'_>, fitting: usize) -> Reaction {
        if key.kind == KeyEventKind::Release {
            return Reaction::Drawn;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Reaction::Quit,
                KeyCode::Char('z') => return Reaction::Stop,
                KeyCode::Char('u') if self.mode == Mode::Filter => self.filter.clear(),
                _ => {}
            }
            return Reaction::Drawn;
        }
        match &mut self.mode {
            Mode::Filter => self.type_filter(key.code),
            _ if key.code == KeyCode::Char('q') => return Reaction::Quit,
            Mode::Help => self.mode = Mode::List,
            Mode::Key(chosen) => {
                if chosen.react(key.code, fitting) {
                    self.mode = Mode::List;
                }
            }
            Mode::List => return self.react_in_list(key.code, view, fitting),
        }
        Reaction::Drawn
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
    }

    /// Not Esc: a key that arrives in pieces begins with it.
    fn react_in_list(&mut self, code: KeyCode, view: &View<'_>, fitting: usize) -> Reaction {
        let last = view.table().map_or(0, |table| table.columns.len()).saturating_sub(1);
        match code {
            KeyCode::Char('n') => return Reaction::NextServer,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('[') => self.servers_skipped = self.servers_skipped.saturating_sub(1),
            KeyCode::Char(']') => self.servers_skipped = self.servers_skipped.saturating_add(1),
            KeyCode::Char('<') | KeyCode::Left => {
                self.column = Some(self.column.map_or(last, |column| column.saturating_sub(1)));
            }
            KeyCode::Char('>') | KeyCode::Right => {
                self.column = Some(self.column.map_or(0, |column| (column + 1).min(last)));
            }
            KeyCode::Enter => self.open(view),
            KeyCode::Char('G') => self.selected = usize::MAX,
            KeyCode::Char(letter) => {
                if let Some(list) = TopList::ALL.into_iter().find(|list| list.key() == letter) {
                    let servers_skipped = self.servers_skipped;
                    *self = Choices { servers_skipped, ..Choices::all_of(list) };
                }
            }
            other => move_by(&mut self.selected, other, fitting),
        }
        Reaction::Drawn
    }

    /// Shows the key of the selected row alone, unless it has none.
    fn open(&mut self, view: &View<'_>) {
        let Some(table) = view.table() else { return };
        let shown = self.apply(table);
        let Some(row) = shown.rows.get(self.selected) else { return };
        let server = match view.servers[..] {
            [alone] => alone.server.clone(),
            _ => shown.cell(row, Column::Server).map_or(String::new(), |cell| cell.text.clone()),
        };
        if let Some(key) = row.key.clone() {
            self.mode = Mode::Key(ChosenKey { server, key, skipped: 0 });
        }
    }
}

impl ChosenKey {
    /// Scrolls; true if the list is to be shown again.
    fn react(&mut self, code: KeyCode, fitting: usize) -> bool {
        move_by(&mut self.skipped, code, fitting);
        matches!(code, KeyCode::Enter | KeyCode::Esc | KeyCode::Backspace)
    }
}

/// Moves up or down in a list of which `page` rows are on the screen.
fn move_by(place: &mut usize, code: KeyCode, page: usize) {
    *place = match code {
        KeyCode::Up => place.saturating_sub(1),
        KeyCode::Down => place.saturating_add(1),
        KeyCode::PageUp => place.saturating_sub(page),
        KeyCode::PageDown => place.saturating_add(page),
        KeyCode::Home => 0,
        KeyCode::End => usize::MAX,
        _ => return,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::server_data::{Asked, ScreenData};
    use schema::reports::KeysReport;
    use schema::rows::KeyRow;

    fn data(server: &str, keys: &[&str]) -> ScreenData {
        let asked = Asked { list: TopList::Keys, key: None };
        let row = |key: &&str| KeyRow { key: (*key).to_owned(), ..KeyRow::default() };
        let keys = keys.iter().map(row).collect();
        let list = KeysReport { keys_total: 9, keys, ..KeysReport::default() }.into();
        ScreenData { list: Some(list), ..ScreenData::nothing_yet(server, asked) }
    }

    fn press(chosen: &mut Choices, view: &View<'_>, codes: &[KeyCode]) -> Reaction {
        let press = |chosen: &mut Choices, code: &KeyCode| {
            let reaction = chosen.react(KeyEvent::new(*code, KeyModifiers::NONE), view, 2);
            chosen.keep_in_view(view.table().map_or(0, |t| chosen.apply(t).rows.len()), 2);
            reaction
        };
        codes.iter().map(|code| press(chosen, code)).last().expect("a key")
    }

    #[test]
    fn the_selected_row_stays_in_view() {
        let mut chosen = Choices::all_of(TopList::Keys);
        let data = data("a", &["p", "q", "r", "s", "t"]);
        let view = View::of(vec![&data]);
        for (code, selected, skipped) in [
            (KeyCode::Down, 1, 0),
            (KeyCode::Down, 2, 1),
            (KeyCode::Up, 1, 1),
            (KeyCode::End, 4, 3),
            (KeyCode::Down, 4, 3),
            (KeyCode::Home, 0, 0),
            (KeyCode::Up, 0, 0),
            (KeyCode::Char('G'), 4, 3),
            (KeyCode::PageUp, 2, 2),
            (KeyCode::PageDown, 4, 3),
            (KeyCode::F(1), 4, 3),
        ] {
            press(&mut chosen, &view, &[code]);
            assert_eq!((chosen.selected, chosen.skipped), (selected, skipped), "{code:?}");
        }
        chosen.keep_in_view(2, 9);
        assert_eq!((chosen.selected, chosen.skipped), (1, 0), "rows have gone");
    }

    #[test]
    fn a_filter_is_typed_and_applied() {
        let mut chosen = Choices::all_of(TopList::Keys);
        let data = data("a", &["page:q", "file:r", "caf\\xc3\\xa9"]);
        let view = View::of(vec![&data]);
        let shown = |chosen: &Choices| chosen.apply(view.table().expect("a list")).rows.len();
        press(&mut chosen, &view, &[KeyCode::Char('/'), KeyCode::Char('E'), KeyCode::Char('q')]);
        assert_eq!((chosen.filter.as_str(), shown(&chosen)), ("Eq", 0), "q does not quit");
        press(&mut chosen, &view, &[KeyCode::Backspace]);
        assert_eq!(shown(&chosen), 2);
        press(&mut chosen, &view, &[KeyCode::Enter, KeyCode::End, KeyCode::Enter]);
        let key = ChosenKey { server: "a".into(), key: "file:r".into(), skipped: 0 };
        assert_eq!(chosen.mode, Mode::Key(key), "the last of those that are shown");
        assert_eq!(chosen.key_at("a").as_deref(), Some("file:r"));
        assert_eq!(chosen.key_at("b"), None);
        press(&mut chosen, &view, &[KeyCode::Esc, KeyCode::Char('/'), KeyCode::Esc]);
        assert_eq!((chosen.filter.as_str(), &chosen.mode), ("", &Mode::List));
    }

    #[test]
    fn the_key_of_a_row_is_opened_at_its_server() {
        let (a, b) = (data("a", &["p"]), data("b", &["q", "hidden"]));
        let view = View::of(vec![&a, &b]);
        let mut chosen = Choices::all_of(TopList::Keys);
        press(&mut chosen, &view, &[KeyCode::Down, KeyCode::Enter]);
        let key = ChosenKey { server: "b".into(), key: "q".into(), skipped: 0 };
        assert_eq!(chosen.mode, Mode::Key(key));
        press(&mut chosen, &view, &[KeyCode::Enter, KeyCode::End, KeyCode::Enter]);
        assert_eq!(chosen.mode, Mode::List, "a hidden key is no key");
        assert_eq!(press(&mut chosen, &view, &[KeyCode::Char('?')]), Reaction::Drawn);
        assert_eq!(chosen.mode, Mode::Help);
        press(&mut chosen, &view, &[KeyCode::Char('x')]);
        assert_eq!(chosen.mode, Mode::List);
        let nothing = View::of(Vec::new());
        press(&mut chosen, &nothing, &[KeyCode::Enter, KeyCode::Right, KeyCode::End]);
        assert_eq!(chosen.mode, Mode::List);
        for (code, reaction) in [('q', Reaction::Quit), ('n', Reaction::NextServer)] {
            assert_eq!(press(&mut chosen, &view, &[KeyCode::Char(code)]), reaction);
        }
    }
}
