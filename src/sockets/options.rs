//! Options of listening sockets, which their connections inherit. All of them are best effort: a
//! kernel or a container's profile may refuse one, and the daemon serves without it.

use crate::platform::failed_call::named;
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::io::Errno;
use crate::platform::os::net::sockopt;
use log::warn;
use std::collections::BTreeMap;
use std::time::Duration;

/// The kernel's MAX_TCP_KEEPCNT (include/net/tcp.h).
const PROBES_MAX: u32 = 127;

const LOST_KEEPALIVE: &str = "a host that lost power keeps its locks";
const LOST_TIMES: &str =
    "a host that lost power may keep its locks for hours, instead of --keepalive";

/// The options that could not be set, each with what is lost without it, and on which sockets.
#[derive(Default)]
pub(crate) struct RefusedOptions(BTreeMap<&'static str, (String, Vec<String>)>);

impl RefusedOptions {
    fn note(
        &mut self,
        name: &str,
        option: &'static str,
        result: Result<(), Errno>,
        lost: &'static str,
    ) {
        let Err(e) = result else { return };
        let (_, names) = self
            .0
            .entry(option)
            .or_insert_with(|| (format!("{}: {lost}", named(option)(e)), Vec::new()));
        names.push(name.to_owned());
    }

    /// Logs each once.
    pub(crate) fn log(self) {
        for (text, names) in self.0.into_values() {
            warn!("{}: {text}", names.join(", "));
        }
    }
}

/// Sets the options of the listening socket that is called `name`.
pub(crate) fn set_options(
    socket: &OwnedFd,
    name: &str,
    keepalive_s: u32,
    refused: &mut RefusedOptions,
) {
    let mut note = |option, result, lost| refused.note(name, option, result, lost);
    // Leftover connections must not prevent another bind of the port.
    note(
        "setsockopt(SO_REUSEADDR)",
        sockopt::set_socket_reuseaddr(socket, true),
        "after a restart, old connections may keep the port for up to a minute",
    );
    note(
        "setsockopt(TCP_NODELAY)",
        sockopt::set_tcp_nodelay(socket, true),
        "an answer may wait until the client has acknowledged the one before",
    );
    set_keepalive(socket, keepalive_s, note);
}

/// Detects hosts that lost power. The kernel probes after half of `keepalive_s` of silence, and
/// ends the connection after one and a half times `keepalive_s`, or 2 s if that is more (tcp(7)).
///
/// The probes are many, because live clients miss some: the kernel rounds a timer of 30 s to slots of some
/// 2 s and sends all probes of a slot at once, and the loopback device drops what exceeds
/// net.core.netdev_max_backlog. Few probes at long intervals would come back in the same slot, and
/// all be dropped.
fn set_keepalive(
    socket: &OwnedFd,
    keepalive_s: u32,
    mut note: impl FnMut(&'static str, Result<(), Errno>, &'static str),
) {
    let is_on = keepalive_s > 0;
    let lost = if is_on { LOST_KEEPALIVE } else { "a host is probed although --keepalive is 0" };
    note("setsockopt(SO_KEEPALIVE)", sockopt::set_socket_keepalive(socket, is_on), lost);
    let mut user_timeout_ms = 0;
    if is_on {
        let idle_s = keepalive_s.div_ceil(2);
        let interval_s = (keepalive_s / 60).max(1);
        let silence_ms = (1_500 * keepalive_s).max((idle_s + interval_s) * 1_000);
        // The kernel checks this timeout when a probe is due: half an interval less,
        // so that the last probe decides.
        user_timeout_ms = silence_ms - interval_s * 500;
        // Decides where the kernel refuses the timeout: with one, Linux does not count
        // (net/ipv4/tcp_timer.c, tcp_keepalive_timer).
        let count = (user_timeout_ms - idle_s * 1_000) / (interval_s * 1_000);
        let seconds = |s: u32| Duration::from_secs(s.into());
        let idle = sockopt::set_tcp_keepidle(socket, seconds(idle_s));
        note("setsockopt(TCP_KEEPIDLE)", idle, LOST_TIMES);
        let interval = sockopt::set_tcp_keepintvl(socket, seconds(interval_s));
        note("setsockopt(TCP_KEEPINTVL)", interval, LOST_TIMES);
        let count = sockopt::set_tcp_keepcnt(socket, count.clamp(1, PROBES_MAX));
        note("setsockopt(TCP_KEEPCNT)", count, LOST_TIMES);
    }
    let user_timeout = sockopt::set_tcp_user_timeout(socket, user_timeout_ms);
    note(
        "setsockopt(TCP_USER_TIMEOUT)",
        user_timeout,
        "a host that lost power before it received an answer may keep its lock for a quarter of an hour",
    );
}
