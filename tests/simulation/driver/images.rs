//! The images of the daemon: how it starts, executes the next one, and ends.

use super::play::Play;
use crate::simulation::invariants;
use crate::simulation::invariants::Violation;
use crate::simulation::invariants::listening::{
    check_control_path, check_kept_sockets, clients_addresses, clients_waiting,
};
use crate::simulation::kernel::{CallKind, KernelEvent, kernel};
use crate::simulation::operator::service_manager;
use crate::{Ended, Server, Task};

impl Play {
    /// Starts what the last exec(2) or the service manager has executed, as `main` does.
    pub(super) fn start_image(&mut self) -> Result<Vec<KernelEvent>, Violation> {
        let arguments = kernel(|k| k.arguments.clone());
        self.arguments.clone_from(&arguments);
        let options = match Task::from_words(arguments).map_err(|e| e.to_string())? {
            Task::Serve(options) => options,
            other => return Err(format!("it does not serve: {other:?}")),
        };
        if self.logs {
            // The snapshot has the rest of a line that the old image has partly written.
            crate::logging::logger::forget();
            crate::start_logging(&options);
        }
        self.oracle.moments.set_private(options.private, self.restarts);
        self.oracle.moments.slow.set_limit(options.slow_ns);
        self.orders.note_start(&options, self.restarts > 0);
        kernel(|k| {
            k.notify.was_read.clear();
            k.watchdog_notified_ns = k.now_ns;
        });
        let server = Server::start(options).map_err(|e| format!("it does not start: {e}"))?;
        self.server = Some(server);
        self.follow_calls()
    }

    /// The old image is replaced by what was executed.
    ///
    /// Invariant: The next image gets no descriptor that the one before used only for itself.
    pub(super) fn exec(&mut self) -> Result<(), Violation> {
        let mut seen = self.follow_calls()?;
        let clients = self.server.as_ref().expect("it ran").parts.clients.len();
        let freed = self.oracle.freed_counts();
        self.operators.note_clients(&seen, clients, &freed);
        let arguments = kernel(|k| k.arguments.clone());
        let is_operator = |peer| !self.connections.was_client(peer);
        self.orders.check_exec(&seen, is_operator, &self.arguments, &arguments)?;
        self.oracle.check_freed(std::mem::take(&mut self.orders.freed))?;
        self.check_connections()?;
        self.connections.note_restart();
        if kernel(|k| k.has_leaked()) {
            return Err(
                "the next image gets a descriptor that the old one used only for itself".to_owned()
            );
        }
        let addresses = clients_addresses(self.server.as_ref().expect("it ran"));
        // Its destructors close nothing: the descriptors are the new image's.
        drop(self.server.take());
        let holders = self.oracle.holders();
        if kernel(|k| k.lose_connection(&holders)) {
            self.oracle.moments.requests.note_lost();
        }
        self.restarts += 1;
        // The new image begins its queues anew.
        self.waits_for_share.clear();
        self.operators.note_restart();
        self.oracle.moments.figures.note_restart();
        (self.asleep, self.spare_since_ns) = (None, None);
        self.http_clients.note_restart();
        let result = self.start_image();
        self.oracle.moments.figures.note_resumed();
        self.operators.may_miss_answers |= kernel(|k| k.has_failed(CallKind::Send));
        kernel(|k| k.end_turn());
        seen.append(&mut result?);
        self.check_connections()?;
        invariants::check_http_clients(self)?;
        invariants::check_lingering()?;
        invariants::check_accept_limit()?;
        let server = self.server.as_ref().expect("it runs");
        check_kept_sockets(server, &addresses)?;
        check_control_path(server)?;
        self.orders.check_resumed(server)
    }

    fn check_connections(&mut self) -> Result<(), Violation> {
        let server = self.server.as_ref().expect("it runs");
        self.connections.check(&server.parts.engine.counters)
    }

    /// The daemon ends by itself.
    pub(super) fn end(&mut self, end: Ended) -> Result<(), Violation> {
        let server = self.server.take().expect("it ran");
        let connections = self.connections.len() + self.connections.held() + clients_waiting();
        self.orders.check_end(end, connections)?;
        server.stop();
        invariants::check_lingering()?;
        service_manager::check_shutdown(self)?;
        kernel(|k| k.end_process());
        Ok(())
    }
}
