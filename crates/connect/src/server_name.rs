//! Names of servers, read from text: host, port, Unix socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The port of PoolCounter.
pub const PORT: u16 = 7531;

/// A server as it is configured: `host`, `host:port`, `[v6]:port`, a literal IPv6
/// address, or the path of a Unix socket (with a slash in it).
///
/// Names are equal if they are spelled alike: the text chooses the server of a key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerName {
    name: String,
    place: Endpoint,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// The port; 7531 if the name has none.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// An invalid name of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadServerName(String);

impl fmt::Display for BadServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a server is host, host:port, [v6]:port or /a/socket, not {:?}", self.0)?;
        match scheme_of(&self.0) {
            Some(scheme) => write!(f, ": leave out {scheme:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for BadServerName {}

/// Its name is the address with its port: `10.1.2.3:7531`, which is not spelled as `10.1.2.3` is.
impl From<SocketAddr> for ServerName {
    fn from(address: SocketAddr) -> Self {
        let place = Endpoint::Tcp { host: host_of(address), port: address.port() };
        ServerName { name: address.to_string(), place }
    }
}

/// As [`SocketAddr`] shows it, without brackets: an IPv6 address names its interface.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        address => address.ip().to_string(),
    }
}

impl std::str::FromStr for ServerName {
    type Err = BadServerName;

    fn from_str(name: &str) -> Result<Self, BadServerName> {
        let place = parse_endpoint(name, PORT).ok_or_else(|| BadServerName(name.to_owned()))?;
        Ok(ServerName { name: name.to_owned(), place })
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
        let place = parse_endpoint(name, port).ok_or_else(|| BadServerName(name.to_owned()))?;
        let name = match &place {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(_) => name.to_owned(),
        };
        Ok(ServerName { name, place })
    }

    /// Whether it is an address, and no name that must be looked up.
    pub(crate) fn is_numeric(&self) -> bool {
        match &self.place {
            // An IPv6 address may name its interface.
            Endpoint::Tcp { host, .. } => host.contains(':') || host.parse::<IpAddr>().is_ok(),
            Endpoint::Unix(_) => true,
        }
    }

    /// Where it is, to connect to it by other means.
    pub fn endpoint(&self) -> &Endpoint {
        &self.place
    }
}

/// `http://`, as of a copied URL. A path begins otherwise.
fn scheme_of(name: &str) -> Option<&str> {
    let end = name.find("://")?;
    let is_word = name[..end].chars().all(|c| c.is_ascii_alphanumeric());
    is_word.then(|| &name[..end + 3])
}

/// With this port unless the name has one.
fn parse_endpoint(name: &str, default_port: u16) -> Option<Endpoint> {
    if scheme_of(name).is_some() {
        return None;
    }
    if name.contains('/') {
        return Some(Endpoint::Unix(PathBuf::from(name)));
    }
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (host, port) = match name.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None if name.matches(':').count() > 1 => (name, ""),
        None => name.split_at(name.find(':').unwrap_or(name.len())),
    };
    if host.contains(':') {
        // `fe80::1%eth0` names the interface too.
        let address = host.split('%').next()?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
    }
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port| port > 0)?,
        None => port.is_empty().then_some(default_port)?,
    };
    (!host.is_empty()).then(|| Endpoint::Tcp { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> ServerName {
        name.parse().expect("a server")
    }

    #[test]
    fn names_are_understood() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.to_owned(), port };
        for (name, place) in [
            ("10.1.2.3", tcp("10.1.2.3", 7531)),
            ("wiki1.example:99", tcp("wiki1.example", 99)),
            ("[2001:db8::1]:99", tcp("2001:db8::1", 99)),
            ("[::1]", tcp("::1", 7531)),
            ("::1", tcp("::1", 7531)),
            ("fe80::1%eth0", tcp("fe80::1%eth0", 7531)),
            ("/run/poolcounter.sock", Endpoint::Unix("/run/poolcounter.sock".into())),
            ("./sock", Endpoint::Unix("./sock".into())),
        ] {
            assert_eq!(server(name).place, place, "{name}");
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
            "http://a:1/",
            "tcp://a",
            "://a",
        ] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_address_is_a_name() {
        for name in ["10.1.2.3:99", "[2001:db8::1]:7531", "[fe80::1%2]:99"] {
            let address: SocketAddr = name.parse().expect("an address");
            assert_eq!(ServerName::from(address), server(name));
        }
        assert_ne!(server("10.1.2.3:7531"), server("10.1.2.3"));
    }

    #[test]
    fn a_url_is_no_server_and_the_error_says_why() {
        let error = "http://wiki1:9531/".parse::<ServerName>().expect_err("a URL").to_string();
        assert!(error.ends_with("not \"http://wiki1:9531/\": leave out \"http://\""), "{error}");
        for path in ["/run/a://b", "./a://b", "../http://x"] {
            assert!(path.parse::<ServerName>().is_ok(), "{path}");
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
            ("/run/socket:7", "/run/socket:7"),
        ] {
            assert_eq!(ServerName::on_port(name, 99).expect(name).as_str(), expected);
        }
        assert!(ServerName::on_port(":", 99).is_err());
    }
}
