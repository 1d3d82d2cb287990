//! Parses the head of an HTTP request: what is requested, or why it is refused. Pure.

/// A longer head is refused.
pub(crate) const HEAD_BYTES_MAX: usize = 8 * 1024;

const HEADERS_MAX: usize = 64;

/// What has been received of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// Its end is missing.
    Partial,
    /// A request for this.
    Get {
        /// As it was sent: no path that is served needs escapes.
        path: String,
        /// What follows the question mark, with its escapes.
        query: String,
    },
    /// It is answered with this status.
    Refused(u16),
}

/// Which part of an answer a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPart {
    All,
    /// HEAD.
    Head,
    /// OPTIONS, with which haproxy checks servers: as HEAD, but the length is that of no body.
    Status,
}

impl AnswerPart {
    /// What a request asks for, of which this has been received: even if the rest is late or
    /// wrong. The client would take a body for the beginning of another answer.
    pub(crate) fn of(received: &[u8]) -> Self {
        match received.trim_ascii_start() {
            [b'H', b'E', b'A', b'D', b' ', ..] => AnswerPart::Head,
            [b'O', b'P', b'T', b'I', b'O', b'N', b'S', b' ', ..] => AnswerPart::Status,
            _ => AnswerPart::All,
        }
    }
}

/// Reads the head of a request.
pub fn parse(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) if end <= HEAD_BYTES_MAX => {}
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Head::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Head::Refused(431),
        Err(_) => return Head::Refused(400),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Head::Refused(400);
    };
    if !["GET", "HEAD", "OPTIONS"].contains(&method) {
        return Head::Refused(405);
    }
    // The whole server.
    let target = if method == "OPTIONS" && target == "*" { "/" } else { target };
    let target = target.split('#').next().unwrap_or_default();
    let (target, query) = target.split_once('?').unwrap_or((target, ""));
    Head::Get { path: path_of(target).to_owned(), query: query.to_owned() }
}

/// The path in a target, which may have scheme and host before it (RFC 9112, section 3.2.2).
fn path_of(target: &str) -> &str {
    match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |start| &rest[start..])
        }
        _ => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Head {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Head::Get { path: path.to_owned(), query: query.to_owned() }
    }

    #[test]
    fn requests_are_understood() {
        for (bytes, head) in [
            (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], get("/")),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\nrest", get("/metrics?x=1")),
            (b"GET /key?a?b%c3#c HTTP/1.0\r\n\r\n", get("/key?a?b%c3")),
            (b"HEAD /-/ready HTTP/1.1\nHost: a\n\n", get("/-/ready")),
            (b"GET http://a:1?x=1 HTTP/1.1\r\nHost: a:1\r\n\r\n", get("/?x=1")),
            (b"GET http://a/-/ready?x HTTP/1.1\r\nHost: a\r\n\r\n", get("/-/ready?x")),
            (b"GET /a://b HTTP/1.1\r\nHost: a\r\n\r\n", get("/a://b")),
            (b"", Head::Partial),
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\n", Head::Partial),
            (b"OPTIONS / HTTP/1.0\r\n\r\n", get("/")),
            (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", get("/")),
            (b"POST / HTTP/1.1\r\n\r\n", Head::Refused(405)),
            (b"GET /\r\n\r\n", Head::Refused(400)),
            (b"ACQ4ME k 1 1 1\n", Head::Refused(400)),
            (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", Head::Refused(400)),
            (b"\x16\x03\x01\x02", Head::Refused(400)),
        ] {
            assert_eq!(parse(bytes), head, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_head_that_is_too_long_is_refused() {
        let mut long = b"GET / HTTP/1.1\r\nA: ".to_vec();
        long.resize(HEAD_BYTES_MAX - 1, b'x');
        assert_eq!(parse(&long), Head::Partial);
        long.push(b'x');
        assert_eq!(parse(&long), Head::Refused(431));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Head::Refused(431));
    }
}
