//! The safe system calls of the server, which the simulation replaces: tests/simulation has the
//! same names. Here everything is real, and costs nothing.

pub(crate) use ::mio;
/// The tests have one that records its calls.
pub(crate) use engine::Engine;
pub(crate) use rustix::{event, io, net, stdio, time};
pub(crate) use std::os::fd;

/// How many connections a report looks at in a turn of the loop: each may cost a system
/// call. In the simulation a few make several turns.
pub(crate) const CONNECTIONS_PER_TURN: usize = 1_000;

/// How many places of keys a report looks at in a turn of the loop.
pub(crate) use reports::scan::PLACES_PER_TURN;

/// How many clients' full shares a turn of the loop handles, which takes some 10 ms. In the
/// simulation a few clients make several turns.
pub(crate) const SHARES_PER_TURN: usize = 320;

/// Files, by path and by descriptor.
pub(crate) mod fs {
    pub(crate) use rustix::fs::*;
    pub(crate) use std::fs::{
        File, metadata, read_dir, read_to_string, remove_file, symlink_metadata, write,
    };
    pub(crate) use std::os::unix::fs::{FileTypeExt, MetadataExt};
    pub(crate) use std::path::absolute;

    pub(crate) fn is_file(path: &std::path::Path) -> bool {
        path.is_file()
    }

    /// Reads a regular file of at most `bytes_max` bytes. Never waits, as opening a FIFO may.
    ///
    /// # Errors
    /// It can't be read, is something else, or is longer.
    pub(crate) fn read_regular_file(path: &str, bytes_max: usize) -> std::io::Result<Vec<u8>> {
        use std::io::{Error, Read};
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let not_regular = || Error::other("not a regular file");
        let file = match open(path, flags, Mode::empty()) {
            // A socket.
            Err(rustix::io::Errno::NXIO) => return Err(not_regular()),
            file => File::from(file?),
        };
        if !file.metadata()?.is_file() {
            return Err(not_regular());
        }
        let mut bytes = Vec::new();
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            Err(Error::other(format!("more than {bytes_max} bytes")))
        } else {
            Ok(bytes)
        }
    }

    /// Whether both are descriptors of one file.
    pub(crate) fn is_same_file(one: &std::os::fd::OwnedFd, other: &std::os::fd::OwnedFd) -> bool {
        let identity = |fd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        identity(one).is_some() && identity(one) == identity(other)
    }
}

/// What the parent process passes.
pub(crate) mod env {
    use std::path::Path;

    pub(crate) use std::env::{args_os, current_exe, var, var_os, vars_os};

    /// Whether the file at `path` is the one that runs. Without /proc it is taken for it.
    pub(crate) fn is_running_file(path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
        let running = identity(Path::new("/proc/self/exe"));
        running.map_or(true, |running| identity(path).is_ok_and(|there| there == running))
    }
}

/// The few pauses in which the loop waits for nothing.
pub(crate) mod thread {
    #[expect(clippy::disallowed_methods, reason = "for some milliseconds, after rare failures")]
    pub(crate) fn sleep(duration: std::time::Duration) {
        std::thread::sleep(duration);
    }
}

/// This process, and others.
pub(crate) mod process {
    pub(crate) use rustix::process::*;
    pub(crate) use std::process::id;
}
