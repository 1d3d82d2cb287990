//! How much is done for keys, counted where it is done: the simulation bounds what a turn does.
//! Outside its tests nothing is counted.

/// Work on keys.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyWork {
    /// How many places of keys were looked at, one after the other.
    pub(crate) visited: usize,
    /// How many bytes of keys were compared with rules.
    pub(crate) matched_bytes: usize,
}

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<KeyWork> = const { std::cell::Cell::new(KeyWork { visited: 0, matched_bytes: 0 }) };
}

/// Returns what was done since the last call, and begins anew with `work`.
#[cfg(test)]
pub(crate) fn replace(work: KeyWork) -> KeyWork {
    DONE.replace(work)
}

#[inline(always)]
pub(super) fn count_visited(_places: usize) {
    #[cfg(test)]
    DONE.with(|done| {
        done.set(KeyWork { visited: done.get().visited + _places, ..done.get() });
    });
}

#[inline(always)]
pub(super) fn count_matched(_bytes: usize) {
    #[cfg(test)]
    DONE.with(|done| {
        done.set(KeyWork { matched_bytes: done.get().matched_bytes + _bytes, ..done.get() });
    });
}
