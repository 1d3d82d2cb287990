//! The system call's name in an error: the number alone does not tell what a kernel lacks, or a
//! container's profile denies.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// Errors of calls that concern another host or a file: each says by itself what is wrong, and
/// people know its words.
const PLAIN: [Errno; 9] = [
    Errno::ADDRINUSE,
    Errno::ADDRNOTAVAIL,
    Errno::CONNREFUSED,
    Errno::CONNRESET,
    Errno::HOSTUNREACH,
    Errno::NETUNREACH,
    Errno::NOENT,
    Errno::PIPE,
    Errno::TIMEDOUT,
];

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
pub fn named<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |e| {
        let cause = e.into();
        io::Error::new(cause.kind(), FailedCall { call, cause })
    }
}

/// As [`named`], but an error that says by itself what is wrong stays as it is.
pub fn named_unless_plain<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |e| {
        let e = e.into();
        if errno(&e).is_some_and(is_plain) { e } else { named(call)(e) }
    }
}

/// Whether an error says by itself what is wrong: mostly that a connection has ended, or can't be.
pub fn is_plain(errno: Errno) -> bool {
    PLAIN.contains(&errno)
}

/// The number of an error, with or without a name.
pub fn errno(e: &io::Error) -> Option<Errno> {
    let failed = e.get_ref().and_then(|inner| inner.downcast_ref::<FailedCall>());
    Errno::from_io_error(failed.map_or(e, |failed| &failed.cause))
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

    #[test]
    fn an_error_that_says_what_is_wrong_gets_no_name() {
        let text = |errno: Errno| named_unless_plain("connect")(errno).to_string();
        assert_eq!(text(Errno::CONNREFUSED), "Connection refused (os error 111)");
        assert_eq!(text(Errno::ACCESS), "connect: Permission denied (os error 13)");
        assert_eq!(text(Errno::NOSYS), "connect: Function not implemented (os error 38)");
    }
}
