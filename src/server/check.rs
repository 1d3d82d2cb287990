//! `--check`: a client that asks once, for health checks.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A daemon that takes longer than this is not well.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the daemon at `server` (`HOST` or `HOST:PORT`, on `port` otherwise) for
/// its uptime and returns the line that it answered.
///
/// # Errors
/// Why it could not be reached, or what it said instead.
pub fn check(server: Option<&str>, port: u16) -> io::Result<String> {
    let mut last_error = io::Error::other("no address found");
    let addresses = match server {
        Some(server) => resolve(server, port)?,
        // Not by name: a container from scratch has no /etc/hosts to ask.
        None => vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()],
    };
    for address in addresses {
        match ask(&address) {
            Ok(line) => return Ok(line),
            Err(e) => last_error = io::Error::new(e.kind(), format!("{address}: {e}")),
        }
    }
    Err(last_error)
}

fn resolve(server: &str, port: u16) -> io::Result<Vec<std::net::SocketAddr>> {
    let found = server.to_socket_addrs();
    let found = found.or_else(|_| (server.trim_matches(['[', ']']), port).to_socket_addrs());
    let unknown = |e: io::Error| io::Error::new(e.kind(), format!("{server}: {e}"));
    Ok(found.map_err(unknown)?.collect())
}

fn ask(address: &std::net::SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"STATS UPTIME\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.starts_with("uptime: ") && line.ends_with('\n') {
        Ok(line)
    } else {
        let said = format!("answered {line:?}, not its uptime");
        Err(io::Error::new(io::ErrorKind::InvalidData, said))
    }
}
