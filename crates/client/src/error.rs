//! Why a client has no lock, or has lost it.

use crate::conversation::UnexpectedAnswer;
use crate::request::Refusal;
use connect::ServerName;
use std::fmt;
use std::io;

/// No answer, or an invalid one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No server could be connected to: each that was tried, and its error.
    NoServer(Vec<(ServerName, io::Error)>),
    /// The request is invalid. Nothing was sent.
    Refused(Refusal),
    /// The connection ended, or the answer did not come in time, or an inner guard was
    /// dropped before. All its locks are gone.
    Lost(io::Error),
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
            Error::Lost(e) => write!(f, "the connection to the server is lost: {e}"),
            Error::Unexpected(answer) => answer.fmt(f),
            Error::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// Its text includes its cause's.
impl std::error::Error for Error {}
