//! Which servers are asked: those of `-s`, else of the environment, else of a file, else this host.

use connect::{BadServerName, ServerName};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A list: separated by spaces or commas. `poolcounter run` passes its own on to its command.
pub(super) const VARIABLE: &str = "POOLCOUNTER_SERVERS";

/// A list: separated by white space; `#` begins a comment. Packages ship none.
const FILE: &str = "/etc/poolcounter/servers";

/// No list of servers is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The server without any list.
const LOCALHOST: &str = "127.0.0.1";

/// The servers that are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerList {
    pub(super) servers: Vec<ServerName>,
    /// No list names them: it is the daemon of this host.
    pub(super) is_this_host: bool,
}

impl ServerList {
    /// The servers of the values of `-s`, or else those that this host is configured with.
    ///
    /// # Errors
    /// The first source that is there names no server, or something else; the text says which.
    pub(super) fn find(options: &[String]) -> Result<ServerList, String> {
        match ServerList::without_file(options)? {
            found if found.is_this_host => from_file(Path::new(FILE)).map(|of| of.unwrap_or(found)),
            found => Ok(found),
        }
    }

    /// The same for a check of this host, which the file is not about.
    ///
    /// # Errors
    /// As [`ServerList::find`].
    pub(super) fn without_file(options: &[String]) -> Result<ServerList, String> {
        if !options.is_empty() {
            return named("-s", &options.join(","));
        }
        from_variable(std::env::var_os(VARIABLE))
    }
}

/// The servers of a list in this source, separated by spaces or commas.
fn named(source: &str, list: &str) -> Result<ServerList, String> {
    let names = list.split(|c: char| c == ',' || c.is_ascii_whitespace());
    let servers =
        names.filter(|name| !name.is_empty()).map(str::parse).collect::<Result<Vec<_>, _>>();
    let servers = servers.map_err(|bad: BadServerName| format!("{source}: {bad}"))?;
    if servers.is_empty() {
        return Err(format!("{source} names no server; is a variable not set?"));
    }
    Ok(ServerList { servers, is_this_host: false })
}

/// An empty variable is as none.
fn from_variable(value: Option<OsString>) -> Result<ServerList, String> {
    let list = value.unwrap_or_default();
    let list = list.into_string().map_err(|_| format!("{VARIABLE} is not valid UTF-8"))?;
    if list.is_empty() {
        return Ok(ServerList { is_this_host: true, ..named(LOCALHOST, LOCALHOST)? });
    }
    named(VARIABLE, &list)
}

/// `None` if there is no such file.
fn from_file(path: &Path) -> Result<Option<ServerList>, String> {
    let source = path.display().to_string();
    match read_file(path) {
        Ok(text) => {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            let list = lines.collect::<Vec<_>>().join(" ");
            if list.trim().is_empty() {
                return Err(format!("{source} names no server"));
            }
            named(&source, &list).map(Some)
        }
        Err(e) if e.kind() == ErrorKind::NotFound => match dead_link(path) {
            Some(link) => Err(format!("{source}: the link {} leads nowhere", link.display())),
            None => Ok(None),
        },
        Err(e) => Err(format!("{source}: {e}")),
    }
}

/// The link on this path that leads nowhere, if one does: a list is meant to be there.
fn dead_link(path: &Path) -> Option<&Path> {
    path.ancestors().find(|part| part.is_symlink() && !part.exists())
}

/// Does not wait for a pipe that nobody writes to.
fn read_file(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    if file.take(FILE_BYTES_MAX).read_to_string(&mut text)? as u64 == FILE_BYTES_MAX {
        return Err(io::Error::other("it is too long"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn names(list: &ServerList) -> Vec<&str> {
        list.servers.iter().map(ServerName::as_str).collect()
    }

    #[test]
    fn an_empty_variable_is_as_none() {
        for (value, expected, is_this_host) in [
            (Some("10.1.2.3 10.1.2.4"), &["10.1.2.3", "10.1.2.4"][..], false),
            (Some("10.1.2.3,10.1.2.4"), &["10.1.2.3", "10.1.2.4"], false),
            (Some(" ,10.1.2.3,\n\t10.1.2.4:99 ,, "), &["10.1.2.3", "10.1.2.4:99"], false),
            (Some("127.0.0.1"), &["127.0.0.1"], false),
            (Some(""), &["127.0.0.1"], true),
            (None, &["127.0.0.1"], true),
        ] {
            let list = from_variable(value.map(Into::into)).expect("servers");
            assert_eq!((names(&list), list.is_this_host), (expected.to_vec(), is_this_host));
        }
    }

    #[test]
    fn a_bad_variable_is_named() {
        for value in ["10.1.2.3 a:b", "10.1.2.3 /run/sock", "10.1.2.3 # old", "#", " , ", " ", "\n"]
        {
            let why = from_variable(Some(value.into())).expect_err(value);
            assert!(why.starts_with("POOLCOUNTER_SERVERS"), "{value:?}: {why}");
        }
        let bytes = OsString::from_vec(vec![b'/', 0xff]);
        let why = from_variable(Some(bytes)).expect_err("no text");
        assert_eq!(why, "POOLCOUNTER_SERVERS is not valid UTF-8");
    }
}
