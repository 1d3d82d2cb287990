//! The order of servers for a key.

use connect::ServerName;

/// The servers in the order in which clients try them for `key`: ascending
/// `md5(name . key)`, the name as configured. The next one is tried only when
/// connecting fails.
pub(super) fn order<'a>(servers: &'a [ServerName], key: &[u8]) -> Vec<&'a ServerName> {
    let mut order: Vec<&ServerName> = servers.iter().collect();
    order.sort_by_cached_key(|server| {
        let text = [server.as_str().as_bytes(), key].concat();
        md5::compute(text).0
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with: for s in …; do printf '%s  %s\n' "$(printf %s "$s$key" | md5sum |
    /// cut -c1-8)" "$s"; done | LC_ALL=C sort
    #[test]
    fn the_order_is_that_of_md5sum() {
        let vectors = include_str!("../tests/server-choice.txt");
        let mut checked = 0;
        for line in vectors.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split('\t');
            let key = words.next().expect("a key");
            let expected: Vec<&str> = words.collect();
            let mut names = expected.clone();
            names.sort_unstable();
            let servers: Vec<ServerName> =
                names.into_iter().map(|name| name.parse().expect("a server")).collect();
            let found: Vec<&str> =
                order(&servers, key.as_bytes()).iter().map(|s| s.as_str()).collect();
            assert_eq!(found, expected, "{key}");
            checked += 1;
        }
        assert!(checked >= 12, "only {checked} vectors");
    }
}
