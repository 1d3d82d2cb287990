//! The addresses of a server: looked up once, in bounded time, then connected to one after the
//! other.

use super::failed_call::named;
use super::server_name::ServerName;
use super::transport::Stream;
use nix::sys::signal::SigSet;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Where a server can be connected to: all addresses of its host, each once, in the order of the
/// resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<SocketAddr>);

impl Addresses {
    /// Looks the server's name up, for `timeout`. A thread waits for the resolver, which nothing can interrupt: it may outlive this call. An address
    /// needs neither the thread nor the time.
    ///
    /// # Errors
    /// The name has no address, or the resolver did not answer in time.
    pub fn look_up(server: &ServerName, timeout: Duration) -> io::Result<Addresses> {
        let (host, port) = (server.host().to_owned(), server.port());
        let resolve = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        let found = if server.is_numeric() { resolve()? } else { within(timeout, resolve)? };
        Ok(Addresses(each_once(found)))
    }

    /// As they were found.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }

    /// Connects to the first address that accepts. They share the time: one that is silent leaves
    /// the next its part.
    ///
    /// # Errors
    /// Why the last one does not accept.
    pub(super) fn connect(&self, timeout: Duration) -> io::Result<Stream> {
        let began = Instant::now();
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for (number, address) in self.0.iter().enumerate() {
            let left = timeout.saturating_sub(began.elapsed());
            match Stream::to(address, left / (self.0.len() - number) as u32) {
                Ok(stream) => return Ok(stream),
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

/// What the resolver finds, unless it takes longer than `time`.
fn within(
    time: Duration,
    resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let (found, result) = channel();
    let spawned = thread::Builder::new().spawn(move || {
        // The program's signals are for its own threads.
        let _ = SigSet::all().thread_block();
        // Fails if nobody waits any more.
        let _ = found.send(resolve());
    });
    spawned.map_err(named("clone3, clone"))?;
    result.recv_timeout(time).unwrap_or_else(|_| {
        let why = "the name was not resolved in time";
        Err(io::Error::new(ErrorKind::TimedOut, why))
    })
}

/// A hosts file may have an address twice.
fn each_once(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut distinct = Vec::new();
    for address in found {
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|one| one.parse().expect("an address")).collect()
    }

    #[test]
    fn an_address_that_is_found_twice_counts_once() {
        let twice = addresses(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:1"]);
        assert_eq!(each_once(twice), addresses(&["10.0.0.1:1", "10.0.0.2:1"]));
    }

    #[test]
    fn a_silent_resolver_is_not_waited_for() {
        let (_never, silence) = channel::<()>();
        let resolve = move || {
            let _ = silence.recv();
            Ok(Vec::new())
        };
        let error = within(Duration::from_millis(10), resolve).expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let found = addresses(&["10.0.0.1:1"]);
        let copy = found.clone();
        assert_eq!(within(Duration::MAX, move || Ok(copy)).expect("found"), found);
    }

    #[test]
    fn an_address_is_not_looked_up() {
        for name in ["10.1.2.3", "::1", "[::1]:99", "fe80::1%lo"] {
            assert!(name.parse::<ServerName>().expect("a server").is_numeric(), "{name}");
        }
        for name in ["localhost", "pc1.example:99"] {
            assert!(!name.parse::<ServerName>().expect("a server").is_numeric(), "{name}");
        }
    }
}
