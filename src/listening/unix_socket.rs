//! The file of a Unix socket of this daemon: binds it, sets mode and group, removes a stale
//! one, finds whether a process listens on it.

use crate::platform::failed_call::{named, named_unless_plain};
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use crate::platform::os::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use crate::platform::os::fs::{Permissions, metadata, symlink_metadata};
use crate::platform::os::fs::{read, read_to_string, remove_file, set_permissions};
use crate::platform::os::io::Errno;
use crate::platform::os::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, connect, socket_with,
};
use crate::platform::os::thread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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

/// Binds a non-blocking stream socket to `path`; returns it and the file that it made. Mode
/// and group decide which users may connect; no client can before it listens.
///
/// # Errors
/// The kernel's error, or that the group does not exist; `AddrInUse` if another daemon
/// listens, EEXIST if the file there is not a socket. No file is left behind then.
pub(crate) fn bind(
    path: &str,
    mode: u32,
    group: Option<&str>,
) -> io::Result<(OwnedFd, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    remove_stale(path, &address)?;
    let socket = new_socket()?;
    bind_to(&socket, &address).map_err(named("bind"))?;
    let file = identity_of(path)?;
    if let Err(e) = set_access(path, mode, group) {
        remove(path, file);
        return Err(e);
    }
    Ok((socket, file))
}

/// How long other daemons may take to bind and listen.
const LOCK_ATTEMPTS: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks the directories of `paths` (flock(2)): a socket that another daemon has bound, but that
/// does not listen yet, looks as if its owner had been killed. The locks end with what is
/// returned. A directory that can't be locked is left unlocked, because any user may lock it; if
/// it `may_wait`, after a second.
pub(crate) fn lock_directories<'a>(
    paths: impl Iterator<Item = &'a str>,
    may_wait: bool,
) -> Vec<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path| open(directory_of(path), flags, Mode::empty()).ok();
    let mut directories = BTreeMap::new();
    for directory in paths.filter_map(open) {
        // The same directory twice would wait for itself. All daemons lock in one order.
        if let Ok(meta) = fstat(&directory) {
            directories.entry((meta.st_dev, meta.st_ino)).or_insert(directory);
        }
    }
    let attempts = if may_wait { LOCK_ATTEMPTS } else { 1 };
    directories.into_values().filter(|directory| lock(directory, attempts)).collect()
}

fn lock(directory: &OwnedFd, attempts: usize) -> bool {
    for n in 0..attempts {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if n + 1 == attempts => {}
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            result => return result.is_ok(),
        }
    }
    false
}

fn directory_of(path: &str) -> &Path {
    let parent = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Sets mode and group of the socket at `path`: they decide which users may connect.
pub(crate) fn set_access(path: &str, mode: u32, group: Option<&str>) -> io::Result<()> {
    let group = group.map(group_id).transpose()?;
    // Sets the group before the mode, which gives it permissions.
    if group.is_some() {
        chown(path, None, group).map_err(named("chown"))?;
    }
    set_permissions(path, Permissions::from_mode(mode)).map_err(named("chmod"))
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

/// Whether two paths are the same, however they are spelt, even if there is no file.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    let identity = |path| metadata(directory_of(path)).ok().map(|it| (it.dev(), it.ino()));
    let is_same_directory = || identity(one).is_some_and(|it| identity(other) == Some(it));
    // Without `.` and repeated slashes.
    let (one, other) = (Path::new(one), Path::new(other));
    one == other || one.file_name() == other.file_name() && is_same_directory()
}

fn identity_of(path: &str) -> io::Result<SocketFile> {
    let meta = symlink_metadata(path).map_err(named_unless_plain("statx"))?;
    Ok(SocketFile { device: meta.dev(), inode: meta.ino() })
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(named("socket"))
}

/// Removes the socket file of a killed daemon. Leaves the file alone if its owner may be
/// alive, or if it is not a socket.
fn remove_stale(path: &str, address: &SocketAddrUnix) -> io::Result<()> {
    let Ok(meta) = symlink_metadata(path) else {
        return Ok(());
    };
    if !meta.file_type().is_socket() {
        return Err(Errno::EXIST.into());
    }
    // Non-blocking: EAGAIN means an owner that does not accept. Only a refusal means
    // that there is none.
    match connect(&new_socket()?, address) {
        Err(Errno::CONNREFUSED) => remove_file(path).map_err(named_unless_plain("unlink")),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Whether a process listens at `name`, a path or `@` and an abstract name, according to the
/// kernel's list (proc_net(5)). Names in it are bytes: any process may choose any.
pub(crate) fn is_listened_on(name: &[u8]) -> io::Result<bool> {
    const ACCEPTS_CONNECTIONS: &[u8] = b"00010000";
    let list = read("/proc/self/net/unix")?;
    // The kernel writes a NUL so.
    let name: Vec<u8> = name.iter().map(|&byte| if byte == 0 { b'@' } else { byte }).collect();
    // Num RefCount Protocol Flags Type St Inode Path; a path may contain spaces.
    Ok(list.split(|&byte| byte == b'\n').any(|line| {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        words.nth(3) == Some(ACCEPTS_CONNECTIONS)
            && line.strip_suffix(&name[..]).is_some_and(|before| before.ends_with(b" "))
    }))
}

/// Looks up a group by name or number (group(5)).
fn group_id(group: &str) -> io::Result<u32> {
    let id = match group.parse() {
        Ok(id) => Some(id),
        Err(_) => {
            let groups = read_to_string("/etc/group")?;
            let mut entries = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let entry = entries.find(|fields| fields.len() > 2 && fields[0] == group);
            entry.and_then(|fields| fields[2].parse().ok())
        }
    };
    id.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no group {group}")))
}
