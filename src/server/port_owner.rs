//! Finds the process that listens on a port, as far as /proc shows it (proc_net(5),
//! proc_pid_fd(5)), for the error message when the port is taken.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// The listening state in the tables of TCP sockets (include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// Sockets that their process has closed: FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK,
/// CLOSING.
const LINGERING: [&str; 5] = ["04", "05", "06", "09", "0B"];

/// The owner of a port that is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The listening process and its name.
    Process(u32, String),
    /// An unidentified process of this user id listens.
    ProcessOf(u32),
    /// No process listens. The kernel keeps the connections that a stopped daemon
    /// closed for 60 seconds.
    OldConnections,
    Unknown,
}

/// A row of the kernel's table.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    address: SocketAddr,
    listens: bool,
    uid: u32,
    inode: u64,
}

/// Finds the owner that prevents listening on `address`.
pub(super) fn find(address: SocketAddr) -> Owner {
    // Not /proc/net, which a unit's ProcSubset=pid hides.
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let texts = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
    let sockets: Vec<Socket> = texts
        .flat_map(|text| sockets(&text))
        .filter(|socket| overlap(socket.address, address))
        .collect();
    match sockets.iter().find(|socket| socket.listens) {
        Some(listener) => match process_with(listener.inode) {
            Some((pid, name)) => Owner::Process(pid, name),
            None => Owner::ProcessOf(listener.uid),
        },
        None if sockets.is_empty() => Owner::Unknown,
        None => Owner::OldConnections,
    }
}

fn sockets(table: &str) -> Vec<Socket> {
    table.lines().skip(1).filter_map(parse_row).collect()
}

/// Parses a row; `None` unless its socket occupies the port.
fn parse_row(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let state = *fields.get(3)?;
    if state != LISTEN && !LINGERING.contains(&state) {
        return None;
    }
    let (ip, port) = fields[1].split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Socket {
        address: SocketAddr::new(parse_ip(ip)?, port),
        listens: state == LISTEN,
        uid: fields.get(7)?.parse().ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Parses hexadecimal 32-bit words in native byte order.
fn parse_ip(digits: &str) -> Option<IpAddr> {
    let word = |i: usize| u32::from_str_radix(digits.get(8 * i..8 * i + 8)?, 16).ok();
    if digits.len() == 8 {
        return Some(IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())));
    }
    let mut bytes = [0; 16];
    for (i, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        chunk.copy_from_slice(&word(i)?.to_ne_bytes());
    }
    Some(IpAddr::V6(Ipv6Addr::from(bytes)))
}

/// Whether two sockets can't listen on both addresses. An unspecified IPv6 address may
/// or may not serve IPv4; the table does not show it.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip = a.ip().to_canonical() == b.ip().to_canonical();
    a.port() == b.port() && (same_ip || a.ip().is_unspecified() || b.ip().is_unspecified())
}

/// The first process that has the socket open, and its name.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let has_it = |pid: &u32| {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        let mut links = descriptors.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|link| link == Path::new(&wanted))
    };
    let names = fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
    let pid = names.filter_map(|name| name.to_str()?.parse().ok()).find(has_it)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn a_table_of_the_kernel_is_understood() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1D6B 00000000:0000 0A 00000000:00000000 00:00000000 00000000   107        0 10561 1 0
   1: 0100007F:1D6B 0100007F:C0DE 01 00000000:00000000 00:00000000 00000000     0        0 10562 1 0
   2: 0100007F:1D6B 0100007F:C0DF 06 00000000:00000000 03:000003F1 00000000     0        0 0 3 0
   3: B80D0120000000000000000001000000:1D6B 00000000000000000000000000000000:0000 0A 0:0 00:0 0 7 0 9 1";
        let row = |address: &str, listens, uid, inode| Socket {
            address: address.parse().expect("an address"),
            listens,
            uid,
            inode,
        };
        let expected = [
            row("127.0.0.1:7531", true, 107, 10561),
            row("127.0.0.1:7531", false, 0, 0),
            row("[2001:db8::1]:7531", true, 7, 9),
        ];
        assert_eq!(sockets(table), expected);
    }

    #[test]
    fn what_is_no_table_has_no_rows() {
        for text in ["", "header\n0:", "header\n0: 1:2 3:4 0A", "header\n0: é:1 x 0A x x x 1 x 2"]
        {
            assert_eq!(sockets(text), []);
        }
    }
}
