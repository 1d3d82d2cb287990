//! A daemon that serves HTTP.

use super::Server;
use std::net::SocketAddr;

/// A daemon that serves HTTP, and where.
pub(crate) struct Daemon {
    pub(crate) server: Server,
    pub(crate) http: SocketAddr,
}

impl Daemon {
    pub(crate) fn start(arguments: &[&str]) -> Daemon {
        Daemon::of(Server::start_with(&[&["--http", "127.0.0.1:0"], arguments].concat()))
    }

    /// Of several addresses, the first.
    pub(crate) fn of(server: Server) -> Daemon {
        let line = server.log.wait_for("HTTP on ");
        let (_, addresses) = line.rsplit_once("HTTP on ").expect("an address");
        let http = addresses.split(", ").next().and_then(|address| address.parse().ok());
        Daemon { server, http: http.expect("an address") }
    }
}
