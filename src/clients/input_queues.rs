//! Whose input is received and handled next, and how much of it in a turn: two queues of unread
//! clients (`connections.rs` has the states of input), and the turn's budget of work.
//!
//! A turn has to be short, however many clients send: meanwhile nobody is accepted, no wait ends
//! and no order is executed. So it has a budget, and what does not fit waits for the next turn. Both
//! queues are first in, first out over turns, and each is guaranteed half of the budget: clients
//! that send without end delay others by little, and are not starved by them either.

use crate::platform::os::SHARES_PER_TURN;
use engine::ClientId;
use std::collections::VecDeque;

/// A client's fair share of the bytes received in a turn. A request has 30 to 300
/// bytes.
pub(crate) const SHARE_BYTES: usize = 4096;

/// How much work a client gets in a turn, as bytes received plus bytes answered:
/// work grows with both. A share of short requests fits. It takes some 30 µs.
pub(crate) const SHARE_WORK: usize = 2 * SHARE_BYTES;

/// What a client costs at least: a recv(2), usually a send(2), and what the kernel does for them.
const CLIENT_WORK: usize = SHARE_WORK / 4;

/// What the end of a connection costs: its socket is closed, and its locks go to others.
pub(crate) const END_WORK: usize = SHARE_WORK / 2;

/// The budget of a turn, some 10 ms.
pub(crate) const TURN_WORK: usize = SHARES_PER_TURN * SHARE_WORK;

/// Unread clients: their input is to be received or handled. Each is in one queue at most.
#[derive(Debug, Default)]
pub(crate) struct InputQueues {
    /// An event has reported input, or what kept the daemon from receiving it is over.
    fresh: NextTurnQueue,
    /// They used up a share, and may have more: no event will report it.
    rest: NextTurnQueue,
    /// The work of this turn. A client that was taken counts as a whole share until it is
    /// settled, so that a batch does not exceed the budget.
    spent: usize,
}

/// A queue in which those that join after the events of a turn wait for the next one.
#[derive(Debug, Default)]
struct NextTurnQueue {
    clients: VecDeque<ClientId>,
    /// How many of them get a share in this turn.
    due: usize,
}

impl NextTurnQueue {
    fn begin_shares(&mut self) {
        self.due = self.clients.len();
    }

    /// The first one, if it is due in this turn.
    fn pop_due(&mut self) -> Option<ClientId> {
        self.due = self.due.checked_sub(1)?;
        self.clients.pop_front()
    }

    fn has_due(&self) -> bool {
        self.due > 0
    }
}

/// Which of the queues a client was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputQueue {
    Fresh,
    Rest,
}

impl InputQueues {
    /// `client` has input, and no share of it yet.
    pub(crate) fn push_fresh(&mut self, client: ClientId) {
        self.fresh.clients.push_back(client);
    }

    /// `client` may have more, and gets its next share in a later turn.
    pub(crate) fn push_rest(&mut self, client: ClientId) {
        self.rest.clients.push_back(client);
    }

    /// Whether any client waits.
    pub(crate) fn has_work(&self) -> bool {
        !self.fresh.clients.is_empty() || !self.rest.clients.is_empty()
    }

    /// Begins the shares of a turn, with a whole budget. Its events are recorded.
    pub(crate) fn begin_shares(&mut self) {
        self.fresh.begin_shares();
        self.rest.begin_shares();
        self.spent = 0;
    }

    /// The next client of this turn; [`InputQueues::settle`] follows.
    pub(crate) fn next(&mut self) -> Option<(ClientId, InputQueue)> {
        let fits = |budget: usize| self.spent + SHARE_WORK <= budget;
        if !fits(TURN_WORK) {
            return None;
        }
        let is_fresh = self.fresh.has_due() && (fits(TURN_WORK / 2) || !self.rest.has_due());
        let taken = if is_fresh {
            self.fresh.pop_due().map(|client| (client, InputQueue::Fresh))
        } else {
            self.rest.pop_due().map(|client| (client, InputQueue::Rest))
        };
        self.spent += taken.map_or(0, |_| SHARE_WORK);
        taken
    }

    /// The client that was taken has cost `work`, or nothing if it is not there any more.
    pub(crate) fn settle(&mut self, work: Option<usize>) {
        let work = work.map_or(0, |work| work.max(CLIENT_WORK));
        self.spent = self.spent - SHARE_WORK + work;
    }

    /// Frees memory after many clients have left.
    pub(crate) fn shrink(&mut self) {
        self.fresh.clients.shrink_to_fit();
        self.rest.clients.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(slot: u32) -> ClientId {
        ClientId { slot, serial: slot }
    }

    /// Takes clients until the budget is spent, each for this much work.
    fn turn(queues: &mut InputQueues, work: usize) -> Vec<u32> {
        queues.begin_shares();
        let taken = std::iter::from_fn(|| {
            let (client, _) = queues.next()?;
            queues.settle(Some(work));
            Some(client.slot)
        });
        taken.collect()
    }

    #[test]
    fn each_queue_has_half_of_the_budget_and_is_first_in_first_out() {
        let half = SHARES_PER_TURN / 2;
        let mut queues = InputQueues::default();
        for n in 0..10 * half as u32 {
            queues.push_fresh(client(n));
            queues.push_rest(client(1_000_000 + n));
        }
        for n in 0..5_u32 {
            let first = n * half as u32;
            let taken = turn(&mut queues, SHARE_WORK);
            let fresh: Vec<u32> = (first..first + half as u32).collect();
            let rest: Vec<u32> = fresh.iter().map(|slot| 1_000_000 + slot).collect();
            assert_eq!(taken, [fresh, rest].concat());
        }
    }

    #[test]
    fn a_queue_alone_has_the_whole_budget() {
        for push in [InputQueues::push_fresh, InputQueues::push_rest] {
            let mut queues = InputQueues::default();
            for n in 0..9 * SHARES_PER_TURN as u32 {
                push(&mut queues, client(n));
            }
            assert_eq!(turn(&mut queues, SHARE_WORK).len(), SHARES_PER_TURN);
            // Short requests cost less, but not nothing.
            assert_eq!(turn(&mut queues, 1).len(), 4 * SHARES_PER_TURN - 3);
        }
    }

    #[test]
    fn a_client_that_had_its_share_waits_for_the_next_turn() {
        for (push, queue) in [
            (InputQueues::push_fresh as fn(&mut _, _), InputQueue::Fresh),
            (InputQueues::push_rest, InputQueue::Rest),
        ] {
            let mut queues = InputQueues::default();
            queues.push_fresh(client(7));
            queues.begin_shares();
            assert_eq!(queues.next(), Some((client(7), InputQueue::Fresh)));
            queues.settle(Some(SHARE_WORK));
            push(&mut queues, client(7));
            assert_eq!((queues.next(), queues.has_work()), (None, true));
            queues.begin_shares();
            assert_eq!(queues.next(), Some((client(7), queue)));
        }
    }
}
