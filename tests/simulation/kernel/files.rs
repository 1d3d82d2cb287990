//! Files: paths, files in memory, and readers of the daemon's output.

use super::processes::{NOTIFY_NAME, NOTIFY_PATH};
use super::sockets::{LocalAddress, SocketRole};
use super::{CallKind, File, Kernel};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathEntry {
    pub(crate) kind: PathKind,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) group: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    File,
    Socket,
}

/// Another way to write a path leads to the same file.
pub(crate) fn normalized(path: &str) -> String {
    path.replace("/./", "/")
}

impl PathEntry {
    pub(crate) fn file() -> Self {
        PathEntry { kind: PathKind::File, inode: 0, mode: 0o755, group: None }
    }

    pub(crate) fn socket() -> Self {
        PathEntry { kind: PathKind::Socket, inode: 0, mode: 0o777, group: None }
    }
}

/// A file in memory: memfd_create(2).
#[derive(Debug, Default)]
pub(crate) struct MemoryFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) position: usize,
    pub(crate) can_grow: bool,
}

/// A reader of the daemon's output: of the log, or the service manager.
#[derive(Debug)]
pub(crate) struct OutputReader {
    pub(crate) unread: VecDeque<Vec<u8>>,
    max_bytes: usize,
    /// Whether it reads at once.
    pub(crate) is_reading: bool,
    /// What was read last, to look for what must have been sent.
    pub(crate) was_read: VecDeque<Vec<u8>>,
    /// The daemon has waited for it to read, and it did not.
    pub(crate) did_not_read: bool,
}

const MESSAGES_KEPT: usize = 100;

impl OutputReader {
    pub(crate) fn new(max_bytes: usize) -> Self {
        OutputReader {
            unread: VecDeque::new(),
            max_bytes,
            is_reading: true,
            was_read: VecDeque::new(),
            did_not_read: false,
        }
    }

    fn unread_bytes(&self) -> usize {
        self.unread.iter().map(Vec::len).sum()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.unread_bytes() < self.max_bytes
    }

    /// Writes a whole message, if there is any room, or as much of a stream as there is
    /// room for.
    pub(crate) fn write(&mut self, bytes: &[u8], is_stream: bool) -> Result<usize, Errno> {
        let room = self.max_bytes.saturating_sub(self.unread_bytes());
        let len = if is_stream { bytes.len().min(room) } else { bytes.len() };
        if room == 0 {
            return Err(Errno::AGAIN);
        }
        self.unread.push_back(bytes[..len].to_vec());
        if self.is_reading {
            self.take();
        }
        Ok(len)
    }

