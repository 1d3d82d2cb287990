//! The system call's name in an error: the number alone does not tell what a kernel lacks, or a
//! container's profile denies.

use crate::platform::os::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

#[derive(Debug)]
struct FailedCall {
    call: &'static str,
    cause: io::Error,
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.cause)
    }
}

impl Error for FailedCall {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// For `map_err`: the same error, with the call, and what it is used for, as strace writes them:
/// `accept4`, `fcntl(F_ADD_SEALS)`.
pub(crate) fn named<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |e| {
        let cause = e.into();
        io::Error::new(cause.kind(), FailedCall { call, cause })
    }
}

/// The number of an error, with or without a name.
pub(crate) fn errno(e: &io::Error) -> Option<Errno> {
    let failed = e.get_ref().and_then(|inner| inner.downcast_ref::<FailedCall>());
    Errno::from_io_error(failed.map_or(e, |failed| &failed.cause))
}

/// Whether memory or descriptors are short, which may pass.
pub(crate) fn lacks_resources(e: &io::Error) -> bool {
    let transient = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC];
    errno(e).is_some_and(|errno| transient.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_changes_neither_number_nor_kind() {
        let e = named("bind")(Errno::ADDRINUSE);
        assert_eq!(e.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(errno(&e), Some(Errno::ADDRINUSE));
        assert_eq!(e.to_string(), "bind: Address already in use (os error 98)");
        assert_eq!(errno(&io::Error::other("no number")), None);
    }
}
