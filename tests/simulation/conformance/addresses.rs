//! Which sockets can be bound and listen at the same time, and what their options are:
//! both kernels must answer the same.

use super::{Random, judge_seeds};
use crate::simulation::kernel::listening::ConnectResult;
use crate::simulation::kernel::sockets::{LocalAddress, SimulatedSocket, SocketFamily, SocketRole};
use crate::simulation::kernel::{File, boot, kernel};
use rustix::io::Errno;
use rustix::net::*;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

const STEPS: usize = 12;
const SLOTS: u64 = 3;

#[derive(Clone, Copy, Debug)]
struct BindOptions {
    is_v6: bool,
    reuseaddr: bool,
    reuseport: bool,
    v6only: bool,
}

#[derive(Clone, Copy, Debug)]
enum BindStep {
    /// Opens a socket with these options, and binds it.
    Bind {
        slot: usize,
        options: BindOptions,
        ip: &'static str,
    },
    Listen {
        slot: usize,
    },
    Close {
        slot: usize,
    },
}

fn step(random: &mut Random) -> BindStep {
    let slot = (random.next() % SLOTS) as usize;
    match random.next() % 8 {
        0..4 => {
            let mut is = || random.one_of(&[true, false]);
            let options =
                BindOptions { is_v6: is(), reuseaddr: is(), reuseport: is(), v6only: is() };
            let ips = if options.is_v6 {
                ["::", "::", "::1"]
            } else {
                ["0.0.0.0", "127.0.0.1", "127.0.0.2"]
            };
            BindStep::Bind { slot, options, ip: random.one_of(&ips) }
        }
        4..7 => BindStep::Listen { slot },
        _ => BindStep::Close { slot },
    }
}

/// Sockets of the real kernel; each is bound.
#[derive(Default)]
struct RealSockets {
    slots: [Option<OwnedFd>; SLOTS as usize],
    /// How many sockets with SO_REUSEPORT were ever bound.
    sharers: usize,
}

impl RealSockets {
    fn act(&mut self, step: &BindStep, port: u16) -> Option<Result<(), Errno>> {
        match *step {
            BindStep::Bind { slot, options, ip } if self.slots[slot].is_none() => {
                let family = if options.is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
                let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
                let socket = socket.expect("a socket");
                let all = "options can be set";
                sockopt::set_socket_reuseaddr(&socket, options.reuseaddr).expect(all);
                sockopt::set_socket_reuseport(&socket, options.reuseport).expect(all);
                if options.is_v6 {
                    sockopt::set_ipv6_v6only(&socket, options.v6only).expect(all);
                }
                let result = bind(&socket, &address(ip, port));
                self.sharers += usize::from(result.is_ok() && options.reuseport);
                self.slots[slot] = result.is_ok().then_some(socket);
                Some(result)
            }
            BindStep::Bind { .. } => None,
            BindStep::Listen { slot } => {
                let socket = self.slots[slot].as_ref()?;
                let result = listen(socket, 1);
                assert_eq!(sockopt::socket_acceptconn(socket), Ok(result.is_ok()));
                Some(result)
            }
            BindStep::Close { slot } => self.slots[slot].take().map(|_| Ok(())),
        }
    }

    /// Whether Linux may miss that the address is taken. While a port is in use, Linux
    /// remembers the last socket with SO_REUSEPORT that was bound to it, and may let
    /// another with that option and owner in without looking at those that lack it
    /// (inet_csk_get_port() in net/ipv4/inet_connection_sock.c, "fastreuseport"; no
    /// manual page has it). What follows is not compared.
    fn may_share(&self, step: &BindStep) -> bool {
        let (BindStep::Bind { slot, .. } | BindStep::Listen { slot } | BindStep::Close { slot }) =
            *step;
        let socket = self.slots[slot].as_ref();
        self.sharers > 1 && socket.is_some_and(|s| sockopt::socket_reuseport(s) == Ok(true))
    }
}

#[derive(Default)]
struct SimulatedSockets([Option<RawFd>; SLOTS as usize]);

impl SimulatedSockets {
    fn act(&mut self, step: &BindStep, port: u16) -> Option<Result<(), Errno>> {
        kernel(|k| match *step {
            BindStep::Bind { slot, options, ip } if self.0[slot].is_none() => {
                let family = if options.is_v6 { SocketFamily::V6 } else { SocketFamily::V4 };
                let fd = k.open(File::Socket(SimulatedSocket::new(family))).expect("a descriptor");
                let set = &mut k.socket(fd).expect("a socket").options;
                set.insert("reuseaddr", options.reuseaddr.into());
                set.insert("reuseport", options.reuseport.into());
                set.insert("v6only", options.v6only.into());
                let result = k.bind_tcp(fd, address(ip, port));
                match result {
                    Ok(()) => self.0[slot] = Some(fd),
                    Err(_) => k.close(fd),
                }
                Some(result)
            }
            BindStep::Bind { .. } => None,
            BindStep::Listen { slot } => {
                let fd = self.0[slot]?;
                let result = k.listen(fd, 1);
                let role = &k.socket(fd).expect("a socket").role;
                assert_eq!(matches!(role, SocketRole::Listening(_)), result.is_ok());
                Some(result)
            }
            BindStep::Close { slot } => self.0[slot].take().map(|fd| {
                k.close(fd);
                Ok(())
            }),
        })
    }
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse::<IpAddr>().expect("an address"), port)
}

