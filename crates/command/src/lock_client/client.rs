//! The client: its servers, which of them may be asked for a key, and how long one may be away.

use super::error::Error;
use super::order::order;
use connect::{Addresses, ServerName};
use std::io;
use std::time::Duration;

/// How long a server may accept no connection without a time for the wait: a restart takes less.
const TOLERATED: Duration = Duration::from_secs(30);

/// The least with one: the kernel sends a packet that was lost again after a second.
pub(super) const TOLERATED_MIN: Duration = Duration::from_secs(2);

/// The servers, and how long to wait for them. Each lock has a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    servers: Vec<ServerName>,
    /// How long a server may accept no connection.
    connect_timeout: Option<Duration>,
    has_fallback: bool,
}

impl Client {
    /// A client of these servers. The names, as they are written, choose the server of a
    /// key ([`order`]). It asks no other one: that may grant a lock which a client has that got it
    /// from the key's own server before.
    ///
    /// A name with several addresses may be several servers, each with locks of its own: it is
    /// refused ([`Error::SeveralAddresses`]), unless it has one address of IPv4 and one of IPv6.
    pub(crate) fn new(servers: Vec<ServerName>, connect_timeout: Option<Duration>) -> Self {
        Client { servers, connect_timeout, has_fallback: false }
    }

    /// Goes on to the next server in [`order`] when one accepts no connection. Each address of a
    /// name is tried as if it were the same server.
    pub(crate) fn with_fallback(self) -> Self {
        Client { has_fallback: true, ..self }
    }

    pub(crate) fn has_fallback(&self) -> bool {
        self.has_fallback
    }

    /// The servers that may be asked for a key, in the order in which they are.
    pub(crate) fn order(&self, key: &[u8]) -> impl Iterator<Item = &ServerName> + use<'_> {
        let tries_max = if self.has_fallback { usize::MAX } else { 1 };
        order(&self.servers, key).into_iter().take(tries_max)
    }

    /// How long a server may accept no connection, when so much of the request's time is left:
    /// `None` is for ever.
    pub(super) fn tolerated(&self, left: Option<Duration>) -> Duration {
        let left = left.map(|left| left.max(TOLERATED_MIN));
        match (self.connect_timeout, left) {
            (None, None) => TOLERATED,
            (Some(time), None) | (None, Some(time)) => time,
            (Some(time), Some(left)) => time.min(left),
        }
    }

    /// Looks a server up, in this time or in two seconds if that is longer. The inner error is why
    /// it is unreachable.
    ///
    /// # Errors
    /// [`Error::SeveralAddresses`].
    pub(super) fn look_up(
        &self,
        server: &ServerName,
        time: Duration,
    ) -> Result<io::Result<Addresses>, Error> {
        match Addresses::look_up(server, time) {
            Ok(found) if !self.has_fallback && !found.is_one_host() => {
                let (server, addresses) = (server.clone(), found.as_slice().to_vec());
                Err(Error::SeveralAddresses { server, addresses })
            }
            found => Ok(found),
        }
    }
}
