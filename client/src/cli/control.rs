//! The daemon's control socket: `drain`, `undrain`, `restart` and `control`.

use super::output::{print, print_error, print_json};
use super::status;
use crate::control_client;
use serde_json::json;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of all orders.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OrderOptions {
    /// The control socket of the daemon.
    #[arg(
        long = "control-socket",
        value_name = "PATH",
        default_value = control_client::DEFAULT_PATH
    )]
    pub(super) socket: PathBuf,

    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,

    /// Refused, since an order goes to the daemon of this host.
    // Takes the place of the option of all other subcommands, and is not in the help.
    #[arg(short = 's', long = "server", value_name = "SERVER", hide = true)]
    pub(super) server: Vec<String>,
}

/// Sends one order and prints the answer. Exits with 0 if it is obeyed, 1 if not or if the
/// answer can't be written.
pub(super) fn order(line: &str, options: &OrderOptions) -> ExitCode {
    if line.contains('\n') {
        print_error("an order is one line");
        return ExitCode::from(status::USAGE);
    }
    match control_client::send_order(&options.socket, line) {
        Ok(answer) if print_answer(&answer, options) && is_obeyed(&answer) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => print_failure(&e, options),
    }
}

fn is_obeyed(answer: &str) -> bool {
    !answer.starts_with("ERROR")
}

/// Prints an answer. False if it can't be written.
pub(super) fn print_answer(answer: &str, options: &OrderOptions) -> bool {
    let text = answer.trim_end();
    match options.json {
        true => print_json(&json!({ "ok": is_obeyed(answer), "answer": text })),
        false => print(text),
    }
}

/// Says why there is no answer.
pub(super) fn print_failure(why: &io::Error, options: &OrderOptions) -> ExitCode {
    print_error(&format!("{}: {why}", options.socket.display()));
    ExitCode::from(status::NO_SERVER)
}
