//! All listeners: opens and adopts those that are wanted, closes others; registers and
//! deregisters them.

use crate::listening::accepting::{Acceptor, NewConnection};
use crate::listening::addresses::{ListenError, Purpose, Wanted, check_purposes, overlap, wanted};
use crate::listening::drain::Drain;
use crate::listening::listener::{Listener, ListenerStage, ListenerState, Origin, SocketSettings};
use crate::listening::opening::{self, abandon, open_missing};
use crate::options::Options;
use crate::platform::os::fd::AsRawFd;
use crate::platform::os::mio::Registry;
use crate::platform::os::mio::unix::SourceFd;
use crate::platform::os::net::sockopt;
use crate::platform::{clock, descriptors};
use crate::sockets::options::RefusedOptions;
use crate::sockets::slots::{Source, watch};
use engine::Time;
use log::{debug, error, info, warn};
use serde::{Deserialize, Serialize};
use std::io;

/// The listeners, and the state of accepting and draining.
pub(crate) struct Listeners {
    settings: SocketSettings,
    pub(crate) all: Vec<Listener>,
    last_number: usize,
    acceptor: Acceptor,
    drain: Drain,
    /// The port that `-p 0` got: UNDRAIN reuses it.
    free_port: Option<u16>,
}

/// What a hot restart carries over of the listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenersState {
    /// The sockets.
    pub listeners: Vec<ListenerState>,
    /// A drain is under way: no new clients; the daemon ends when the last one leaves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Inherited sockets closed by the drain, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// The port that `-p 0` got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_port: Option<u16>,
    /// Descriptors besides listeners and connections, which are counted while nobody is connected.
    #[serde(default = "usual_descriptors")]
    pub own_descriptors: u16,
}

/// Standard streams, epoll, signals, the files of a trial, and some more: if they can't be counted.
fn usual_descriptors() -> u16 {
    16
}

impl Listeners {
    /// Opens the listeners of a cold start: inherited ones, and those the options ask for.
    pub(crate) fn open(options: &Options) -> Result<Self, ListenError> {
        let settings = SocketSettings::new(options);
        let wanted = wanted(options)?;
        let mut refused = RefusedOptions::default();
        let mut listeners = Self::new(settings, opening::take(&settings, &mut refused)?);
        let to_open = listeners.applicable(&wanted);
        let mut opened = listeners.open_those(to_open, &wanted, &mut refused)?;
        listeners.all.append(&mut opened);
        listeners.record_free_port();
        refused.log();
        Ok(listeners)
    }

    /// Continues with the old image's listeners, to which it has added the missing ones;
    /// closes the unwanted ones, which are returned too, once their queues are empty. Never
    /// fails: a missing listener or an unwanted address is better than lost locks.
    pub(crate) fn resume(state: ListenersState, options: &Options) -> (Self, Vec<String>) {
        let resume = |state: ListenerState| {
            let name = state.name.clone();
            let lost = |e: &io::Error| error!("{name} was lost in the hot restart: {e}");
            Listener::resume(state).inspect_err(lost).ok()
        };
        let all = state.listeners.into_iter().filter_map(resume).collect();
        let mut listeners = Self::new(SocketSettings::new(options), all);
        listeners.drain = Drain::resume(state.draining, state.lost);
        listeners.free_port = state.free_port;
        listeners.acceptor = Acceptor::new(state.own_descriptors.into());
        // New connections are accepted before the first turn.
        listeners.begin_turn(clock::now());
        listeners.record_free_port();
        let closed = match wanted(options) {
            Ok(wanted) => listeners.keep(&wanted),
            // The trial has read the same options.
            Err(e) => {
                error!("still serving the old addresses: {e}");
                Vec::new()
            }
        };
        let mut refused = RefusedOptions::default();
        for listener in &mut listeners.all {
            if let Err(e) = listener.apply(&listeners.settings, &mut refused) {
                error!("the backlog of {} could not be set: {e}", listener.name);
            }
        }
        refused.log();
        (listeners, closed)
    }

    /// Undoes what `--free-port` has set, which is meant for a daemon that ends: a close would
    /// reset its connection, and lose answers that the client has not read. Returns whether it had
    /// set it.
    pub(crate) fn end_linger(&mut self) -> bool {
        let mut was_set = false;
        for listener in self.all.iter_mut().filter(|it| it.purpose() != Purpose::Control) {
            if sockopt::socket_linger(&listener.socket) != Ok(None) {
                listener.end_linger(&self.settings);
                was_set = true;
            }
        }
        was_set
    }

