//! Why the daemon could not start, and what to do about it. The advice is for people
//! at a terminal; nothing depends on it.

use crate::listening::addresses::{ListenError, Obstacle, Purpose, Wanted};
use crate::operator::rule_book::RulesError;
use crate::platform::failed_call::lacks_resources;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

errors! {
    /// Why the daemon could not start.
    pub enum StartError {
        /// A listener could not be opened.
        Listen(e: ListenError) = "{e}";
        /// The file of rules can't be used, or there are too many.
        Rules(e: RulesError) = "Can't start: {e}";
        /// The kernel refuses a resource that serving needs.
        System(e: io::Error) = "Can't start: {e}";
    }
}

impl From<ListenError> for StartError {
    fn from(e: ListenError) -> Self {
        StartError::Listen(e)
    }
}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        StartError::System(e)
    }
}

impl StartError {
    /// What prevents the start.
    pub fn obstacle(&self) -> Obstacle {
        match self {
            StartError::Listen(e) => e.obstacle(),
            // The file may be right.
            StartError::Rules(RulesError::File(_, e)) if lacks_resources(e) => Obstacle::System,
            StartError::Rules(_) => Obstacle::Options,
            StartError::System(_) => Obstacle::System,
        }
    }

    /// What to do about it, if known.
    pub fn advice(&self) -> Option<String> {
        match self {
            StartError::Listen(e) => about(e),
            StartError::Rules(_) | StartError::System(_) => None,
        }
    }
}

fn about(error: &ListenError) -> Option<String> {
    match error {
        ListenError::InvalidAddress(list) => Some(right_address(list)),
        // The advice is about the options for clients' addresses.
        ListenError::NotOpened(Wanted::Tcp(tcp), _) if tcp.purpose == Purpose::Http => None,
        ListenError::NotOpened(Wanted::Tcp(tcp), e) => bindable_address(tcp.address, e),
        ListenError::NotOpened(Wanted::Control(control), e) => socket_path(&control.path, e),
        ListenError::Several(errors) => errors.iter().find_map(about),
        ListenError::Inherited(..)
        | ListenError::NotWatched(..)
        | ListenError::Lost(_)
        | ListenError::Contradiction(_) => None,
    }
}

/// The correct form of the first bad address in `list`.
fn right_address(list: &str) -> String {
    let bad = list.split(',').find(|part| part.parse::<IpAddr>().is_err()).unwrap_or(list);
    if let Ok(address) = bad.parse::<SocketAddr>() {
        return format!("The port is an option: -l {} -p {}", address.ip(), address.port());
    }
    match bad.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) => format!("Leave out the brackets: -l {ip}"),
        Err(_) => "-l takes IP addresses, such as 10.1.2.3 or ::, not names.".to_owned(),
    }
}

fn bindable_address(address: SocketAddr, error: &io::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::AddrInUse => Some(taken_port(address.port())),
        ErrorKind::AddrNotAvailable => Some(
            "This machine does not have that address; `ip -brief address` lists its addresses."
                .into(),
        ),
        _ => None,
    }
}

/// Connections that a daemon without SO_REUSEADDR, such as the C one, has closed keep its port.
fn taken_port(port: u16) -> String {
    format!(
        "As root, `ss -ltnp 'sport = :{port}'` shows what listens there. Stop it, or choose another \
         port with -p. If nothing does, old connections keep the port for up to a minute."
    )
}

fn socket_path(path: &str, error: &io::Error) -> Option<String> {
    let path = Path::new(path);
    if error.kind() == ErrorKind::NotFound {
        let folder = path.parent()?;
        return (!folder.exists()).then(|| "Its directory does not exist.".to_owned());
    }
    let file_type = std::fs::symlink_metadata(path).ok()?.file_type();
    if file_type.is_dir() {
        Some(format!(
            "It is a directory: name a file in it, such as {}",
            path.join("sock").display()
        ))
    } else if !file_type.is_socket() {
        Some("The file there is not a socket, so it is left alone.".to_owned())
    } else if error.kind() == ErrorKind::AddrInUse {
        Some("Another daemon answers there. Stop it, or choose another path.".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::os::io::Errno;

    #[test]
    fn a_file_of_rules_that_the_system_refuses_may_be_right() {
        let of_file = |e: Errno| RulesError::File("/etc/rules".to_owned(), e.into());
        for (error, obstacle) in [
            (of_file(Errno::MFILE), Obstacle::System),
            (of_file(Errno::NOENT), Obstacle::Options),
            (RulesError::TooMany(65), Obstacle::Options),
        ] {
            assert_eq!(StartError::Rules(error).obstacle(), obstacle);
        }
        let text = StartError::Rules(of_file(Errno::MFILE)).to_string();
        assert_eq!(text, "Can't start: /etc/rules: Too many open files (os error 24)");
    }
}
