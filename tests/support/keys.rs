//! Keys that real clients send, with their sources: keys.txt beside this file.

/// One of them.
#[derive(Debug)]
pub(crate) struct RealKey {
    /// Whose key it is: a pool of `$wgPoolCounterConf`, or the client's name.
    pub(crate) pool: &'static str,
    /// As the daemon receives it.
    pub(crate) key: &'static str,
    /// Where its form was looked up.
    pub(crate) source: &'static str,
}

/// All of keys.txt.
pub(crate) fn real_keys() -> Vec<RealKey> {
    let lines = include_str!("keys.txt").lines().filter(|line| !line.starts_with('#'));
    let fields = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut next = || fields.next().filter(|field| !field.is_empty());
        let (pool, key, source) = next().zip(next()).zip(next()).map(|((p, k), s)| (p, k, s))?;
        fields.next().is_none().then_some(RealKey { pool, key, source })
    };
    lines
        .map(|line| fields(line).unwrap_or_else(|| panic!("not pool, key, source: {line}")))
        .collect()
}
