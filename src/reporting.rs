//! Statistics, lists and metrics on request: HTTP, and the queue of requests, of which
//! each turn of the loop does a part.
//!
//! Called by the event loop; asks [`reports`] for the text.

pub(crate) mod http;
mod process_usage;
pub(crate) mod report_queue;
