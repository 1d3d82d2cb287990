//! Waits for the lock: asks for it, and tells what happens meanwhile.

use super::notice::WaitNotice;
use super::stderr_thread::StderrThread;
use crate::lock_client::{Client, Error, LockRequest, Outcome, Progress, lock};
use connect::ServerName;

/// What a wait came to.
pub(super) struct Waited {
    pub(super) outcome: Result<Outcome, Error>,
    /// The server that was asked last, if any could be connected to.
    pub(super) server: Option<ServerName>,
}

/// Asks for the lock. With `is_verbose`, prints who holds it, which servers are passed over, and
/// when the wait starts again.
pub(super) fn wait_for_lock(
    client: &Client,
    request: &LockRequest,
    is_verbose: bool,
    stderr: &StderrThread,
) -> Waited {
    let key = String::from_utf8_lossy(request.key());
    let mut server = None;
    let mut notice = None;
    let mut observer = |progress: Progress<'_>| {
        // What the last one would print is about a wait that is over.
        notice = None;
        if let Progress::Asking(asked) = progress {
            server = Some(asked.clone());
            let begin = || WaitNotice::begin(asked.clone(), request.key().to_vec());
            notice = is_verbose.then(begin);
        } else if let Some(line) = in_words(progress).filter(|_| is_verbose) {
            stderr.print(&format!("{key}: {line}"));
        }
    };
    let outcome = lock(client, request, &mut observer);
    drop(notice);
    Waited { outcome, server }
}

fn in_words(progress: Progress) -> Option<String> {
    match progress {
        Progress::PassedOver(server, why) => Some(format!("{server} is passed over: {why}")),
        Progress::Lost(server, why) => {
            Some(format!("the connection to {server} is lost during the wait: {why}"))
        }
        Progress::Asking(_) => None,
    }
}
