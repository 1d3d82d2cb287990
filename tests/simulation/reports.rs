//! Judges what reports show, on the port, over HTTP and on the control socket, and how HTTP clients
//! are served.
//!
//! The driver passes it the model's state at each moment, and each report that is read. It knows
//! the model and the formats of the reports, but not the code that makes them.

mod addresses;
mod expected_figures;
pub(crate) mod http;
mod json_lists;
pub(crate) mod moments;
mod slow_list;
mod top_lists;
