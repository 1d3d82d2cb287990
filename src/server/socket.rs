//! Options of sockets.

use super::world::fd::OwnedFd;
use super::world::net::{AddressFamily, sockopt};
use std::io;
use std::time::Duration;

/// Sets the options of a listening socket that its connections inherit.
pub(super) fn set_options(socket: &OwnedFd, keepalive_s: u32) -> io::Result<()> {
    let domain = sockopt::socket_domain(socket)?;
    if domain == AddressFamily::INET || domain == AddressFamily::INET6 {
        // Leftover connections must not prevent another bind of the port.
        sockopt::set_socket_reuseaddr(socket, true)?;
        sockopt::set_tcp_nodelay(socket, true)?;
        set_keepalive(socket, keepalive_s)?;
    }
    Ok(())
}

/// Whether it is a Unix socket.
pub(super) fn is_unix(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Detects hosts that lost power. The kernel probes after half of `keepalive_s` of
/// silence, then up to four times more, and gives up on data that stays
/// unacknowledged for as long (tcp(7)). Detection takes at most twice `keepalive_s`
/// from the last sign of life.
fn set_keepalive(socket: &OwnedFd, keepalive_s: u32) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, keepalive_s > 0)?;
    if keepalive_s == 0 {
        return Ok(sockopt::set_tcp_user_timeout(socket, 0)?);
    }
    let idle_s = keepalive_s.div_ceil(2);
    let interval_s = (keepalive_s / 4).max(1);
    // One second allows for the kernel's coarse timers.
    let count = ((2 * keepalive_s - 1 - idle_s) / interval_s).clamp(1, 4);
    let seconds = |s: u32| Duration::from_secs(s.into());
    sockopt::set_tcp_keepidle(socket, seconds(idle_s))?;
    sockopt::set_tcp_keepintvl(socket, seconds(interval_s))?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    // The kernel checks this timeout when a probe is due: half an interval less,
    // so that the last probe decides.
    let user_timeout_ms = (idle_s + count * interval_s) * 1_000 - interval_s * 500;
    Ok(sockopt::set_tcp_user_timeout(socket, user_timeout_ms)?)
}
