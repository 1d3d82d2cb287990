//! A daemon that serves HTTP.

use super::{PATIENCE, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A daemon that serves HTTP, and where.
pub(crate) struct WithHttp {
    pub(crate) server: Server,
    pub(crate) http: SocketAddr,
}

impl WithHttp {
    pub(crate) fn start(arguments: &[&str]) -> WithHttp {
        WithHttp::of(Server::start_with(&[&["--http", "127.0.0.1:0"], arguments].concat()))
    }

    /// Uses the first of several HTTP addresses.
    pub(crate) fn of(server: Server) -> WithHttp {
        let line = server.log.wait_for("HTTP on ");
        let (_, addresses) = line.rsplit_once("HTTP on ").expect("an address");
        let http = addresses.split(", ").next().and_then(|address| address.parse().ok());
        WithHttp { server, http: http.expect("an address") }
    }
}

/// The head and the body of the answer to a GET.
#[track_caller]
pub(crate) fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    // 1.0: nothing is sent in chunks.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("send");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer and the end");
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}
