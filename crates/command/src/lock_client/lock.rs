//! What a request for a lock comes to, and a lock that is held.

use super::connection::Connection;
use super::error::Error;
use connect::ServerName;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, BorrowedFd};

/// What became of a request.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub(crate) enum Outcome {
    /// The client has the lock.
    Locked(Lock),
    /// Another client did the work. Only for [`LockRequest::any`](super::request::LockRequest::any).
    Done,
    /// As many clients hold the key or wait for it as the request allows.
    QueueFull,
    /// The wait timed out.
    TimedOut,
}

/// A lock, on a connection of its own. [`Lock::release`] gives it back, with its work done.
/// Dropped, it is given up with its work undone: the connection is closed, no client gets `Done`,
/// and the next waiter gets the lock.
#[derive(Debug)]
#[must_use = "a lock that is dropped is given up, with its work undone"]
pub(crate) struct Lock {
    connection: Connection,
    key: Vec<u8>,
}

impl Lock {
    pub(super) fn new(connection: Connection, key: Vec<u8>) -> Self {
        Lock { connection, key }
    }

    /// Gives the lock back, with its work done, and waits for the answer. Clients that
    /// wait for anyone's work get `Done`.
    ///
    /// # Errors
    /// [`Error::Lost`]: then another client may have had the lock meanwhile, and waiting clients
    /// may still get `Done`.
    pub(crate) fn release(self) -> Result<(), Error> {
        self.connection.release(&self.key)
    }

    /// Looks before the lock is used: the answer may have lain unread while this process was
    /// stopped, with the connection's end behind it.
    ///
    /// # Errors
    /// The lock is lost, or the server has said more.
    pub(super) fn check_held(&self) -> Result<(), Error> {
        self.connection.check_held(&self.key)
    }

    /// Whether the connection has ended. What the server answers to something that the command
    /// has written there by mistake is dropped.
    pub(crate) fn has_ended(&self) -> bool {
        match recv(&self.connection, &mut [0; 512][..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => len == 0,
            Err(e) => !matches!(e, Errno::AGAIN | Errno::INTR),
        }
    }

    /// The server that keeps it.
    pub(crate) fn server(&self) -> &ServerName {
        self.connection.server()
    }

    /// The key, as it was given.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

/// The connection, to wait for its end together with other events ([`Lock::has_ended`]), and for
/// processes that keep it. Nothing may be read from it or written to it.
impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
