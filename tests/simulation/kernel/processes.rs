//! The daemon as a process: signals, children, new images.

use super::sockets::SocketRole;
use super::{CallKind, Descriptor, DescriptorTable, File, Kernel, KernelEvent};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::Path;

/// Where the daemon's binary is.
pub(crate) const PROGRAM: &str = "/usr/bin/poolcounterd";
/// Where the service manager listens for notifications.
pub(crate) const NOTIFY_PATH: &str = "/run/notify";
/// The same for a service manager with a watchdog: a name without a file.
pub(crate) const NOTIFY_NAME: &str = "@notify";
/// The process id of the daemon.
pub(crate) const PID: i32 = 100;

/// A child of the daemon.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    /// As waitpid(2) returns it.
    pub(crate) status: i32,
    /// Until this is set, it runs as far as the daemon can see.
    pub(crate) has_ended: bool,
    /// It was killed, and is dead from then on: its memory must be freed first.
    pub(crate) dies_ns: Option<u64>,
}

/// A forked child that runs; the daemon does not run until it has ended.
#[derive(Debug)]
pub(crate) struct ForkedChild {
    pid: i32,
    /// The daemon's own, while the child runs.
    variables: BTreeMap<String, OsString>,
}

/// Leaves the daemon's code where the real one would not return: the image was
/// replaced.
pub(crate) struct Executed;

/// Leaves a forked child's code: it has ended with this status.
pub(crate) struct ChildExited(pub(crate) i32);

/// Leaves the daemon's code where it sleeps: nothing has happened.
#[derive(Clone, Copy)]
pub(crate) struct Asleep {
    /// `None` if it sleeps until something happens.
    pub(crate) until_ns: Option<u64>,
}

impl Kernel {
    /// Sends the daemon a signal.
    pub(crate) fn signal(&mut self, number: i32) {
        if !self.signals.contains(&number) {
            self.signals.push(number);
        }
        self.wake_all(|file| matches!(file, File::Signals));
    }

    /// clone(2) with a table of descriptors of its own: the standard ones and `kept`.
    pub(crate) fn fork(&mut self, kept: [RawFd; 2]) -> Result<(), Errno> {
        self.fault(CallKind::Fork)?;
        let is_kept = |fd: &RawFd| *fd < 3 || kept.contains(fd);
        let table = self.table().iter().filter(|(fd, _)| is_kept(fd));
        let table: DescriptorTable = table.map(|(&fd, &descriptor)| (fd, descriptor)).collect();
        self.tables.push(table);
        let pid = self.new_pid();
        self.forked = Some(ForkedChild { pid, variables: self.variables.clone() });
        Ok(())
    }

    /// The forked child has ended; the daemon sees that later.
    pub(crate) fn end_child(&mut self, status: i32) -> i32 {
        let table = self.tables.pop().expect("a child");
        self.release_all(table.values());
        let ForkedChild { pid, variables } = self.forked.take().expect("a child");
        self.variables = variables;
        self.children.push(Child { pid, status: status << 8, has_ended: false, dies_ns: None });
        self.note(KernelEvent::Forked(pid));
        pid
    }

