//! The addresses of a server, looked up in bounded time.

use super::failed_call::named;
use super::server_name::ServerName;
use nix::sys::signal::SigSet;
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A question for a server's addresses. A thread waits for the resolver, which nothing can
/// interrupt: it may outlive this.
#[derive(Debug)]
pub struct LookUp(Receiver<io::Result<Vec<SocketAddr>>>);

impl LookUp {
    /// Asks for the addresses of the server's host. An address needs no thread.
    ///
    /// # Errors
    /// There can't be a thread.
    pub fn begin(server: &ServerName) -> io::Result<LookUp> {
        let (host, port) = (server.host().to_owned(), server.port());
        let resolve = move || each_once((host.as_str(), port).to_socket_addrs()?);
        if !server.is_numeric() {
            return LookUp::run(resolve);
        }
        let (found, result) = channel();
        let _ = found.send(resolve());
        Ok(LookUp(result))
    }

    fn run(
        resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<LookUp> {
        let (found, result) = channel();
        let spawned = thread::Builder::new().spawn(move || {
            // The program's signals are for its own threads.
            let _ = SigSet::all().thread_block();
            // Fails if nobody waits any more.
            let _ = found.send(resolve());
        });
        spawned.map_err(named("clone3, clone"))?;
        Ok(LookUp(result))
    }

    /// The addresses, each once, in the order of the resolver. `None` if it has not answered yet;
    /// an answer comes once.
    ///
    /// # Errors
    /// The name has no address.
    pub fn wait(&self, timeout: Duration) -> Option<io::Result<Vec<SocketAddr>>> {
        match self.0.recv_timeout(timeout) {
            Ok(found) => Some(found),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(io::Error::other("the resolver has ended without an answer")))
            }
        }
    }

    /// What it means that there was no answer in time.
    pub fn too_late() -> io::Error {
        io::Error::new(ErrorKind::TimedOut, "the name was not resolved in time")
    }
}

/// A hosts file may have an address twice.
///
/// # Errors
/// There is none.
fn each_once(found: impl Iterator<Item = SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let mut seen = HashSet::new();
    let distinct: Vec<_> = found.filter(|address| seen.insert(*address)).collect();
    if distinct.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    }
    Ok(distinct)
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
        let once = each_once(twice.into_iter()).expect("two");
        assert_eq!(once, addresses(&["10.0.0.1:1", "10.0.0.2:1"]));
        assert!(each_once(std::iter::empty()).is_err());
    }

    #[test]
    fn a_silent_resolver_is_not_waited_for() {
        let (_never, silence) = channel::<()>();
        let resolve = move || {
            let _ = silence.recv();
            Ok(Vec::new())
        };
        let look_up = LookUp::run(resolve).expect("a thread");
        assert!(look_up.wait(Duration::from_millis(10)).is_none());
        let found = addresses(&["10.0.0.1:1"]);
        let copy = found.clone();
        let look_up = LookUp::run(move || Ok(copy)).expect("a thread");
        assert_eq!(look_up.wait(Duration::MAX).expect("an answer").expect("found"), found);
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
