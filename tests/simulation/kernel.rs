//! A kernel in memory. It returns what Linux may return (tests/simulation/conformance.rs compares
//! the two). The tests move its clock, and choose when what peers send arrives and in which turns
//! calls may fail.
//!
//! The daemon calls it through [`super::os`]; the driver moves its clock, its peers and its
//! other processes, and the judges look at it. It knows no rule, and nothing about the daemon.

pub(crate) mod calls;
pub(crate) mod dead_hosts;
pub(crate) mod draws;
pub(crate) mod epoll;
pub(crate) mod files;
pub(crate) mod listening;
pub(crate) mod peers;
pub(crate) mod processes;
pub(crate) mod sockets;
pub(crate) mod stream;

use crate::simulation::operator::expected_rules::RULES_TEXTS;
pub(crate) use calls::{CallKind, KernelEvent, TurnCalls};
use draws::Draws;
use epoll::Epoll;
use files::{MemoryFile, PathEntry};
use processes::{Child, ForkedChild};
use rustix::io::Errno;
use slab::Slab;
use sockets::{RemotePeer, SimulatedSocket};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::os::fd::RawFd;

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::new(Kernel::new(0));
}

/// The kernel of this thread.
pub(crate) fn kernel<R>(call: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(call)
}

/// Starts from nothing: no process, no file, no time.
pub(crate) fn boot(seed: u64) {
    kernel(|k| *k = Kernel::new(seed));
}

/// The number of an open file description.
pub(crate) type FileId = usize;

/// An open file description.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum File {
    /// /dev/null, which also stands in for terminals.
    Null,
    Socket(SimulatedSocket),
    Epoll(Epoll),
    Memory(MemoryFile),
    Signals,
    /// The child with this process id.
    Child(i32),
    /// The pipe that the daemon's log goes to.
    Log,
    /// A file of this inode, by O_PATH.
    Path(u64),
    /// A socket that an operator has passed: closing it blocks, if it lingers.
    Passed {
        lingers: bool,
    },
}

/// A descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) file: FileId,
    pub(crate) closes_on_exec: bool,
}

/// The descriptors of a process.
pub(crate) type DescriptorTable = BTreeMap<RawFd, Descriptor>;

pub(crate) struct Kernel {
    pub(crate) now_ns: u64,
    /// Decides what Linux leaves open: order, lengths, moments.
    pub(crate) draws: Draws,
    /// One call in this many fails; 0: none does.
    pub(crate) one_fails_in: u64,
    /// Only watching fails, so that the calls before it succeed.
    pub(crate) only_watching_fails: bool,
    /// One call in this many lets something arrive meanwhile; 0: none does.
    pub(crate) one_arrives_in: u64,
    pub(crate) files: Slab<File>,
    /// The daemon's, and on top of it that of a forked child.
    pub(crate) tables: Vec<DescriptorTable>,
    /// How many images of the daemon have been executed: what an older one closes is ignored.
    pub(crate) image: u64,
    /// Descriptions that another process also holds.
    pub(crate) held: BTreeMap<FileId, usize>,
    pub(crate) paths: BTreeMap<String, PathEntry>,
    /// Where the daemon was started; `None` once that has been removed.
    pub(crate) directory: Option<&'static str>,
    pub(crate) peers: BTreeMap<u32, RemotePeer>,
    /// Each time a connection is accepted, one of these may connect.
    pub(crate) retrying: VecDeque<listening::RetryingPeer>,
    /// The inodes of files that other daemons listen on.
    foreign_inodes: Vec<u64>,
    /// TCP ports of other processes.
    pub(crate) foreign_ports: Vec<std::net::SocketAddr>,
    pub(crate) signals: Vec<i32>,
    pub(crate) descriptors_max: u64,
    pub(crate) limit_changed_ns: u64,
    /// When the daemon last had no descriptor left for its own use.
    pub(crate) last_full_ns: u64,
    /// The highest limit since the daemon's image was started.
    pub(crate) image_descriptors_max: u64,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: BTreeMap<String, OsString>,
    pub(crate) children: Vec<Child>,
    pub(crate) log: files::OutputReader,
    /// Files of other daemons that this one has removed.
    pub(crate) removed_foreign: Vec<String>,
    pub(crate) notify: files::OutputReader,
    pub(crate) calls: TurnCalls,
    /// The next image closes a connection that it was handed.
    pub(crate) drops_connection: bool,
    /// The daemon was passed a listening socket at its start.
    pub(crate) was_passed: bool,
    /// The child that runs now.
    pub(crate) forked: Option<ForkedChild>,
    /// How often the daemon has read the figures of its process.
    pub(crate) process_reads: usize,
    /// The service manager has replaced its socket, and the daemon has not noticed that yet.
    pub(crate) notify_is_new: bool,
    pub(crate) watchdog_notified_ns: u64,
    pub(crate) ever_failed: Vec<CallKind>,
    pub(crate) last_failure_ns: u64,
    /// Listeners that the daemon should leave alone until then: accept(2) failed there for an
    /// unknown reason.
    left_alone: BTreeMap<FileId, u64>,
    /// What the file of rules contains; `None` if there is no such file.
    pub(crate) rules_text: Option<&'static str>,
    /// How often the daemon or a trial has read it, and what was read last.
    pub(crate) rules_reads: usize,
    pub(crate) rules_read: Option<&'static str>,
    /// What new files lack of mode 777: umask(2).
    pub(crate) umask: u32,
    /// The inodes of files that the daemon's sockets made.
    bound_inodes: Vec<u64>,
    last_inode: u64,
    last_pid: i32,
    last_port: u16,
}

