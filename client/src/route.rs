//! Which keys may be locked on a connection.

use crate::choice::order;
use crate::conversation::Refusal;
use crate::error::Error;
use crate::request::LockRequest;
use crate::server_name::ServerName;

/// Which server a connection leads to, and why to that one.
#[derive(Debug)]
pub(crate) struct Route {
    servers: Vec<ServerName>,
    server: ServerName,
    /// Could not be connected to before.
    failed: Vec<ServerName>,
}

impl Route {
    pub(crate) fn new(
        servers: Vec<ServerName>,
        server: ServerName,
        failed: Vec<ServerName>,
    ) -> Self {
        Route { servers, server, failed }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    /// Refuses a key that this server does not guard.
    pub(crate) fn check(&self, request: &LockRequest) -> Result<(), Error> {
        let order = order(&self.servers, request.key());
        let guards = order.into_iter().find(|server| !self.failed.contains(server));
        if guards == Some(&self.server) {
            Ok(())
        } else {
            Err(Error::Refused(Refusal::OtherServer))
        }
    }
}
