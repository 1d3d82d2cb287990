//! The lists of `top`: the key and title of each, its order, and where its rows come from.

use crate::ask::ROWS_MAX;
use crate::lists::{List, ListKind, ask_list, groups, oldest_holds};
use crate::table::ListOrder;
use connect::{NoAnswer, StatsConnection};
use schema::reports::{Report, TopReport};
use schema::table::Column;

/// The lists of `top`, with the key that chooses each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TopList {
    Groups,
    #[default]
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

    /// The letter that chooses it begins its title.
    pub(super) fn key(self) -> char {
        char::from(self.title().as_bytes()[0])
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

    /// How a server sorts it. Groups stay as they are, each with its keys behind it.
    pub(super) fn order(self) -> ListOrder {
        match self {
            TopList::Hot => &[&[Column::Count]],
            TopList::Holders => &[&[Column::Held]],
            other => other.kind().map_or(&[], ListKind::order),
        }
    }

    /// Asks for the list, unless it is in `STATS JSON`.
    pub(super) fn ask(
        self,
        connection: &mut StatsConnection,
        everything: &Report,
    ) -> Result<List, NoAnswer> {
        match (self, self.kind()) {
            (TopList::Hot, _) => {
                let answer = ask_list::<TopReport>(connection, "JSON TOP minute keys")?;
                Ok(answer.report)
            }
            (_, Some(kind)) => Ok(kind.ask(connection, ROWS_MAX, "")?.report),
            // `KEYS` has the keys with the most waiters, but not their holders.
            (TopList::Holders, None) => Ok(oldest_holds(everything)),
            (_, None) => Ok(groups(everything)),
        }
    }
}
