//! Which clients are admitted: `--allow`, `--max-connections`, `--max-connections-per-ip`, and
//! the count of connections of each address. Other connections are closed once accepted, without
//! any of the states in `connections.rs`, counted separately, and logged at a limited rate.

use crate::clients::connection::Connection;
use crate::clients::connection_counts::ConnectionCounts;
use crate::logging::rate_limit::limited;
use crate::options::Options;
use crate::platform::os::fd::OwnedFd;
use crate::sockets::socket::peer_address;
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;

/// The rules and the state that they need.
pub(crate) struct Admission {
    connections_max: usize,
    allowed: Vec<IpNet>,
    per_ip_max: Option<usize>,
    /// Maintained only if there is a limit per address.
    connections_by_ip: HashMap<IpAddr, usize>,
    /// Each client's address is noted at once, so that `--slow` can name a client whose
    /// connection has broken.
    notes_addresses: bool,
}

impl Admission {
    pub(crate) fn new(options: &Options) -> Self {
        Admission {
            connections_max: options.max_connections.unwrap_or(usize::MAX),
            allowed: options.allow.clone(),
            per_ip_max: options.max_connections_per_ip,
            connections_by_ip: HashMap::new(),
            notes_addresses: options.slow.is_some(),
        }
    }

    /// Whether to serve a new client while `open` clients are served.
    pub(crate) fn admits(
        &mut self,
        socket: &OwnedFd,
        open: usize,
        counts: &mut ConnectionCounts,
    ) -> bool {
        if open >= self.connections_max {
            counts.rejected += 1;
            limited!(warn, "--max-connections is reached: closed a new connection");
            return false;
        }
        // The address costs a system call, so it is looked up only for a rule.
        if self.allowed.is_empty() && self.per_ip_max.is_none() {
            return true;
        }
        // A client that has left already is not served: that would still read its requests.
        let Ok(ip) = peer_address(socket).map(|address| address.ip()) else {
            return false;
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|net| net.contains(&ip)) {
            counts.denied += 1;
            limited!(warn, "{ip} is not in --allow: closed its connection");
            return false;
        }
        let connections = self.connections_by_ip.get(&ip).copied().unwrap_or(0);
        if self.per_ip_max.is_some_and(|max| connections >= max) {
            counts.rejected_per_ip += 1;
            limited!(
                warn,
                "--max-connections-per-ip is reached: closed a new connection from {ip}"
            );
            return false;
        }
        true
    }

    /// Counts a new connection.
    pub(crate) fn count_opened(&mut self, connection: &Connection) {
        if self.notes_addresses || self.per_ip_max.is_some() {
            connection.record_origin();
        }
        if let (Some(ip), Some(_)) = (connection.ip(), self.per_ip_max) {
            *self.connections_by_ip.entry(ip).or_default() += 1;
        }
    }

    /// Uncounts a connection that is closed.
    pub(crate) fn count_closed(&mut self, connection: &Connection) {
        let Some(ip) = connection.ip() else {
            return;
        };
        if let Some(connections) = self.connections_by_ip.get_mut(&ip) {
            *connections -= 1;
            if *connections == 0 {
                self.connections_by_ip.remove(&ip);
            }
        }
    }

    /// Frees memory after many clients have left.
    pub(crate) fn shrink(&mut self) {
        self.connections_by_ip.shrink_to_fit();
    }
}
