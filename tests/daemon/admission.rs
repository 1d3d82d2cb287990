//! Which clients are admitted: `--allow`, `--max-connections`, `--max-connections-per-ip`.

use crate::support::{PATIENCE, Server};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

/// A connection from a chosen address.
struct From(TcpStream);

impl From {
    fn connect(ip: &str, server: SocketAddr) -> From {
        let own: IpAddr = ip.parse().expect("address");
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("socket");
        bind(&socket, &SocketAddr::new(own, 0)).expect("bind");
        connect(&socket, &server).expect("connect");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        From(stream)
    }

    /// Whether it is served. If not, the connection ends, by a reset if its input crossed
    /// the close.
    fn is_served(&mut self) -> bool {
        let _ = self.0.write_all(b"STATS UPTIME\n");
        let mut answer = [0; 8];
        match self.0.read_exact(&mut answer) {
            Ok(()) => answer == *b"uptime: ",
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("neither served nor closed")
            }
            Err(_) => false,
        }
    }
}

fn is_served_from(ip: &str, server: SocketAddr) -> bool {
    From::connect(ip, server).is_served()
}

/// IPv4-mapped notation of IPv4 networks (RFC 4291, 2.5.5.2).
#[test]
fn an_ipv4_network_may_be_written_in_mapped_notation() {
    for allow in ["::ffff:127.0.0.0/104", "::ffff:127.0.0.1", "::ffff:127.0.0.1/128"] {
        let server = Server::start_with(&["--allow", allow]);
        assert!(is_served_from("127.0.0.1", server.address()), "{allow}");
    }
    let server = Server::start_with(&["--allow", "::ffff:127.8.0.0/112"]);
    assert!(is_served_from("127.8.0.1", server.address()));
    assert!(!is_served_from("127.9.0.1", server.address()));
}

/// Somebody's browser sends it for a web page, or a server for a forged address. It comes in any
/// segments.
#[test]
fn no_request_of_http_takes_a_lock() {
    let server = Server::start();
    let long = "x".repeat(5_000);
    let heads = [
        "POST / HTTP/1.1\r\nAccept: */*\r\n\r\n".to_owned(),
        "PUT /k HTTP/1.1\r\nHost: 127.0.0.1:7531\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nAccept: */*\r\nhost: a\r\n\r\n".to_owned(),
        format!("OPTIONS / HTTP/1.1\r\nX-Long: {long}\r\nHost: a\r\n\r\n"),
        format!("POST /{long} HTTP/1.0\r\n\r\n"),
        format!("PATCH / HTTP/1.1\r\nHost: {long}\r\n\r\n"),
    ];
    for head in &heads {
        for segment_bytes in [10_000, 1_000, 7] {
            let mut client = server.connect();
            let address = client.stream().local_addr().expect("an address");
            client.exchange("ACQ4ME before 1 1 0", "LOCKED");
            let request = format!("STATS processing_workers\n{head}ACQ4ME body 1 1 0\n");
            let mut stream = client.stream();
            // The daemon may close it before all is sent.
            let mut segments = request.as_bytes().chunks(segment_bytes);
            while segments.next().is_some_and(|segment| stream.write_all(segment).is_ok()) {}
            client.expect("processing_workers: 1");
            client.read_to_end();
            assert_eq!(server.counter("processing_workers"), 0, "{address}: {head}");
        }
    }
    let closed = (heads.len() * 3) as u64;
    assert_eq!(server.counter("freed_connections"), closed);
    server.log.wait_for("speaks HTTP on the clients' port: closed its connection");
    assert!((server.log.count("speaks HTTP") as u64) < closed);
}
