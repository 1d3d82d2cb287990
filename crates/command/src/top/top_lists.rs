//! The lists of `top`: the key and title of each, its question and its order.

use crate::lists::{List, ListKind, groups, hot_keys, oldest_holds};
use crate::table::ListOrder;
use serde_json::Value;

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

/// No list has more.
const ROWS: u32 = 200;

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

    fn kind(self) -> Option<ListKind> {
        match self {
            TopList::Keys => Some(ListKind::Keys),
            TopList::Clients => Some(ListKind::Clients),
            TopList::Slow => Some(ListKind::Slow),
            TopList::Groups | TopList::Hot | TopList::Holders => None,
        }
    }

    /// What to ask, after `STATS `, unless the list is in `STATS JSON`.
    pub(super) fn question(self) -> Option<String> {
        match self {
            TopList::Hot => Some("JSON TOP minute keys".to_owned()),
            // `KEYS` has the keys with the most waiters, but not their holders.
            TopList::Holders | TopList::Groups => None,
            other => other.kind().map(|kind| kind.question(ROWS)),
        }
    }

    /// How a server sorts it. Groups stay as they are, each with its keys behind it.
    pub(super) fn order(self) -> ListOrder {
        match self {
            TopList::Hot => &[&["count"]],
            TopList::Holders => &[&["held"]],
            other => other.kind().map_or(&[], ListKind::order),
        }
    }

    /// The list in an answer: to its question, or to `STATS JSON`.
    pub(super) fn read(self, answer: &Value) -> List {
        match self {
            TopList::Groups => groups(answer),
            TopList::Holders => oldest_holds(answer),
            TopList::Hot => hot_keys(answer),
            TopList::Keys => ListKind::Keys.read(answer),
            TopList::Clients => ListKind::Clients.read(answer),
            TopList::Slow => ListKind::Slow.read(answer),
        }
    }
}