impl Kernel {
    fn new(seed: u64) -> Self {
        let mut kernel = Kernel {
            now_ns: 1_000_000_000,
            draws: Draws::new(seed),
            one_fails_in: 0,
            only_watching_fails: false,
            one_arrives_in: 0,
            files: Slab::new(),
            tables: vec![DescriptorTable::new()],
            image: 0,
            held: BTreeMap::new(),
            paths: BTreeMap::new(),
            directory: Some(""),
            peers: BTreeMap::new(),
            retrying: VecDeque::new(),
            foreign_inodes: Vec::new(),
            foreign_ports: Vec::new(),
            signals: Vec::new(),
            descriptors_max: 20_000,
            limit_changed_ns: 0,
            last_full_ns: 0,
            image_descriptors_max: 20_000,
            arguments: Vec::new(),
            variables: BTreeMap::new(),
            children: Vec::new(),
            log: files::OutputReader::new(4096),
            removed_foreign: Vec::new(),
            notify: files::OutputReader::new(50),
            calls: TurnCalls::default(),
            drops_connection: false,
            was_passed: false,
            forked: None,
            process_reads: 0,
            notify_is_new: false,
            watchdog_notified_ns: 0,
            ever_failed: Vec::new(),
            last_failure_ns: 0,
            left_alone: BTreeMap::new(),
            rules_text: Some(RULES_TEXTS[0].0),
            rules_reads: 0,
            rules_read: None,
            umask: 0o022,
            bound_inodes: Vec::new(),
            last_inode: 0,
            last_pid: 100,
            last_port: 40_000,
        };
        for fd in 0..2 {
            let null = kernel.files.insert(File::Null);
            kernel.put(fd, null, false);
        }
        let log = kernel.files.insert(File::Log);
        kernel.put(2, log, false);
        kernel.add_path(processes::PROGRAM, PathEntry::file());
        kernel.variables.insert("PATH".to_owned(), "/bin:/usr/bin".into());
        kernel
    }

