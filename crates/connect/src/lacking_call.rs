//! Names the system calls in an error of a kernel that lacks one, or of a container's profile that
//! denies it: such an error tells nothing about what was asked for.

use rustix::io::Errno;
use std::io;

/// For `map_err`: the same error; if it is one of those, with the `calls` that were made.
pub fn naming(calls: &str) -> impl Fn(io::Error) -> io::Error + '_ {
    move |e| match Errno::from_io_error(&e) {
        Some(Errno::NOSYS | Errno::PERM) => io::Error::new(e.kind(), format!("{calls}: {e}")),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_is_lacking_is_named() {
        let text = |errno: Errno| naming("socket")(errno.into()).to_string();
        assert_eq!(text(Errno::NOSYS), "socket: Function not implemented (os error 38)");
        assert_eq!(text(Errno::CONNREFUSED), "Connection refused (os error 111)");
    }
}
