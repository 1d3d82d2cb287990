//! Statistics, lists and metrics on request: who asks, over which way, and the queue of
//! requests, of which each turn of the loop makes a part.
//!
//! Called by the event loop; asks [`crate::reports`] for the text.

pub(crate) mod http;
pub(crate) mod report_queue;
pub(crate) mod report_request;
