//! Why a client has no lock, or has lost it.

use super::request::Refusal;
use connect::ServerName;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// No answer, or an invalid one.
#[derive(Debug)]
pub(crate) enum Error {
    /// No server could be connected to: each that was tried, and its error.
    NoServer(Vec<(ServerName, io::Error)>),
    /// The request is invalid. Nothing was sent.
    Refused(Refusal),
    /// The name of a server has several addresses, so it may be several servers, and the client
    /// has no fallback. Nothing was sent.
    SeveralAddresses {
        /// The server.
        server: ServerName,
        /// All its addresses.
        addresses: Vec<SocketAddr>,
    },
    /// The connection ended, or the answer did not come in time. The lock is gone.
    Lost {
        /// The key that was asked for, or whose lock was to be released.
        key: Vec<u8>,
        /// The server.
        server: ServerName,
        /// Why.
        cause: io::Error,
    },
    /// The server closed the connection before the lock could be used, and still runs: an operator
    /// has ended the wait, or the server does not admit this host.
    TurnedAway {
        /// The key that was asked for.
        key: Vec<u8>,
        /// The server.
        server: ServerName,
        /// The server gave the lock first, so it admits this host.
        had_lock: bool,
    },
    /// The server sent this, which is no answer to the request. The connection is closed.
    Unexpected(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoServer(tried) => {
                let tried: Vec<String> = tried.iter().map(|(s, e)| format!("{s}: {e}")).collect();
                write!(f, "no server could be connected to: {}", tried.join("; "))
            }
            Error::Refused(refusal) => refusal.fmt(f),
            Error::SeveralAddresses { server, addresses } => {
                let addresses: Vec<String> =
                    addresses.iter().map(|address| address.ip().to_string()).collect();
                write!(
                    f,
                    "{server} has several addresses, and may be several servers: {}; without \
                     --fallback, a name has one, or one of IPv4 and one of IPv6",
                    addresses.join(", ")
                )
            }
            Error::Lost { key, server, cause } => {
                let key = String::from_utf8_lossy(key);
                write!(f, "{key}: the connection to {server} is lost: {cause}")
            }
            Error::TurnedAway { key, server, had_lock: true } => {
                let key = String::from_utf8_lossy(key);
                write!(
                    f,
                    "{key}: {server} gave the lock, and closed the connection before the command \
                     was started; it still runs, so a rule's max-hold may have been over, or an \
                     operator may have freed the lock"
                )
            }
            Error::TurnedAway { key, server, had_lock: false } => {
                let key = String::from_utf8_lossy(key);
                write!(
                    f,
                    "{key}: {server} closed the connection without an answer, and still runs; \
                     its --allow or --max-connections may not admit this host, or an operator \
                     has ended the wait"
                )
            }
            Error::Unexpected(answer) => write!(f, "the server answered {answer:?}"),
        }
    }
}
