//! Which clients are admitted: `--max-connections`, `--allow` and
//! `--max-connections-per-ip`. Other connections are closed once accepted, counted
//! separately, and logged at a limited rate.

use super::addresses::ip_of;
use super::connection::Connection;
use super::logging::limited;
use super::options::Options;
use super::world::fd::OwnedFd;
use crate::engine::statistics::Counters;
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::IpAddr;

/// The rules and the state that they need.
pub(super) struct Admission {
    connections_max: usize,
    allowed: Vec<IpNet>,
    per_ip_max: Option<usize>,
    /// Maintained only if there is a limit per address.
    connections_by_ip: HashMap<IpAddr, usize>,
    ip_by_slot: HashMap<usize, IpAddr>,
    /// Each client's address is noted at once, so that `--slow` can name a client whose
    /// connection has broken.
    notes_addresses: bool,
}

impl Admission {
    pub(super) fn new(options: &Options) -> Self {
        Admission {
            connections_max: options.max_connections.unwrap_or(usize::MAX),
            allowed: options.allow.clone(),
            per_ip_max: options.max_connections_per_ip,
            connections_by_ip: HashMap::new(),
            ip_by_slot: HashMap::new(),
            notes_addresses: options.slow.is_some(),
        }
    }

    /// Whether to serve a newcomer while `open` clients are served.
    pub(super) fn admits(
        &mut self,
        socket: &OwnedFd,
        open: usize,
        counters: &mut Counters,
    ) -> bool {
        if open >= self.connections_max {
            counters.rejected_connections += 1;
            limited!(warn, "--max-connections is reached: closed a new connection");
            return false;
        }
        // The address costs a system call, so it is looked up only for a rule.
        if self.allowed.is_empty() && self.per_ip_max.is_none() {
            return true;
        }
        let ip = match ip_of(socket) {
            Ok(Some(ip)) => ip,
            // For a Unix socket, the file's mode decides.
            Ok(None) => return true,
            // It has left already; serving it would still read its requests.
            Err(_) => return false,
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|net| net.contains(&ip)) {
            counters.denied_connections += 1;
            limited!(warn, "{ip} is not in --allow: closed its connection");
            return false;
        }
        let connections = self.connections_by_ip.get(&ip).copied().unwrap_or(0);
        if self.per_ip_max.is_some_and(|max| connections >= max) {
            counters.rejected_connections_per_ip += 1;
            limited!(
                warn,
                "--max-connections-per-ip is reached: closed a new connection from {ip}"
            );
            return false;
        }
        true
    }

    /// Counts the new connection in `slot`.
    pub(super) fn note_opened(&mut self, slot: usize, connection: &mut Connection) {
        if self.notes_addresses {
            connection.note_origin();
        }
        if self.per_ip_max.is_none() {
            return;
        }
        if let Ok(Some(ip)) = ip_of(connection.stream.socket()) {
            *self.connections_by_ip.entry(ip).or_default() += 1;
            self.ip_by_slot.insert(slot, ip);
        }
    }

    /// Uncounts the connection in `slot`, which is closed.
    pub(super) fn note_closed(&mut self, slot: usize) {
        let Some(ip) = self.ip_by_slot.remove(&slot) else {
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
    pub(super) fn shrink(&mut self) {
        self.connections_by_ip.shrink_to_fit();
        self.ip_by_slot.shrink_to_fit();
    }
}
