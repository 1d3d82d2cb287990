//! What `top` knows of its servers, and what of it is to be shown.

use crate::cli::parsed_report::ParsedReport;
use crate::cli::table::{CLIENTS_ORDER, KEYS_ORDER, ListOrder, SLOW_ORDER, Table};
use std::borrow::Cow;

/// The lists of `top`, with the key that chooses each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopList {
    Groups,
    Keys,
    Hot,
    Holders,
    Clients,
    Slow,
}

impl TopList {
    pub(super) const ALL: [TopList; 6] = [
        TopList::Groups,
        TopList::Keys,
        TopList::Hot,
        TopList::Holders,
        TopList::Clients,
        TopList::Slow,
    ];

    pub(super) fn key(self) -> char {
        match self {
            TopList::Groups => 'g',
            TopList::Keys => 'k',
            TopList::Hot => 'h',
            TopList::Holders => 'o',
            TopList::Clients => 'c',
            TopList::Slow => 's',
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            TopList::Groups => "groups",
            TopList::Keys => "keys now",
            TopList::Hot => "hot keys",
            TopList::Holders => "oldest holders",
            TopList::Clients => "clients",
            TopList::Slow => "slow",
        }
    }

    /// What to ask, after `STATS `. No list has more than 200 rows.
    pub(super) fn question(self) -> &'static str {
        match self {
            TopList::Keys => "KEYS 200",
            TopList::Hot => "TOP minute keys",
            // `KEYS` has the keys with the most waiters, but not their holders.
            TopList::Holders | TopList::Groups => "JSON",
            TopList::Clients => "CLIENTS 200",
            TopList::Slow => "SLOW 200",
        }
    }

    /// How a server sorts it. Groups stay as they are, each with its keys behind it.
    fn order(self) -> ListOrder {
        match self {
            TopList::Groups => &[],
            TopList::Keys => KEYS_ORDER,
            TopList::Hot => &[&["count"]],
            TopList::Holders => &[&["held"]],
            TopList::Clients => CLIENTS_ORDER,
            TopList::Slow => SLOW_ORDER,
        }
    }
}

/// What a server told.
#[derive(Clone, Debug)]
pub(super) struct ScreenData {
    pub(super) server: String,
    /// `STATS FULL`, and the one before it with the seconds between them.
    pub(super) full: Option<ParsedReport>,
    pub(super) before: Option<(ParsedReport, f64)>,
    pub(super) list_asked: TopList,
    /// `None` until it is there.
    pub(super) list: Option<ParsedReport>,
    /// Older servers have none.
    pub(super) has_lists: bool,
    /// Why there is nothing newer.
    pub(super) trouble: Option<Trouble>,
    /// How old all this is.
    pub(super) age_s: u64,
}

/// Why a server does not answer.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Nobody listens there: so it is with a server that drains, too.
    pub(super) is_closed: bool,
}

impl ScreenData {
    pub(super) fn nothing_yet(server: &str, list_asked: TopList) -> ScreenData {
        ScreenData {
            server: server.to_owned(),
            full: None,
            before: None,
            list_asked,
            list: None,
            has_lists: true,
            trouble: None,
            age_s: 0,
        }
    }
}

/// What is to be shown: one server, or several with their lists as one.
pub(super) struct View<'a> {
    pub(super) servers: Vec<&'a ScreenData>,
    pub(super) list: Option<Cow<'a, ParsedReport>>,
}

impl<'a> View<'a> {
    /// A server that does not answer has rows only where it is alone: in a list of several,
    /// old rows would look like new ones.
    pub(super) fn of(servers: Vec<&'a ScreenData>) -> View<'a> {
        let list = match servers[..] {
            [alone] => alone.list.as_ref().map(Cow::Borrowed),
            _ => merged(&servers).map(Cow::Owned),
        };
        View { servers, list }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        self.list.as_ref().and_then(|list| list.tables.first())
    }
}

fn merged(servers: &[&ScreenData]) -> Option<ParsedReport> {
    let healthy = servers.iter().filter(|data| data.trouble.is_none());
    let lists = healthy.filter_map(|data| Some((data.server.as_str(), data.list.as_ref()?)));
    let lists: Vec<_> = lists.collect();
    let order = servers.first()?.list_asked.order();
    (!lists.is_empty()).then(|| ParsedReport::merged(&lists, order, usize::MAX))
}
