//! Starts the daemon: assembles it from its options, or continues an old image.

use crate::server::advice::StartError;
use crate::server::clients::connections::Clients;
use crate::server::event_loop::{Server, VERSION};
use crate::server::kernel::hash_seed::random_seed;
use crate::server::kernel::world::Engine;
use crate::server::kernel::world::mio::Poll;
use crate::server::kernel::{clock, sys};
use crate::server::listening::listeners::Listeners;
use crate::server::operator::orders::{self, Operators};
use crate::server::operator::rule_book::{RuleBook, read_rules};
use crate::server::operator::run_time_settings::RunTimeSettings;
use crate::server::options::Options;
use crate::server::restart::launcher::{Launcher, inherited_snapshot};
use crate::server::restart::old_image::Restart;
use crate::server::telling::logging;
use log::info;

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
        orders::record_terminal();
        match inherited_snapshot()? {
            Some(snapshot) => Self::resume(options, snapshot),
            None => Self::start_empty(options),
        }
    }

    fn start_empty(options: Options) -> Result<Self, StartError> {
        let file = read_rules(&options)?;
        let rules = RuleBook::new(file, &options).map_err(StartError::Rules)?;
        let settings = RunTimeSettings::new(&options, rules);
        options.warn_of_likely_mistakes();
        // Comes first, to get low descriptor numbers.
        let restart = Restart::new(Launcher::new()?);
        sys::raise_descriptor_limit();
        let now = clock::now();
        let mut engine = Engine::new(random_seed(), now);
        engine.set_rules(settings.rules.in_force(), &settings.rules.groups(), now, || {});
        let operator = Operators::new(sys::take_over_signals()?, settings);
        let mut listeners = Listeners::open(&options)?;
        let clients = Clients::new(&options);
        let poll = Poll::new()?;
        operator.watch(poll.registry())?;
        listeners.watch(poll.registry(), 0)?;
        info!("poolcounterd {VERSION} listening on {}", listeners.names());
        listeners.log_http();
        Ok(Self::assemble(options, poll, listeners, clients, engine, operator, restart))
    }
}
