//! A request for a report, and the connection that made it.

use crate::engine::ClientId;
use crate::protocol::Query;
use crate::reports::rule_list::RuleSource;
use crate::reports::scan::ScanParts;
use crate::reports::wants_of;
use crate::server::operator::control_socket::ControlClient;

/// Who asks for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    Client(ClientId),
    Operator(ControlClient),
    Http(HttpClient),
}

/// An HTTP connection's id.
pub(crate) type HttpClient = ClientId;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportRequest {
    Query(Query),
    /// The rules, which come from there.
    Rules(Vec<RuleSource>),
    /// `/metrics`.
    Metrics,
    /// `/prometheus`.
    Exporter,
}

impl ReportRequest {
    /// What has to be scanned first.
    pub(crate) fn wants(&self) -> ScanParts {
        match self {
            ReportRequest::Query(query) => wants_of(query),
            ReportRequest::Metrics | ReportRequest::Rules(_) => {
                ScanParts { keys: true, clients: false }
            }
            ReportRequest::Exporter => ScanParts::default(),
        }
    }
}