    /// The listeners of a daemon that listens nowhere.
    pub(crate) fn none(options: &Options) -> Self {
        Self::new(SocketSettings::new(options), Vec::new())
    }

    fn new(settings: SocketSettings, all: Vec<Listener>) -> Self {
        Listeners {
            settings,
            all,
            last_number: 0,
            acceptor: Acceptor::default(),
            drain: Drain::default(),
            free_port: None,
        }
    }

    /// What a hot restart carries over, including those `opened` for the new image.
    pub(crate) fn state(&self, opened: &[Listener]) -> ListenersState {
        ListenersState {
            listeners: self.all.iter().chain(opened).map(Listener::state).collect(),
            draining: self.drain.is_on(),
            lost: self.drain.lost.clone(),
            free_port: self.free_port,
            own_descriptors: self.acceptor.own_descriptors().try_into().unwrap_or(u16::MAX),
        }
    }

    /// Counts the descriptors of the daemon itself. To be called once it has opened all of them,
    /// and before anybody connects.
    pub(crate) fn count_own_descriptors(&mut self) {
        let all = descriptors::count().map(|all| all.saturating_sub(self.all.len()));
        self.acceptor = Acceptor::new(all.unwrap_or_else(|| usual_descriptors().into()));
    }

    /// Descriptors that are no connections'.
    pub(crate) fn descriptors(&self) -> usize {
        self.acceptor.own_descriptors() + self.all.len()
    }

    /// Makes the loop watch all of them.
    pub(crate) fn watch(&mut self, registry: &Registry) -> io::Result<()> {
        for listener in &mut self.all {
            self.last_number += 1;
            listener.number = self.last_number;
            watch(registry, &listener.socket, Source::Listener(listener.number))?;
        }
        Ok(())
    }

    /// The addresses that clients connect to.
    pub(crate) fn names(&self) -> String {
        self.names_for(Purpose::Clients).unwrap_or_else(|| "nothing".to_owned())
    }

    /// Logs the addresses of HTTP, if there are any.
    pub(crate) fn log_http(&self) {
        if let Some(names) = self.names_for(Purpose::Http) {
            info!("HTTP on {names}");
        }
    }

