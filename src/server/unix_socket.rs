//! Unix sockets of our own, bound to a path.

use rustix::net::socket_with;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;

/// A non-blocking stream socket bound to `path` with the mode and group that say
/// who may connect. Nobody can before it is listened on.
///
/// # Errors
/// What the kernel says; `AddrInUse` where another daemon answers, or a file is
/// that is no socket.
pub(super) fn bind(path: &str, mode: u32, group: Option<&str>) -> io::Result<OwnedFd> {
    remove_stale(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind_to(&socket, &SocketAddrUnix::new(path)?)?;
    admit(path, mode, group)?;
    Ok(socket)
}

/// Says who may connect to the socket at `path`.
///
/// # Errors
/// What the kernel says, or that there is no such group.
pub(super) fn admit(path: &str, mode: u32, group: Option<&str>) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    if let Some(group) = group {
        chown(path, None, Some(group_id(group)?))?;
    }
    Ok(())
}

/// Forgets the socket's name: nobody serves it any more.
pub(super) fn remove(path: &str) {
    if let Err(e) = std::fs::remove_file(path) {
        log::debug!("{path} could not be removed: {e}");
    }
}

/// A socket file outlives a daemon that was killed. One where a daemon still
/// answers is left alone, and so is a file that is no socket.
fn remove_stale(path: &str) -> io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() || UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    std::fs::remove_file(path)
}

/// group(5): by name or number.
pub(super) fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let mut entries = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields.len() > 2 && fields[0] == group);
    let id = entry.and_then(|fields| fields[2].parse().ok());
    id.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no group {group}")))
}
