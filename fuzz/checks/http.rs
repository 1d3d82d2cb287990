//! The bytes are the start of an HTTP request. It is refused, or parsed as a simple parser
//! of its first line does; more bytes never change the result of a complete head.

use poolcounterd::{HttpHead, parse_http_head};

/// # Panics
/// When a request is misread.
pub(crate) fn check(data: &[u8]) {
    let head = parse_http_head(data);
    match &head {
        HttpHead::Partial => assert!(data.len() < 8 * 1024),
        HttpHead::Refused(status) => assert!([400, 405, 431].contains(status), "{status}"),
        HttpHead::Get { path, query } => {
            let text = String::from_utf8_lossy(data);
            let first = text.trim_start_matches(['\r', '\n']).lines().next().unwrap_or_default();
            let (method, target) = first.split_once(' ').expect("a method");
            assert!(["GET", "HEAD", "OPTIONS"].contains(&method), "{first:?}");
            let target = target.trim_start_matches(' ');
            let target = target.split(' ').next().unwrap_or_default();
            let target = if method == "OPTIONS" && target == "*" { "/" } else { target };
            let target = target.split('#').next().unwrap_or_default();
            let (target, rest) = target.split_once('?').unwrap_or((target, ""));
            assert!(is_path_of(path, target) && query == rest, "{first:?}: {head:?}");
        }
    }
    if head != HttpHead::Partial {
        let longer = [data, b"X: y\r\n\r\n"].concat();
        let is_long = longer.len() >= 8 * 1024;
        assert!(is_long || parse_http_head(&longer) == head, "{}", data.escape_ascii());
    }
}

/// Whether `path` is the whole target, or what follows its scheme and host.
fn is_path_of(path: &str, target: &str) -> bool {
    let is_url_of_host = |start: &str| {
        start
            .split_once("://")
            .is_some_and(|(scheme, host)| !format!("{scheme}{host}").contains('/'))
    };
    path == target
        || target.strip_suffix(path).is_some_and(is_url_of_host)
        || path == "/" && is_url_of_host(target)
}
