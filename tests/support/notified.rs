//! A daemon whose log is not read, and the service manager that it notifies.

use super::{DAEMON, PATIENCE, launched, wait_for_exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::Child;

/// A daemon whose address is known without its log: its standard input is the listening
/// socket.
pub(crate) struct Unread {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Unread {
    pub(crate) fn start(stderr: OwnedFd, launcher: &[&str], variables: &[(&str, &str)]) -> Unread {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let mut command = launched(launcher, DAEMON, &[]);
        command.stdin(OwnedFd::from(listener)).stderr(stderr).envs(variables.iter().copied());
        Unread { child: command.spawn().expect("start the daemon"), address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    #[track_caller]
    pub(crate) fn expect_to_end(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(wait_for_exit(&mut self.child).code(), Some(0));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service manager's end of `NOTIFY_SOCKET`.
pub(crate) struct Notified {
    pub(crate) socket: UnixDatagram,
    address: UnixAddr,
    pub(crate) name: String,
}

impl Notified {
    pub(crate) fn at_path(name: &str) -> Notified {
        let path = temporary(name);
        let name = path.to_str().expect("path").to_owned();
        Notified::bound(UnixAddr::from_pathname(path).expect("an address"), name)
    }

    pub(crate) fn abstract_name(name: &str) -> Notified {
        let name = format!("pool-unread-{}-{name}", std::process::id());
        let address = UnixAddr::from_abstract_name(&name).expect("an address");
        Notified::bound(address, format!("@{name}"))
    }

    fn bound(address: UnixAddr, name: String) -> Notified {
        let socket = UnixDatagram::bind_addr(&address).expect("bind");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Notified { socket, address, name }
    }

    /// Fills the queue of the socket.
    pub(crate) fn fill(&self) {
        let sender = UnixDatagram::unbound().expect("socket");
        sender.set_nonblocking(true).expect("non-blocking");
        while sender.send_to_addr(b"FILLER=1", &self.address).is_ok() {}
    }

    pub(crate) fn receive(&self) -> String {
        let mut buffer = [0; 4096];
        let len = loop {
            match self.socket.recv(&mut buffer) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                received => break received.expect("a message"),
            }
        };
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    pub(crate) fn has_more(&self) -> bool {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec::default())).expect("poll") > 0
    }

    /// Reads messages until one has this line.
    pub(crate) fn expect(&self, line: &str) {
        while !self.receive().lines().any(|l| l == line) {}
    }

    pub(crate) fn daemon(&self, more: &[(&str, &str)]) -> Unread {
        let null = OpenOptions::new().write(true).open("/dev/null").expect("/dev/null");
        let mut variables = vec![("NOTIFY_SOCKET", self.name.as_str())];
        variables.extend(more);
        Unread::start(null.into(), &[], &variables)
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.name);
    }
}

/// An unused path.
pub(crate) fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pool-unread-{}-{name}", std::process::id()))
}
