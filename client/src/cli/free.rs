//! `free`: closes connections to the daemon, so that their locks pass on.

use super::control::{self, OrderOptions};
use super::stats::key_from_user;
use crate::protocol::key_text;
use std::process::ExitCode;

/// Options of `free`.
#[derive(Debug, clap::Args)]
pub(super) struct FreeOptions {
    #[command(flatten)]
    pub(super) order: OrderOptions,

    #[command(flatten)]
    target: Target,

    /// Only show which locks would be freed.
    #[arg(long)]
    dry_run: bool,

    /// Close this many connections at most; if there are more, close none.
    #[arg(long, value_name = "N", default_value_t = 20)]
    max: u32,
}

/// Which connections.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// The holders of this key. Bytes can be written as \xNN, as lists show them.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The connection with this number, which lists show as #NUMBER.
    #[arg(long, value_name = "NUMBER", value_parser = parse_client)]
    client: Option<u32>,

    /// Every connection from this address; `unix` for those of Unix sockets.
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
}

fn parse_client(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.strip_prefix('#').unwrap_or(text).parse()
}

/// Sends the order and prints the answer.
pub(super) fn free(options: &FreeOptions) -> ExitCode {
    let FreeOptions { order, target, dry_run, max } = options;
    let dry_run = if *dry_run { "--dry-run " } else { "" };
    let target = match target {
        Target { key: Some(key), .. } => {
            format!("KEY {}", key_text(&key_from_user(key.as_bytes())))
        }
        Target { client: Some(client), .. } => format!("#{client}"),
        Target { host, .. } => format!("HOST {}", host.as_deref().unwrap_or_default()),
    };
    control::order(&format!("FREE {dry_run}{target} {max}"), order)
}
