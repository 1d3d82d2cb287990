//! Starts the daemon: assembles it from its options, or continues an old image.

use crate::clients::connections::Clients;
use crate::clients::input::Input;
use crate::listening::addresses::{self, Obstacle, Wanted};
use crate::listening::listeners::Listeners;
use crate::listening::unix_socket;
use crate::logging::logger;
use crate::logging::systemd::ServiceManager;
use crate::operator::orders::Operators;
use crate::operator::rule_book::{RuleBook, read_rules};
use crate::operator::run_time_settings::RunTimeSettings;
use crate::options::Options;
use crate::platform::failed_call::named;
use crate::platform::hash_seed::random_seed;
use crate::platform::os::Engine;
use crate::platform::os::mio::Poll;
use crate::platform::{clock, needed_calls, sys, terminal};
use crate::reporting::http::Http;
use crate::reporting::report_queue::Reporting;
use crate::restart::launcher::{Launcher, inherited_snapshot};
use crate::restart::old_image::Restart;
use crate::restart::parts::Parts;
use crate::serving::advice::StartError;
use crate::serving::memory_release::MemoryRelease;
use crate::serving::{Server, VERSION};
use log::info;
use reports::history::History;
use schema::words::Event;

/// Starts logging. To be called once, before anything else.
pub fn start_logging(options: &Options) {
    logger::start(options.log.as_deref());
}

/// Judges options, and the file of rules that they name, as a start does. Opens nothing, so it does
/// not notice what is taken or missing now.
///
/// # Errors
/// Why a start would be refused, however often it is tried.
pub fn check_options(options: &Options) -> Result<(), StartError> {
    options.warn_of_likely_mistakes();
    rules_at_start(options)?;
    let wanted = addresses::wanted(options)?;
    let mut errors = wanted.iter().filter_map(|wanted| match wanted {
        Wanted::Control(control) => {
            Some(wanted.failed(unix_socket::has_socket(&control.path).err()?))
        }
        Wanted::Tcp(_) => None,
    });
    let lasting = errors.find(|e| e.obstacle() == Obstacle::Options);
    lasting.map_or(Ok(()), |e| Err(e.into()))
}

fn rules_at_start(options: &Options) -> Result<RuleBook, StartError> {
    read_rules(options).and_then(|file| RuleBook::new(file, options)).map_err(StartError::Rules)
}

impl Server {
    /// Opens the sockets and prepares to serve them.
    ///
    /// # Errors
    /// Why it can't listen, or which resource the kernel refuses.
    pub fn start(options: Options) -> Result<Self, StartError> {
        terminal::record();
        match inherited_snapshot()? {
            Some(snapshot) => Self::resume(options, snapshot),
            None => Self::start_empty(options),
        }
    }

    fn start_empty(options: Options) -> Result<Self, StartError> {
        let settings = RunTimeSettings::new(&options, rules_at_start(&options)?);
        options.warn_of_likely_mistakes();
        // Comes first, to get low descriptor numbers.
        let mut restart = Restart::new(Launcher::new()?);
        sys::raise_descriptor_limit();
        let now = clock::now();
        let mut history = History::new(now);
        history.mark(Event::Start, &format!("poolcounterd {VERSION}"), now);
        let mut engine = Engine::new(random_seed(), now);
        settings.rules.apply(&mut engine, now, || {});
        let signals = sys::take_over_signals()?;
        let mut poll = Poll::new().map_err(named("epoll_create1"))?;
        needed_calls::check(&signals, &mut poll)?;
        restart.rehearse();
        let operator = Operators::new(signals, settings);
        // Where epoll_ctl(2) is missing, nobody connects in vain.
        operator.watch(poll.registry())?;
        let mut listeners = Listeners::open(&options)?;
        let clients = Clients::new(&options);
        listeners.watch(poll.registry())?;
        listeners.count_own_descriptors();
        restart.check_descriptors();
        info!("poolcounterd {VERSION} listening on {}", listeners.names());
        listeners.log_http();
        let parts = Parts { poll, listeners, clients, engine, operator, history };
        Ok(Self::assemble(options, parts, restart))
    }

    /// Makes the server. Its epoll instance must watch all `parts` already.
    pub(super) fn assemble(options: Options, mut parts: Parts, restart: Restart) -> Self {
        parts.engine.observer.set_slow(options.slow_ns);
        let mut http = Http::new(&options);
        http.set_draining(parts.listeners.is_draining());
        Server {
            parts,
            reporting: Reporting::new(&options),
            restart,
            http,
            input: Input::new(),
            memory_release: MemoryRelease::default(),
            service_manager: ServiceManager::find(),
            turn_began: clock::now(),
            events: 0,
            options,
        }
    }
}
