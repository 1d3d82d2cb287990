//! The servers that the environment names.

use connect::ServerName;
use std::ffi::OsString;

/// A list: separated by spaces or commas.
const SERVERS: &str = "POOLCOUNTER_SERVERS";

/// A list too. `poolcounter run` sets it for its command.
const SERVER: &str = "POOLCOUNTER_SERVER";

/// The server if neither names one.
const LOCALHOST: &str = "127.0.0.1";

/// The servers of the environment.
///
/// # Errors
/// A variable names something else; the text says which.
pub(super) fn servers_of_environment() -> Result<Vec<ServerName>, String> {
    servers(|name| std::env::var_os(name))
}

/// The servers of the environment, of which `variable` gives a value.
fn servers(variable: impl Fn(&str) -> Option<OsString>) -> Result<Vec<ServerName>, String> {
    let read = |name| parse(name, variable(name).unwrap_or_default());
    let mut servers = read(SERVERS)?;
    if servers.is_empty() {
        servers = read(SERVER)?;
    }
    if servers.is_empty() {
        servers = parse(LOCALHOST, LOCALHOST.into())?;
    }
    Ok(servers)
}

fn parse(variable: &str, list: OsString) -> Result<Vec<ServerName>, String> {
    let list = list.into_string().map_err(|_| format!("{variable} is not valid UTF-8"))?;
    ServerName::parse_list(&list).map_err(|bad| format!("{variable}: {bad}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    /// The servers of two variables; empty ones are not set.
    fn named(servers_value: &str, server_value: &str) -> Result<Vec<String>, String> {
        let variable = |name: &str| {
            let value = if name == "POOLCOUNTER_SERVERS" { servers_value } else { server_value };
            (!value.is_empty()).then(|| value.into())
        };
        let found = servers(variable)?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_list_comes_before_the_single_server() {
        for (servers, server, expected) in [
            ("10.1.2.3 10.1.2.4", "10.9.9.9", &["10.1.2.3", "10.1.2.4"][..]),
            (" ,10.1.2.3,\n10.1.2.4:99 ,, ", "", &["10.1.2.3", "10.1.2.4:99"]),
            ("", "10.9.9.9", &["10.9.9.9"]),
            (" , ", "10.9.9.9, 10.9.9.8", &["10.9.9.9", "10.9.9.8"]),
            ("", "", &["127.0.0.1"]),
        ] {
            assert_eq!(
                named(servers, server).expect("servers"),
                expected,
                "{servers:?} {server:?}"
            );
        }
    }

    #[test]
    fn a_bad_variable_is_named() {
        for (servers, server, variable) in [
            ("10.1.2.3 a:b", "10.9.9.9", "POOLCOUNTER_SERVERS"),
            ("10.1.2.3 /run/sock", "10.9.9.9", "POOLCOUNTER_SERVERS"),
            ("", "a:b", "POOLCOUNTER_SERVER"),
            ("", "/run/a socket", "POOLCOUNTER_SERVER"),
        ] {
            let why = named(servers, server).expect_err("no server");
            assert!(why.starts_with(&format!("{variable}: a server is ")), "{why}");
        }
        let bytes = |_: &str| Some(OsString::from_vec(vec![b'/', 0xff]));
        let why = servers(bytes).expect_err("no text");
        assert_eq!(why, "POOLCOUNTER_SERVERS is not valid UTF-8");
    }
}
