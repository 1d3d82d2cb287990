//! What a server answers, except statistics.

/// Declares each reply once, with its line.
macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident = $line:literal;)*) => {
        /// One line to a client. Clients compare these as a whole.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reply {
            $($(#[$doc])* $name,)*
        }

        impl Reply {
            /// Every reply.
            pub const ALL: &[Reply] = &[$(Reply::$name,)*];

            /// The line to send, with its line feed.
            pub fn as_bytes(self) -> &'static [u8] {
                match self {
                    $(Reply::$name => concat!($line, "\n").as_bytes(),)*
                }
            }

            /// Reads one line, given without its line end. `None` when it is no
            /// reply to `ACQ4ME`, `ACQ4ANY` or `RELEASE`, and no error.
            pub fn parse(line: &[u8]) -> Option<Reply> {
                $(if line == $line.as_bytes() {
                    return Some(Reply::$name);
                })*
                None
            }
        }
    };
}

replies! {
    /// The lock is yours.
    Locked = "LOCKED";
    /// Another client finished the work that you waited for.
    Done = "DONE";
    /// The lock is given back, or the wait is cancelled.
    Released = "RELEASED";
    /// The wait timed out, or the request did not allow one.
    Timeout = "TIMEOUT";
    /// As many clients hold or wait as the request allows.
    QueueFull = "QUEUE_FULL";
    /// The connection holds or waits for as many locks as it may.
    LockHeld = "LOCK_HELD";
    /// Nothing to give back.
    NotLocked = "NOT_LOCKED";
    /// An ACQ while an earlier one is still waiting.
    WaitForResponse = "ERROR WAIT_FOR_RESPONSE";
    /// No key, or no usable number.
    BadSyntax = "ERROR BAD_SYNTAX";
    /// No such command.
    BadCommand = "ERROR BAD_COMMAND";
    /// No such statistic.
    WrongStat = "ERROR WRONG_STAT";
    /// A line over the limit; it was skipped. MediaWiki logs what follows the second
    /// word. The other errors have nothing there, because clients compare whole lines.
    LineTooLong = "ERROR LINE_TOO_LONG a line has at most 4096 bytes";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LINE_BYTES_MAX;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn the_limit_of_a_line_is_named() {
        let line = String::from_utf8_lossy(Reply::LineTooLong.as_bytes());
        assert!(line.contains(&format!(" {LINE_BYTES_MAX} bytes\n")), "{line}");
    }

    #[test]
    fn every_reply_is_read_as_itself() {
        for &reply in Reply::ALL {
            let line = reply.as_bytes().strip_suffix(b"\n").expect("a line feed");
            assert_eq!(Reply::parse(line), Some(reply));
            assert_eq!(Reply::parse(reply.as_bytes()), None, "a line has no line feed");
        }
        for line in ["", "LOCKE", "LOCKED ", "locked", "ERROR", "uptime: 0 days"] {
            assert_eq!(Reply::parse(line.as_bytes()), None, "{line:?}");
        }
    }
}
