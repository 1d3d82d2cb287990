//! Waits for the lock: asks for it, and tells what happens meanwhile.

use super::notice::WaitNotice;
use super::stderr_thread::StderrThread;
use crate::lock_client::{Client, Error, LockRequest, Outcome, Progress, lock};
use connect::ServerName;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// When a wait is told of: if that is asked for, and on a terminal.
const TOLD_AFTER: Duration = Duration::from_millis(300);
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// What a wait came to.
pub(super) struct Waited {
    pub(super) outcome: Result<Outcome, Error>,
    /// The server that was asked last, if any could be connected to.
    pub(super) server: Option<ServerName>,
}

/// Asks for the lock. Prints which servers are passed over and which one gave the lock then; who
/// holds it, with `is_verbose` and, unless `is_quiet`, on a terminal; with `is_verbose` also when
/// the wait starts again.
pub(super) fn wait_for_lock(
    client: &Client,
    request: &LockRequest,
    (is_verbose, is_quiet): (bool, bool),
    stderr: &StderrThread,
) -> Waited {
    let key = String::from_utf8_lossy(request.key());
    let mut server = None;
    let mut is_passed_over = false;
    let mut notice = None;
    let mut observer = |progress: Progress<'_>| {
        // What the last one would print is about a wait that is over.
        notice = None;
        match progress {
            Progress::Asking(asked) => {
                server = Some(asked.clone());
                let after = if is_verbose { TOLD_AFTER } else { SHOWN_AFTER };
                let is_told = is_verbose || !is_quiet && io::stderr().is_terminal();
                let (server, key) = (asked.clone(), request.key().to_vec());
                notice = is_told.then(|| WaitNotice::begin(server, key, after, stderr.note()));
            }
            // Otherwise the end of the attempt says why.
            Progress::PassedOver(server, why) if client.has_fallback() => {
                is_passed_over = true;
                stderr.print(&format!("{key}: {server} is passed over: {why}"));
            }
            Progress::Lost(server, why) if is_verbose => {
                let lost = format!("the connection to {server} is lost during the wait: {why}");
                stderr.print(&format!("{key}: {lost}"));
            }
            Progress::PassedOver(..) | Progress::Lost(..) => {}
        }
    };
    let outcome = lock(client, request, &mut observer);
    drop(notice);
    if let (true, Ok(Outcome::Locked(lock))) = (is_passed_over, &outcome) {
        stderr.print(&format!("{key}: {} gave the lock", lock.server()));
    }
    Waited { outcome, server }
}
