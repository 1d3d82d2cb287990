//! What the server asks of the kernel goes through here, so that the tests can put a
//! simulated kernel in its place (tests/simulation, which has the same names). Here
//! everything is the real thing, and costs nothing.

pub(super) use crate::engine::Engine;
pub(super) use ::{mio, sd_notify};
pub(super) use rustix::{event, io, net, stdio, time};
pub(super) use std::os::fd;
pub(super) use std::{env, thread};

/// How many connections a report looks at in a turn of the loop: each may cost a system
/// call. In the simulated world a few make several turns.
pub(super) const CONNECTIONS_PER_TURN: usize = 1_000;

/// Files, by path and by descriptor.
pub(super) mod fs {
    pub(in crate::server) use rustix::fs::*;
    pub(in crate::server) use std::fs::{
        File, Permissions, metadata, read_dir, read_to_string, remove_file, set_permissions,
        symlink_metadata, write,
    };
    pub(in crate::server) use std::os::unix::fs::{
        FileTypeExt, MetadataExt, PermissionsExt, chown,
    };
    pub(in crate::server) use std::path::absolute;

    pub(in crate::server) fn is_file(path: &std::path::Path) -> bool {
        path.is_file()
    }

    /// Whether both are descriptors of one file.
    pub(in crate::server) fn is_same_file(
        one: &std::os::fd::OwnedFd,
        other: &std::os::fd::OwnedFd,
    ) -> bool {
        let identity = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        identity(one).is_some() && identity(one) == identity(other)
    }
}

/// This process, and others.
pub(super) mod process {
    pub(in crate::server) use rustix::process::*;
    pub(in crate::server) use std::process::id;
}
