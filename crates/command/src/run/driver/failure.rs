//! Errors of calls as what decisions depend on: whether time may change them.

use crate::run::act::{Failure, FailureKind};
use connect::is_closed;
use std::io;

pub(super) fn failure(e: &io::Error) -> Failure {
    Failure { kind: kind(e), text: e.to_string() }
}

fn kind(e: &io::Error) -> FailureKind {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    match e.kind() {
        _ if is_closed(e) => FailureKind::Closed,
        AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut => {
            FailureKind::Down
        }
        _ => FailureKind::Lasting,
    }
}