    /// Whether something happens that one time in `n` does: a drawn 0 means that it does not.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.draws.below_reversed(n) == n - 1
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.draws.below(bound as u64) as usize
    }

    /// See [`Draws::below_reversed`].
    pub(crate) fn below_reversed(&mut self, bound: usize) -> usize {
        self.draws.below_reversed(bound as u64) as usize
    }

    /// Whether this call fails, and how: with the errors of its man page, except EAGAIN where Linux
    /// would take the bytes.
    pub(crate) fn fault(&mut self, call: CallKind) -> Result<(), Errno> {
        if self.only_watching_fails && call != CallKind::Watch || !self.one_in(self.one_fails_in) {
            return Ok(());
        }
        let errors: &[Errno] = match call {
            CallKind::Accept => &[
                Errno::MFILE,
                Errno::NFILE,
                Errno::NOBUFS,
                Errno::NOMEM,
                Errno::CONNABORTED,
                Errno::INTR,
                Errno::PROTO,
                Errno::PERM,
                Errno::HOSTUNREACH,
                Errno::NETDOWN,
                Errno::NOPROTOOPT,
                Errno::HOSTDOWN,
                Errno::NONET,
                Errno::OPNOTSUPP,
                Errno::NETUNREACH,
                Errno::INVAL,
                Errno::FAULT,
            ],
            CallKind::Receive => &[
                Errno::INTR,
                Errno::CONNRESET,
                Errno::TIMEDOUT,
                Errno::HOSTUNREACH,
                Errno::NOMEM,
                Errno::NOBUFS,
                Errno::IO,
                Errno::CONNREFUSED,
                Errno::NOTCONN,
                Errno::BADF,
                Errno::FAULT,
                Errno::INVAL,
                Errno::NOTSOCK,
            ],
            CallKind::Send => &[
                Errno::INTR,
                Errno::PIPE,
                Errno::CONNRESET,
                Errno::TIMEDOUT,
                Errno::HOSTUNREACH,
                Errno::ACCESS,
                Errno::NOBUFS,
                Errno::NOMEM,
                Errno::IO,
                Errno::MSGSIZE,
                Errno::NOTCONN,
                Errno::BADF,
                Errno::FAULT,
                Errno::INVAL,
                Errno::NOTSOCK,
                Errno::OPNOTSUPP,
                Errno::DESTADDRREQ,
            ],
            CallKind::Wait => &[Errno::INTR, Errno::INTR, Errno::BADF, Errno::FAULT, Errno::INVAL],
            CallKind::Watch => &[Errno::NOMEM, Errno::NOSPC],
            CallKind::WatchConnection => &[
                Errno::NOMEM,
                Errno::NOSPC,
                Errno::PERM,
                Errno::EXIST,
                Errno::BADF,
                Errno::INVAL,
                Errno::LOOP,
                Errno::NOENT,
            ],
            CallKind::Open => &[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS],
            CallKind::Bind => &[Errno::ADDRINUSE, Errno::ADDRNOTAVAIL, Errno::ACCESS],
            CallKind::Listen => &[Errno::ADDRINUSE, Errno::NOBUFS],
            CallKind::SetGroup => &[Errno::PERM, Errno::ROFS, Errno::IO],
            CallKind::Log => &[Errno::NOSPC, Errno::IO, Errno::PIPE, Errno::AGAIN, Errno::INTR],
            CallKind::Store => &[Errno::NOSPC, Errno::NOMEM, Errno::INTR],
            CallKind::SetOption => &[Errno::NOBUFS],
            CallKind::Fork => &[Errno::NOMEM, Errno::AGAIN],
            CallKind::Exec => &[Errno::NOENT, Errno::NOMEM, Errno::ACCESS],
        };
        let errno = errors[self.below(errors.len())];
        self.calls.failures.push((call, errno));
        self.ever_failed.push(call);
        self.last_failure_ns = self.now_ns;
        Err(errno)
    }

    /// Whether such a call failed in this turn.
    pub(crate) fn has_failed(&self, call: CallKind) -> bool {
        self.calls.failures.iter().any(|(failed, _)| *failed == call)
    }

    pub(crate) fn note(&mut self, seen: KernelEvent) {
        // Room, an order or another image is a reason to try again.
        if !matches!(seen, KernelEvent::Accepted { .. } | KernelEvent::AcceptFailed) {
            self.left_alone.clear();
        }
        self.calls.seen.push(seen);
    }

    pub(crate) fn table(&self) -> &DescriptorTable {
        self.tables.last().expect("a process")
    }

    pub(crate) fn table_mut(&mut self) -> &mut DescriptorTable {
        self.tables.last_mut().expect("a process")
    }

    /// Whether the process that calls is a forked child of the daemon.
    pub(crate) fn is_in_child(&self) -> bool {
        self.tables.len() > 1
    }

    /// Puts a description under a number, whatever was there before.
    pub(crate) fn put(&mut self, fd: RawFd, file: FileId, closes_on_exec: bool) {
        let before = self.table_mut().insert(fd, Descriptor { file, closes_on_exec });
        if let Some(before) = before {
            self.release(before.file);
        }
    }

    /// Opens a description under the lowest free number from `low` on.
    pub(crate) fn open_from(
        &mut self,
        low: RawFd,
        file: FileId,
        closes_on_exec: bool,
    ) -> Result<RawFd, Errno> {
        let table = self.table();
        let fd = (low..).find(|fd| !table.contains_key(fd)).expect("a number");
        if fd as u64 >= self.descriptors_max {
            self.release(file);
            self.last_full_ns = self.now_ns;
            return Err(Errno::MFILE);
        }
        self.put(fd, file, closes_on_exec);
        Ok(fd)
    }

    /// A new description and its descriptor.
    pub(crate) fn open(&mut self, file: File) -> Result<RawFd, Errno> {
        self.fault(CallKind::Open)?;
        let file = self.files.insert(file);
        self.open_from(0, file, true)
    }

    /// Whether there is no descriptor left, or was none just now.
    pub(crate) fn was_full(&self) -> bool {
        self.table().len() as u64 >= self.descriptors_max || self.last_full_ns == self.now_ns
    }

    pub(crate) fn descriptor(&self, fd: RawFd) -> Result<Descriptor, Errno> {
        self.table().get(&fd).copied().ok_or(Errno::BADF)
    }

    pub(crate) fn file(&mut self, fd: RawFd) -> Result<&mut File, Errno> {
        let file = self.descriptor(fd)?.file;
        Ok(&mut self.files[file])
    }

    pub(crate) fn set_closes_on_exec(&mut self, fd: RawFd, closes: bool) -> Result<(), Errno> {
        let descriptor = self.table_mut().get_mut(&fd).ok_or(Errno::BADF)?;
        descriptor.closes_on_exec = closes;
        Ok(())
    }

    /// fcntl(2), F_DUPFD_CLOEXEC.
    pub(crate) fn duplicate_from(&mut self, fd: RawFd, low: RawFd) -> Result<RawFd, Errno> {
        let file = self.descriptor(fd)?.file;
        self.fault(CallKind::Open)?;
        self.open_from(low, file, true)
    }

    /// dup3(2).
    pub(crate) fn duplicate_to(
        &mut self,
        fd: RawFd,
        to: RawFd,
        closes_on_exec: bool,
    ) -> Result<(), Errno> {
        let file = self.descriptor(fd)?.file;
        self.put(to, file, closes_on_exec);
        Ok(())
    }

    pub(crate) fn close(&mut self, fd: RawFd) {
        if let Some(closed) = self.table_mut().remove(&fd) {
            self.release(closed.file);
        }
    }

    /// Ends a description that no process has open.
    pub(crate) fn release(&mut self, file: FileId) {
        let is_open = |table: &DescriptorTable| table.values().any(|d| d.file == file);
        if self.tables.iter().any(is_open) || self.held.contains_key(&file) {
            return;
        }
        for (_, other) in &mut self.files {
            if let File::Epoll(epoll) = other {
                epoll.forget(file);
            }
        }
        let Some(ended) = self.files.try_remove(file) else {
            return;
        };
        match ended {
            File::Socket(socket) => self.end_socket(socket),
            File::Passed { lingers } => self.calls.lingers += usize::from(lingers),
            _ => {}
        }
    }

    /// Another process also holds the description behind `fd`.
    pub(crate) fn hold(&mut self, fd: RawFd) -> Result<FileId, Errno> {
        let file = self.descriptor(fd)?.file;
        *self.held.entry(file).or_default() += 1;
        Ok(file)
    }

    /// Other processes close their descriptors.
    pub(crate) fn release_held(&mut self) {
        for file in std::mem::take(&mut self.held).into_keys() {
            self.release(file);
        }
    }

    pub(crate) fn new_inode(&mut self) -> u64 {
        self.last_inode += 1;
        self.last_inode
    }

    pub(crate) fn new_pid(&mut self) -> i32 {
        self.last_pid += 1;
        self.last_pid
    }

    pub(crate) fn new_port(&mut self) -> u16 {
        self.last_port += 1;
        self.last_port
    }
}
