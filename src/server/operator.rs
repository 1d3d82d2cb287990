//! What operators ask for, by signal or control socket: stop, hot restart, drain.

use super::control::{Control, HELP, Request};
use super::listener::Settings;
use super::options::Options;
use super::restart::{self, Trial};
use super::service_manager::STATUS_INTERVAL_NS;
use super::snapshot::{ControlState, Snapshot};
use super::unix_socket;
use super::{
    CONTROL_LISTENER, FIRST_CONTROL, FIRST_LISTENER, SIGNALS, Server, StartError, TRIAL, clock,
    sys, watch,
};
use crate::engine::Time;
use log::{error, info};
use mio::unix::SourceFd;
use mio::{Events, Interest, Registry, Token};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The operator's side of the daemon.
pub(super) struct Operator {
    signals: OwnedFd,
    pub(super) control: Option<Control>,
    /// Where the binary for a hot restart is.
    program: PathBuf,
    /// A hot restart in its first phase, and the control connection that waits
    /// to hear of it.
    restart: Option<(Trial, Option<usize>)>,
    next_drain_log: Time,
    pub(super) stopping: bool,
}

impl Operator {
    pub(super) fn new(signals: OwnedFd) -> io::Result<Self> {
        Ok(Operator {
            signals,
            control: None,
            program: restart::program_path()?,
            restart: None,
            next_drain_log: clock::now(),
            stopping: false,
        })
    }

    /// Opens the control socket, if one is asked for.
    pub(super) fn open_control(&mut self, options: &Options) -> Result<(), StartError> {
        let Some(path) = &options.control else {
            return Ok(());
        };
        let bound = Control::bind(path, options.control_group.as_deref());
        self.control = Some(bound.map_err(|e| StartError::Control(path.clone(), e))?);
        Ok(())
    }

    /// Goes on with the control socket of the image before us, if it had one and
    /// we are to have it at the same path.
    pub(super) fn resume_control(
        &mut self,
        old: Option<(OwnedFd, String)>,
        options: &Options,
    ) -> Result<(), StartError> {
        let Some((socket, path)) = old else {
            return self.open_control(options);
        };
        if options.control.as_ref() != Some(&path) {
            unix_socket::remove(&path);
            return self.open_control(options);
        }
        let control = Control::adopt(socket, path.clone());
        let admitted = control.admit(options.control_group.as_deref());
        self.control = Some(control);
        admitted.map_err(|e| StartError::Control(path, e))
    }

    pub(super) fn watch(&self, registry: &Registry) -> io::Result<()> {
        watch(registry, &self.signals, SIGNALS)?;
        if let Some(control) = &self.control {
            watch(registry, &control.socket, CONTROL_LISTENER)?;
        }
        Ok(())
    }

    fn trial_deadline(&self) -> Option<Time> {
        self.restart.as_ref().map(|(trial, _)| trial.deadline)
    }

    /// The last thing before the end.
    pub(super) fn stop(self) {
        if let Some((trial, _)) = self.restart {
            trial.abandon();
        }
        if let Some(control) = self.control {
            unix_socket::remove(&control.path);
        }
    }

    /// A control connection has been answered, unless it waits for a restart.
    fn leave(&mut self, number: usize) {
        let waits = self.restart.as_ref().is_some_and(|(_, who)| *who == Some(number));
        if let Some(control) = self.control.as_mut().filter(|_| !waits) {
            control.leave(number);
        }
    }

    fn answer(&mut self, requester: Option<usize>, answer: &str) {
        if let (Some(control), Some(number)) = (&mut self.control, requester) {
            control.answer(number, answer);
        }
    }
}

impl Server {
    /// When [`Server::serve_operator`] has something to do, whatever happens.
    pub(super) fn next_operator_deadline(&self) -> Option<Time> {
        let drain_log = self.acceptor.is_draining().then_some(self.operator.next_drain_log);
        self.operator.trial_deadline().into_iter().chain(drain_log).min()
    }

    /// Does what was asked for since the last turn. Last in a turn, so that a hot
    /// restart finds nothing half done.
    pub(super) fn serve_operator(&mut self, events: &Events, now: Time) {
        for event in events.iter() {
            match event.token() {
                SIGNALS => self.handle_signals(),
                TRIAL => self.finish_restart(),
                CONTROL_LISTENER => {
                    if let Some(control) = &mut self.operator.control {
                        control.accept(self.poll.registry(), FIRST_CONTROL);
                    }
                }
                token if (FIRST_CONTROL..SIGNALS.0).contains(&token.0) => {
                    self.handle_requests(token.0 - FIRST_CONTROL);
                }
                _ => {}
            }
        }
        if self.operator.trial_deadline().is_some_and(|deadline| deadline <= now) {
            self.finish_restart();
        }
        if self.acceptor.is_draining() {
            self.go_on_draining(now);
        }
    }

    fn handle_signals(&mut self) {
        while let Some(signal) = sys::next_signal(&self.operator.signals) {
            match signal {
                sys::SIGTERM | sys::SIGINT => {
                    info!("told to stop; {} connections are closed", self.connections.len());
                    self.operator.stopping = true;
                }
                sys::SIGUSR1 | sys::SIGHUP => self.begin_restart(None, None),
                sys::SIGUSR2 if self.acceptor.is_draining() => {
                    // What went wrong is logged.
                    let _ = self.undrain();
                }
                sys::SIGUSR2 => self.drain(),
                _ => {}
            }
        }
    }

