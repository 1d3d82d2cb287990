//! A cold start, or the continuation of an old image.

use super::advice::StartError;
use super::clients::Clients;
use super::event_loop::{Server, VERSION};
use super::launcher::{Launcher, inherited_snapshot};
use super::listeners::Listeners;
use super::operator::Operator;
use super::options::Options;
use super::restart::Restart;
use super::world::Engine;
use super::world::mio::Poll;
use super::{clock, hangup, logging, sys};
use log::info;
use std::hash::RandomState;

/// Starts logging. To be called once, before anything else.
pub fn start_logging(options: &Options) {
    logging::start(options.log.as_deref());
}

impl Server {
    /// Opens the sockets and prepares to serve them.
    ///
    /// # Errors
    /// Why it can't listen, or which resource the kernel refuses.
    pub fn start(options: Options) -> Result<Self, StartError> {
        hangup::note_terminal();
        match inherited_snapshot()? {
            Some(snapshot) => Self::resume(options, snapshot),
            None => Self::start_empty(options),
        }
    }

    fn start_empty(options: Options) -> Result<Self, StartError> {
        options.warn_of_ignored();
        // Comes first, to get low descriptor numbers.
        let restart = Restart::new(Launcher::new()?);
        sys::raise_descriptor_limit();
        let operator = Operator::new(sys::take_over_signals()?);
        let mut listeners = Listeners::open(&options)?;
        let mut engine = Engine::new(RandomState::new(), clock::now());
        engine.set_hold_limits(options.max_hold.clone());
        let clients = Clients::new(&options);
        let poll = Poll::new()?;
        operator.watch(poll.registry())?;
        listeners.watch(poll.registry(), 0)?;
        info!("poolcounterd {VERSION} listening on {}", listeners.names());
        listeners.log_http();
        Ok(Self::assemble(options, poll, listeners, clients, engine, operator, restart))
    }
}
