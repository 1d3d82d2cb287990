//! The name of a socket, from the bytes that the kernel reports: an address, a path, an abstract
//! name or none; as text for logs and lists.

use protocol::{key_text, key_text_cut};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Precedes the path in the name of a Unix socket.
pub(crate) const UNIX_PREFIX: &str = "unix:";

/// Where the path or the abstract name of a Unix socket begins (unix(7)).
const FAMILY_BYTES: usize = 2;

/// How long a client's name may be as text: as long as keys in lists. A client chooses its path.
const BRIEF_BYTES_MAX: usize = 128;

/// The name of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocketName {
    /// A dual-stack socket reports an IPv4 client as an IPv4-mapped IPv6 address,
    /// `[::ffff:10.1.2.3]:4711`, which is converted back (ipv6(7)).
    Tcp(SocketAddr),
    /// The path of a Unix socket, of 1 to 108 bytes without a NUL, in any encoding.
    Path(Vec<u8>),
    /// A Unix socket's name in the abstract namespace, without the NUL before it: 0 to 107 bytes,
    /// NULs among them.
    Abstract(Vec<u8>),
    /// A Unix socket that was not bound.
    Unnamed,
}

impl SocketName {
    /// Reads a socket's name: the `bytes` of a `sockaddr` as getsockname(2) and getpeername(2)
    /// write them. A path of 108 bytes leaves no room for its NUL, and then the kernel reports one
    /// byte more than a `sockaddr_un` has.
    ///
    /// `None` if the family is not IPv4, IPv6 or Unix, or the bytes end too early.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (family, rest) = bytes.split_first_chunk::<FAMILY_BYTES>()?;
        match i32::from(u16::from_ne_bytes(*family)) {
            libc::AF_INET => ipv4(rest).map(SocketName::tcp),
            libc::AF_INET6 => ipv6(rest).map(SocketName::tcp),
            libc::AF_UNIX => Some(SocketName::unix(rest)),
            _ => None,
        }
    }

    fn tcp(mut address: SocketAddr) -> Self {
        address.set_ip(address.ip().to_canonical());
        SocketName::Tcp(address)
    }

    fn unix(rest: &[u8]) -> Self {
        match rest.split_first() {
            None => SocketName::Unnamed,
            Some((0, name)) => SocketName::Abstract(name.to_vec()),
            Some(_) => {
                let path = rest.split(|&byte| byte == 0).next().unwrap_or_default();
                SocketName::Path(path.to_vec())
            }
        }
    }

    /// The name of a client in logs and lists. As long as its key may be: what is longer is cut.
    pub(crate) fn brief(&self) -> String {
        match self.unix_bytes() {
            Some((prefix, bytes)) => {
                let bytes_max = BRIEF_BYTES_MAX - prefix.len();
                format!("{prefix}{}", key_text_cut(bytes, bytes_max))
            }
            None => self.to_string(),
        }
    }

    /// What precedes the bytes of a Unix socket's name, and these.
    fn unix_bytes(&self) -> Option<(&'static str, &[u8])> {
        match self {
            SocketName::Path(path) => Some((UNIX_PREFIX, path)),
            SocketName::Abstract(name) => Some(("unix:@", name)),
            SocketName::Tcp(_) | SocketName::Unnamed => None,
        }
    }
}

/// The whole name, escaped as a key is.
impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.unix_bytes()) {
            (_, Some((prefix, bytes))) => write!(f, "{prefix}{}", key_text(bytes)),
            (SocketName::Tcp(address), None) => address.fmt(f),
            (_, None) => f.write_str("unix"),
        }
    }
}

/// What follows the family in a `sockaddr_in`: port and address, in network order (ip(7)).
fn ipv4(bytes: &[u8]) -> Option<SocketAddr> {
    let (port, rest) = bytes.split_first_chunk()?;
    let (ip, _) = rest.split_first_chunk::<4>()?;
    Some(SocketAddrV4::new(Ipv4Addr::from(*ip), u16::from_be_bytes(*port)).into())
}

