//! Operators' orders, by signal or on the control socket.

use super::control::{Control, ControlClient, Request};
use super::hangup;
use super::socket::Socket;
use super::sys;
use super::tokens::{Source, watch};
use super::world::fd::{BorrowedFd, OwnedFd};
use super::world::mio::Registry;
use std::io;

/// The sources of orders.
pub(super) struct Operator {
    signals: OwnedFd,
    control: Control,
    /// Who waits for the end of the drain.
    waiting: Vec<ControlClient>,
    /// Sources that had an event in this turn.
    ready: Vec<Source>,
}

/// An order to the daemon, obeyed between two turns of the loop.
#[derive(Debug)]
pub(super) enum Order {
    /// End at once.
    Stop(&'static str),
    /// Finish a hot restart: the trial's child has ended.
    FinishRestart,
    /// Hot restart with the current options.
    Restart,
    /// Drain.
    Drain,
    /// Drain, or take new clients again.
    ToggleDrain,
    /// Answer a request on the control socket; an `Err` says why a line is not one.
    Asked(ControlClient, Result<Request, String>),
    /// One who has asked says no more, and may have left.
    Ended(ControlClient),
}

impl Operator {
    pub(super) fn new(signals: OwnedFd) -> Self {
        Operator { signals, control: Control::new(), waiting: Vec::new(), ready: Vec::new() }
    }

    /// Makes the loop watch the signals.
    ///
    /// # Errors
    /// The error of epoll_ctl(2).
    pub(super) fn watch(&self, registry: &Registry) -> io::Result<()> {
        watch(registry, &self.signals, Source::Signals)
    }

    /// Serves a new control connection.
    pub(super) fn admit(&mut self, socket: Socket, registry: &Registry) {
        self.control.admit(socket, registry);
    }

    /// Notes an event of `source`.
    pub(super) fn note_ready(&mut self, source: Source) {
        self.ready.push(source);
    }

    /// Returns this turn's orders. Signals come first: a hot restart must not lose an
    /// order to stop.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        let ready = std::mem::take(&mut self.ready);
        let mut orders = Vec::new();
        if ready.contains(&Source::Signals) {
            orders.extend(
                std::iter::from_fn(|| sys::next_signal(&self.signals)).filter_map(order_of),
            );
        }
        for source in ready {
            match source {
                Source::Operator(number) => {
                    let asked = self.control.read(number).into_iter();
                    orders.extend(asked.map(|(client, request)| Order::Asked(client, request)));
                    orders.extend(self.control.ended(number).map(Order::Ended));
                }
                Source::Trial => orders.push(Order::FinishRestart),
                Source::Signals | Source::Client(_) | Source::Listener(_) | Source::Http(_) => {}
            }
        }
        orders
    }

    /// Answers a request, if its client is still connected.
    pub(super) fn answer(&mut self, client: ControlClient, answer: &str) {
        self.control.answer(client, answer);
    }

    /// Answers `client` when the drain is over.
    pub(super) fn wait_for_end(&mut self, client: ControlClient) {
        self.waiting.push(client);
    }

    /// Answers all who wait for the end of the drain.
    pub(super) fn tell_waiting(&mut self, answer: &str) {
        for client in std::mem::take(&mut self.waiting) {
            self.answer(client, answer);
        }
    }

    /// A hot restart comes before the answers to `asked` and to those who wait.
    pub(super) fn put_off(&mut self, mut asked: Vec<ControlClient>) {
        asked.append(&mut self.waiting);
        for client in asked {
            self.answer(client, "ERROR a hot restart came first; ask again");
        }
    }

    /// Lets `client` wait no longer: it would keep its place until the end of the drain.
    pub(super) fn note_ended(&mut self, client: ControlClient) {
        let is_it = |waiting: &ControlClient| *waiting == client;
        let asked = self.waiting.iter().filter(|waiting| is_it(waiting)).count();
        self.waiting.retain(|waiting| !is_it(waiting));
        (0..asked).for_each(|_| self.answer(client, "ERROR still draining"));
    }

    /// Answers a request for statistics with a text of whole lines.
    pub(super) fn report(&mut self, client: ControlClient, text: Vec<u8>) {
        self.control.send(client, text);
    }

    /// Whether `client` still waits for an answer.
    pub(super) fn waits(&self, client: ControlClient) -> bool {
        self.control.waits(client)
    }

    /// The descriptor of `client`, while it is connected.
    pub(super) fn descriptor(&self, client: ControlClient) -> Option<BorrowedFd<'_>> {
        self.control.descriptor(client)
    }
}

fn order_of(signal: sys::Signal) -> Option<Order> {
    match signal.number {
        sys::SIGHUP if hangup::is_meant_by(&signal) => Some(Order::Stop("the terminal hung up")),
        sys::SIGTERM | sys::SIGINT => Some(Order::Stop("told to stop")),
        sys::SIGUSR1 | sys::SIGHUP => Some(Order::Restart),
        sys::SIGQUIT => Some(Order::Drain),
        sys::SIGUSR2 => Some(Order::ToggleDrain),
        _ => None,
    }
}
