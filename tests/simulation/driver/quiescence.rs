//! How a run ends: everything comes to rest.

use super::play::Play;
use crate::simulation::invariants;
use crate::simulation::invariants::Violation;
use crate::simulation::kernel::draws::Choices;
use crate::simulation::kernel::kernel;

impl Play {
    /// Accepting is paused, because descriptors were scarce.
    fn is_paused(&self) -> bool {
        let listeners = self.server.iter().flat_map(|server| &server.parts.listeners.all);
        listeners.into_iter().any(|listener| listener.paused_until().is_some())
    }

    /// Everything arrives, all clients read, nothing fails: then all that is due must be there.
    /// `varies` is whether these turns also draw numbers: after a recorded script they draw none.
    pub(crate) fn reach_quiescence(&mut self, varies: bool) -> Result<(), Violation> {
        kernel(|k| k.stop_faults());
        // The daemon retries failed notifications after a while.
        let (mut calm, mut retries) = (0, 6);
        for n in 0..20_000 {
            if self.server.is_none() {
                break;
            }
            kernel(|k| k.end_children());
            self.deliver_all();
            let peers: Vec<u32> = kernel(|k| k.peers.keys().copied().collect());
            let mut has_read = false;
            for peer in peers {
                has_read |= self.read_peer(peer, 100_000)?;
            }
            let choices = if varies { Choices::Seed(n) } else { Choices::USUAL };
            self.run_turn(choices, false, false)?;
            calm = if has_read || self.asleep.is_none() { 0 } else { calm + 1 };
            if calm > 1 && (self.is_paused() || retries > 0) {
                retries -= usize::from(!self.is_paused());
                self.advance_to_deadline();
            } else if calm > 1 {
                return invariants::check_quiescence(self);
            }
        }
        match self.server {
            Some(_) => Err("it never comes to rest".to_owned()),
            None => invariants::check_end(self),
        }
    }
}
