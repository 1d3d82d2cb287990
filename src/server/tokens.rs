//! Converts between tokens and sources of events.

use super::world::fd::{AsRawFd, OwnedFd};
use super::world::mio::unix::SourceFd;
use super::world::mio::{Interest, Registry, Token};
use std::io;

/// A client's token is its slot; all other tokens are above any slot
/// ([`crate::engine::state::SLOTS_MAX`]).
const FIRST_LISTENER: usize = 1 << 24;
const FIRST_OPERATOR: usize = 1 << 25;
const SIGNALS: usize = 1 << 26;
const TRIAL: usize = SIGNALS + 1;
const FIRST_HTTP: usize = 1 << 27;

/// A source of events for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The client in this slot.
    Client(usize),
    /// The listener with this number.
    Listener(usize),
    /// The control connection with this number.
    Operator(usize),
    /// The HTTP connection with this number.
    Http(usize),
    /// The signals that the daemon handles.
    Signals,
    /// The child of a hot restart's trial.
    Trial,
}

impl From<Source> for Token {
    fn from(source: Source) -> Self {
        Token(match source {
            Source::Client(slot) => slot,
            Source::Listener(number) => FIRST_LISTENER + number,
            Source::Operator(number) => FIRST_OPERATOR + number,
            Source::Http(number) => FIRST_HTTP + number,
            Source::Signals => SIGNALS,
            Source::Trial => TRIAL,
        })
    }
}

impl From<Token> for Source {
    fn from(Token(token): Token) -> Self {
        match token {
            SIGNALS => Source::Signals,
            TRIAL => Source::Trial,
            FIRST_HTTP.. => Source::Http(token - FIRST_HTTP),
            FIRST_OPERATOR.. => Source::Operator(token - FIRST_OPERATOR),
            FIRST_LISTENER.. => Source::Listener(token - FIRST_LISTENER),
            slot => Source::Client(slot),
        }
    }
}

/// Watches a socket that the old image may have watched already.
///
/// # Errors
/// The error of epoll_ctl(2).
pub(super) fn watch(registry: &Registry, socket: &OwnedFd, source: Source) -> io::Result<()> {
    let token = source.into();
    let fd = socket.as_raw_fd();
    match registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            registry.reregister(&mut SourceFd(&fd), token, Interest::READABLE)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::state::SLOTS_MAX;

    #[test]
    fn every_source_has_a_token_of_its_own() {
        let last_slot = SLOTS_MAX as usize - 1;
        for source in [
            Source::Client(0),
            Source::Client(last_slot),
            Source::Listener(0),
            Source::Listener(99),
            Source::Operator(0),
            Source::Operator(99),
            Source::Http(0),
            Source::Http(99),
            Source::Signals,
            Source::Trial,
        ] {
            assert_eq!(Source::from(Token::from(source)), source);
        }
    }
}
