//! `--free-port PID`, for the Debian package's scripts: they replace the C daemon by this one and
//! this one by the C daemon, which binds its port without SO_REUSEADDR. Then what remains of a
//! closed connection (TIME_WAIT) keeps the next daemon from the port for a minute.

use crate::logging::logger::print;
use crate::platform::failed_call::named;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_acceptconn, socket_domain};
use rustix::net::{AddressFamily, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// The kernel forgets a connection after a minute in TIME_WAIT.
const SECONDS: usize = 65;

/// The states of closed connections in /proc/net/tcp (proc_net_tcp.rst of the kernel's documentation):
/// FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING.
const CLOSED: [&str; 5] = ["04", "05", "06", "09", "0B"];

/// From now on the process resets each connection that it closes, since a reset one leaves no
/// remains. Waits until those that it has closed before are gone. Meanwhile it keeps serving.
pub fn free_port(pid: i32) -> Result<String, String> {
    let ports = leave_no_remains(pid).map_err(|e| format!("process {pid}: {e}"))?;
    if ports.is_empty() {
        return Err(format!("process {pid} listens on no TCP port"));
    }
    for second in 0..=SECONDS {
        if !have_remains(&ports).map_err(|e| format!("/proc/net: {e}"))? {
            return Ok(format!("free once process {pid} ends: ports {ports:?}"));
        }
        if second == 0 {
            print("old connections keep the port; waiting for up to a minute");
        }
        pause();
    }
    Err(format!("not free yet: ports {ports:?}"))
}

#[expect(clippy::disallowed_methods, reason = "no daemon runs that it could block")]
fn pause() {
    thread::sleep(Duration::from_secs(1));
}

/// Returns the ports on which the process listens. Two rounds: the second is for what it accepts
/// during the first. What a socket accepts has the options of that socket.
fn leave_no_remains(pid: i32) -> io::Result<BTreeSet<u16>> {
    let process = Pid::from_raw(pid.max(0)).ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty()).map_err(named("pidfd_open"))?;
    let mut ports = BTreeSet::new();
    for _ in 0..2 {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
                Ok(socket) => ports.extend(reset_at_close(&socket)),
                // Closed meanwhile.
                Err(Errno::BADF) => {}
                Err(e) => return Err(named("pidfd_getfd")(e)),
            }
        }
    }
    Ok(ports)
}

/// Returns the port if the descriptor is a TCP socket that listens.
fn reset_at_close(socket: &OwnedFd) -> Option<u16> {
    // Fails if it is no socket.
    let domain = socket_domain(socket).ok()?;
    if !matches!(domain, AddressFamily::INET | AddressFamily::INET6) {
        return None;
    }
    set_socket_linger(socket, Some(Duration::ZERO)).ok()?;
    let name = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
    socket_acceptconn(socket).ok()?.then(|| name.port())
}

fn have_remains(ports: &BTreeSet<u16>) -> io::Result<bool> {
    let mut found = names_remains(&fs::read_to_string("/proc/net/tcp")?, ports);
    // Missing without IPv6.
    if let Ok(table) = fs::read_to_string("/proc/net/tcp6") {
        found |= names_remains(&table, ports);
    }
    Ok(found)
}

/// Whether a table such as /proc/net/tcp has a closed connection of one of these ports of this host.
fn names_remains(table: &str, ports: &BTreeSet<u16>) -> bool {
    table.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let port = columns.next().and_then(|address| address.rsplit_once(':'));
        let port = port.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        let state = columns.nth(1).unwrap_or_default();
        port.is_some_and(|port| ports.contains(&port)) && CLOSED.contains(&state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_serves_no_port_is_an_error() {
        // This process has other tests' sockets, and the first process is nobody's to change.
        for pid in [0, -1, i32::MIN, i32::MAX] {
            let error = free_port(pid).unwrap_err();
            assert!(error.starts_with(&format!("process {pid}: ")), "{error}");
        }
    }

    #[test]
    fn closed_connections_of_the_port_are_found() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        for (local, remote, state, expected) in [
            ("0100007F:1D6B", "0100007F:BEEF", "06", true),
            (
                "00000000000000000000000001000000:1D6B",
                "00000000000000000000000000000000:0016",
                "0B",
                true,
            ),
            ("0100007F:1D6B", "0100007F:BEEF", "01", false),
            ("0100007F:1D6B", "00000000:0000", "0A", false),
            ("0100007F:1D6B", "0100007F:BEEF", "08", false),
            ("0100007F:BEEF", "0100007F:1D6B", "06", false),
            ("0100007F:1D6C", "0100007F:BEEF", "06", false),
        ] {
            let table = format!("{head}\n   0: {local} {remote} {state} 00000000:00000000\n");
            let found = names_remains(&table, &BTreeSet::from([7531]));
            assert_eq!(found, expected, "{local} {remote} {state}");
        }
        assert!(!names_remains("", &BTreeSet::from([7531])));
    }
}
