//! Judges what operators get: the effects of their signals and orders, the answers on the control
//! socket, and what the service manager is sent.
//!
//! The driver and the rules call it. It knows the requests of the control socket, the listeners and
//! the options of the daemon; it leaves reports to [`super::reports`].

pub(crate) mod control_socket;
pub(crate) mod expected_rules;
pub(crate) mod orders;
pub(crate) mod service_manager;