/// What follows the family in a `sockaddr_in6`: port, flow information, address, scope (ipv6(7)).
fn ipv6(bytes: &[u8]) -> Option<SocketAddr> {
    let (port, rest) = bytes.split_first_chunk()?;
    let (flow, rest) = rest.split_first_chunk()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let (scope, _) = rest.split_first_chunk()?;
    let (port, flow) = (u16::from_be_bytes(*port), u32::from_be_bytes(*flow));
    let scope = u32::from_ne_bytes(*scope);
    Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, scope).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(name: &[u8]) -> Vec<u8> {
        [&(libc::AF_UNIX as u16).to_ne_bytes()[..], name].concat()
    }

    /// Whatever the kernel may report: every family, every length of a `sockaddr_storage`.
    #[test]
    fn each_length_of_a_name_is_read() {
        for family in 0..=u16::from(u8::MAX) {
            for len in 0..=128 {
                for filling in [0, b'a', 0xff] {
                    let mut bytes = [&family.to_ne_bytes()[..], &[filling; 126]].concat();
                    bytes.truncate(len);
                    let name = SocketName::parse(&bytes);
                    let brief = name.as_ref().map_or_else(String::new, SocketName::brief);
                    // And a mark that it was cut.
                    assert!(brief.len() <= BRIEF_BYTES_MAX + 4, "{brief}");
                    let is_read = match i32::from(family) {
                        libc::AF_INET => len >= 8,
                        libc::AF_INET6 => len >= 28,
                        libc::AF_UNIX => len >= 2,
                        _ => false,
                    };
                    assert_eq!(name.is_some(), is_read, "{family} {len}");
                }
            }
        }
    }

    #[test]
    fn names_are_text_without_spaces() {
        let longest = [b"/".as_slice(), &[b'x'; 107]].concat();
        for (name, text) in [
            (unix(b""), "unix"),
            (unix(b"/run/a.sock\0"), "unix:/run/a.sock"),
            (unix(b"/run/a.sock"), "unix:/run/a.sock"),
            (unix(b"/home/a b\nRELEASED\0"), "unix:/home/a\\x20b\\x0aRELEASED"),
            (unix(b"/\xff\0"), "unix:/\\xff"),
            (unix(b"\0"), "unix:@"),
            (unix(b"\x000f3a1"), "unix:@0f3a1"),
            (unix(b"\0a\0b"), "unix:@a\\x00b"),
            (unix(&[&longest[..], b"\0"].concat()), &format!("unix:/{}", "x".repeat(107))),
        ] {
            let name = SocketName::parse(&name).expect("a name");
            assert_eq!((name.to_string(), name.brief()), (text.to_owned(), text.to_owned()));
        }
        let odd = SocketName::Path(vec![0xff; 108]);
        assert_eq!(odd.to_string().len(), "unix:".len() + 4 * 108);
        assert_eq!(odd.brief(), format!("unix:{}\\...", "\\xff".repeat(30)));
    }

    #[test]
    fn addresses_are_canonical() {
        let port = 4711_u16.to_be_bytes();
        let v4 = [&(libc::AF_INET as u16).to_ne_bytes()[..], &port, &[10, 1, 2, 3], &[0; 8]];
        assert_eq!(SocketName::parse(&v4.concat()).expect("a name").to_string(), "10.1.2.3:4711");
        let v6 = |ip: Ipv6Addr, scope: u32| {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            let parts: [&[u8]; 5] = [&family, &port, &[0; 4], &ip.octets(), &scope.to_ne_bytes()];
            SocketName::parse(&parts.concat()).expect("a name").to_string()
        };
        assert_eq!(v6("::ffff:10.1.2.3".parse().unwrap(), 0), "10.1.2.3:4711");
        assert_eq!(v6("fe80::1".parse().unwrap(), 3), "[fe80::1%3]:4711");
    }
}
