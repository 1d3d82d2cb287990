//! The new image's side of a hot restart: goes on from a snapshot.

use super::connection::{Connection, Life};
use super::listener::{self, Listener, Settings};
use super::operator::Operator;
use super::options::Options;
use super::snapshot::{ConnectionState, ListenerState, Snapshot, SnapshotError};
use super::sys::{self, inherited_descriptor};
use super::unix_socket;
use super::{Server, StartError, VERSION, clock};
use crate::engine::image::Image;
use crate::engine::{ClientId, Engine};
use log::{error, info, warn};
use mio::Poll;
use rustix::net::{SendFlags, send};
use slab::Slab;
use std::hash::RandomState;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

impl Server {
    /// Takes over all that the old image of this process left. Only if that is
    /// impossible it fails, and all is lost; the trial has shown that it is not.
    pub(super) fn resume(
        options: Options,
        mut operator: Operator,
        snapshot: Snapshot,
    ) -> Result<Self, StartError> {
        let settings = Settings::new(&options);
        let draining = snapshot.draining;
        let mut listeners = resume_listeners(&snapshot, &settings)?;
        let poll = Poll::new()?;
        sys::take_over_epoll(&poll, inherited_descriptor(snapshot.epoll)?)?;
        let unread = snapshot.connections.iter().filter(|connection| connection.unread);
        let unread = unread.map(|c| ClientId { slot: c.slot, serial: c.serial }).collect();
        let (connections, lost) = resume_connections(snapshot.connections);
        let engine = resume_engine(snapshot.engine, &lost)?;
        let mut problems = Vec::new();
        let changed = match draining {
            true => Ok(Vec::new()),
            false => listener::change_addresses(
                &mut listeners,
                options.listen.as_deref(),
                options.port,
                &settings,
            ),
        };
        let closed = changed.unwrap_or_else(|e| {
            problems.push(format!("serving on with the old addresses: {e}"));
            Vec::new()
        });
        let control =
            snapshot.control.map(|c| io::Result::Ok((inherited_descriptor(c.fd)?, c.path)));
        if let Err(e) = operator.resume_control(control.transpose()?, &options) {
            // Without it the daemon still serves clients.
            problems.push(e.to_string());
        }
        let mut server =
            Self::assemble(options, poll, operator, listeners, connections, engine, draining)?;
        server.unfinished = unread;
        server.last_serial = snapshot.last_serial;
        server.accept_last_of(closed);
        server.take_up_unsent();
        server.end_turn();
        server.log_resumed(clock::now().ns_since(snapshot.taken) / 1_000);
        server.service_manager.ready();
        report(&problems, snapshot.requester)?;
        Ok(server)
    }

    /// Whoever is in the backlog of a listener that is closed is served still.
    fn accept_last_of(&mut self, closed: Vec<Listener>) {
        for listener in closed {
            info!("no longer listening on {}", listener.name);
            if let Some(path) = listener.unix_path() {
                unix_socket::remove(path);
            }
            while let listener::Accepted::Connection(socket) = listener.accept() {
                self.admit(socket);
            }
        }
    }

    /// Output that was stuck is tried again.
    fn take_up_unsent(&mut self) {
        for (slot, connection) in &mut self.connections {
            if !connection.owes_nothing() || connection.life == Life::Finishing {
                connection.is_owed = true;
                self.owed.push(ClientId { slot: slot as u32, serial: connection.serial });
            }
        }
    }

    fn log_resumed(&self, pause_us: u64) {
        let counters = &self.engine.counters;
        info!(
            "poolcounterd {VERSION} went on after a pause of {pause_us} µs with {} connections, \
             {} locks and {} waits; listening on {}",
            self.connections.len(),
            counters.processing_workers,
            counters.waiting_workers,
            self.acceptor.names(),
        );
    }
}

/// The listeners that the old image had.
fn resume_listeners(snapshot: &Snapshot, settings: &Settings) -> io::Result<Vec<Listener>> {
    let resume = |state: &ListenerState| {
        let socket = inherited_descriptor(state.fd)?;
        Listener::resume(socket, state, snapshot.draining, settings)
    };
    snapshot.listeners.iter().map(resume).collect()
}

/// The connections, and the clients of those that could not be had.
fn resume_connections(states: Vec<ConnectionState>) -> (Slab<Connection>, Vec<ClientId>) {
    let mut connections = Vec::with_capacity(states.len());
    let mut lost = Vec::new();
    for state in states {
        let (slot, serial) = (state.slot, state.serial);
        match inherited_descriptor(state.fd) {
            Ok(socket) => connections.push((slot as usize, Connection::resume(socket, state))),
            Err(e) => {
                error!("#{serial} was lost in the hot restart: {e}");
                lost.push(ClientId { slot, serial });
            }
        }
    }
    (connections.into_iter().collect(), lost)
}

/// The engine, without the clients that were `lost`.
fn resume_engine(image: Image, lost: &[ClientId]) -> io::Result<Engine> {
    let now = clock::now();
    let mut engine = Engine::from_image(image, RandomState::new(), now)
        .map_err(|e| io::Error::other(SnapshotError::from(e).to_string()))?;
    for &client in lost {
        engine.disconnect(client, now);
    }
    Ok(engine)
}

/// Tells the log, and whoever asked the old image for the restart.
fn report(problems: &[String], requester: Option<RawFd>) -> io::Result<()> {
    for problem in problems {
        error!("after the hot restart: {problem}");
    }
    if let Some(fd) = requester {
        answer_requester(inherited_descriptor(fd)?, problems);
    }
    Ok(())
}

fn answer_requester(socket: OwnedFd, problems: &[String]) {
    let answer = match problems {
        [] => format!("OK restarted, poolcounterd {VERSION}\n"),
        _ => format!("ERROR restarted, but {}\n", problems.join("; ")),
    };
    if let Err(e) = send(&socket, answer.as_bytes(), SendFlags::NOSIGNAL) {
        warn!("whoever asked for the hot restart is gone: {e}");
    }
}
