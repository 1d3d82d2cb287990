//! Names of servers, read from text: host, port.

use std::fmt;
use std::net::IpAddr;

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

const NO_PATH: &str = ": servers are host names or addresses, not paths; what asks a control \
    socket is \"poolcounter control --control-socket PATH STATS\" or \"poolcounterd --check PATH\"";

/// An invalid name of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadServerName(String);

impl fmt::Display for BadServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a server is host, host:port or [v6]:port, not {:?}", self.0)?;
        match scheme_of(&self.0) {
            Some(scheme) if scheme != "unix://" => write!(f, ": leave out {scheme:?}"),
            _ if self.0.contains('/') => f.write_str(NO_PATH),
            _ => Ok(()),
        }
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

    /// The servers of a list, separated by spaces or commas.
    ///
    /// # Errors
    /// One of them is no name of a server.
    pub fn parse_list(list: &str) -> Result<Vec<ServerName>, BadServerName> {
        let names = list.split(|c: char| c == ',' || c.is_ascii_whitespace());
        names.filter(|name| !name.is_empty()).map(str::parse).collect()
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
    pub(crate) fn is_numeric(&self) -> bool {
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

/// `http://`, as of a copied URL. A path begins otherwise.
pub(crate) fn scheme_of(name: &str) -> Option<&str> {
    let end = name.find("://")?;
    let is_word = name[..end].chars().all(|c| c.is_ascii_alphanumeric());
    is_word.then(|| &name[..end + 3])
}

/// Host and port; this port unless the name has one.
fn parse(name: &str, default_port: u16) -> Option<(String, u16)> {
    if name.contains(|c: char| matches!(c, '/' | '#') || c.is_whitespace() || c.is_control()) {
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
    (!host.is_empty()).then(|| (host.to_owned(), port))
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
            "http://a:1/",
            "tcp://a",
            "://a",
        ] {
            assert!(bad.parse::<ServerName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_url_is_no_server_and_the_error_says_why() {
        let error = "http://wiki1:9531/".parse::<ServerName>().expect_err("a URL").to_string();
        assert!(error.ends_with("not \"http://wiki1:9531/\": leave out \"http://\""), "{error}");
    }

    #[test]
    fn a_path_is_no_server_and_the_error_says_what_asks_a_control_socket() {
        for path in [
            "/run/poolcounter.sock",
            "/run/poolcounter.sock:7531",
            "/run/a socket",
            "./sock",
            "sock/",
            "../http://x",
            "/run/a://b",
            "unix:/run/sock",
            "unix:///run/sock",
            "[/run/sock]:7531",
            "10.0.0.0/8",
            "fe80::1%eth0/64",
            "/",
        ] {
            let error = path.parse::<ServerName>().expect_err(path).to_string();
            assert!(error.contains(&format!("not {path:?}: servers are host names")), "{error}");
            assert!(error.contains("control --control-socket PATH"), "{error}");
        }
    }

    #[test]
    fn a_list_is_separated_by_spaces_or_commas() {
        let list = |text| ServerName::parse_list(text);
        let both = [server("10.1.2.3"), server("wiki1:99")];
        for text in ["10.1.2.3 wiki1:99", "10.1.2.3,wiki1:99", " ,10.1.2.3,\n\twiki1:99 ,, "] {
            assert_eq!(list(text).as_deref(), Ok(&both[..]), "{text:?}");
        }
        assert_eq!(list(" , "), Ok(Vec::new()));
        assert!(list("10.1.2.3 /run/sock").is_err());
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
