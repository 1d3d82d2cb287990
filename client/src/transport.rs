//! A blocking connection's bytes, over TCP or a Unix socket.

use crate::server_name::{Place, ServerName};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A stream of either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects; each address of the server may take `timeout`.
    pub(crate) fn connect(server: &ServerName, timeout: Duration) -> io::Result<Stream> {
        let (host, port) = match server.place() {
            Place::Unix(path) => return connect_unix(path, timeout).map(Stream::Unix),
            Place::Tcp(host, port) => (host.as_str(), *port),
        };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Stream::Tcp(stream));
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    #[cfg(feature = "client")]
    /// As [`TcpStream::shutdown`], for both ways.
    pub(crate) fn shutdown(&self) {
        // It fails if the peer has closed it already.
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }
}

/// A Unix socket takes no time, unless more connect to it than are accepted from it.
#[cfg(feature = "check")]
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    use rustix::io::Errno;
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
        result => result?,
    }
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// The standard library can't bound this.
#[cfg(not(feature = "check"))]
fn connect_unix(path: &Path, _timeout: Duration) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}
