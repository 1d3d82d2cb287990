//! `--free-port PID`, for the Debian package's scripts: they replace the C daemon by this one and
//! this one by the C daemon, which binds its port without SO_REUSEADDR. Then what remains of a
//! closed connection (TIME_WAIT) keeps the next daemon from the port for a minute.

use crate::logging::logger::print;
use crate::platform::failed_call::named;
use crate::platform::os::event::{PollFd, PollFlags, Timespec, poll};
use crate::platform::os::fd::OwnedFd as SignalFd;
use crate::platform::sys;
use rustix::fs::{Dir, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_acceptconn, socket_domain};
use rustix::net::{AddressFamily, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kernel forgets a connection after a minute in TIME_WAIT (TCP_TIMEWAIT_LEN in its
/// include/net/tcp.h); its timers may be some seconds late.
const WAIT_S: usize = 65;

/// The states of closed connections in /proc/net/tcp (proc_net_tcp.rst of the kernel's documentation):
/// FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING.
const CLOSED: [&str; 5] = ["04", "05", "06", "09", "0B"];

/// What the daemon's process is called: this one's and the C daemon's, with a replaced binary too.
const NAME: &str = "poolcounterd";

/// From now on the daemon resets each connection that it closes, since a reset one leaves no
/// remains. Waits until those that it has closed before are gone. Meanwhile it keeps serving.
///
/// A reset also loses what the client has not read yet. So this is undone unless the daemon is
/// to end right now: after any error, and at a signal. A hot restart undoes it too.
pub fn free_port(pid: i32) -> io::Result<String> {
    let explained = |e| io::Error::other(format!("process {pid}: {e}"));
    let daemon = Daemon::find(pid).map_err(explained)?;
    let signals = sys::take_over_signals()?;
    let freed = daemon.leave_no_remains(&signals);
    if freed.is_err() {
        // What refused it before refuses it now.
        let _ = daemon.set_linger(None);
    }
    let ports = freed.map_err(explained)?;
    Ok(format!("free once process {pid} ends: ports {ports:?}"))
}

/// Waits for a second. Returns whether a signal has come.
fn pause(signals: &SignalFd) -> bool {
    let mut fds = [PollFd::new(signals, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// The process of a daemon, even if its number is another's after its end.
struct Daemon {
    /// /proc/PID. Nothing in it can be opened once the process has ended.
    folder: OwnedFd,
    pidfd: OwnedFd,
}

impl Daemon {
    fn find(pid: i32) -> io::Result<Self> {
        let number = Pid::from_raw(pid.max(0)).ok_or(Errno::SRCH)?;
        let path = format!("/proc/{pid}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&path, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => Errno::SRCH.into(),
            e => named("openat")(e),
        })?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(named("pidfd_open"))?;
        let daemon = Daemon { folder, pidfd };
        // Read last: it has not ended, so both are of one process.
        let name = daemon.read("comm")?;
        match name.trim_end() {
            NAME => Ok(daemon),
            other => Err(io::Error::other(format!("{other:?} is no {NAME}"))),
        }
    }

    fn open(&self, path: &str) -> io::Result<OwnedFd> {
        let opened = openat(&self.folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(named("openat"))
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        File::from(self.open(path)?).read_to_string(&mut text).map_err(named("read"))?;
        Ok(text)
    }

    /// Returns the ports, which nothing keeps any more once the process has ended.
    fn leave_no_remains(&self, signals: &SignalFd) -> io::Result<BTreeSet<u16>> {
        let ports = self.set_linger(Some(Duration::ZERO))?;
        if ports.is_empty() {
            return Err(io::Error::other("it listens on no TCP port"));
        }
        for second in 0..=WAIT_S {
            if !self.have_remains(&ports)? {
                return Ok(ports);
            }
            if second == 0 {
                print("old connections keep the port; waiting for up to a minute");
            }
            if pause(signals) {
                return Err(io::Error::other("a signal has ended the wait"));
            }
        }
        Err(io::Error::other(format!("not free yet: ports {ports:?}")))
    }

    /// Returns the ports on which the process listens. Two rounds: the second is for what it
    /// accepts during the first. What a socket accepts has the options of that socket.
    fn set_linger(&self, linger: Option<Duration>) -> io::Result<BTreeSet<u16>> {
        let mut ports = BTreeSet::new();
        for _ in 0..2 {
            for entry in Dir::new(self.open("fd")?).map_err(named("getdents64"))? {
                let entry = entry.map_err(named("getdents64"))?;
                let Some(number) = entry.file_name().to_str().ok().and_then(|it| it.parse().ok())
                else {
                    continue;
                };
                match pidfd_getfd(&self.pidfd, number, PidfdGetfdFlags::empty()) {
                    Ok(descriptor) => ports.extend(set_linger(&descriptor, linger)?),
                    // Closed meanwhile.
                    Err(Errno::BADF) => {}
                    Err(e) => return Err(named("pidfd_getfd")(e)),
                }
            }
        }
        Ok(ports)
    }

    /// Whether its network has closed connections of one of these ports.
    fn have_remains(&self, ports: &BTreeSet<u16>) -> io::Result<bool> {
        let mut found = names_remains(&self.read("net/tcp")?, ports);
        // Missing without IPv6.
        if let Ok(table) = self.read("net/tcp6") {
            found |= names_remains(&table, ports);
        }
        Ok(found)
    }
}

/// Returns the port if the descriptor is a TCP socket that listens.
fn set_linger(descriptor: &OwnedFd, linger: Option<Duration>) -> io::Result<Option<u16>> {
    let domain = match socket_domain(descriptor) {
        // It is no socket; nor is one that was opened with O_PATH.
        Err(Errno::NOTSOCK | Errno::BADF) => return Ok(None),
        domain => domain.map_err(named("getsockopt(SO_DOMAIN)"))?,
    };
    if !matches!(domain, AddressFamily::INET | AddressFamily::INET6) {
        return Ok(None);
    }
    let listens = socket_acceptconn(descriptor).map_err(named("getsockopt(SO_ACCEPTCONN)"))?;
    let name = getsockname(descriptor).map_err(named("getsockname"))?;
    let address = SocketAddr::try_from(name)?;
    set_socket_linger(descriptor, linger).map_err(named("setsockopt(SO_LINGER)"))?;
    Ok(listens.then(|| address.port()))
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
        // The first process, and this one with other tests' sockets, have other names.
        let own = i32::try_from(std::process::id()).expect("a process id");
        for pid in [0, -1, 1, own, i32::MIN, i32::MAX] {
            let error = free_port(pid).unwrap_err().to_string();
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
