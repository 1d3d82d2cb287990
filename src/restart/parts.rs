//! What lives on over a hot restart, in one struct: the old image lends it to be written, the new
//! image makes it anew, as a start does.

use crate::clients::connections::Clients;
use crate::listening::listeners::Listeners;
use crate::operator::orders::Operators;
use crate::platform::os::Engine;
use crate::platform::os::mio::Poll;
use reports::history::History;

/// The parts of the server that a hot restart carries over.
pub(crate) struct Parts {
    /// It watches all the others.
    pub(crate) poll: Poll,
    pub(crate) listeners: Listeners,
    pub(crate) clients: Clients,
    pub(crate) engine: Engine,
    /// Operators' connections, and what they have set at run time.
    pub(crate) operator: Operators,
    pub(crate) history: History,
}