/// A free port.
fn free_port() -> u16 {
    let any = std::net::TcpListener::bind("[::]:0").expect("a free port");
    any.local_addr().expect("an address").port()
}

fn play(steps: &[BindStep]) -> Result<(), String> {
    boot(0);
    let port = free_port();
    let (mut real, mut simulated) = (RealSockets::default(), SimulatedSockets::default());
    for (n, step) in steps.iter().enumerate() {
        let (actual, expected) = (real.act(step, port), simulated.act(step, port));
        if actual == Some(Ok(())) && expected == Some(Err(Errno::ADDRINUSE)) && real.may_share(step)
        {
            return Ok(());
        }
        if actual != expected {
            let steps: String = steps[..=n].iter().map(|step| format!("  {step:?}\n")).collect();
            return Err(format!("Linux: {actual:?}, simulated: {expected:?}, in\n{steps}"));
        }
    }
    Ok(())
}

#[test]
fn addresses_collide_as_on_linux() {
    judge_seeds(3000, |seed, _| {
        let mut random = Random(seed);
        let steps: Vec<BindStep> = (0..STEPS).map(|_| step(&mut random)).collect();
        // Another process may have taken the port meanwhile.
        let result = play(&steps).or_else(|_| play(&steps)).or_else(|_| play(&steps));
        result.unwrap_or_else(|why| panic!("KERNEL_SEED={seed}: {why}"));
    });
}

/// Options that the daemon sets on a listening socket, by the simulated kernel's names.
fn set_options(socket: &OwnedFd) -> Vec<(&'static str, u64)> {
    let (idle, interval) = (Duration::from_secs(15), Duration::from_secs(7));
    let can = "options can be set";
    sockopt::set_socket_keepalive(socket, true).expect(can);
    sockopt::set_tcp_keepidle(socket, idle).expect(can);
    sockopt::set_tcp_keepintvl(socket, interval).expect(can);
    sockopt::set_tcp_keepcnt(socket, 3).expect(can);
    sockopt::set_tcp_user_timeout(socket, 30_000).expect(can);
    sockopt::set_tcp_nodelay(socket, true).expect(can);
    options_of(socket)
}

fn options_of(socket: &OwnedFd) -> Vec<(&'static str, u64)> {
    let is = "options can be read";
    vec![
        ("keepalive", sockopt::socket_keepalive(socket).expect(is).into()),
        ("keepidle_s", sockopt::tcp_keepidle(socket).expect(is).as_secs()),
        ("keepintvl_s", sockopt::tcp_keepintvl(socket).expect(is).as_secs()),
        ("keepcnt", sockopt::tcp_keepcnt(socket).expect(is).into()),
        ("user_timeout_ms", sockopt::tcp_user_timeout(socket).expect(is).into()),
        ("nodelay", sockopt::tcp_nodelay(socket).expect(is).into()),
    ]
}

#[test]
fn connections_inherit_options_as_on_linux() {
    let listener = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").expect("a port"));
    let set = set_options(&listener);
    let name = getsockname(&listener).expect("a name");
    let client = std::net::TcpStream::connect(SocketAddr::try_from(name).expect("TCP"));
    let inherited = options_of(&accept(&listener).expect("a connection"));
    drop(client);

    boot(0);
    let simulated = kernel(|k| {
        let fd =
            k.open(File::Socket(SimulatedSocket::new(SocketFamily::V4))).expect("a descriptor");
        let there = address("127.0.0.1", 7531);
        k.bind_tcp(fd, there).expect("a free port");
        k.socket(fd).expect("a socket").options.extend(set);
        k.listen(fd, 1).expect("it listens");
        let from = address("127.0.0.1", 1000);
        assert_eq!(k.connect(0, &LocalAddress::Tcp(there), from, (10, 10)), ConnectResult::Yes);
        let connection = k.accept(fd).expect("a connection");
        let socket = k.socket(connection).expect("a socket");
        inherited.iter().map(|&(name, _)| (name, socket.option(name))).collect::<Vec<_>>()
    });
    assert_eq!(inherited, simulated);
}
