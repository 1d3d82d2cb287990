//! Which connections may be served, and the statistics of connections: from what the
//! kernel saw of them, and the options.

use crate::Options;
use crate::simulation::clients::oracle::GonePeer;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::sockets::LocalAddress;
use crate::simulation::kernel::{KernelEvent, kernel};
use crate::simulation::os::SHARES_PER_TURN;
use crate::simulation::reports::http::{HTTP, HTTP_PORT};
use crate::sockets::ids::HTTP_CONNECTIONS_MAX;
use crate::sockets::stream::OUTPUT_BYTES_MAX;
use engine::counts::statistics::Counters;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The clients that are connected, and what the daemon should have counted so far.
#[derive(Default)]
pub(crate) struct Connections {
    open: BTreeMap<u32, Option<IpAddr>>,
    counters: Counters,
    /// How many times clients had to wait for descriptors: each period counts once.
    episodes: u64,
    in_episode: bool,
    /// How many there were when the last one had surely ended.
    ended: Option<u64>,
    /// Peers that have left.
    gone: BTreeSet<u32>,
    /// New clients at a limit.
    held: Vec<HeldPeer>,
    /// Peers whose end the daemon could see when the turn began.
    had_left: BTreeSet<u32>,
    /// A client left for two reasons at once: either may be counted.
    is_ambiguous: bool,
    /// How many clients whose input has ended were closed in this turn: a late report may have been
    /// too much for each.
    late_closes: u64,
    /// How many clients were freed in the turn in which they were accepted.
    pub(crate) freed_new_clients: usize,
}

/// What has happened to the connections since the last check.
pub(crate) struct ConnectionEvents<'a> {
    pub(crate) seen: &'a [KernelEvent],
    /// Peers that are served now, and were not before.
    pub(crate) new_clients: &'a [u32],
    pub(crate) gone: &'a [GonePeer],
    /// Peers that `FREE` or `--max-hold` has disconnected.
    pub(crate) freed: &'a [u32],
    /// Peers whose input has ended, and that have not read their answers.
    pub(crate) finishing: &'a [u32],
}

impl Connections {
    /// How many clients are connected.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether it was ever served as a client.
    pub(crate) fn was_client(&self, peer: u32) -> bool {
        self.open.contains_key(&peer) || self.gone.contains(&peer)
    }

    /// A turn begins: these peers have left.
    pub(crate) fn note_left(&mut self, peers: BTreeSet<u32>) {
        self.had_left = peers;
    }

