//! What `top` knows of each server, and of all together. Pure.

use super::figures::{Before, Figures};
use super::top_lists::TopList;
use crate::lists::List;
use crate::stats_full::StatsFull;
use crate::table::Table;
use schema::reports::KeyReport;
use std::borrow::Cow;

/// What a server is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) list: TopList,
    /// A key that is shown alone, as the list has it: perhaps cut.
    pub(super) key: Option<String>,
}

/// A server's data.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenData {
    pub(super) server: String,
    pub(super) figures: Option<Figures>,
    /// The figures before these.
    pub(super) before: Option<Before>,
    /// Those of a minute ago, or the oldest.
    pub(super) minute: Option<Before>,
    /// Of a server that has no lists.
    pub(super) full: Option<StatsFull>,
    pub(super) asked: Asked,
    /// `None` until it arrives.
    pub(super) list: Option<List>,
    /// About the key that was asked for.
    pub(super) key: Option<KeyAnswer>,
    /// How many rules orders have set, in words, if any.
    pub(super) rules_by_orders: Option<String>,
    /// Why there is nothing newer.
    pub(super) trouble: Option<Trouble>,
    /// How old the data is.
    pub(super) age_s: u64,
}

/// What a server says about a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KeyAnswer {
    /// `STATS JSON KEY`.
    Key(KeyReport),
    /// The list has cut it, and so many keys begin like this.
    Several(u64),
    /// The list has cut it, and no key begins like this any more.
    Gone,
    /// The server does not answer the question.
    Refused(String),
}

/// Why a server does not answer.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Nobody listens there, as with a server that drains.
    pub(super) is_closed: bool,
    /// The exit status for it.
    pub(super) status: u8,
}

impl ScreenData {
    pub(super) fn nothing_yet(server: &str, asked: Asked) -> ScreenData {
        ScreenData { server: server.to_owned(), asked, ..ScreenData::default() }
    }
}

/// What is to be shown: one server, or several with their lists as one.
pub(super) struct View<'a> {
    pub(super) servers: Vec<&'a ScreenData>,
    pub(super) list: Option<Cow<'a, List>>,
}

impl<'a> View<'a> {
    /// A server that does not answer has rows only if it is alone: in a list of several,
    /// old rows would look like new ones.
    pub(super) fn of(servers: Vec<&'a ScreenData>) -> View<'a> {
        let list = match servers[..] {
            [alone] => alone.list.as_ref().map(Cow::Borrowed),
            _ => merged(&servers).map(Cow::Owned),
        };
        View { servers, list }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        self.list.as_ref().map(|list| &list.table)
    }
}

fn merged(servers: &[&ScreenData]) -> Option<List> {
    let healthy = servers.iter().filter(|data| data.trouble.is_none());
    let lists = healthy.filter_map(|data| Some((data.server.as_str(), data.list.as_ref()?)));
    let order = servers.first()?.asked.list.order();
    List::merged(&lists.collect::<Vec<_>>(), order, usize::MAX)
}
