//! What has happened to connections in a turn, until the statistics get it: few numbers, since
//! adding up all counters in every turn that has one new connection takes a hundred instructions.

use engine::counts::statistics::Counters;

/// Each has the meaning of the counter of its name ([`Counters`]).
#[derive(Default)]
pub(crate) struct ConnectionCounts {
    pub(super) accepted: u64,
    pub(super) connect_errors: u64,
    pub(super) rejected: u64,
    pub(super) rejected_per_ip: u64,
    pub(super) denied: u64,
    pub(super) failed_sends: u64,
    pub(super) unread: u64,
    pub(super) lost: u64,
    pub(super) freed: u64,
}

impl ConnectionCounts {
    /// Adds all to the statistics, and starts again at zero.
    pub(super) fn move_to(&mut self, counters: &mut Counters) {
        let ConnectionCounts {
            accepted,
            connect_errors,
            rejected,
            rejected_per_ip,
            denied,
            failed_sends,
            unread,
            lost,
            freed,
        } = std::mem::take(self);
        counters.accepted_connections += accepted;
        counters.connect_errors += connect_errors;
        counters.rejected_connections += rejected;
        counters.rejected_connections_per_ip += rejected_per_ip;
        counters.denied_connections += denied;
        counters.failed_sends += failed_sends;
        counters.unread_connections += unread;
        counters.lost_connections += lost;
        counters.freed_connections += freed;
    }
}
