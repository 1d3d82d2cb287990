//! Hosts that vanish silently: two network namespaces with a cable between them, cut at
//! the far end.

use super::{Client, DAEMON, Server, launched, skip};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Starts a program in a network of its own. `None`, with a message, if that can't be.
pub(crate) fn own_network() -> Option<[&'static str; 2]> {
    let launcher = ["unshare", "--net"];
    if !rustix::process::geteuid().is_root() {
        skip("network namespaces need root");
        return None;
    }
    let can = launched(&launcher, "true", &[]).status().is_ok_and(|it| it.success());
    if !can {
        skip("this kernel, or container, gives no network namespaces");
    }
    can.then_some(launcher)
}

/// A host at the other end of the cable: a shell in a network namespace, which ends with
/// the shell.
pub(crate) struct Host {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    /// Boots without a cable. `None`, with a message, if namespaces are unavailable.
    pub(crate) fn boot() -> Option<Host> {
        if !rustix::process::geteuid().is_root() {
            skip("network namespaces need root");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "bash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("unshare, of util-linux");
        let input = shell.stdin.take().expect("stdin");
        let output = BufReader::new(shell.stdout.take().expect("stdout"));
        let mut host = Host { shell, input, output };
        if host.run("echo booted") != "booted" {
            skip("this kernel, or container, gives no network namespaces");
            return None;
        }
        Some(host)
    }

    /// Lays a cable to another host, and gives both an address.
    pub(crate) fn lay_cable(&mut self, other: &mut Host) {
        let laid = self.run(&format!(
            "ip link add cable type veth peer name cable netns {} && ip link set lo up && \
             ip addr add 192.0.2.1/24 dev cable && ip link set cable up && echo laid",
            other.shell.id()
        ));
        assert_eq!(laid, "laid");
        let up = "ip addr add 192.0.2.2/24 dev cable && ip link set cable up && echo up";
        assert_eq!(other.run(up), "up");
    }

    /// Does something on this host; a socket that it makes stays there.
    pub(crate) fn act<T: Send + 'static>(&self, act: fn() -> T) -> T {
        act_in_network_of(self.shell.id(), act)
    }

    /// Runs a line of shell; its output is one line.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let _ = writeln!(self.input, "{line}");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("the shell's output");
        answer.trim_end().to_owned()
    }

    /// Connects to the daemon and sends a line.
    pub(crate) fn send(&mut self, line: &str) {
        let connect = "exec 3<>/dev/tcp/192.0.2.1/7531";
        let sent = self.run(&format!("{connect} && echo '{line}' >&3 && echo sent"));
        assert_eq!(sent, "sent");
    }

    pub(crate) fn answer(&mut self) -> String {
        self.run(r#"read -r -t 30 answer <&3; echo "$answer""#)
    }

    /// Cuts the cable, as a loss of power would.
    pub(crate) fn vanish(&mut self) {
        assert_eq!(self.run("ip link set cable down && echo down"), "down");
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The daemon in its own network namespace with a cable to `host`.
pub(crate) fn start_with_cable(host: &mut Host, keepalive: &str) -> Server {
    let set_up = format!(
        "ip link add cable type veth peer name cable netns {} && ip link set lo up && \
         ip addr add 192.0.2.1/24 dev cable && ip link set cable up && exec \"$0\" \"$@\"",
        host.shell.id()
    );
    let launcher = ["unshare", "--net", "bash", "-c", &set_up];
    let arguments = ["-l", "192.0.2.1", "--keepalive", keepalive];
    let server = Server::spawn(&mut launched(&launcher, DAEMON, &arguments));
    let up = "ip addr add 192.0.2.2/24 dev cable && ip link set cable up && echo up";
    assert_eq!(host.run(up), "up");
    server
}

/// A client in the daemon's namespace, which does not use the cable.
pub(crate) fn neighbour(server: &Server) -> Client {
    let address = server.address();
    act_in_network_of(server.pid(), move || Client::connect(address))
}

/// Does something in a process's network: a thread enters it, and a socket that it makes stays
/// there.
fn act_in_network_of<T: Send + 'static>(pid: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = File::open(format!("/proc/{pid}/ns/net")).expect("a namespace");
    let acting = std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("only root may");
        act()
    });
    acting.join().expect("no panic")
}
