//! Whether the daemon runs under a shell at a terminal, over hot restarts too: whether SIGHUP is a
//! hangup or asks for a hot restart.

use crate::platform::os::fs::{Mode, OFlags, open};
use crate::platform::os::{env, process};
use crate::platform::sys::{self, Signal};
use std::sync::LazyLock;

/// Tells the next image of this process, named by its id, that it was started from a
/// terminal, which may have hung up by then.
const VARIABLE: &str = "POOLCOUNTERD_TERMINAL";

/// Whether a shell leads the session of the daemon's terminal. When the terminal hangs up,
/// the kernel signals the shell, and the shell signals the daemon.
static IS_UNDER_SHELL: LazyLock<bool> =
    LazyLock::new(|| !sys::is_session_leader() && (was_under_shell() || has_terminal()));

/// Notes whether there is a terminal. To be called at the start, before it can hang up.
pub(crate) fn record() {
    LazyLock::force(&IS_UNDER_SHELL);
}

/// Whether this SIGHUP means that the terminal hung up. A session leader, for instance
/// in a container with a terminal, gets that signal from the kernel; one from a process
/// is then an operator's request.
pub(crate) fn is_meant_by(signal: &Signal) -> bool {
    signal.is_from_kernel || *IS_UNDER_SHELL
}

/// The environment variable for the next image.
pub(crate) fn for_next_image() -> Option<(&'static str, String)> {
    IS_UNDER_SHELL.then(|| (VARIABLE, process::id().to_string()))
}

fn was_under_shell() -> bool {
    env::var(VARIABLE).is_ok_and(|pid| pid == process::id().to_string())
}

/// Whether there is a controlling terminal: tty(4), ENXIO without one.
fn has_terminal() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open("/dev/tty", flags, Mode::empty()).is_ok()
}
