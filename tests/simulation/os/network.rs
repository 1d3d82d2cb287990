//! The part of [`super`] about sockets.

pub(crate) mod net {
    use super::super::fd::{AsFd, OwnedFd, number};
    use crate::simulation::kernel::kernel;
    use crate::simulation::kernel::sockets::{
        LocalAddress, SimulatedSocket, SocketFamily, SocketRole,
    };
    use crate::simulation::kernel::{CallKind, File, KernelEvent};
    use rustix::io::Errno;
    pub(crate) use rustix::net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix,
        SocketFlags, SocketType, ipproto,
    };
    use std::io::IoSliceMut;
    use std::mem::MaybeUninit;
    use std::net::SocketAddr;

    /// What a socket can be bound or connected to.
    pub(crate) trait Address {
        fn local(&self) -> LocalAddress;
    }

    impl Address for SocketAddr {
        fn local(&self) -> LocalAddress {
            LocalAddress::Tcp(*self)
        }
    }

    impl Address for SocketAddrUnix {
        fn local(&self) -> LocalAddress {
            if let Some(name) = self.abstract_name() {
                return LocalAddress::Path(format!("@{}", String::from_utf8_lossy(name)));
            }
            let path = self.path().expect("a path");
            LocalAddress::Path(path.to_str().expect("text").to_owned())
        }
    }

    pub(crate) fn socket_with(
        family: AddressFamily,
        _kind: SocketType,
        flags: SocketFlags,
        _protocol: Option<rustix::net::Protocol>,
    ) -> Result<OwnedFd, Errno> {
        let family = match family {
            AddressFamily::INET => SocketFamily::V4,
            AddressFamily::INET6 => SocketFamily::V6,
            _ => SocketFamily::Unix,
        };
        let socket = OwnedFd::new(kernel(|k| k.open(File::Socket(SimulatedSocket::new(family))))?);
        with_flags(socket, flags)
    }

    fn with_flags(socket: OwnedFd, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        let closes = flags.contains(SocketFlags::CLOEXEC);
        kernel(|k| k.set_closes_on_exec(number(&socket), closes))?;
        Ok(socket)
    }

    pub(crate) fn bind(fd: impl AsFd, address: &impl Address) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| match address.local() {
            LocalAddress::Tcp(address) => k.bind_tcp(fd, address),
            LocalAddress::Path(path) => k.bind_path(fd, &path),
        })
    }

    pub(crate) fn getsockname(fd: impl AsFd) -> Result<SocketAddrAny, Errno> {
        let fd = number(fd);
        match kernel(|k| k.socket(fd).map(|socket| socket.local.clone()))?.ok_or(Errno::INVAL)? {
            LocalAddress::Tcp(address) => Ok(address.into()),
            LocalAddress::Path(path) => Ok(SocketAddrUnix::new(path)?.into()),
        }
    }

    pub(crate) fn getpeername(fd: impl AsFd) -> Result<Option<SocketAddrAny>, Errno> {
        let fd = number(fd);
        kernel(|k| {
            let SocketRole::Stream(stream) = &k.socket(fd)?.role else {
                return Err(Errno::NOTCONN);
            };
            let (peer, address) = (stream.peer, stream.peer_address);
            if !stream.has_peer() {
                k.note(KernelEvent::PeerUnknown(peer));
                return Err(Errno::NOTCONN);
            }
            Ok(address.map(SocketAddrAny::from))
        })
    }

    pub(crate) fn listen(fd: impl AsFd, backlog: i32) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| k.listen(fd, backlog))
    }

    pub(crate) fn connect(fd: impl AsFd, address: &impl Address) -> Result<(), Errno> {
        let fd = number(fd);
        kernel(|k| match address.local() {
            LocalAddress::Tcp(_) => Err(Errno::CONNREFUSED),
            LocalAddress::Path(path) => k.connect_to_path(fd, &path),
        })
    }

    pub(crate) fn accept_with(fd: impl AsFd, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        if !fd.is_current() {
            return Err(Errno::BADF);
        }
        let fd = number(fd);
        with_flags(OwnedFd::new(kernel(|k| k.accept(fd))?), flags)
    }

    pub(crate) fn recv(
        fd: impl AsFd,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> Result<(usize, usize), Errno> {
        let fd = number(fd);
        if flags.contains(RecvFlags::PEEK) {
            return kernel(|k| k.peek(fd, buffer)).map(|len| (len, len));
        }
        // Without room for descriptors, the kernel closes them.
        let (len, passed) = kernel(|k| k.receive(fd, buffer))?;
        kernel(|k| passed.into_iter().for_each(|file| k.release(file)));
        Ok((len, len))
    }

    /// Room for descriptors.
    pub(crate) struct RecvAncillaryBuffer(Vec<OwnedFd>);

    impl RecvAncillaryBuffer {
        pub(crate) fn new(_room: &mut [MaybeUninit<u8>]) -> Self {
            RecvAncillaryBuffer(Vec::new())
        }

        pub(crate) fn drain(&mut self) -> impl Iterator<Item = RecvAncillaryMessage> {
            let fds = std::mem::take(&mut self.0);
            (!fds.is_empty()).then(|| RecvAncillaryMessage::ScmRights(fds.into_iter())).into_iter()
        }
    }

    #[allow(dead_code)]
    pub(crate) enum RecvAncillaryMessage {
        ScmRights(std::vec::IntoIter<OwnedFd>),
        Other,
    }

    pub(crate) struct RecvMsg {
        pub(crate) bytes: usize,
    }

    pub(crate) fn recvmsg(
        fd: impl AsFd,
        buffers: &mut [IoSliceMut<'_>],
        room: &mut RecvAncillaryBuffer,
        _flags: RecvFlags,
    ) -> Result<RecvMsg, Errno> {
        if !fd.is_current() {
            return Err(Errno::BADF);
        }
        let fd = number(fd);
        let (bytes, passed) = kernel(|k| k.receive(fd, &mut buffers[0]))?;
        // The kernel closes files for which no descriptor is left.
        let fds = passed.into_iter().filter_map(|file| kernel(|k| k.open_from(0, file, true)).ok());
        room.0.extend(fds.map(OwnedFd::new));
        Ok(RecvMsg { bytes })
    }

    /// Also to the service manager, and to a log that is a socket.
    pub(crate) fn send(fd: impl AsFd, bytes: &[u8], _flags: SendFlags) -> Result<usize, Errno> {
        let fd = number(fd);
        kernel(|k| match k.file(fd)? {
            File::Socket(SimulatedSocket { role: SocketRole::Notify, .. }) => {
                k.notify_manager(bytes)
            }
            File::Socket(SimulatedSocket { role: SocketRole::Idle, .. }) => {
                Err(k.notify_closed_manager())
            }
            _ => k.send(fd, bytes),
        })
    }

    /// Shuts the writing side, or both.
    pub(crate) fn shutdown(fd: impl AsFd, how: Shutdown) -> Result<(), Errno> {
        if !fd.is_current() {
            return Err(Errno::BADF);
        }
        let fd = number(fd);
        kernel(|k| match how {
            Shutdown::Write => k.shut_writing(fd),
            _ => k.shut_both(fd),
        })
    }

    /// Socket options, kept by name.
    pub(crate) mod sockopt {
        use super::*;
        use std::time::Duration;

        fn set(fd: impl AsFd, name: &'static str, value: u64) -> Result<(), Errno> {
            let fd = number(fd);
            kernel(|k| {
                k.fault(CallKind::SetOption)?;
                k.socket(fd)?.options.insert(name, value);
                Ok(())
            })
        }

        pub(crate) fn socket_type(fd: impl AsFd) -> Result<SocketType, Errno> {
            let fd = number(fd);
            kernel(|k| k.socket(fd).map(|_| SocketType::STREAM))
        }

        pub(crate) fn socket_acceptconn(fd: impl AsFd) -> Result<bool, Errno> {
            let fd = number(fd);
            kernel(|k| k.socket(fd).map(|socket| matches!(socket.role, SocketRole::Listening(_))))
        }

        pub(crate) fn socket_domain(fd: impl AsFd) -> Result<AddressFamily, Errno> {
            let fd = number(fd);
            kernel(|k| {
                Ok(match k.socket(fd)?.family {
                    SocketFamily::V4 => AddressFamily::INET,
                    SocketFamily::V6 => AddressFamily::INET6,
                    SocketFamily::Unix => AddressFamily::UNIX,
                })
            })
        }

        pub(crate) fn socket_protocol(fd: impl AsFd) -> Result<Option<Protocol>, Errno> {
            let is_unix = socket_domain(fd)? == AddressFamily::UNIX;
            Ok((!is_unix).then_some(ipproto::TCP))
        }

        pub(crate) fn ipv6_v6only(fd: impl AsFd) -> Result<bool, Errno> {
            let fd = number(fd);
            kernel(|k| match k.socket(fd)?.family {
                SocketFamily::V6 => Ok(k.socket(fd)?.option("v6only") > 0),
                _ => Err(Errno::NOPROTOOPT),
            })
        }

        /// No process here sets it for a listener.
        pub(crate) fn socket_linger(_fd: impl AsFd) -> Result<Option<Duration>, Errno> {
            Ok(None)
        }

        /// Only turns lingering off.
        pub(crate) fn set_socket_linger(
            fd: impl AsFd,
            linger: Option<Duration>,
        ) -> Result<(), Errno> {
            assert_eq!(linger, None);
            let fd = number(fd);
            kernel(|k| match k.file(fd)? {
                File::Passed { lingers } => {
                    *lingers = false;
                    Ok(())
                }
                _ => Err(Errno::NOTSOCK),
            })
        }

        macro_rules! flags {
            ($($function:ident $name:literal;)*) => {$(
                pub(crate) fn $function(fd: impl AsFd, on: bool) -> Result<(), Errno> {
                    set(fd, $name, on.into())
                }
            )*};
        }

        flags! {
            set_socket_keepalive "keepalive";
            set_socket_oobinline "oobinline";
            set_socket_reuseaddr "reuseaddr";
            set_socket_reuseport "reuseport";
            set_ipv6_v6only "v6only";
            set_tcp_nodelay "nodelay";
        }

        macro_rules! numbers {
            ($($function:ident $name:literal $type:ty, $value:expr;)*) => {$(
                pub(crate) fn $function(
                    fd: impl AsFd,
                    value: $type,
                ) -> Result<(), Errno> {
                    let number: fn($type) -> u64 = $value;
                    set(fd, $name, number(value))
                }
            )*};
        }

        numbers! {
            set_tcp_keepidle "keepidle_s" Duration, |value| value.as_secs();
            set_tcp_keepintvl "keepintvl_s" Duration, |value| value.as_secs();
            set_tcp_keepcnt "keepcnt" u32, |value| value.into();
            set_tcp_user_timeout "user_timeout_ms" u32, |value| value.into();
        }
    }
}
