//! Clients of Unix sockets pass descriptors without being asked (SECURITY.md). Closing the
//! last copy of a TCP socket that lingers (socket(7), SO_LINGER) blocks until its peer has
//! read everything: here for longer than a test waits.

use crate::support::random::{Random, number_from_environment};
use crate::support::restart::Place;
use crate::support::{
    DAEMON, PATIENCE, Server, allow_descriptors, daemon_command, eventually, launched,
};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use rustix::process::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

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

    /// Sends the only copy, with these bytes. Returns the peer.
    fn pass(self, to: &UnixStream, bytes: &[u8]) -> TcpStream {
        pass(to, bytes, &[self.socket.as_fd()], SendFlags::empty()).expect("sendmsg");
        self.peer
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

/// A daemon on such a kernel, with a Unix socket for clients and one for operators.
struct Scene {
    server: Server,
    place: Place,
}

impl Scene {
    fn with(arguments: &[&str]) -> Scene {
        allow_descriptors();
        let place = Place::new();
        let [prctl, setsockopt] = [libc::SYS_prctl, libc::SYS_setsockopt].map(|n| n.to_string());
        let launcher = ["perl", "-e", ON_AN_OLD_KERNEL, &prctl, &setsockopt];
        let mut command = launched(&launcher, DAEMON, &["-l", "127.0.0.1", "-p", "0"]);
        let [clients, control] = ["s", "c"].map(|name| place.path(name));
        command.arg("--listen-unix").arg(clients).arg("--control").arg(control).args(arguments);
        Scene { server: Server::spawn(&mut command), place }
    }

    fn connect(&self, name: &str) -> UnixStream {
        connect(&self.place.path(name))
    }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    line
}

fn as_last_of_many(scene: &Scene) -> TcpStream {
    let client = scene.connect("s");
    let (null, Lingering { socket, peer }) = (File::open("/dev/null").unwrap(), Lingering::new());
    let mut descriptors = vec![null.as_fd(); PASSED_MAX - 1];
    descriptors.push(socket.as_fd());
    pass(&client, b"RELEASE\n", &descriptors, SendFlags::empty()).expect("sendmsg");
    drop(socket);
    assert_eq!(line(&client), "NOT_LOCKED\n");
    peer
}

/// The kernel discards such a byte, and the descriptors with it, unless it is read in
/// line.
fn with_an_urgent_byte(scene: &Scene) -> TcpStream {
    let mut client = scene.connect("s");
    let Lingering { socket, peer } = Lingering::new();
    match pass(&client, b"R", &[socket.as_fd()], SendFlags::OOB) {
        // Before Linux 5.15, or without CONFIG_AF_UNIX_OOB.
        Err(Errno::OPNOTSUPP) => client.write_all(b"R").expect("send"),
        sent => drop(sent.expect("sendmsg")),
    }
    drop(socket);
    client.write_all(b"ELEASE\n").expect("send");
    assert_eq!(line(&client), "NOT_LOCKED\n");
    peer
}

#[test]
fn a_passed_socket_that_lingers_delays_no_client() {
    let ways: [fn(&Scene) -> TcpStream; 2] = [as_last_of_many, with_an_urgent_byte];
    for way in ways {
        let scene = Scene::with(&[]);
        let mut other = scene.server.connect();
        other.settle();
        let kept = way(&scene);
        other.settle();
        drop(kept);
    }
}

/// The queue has more connections than a turn accepts.
#[test]
fn sockets_that_linger_in_a_queue_do_not_delay_its_end() {
    let mut scene = Scene::with(&[]);
    scene.server.connect().settle();
    scene.server.signal(Signal::STOP);
    let clients: Vec<UnixStream> = (0..100).map(|_| scene.connect("s")).collect();
    scene.server.signal(Signal::TERM);
    let pass = |client| (Lingering::new().pass(&client, b"ACQ4ME k 1 1 0\n"), client);
    let kept: Vec<_> = clients.into_iter().map(pass).collect();
    scene.server.signal(Signal::CONT);
    assert_eq!(scene.server.wait_for_exit().code(), Some(0));
    drop(kept);
}

/// Since Linux 6.16 no descriptor can be passed; on older kernels no client notices one.
#[test]
fn descriptors_are_refused_if_the_kernel_supports_it() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("its version");
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    let place = Place::new();
    let [own, control, inherited] = ["s", "c", "i"].map(|name| place.path(name));
    let listener = UnixListener::bind(&inherited).expect("a socket");
    let mut command = daemon_command(&[]);
    command.arg("--listen-unix").arg(&own).arg("--control").arg(&control);
    let _server = Server::spawn_anywhere(command.stdin(OwnedFd::from(listener)));
    let requests: [(&PathBuf, &[u8], &str); 3] = [
        (&own, b"RELEASE\n", "NOT_LOCKED\n"),
        (&inherited, b"RELEASE\n", "NOT_LOCKED\n"),
        (&control, b"LOG\n", "OK log filter: info\n"),
    ];
    for (path, request, answer) in requests {
        let mut client = connect(path);
        let passed = pass(&client, request, &[client.as_fd()], SendFlags::empty());
        if version >= (6, 16) {
            assert_eq!(passed, Err(Errno::PERM), "{path:?}");
        } else {
            assert_eq!(passed, Ok(request.len()), "{path:?}");
        }
        if passed.is_err() {
            client.write_all(request).expect("send");
        }
        assert_eq!(line(&client), answer, "{path:?}");
    }
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
    let scene = Scene::with(&["--max-connections", "6"]);
    let mut other = scene.server.connect();
    other.settle();
    let before = scene.server.descriptors();
    let (mut clients, mut peers): (Vec<UnixStream>, Vec<TcpStream>) = Default::default();
    for _ in 0..40 {
        match random.next() % 4 {
            0 => drop(clients.pop()),
            _ => clients.insert(0, scene.connect(random.one_of(&["s", "s", "c"]))),
        }
        let n = random.next() as usize % clients.len().max(1);
        let Some(client) = clients.get_mut(n) else { continue };
        client.set_nonblocking(true).expect("non-blocking");
        for _ in 0..1 + random.next() % 3 {
            peers.extend(pass_something(client, random));
        }
        if random.next() % 3 == 0 {
            clients.remove(n);
        }
        other.settle();
    }
    drop(clients);
    assert!(eventually(|| scene.server.descriptors() == before), "the daemon leaks descriptors");
    drop(peers);
}

/// The client may have been refused, or its buffer be full. Returns the peer of the
/// lingering socket.
fn pass_something(client: &mut UnixStream, random: &mut Random) -> Option<TcpStream> {
    if random.next() % 3 == 0 {
        let _ = client.write_all(random.one_of(&[b"ACQ4ME k 1 1 0\n", b"STATS FULL\nREL"]));
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
    let bytes = random.one_of(&["R", "RELEASE\n", "\n", "ACQ4ME k"]);
    let flags = random.one_of(&[SendFlags::empty(), SendFlags::empty(), SendFlags::OOB]);
    let passed = pass(client, bytes.as_bytes(), &descriptors, flags);
    if passed.is_err() || !chosen.contains(&0) {
        // This process has the last copy.
        sockopt::set_socket_linger(&lingering.socket, None).expect("SO_LINGER");
    }
    Some(lingering.peer)
}
