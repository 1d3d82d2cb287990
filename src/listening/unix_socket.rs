//! The file of the control socket: binds it, decides who may connect, removes a stale one.

use crate::platform::failed_call::{named, named_unless_plain};
use crate::platform::os::fd::{AsRawFd, OwnedFd};
use crate::platform::os::fs::{AtFlags, FileTypeExt, MetadataExt, chownat};
use crate::platform::os::fs::{FlockOperation, Gid, Mode, OFlags, flock, open};
use crate::platform::os::fs::{read_to_string, remove_file, symlink_metadata};
use crate::platform::os::io::Errno;
use crate::platform::os::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, connect, listen,
    socket_with,
};
use crate::platform::os::process;
use crate::platform::os::thread;
use crate::platform::sys;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Identifies a socket's file, to tell it from another one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFile {
    /// The file system's device number.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
}

/// Listens on `path`; returns the non-blocking stream socket and the file that it made. Only the
/// daemon's user may connect, and members of the `group`.
///
/// Others may write the directory, and put another file at `path` at any moment: the mode is the
/// file's from its beginning, and the group is set on the file that is proved to be the socket's.
///
/// # Errors
/// The kernel's error, or that the group does not exist; `AddrInUse` if another daemon
/// listens, EEXIST if the file there is not a socket. No file is left behind then.
pub(crate) fn bind(path: &str, group: Option<&str>) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    let group = group.map(group_id).transpose()?;
    remove_stale(path, &address)?;
    let socket = new_socket()?;
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    let before = sys::umask(0o777 & !mode);
    let bound = bind_to(&socket, &address);
    sys::umask(before);
    bound.map_err(named("bind"))?;
    let file = identity_of(path)?;
    match restrict(path, mode, &socket, group) {
        Ok(()) => Ok((socket, file)),
        Err(e) => {
            remove(path, file);
            Err(e)
        }
    }
}

/// Checks that the mode of what is at `path` is what the mask has left, and sets its group.
fn restrict(path: &str, mode: u32, socket: &OwnedFd, group: Option<Gid>) -> io::Result<()> {
    // A mask that is denied tells no error.
    if symlink_metadata(path)?.mode() & 0o777 & !mode != 0 {
        return Err(named("umask")(Errno::PERM));
    }
    group.map_or(Ok(()), |group| set_group(path, socket, group))
}

/// Gives the file of `socket`, which is bound to `path`, to the `group`.
fn set_group(path: &str, socket: &OwnedFd, group: Gid) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(named("openat(O_PATH)"))?;
    listen(socket, 1).map_err(named("listen"))?;
    if !leads_here(&file)? {
        return Err(io::Error::other("another process has replaced the file"));
    }
    let itself = chownat(&file, "", None, Some(group), AtFlags::EMPTY_PATH);
    itself.map_err(named("fchownat"))
}

/// Whether who connects to `file` reaches this process: then it is the file of a socket of ours.
fn leads_here(file: &OwnedFd) -> io::Result<bool> {
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let probe = new_socket()?;
    match connect(&probe, &address) {
        // No socket, or one on which nobody listens.
        Err(Errno::CONNREFUSED) => return Ok(false),
        connected => connected.map_err(named("connect(/proc/self/fd)"))?,
    }
    let owner = sys::peer_credentials(&probe).map_err(named("getsockopt(SO_PEERCRED)"))?;
    Ok(owner.pid == Some(process::id() as i32))
}

/// How long other daemons may take to bind and listen.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks the directory of `path` (flock(2)): a socket that another daemon has bound, but that
/// does not listen yet, looks as if its owner had been killed. The lock ends with what is
/// returned. A directory that can't be locked is left unlocked, because any user may lock it; if
/// it `may_wait`, after a second.
pub(crate) fn lock_directory(path: &str, may_wait: bool) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(directory_of(path), flags, Mode::empty()).ok()?;
    let attempts = if may_wait { LOCK_ATTEMPTS } else { 1 };
    for n in 0..attempts {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if n + 1 == attempts => {}
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            locked => return locked.ok().map(|()| directory),
        }
    }
    None
}

fn directory_of(path: &str) -> &Path {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Whether `path` still refers to `file`.
pub(crate) fn is_at(path: &str, file: SocketFile) -> bool {
    identity_of(path).is_ok_and(|there| there == file)
}

/// Removes the socket's file. A different file at its path belongs to another process,
/// such as the daemon that replaced this one.
pub(crate) fn remove(path: &str, file: SocketFile) {
    if !is_at(path, file) {
        return;
    }
    if let Err(e) = remove_file(path) {
        log::debug!("{path} could not be removed: {e}");
    }
}

fn identity_of(path: &str) -> io::Result<SocketFile> {
    let meta = symlink_metadata(path).map_err(named_unless_plain("statx"))?;
    Ok(SocketFile { device: meta.dev(), inode: meta.ino() })
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(named("socket"))
}

/// Whether a socket is at `path`.
///
/// # Errors
/// The kernel's, if there can be none; EEXIST if another kind of file is there.
pub(crate) fn has_socket(path: &str) -> io::Result<bool> {
    match symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(true),
        Ok(_) => Err(Errno::EXIST.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(named_unless_plain("statx")(e)),
    }
}

/// Removes the socket file of a killed daemon. Leaves the file alone if its owner may be
/// alive, or if it is not a socket.
fn remove_stale(path: &str, address: &SocketAddrUnix) -> io::Result<()> {
    if !has_socket(path)? {
        return Ok(());
    }
    // Non-blocking: EAGAIN means an owner that does not accept. Only a refusal means
    // that there is none.
    match connect(&new_socket()?, address) {
        Err(Errno::CONNREFUSED) => remove_file(path).map_err(named_unless_plain("unlink")),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Looks up a group by name or number (group(5)).
fn group_id(group: &str) -> io::Result<Gid> {
    let id = match group.parse() {
        Ok(id) => Some(id),
        Err(_) => {
            let groups = read_to_string("/etc/group")?;
            let mut entries = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let entry = entries.find(|fields| fields.len() > 2 && fields[0] == group);
            entry.and_then(|fields| fields[2].parse().ok())
        }
    };
    id.map(Gid::from_raw)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no group {group}")))
}
