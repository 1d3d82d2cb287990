//! Operators pass descriptors without being asked. Closing the last copy of a TCP socket that
//! lingers (socket(7), SO_LINGER) blocks until its peer has read everything: here for longer than
//! a test waits.

use crate::support::operated::Operated;
use crate::support::random::{Random, number_from_environment};
use crate::support::{PATIENCE, allow_descriptors, eventually};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// How many descriptors a message may carry: unix(7).
const PASSED_MAX: usize = 253;

/// A socket that lingers, and its peer, which reads nothing.
struct Lingering {
    socket: TcpStream,
    peer: TcpStream,
}

impl Lingering {
    fn new() -> Lingering {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("SO_RCVBUF");
        let mut socket = TcpStream::connect(listener.local_addr().expect("its address")).unwrap();
        let (peer, _) = listener.accept().expect("accept");
        socket.set_nonblocking(true).expect("non-blocking");
        while socket.write(&[0; 65536]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(PATIENCE * 10)).expect("SO_LINGER");
        Lingering { socket, peer }
    }
}

fn pass(
    to: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, flags | SendFlags::NOSIGNAL)
}

/// Becomes the daemon on a kernel without SO_PASSRIGHTS, as before Linux 6.16: a
/// seccomp(2) filter returns ENOPROTOOPT.
const ON_AN_OLD_KERNEL: &str = r"
    my ($prctl, $setsockopt) = (0 + shift, 0 + shift);
    my $low = unpack('C', pack('S', 1)) ? 32 : 36;
    my $filter = join '', map { pack 'SCCL', @$_ }
        [0x20, 0, 0, 0], [0x15, 0, 3, $setsockopt],
        [0x20, 0, 0, $low], [0x15, 0, 1, 83],
        [0x06, 0, 0, 0x50000 + 92], [0x06, 0, 0, 0x7fff0000];
    my $program = pack 'Sx![P]P', 6, $filter;
    syscall($prctl, 38, 1, 0, 0, 0) == 0 or die $!;
    syscall($prctl, 22, 2, $program, 0, 0) == 0 or die $!;
    exec @ARGV or die $!";

fn daemon_on_an_old_kernel() -> Operated {
    allow_descriptors();
    let [prctl, setsockopt] = [libc::SYS_prctl, libc::SYS_setsockopt].map(|n| n.to_string());
    Operated::launched(&["perl", "-e", ON_AN_OLD_KERNEL, &prctl, &setsockopt])
}

/// Random descriptors, passed in random ways. `PASSED_SEEDS` tries more, from
/// `PASSED_SEED` on.
#[test]
fn passed_descriptors_delay_no_client_and_are_closed() {
    let first = number_from_environment("PASSED_SEED").unwrap_or(1);
    let seeds = number_from_environment("PASSED_SEEDS").unwrap_or(4);
    for seed in first..first + seeds {
        println!("PASSED_SEED={seed}");
        pass_anything(&mut Random(seed));
    }
}

fn pass_anything(random: &mut Random) {
    let daemon = daemon_on_an_old_kernel();
    let mut other = daemon.server.connect();
    other.settle();
    let before = daemon.server.descriptors();
    let (mut clients, mut peers): (Vec<UnixStream>, Vec<TcpStream>) = Default::default();
    for _ in 0..40 {
        match random.next() % 4 {
            0 => drop(clients.pop()),
            _ => clients.insert(0, UnixStream::connect(daemon.path()).expect("connect")),
        }
        let n = random.next() as usize % clients.len().max(1);
        let Some(client) = clients.get_mut(n) else { continue };
        client.set_nonblocking(true).expect("non-blocking");
        for _ in 0..1 + random.next() % 3 {
            peers.push(pass_something(client, random));
        }
        if random.next() % 3 == 0 {
            clients.remove(n);
        }
        other.settle();
    }
    drop(clients);
    assert!(eventually(|| daemon.server.descriptors() == before), "the daemon leaks descriptors");
    drop(peers);
}

/// The operator may have been refused, or its buffer be full. Returns the peer of the
/// lingering socket.
fn pass_something(client: &mut UnixStream, random: &mut Random) -> TcpStream {
    if random.next() % 3 == 0 {
        let _ = client.write_all(random.one_of(&[b"LOG info\n", b"STATS FULL\nLO"]));
    }
    let lingering = Lingering::new();
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let (one, two) = UnixStream::pair().expect("a pair");
    let null = File::open("/dev/null").expect("/dev/null");
    let kinds = [
        lingering.socket.as_fd(),
        reader.as_fd(),
        writer.as_fd(),
        one.as_fd(),
        two.as_fd(),
        null.as_fd(),
        client.as_fd(),
    ];
    let count = random.one_of(&[1, 1, 2, 3, 64, PASSED_MAX]);
    let chosen: Vec<usize> = (0..count).map(|_| random.next() as usize % kinds.len()).collect();
    let descriptors: Vec<BorrowedFd<'_>> = chosen.iter().map(|&n| kinds[n]).collect();
    let bytes = random.one_of(&["L", "LOG\n", "\n", "STATS KEY k"]);
    let flags = random.one_of(&[SendFlags::empty(), SendFlags::empty(), SendFlags::OOB]);
    let passed = pass(client, bytes.as_bytes(), &descriptors, flags);
    if passed.is_err() || !chosen.contains(&0) {
        // This process has the last copy.
        sockopt::set_socket_linger(&lingering.socket, None).expect("SO_LINGER");
    }
    lingering.peer
}
