//! Names of servers, read from text: host, port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The port of PoolCounter.
pub const PORT: u16 = 7531;

/// A server as it is configured: `host`, `host:port`, `[v6]:port` or a literal IPv6 address.
///
/// Names are equal if they are spelled alike: the text chooses the server of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerName {
    name: String,
    host: String,
    port: u16,
}

/// An invalid name of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadServerName(String);

impl fmt::Display for BadServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped, because what is wrong may not be seen.
        let shown = self.0.escape_default();
        write!(f, "a server is host, host:port or [v6]:port, not \"{shown}\"")
    }
}

impl std::error::Error for BadServerName {}

impl std::str::FromStr for ServerName {
    type Err = BadServerName;

    fn from_str(name: &str) -> Result<Self, BadServerName> {
        let (host, port) = parse(name, PORT).ok_or_else(|| BadServerName(name.to_owned()))?;
        Ok(ServerName { name: name.to_owned(), host, port })
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerName").field(&self.name).finish()
    }
}

impl ServerName {
    /// As it was configured: this text chooses the server of a key.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// For a name that may lack a port: `port` is the default.
    ///
    /// # Errors
    /// It is no name of a server.
    pub(crate) fn on_port(name: &str, port: u16) -> Result<Self, BadServerName> {
        let (host, port) = parse(name, port).ok_or_else(|| BadServerName(name.to_owned()))?;
        let is_v6 = host.contains(':');
        let name = if is_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(ServerName { name, host, port })
    }

    /// Whether it is an address, and no name that must be looked up.
    pub fn is_numeric(&self) -> bool {
        // An IPv6 address may name its interface.
        self.host.contains(':') || self.host.parse::<IpAddr>().is_ok()
    }

    /// A name, or an address without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Its port; 7531 if the name has none.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Host and port; this port unless the name has one.
fn parse(name: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match name.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(host, _)| is_v6(host))?,
        None if is_v6(name) => (name, ""),
        None => name.split_at(name.find(':').unwrap_or(name.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(digits) if is_word(digits) => digits.parse().ok().filter(|&port| port > 0)?,
        _ => port.is_empty().then_some(default_port)?,
    };
    (is_v6(host) || is_word(host)).then(|| (host.to_owned(), port))
}

/// `fe80::1%eth0` names the interface too. Linux refuses only slashes, colons and spaces in its name
/// (`dev_valid_name` in `net/core/dev.c`): one that has other characters is given by its number.
fn is_v6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
    address.parse::<Ipv6Addr>().is_ok() && is_word(zone)
}

/// What the names of hosts and interfaces, numbers and addresses of IPv4 are made of.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerName {
        name.parse().expect("a server")
    }

    #[test]
    fn names_are_understood() {
        for (name, host, port) in [
            ("10.1.2.3", "10.1.2.3", 7531),
            ("wiki1.example:99", "wiki1.example", 99),
            ("[2001:db8::1]:99", "2001:db8::1", 99),
            ("[::1]", "::1", 7531),
            ("::1", "::1", 7531),
            ("[::ffff:10.1.2.3]:99", "::ffff:10.1.2.3", 99),
            ("_pc-1.Example.:99", "_pc-1.Example.", 99),
            ("[fe80::1%br-1_a.2]:99", "fe80::1%br-1_a.2", 99),
            ("fe80::1%eth0", "fe80::1%eth0", 7531),
        ] {
            assert_eq!((server(name).host(), server(name).port()), (host, port), "{name}");
        }
        for bad in [
            "",
            "a b",
            ":99",
            "a:",
            "a:x",
            "a:0",
            "a:70000",
            "[::1",
            "[::1]x",
            "[a:b]:1",
            "a:+99",
            "a:99:99",
            "[a]",
            "[a]:99",
            "[10.1.2.3]:99",
            "[]",
            "[]:99",
            "[[::1]]",
            "[::1]99",
            "a%eth0",
            "10.1.2.3%eth0",
            "%eth0",
            "::1%",
            "[::1%]",
            "fe80::1%a%b",
            "fe80::1%[a]",
            "fe80::1%a:b",
        ] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
        }
    }

    /// A character that is not seen, or that an editor or a shell has left behind, would choose
    /// other servers than those of other hosts.
    #[test]
    fn no_other_character_is_in_a_name() {
        let tags_and_selectors = '\u{e0000}'..='\u{e01ff}';
        for c in ('\0'..='\u{ffff}').chain(tags_and_selectors) {
            if c.is_ascii_alphanumeric() || ".-_:%".contains(c) {
                continue;
            }
            for good in ["pc1", "10.1.2.3:99", "::1", "[::1]", "[fe80::1%eth0]:99", "fe80::1%2"] {
                for at in [0, 1, good.len() / 2, good.len() - 1, good.len()] {
                    let bad = [&good[..at], &good[at..]].join(c.encode_utf8(&mut [0; 4]));
                    assert!(bad.parse::<ServerName>().is_err(), "{}", bad.escape_default());
                }
            }
        }
    }

    #[test]
    fn an_error_shows_what_is_not_seen() {
        for (bad, shown) in [
            ("\u{feff}pc1", r"\u{feff}pc1"),
            ("pc\u{3164}1", r"pc\u{3164}1"),
            ("p\u{441}1", r"p\u{441}1"),
            ("pc1\u{200b}", r"pc1\u{200b}"),
            ("http://pc1:9531/", "http://pc1:9531/"),
        ] {
            let error = bad.parse::<ServerName>().expect_err(shown).to_string();
            assert!(error.ends_with(&format!(", not \"{shown}\"")), "{error}");
        }
    }

    #[test]
    fn a_port_in_the_name_is_kept() {
        for (name, expected) in [
            ("wiki1", "wiki1:99"),
            ("wiki1:7", "wiki1:7"),
            ("::1", "[::1]:99"),
            ("[::1]", "[::1]:99"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(ServerName::on_port(name, 99).expect(name).as_str(), expected);
        }
        assert!(ServerName::on_port(":", 99).is_err());
    }
}
