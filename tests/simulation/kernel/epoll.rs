//! epoll(7), edge-triggered.

use super::sockets::{SimulatedSocket, SocketRole};
use super::{CallKind, File, FileId, Kernel, KernelEvent};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

#[derive(Debug, Default)]
pub(crate) struct Epoll {
    watched: Vec<Watched>,
}

/// A descriptor that an epoll instance watches: by number and by description, as
/// epoll(7) says.
#[derive(Debug)]
struct Watched {
    fd: RawFd,
    file: FileId,
    token: usize,
    interest: EventFlags,
    /// Something happened since it was last reported.
    is_due: bool,
}

impl Epoll {
    pub(crate) fn forget(&mut self, file: FileId) {
        self.watched.retain(|watched| watched.file != file);
    }

    fn find(&mut self, fd: RawFd, file: FileId) -> Option<&mut Watched> {
        self.watched.iter_mut().find(|watched| watched.fd == fd && watched.file == file)
    }
}

impl Kernel {
    fn epoll(&mut self, fd: RawFd) -> Result<&mut Epoll, Errno> {
        match self.file(fd)? {
            File::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::INVAL),
        }
    }

    /// What poll(2) returns for a description.
    pub(crate) fn readiness(&self, file: FileId) -> EventFlags {
        let is = |ready| if ready { EventFlags::IN } else { EventFlags::empty() };
        match &self.files[file] {
            File::Socket(SimulatedSocket { role: SocketRole::Stream(stream), .. }) => {
                stream.readiness()
            }
            File::Socket(SimulatedSocket { role: SocketRole::Listening(queue), .. }) => {
                is(!queue.waiting.is_empty())
            }
            File::Socket(SimulatedSocket { role: SocketRole::Notify, .. })
                if !self.notify.has_room() =>
            {
                EventFlags::empty()
            }
            File::Socket(SimulatedSocket {
                role: SocketRole::Idle | SocketRole::Notify | SocketRole::Probe,
                ..
            }) => EventFlags::OUT,
            File::Signals => is(!self.signals.is_empty()),
            File::Child(pid) => is(self.has_ended(*pid)),
            File::Log if !self.log.has_room() => EventFlags::empty(),
            File::Log | File::Null | File::Memory(_) => EventFlags::IN | EventFlags::OUT,
            File::Epoll(_) | File::Path(_) | File::Passed { .. } => EventFlags::empty(),
        }
    }

    /// epoll_ctl(2), EPOLL_CTL_ADD.
    pub(crate) fn watch(
        &mut self,
        epoll: RawFd,
        fd: RawFd,
        token: usize,
        interest: EventFlags,
    ) -> Result<(), Errno> {
        let file = self.descriptor(fd)?.file;
        if self.epoll(epoll)?.find(fd, file).is_some() {
            return Err(Errno::EXIST);
        }
        self.fault_of_watch(file)?;
        self.note_polled(file);
        let is_due = self.is_of_interest(file, interest);
        self.epoll(epoll)?.watched.push(Watched { fd, file, token, interest, is_due });
        Ok(())
    }

    /// EPOLL_CTL_MOD.
    pub(crate) fn rewatch(
        &mut self,
        epoll: RawFd,
        fd: RawFd,
        token: usize,
        interest: EventFlags,
    ) -> Result<(), Errno> {
        let file = self.descriptor(fd)?.file;
        self.note_polled(file);
        let is_ready = self.is_of_interest(file, interest);
        self.epoll(epoll)?.find(fd, file).ok_or(Errno::NOENT)?;
        self.fault_of_watch(file)?;
        let watched = self.epoll(epoll)?.find(fd, file).ok_or(Errno::NOENT)?;
        (watched.token, watched.interest) = (token, interest);
        watched.is_due |= is_ready;
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub(crate) fn unwatch(&mut self, epoll: RawFd, fd: RawFd) -> Result<(), Errno> {
        let file = self.descriptor(fd)?.file;
        let epoll = self.epoll(epoll)?;
        epoll.find(fd, file).ok_or(Errno::NOENT)?;
        epoll.watched.retain(|watched| watched.fd != fd || watched.file != file);
        Ok(())
    }

    fn fault_of_watch(&mut self, file: FileId) -> Result<(), Errno> {
        let peer = self.stream(file).map(|stream| stream.peer);
        let call = if peer.is_some() { CallKind::WatchConnection } else { CallKind::Watch };
        let result = self.fault(call);
        if let (Err(_), Some(peer)) = (result, peer) {
            self.note(KernelEvent::WatchFailed(peer));
            if let Some(peer) = self.peers.get_mut(&peer) {
                peer.is_given_up = true;
            }
        }
        result
    }

    /// After a send to a full socket, an event comes when there is room.
    fn note_polled(&mut self, file: FileId) {
        if let Some(stream) = self.stream(file) {
            stream.wants_room |= !stream.is_writable();
        }
    }

    fn is_of_interest(&self, file: FileId, interest: EventFlags) -> bool {
        self.readiness(file).intersects(interest | EventFlags::ERR | EventFlags::HUP)
    }

    /// Something happened to a description: its watchers are due.
    pub(crate) fn wake(&mut self, file: FileId, what: EventFlags) {
        for (_, other) in &mut self.files {
            if let File::Epoll(epoll) = other {
                for watched in epoll.watched.iter_mut().filter(|watched| watched.file == file) {
                    let wanted = watched.interest | EventFlags::ERR | EventFlags::HUP;
                    watched.is_due |= wanted.intersects(what);
                }
            }
        }
    }

    /// Wakes the watchers of all descriptions of this kind.
    pub(crate) fn wake_all(&mut self, is_meant: impl Fn(&File) -> bool) {
        let meant: Vec<FileId> =
            self.files.iter().filter(|(_, file)| is_meant(file)).map(|(id, _)| id).collect();
        for file in meant {
            self.wake(file, EventFlags::IN);
        }
    }

    /// Whether something happened to a description that a wait has yet to report.
    pub(crate) fn is_due(&self, file: FileId) -> bool {
        let is_due = |other: &File| match other {
            File::Epoll(epoll) => epoll.watched.iter().any(|w| w.file == file && w.is_due),
            _ => false,
        };
        self.files.iter().any(|(_, other)| is_due(other))
    }

    /// Whether the daemon gets events of sockets that it has closed, because another process still
    /// holds them.
    pub(crate) fn watches_closed(&self) -> bool {
        let open: Vec<FileId> = self.table().values().map(|descriptor| descriptor.file).collect();
        open.iter().any(|&file| match &self.files[file] {
            File::Epoll(epoll) => epoll.watched.iter().any(|w| !open.contains(&w.file)),
            _ => false,
        })
    }

    /// Whether a wait would return at once.
    pub(crate) fn has_events(&self, epoll: RawFd) -> bool {
        let Ok(descriptor) = self.descriptor(epoll) else {
            return false;
        };
        let File::Epoll(epoll) = &self.files[descriptor.file] else {
            return false;
        };
        epoll.watched.iter().any(|w| w.is_due && self.is_of_interest(w.file, w.interest))
    }

    /// epoll_wait(2) without waiting: each due descriptor once, in any order.
    pub(crate) fn take_events(
        &mut self,
        epoll: RawFd,
        max: usize,
    ) -> Result<Vec<(usize, EventFlags)>, Errno> {
        self.let_arrive();
        self.fault(CallKind::Wait)?;
        let watched = self.epoll(epoll)?.watched.iter().filter(|watched| watched.is_due);
        let mut due: Vec<(RawFd, FileId)> = watched.map(|w| (w.fd, w.file)).collect();
        for n in (1..due.len()).rev() {
            let other = n - self.below_reversed(n + 1);
            due.swap(n, other);
        }
        let mut events = Vec::new();
        for (fd, file) in due {
            if events.len() == max {
                // The others come next time.
                break;
            }
            let Some(watched) = self.epoll(epoll)?.find(fd, file) else { continue };
            watched.is_due = false;
            let (token, interest) = (watched.token, watched.interest);
            self.note_polled(file);
            let flags = self.readiness(file) & (interest | EventFlags::ERR | EventFlags::HUP);
            if !flags.is_empty() {
                events.push((token, flags));
                if let File::Child(pid) = self.files[file] {
                    self.note(KernelEvent::TrialReported(pid));
                }
            }
        }
        self.calls.events += events.len();
        Ok(events)
    }
}
