//! `which`: the servers of a key, in the order in which clients try them.

use super::output::{print, print_error};
use super::run::hash_slots::key_in_slots;
use super::status;
use crate::choice::order;
use crate::protocol::key_from_text;
use crate::server_name::ServerName;
use std::process::ExitCode;

/// Prints a server a line, the first choice first. A space in the key stays one: clients
/// choose the server before they write it as `%20`.
pub(super) fn which(servers: &[ServerName], key: &[u8], hash_slots: Option<u32>) -> ExitCode {
    let key = key_from_text(key).unwrap_or_else(|| key.to_vec());
    let key = match hash_slots {
        None => Some(key),
        Some(slots) => key_in_slots(&key, slots),
    };
    let Some(key) = key else {
        print_error("--hash-slots: expected a key of the form TYPE:REST");
        return ExitCode::from(status::USAGE);
    };
    let names: Vec<&str> = order(servers, &key).into_iter().map(ServerName::as_str).collect();
    if print(&names.join("\n")) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
