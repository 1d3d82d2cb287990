//! Who may come in: `--max-connections`, `--allow`, `--max-connections-per-ip`.
//! Others are closed as soon as they are accepted, counted apart, and logged at
//! a limited rate.

use super::logging::RateLimit;
use super::options::Options;
use crate::engine::statistics::Counters;
use ipnet::IpNet;
use log::warn;
use rustix::io::Errno;
use rustix::net::getpeername;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// The rules, and what has to be remembered for them.
pub(super) struct Admission {
    connections_max: usize,
    allowed: Vec<IpNet>,
    per_ip_max: Option<usize>,
    /// Kept only while there is a limit per address.
    connections_by_ip: HashMap<IpAddr, usize>,
    ip_by_slot: HashMap<usize, IpAddr>,
    full_log: RateLimit,
    denied_log: RateLimit,
    per_ip_log: RateLimit,
}

impl Admission {
    pub(super) fn new(options: &Options) -> Self {
        Admission {
            connections_max: options.max_connections.unwrap_or(usize::MAX),
            allowed: options.allow.clone(),
            per_ip_max: options.max_connections_per_ip,
            connections_by_ip: HashMap::new(),
            ip_by_slot: HashMap::new(),
            full_log: RateLimit::default(),
            denied_log: RateLimit::default(),
            per_ip_log: RateLimit::default(),
        }
    }

    /// Whether a newcomer is served, while `open` others are.
    pub(super) fn admits(
        &mut self,
        socket: &OwnedFd,
        open: usize,
        counters: &mut Counters,
    ) -> bool {
        if open >= self.connections_max {
            counters.rejected_connections += 1;
            log(&mut self.full_log, "--max-connections is reached: one more was closed");
            return false;
        }
        // The address costs a system call: only where somebody wants to know.
        if self.allowed.is_empty() && self.per_ip_max.is_none() {
            return true;
        }
        let ip = match ip_of(socket) {
            Ok(Some(ip)) => ip,
            // A Unix socket has its file's mode to say who may come in.
            Ok(None) => return true,
            // It has gone again; what it sent could still be read, though.
            Err(_) => return false,
        };
        if !self.allowed.is_empty() && !self.allowed.iter().any(|net| net.contains(&ip)) {
            counters.denied_connections += 1;
            log(&mut self.denied_log, &format!("{ip} is not in --allow and was closed"));
            return false;
        }
        let connections = self.connections_by_ip.get(&ip).copied().unwrap_or(0);
        if self.per_ip_max.is_some_and(|max| connections >= max) {
            counters.rejected_connections_per_ip += 1;
            let text = format!("--max-connections-per-ip is reached: one more of {ip} was closed");
            log(&mut self.per_ip_log, &text);
            return false;
        }
        true
    }

    /// Counts a connection that is served in `slot`.
    pub(super) fn note_opened(&mut self, slot: usize, socket: &OwnedFd) {
        if self.per_ip_max.is_none() {
            return;
        }
        if let Ok(Some(ip)) = ip_of(socket) {
            *self.connections_by_ip.entry(ip).or_default() += 1;
            self.ip_by_slot.insert(slot, ip);
        }
    }

    /// The connection in `slot` is no more.
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

    /// Gives back memory after a crowd has left.
    pub(super) fn shrink(&mut self) {
        self.connections_by_ip.shrink_to_fit();
        self.ip_by_slot.shrink_to_fit();
    }
}

/// `None` for a Unix socket. Through a socket for both, an IPv4 address comes as
/// an IPv6 one.
///
/// # Errors
/// The peer is not connected any more.
fn ip_of(socket: &OwnedFd) -> Result<Option<IpAddr>, Errno> {
    let Some(address) = getpeername(socket)? else {
        return Ok(None);
    };
    Ok(SocketAddr::try_from(address).ok().map(|address| address.ip().to_canonical()))
}

fn log(limit: &mut RateLimit, text: &str) {
    if let Some(suppressed) = limit.admit() {
        warn!("{text}{suppressed}");
    }
}
