//! Converts between tokens and sources of events.

use crate::server::kernel::world::fd::{AsRawFd, OwnedFd};
use crate::server::kernel::world::mio::unix::SourceFd;
use crate::server::kernel::world::mio::{Interest, Registry, Token};
use std::io;

/// A client's token is its slot; all other tokens are above any slot.
const FIRST_LISTENER: usize = 1 << 24;
const _: () = assert!(crate::engine::state::SLOTS_MAX as usize <= FIRST_LISTENER);
const FIRST_OPERATOR: usize = 1 << 25;
const SIGNALS: usize = 1 << 26;
const TRIAL: usize = SIGNALS + 1;
const FIRST_HTTP: usize = 1 << 27;

/// A source of events for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
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
pub(crate) fn watch(registry: &Registry, socket: &OwnedFd, source: Source) -> io::Result<()> {
    let token = source.into();
    let fd = socket.as_raw_fd();
    match registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            registry.reregister(&mut SourceFd(&fd), token, Interest::READABLE)
        }
        result => result,
    }
}
