//! Turns events of signals and of operators' connections into orders; operators that wait for
//! the end of a drain.

use crate::operator::control_socket::{
    ControlConnectionState, ControlSocket, RefusedOrder, Request, parse,
};
use crate::operator::run_time_settings::RunTimeSettings;
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::mio::Registry;
use crate::platform::sys;
use crate::platform::terminal::is_meant_by;
use crate::sockets::ids::ControlClient;
use crate::sockets::slots::{Source, watch};
use engine::Time;
use protocol::answers::STILL_DRAINING;
use std::io;

/// The sources of orders, and what orders have set.
pub(crate) struct Operators {
    signals: OwnedFd,
    pub(crate) control: ControlSocket,
    pub(crate) settings: RunTimeSettings,
    /// The operators that wait for the end of the drain.
    waiting: Vec<ControlClient>,
    /// Sources that had an event in this turn, or may have more requests.
    ready: Vec<Source>,
    /// Orders to the old image that it has not carried out.
    resumed: Vec<Order>,
}

/// An order to the daemon, executed last in a turn of the loop.
#[derive(Debug)]
pub(crate) enum Order {
    /// End at once.
    Stop(&'static str),
    /// Hot restart with the current options.
    Restart,
    /// Drain.
    Drain,
    /// Drain, or take new clients again.
    ToggleDrain,
    /// Answer a request on the control socket; an `Err` contains why a line is invalid.
    Asked(ControlClient, Result<Request, RefusedOrder>),
    /// Release a connection on the control socket whose input has ended.
    Ended(ControlClient),
}

impl Operators {
    pub(crate) fn new(signals: OwnedFd, settings: RunTimeSettings) -> Self {
        Operators {
            signals,
            control: ControlSocket::new(),
            settings,
            waiting: Vec::new(),
            ready: Vec::new(),
            resumed: Vec::new(),
        }
    }

    /// Orders another hot restart, for which a signal to the old image has asked.
    pub(crate) fn restart_again(&mut self) {
        self.resumed.insert(0, Order::Restart);
    }

    /// Continues with the old image's connections; `requester` is the one in whose slot the
    /// operator waits for this restart. Other requests that are not answered are served again.
    pub(crate) fn resume(
        signals: OwnedFd,
        settings: RunTimeSettings,
        connections: Vec<ControlConnectionState>,
        requester: Option<ControlClient>,
    ) -> Self {
        let mut operators = Operators::new(signals, settings);
        operators.control = ControlSocket::resume(connections);
        for (client, unanswered) in operators.control.unanswered() {
            operators.ready.push(Source::Operator(client.slot as usize));
            let line = unanswered.filter(|_| Some(client) != requester);
            operators.resumed.extend(line.map(|line| Order::Asked(client, parse(line))));
        }
        operators
    }

    /// Makes the loop watch the signals.
    pub(crate) fn watch(&self, registry: &Registry) -> io::Result<()> {
        watch(registry, &self.signals, Source::Signals)
    }

    /// Notes an event of `source`.
    pub(crate) fn record_event(&mut self, source: Source) {
        if !self.ready.contains(&source) {
            self.ready.push(source);
        }
    }

    /// When the next turn should start: at once, or when something happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let has_orders = !self.resumed.is_empty() || !self.ready.is_empty();
        if has_orders { Some(Time::default()) } else { self.control.next_deadline() }
    }

    /// Returns this turn's orders. Signals come first: a hot restart must not lose an
    /// order to stop, and no other is read then.
    pub(crate) fn take_orders(&mut self, now: Time) -> Vec<Order> {
        self.control.close_unread(now);
        let ready = std::mem::take(&mut self.ready);
        let mut orders = Vec::new();
        if ready.contains(&Source::Signals) {
            orders.extend(
                std::iter::from_fn(|| sys::next_signal(&self.signals)).filter_map(order_of),
            );
        }
        if orders.iter().any(|order| matches!(order, Order::Stop(_))) {
            return orders;
        }
        orders.append(&mut self.resumed);
        for source in ready {
            if let Source::Operator(number) = source {
                if let Some((client, request)) = self.control.read(number) {
                    orders.push(Order::Asked(client, request));
                    // More may follow.
                    self.record_event(source);
                }
                orders.extend(self.control.ended(number).map(Order::Ended));
            }
        }
        orders
    }

    /// Answers a request, if its client is still connected.
    pub(crate) fn answer(&mut self, client: ControlClient, answer: &str) {
        self.report(client, format!("{answer}\n").into_bytes());
    }

    /// Answers `client` when the drain is over.
    pub(crate) fn wait_for_end(&mut self, client: ControlClient) {
        let control = &self.control;
        self.waiting.retain(|waiting| control.awaits_answer(*waiting));
        self.waiting.push(client);
    }

    /// Answers all operators that wait for the end of the drain.
    pub(crate) fn answer_waiting(&mut self, answer: &str) {
        for client in std::mem::take(&mut self.waiting) {
            self.answer(client, answer);
        }
    }

    /// Ends the wait of `client`: it would keep its place until the end of the drain.
    pub(crate) fn record_ended(&mut self, client: ControlClient) {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == client) {
            self.waiting.remove(place);
            self.answer(client, STILL_DRAINING);
        }
    }

    /// Answers a request with a text of whole lines, and reads the next
    /// request of `client`.
    pub(crate) fn report(&mut self, client: ControlClient, text: Vec<u8>) {
        self.control.answer(client, text);
        // Input that arrived before makes no new event.
        self.record_event(Source::Operator(client.slot as usize));
    }
}

fn order_of(signal: sys::Signal) -> Option<Order> {
    match signal.number {
        sys::SIGHUP if is_meant_by(&signal) => Some(Order::Stop("stopping: the terminal hung up")),
        sys::SIGTERM | sys::SIGINT => Some(Order::Stop("stopping on a signal")),
        sys::SIGUSR1 | sys::SIGHUP => Some(Order::Restart),
        sys::SIGQUIT => Some(Order::Drain),
        sys::SIGUSR2 => Some(Order::ToggleDrain),
        _ => None,
    }
}