    fn names_for(&self, purpose: Purpose) -> Option<String> {
        let serves = |l: &&Listener| l.purpose() == purpose && l.stage == ListenerStage::Open;
        let names: Vec<&str> = self.all.iter().filter(serves).map(|l| l.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Removes the control socket's file.
    pub(crate) fn remove_files(&self) {
        self.all.iter().for_each(Listener::remove_file);
    }

    fn record_free_port(&mut self) {
        for listener in &self.all {
            if let Origin::Tcp { wanted, address } = listener.origin {
                if wanted.purpose == Purpose::Clients && wanted.address.port() == 0 {
                    self.free_port = Some(address.port());
                }
            }
        }
    }
}

/// The steps of a turn.
impl Listeners {
    /// Begins a turn. Events of it follow.
    pub(crate) fn begin_turn(&mut self, now: Time) {
        self.acceptor.begin_turn(&mut self.all, now);
    }

    /// Notes an event of the listener with this number.
    pub(crate) fn record_ready(&mut self, number: usize) {
        if let Some(listener) = self.all.iter_mut().find(|l| l.number == number) {
            listener.record_ready();
        }
    }

    /// Notes that a connection or a listener was closed, which freed descriptors.
    pub(crate) fn record_closed(&mut self) {
        self.all.iter_mut().for_each(Listener::end_pause);
    }

    /// Whether the next turn should come at once.
    pub(crate) fn has_work(&self, has_room_for_http: bool) -> bool {
        self.all.iter().any(|listener| listener.is_ready(has_room_for_http))
    }

    /// Accepts the next connection of this turn, while `open` clients are served.
    /// `None` if there is none, or none that can be served now.
    pub(crate) fn accept(&mut self, open: usize, has_room_for_http: bool) -> Option<NewConnection> {
        self.acceptor.next(&mut self.all, open, has_room_for_http)
    }

    /// How many of the `held` newcomers have descriptors beside `open` clients, if the next one is
    /// still to be accepted.
    pub(crate) fn descriptors_for_newcomers(&mut self, held: usize, open: usize) -> usize {
        self.acceptor.descriptors_beside(&self.all, held, open + 1)
    }

    /// How often accepting has failed since the last call.
    pub(crate) fn take_errors(&mut self) -> u64 {
        self.acceptor.take_errors()
    }
}

/// Opening and closing.
impl Listeners {
    /// Opens wanted listeners that are missing. They are not accepted from yet.
    ///
    /// # Errors
    /// All that could not be opened. Nothing has changed then.
    pub(crate) fn open_missing(&self, wanted: &[Wanted]) -> Result<Vec<Listener>, ListenError> {
        // Whatever is refused was refused, and logged, when the daemon started; after a hot
        // restart it is logged again.
        self.open_those(self.to_be_open(wanted), wanted, &mut RefusedOptions::default())
    }

    /// Opens those `to_open` that are missing, if all that are `wanted` go with one another and
    /// with those that are open.
    fn open_those(
        &self,
        to_open: Vec<Wanted>,
        wanted: &[Wanted],
        refused: &mut RefusedOptions,
    ) -> Result<Vec<Listener>, ListenError> {
        let port = self.clients_port();
        let settled = self.applicable(wanted).into_iter().map(|one| one.on_port(port.unwrap_or(0)));
        check_purposes(&settled.collect::<Vec<_>>())?;
        self.check_lifelong(wanted)?;
        open_missing(&to_open, &self.all, port, &self.settings, refused)
    }

    /// A listener has one purpose for life, and the control socket one group: no client in its
    /// queue may become an operator, and no operator lose the right to be one.
    fn check_lifelong(&self, wanted: &[Wanted]) -> Result<(), ListenError> {
        let restart = "that needs a restart, which loses the locks";
        for one in wanted {
            let others = self.all.iter().filter(|it| it.purpose() != one.purpose());
            let mut taken = others.filter_map(Listener::tcp_address);
            let why = match one.tcp_address() {
                Some(address) if taken.any(|theirs| overlap(theirs, address)) => {
                    "that address is open for another purpose"
                }
                None if self.all.iter().any(|it| it.has_other_group(one)) => {
                    "--control-group can't change while it is open"
                }
                _ => continue,
            };
            let why = io::Error::other(format!("{why}: {restart}"));
            return Err(ListenError::Contradiction(one.failed(why).to_string()));
        }
        Ok(())
    }

    /// The port that `-p 0` means now.
    fn clients_port(&self) -> Option<u16> {
        let clients = self.all.iter().filter(|listener| listener.purpose() == Purpose::Clients);
        let port = clients.filter_map(Listener::tcp_address).map(|address| address.port()).next();
        port.or(self.free_port)
    }

    fn to_be_open(&self, wanted: &[Wanted]) -> Vec<Wanted> {
        let wanted = self.applicable(wanted);
        let is_open = |w: &Wanted| !self.drain.is_on() || w.purpose() != Purpose::Clients;
        wanted.into_iter().filter(is_open).collect()
    }

    /// Drops the addresses from `wanted` if sockets are inherited.
    fn applicable(&self, wanted: &[Wanted]) -> Vec<Wanted> {
        let inherits = self.all.iter().any(Listener::is_inherited) || !self.drain.lost.is_empty();
        wanted.iter().filter(|wanted| !(inherits && wanted.gives_way())).cloned().collect()
    }

    /// Keeps wanted listeners and begins to close the rest. Returns which of them are unwanted,
    /// for operators.
    fn keep(&mut self, wanted: &[Wanted]) -> Vec<String> {
        let mut closed = Vec::new();
        let wanted = self.applicable(wanted);
        let mut left = wanted.clone();
        // The kernel prefers the socket of an exact address to a wildcard: connections
        // keep arriving there, and closing it would reset some of them.
        let is_covered = |listener: &Listener| {
            let purpose = listener.purpose();
            let is_served = |address| wanted.iter().any(|w| w.covers(address, purpose));
            listener.tcp_address().is_some_and(is_served)
        };
        // Newest first: if the control socket's file vanished, two listeners match.
        for listener in self.all.iter_mut().rev() {
            let n = left.iter().position(|wanted| listener.is(wanted));
            let now = n.map(|n| left.remove(n));
            let stays = listener.is_inherited() || now.is_some() || is_covered(listener);
            let is_for_clients = listener.purpose() == Purpose::Clients;
            if !stays && listener.stage == ListenerStage::Open {
                closed.insert(0, listener.described());
            }
            if !stays || self.drain.is_on() && is_for_clients {
                listener.begin_to_close();
                continue;
            }
            if let Some(now) = now {
                listener.record_wanted(now);
            }
            listener.open(&self.settings);
        }
        closed
    }

    /// The control socket that these new options would close.
    pub(crate) fn control_socket_lost(&self, wanted: &[Wanted]) -> Option<&str> {
        let mut ours = self.all.iter().filter_map(Listener::control);
        let stays = wanted.iter().any(|wanted| wanted.purpose() == Purpose::Control);
        ours.next().filter(|_| !stays).map(|(wanted, _)| wanted.path.as_str())
    }

    /// Closes the TCP listeners: a client that is disconnected now asks another daemon.
    pub(crate) fn close_tcp(&mut self) {
        self.all.retain(|listener| listener.purpose() == Purpose::Control);
    }

    /// Closes finished listeners.
    pub(crate) fn close_finished(&mut self, registry: &Registry) {
        if !self.all.iter().any(|listener| listener.stage == ListenerStage::Finished) {
            return;
        }
        let (finished, all) = std::mem::take(&mut self.all)
            .into_iter()
            .partition::<Vec<_>, _>(|listener| listener.stage == ListenerStage::Finished);
        self.all = all;
        for listener in finished {
            // If another process holds the socket too, closing the daemon's copy does
            // not stop its events.
            let fd = listener.socket.as_raw_fd();
            if let Err(e) = registry.deregister(&mut SourceFd(&fd)) {
                debug!("{} was not watched: {e}", listener.name);
            }
            let name = listener.name.clone();
            if listener.is_inherited() {
                listener.set_backlog(self.settings.backlog);
                drop(listener);
                warn!(
                    "no longer listening on {name}, which another process has passed: if one, such \
                     as systemd, still holds it, new clients wait there until this daemon ends; under \
                     systemd they then start a new one; to refuse them, run \
                     `systemctl stop poolcounter.socket`"
                );
                self.drain.lost.push(name);
            } else if listener.can_be_found() {
                listener.remove_file();
                drop(listener);
                info!("no longer listening on {name}");
            } else {
                info!("closed the socket of {name}, whose file was gone");
            }
        }
        self.record_closed();
    }
}

impl Listeners {
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let drain_log = self.drain.next_deadline();
        self.all.iter().filter_map(Listener::paused_until).chain(drain_log).min()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_on()
    }

    /// Whether clients may wait in the queues of listeners that close.
    pub(crate) fn is_closing(&self) -> bool {
        self.all.iter().any(|listener| listener.stage != ListenerStage::Open)
    }

    /// Logs during a drain, every ten seconds, how many `clients` are left.
    pub(crate) fn log_drain(&mut self, clients: usize, now: Time) {
        self.drain.log(clients, now);
    }

    /// Stops taking new clients, except those in the queues.
    pub(crate) fn drain(&mut self) {
        self.drain.begin();
        let clients = self.all.iter_mut().filter(|l| l.purpose() == Purpose::Clients);
        clients.for_each(Listener::begin_to_close);
    }

    /// Takes new clients again, on the addresses of the current `options`.
    ///
    /// # Errors
    /// Why it can't; the drain continues then.
    pub(crate) fn undrain(
        &mut self,
        options: &Options,
        registry: &Registry,
    ) -> Result<(), ListenError> {
        self.drain.check_undoable()?;
        let wanted = wanted(options)?;
        let to_open = self.applicable(&wanted);
        let mut opened = self.open_those(to_open, &wanted, &mut RefusedOptions::default())?;
        for listener in &mut opened {
            self.last_number += 1;
            listener.number = self.last_number;
            if let Err(e) = watch(registry, &listener.socket, Source::Listener(listener.number)) {
                let why = ListenError::NotWatched(listener.name.clone(), e);
                abandon(opened);
                return Err(why);
            }
        }
        self.drain.end();
        self.all.append(&mut opened);
        self.record_free_port();
        self.keep(&wanted);
        Ok(())
    }
}
