//! What simulation, fuzzing and the replay of fuzz seeds share: operations in
//! virtual time ([`script`]), the protocol in its plainest terms ([`model`]),
//! and the two run side by side ([`pair`]). Included by path from `fuzz/` too.

pub(crate) mod model;
pub(crate) mod pair;
pub(crate) mod script;