    fn handle_requests(&mut self, number: usize) {
        let Some(control) = &mut self.operator.control else {
            return;
        };
        for request in control.read(number) {
            let result = match request {
                Ok(Request::Restart(arguments)) => {
                    self.begin_restart(arguments, Some(number));
                    continue;
                }
                Ok(Request::Drain) => {
                    self.drain();
                    Ok(format!("OK draining, {} connections left", self.connections.len()))
                }
                Ok(Request::Undrain) => {
                    self.undrain().map(|()| format!("OK listening on {}", self.acceptor.names()))
                }
                Ok(Request::Help) => Ok(HELP.to_owned()),
                Err(why) => Err(why),
            };
            let answer = result.unwrap_or_else(|why| format!("ERROR {why}"));
            self.operator.answer(Some(number), &answer);
        }
        self.operator.leave(number);
    }

    /// The first phase of a hot restart: asks the new binary.
    fn begin_restart(&mut self, arguments: Option<Vec<OsString>>, requester: Option<usize>) {
        if self.operator.restart.is_some() {
            info!("a hot restart is under way already");
            self.operator.answer(requester, "ERROR a hot restart is under way already");
            return;
        }
        let arguments = arguments.unwrap_or_else(|| std::env::args_os().skip(1).collect());
        info!("asking {} whether it can go on from here", self.operator.program.display());
        let trial = Trial::start(&self.operator.program, arguments, &self.snapshot(None));
        let watched = trial.and_then(|trial| {
            let pidfd = trial.pidfd.as_raw_fd();
            let registry = self.poll.registry();
            match registry.register(&mut SourceFd(&pidfd), TRIAL, Interest::READABLE) {
                Ok(()) => Ok(trial),
                Err(e) => {
                    trial.abandon();
                    Err(e)
                }
            }
        });
        match watched {
            Ok(trial) => self.operator.restart = Some((trial, requester)),
            Err(e) => {
                let program = self.operator.program.display();
                self.refuse_restart(&format!("{program} can't be asked: {e}"), requester);
            }
        }
    }

    /// The second phase, if the new binary can go on. Returns only if not.
    fn finish_restart(&mut self) {
        // A new image would know nothing of a signal that was read already.
        if self.operator.stopping {
            return;
        }
        let Some((trial, requester)) = self.operator.restart.take() else {
            return;
        };
        let why = match trial.verdict(&self.operator.program) {
            Ok(arguments) => {
                let snapshot = self.snapshot(requester);
                let program = &self.operator.program;
                restart::execute(program, &arguments, &snapshot, &self.descriptors(requester))
            }
            Err(why) => why,
        };
        self.refuse_restart(&why, requester);
        if let Some(number) = requester {
            self.operator.leave(number);
        }
    }

    fn refuse_restart(&mut self, why: &str, requester: Option<usize>) {
        error!("hot restart refused, serving on as before: {why}");
        self.operator.answer(requester, &format!("ERROR refused: {why}"));
    }

    /// Everything that the new image needs to know.
    fn snapshot(&self, requester: Option<usize>) -> Snapshot {
        let control = self.operator.control.as_ref();
        let connections = self.connections.iter();
        Snapshot {
            engine: self.engine.image(),
            taken: clock::now(),
            last_serial: self.last_serial,
            draining: self.acceptor.is_draining(),
            listeners: self.acceptor.listeners().iter().map(|l| l.state()).collect(),
            connections: connections.map(|(slot, c)| c.state(slot as u32)).collect(),
            epoll: self.poll.as_raw_fd(),
            control: control.map(|control| ControlState {
                fd: control.socket.as_raw_fd(),
                path: control.path.clone(),
            }),
            requester: self.requester_descriptor(requester).map(|fd| fd.as_raw_fd()),
        }
    }

    /// All that goes along: the same that [`Server::snapshot`] names.
    fn descriptors(&self, requester: Option<usize>) -> Vec<BorrowedFd<'_>> {
        let listeners = self.acceptor.listeners().iter().map(|l| l.socket.as_fd());
        let connections = self.connections.iter().map(|(_, c)| c.socket.as_fd());
        let control = self.operator.control.iter().map(|control| control.socket.as_fd());
        let requester = self.requester_descriptor(requester);
        let epoll = sys::epoll_of(&self.poll);
        listeners.chain(connections).chain(control).chain(requester).chain([epoll]).collect()
    }

    fn requester_descriptor(&self, requester: Option<usize>) -> Option<BorrowedFd<'_>> {
        self.operator.control.as_ref()?.descriptor(requester?)
    }

    /// No new clients; those that the kernel has accepted for us still count.
    fn drain(&mut self) {
        if self.acceptor.is_draining() {
            return;
        }
        self.acceptor.start_batch(usize::MAX);
        self.acceptor.note_all_ready();
        self.accept_batch();
        self.acceptor.drain();
        info!("draining: no new clients; {} are left", self.connections.len());
        self.operator.next_drain_log = clock::now().plus_ns(STATUS_INTERVAL_NS);
    }

    fn undrain(&mut self) -> Result<(), String> {
        if !self.acceptor.is_draining() {
            return Ok(());
        }
        let registry = self.poll.registry();
        let watch = |n: usize, socket: &OwnedFd| {
            let token = Token(FIRST_LISTENER + n);
            registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)
        };
        let result = self.acceptor.undrain(&Settings::new(&self.options), watch);
        match &result {
            Ok(()) => info!("draining no more: listening on {}", self.acceptor.names()),
            Err(why) => error!("{why}"),
        }
        result
    }

    fn go_on_draining(&mut self, now: Time) {
        if self.connections.is_empty() {
            info!("drained: the last client has left");
            self.operator.stopping = true;
        } else if now >= self.operator.next_drain_log {
            info!("draining: {} clients are left", self.connections.len());
            self.operator.next_drain_log = now.plus_ns(STATUS_INTERVAL_NS);
        }
    }
}