    fn release_all<'a>(&mut self, descriptors: impl Iterator<Item = &'a Descriptor>) {
        for descriptor in descriptors {
            self.release(descriptor.file);
        }
    }

    /// The daemon can see that its children have ended.
    pub(crate) fn end_children(&mut self) {
        for child in &mut self.children {
            child.has_ended = true;
        }
        self.wake_all(|file| matches!(file, File::Child(_)));
    }

    /// SIGKILL ends a child at once, or after a while.
    pub(crate) fn kill_child(&mut self, pid: i32) -> Result<(), Errno> {
        let dies_ns = self.now_ns + [0, 0, 20_000_000, 300_000_000][self.below(4)];
        let child = self.children.iter_mut().find(|child| child.pid == pid);
        let child = child.ok_or(Errno::SRCH)?;
        if !child.has_ended {
            (child.status, child.dies_ns) = (9, Some(dies_ns));
        }
        Ok(())
    }

    /// waitpid(2); it `waits` only for a child that was killed and has just begun, for one that
    /// only tries calls, or at the daemon's end: none of it takes time.
    pub(crate) fn reap_child(&mut self, pid: i32, waits: bool) -> Result<Option<i32>, Errno> {
        let found = self.children.iter().position(|child| child.pid == pid);
        let n = found.ok_or(Errno::CHILD)?;
        let Child { has_ended, dies_ns, .. } = self.children[n];
        let is_dead = waits || has_ended || dies_ns.is_some_and(|dies_ns| dies_ns <= self.now_ns);
        Ok(is_dead.then(|| self.children.remove(n).status))
    }

    /// When the last child that was killed is dead.
    pub(crate) fn last_death_ns(&self) -> Option<u64> {
        self.children.iter().filter_map(|child| child.dies_ns).max()
    }

    pub(crate) fn has_ended(&self, pid: i32) -> bool {
        self.children.iter().any(|child| child.pid == pid && child.has_ended)
    }

    /// The process id of the calling process.
    pub(crate) fn pid(&self) -> i32 {
        self.forked.as_ref().map_or(PID, |forked| forked.pid)
    }

    /// execve(2): descriptors that are not close-on-exec stay open.
    pub(crate) fn execute(
        &mut self,
        program: &Path,
        arguments: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<(), Errno> {
        self.path(program.to_str().expect("a path in UTF-8"))?;
        self.fault(CallKind::Exec)?;
        if !self.is_in_child() {
            self.begin_image(arguments);
        }
        let text = |name: &OsString| name.to_str().expect("a name in UTF-8").to_owned();
        self.variables =
            environment.iter().map(|(name, value)| (text(name), value.clone())).collect();
        let closed: DescriptorTable =
            self.table().clone().into_iter().filter(|(_, d)| d.closes_on_exec).collect();
        self.table_mut().retain(|_, descriptor| !descriptor.closes_on_exec);
        // Sockets that operators have passed may linger here.
        let lingers = self.calls.lingers;
        self.release_all(closed.values());
        self.calls.lingers = lingers;
        Ok(())
    }

    fn begin_image(&mut self, arguments: &[OsString]) {
        // Half a line may have been read, and there is room for another one.
        if self.one_in(4) {
            self.log.take();
        }
        self.image += 1;
        self.image_descriptors_max = self.descriptors_max;
        self.note(KernelEvent::Executed);
        self.calls.accepted = 0;
        self.arguments = arguments.to_vec();
    }

    /// The new binary may close a connection that it was handed; returns whether it has.
    pub(crate) fn lose_connection(&mut self, holders: &[u32]) -> bool {
        if holders.is_empty() || !std::mem::take(&mut self.drops_connection) {
            return false;
        }
        let n = self.below(holders.len());
        let Some(peer) = self.peers.get_mut(&holders[n]) else {
            return false;
        };
        peer.is_given_up = true;
        let socket = peer.socket;
        self.note(KernelEvent::Lost(holders[n]));
        let lost = self.table().iter().find(|(_, d)| Some(d.file) == socket).map(|(&fd, _)| fd);
        if let Some(fd) = lost {
            self.close(fd);
        }
        true
    }

    /// Whether the daemon's image has a descriptor that the one before it used for itself.
    pub(crate) fn has_leaked(&self) -> bool {
        let mut files = self.table().values().map(|descriptor| &self.files[descriptor.file]);
        files.any(|file| match file {
            File::Signals | File::Child(_) => true,
            File::Socket(socket) => matches!(socket.role, SocketRole::Idle | SocketRole::Notify),
            _ => false,
        })
    }

    /// What the kernel closes when the daemon ends.
    pub(crate) fn end_process(&mut self) {
        self.image += 1;
        let table = std::mem::take(&mut self.tables[0]);
        self.release_all(table.values());
    }
}