    /// How many newcomers are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Follows what has happened.
    ///
    /// Invariant: A connection that waits in the queue of a listener that begins to close is
    /// accepted, unless HTTP has all its connections; one that comes later may be refused.
    ///
    /// # Errors
    /// If a peer is wrongly served or refused.
    pub(crate) fn check_events(
        &mut self,
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> Result<(), Violation> {
        self.note_endings(events)?;
        let mut decided = false;
        for (n, one) in events.seen.iter().enumerate() {
            // Those that are held are decided after the closes of a turn, before others come.
            let decides = match one {
                KernelEvent::Accepted { .. } => true,
                KernelEvent::Closed(peer) => self.held.iter().any(|it| it.newcomer.peer == *peer),
                _ => false,
            };
            if decides && !std::mem::replace(&mut decided, true) {
                self.decide_held(&events.seen[n..], events, options)?;
            }
            match one {
                KernelEvent::Accepted { peer, to, ip, is_over } => {
                    let is_client = events.new_clients.contains(peer) || Self::is_for_clients(to);
                    if is_client {
                        let newcomer = AcceptedPeer { peer: *peer, ip: *ip, is_over: *is_over };
                        self.note_newcomer(newcomer, &events.seen[n..], events, options)?;
                    }
                }
                KernelEvent::Closed(peer) => {
                    self.refuse_one_too_many(*peer, events, options)?;
                    self.open.remove(peer);
                    self.late_closes += u64::from(self.gone.contains(peer));
                }
                // With all connections of HTTP in use, it may be dropped.
                KernelEvent::Dropped(peer)
                    if !is_http_full() && kernel(|k| k.calls.failures.is_empty()) =>
                {
                    return Err(format!(
                        "connection {peer} waits on a listener that no longer accepts"
                    ));
                }
                KernelEvent::AcceptFailed => self.counters.connect_errors += 1,
                _ => {}
            }
        }
        if !decided {
            self.decide_held(&[], events, options)?;
        }
        Ok(())
    }

    /// Follows what becomes of newcomers at a limit.
    ///
    /// Invariant: A newcomer at a limit is held until there is a place; it is refused only if there
    /// is none although the ends of all connections are handled that it can have known, or after a
    /// second. None is held over a hot restart.
    fn decide_held(
        &mut self,
        then: &[KernelEvent],
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> Result<(), Violation> {
        let now_ns = kernel(|k| k.now_ns);
        for mut held in std::mem::take(&mut self.held) {
            let peer = held.newcomer.peer;
            held.newcomer.note_what_is_known(events);
            // Others may be accepted after the decisions, and crowd one out. FREE, which comes
            // later still, ends one that is served.
            let is_accepted = |it: &KernelEvent| matches!(it, KernelEvent::Accepted { .. });
            let first = then.iter().position(is_accepted).unwrap_or(then.len());
            let last = then.iter().rposition(is_accepted).unwrap_or(first);
            let end = if self.freed_new_clients > 0 { last } else { then.len() };
            let later = &then[first..end];
            let is_closed =
                !kernel(|k| k.is_open(peer)) && !later.contains(&KernelEvent::Closed(peer));
            if !is_closed && !events.new_clients.contains(&peer) {
                if events.seen.contains(&KernelEvent::Executed) {
                    return Err(format!("newcomer {peer} is held at a hot restart"));
                }
                if now_ns > held.since_ns + HELD_NS && kernel(|k| k.calls.failures.is_empty()) {
                    return Err(format!("newcomer {peer} is held for more than a second"));
                }
                self.held.push(held);
                continue;
            }
            let is_late = now_ns >= held.since_ns + HELD_NS;
            let may_be_refused = is_late || !self.has_ending(&held.newcomer, events, options);
            let refused =
                self.counters.rejected_connections + self.counters.rejected_connections_per_ip;
            self.note_new_client(&held.newcomer, !is_closed, events, options)?;
            let is_refused = refused
                < self.counters.rejected_connections + self.counters.rejected_connections_per_ip;
            // Where a call has failed, an event may have been lost.
            if is_refused && !may_be_refused && kernel(|k| k.ever_failed.is_empty()) {
                return Err(format!("newcomer {peer} is refused, but another one has left"));
            }
        }
        Ok(())
    }

    /// Invariant: If too many newcomers are held, or more than there are descriptors for, the host
    /// with the most of them loses one.
    fn refuse_one_too_many(
        &mut self,
        peer: u32,
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> Result<(), Violation> {
        let Some(place) = self.held.iter().position(|it| it.newcomer.peer == peer) else {
            return Ok(());
        };
        // The host of one that has left is not known.
        let known: Vec<_> =
            self.held.iter().filter(|it| !it.newcomer.is_over).map(|it| it.newcomer.ip).collect();
        let of = |ip| known.iter().filter(|other| **other == ip).count();
        let most = known.iter().map(|ip| of(*ip)).max().unwrap_or_default();
        let AcceptedPeer { ip, is_over, .. } = self.held[place].newcomer;
        let is_scarce = kernel(|k| k.descriptors_max < 20_000);
        let is_too_much = is_scarce || self.held.len() > HELD_MAX;
        let has_room = !is_too_much || !is_over && of(ip) < most;
        if has_room && kernel(|k| k.ever_failed.is_empty()) {
            return Err(format!("newcomer {peer} of {ip:?} is crowded out"));
        }
        let mut held = self.held.remove(place);
        held.newcomer.note_what_is_known(events);
        self.note_new_client(&held.newcomer, false, events, options)
    }

    /// Whether a connection that counts against the limit of a newcomer had left before it came,
    /// and is still open.
    fn has_ending(
        &self,
        newcomer: &AcceptedPeer,
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> bool {
        let is_full = options.max_connections.is_some_and(|max| self.open.len() >= max);
        let counts = |ip: &Option<IpAddr>| is_full || *ip == newcomer.ip;
        let mut open = self.open.iter().filter(|(peer, ip)| **peer < newcomer.peer && counts(ip));
        open.any(|(peer, _)| self.had_left.contains(peer) && !events.finishing.contains(peer))
    }

    /// A new client was accepted: it is decided about at once, unless a limit is reached.
    fn note_newcomer(
        &mut self,
        mut newcomer: AcceptedPeer,
        then: &[KernelEvent],
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> Result<(), Violation> {
        newcomer.note_what_is_known(events);
        let peer = newcomer.peer;
        let is_admitted = events.new_clients.contains(&peer);
        let is_closed = then.contains(&KernelEvent::Closed(peer));
        let same = self.open.values().filter(|ip| **ip == newcomer.ip).count();
        let is_full = options.max_connections.is_some_and(|max| self.open.len() >= max);
        let has_many = options.max_connections_per_ip.is_some_and(|max| same >= max);
        // Those that come behind it may crowd it out.
        let next = then.iter().skip(1).position(|it| matches!(it, KernelEvent::Accepted { .. }));
        let before_next = &then[..next.map_or(then.len(), |at| at + 1)];
        let is_closed_at_once = before_next.contains(&KernelEvent::Closed(peer));
        if is_admitted || is_closed_at_once || is_closed && !is_full && !has_many {
            return self.note_new_client(&newcomer, is_admitted, events, options);
        }
        if !is_full && !has_many {
            return Err(format!("newcomer {peer} is held, but no limit is reached"));
        }
        self.held.push(HeldPeer { newcomer, since_ns: kernel(|k| k.now_ns) });
        Ok(())
    }

    /// Invariant: A new client is served, unless `--allow`, `--max-connections` or
    /// `--max-connections-per-ip` refuses it at that moment. An IPv4 client of an IPv6 socket
    /// counts as an IPv4 client. Each new client counts once: as accepted, or by the one reason for
    /// its refusal.
    fn note_new_client(
        &mut self,
        new_client: &AcceptedPeer,
        admitted: bool,
        events: &ConnectionEvents<'_>,
        options: &Options,
    ) -> Result<(), Violation> {
        let &AcceptedPeer { peer, ip, is_over } = new_client;
        let counters = &mut self.counters;
        let is_limited = !options.allow.is_empty() || options.max_connections_per_ip.is_some();
        let is_full = options.max_connections.is_some_and(|max| self.open.len() >= max);
        let is_denied = ip.is_some_and(|ip| {
            !options.allow.is_empty() && !options.allow.iter().any(|net| net.contains(&ip))
        });
        let has_many =
            |count: usize| options.max_connections_per_ip.is_some_and(|max| count >= max);
        let same = self.open.iter().filter(|(_, other)| ip.is_some() && **other == ip);
        let same: Vec<u32> = same.map(|(&peer, _)| peer).collect();
        // A new image can't ask for the address of a connection that is over.
        let alive = same
            .iter()
            .filter(|peer| kernel(|k| k.is_open(**peer) && !k.visible(**peer).1))
            .count();
        if admitted {
            self.open.insert(peer, ip);
            counters.accepted_connections += 1;
            return match (is_full, is_denied, has_many(alive)) {
                (false, false, false) => Ok(()),
                _ => {
                    Err(format!("client {peer} of {ip:?} is served, with {} open", self.open.len()))
                }
            };
        }
        // It is watched once it is admitted.
        if events.seen.contains(&KernelEvent::WatchFailed(peer)) {
            counters.connect_errors += 1;
        } else if is_full {
            counters.rejected_connections += 1;
        } else if ip.is_some() && is_limited && is_over {
            // It has left already.
        } else if is_denied {
            counters.denied_connections += 1;
        } else if has_many(same.len()) {
            counters.rejected_connections_per_ip += 1;
        } else if self.freed_new_clients > 0 {
            self.freed_new_clients -= 1;
            // It counts against the limits until it is closed.
            self.open.insert(peer, ip);
            counters.accepted_connections += 1;
            counters.freed_connections += 1;
        } else {
            return Err(format!(
                "client {peer} of {ip:?} is refused, with {} open",
                self.open.len()
            ));
        }
        Ok(())
    }

    /// Invariant: Each client that leaves counts once, with one reason.
    fn note_endings(&mut self, events: &ConnectionEvents<'_>) -> Result<(), Violation> {
        let counters = &mut self.counters;
        let has_happened = |what: KernelEvent| events.seen.contains(&what);
        let failed: Vec<u32> = events
            .seen
            .iter()
            .filter_map(|one| match one {
                KernelEvent::SendFailed(peer) | KernelEvent::WatchFailed(peer) => Some(*peer),
                _ => None,
            })
            .filter(|peer| self.open.contains_key(peer))
            .collect();
        counters.failed_sends += failed.len() as u64;
        for &peer in events.freed {
            counters.freed_connections += u64::from(self.gone.insert(peer));
        }
        for &GonePeer { peer, unread_bytes, speaks_http } in events.gone {
            if !self.gone.insert(peer) {
                continue;
            }
            if has_happened(KernelEvent::Lost(peer)) {
                counters.lost_connections += 1;
                continue;
            }
            let (has_ended, is_lost) = (
                has_happened(KernelEvent::EndReceived(peer)),
                has_happened(KernelEvent::ReceiveFailed(peer)),
            );
            let has_failed = failed.contains(&peer);
            let may_be_closed = unread_bytes >= OUTPUT_BYTES_MAX;
            self.is_ambiguous |= (has_ended || is_lost) && (has_failed || may_be_closed)
                || speaks_http && (has_ended || is_lost || has_failed || may_be_closed);
            if has_ended {
                counters.closed_connections += 1;
            } else if is_lost {
                counters.lost_connections += 1;
            } else if may_be_closed && !has_failed {
                counters.unread_connections += 1;
                counters.failed_sends += 1;
            } else if has_failed {
                counters.lost_connections += 1;
            } else if speaks_http {
                counters.freed_connections += 1;
            } else {
                return Err(format!("client {peer} is disconnected without a reason"));
            }
        }
        Ok(())
    }

    /// Invariant: The counters of connections follow from what the kernel saw. A period in which
    /// new clients wait for descriptors counts at most once.
    ///
    /// `counters` are the daemon's, after a turn.
    pub(crate) fn check(&mut self, counters: &Counters) -> Result<(), Violation> {
        let late_closes = std::mem::take(&mut self.late_closes);
        let failed_late = counters.failed_sends.saturating_sub(self.counters.failed_sends);
        self.counters.failed_sends += failed_late.min(late_closes);
        if std::mem::take(&mut self.is_ambiguous) {
            let Counters {
                closed_connections,
                lost_connections,
                freed_connections,
                unread_connections,
                failed_sends,
                ..
            } = *counters;
            self.counters = Counters {
                closed_connections,
                lost_connections,
                freed_connections,
                unread_connections,
                failed_sends,
                ..self.counters
            };
        }
        let errors = counters.connect_errors.saturating_sub(self.counters.connect_errors);
        if errors > self.episodes + u64::from(!self.in_episode) {
            return Err(format!("it counts {errors} shortages of descriptors"));
        }
        self.in_episode |= errors > self.episodes;
        self.episodes = errors;
        // It also ends if all that wait have an event that the daemon has not got: its wait may
        // have failed, and then it may have found all other queues empty.
        self.in_episode = self.in_episode && kernel(|k| k.connections_reported()) > 0;
        Ok(())
    }

    /// The loop sleeps. `clients_wait` for descriptors, or `nobody_waits`.
    ///
    /// Invariant: A shortage of descriptors counts if no client had to wait before.
    ///
    /// # Errors
    /// If clients wait again, and that was not counted.
    pub(crate) fn check_sleep(
        &mut self,
        clients_wait: bool,
        nobody_waits: bool,
    ) -> Result<(), Violation> {
        if nobody_waits {
            self.ended = Some(self.episodes);
        }
        match self.ended.take_if(|_| clients_wait) {
            Some(episodes) if episodes == self.episodes => Err(format!(
                "clients wait for descriptors again, but the count is still {episodes}"
            )),
            _ => Ok(()),
        }
    }

    /// The next image begins without a shortage of descriptors.
    pub(crate) fn note_restart(&mut self) {
        self.in_episode = false;
        self.ended = None;
    }

    /// The counters of connections that the daemon should have; the rest is from `others`.
    pub(crate) fn counters(&self, others: Counters) -> Counters {
        let ours = &self.counters;
        Counters {
            connect_errors: ours.connect_errors + self.episodes,
            accepted_connections: ours.accepted_connections,
            closed_connections: ours.closed_connections,
            lost_connections: ours.lost_connections,
            freed_connections: ours.freed_connections,
            unread_connections: ours.unread_connections,
            failed_sends: ours.failed_sends,
            rejected_connections: ours.rejected_connections,
            denied_connections: ours.denied_connections,
            rejected_connections_per_ip: ours.rejected_connections_per_ip,
            ..others
        }
    }
}

/// How long a newcomer is held.
const HELD_NS: u64 = 1_000_000_000;

/// How many newcomers are held at most: as many as a turn accepts.
const HELD_MAX: usize = SHARES_PER_TURN * 4 / 5;

/// A newcomer at a limit.
struct HeldPeer {
    newcomer: AcceptedPeer,
    since_ns: u64,
}

/// A peer that was accepted.
struct AcceptedPeer {
    peer: u32,
    ip: Option<IpAddr>,
    /// It has left before its address could be read.
    is_over: bool,
}

impl AcceptedPeer {
    /// The daemon may have asked for its address when it was over.
    fn note_what_is_known(&mut self, events: &ConnectionEvents<'_>) {
        self.is_over |= events.seen.contains(&KernelEvent::PeerUnknown(self.peer));
    }
}

impl Connections {
    /// Whether who connects there becomes a client.
    fn is_for_clients(to: &LocalAddress) -> bool {
        matches!(to, LocalAddress::Tcp(address) if address.port() != HTTP_PORT)
    }
}

fn is_http_full() -> bool {
    kernel(|k| k.connections_to(HTTP)).len() >= HTTP_CONNECTIONS_MAX
}
