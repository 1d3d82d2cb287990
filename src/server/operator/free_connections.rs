//! `FREE`: closes connections on an operator's order, so that their locks pass on.

use crate::engine::{ClientId, Time};
use crate::server::clients::connections::Clients;
use crate::server::event_loop::Server;
use crate::server::kernel::world::Engine;
use crate::server::operator::control_socket::{Free, FreeTarget};
use crate::server::reporting::report_queue::locks_of;
use log::info;
use std::collections::HashSet;

impl Server {
    /// Closes the connections that `free` names and answers with the locks that they had. As
    /// if the clients had disconnected: no waiter gets `DONE`, and the next one gets the lock.
    ///
    /// # Errors
    /// No connection is meant, or more than are allowed: nothing is closed.
    pub(super) fn free(&mut self, free: &Free, now: Time) -> Result<String, String> {
        let mut clients = clients_of(&free.target, &self.engine, &mut self.clients);
        // A client may hold a key several times. The input of some has ended already, and they
        // only wait for their output to be sent.
        let mut seen = HashSet::new();
        clients.retain(|client| seen.insert(*client) && self.clients.open_mut(*client).is_some());
        if clients.is_empty() {
            return Err(match free.target {
                FreeTarget::Key(_) => "no client holds this key".to_owned(),
                FreeTarget::Connection(_) => "no such connection".to_owned(),
                FreeTarget::Host(_) => "no connection from this host".to_owned(),
            });
        }
        let count = clients.len();
        if count > free.connections_max && !free.is_dry_run {
            return Err(format!(
                "{count} connections, more than {}: nothing is closed; the bound {count} closes them",
                free.connections_max,
            ));
        }
        let what = if free.is_dry_run { "would close" } else { "closed" };
        let first_line = format!("{what} {count} connection{}", if count == 1 { "" } else { "s" });
        let (totals, rows) = locks_of(&self.engine, &self.clients, &clients, now);
        if !free.is_dry_run {
            self.close(&clients, now);
        }
        info!("FREE {first_line}: {totals}");
        Ok(format!("OK {first_line}: {totals}\n{rows}"))
    }

    fn close(&mut self, clients: &[ClientId], now: Time) {
        self.engine.disconnect_all(clients, now);
        for &client in clients {
            self.clients.free(client, &mut self.engine.counters);
        }
        // The old holders notice before the next ones get the locks.
        self.close_freed(now);
        self.finish_turn(now);
    }
}

/// Looks at every connection, unless a key is named.
fn clients_of(target: &FreeTarget, engine: &Engine, clients: &mut Clients) -> Vec<ClientId> {
    let mut found = Vec::new();
    match target {
        FreeTarget::Key(key) => {
            found.extend(engine.pool(key).iter().flat_map(|pool| pool.holders()));
        }
        FreeTarget::Connection(serial) => {
            let all = clients.iter().map(|(client, _)| client);
            found.extend(all.filter(|client| client.serial == *serial));
        }
        FreeTarget::Host(host) => {
            let all = 0..clients.slots();
            clients.for_each_address(all, |client, address| {
                if address == host {
                    found.push(client);
                }
            });
        }
    }
    found
}
