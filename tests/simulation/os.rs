//! Replaces src/platform/os.rs: the same names, on the simulated kernel. Constants, errors
//! and addresses are the real ones. [`sys`] has the names of src/platform/sys.rs.
//!
//! The daemon's own code calls it, and it calls the simulated kernel. It knows no script and judges
//! nothing; its engine records the calls, which are judged later.

mod dry_run;
mod files;
mod network;
mod processes;
pub(crate) mod recording_engine;
pub(crate) mod sys;

pub(crate) use recording_engine::Engine;

/// So few that a report takes several turns of the loop, unless there are few clients.
pub(crate) const CONNECTIONS_PER_TURN: usize = 4;

/// So few that a crowd's keys take several turns.
pub(crate) const PLACES_PER_TURN: usize = 40;

/// So few that clients wait for several turns.
pub(crate) const SHARES_PER_TURN: usize = 4;

/// Descriptors: closed when dropped, unless another image of the process runs by then.
pub(crate) mod fd {
    use super::super::kernel::kernel;
    use rustix::io::Errno;
    use std::marker::PhantomData;
    pub(crate) use std::os::fd::RawFd;

    #[derive(Debug)]
    pub(crate) struct OwnedFd {
        fd: RawFd,
        image: u64,
    }

    impl OwnedFd {
        pub(crate) fn new(fd: RawFd) -> Self {
            OwnedFd { fd, image: kernel(|k| k.image) }
        }

        pub(crate) fn try_clone(&self) -> std::io::Result<OwnedFd> {
            super::io::fcntl_dupfd_cloexec(self, 3).map_err(Errno::into)
        }
    }

    impl Drop for OwnedFd {
        fn drop(&mut self) {
            kernel(|k| {
                if k.image == self.image {
                    k.close(self.fd);
                }
            });
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct BorrowedFd<'a>(pub(crate) RawFd, pub(crate) PhantomData<&'a ()>);

    pub(crate) trait AsFd {
        fn as_fd(&self) -> BorrowedFd<'_>;

        /// Whether the image that opened it still runs. Descriptors of an older image do nothing.
        fn is_current(&self) -> bool {
            true
        }
    }

    pub(crate) trait AsRawFd {
        fn as_raw_fd(&self) -> RawFd;
    }

    impl AsFd for OwnedFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            BorrowedFd(self.fd, PhantomData)
        }

        fn is_current(&self) -> bool {
            kernel(|k| k.image == self.image)
        }
    }

    impl AsFd for BorrowedFd<'_> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            *self
        }
    }

    impl<T: AsFd> AsFd for &T {
        fn as_fd(&self) -> BorrowedFd<'_> {
            T::as_fd(self)
        }

        fn is_current(&self) -> bool {
            T::is_current(self)
        }
    }

    impl<T: AsFd> AsFd for &mut T {
        fn as_fd(&self) -> BorrowedFd<'_> {
            T::as_fd(self)
        }
    }

    impl AsRawFd for OwnedFd {
        fn as_raw_fd(&self) -> RawFd {
            self.fd
        }
    }

    impl AsRawFd for BorrowedFd<'_> {
        fn as_raw_fd(&self) -> RawFd {
            self.0
        }
    }

    pub(crate) fn number(fd: impl AsFd) -> RawFd {
        fd.as_fd().0
    }
}

/// epoll as mio shows it.
pub(crate) mod mio {
    use super::super::kernel::processes::Asleep;
    use super::super::kernel::{File, kernel};
    use super::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
    pub(crate) use ::mio::{Interest, Token};
    use rustix::event::epoll::EventFlags;
    use rustix::io::Errno;
    use std::io;
    use std::panic::resume_unwind;
    use std::time::Duration;

    pub(crate) mod event {
        use super::*;

        pub(crate) struct Event(pub(super) Token, pub(super) EventFlags);

        /// As mio reads epoll's flags.
        impl Event {
            pub(crate) fn token(&self) -> Token {
                self.0
            }

            pub(crate) fn is_readable(&self) -> bool {
                self.1.intersects(EventFlags::IN | EventFlags::PRI)
            }

            pub(crate) fn is_writable(&self) -> bool {
                self.1.contains(EventFlags::OUT)
            }

            pub(crate) fn is_error(&self) -> bool {
                self.1.contains(EventFlags::ERR)
            }

            pub(crate) fn is_read_closed(&self) -> bool {
                self.1.contains(EventFlags::HUP)
                    || self.1.contains(EventFlags::IN | EventFlags::RDHUP)
            }

            pub(crate) fn is_priority(&self) -> bool {
                self.1.contains(EventFlags::PRI)
            }
        }
    }

    pub(crate) mod unix {
        use super::RawFd;

