//! Reports: who asks for one, and what for.

use crate::engine::ClientId;
use crate::protocol::Query;
use crate::reports::survey::Wants;
use crate::reports::wants_of;
use crate::server::operator::control::ControlClient;

/// Who asks for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Client(ClientId),
    Operator(ControlClient),
    Http(HttpClient),
}

/// An HTTP connection's id.
pub(crate) type HttpClient = ClientId;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Query(Query),
    /// `/metrics`.
    Metrics,
    /// `/prometheus`.
    Exporter,
}

impl Ask {
    /// What has to be surveyed first.
    pub(crate) fn wants(&self) -> Wants {
        match self {
            Ask::Query(query) => wants_of(query),
            Ask::Metrics => Wants { keys: true, clients: false },
            Ask::Exporter => Wants::default(),
        }
    }
}
