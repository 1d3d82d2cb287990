//! Hosts that have lost power: what keepalive and TCP_USER_TIMEOUT do, tcp(7).

use super::sockets::{SimulatedSocket, SocketRole};
use super::{File, Kernel};
use std::os::fd::RawFd;

const NS_PER_S: u64 = 1_000_000_000;

/// How long TCP retransmits what is not acknowledged, at least, by default: tcp(7), tcp_retries2.
const RETRANSMITTED_NS: u64 = 924 * NS_PER_S;

impl SimulatedSocket {
    /// How long a silent host is probed. A probe that is due ends the connection: the last one, or,
    /// if there is a user timeout, the first one after it.
    fn probed_ns(&self) -> Option<u64> {
        if self.option("keepalive") == 0 {
            return None;
        }
        // An option that could not be set has the default of tcp(7).
        let or_default =
            |name, default| Some(self.option(name)).filter(|&n| n > 0).unwrap_or(default);
        let idle_s = or_default("keepidle_s", 7200);
        let interval_s = or_default("keepintvl_s", 75);
        let timeout_ns = self.option("user_timeout_ms") * 1_000_000;
        let probes = match timeout_ns.checked_sub(idle_s * NS_PER_S) {
            _ if timeout_ns == 0 => or_default("keepcnt", 9),
            None => 1,
            Some(rest_ns) => rest_ns.div_ceil(interval_s * NS_PER_S).max(1),
        };
        Some((idle_s + probes * interval_s) * NS_PER_S)
    }

    /// How long it waits for an acknowledgement.
    fn retransmitted_ns(&self) -> u64 {
        match self.option("user_timeout_ms") {
            0 => RETRANSMITTED_NS,
            timeout_ms => timeout_ms * 1_000_000,
        }
    }
}

impl Kernel {
    /// The peer's host is gone: nothing comes from it any more, not even an
    /// acknowledgement.
    pub(crate) fn vanish(&mut self, peer: u32) {
        let now_ns = self.now_ns;
        let Some(file) = self.peers.get(&peer).and_then(|peer| peer.socket) else {
            return;
        };
        let File::Socket(socket) = &mut self.files[file] else { return };
        let after_ns = socket.probed_ns().unwrap_or(u64::MAX / 4);
        let SocketRole::Stream(stream) = &mut socket.role else { return };
        let is_there = !stream.is_dead && !stream.is_closed_there && stream.times_out_ns.is_none();
        if stream.is_unix() || !is_there {
            return;
        }
        stream.on_the_way.clear();
        stream.times_out_ns = Some(now_ns + after_ns);
        if let Some(peer) = self.peers.get_mut(&peer) {
            (peer.is_given_up, peer.vanished_ns) = (true, Some(now_ns));
        }
    }

    /// Something was sent. A vanished host is not probed as long as it has not acknowledged that.
    pub(super) fn note_unacknowledged(&mut self, fd: RawFd) {
        let now_ns = self.now_ns;
        let Ok(socket) = self.socket(fd) else { return };
        let after_ns = socket.retransmitted_ns();
        let SocketRole::Stream(stream) = &mut socket.role else { return };
        if stream.times_out_ns.is_none() || stream.is_unacknowledged {
            return;
        }
        (stream.is_unacknowledged, stream.times_out_ns) = (true, Some(now_ns + after_ns));
        let peer = stream.peer;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.vanished_ns = Some(now_ns);
        }
    }
}
