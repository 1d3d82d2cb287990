//! The cheapest question to a server: the daemon's `--check`.

use crate::server_name::ServerName;
use crate::stats_connection::{StatsConnection, beginning};

/// Asks for the uptime.
///
/// # Errors
/// Why the server is unreachable, or what it answered instead.
pub fn uptime(server: &ServerName) -> Result<String, String> {
    let answer = StatsConnection::connect(server).and_then(|mut q| q.query("UPTIME"));
    match answer {
        Ok(line) if line.starts_with("uptime: ") => Ok(line),
        Ok(line) => Err(format!("{server}: answered {:?}, not its uptime", beginning(&line))),
        Err(e) => Err(format!("{server}: {e}")),
    }
}

/// The servers to try for a daemon given as `HOST:PORT`, or as `HOST` with this `port`.
/// Without a name, the loopback addresses of this host.
///
/// # Errors
/// The name is invalid.
pub fn places(name: Option<&str>, port: u16) -> Result<Vec<ServerName>, String> {
    // Not by name: a container built from scratch has no /etc/hosts.
    let names = name.map_or(vec!["127.0.0.1", "::1"], |name| vec![name]);
    let server = |name: &&str| ServerName::on_port(name, port).map_err(|e| e.to_string());
    names.iter().map(server).collect()
}
