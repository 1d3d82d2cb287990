//! Statistics, lists and metrics on request: HTTP, and the queue of reports, of which each turn
//! does a part. `serving` calls it, with the engine and the clients to look at. It may read
//! them and change nothing; the crate [`reports`] makes the text.

pub(crate) mod http;
pub(crate) mod process_usage;
pub(crate) mod report_queue;