    pub(crate) fn set_reading(&mut self, reads: bool) {
        self.is_reading = reads;
        if reads {
            self.take();
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Vec<u8>> {
        let taken: Vec<Vec<u8>> = self.unread.drain(..).collect();
        self.was_read.extend(taken.iter().cloned());
        let too_many = self.was_read.len().saturating_sub(MESSAGES_KEPT);
        self.was_read.drain(..too_many);
        taken
    }
}

impl Kernel {
    pub(crate) fn add_path(&mut self, path: &str, there: PathEntry) -> u64 {
        let inode = self.new_inode();
        self.paths.insert(normalized(path), PathEntry { inode, ..there });
        inode
    }

    /// The absolute path. A relative one begins in the working directory.
    pub(crate) fn absolute(&self, path: &str) -> Result<String, Errno> {
        if path.starts_with('/') {
            return Ok(normalized(path));
        }
        let directory = self.directory.ok_or(Errno::NOENT)?;
        Ok(normalized(&format!("{directory}/{path}")))
    }

    pub(crate) fn path(&self, path: &str) -> Result<PathEntry, Errno> {
        self.paths.get(&self.absolute(path)?).copied().ok_or(Errno::NOENT)
    }

    /// fchownat(2) of what `fd` has opened with O_PATH.
    pub(crate) fn set_group(&mut self, fd: RawFd, group: u32) -> Result<(), Errno> {
        self.fault(CallKind::SetGroup)?;
        let File::Path(inode) = *self.file(fd)? else { return Err(Errno::BADF) };
        let there = self.paths.values_mut().find(|there| there.inode == inode);
        there.ok_or(Errno::NOENT)?.group = Some(group);
        Ok(())
    }

    /// unlink(2) by the daemon.
    pub(crate) fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        if self.is_foreign(self.path(path)?) {
            self.removed_foreign.push(path.to_owned());
        }
        let path = self.absolute(path)?;
        self.paths.remove(&path).map(drop).ok_or(Errno::NOENT)
    }

    /// bind(2) to a path.
    pub(crate) fn bind_path(&mut self, fd: RawFd, path: &str) -> Result<(), Errno> {
        self.fault(CallKind::Bind)?;
        if self.path(path).is_ok() {
            return Err(Errno::ADDRINUSE);
        }
        let mode = 0o777 & !self.umask;
        let inode = self.add_path(path, PathEntry { mode, ..PathEntry::socket() });
        let socket = self.socket(fd)?;
        socket.local = Some(LocalAddress::Path(path.to_owned()));
        socket.inode = inode;
        self.bound_inodes.push(inode);
        Ok(())
    }

    /// connect(2) of the daemon itself: to the service manager, or to find out whether a socket
    /// listens on a path.
    pub(crate) fn connect_to_path(&mut self, fd: RawFd, path: &str) -> Result<(), Errno> {
        if [NOTIFY_PATH, NOTIFY_NAME].contains(&path) {
            self.socket(fd)?.role = SocketRole::Notify;
            return Ok(());
        }
        if let Some(number) = path.strip_prefix("/proc/self/fd/") {
            let number = number.parse().expect("a number");
            let File::Path(inode) = *self.file(number)? else { return Err(Errno::ACCESS) };
            let is_it = |file: &File| matches!(file, File::Socket(socket) if socket.inode == inode);
            if !self.files.iter().any(|(_, file)| is_it(file)) {
                return Err(Errno::CONNREFUSED);
            }
            self.socket(fd)?.role = SocketRole::Probe;
            return Ok(());
        }
        let there = self.path(path)?;
        if self.is_foreign(there) {
            // Its owner may have a full queue.
            return if self.one_in(2) { Err(Errno::AGAIN) } else { Ok(()) };
        }
        match self.listener_at(&LocalAddress::Path(path.to_owned())) {
            Some(_) => Err(Errno::AGAIN),
            None => Err(Errno::CONNREFUSED),
        }
    }

    /// Whether another daemon listens on the path.
    fn is_foreign(&self, there: PathEntry) -> bool {
        self.foreign_inodes.contains(&there.inode)
    }

    /// Whether another daemon has a port or a path.
    pub(crate) fn has_foreigners(&self) -> bool {
        !self.foreign_ports.is_empty() || self.paths.values().any(|there| self.is_foreign(*there))
    }

    /// Another daemon begins or stops to listen on the path.
    pub(crate) fn set_foreign(&mut self, path: &str, listens: bool) {
        if let Ok(there) = self.path(path) {
            self.foreign_inodes.retain(|&inode| inode != there.inode);
            if listens {
                self.foreign_inodes.push(there.inode);
            }
        }
    }

    /// Files that the daemon's own sockets have made, and that still exist.
    pub(crate) fn own_socket_paths(&self) -> Vec<String> {
        let is_ours = |there: &PathEntry| self.bound_inodes.contains(&there.inode);
        let paths = self.paths.iter().filter(|(_, there)| is_ours(there));
        paths.map(|(path, _)| path.clone()).collect()
    }

    /// Those of them on which no socket listens any more.
    pub(crate) fn dead_paths(&self) -> Vec<String> {
        let is_dead = |path: &String| self.listener_at(&LocalAddress::Path(path.clone())).is_none();
        self.own_socket_paths().into_iter().filter(is_dead).collect()
    }

    /// The service manager listens on another socket of the same name, as after a crash.
    pub(crate) fn replace_manager(&mut self) {
        // It has read all that it was sent before.
        self.notify.take();
        for (_, file) in &mut self.files {
            if let File::Socket(socket) = file {
                if matches!(socket.role, SocketRole::Notify) {
                    socket.role = SocketRole::Idle;
                    self.notify_is_new = true;
                }
            }
        }
    }

    /// send(2) to a service manager that has closed the socket.
    pub(crate) fn notify_closed_manager(&mut self) -> Errno {
        // A daemon that notices has a second to try again.
        if std::mem::take(&mut self.notify_is_new) {
            self.last_failure_ns = self.now_ns;
        }
        Errno::CONNREFUSED
    }

    /// send(2) to the service manager.
    pub(crate) fn notify_manager(&mut self, message: &[u8]) -> Result<usize, Errno> {
        let written = self.notify.write(message, false);
        let len = written.inspect_err(|_| self.last_failure_ns = self.now_ns)?;
        self.calls.notifications.push(message.to_vec());
        if message.windows(10).any(|word| word == b"WATCHDOG=1") {
            self.watchdog_notified_ns = self.now_ns;
        }
        Ok(len)
    }

    pub(crate) fn memory(&mut self, fd: RawFd) -> Result<&mut MemoryFile, Errno> {
        match self.file(fd)? {
            File::Memory(memory) => Ok(memory),
            _ => Err(Errno::INVAL),
        }
    }

    /// pwrite(2).
    pub(crate) fn write_at(&mut self, fd: RawFd, bytes: &[u8], at: usize) -> Result<usize, Errno> {
        self.fault(CallKind::Store)?;
        let memory = self.memory(fd)?;
        let end = at + bytes.len();
        if end > memory.bytes.len() {
            if !memory.can_grow {
                return Err(Errno::PERM);
            }
            memory.bytes.resize(end, 0);
        }
        memory.bytes[at..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// write(2) to any description.
    pub(crate) fn write(&mut self, fd: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
        match self.file(fd)? {
            File::Null => Ok(bytes.len()),
            File::Log => {
                self.fault(CallKind::Log)?;
                let len = self.log.write(bytes, true)?;
                self.calls.logged.extend_from_slice(&bytes[..len]);
                Ok(len)
            }
            File::Memory(memory) => {
                let at = memory.position;
                let len = self.write_at(fd, bytes, at)?;
                self.memory(fd)?.position += len;
                Ok(len)
            }
            _ => Err(Errno::INVAL),
        }
    }
}
