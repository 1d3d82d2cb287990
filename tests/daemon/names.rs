//! Names of Unix sockets: clients, options and parent processes choose them, and the kernel allows
//! every byte and every length up to 108, which leaves no room for a NUL.

use crate::support::http::get;
use crate::support::random::{Random, number_from_environment};
use crate::support::restart::Place;
use crate::support::status::WRONG_OPTIONS;
use crate::support::{PATIENCE, Server, daemon_command, finish, read_some};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// How long a path in a `sockaddr_un` may be: unix(7).
const PATH_BYTES_MAX: usize = 108;

/// What a client may leave unread, and so the longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The key that all clients ask for.
const KEY: &str = "CirrusSearch-Search:_elasticsearch";

fn new_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("socket")
}

fn address(path: &[u8]) -> SocketAddrUnix {
    SocketAddrUnix::new(path).expect("an address")
}

fn connect_to(path: &Path, socket: OwnedFd) -> UnixStream {
    connect(&socket, &address(path.as_os_str().as_bytes())).expect("connect");
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Asks, and returns the answer: a line, or lines up to a blank one.
fn ask(stream: &mut UnixStream, line: &str, is_report: bool) -> String {
    stream.write_all(format!("{line}\n").as_bytes()).expect("send");
    let end = if is_report { "\n\n" } else { "\n" };
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(end.as_bytes()) {
        let len = read_some(stream, &mut buffer).expect("an answer");
        assert!(len > 0, "{line}: the connection ended after {} bytes", answer.len());
        answer.extend_from_slice(&buffer[..len]);
    }
    String::from_utf8(answer).expect("text")
}

/// A client's own name.
#[derive(Clone, Debug)]
enum Name {
    Unnamed,
    /// The kernel chooses it: `@` and five hexadecimal digits.
    Autobound,
    Abstract(Vec<u8>),
    Path(Vec<u8>),
    /// A path whose file is gone.
    Unlinked(Vec<u8>),
}

impl Name {
    fn random(random: &mut Random, directory: &Path) -> Name {
        let kind = random.next() % 8;
        let bytes = |random: &mut Random, len: usize, is_path: bool| -> Vec<u8> {
            let style = random.next() % 4;
            let byte = |random: &mut Random| match style {
                0 => b'x',
                1 => 0x80 | random.next() as u8,
                _ => random.next() as u8,
            };
            let all = std::iter::repeat_with(|| byte(random));
            all.filter(|byte| !is_path || !b"\0/.".contains(byte)).take(len).collect()
        };
        match kind {
            0 => Name::Unnamed,
            1 => Name::Autobound,
            2 | 3 => {
                let len = 1 + random.next() as usize % (PATH_BYTES_MAX - 1);
                Name::Abstract(bytes(random, len, false))
            }
            _ => {
                let prefix = [directory.as_os_str().as_bytes(), b"/"].concat();
                let room = PATH_BYTES_MAX - prefix.len();
                // The longest often: these broke the daemon.
                let len = if kind < 6 { room } else { 1 + random.next() as usize % room };
                let path = [prefix, bytes(random, len, true)].concat();
                if random.next() % 4 == 0 { Name::Unlinked(path) } else { Name::Path(path) }
            }
        }
    }

    /// A socket with this name. Another client may have a short one already: then it has none.
    fn bind(&mut self) -> OwnedFd {
        let socket = new_socket();
        let bound = match self {
            Name::Unnamed => Ok(()),
            Name::Autobound => bind(&socket, &SocketAddrUnix::new_unnamed()),
            Name::Abstract(name) => {
                bind(&socket, &SocketAddrUnix::new_abstract_name(name).unwrap())
            }
            Name::Path(path) | Name::Unlinked(path) => bind(&socket, &address(path)),
        };
        match (bound, &self) {
            (Err(_), _) => *self = Name::Unnamed,
            (Ok(()), Name::Unlinked(path)) => {
                fs::remove_file(OsStr::from_bytes(path)).expect("remove");
            }
            (Ok(()), _) => {}
        }
        socket
    }

    /// Whether reports may show it so.
    fn is_shown_as(&self, shown: &str) -> bool {
        match self {
            Name::Unnamed => shown == "unix",
            Name::Autobound => {
                let digits = shown.strip_prefix("unix:@").unwrap_or_default();
                digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            Name::Abstract(name) => is_shown("unix:@", name, shown),
            Name::Path(path) | Name::Unlinked(path) => is_shown("unix:", path, shown),
        }
    }
}

/// Whether `shown` is these bytes, escaped, or at least 100 characters of them and a mark.
fn is_shown(prefix: &str, bytes: &[u8], shown: &str) -> bool {
    let escaped: String = bytes
        .iter()
        .map(|&byte| match byte {
            b'\\' => "\\x5c".to_owned(),
            byte if byte.is_ascii_graphic() => char::from(byte).to_string(),
            byte => format!("\\x{byte:02x}"),
        })
        .collect();
    let whole = format!("{prefix}{escaped}");
    match shown.strip_suffix("\\...") {
        Some(beginning) => whole.starts_with(beginning) && beginning.len() > 120,
        None => whole == shown,
    }
}

/// A daemon that serves a Unix socket, HTTP and operators, and logs all that happens.
struct Scene {
    server: Server,
    place: Place,
    http: std::net::SocketAddr,
}

impl Scene {
    fn start(arguments: &[&str]) -> Scene {
        let place = Place::with_daemon();
        let [clients, control] = ["s", "c"].map(|name| place.path(name).display().to_string());
        let sockets = ["--listen-unix", &clients, "--control", &control, "--http", "127.0.0.1:0"];
        let server = place.start(&[&sockets[..], &["--slow", "0"], arguments].concat());
        let line = server.log.wait_for("HTTP on ");
        let (_, http) = line.rsplit_once("HTTP on ").expect("an address");
        Scene { http: http.parse().expect("an address"), server, place }
    }

    fn operator(&self) -> UnixStream {
        connect_to(&self.place.path("c"), new_socket())
    }
}

/// The last word of each row of `STATS KEY`.
fn names_in(report: &str) -> Vec<&str> {
    let rows = report.lines().filter(|line| {
        ["holder ", "waiter "].iter().any(|what| line.starts_with(what)) && !line.ends_with(" more")
    });
    rows.filter_map(|row| row.split(' ').next_back()).collect()
}

/// Asks for everything that shows names.
fn ask_for_all(scene: &Scene, names: &[Name]) {
    let mut on_the_port = connect_to(&scene.place.path("s"), new_socket());
    let mut operator = scene.operator();
    let words = [&*format!("KEY {KEY}"), "JSON", "CLIENTS", "SLOW", "TOP minute clients", "KEYS"];
    for asker in [&mut on_the_port, &mut operator] {
        for words in words {
            let report = ask(asker, &format!("STATS {words}"), true);
            assert!(report.len() <= ANSWER_BYTES_MAX, "{words}: {} bytes", report.len());
        }
        let report = ask(asker, &format!("STATS KEY {KEY}"), true);
        let mut left = names.to_vec();
        for shown in names_in(&report) {
            let at = left.iter().position(|name| name.is_shown_as(shown));
            let at = at.unwrap_or_else(|| panic!("{shown} is none of {left:?}"));
            left.remove(at);
        }
        assert!(left.is_empty(), "{left:?} are missing in {report}");
    }
    let dry_run = ask(&mut operator, &format!("FREE --dry-run KEY {KEY}"), true);
    assert!(dry_run.starts_with("OK would close "), "{dry_run}");
    for path in ["/stats.json", "/metrics", "/prometheus", "/", &format!("/key?{KEY}")] {
        let (head, body) = get(scene.http, path);
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        assert!(!body.is_empty(), "{path}");
    }
}

fn names_of_every_kind(seed: u64) {
    let mut random = Random(seed);
    let log = random.one_of(&["info", "debug", "trace"]);
    let mut scene = Scene::start(&["--log", log, "--max-hold", "victim=1"]);
    let clients: Vec<(Name, UnixStream)> = (0..30)
        .map(|_| {
            let mut name = Name::random(&mut random, scene.place.directory());
            let socket = name.bind();
            (name, connect_to(&scene.place.path("s"), socket))
        })
        .collect();
    for (n, (_, stream)) in clients.iter().enumerate() {
        let mut stream = stream;
        let mode = if n % 2 == 0 { "ACQ4ME" } else { "ACQ4ANY" };
        stream.write_all(format!("{mode} {KEY} 3 99 600\n").as_bytes()).expect("send");
    }
    scene.server.settle();
    let names: Vec<Name> = clients.iter().map(|(name, _)| name.clone()).collect();
    ask_for_all(&scene, &names);
    let restarted = ask(&mut scene.operator(), "RESTART", false);
    assert!(restarted.starts_with("OK restarted"), "{restarted}");
    ask_for_all(&scene, &names);
    // One loses its connection to a limit, which the log names, all others to an operator.
    let mut name = Name::Path(vec![0xff; PATH_BYTES_MAX]);
    let prefix = [scene.place.directory().as_os_str().as_bytes(), b"/"].concat();
    if let Name::Path(path) = &mut name {
        path[..prefix.len()].copy_from_slice(&prefix);
    }
    let socket = name.bind();
    let mut held_too_long = connect_to(&scene.place.path("s"), socket);
    assert_eq!(ask(&mut held_too_long, "ACQ4ME victim 1 1 0", false), "LOCKED\n");
    scene.server.log.wait_for("max-hold: closed ");
    let freed = ask(&mut scene.operator(), &format!("FREE KEY {KEY}"), true);
    assert!(freed.starts_with("OK closed "), "{freed}");
    drop(clients);
    scene.server.settle();
    scene.server.signal(Signal::TERM);
    assert_eq!(scene.server.wait_for_exit().code(), Some(0));
}

#[test]
fn clients_may_have_names_of_every_kind() {
    let first = number_from_environment("NAMES_SEED").unwrap_or(1);
    let seeds = number_from_environment("NAMES_SEEDS").unwrap_or(3);
    for seed in first..first + seeds {
        println!("NAMES_SEED={seed}");
        names_of_every_kind(seed);
    }
}

#[test]
fn a_crowd_of_the_longest_names_does_not_exceed_the_bound_of_an_answer() {
    let scene = Scene::start(&["--log", "info"]);
    let directory = scene.place.directory().as_os_str().as_bytes();
    let clients: Vec<UnixStream> = (0..200_u8)
        .map(|n| {
            let mut path = [directory, b"/"].concat();
            path.resize(PATH_BYTES_MAX - 1, 0xfe);
            path.push(n + 48);
            let socket = Name::Path(path).bind();
            let mut stream = connect_to(&scene.place.path("s"), socket);
            let line = format!("ACQ4ME {KEY} 100 999 600\n");
            stream.write_all(line.as_bytes()).expect("send");
            stream
        })
        .collect();
    scene.server.settle();
    let mut asker = connect_to(&scene.place.path("s"), new_socket());
    let report = ask(&mut asker, &format!("STATS KEY {KEY}"), true);
    assert!(report.len() < ANSWER_BYTES_MAX, "{} bytes", report.len());
    assert_eq!(report.matches(" more\n").count(), 2, "{report}");
    drop(clients);
}

#[test]
fn what_free_lists_does_not_exceed_the_bound_of_an_answer() {
    let scene = Scene::start(&[]);
    for key_len in [300, 1_000, 2_000] {
        let key = format!("{KEY}:{}", "x".repeat(key_len));
        let clients: Vec<UnixStream> = (0..250)
            .map(|_| {
                let mut client = connect_to(&scene.place.path("s"), new_socket());
                assert_eq!(ask(&mut client, &format!("ACQ4ME {key} 999 999 0"), false), "LOCKED\n");
                client
            })
            .collect();
        let answer = ask(&mut scene.operator(), &format!("FREE --dry-run KEY {key} 999"), true);
        assert!(answer.len() < ANSWER_BYTES_MAX, "{key_len}: {} bytes", answer.len());
        let listed = answer.matches("\nholder ").count();
        assert!(answer.contains(&format!("\nand {} more\n", clients.len() - listed)), "{answer}");
    }
}

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
fn a_daemon_may_listen_on_the_longest_path() {
    for (len, filling) in [(106, "y"), (107, "y"), (108, "y"), (108, "é")] {
        let place = Place::with_daemon();
        let clients = path_of(&place, len, filling);
        let control = place.path("c");
        let [clients_text, control_text] = [&clients, &control].map(|it| it.display().to_string());
        let server = place.start(&["--listen-unix", &clients_text, "--control", &control_text]);
        let mut client = connect_to(&clients, new_socket());
        assert_eq!(ask(&mut client, "ACQ4ME k 1 1 0", false), "LOCKED\n");
        // A reload that keeps it, and one that moves operators to such a path, too.
        let operators = path_of(&place, len, &filling.to_uppercase());
        let port = server.address().port().to_string();
        for control in [&control, &operators] {
            let next = control.display().to_string();
            let arguments = [
                "-l",
                "127.0.0.1",
                "-p",
                &port,
                "--listen-unix",
                &clients_text,
                "--control",
                &next,
            ];
            let line = format!("RESTART {}", serde_json::to_string(&arguments).expect("JSON"));
            let old = if control == &operators { &place.path("c") } else { control };
            let answer = ask(&mut connect_to(old, new_socket()), &line, false);
            assert!(answer.starts_with("OK restarted"), "{len} {filling}: {answer}");
            let uptime = ask(&mut connect_to(control, new_socket()), "STATS UPTIME", false);
            assert!(uptime.starts_with("uptime: "), "{uptime}");
        }
        let drained = ask(&mut connect_to(&operators, new_socket()), "DRAIN", false);
        assert!(drained.starts_with("OK draining"), "{drained}");
        server.log.wait_for("no longer listening on unix:");
        assert_eq!(ask(&mut client, "RELEASE", false), "RELEASED\n");
    }
    let place = Place::new();
    let too_long = path_of(&place, PATH_BYTES_MAX + 1, "y").display().to_string();
    for option in ["--listen-unix", "--control"] {
        let refused =
            finish(&mut daemon_command(&["-l", "127.0.0.1", "-p", "0", option, &too_long]));
        assert_eq!(refused.code, Some(WRONG_OPTIONS), "{}", refused.stderr);
        assert!(refused.stderr.contains(&too_long), "{}", refused.stderr);
    }
}

/// As a running daemon hands over its listener.
#[test]
fn standard_input_may_be_a_socket_with_any_name() {
    let place = Place::new();
    let mut paths: Vec<Vec<u8>> =
        vec![path_of(&place, 108, "y").into_os_string().into_encoded_bytes()];
    let mut odd = [place.directory().as_os_str().as_bytes(), b"/"].concat();
    odd.resize(PATH_BYTES_MAX, 0xff);
    paths.push(odd);
    for path in paths {
        let listener = new_socket();
        bind(&listener, &address(&path)).expect("bind");
        listen(&listener, 20).expect("listen");
        let server = Server::spawn_anywhere(daemon_command(&[]).stdin(listener));
        let mut client = connect_to(Path::new(OsStr::from_bytes(&path)), new_socket());
        assert_eq!(ask(&mut client, "ACQ4ME k 1 1 0", false), "LOCKED\n");
        drop(server);
    }
    let listener = new_socket();
    let name = format!("poolcounterd {} \0 \u{e9}", std::process::id());
    let there = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    bind(&listener, &there).expect("bind");
    listen(&listener, 20).expect("listen");
    let server = Server::spawn_anywhere(daemon_command(&[]).stdin(listener));
    let socket = new_socket();
    connect(&socket, &there).expect("connect");
    let mut client = UnixStream::from(socket);
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(ask(&mut client, "ACQ4ME k 1 1 0", false), "LOCKED\n");
    server.log.wait_for("listening on unix:@poolcounterd\\x20");
}
