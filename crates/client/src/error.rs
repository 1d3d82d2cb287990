//! Why a client has no lock, or has lost it.

use crate::conversation::UnexpectedAnswer;
use crate::request::Refusal;
use connect::ServerName;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// No answer, or an invalid one.
///
/// `Debug` is the text with its cause: so a program shows it whose `main` returns it.
#[non_exhaustive]
pub enum Error {
    /// No server could be connected to: each that was tried, and its error.
    NoServer(Vec<(ServerName, io::Error)>),
    /// The request is invalid, or not possible now, or a timeout of the client is zero. Nothing
    /// was sent.
    Refused(Refusal),
    /// The name of a server has several addresses, so it may be several servers, and the client
    /// has no fallback ([`Client::no_fallback`](crate::Client::no_fallback)). Nothing was sent.
    SeveralAddresses {
        /// The server.
        server: ServerName,
        /// All its addresses.
        addresses: Vec<SocketAddr>,
    },
    /// The connection ended, or the answer did not come in time, or an inner guard was
    /// dropped before. All its locks are gone.
    Lost {
        /// The key that was asked for, or whose lock was to be released.
        key: Vec<u8>,
        /// The server.
        server: ServerName,
        /// Why.
        cause: io::Error,
    },
    /// The server closed the connection without an answer, and still runs: an operator has
    /// ended the wait, or the server does not admit this host.
    TurnedAway {
        /// The key that was asked for.
        key: Vec<u8>,
        /// The server.
        server: ServerName,
    },
    /// The server sent an unexpected answer. The connection is closed.
    Unexpected(UnexpectedAnswer),
    /// By a [`Canceller`](crate::Canceller). All locks of the connection are gone.
    Cancelled,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoServer(tried) if tried.is_empty() => f.write_str("no server is configured"),
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
                     fallback, a name has one, or one of IPv4 and one of IPv6",
                    addresses.join(", ")
                )
            }
            Error::Lost { key, server, .. } => {
                let key = String::from_utf8_lossy(key);
                write!(f, "{key}: the connection to {server} is lost")
            }
            Error::TurnedAway { key, server } => {
                let key = String::from_utf8_lossy(key);
                write!(
                    f,
                    "{key}: {server} closed the connection without an answer, and still runs; \
                     its --allow or --max-connections may not admit this host, or an operator \
                     has ended the wait"
                )
            }
            Error::Unexpected(answer) => answer.fmt(f),
            Error::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Lost { cause, .. } => write!(f, "{self}: {cause}"),
            _ => write!(f, "{self}"),
        }
    }
}

/// Only [`Error::Lost`] has a source, which its text leaves out; print both, as with anyhow's `{:#}`.
/// The text of [`Error::NoServer`] has all its causes.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Lost { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::other("no answer");
        let server: ServerName = "10.1.2.3".parse().expect("a server");
        let lost = Error::Lost { key: b"k".to_vec(), server: server.clone(), cause: cause() };
        assert_eq!(lost.to_string(), "k: the connection to 10.1.2.3 is lost");
        assert_eq!(format!("{lost:?}"), "k: the connection to 10.1.2.3 is lost: no answer");
        assert_eq!(lost.source().expect("a cause").to_string(), "no answer");
        let unreachable = Error::NoServer(vec![(server, cause())]);
        let text = "no server could be connected to: 10.1.2.3: no answer";
        assert_eq!(unreachable.to_string(), text);
        assert!(unreachable.source().is_none());
        assert!(Error::Refused(Refusal::EmptyKey).source().is_none(), "its text is the refusal's");
    }
}
