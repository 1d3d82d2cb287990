//! The client: its servers, how it chooses those of a key and connects to one.

use super::error::Error;
use super::order::order;
use connect::{Addresses, ServerName, Stream};
use std::io;
use std::time::Duration;

/// How often connecting to a server is tried, as MediaWiki's client does.
const ATTEMPTS: usize = 2;

/// The servers, and how long to wait for them. Each lock has a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    servers: Vec<ServerName>,
    connect_timeout: Duration,
    /// How many of the servers may be asked for a key.
    tries_max: usize,
}

impl Client {
    /// A client of these servers. The names, as they are written, choose the server of a
    /// key ([`order`]). Each server gets two attempts to connect, each of this time, at each of
    /// its addresses; those of a name are looked up once, in this time or in two seconds if that is
    /// longer.
    pub(crate) fn new(servers: Vec<ServerName>, connect_timeout: Duration) -> Self {
        Client { servers, connect_timeout, tries_max: usize::MAX }
    }

    /// Never asks another server than the key's own, the first in [`order`]. Otherwise a
    /// server that drains, or can't be reached for a moment, makes the next one give the
    /// lock, while a client that got it before may still hold it.
    ///
    /// A name with several addresses may be several servers, each with locks of its own: it is
    /// refused then ([`Error::SeveralAddresses`]), unless it has one address of IPv4 and one of
    /// IPv6. With fallback, each address is tried as if it were the same server.
    pub(crate) fn no_fallback(mut self) -> Self {
        self.tries_max = 1;
        self
    }

    /// The servers that may be asked for a key, in the order in which they are.
    pub(crate) fn order(&self, key: &[u8]) -> impl Iterator<Item = &ServerName> + use<'_> {
        order(&self.servers, key).into_iter().take(self.tries_max)
    }

    /// Looks a server up and connects to it; each attempt may take this time, but no longer than
    /// usual. The inner error is why it is unreachable.
    ///
    /// # Errors
    /// [`Error::SeveralAddresses`].
    pub(super) fn reach(
        &self,
        server: &ServerName,
        time: Duration,
    ) -> Result<io::Result<Reached>, Error> {
        let addresses = match Addresses::look_up(server, self.connect_timeout.min(time)) {
            Ok(addresses) => addresses,
            Err(e) => return Ok(Err(e)),
        };
        self.must_be_one_host(server, &addresses)?;
        let mut result = self.connect_within(time, &addresses);
        for _ in 1..ATTEMPTS {
            if result.is_err() {
                result = self.connect_within(time, &addresses);
            }
        }
        Ok(result.map(|stream| Reached { addresses, stream }))
    }

    /// Without a fallback, each client must ask the same server, which a name of several does not
    /// promise.
    fn must_be_one_host(&self, server: &ServerName, addresses: &Addresses) -> Result<(), Error> {
        if self.tries_max > 1 || addresses.is_one_host() {
            return Ok(());
        }
        let (server, addresses) = (server.clone(), addresses.as_slice().to_vec());
        Err(Error::SeveralAddresses { server, addresses })
    }

    /// Connects once. Each address may take this time, but no longer than usual.
    pub(super) fn connect_within(
        &self,
        time: Duration,
        addresses: &Addresses,
    ) -> io::Result<Stream> {
        let stream = addresses.connect(self.connect_timeout.min(time))?;
        stream.watch_the_host();
        Ok(stream)
    }
}

/// A server that accepts connections.
pub(super) struct Reached {
    pub(super) addresses: Addresses,
    pub(super) stream: Stream,
}