        pub(crate) struct SourceFd<'a>(pub(crate) &'a RawFd);
    }

    use event::Event;
    use unix::SourceFd;

    pub(crate) struct Events {
        events: Vec<Event>,
        capacity: usize,
    }

    impl Events {
        pub(crate) fn with_capacity(capacity: usize) -> Self {
            Events { events: Vec::new(), capacity }
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
            self.events.iter()
        }

        pub(crate) fn clear(&mut self) {
            self.events.clear();
        }
    }

    pub(crate) struct Registry {
        epoll: OwnedFd,
    }

    pub(crate) struct Poll {
        registry: Registry,
    }

    impl Poll {
        pub(crate) fn new() -> io::Result<Self> {
            let epoll = kernel(|k| k.open(File::Epoll(Default::default())))?;
            Ok(Poll { registry: Registry { epoll: OwnedFd::new(epoll) } })
        }

        pub(crate) fn registry(&self) -> &Registry {
            &self.registry
        }

        /// Never waits: leaves the turn if the real one would.
        pub(crate) fn poll(
            &mut self,
            events: &mut Events,
            timeout: Option<Duration>,
        ) -> io::Result<()> {
            events.clear();
            let epoll = self.as_raw_fd();
            let timeout_ns = timeout.map(|timeout| timeout.as_nanos() as u64);
            let asleep = kernel(|k| {
                let until_ns = timeout_ns.map(|timeout_ns| k.now_ns + timeout_ns);
                (timeout_ns != Some(0) && !k.has_events(epoll)).then_some(Asleep { until_ns })
            });
            if let Some(asleep) = asleep {
                resume_unwind(Box::new(asleep));
            }
            let taken = kernel(|k| k.take_events(epoll, events.capacity))?;
            events.events =
                taken.into_iter().map(|(token, flags)| Event(Token(token), flags)).collect();
            Ok(())
        }
    }

    impl AsRawFd for Poll {
        fn as_raw_fd(&self) -> RawFd {
            self.registry.epoll.as_raw_fd()
        }
    }

    impl AsFd for Poll {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.registry.epoll.as_fd()
        }
    }

    impl Registry {
        pub(crate) fn register(
            &self,
            source: &mut SourceFd<'_>,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            let epoll = self.epoll.as_raw_fd();
            Ok(kernel(|k| k.watch(epoll, *source.0, token.0, flags_of(interest)))?)
        }

        pub(crate) fn reregister(
            &self,
            source: &mut SourceFd<'_>,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            let epoll = self.epoll.as_raw_fd();
            Ok(kernel(|k| k.rewatch(epoll, *source.0, token.0, flags_of(interest)))?)
        }

        pub(crate) fn deregister(&self, source: &mut SourceFd<'_>) -> io::Result<()> {
            let epoll = self.epoll.as_raw_fd();
            Ok(kernel(|k| k.unwatch(epoll, *source.0))?)
        }
    }

    /// As mio asks epoll for them; edge-triggered.
    fn flags_of(interest: Interest) -> EventFlags {
        let mut flags = EventFlags::empty();
        if interest.is_readable() {
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if interest.is_writable() {
            flags |= EventFlags::OUT;
        }
        if interest.is_priority() {
            flags |= EventFlags::PRI;
        }
        flags
    }

    /// `?` converts the kernel's errors.
    const _: fn(Errno) -> io::Error = Errno::into;
}

pub(crate) mod event {
    use super::super::kernel::kernel;
    use super::fd::{AsFd, RawFd, number};
    use rustix::event::epoll::EventFlags;
    pub(crate) use rustix::event::{PollFlags, Timespec};
    use rustix::io::Errno;
    use std::marker::PhantomData;

    pub(crate) struct PollFd<'a> {
        fd: RawFd,
        flags: PollFlags,
        revents: PollFlags,
        of: PhantomData<&'a ()>,
    }

    impl<'a> PollFd<'a> {
        pub(crate) fn new(fd: &'a impl AsFd, flags: PollFlags) -> Self {
            PollFd { fd: number(fd), flags, revents: PollFlags::empty(), of: PhantomData }
        }

        pub(crate) fn revents(&self) -> PollFlags {
            self.revents
        }
    }

    /// The same flags as epoll has them. Those of poll are an i16 or a u16, as the architecture is.
    pub(crate) fn event_flags(flags: PollFlags) -> EventFlags {
        EventFlags::from_bits_retain(u16::from_ne_bytes(flags.bits().to_ne_bytes()).into())
    }

    /// Never waits, whatever the timeout, but a reader may read meanwhile.
    pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<usize, Errno> {
        let waits = timeout.is_none_or(|timeout| *timeout != Timespec::default());
        kernel(|k| {
            if waits {
                for wanted in &*fds {
                    k.wait_for_reader(wanted.fd);
                }
            }
            let mut ready = 0;
            for wanted in fds {
                let file = k.descriptor(wanted.fd)?.file;
                let always = PollFlags::ERR | PollFlags::HUP;
                let there = k.readiness(file) & event_flags(wanted.flags | always);
                wanted.revents = PollFlags::from_bits_retain(there.bits() as _);
                ready += usize::from(!there.is_empty());
            }
            Ok(ready)
        })
    }
}

pub(crate) use files::{fs, io, stdio};
pub(crate) use network::net;
pub(crate) use processes::{env, process, thread, time};
