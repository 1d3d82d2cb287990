//! Statistics, lists and metrics on request: HTTP, and the queue of requests, a part of
//! which is made in each turn of the loop.
//!
//! Called by the event loop; asks [`crate::reports`] for the text.

pub(crate) mod http;
pub(crate) mod report_queue;
