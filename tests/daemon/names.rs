//! Names of Unix sockets: options and parent processes choose them, and the kernel allows every
//! byte and every length up to 108, which leaves no room for a NUL. Sockets of every family that a
//! parent process passes.

use crate::support::operated::Operator;
use crate::support::restart::Place;
use crate::support::status::WRONG_OPTIONS;
use crate::support::{Finished, daemon_command, finish, in_shell};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// How long a path in a `sockaddr_un` may be: unix(7).
const PATH_BYTES_MAX: usize = 108;

/// A path below the directory, of this many bytes in all.
fn path_of(place: &Place, len: usize, filling: &str) -> PathBuf {
    let mut path = place.path("").display().to_string();
    while path.len() + filling.len() <= len {
        path.push_str(filling);
    }
    while path.len() < len {
        path.push('x');
    }
    path.into()
}

#[test]
fn operators_may_have_the_longest_path() {
    for (len, filling) in [(106, "y"), (107, "y"), (108, "y"), (108, "é")] {
        let place = Place::with_daemon();
        let [first, second] = [filling.to_owned(), filling.to_uppercase()]
            .map(|filling| path_of(&place, len, &filling).display().to_string());
        let server = place.start(&["--control", &first]);
        let port = server.address().port().to_string();
        // A reload that keeps it, and one that moves it.
        for (at, next) in [(&first, &first), (&first, &second), (&second, &second)] {
            let arguments = ["-l", "127.0.0.1", "-p", &port, "--control", next];
            let answer = Operator::connect(at).restart(&arguments);
            assert!(answer.starts_with("OK restarted"), "{len} {filling}: {answer}");
        }
        assert!(Operator::connect(&second).ask("LOG").starts_with("OK "));
    }
    let place = Place::new();
    let too_long = path_of(&place, PATH_BYTES_MAX + 1, "y").display().to_string();
    let refused =
        finish(&mut daemon_command(&["-l", "127.0.0.1", "-p", "0", "--control", &too_long]));
    assert_eq!(refused.code, Some(WRONG_OPTIONS), "{}", refused.stderr);
    assert!(refused.stderr.contains(&too_long), "{}", refused.stderr);
}

/// The descriptor comes in as 0 and is moved to where systemd puts it.
const AS_SYSTEMD: &str = r#"export LISTEN_PID=$$; exec "$@" 3<&0 </dev/null"#;

/// As standard input, and as systemd passes it.
#[track_caller]
fn expect_refused(what: &str, socket: impl AsFd) {
    let copy = || socket.as_fd().try_clone_to_owned().expect("a copy");
    let arguments = ["-l", "127.0.0.1", "-p", "0"];
    let by_service_manager = |refused: &Finished| refused.stderr.contains("LISTEN_FDS");
    let as_input = finish(daemon_command(&arguments).stdin(copy()));
    let passed = finish(in_shell(AS_SYSTEMD, &arguments).stdin(copy()).env("LISTEN_FDS", "1"));
    assert!(by_service_manager(&passed) && !by_service_manager(&as_input), "{what}");
    for refused in [as_input, passed] {
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{what}: {}", refused.stderr);
        let why = "not a listening TCP socket; clients come over TCP only";
        assert!(refused.stderr.contains(why), "{what}: {}", refused.stderr);
    }
}

fn new_socket(family: AddressFamily, kind: SocketType) -> Option<OwnedFd> {
    socket_with(family, kind, SocketFlags::CLOEXEC, None).ok()
}

#[test]
fn a_passed_unix_socket_is_refused_whatever_its_name() {
    let place = Place::new();
    let longest = path_of(&place, PATH_BYTES_MAX, "y").into_os_string().into_encoded_bytes();
    let mut odd = [place.directory().as_os_str().as_bytes(), b"/"].concat();
    odd.resize(PATH_BYTES_MAX, 0xff);
    let short = place.path("s").into_os_string().into_encoded_bytes();
    let abstract_name = format!("poolcounterd {} \0 \u{e9}", std::process::id());
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        for name in [
            SocketAddrUnix::new(&short[..]),
            SocketAddrUnix::new(&longest[..]),
            SocketAddrUnix::new(&odd[..]),
            SocketAddrUnix::new_abstract_name(abstract_name.as_bytes()),
            SocketAddrUnix::new_abstract_name(&[0xff; PATH_BYTES_MAX - 1]),
            // The kernel chooses one.
            Ok(SocketAddrUnix::new_unnamed()),
        ] {
            let name = name.expect("a name");
            let listener = new_socket(AddressFamily::UNIX, kind).expect("a socket");
            bind(&listener, &name).expect("bind");
            listen(&listener, 20).expect("listen");
            expect_refused(&format!("{kind:?} {name:?}"), &listener);
            let _ = name.path_bytes().map(|path| {
                std::fs::remove_file(std::ffi::OsStr::from_bytes(path)).expect("remove")
            });
        }
    }
    // Without a name.
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    expect_refused("a pair", &one);
}

/// None of them listens on TCP.
#[test]
fn a_passed_socket_of_any_family_is_refused() {
    let kinds = [
        SocketType::STREAM,
        SocketType::DGRAM,
        SocketType::SEQPACKET,
        SocketType::RAW,
        SocketType::RDM,
    ];
    let mut tried = 0;
    // AF_MAX is 46 in Linux 6.18 (include/linux/socket.h).
    for family in 1..46 {
        for kind in kinds {
            let Some(socket) = new_socket(AddressFamily::from_raw(family), kind) else { continue };
            expect_refused(&format!("family {family}, {kind:?}"), &socket);
            tried += 1;
        }
    }
    assert!(tried > 4, "{tried}");
}
