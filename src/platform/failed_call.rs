//! Errors of system calls, with the call's name; which of them may pass.

use crate::platform::os::io::Errno;
use std::io;

pub(crate) use connect::failed_call::{errno, is_plain, named, named_unless_plain};

/// Whether memory or descriptors are short, which may pass.
pub(crate) fn lacks_resources(e: &io::Error) -> bool {
    let transient = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC];
    errno(e).is_some_and(|errno| transient.contains(&errno))
}
