//! What the service manager is sent, and what the daemon leaves when it ends.

use crate::simulation::clients::shares::TurnStart;
use crate::simulation::driver::play::Play;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::kernel;

fn is_present() -> bool {
    kernel(|k| k.variables.contains_key("NOTIFY_SOCKET"))
}

/// Whether it has been sent a message that begins with this, read or unread.
fn was_notified(what: &[u8]) -> bool {
    kernel(|k| {
        let mut messages = k.notify.was_read.iter().chain(&k.notify.unread);
        messages.any(|message| message.starts_with(what))
    })
}

/// At rest.
///
/// Invariant: The service manager gets `READY=1` after each start and restart, once it reads.
pub(crate) fn check_ready() -> Result<(), Violation> {
    if is_present() && !was_notified(b"READY=1") {
        return Err("the service manager never gets READY=1".to_owned());
    }
    Ok(())
}

/// Invariant: The service manager is sent how many locks, waits and keys there are, and whether the
/// daemon drains, on the socket that it has now: `systemctl status` shows that.
pub(crate) fn check_status(play: &Play, before: &TurnStart) -> Result<(), Violation> {
    let counters = play.oracle.model.counters();
    let (held, waiting, keys) =
        (counters.processing_workers, counters.waiting_workers, counters.hashtable_entries);
    let should = format!(" connections, {held} locks held, {waiting} waiting, {keys} keys\n");
    for message in kernel(|k| std::mem::take(&mut k.calls.notifications)) {
        let message = String::from_utf8_lossy(&message);
        // Orders come later in a turn than the message.
        let is_older = play.oracle.has_freed || play.oracle.has_new_rules;
        if message.contains("STATUS=") && !message.ends_with(&should) && !is_older {
            return Err(format!("the service manager gets {message:?}, not {should:?}"));
        }
        let is_shown = message.contains("STATUS=draining: ");
        if message.contains("STATUS=") && before.is_draining.is_some_and(|it| it != is_shown) {
            return Err(format!("the service manager gets {message:?}; draining: {}", !is_shown));
        }
    }
    Ok(())
}

/// What the simulated service manager passes in WATCHDOG_USEC.
const WATCHDOG_NS: u64 = 10_000_000_000;

/// Invariant: The service manager gets `WATCHDOG=1` within half the time of its watchdog, or soon
/// after it reads again.
pub(crate) fn check_sleep(until_ns: Option<u64>) -> Result<(), Violation> {
    if !is_present() || !kernel(|k| k.variables.contains_key("WATCHDOG_USEC")) {
        return Ok(());
    }
    let again_ns = WATCHDOG_NS / 4;
    let (now_ns, notified_ns, can_be_notified) = kernel(|k| {
        // If the service manager has another socket, notifying it takes a descriptor.
        let failed_ns = k.last_failure_ns.max(k.last_full_ns);
        let has_failed = k.now_ns <= failed_ns + again_ns;
        (k.now_ns, k.watchdog_notified_ns, k.notify.has_room() && !has_failed)
    });
    // sd_watchdog_enabled(3): "every half of the time returned here".
    let in_time_ns = notified_ns + WATCHDOG_NS / 2;
    let due_ns = if can_be_notified { in_time_ns } else { in_time_ns.max(now_ns + again_ns) };
    if until_ns.is_none_or(|until_ns| until_ns > due_ns) {
        return Err(format!("it sleeps until {until_ns:?}; the watchdog waits until {due_ns}"));
    }
    Ok(())
}

/// Invariant: Before the daemon ends, the service manager gets `STOPPING=1`, and the log its last
/// lines, if they are read within a moment. Clients do not wait for that.
///
/// Invariant: The daemon leaves no file of a socket and no child behind.
pub(crate) fn check_shutdown(play: &Play) -> Result<(), Violation> {
    let (has_failed, did_not_read, is_unread) =
        kernel(|k| (!k.calls.failures.is_empty(), k.notify.did_not_read, k.log.did_not_read));
    if is_present() && !did_not_read && !has_failed && !was_notified(b"STOPPING=1") {
        return Err("the service manager never gets STOPPING=1".to_owned());
    }
    if play.logs && !is_unread && crate::logging::logger::next_deadline().is_some() {
        return Err("the last lines of the log are not written".to_owned());
    }
    if kernel(|k| k.calls.waits_with_clients) {
        return Err("clients wait for the service manager, or for the log".to_owned());
    }
    let left = kernel(|k| k.own_socket_paths());
    if !left.is_empty() {
        return Err(format!("it leaves {left:?} behind"));
    }
    match kernel(|k| k.children.len()) {
        0 => Ok(()),
        children => Err(format!("it leaves {children} children behind")),
    }
}
