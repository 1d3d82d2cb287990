//! The daemon's control socket: `drain`, `undrain`, `restart` and `control`.

use super::saying::{complain, say, say_json};
use super::status;
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Longer than the longest trial of a new binary.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Options of all orders.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OrderOptions {
    /// The control socket of the daemon.
    #[arg(
        long = "control-socket",
        value_name = "PATH",
        default_value = "/run/poolcounter/control.sock"
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
pub(super) fn order(words: &[String], options: &OrderOptions) -> ExitCode {
    let line = words.join(" ");
    if line.contains('\n') {
        complain("an order is one line");
        return ExitCode::from(status::USAGE);
    }
    match ask_again_if_closed(&line, options) {
        Ok(answer) if say_answer(&answer, options) && is_obeyed(&answer) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(e) => say_unheard(&e, options),
    }
}

fn is_obeyed(answer: &str) -> bool {
    !answer.starts_with("ERROR")
}

/// Prints an answer. False if it can't be written.
pub(super) fn say_answer(answer: &str, options: &OrderOptions) -> bool {
    let text = answer.trim_end();
    match options.json {
        true => say_json(&json!({ "ok": is_obeyed(answer), "answer": text })),
        false => say(text),
    }
}

/// Says why there is no answer.
pub(super) fn say_unheard(why: &io::Error, options: &OrderOptions) -> ExitCode {
    complain(&format!("{}: {why}", options.socket.display()));
    ExitCode::from(status::NO_SERVER)
}

/// A hot restart closes our connection, and the same process goes on. A new process is
/// none that this order was meant for.
fn ask_again_if_closed(line: &str, options: &OrderOptions) -> io::Result<String> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let stream = UnixStream::connect(&options.socket)?;
    let daemon = process_of(&stream);
    let answer = ask(line, stream);
    let is_closed =
        |e: &io::Error| matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
    if !answer.as_ref().is_err_and(is_closed) {
        return answer;
    }
    let again = UnixStream::connect(&options.socket);
    match again.ok().filter(|stream| daemon.is_some() && process_of(stream) == daemon) {
        Some(stream) => ask(line, stream),
        None => answer,
    }
}

pub(super) fn process_of(daemon: &UnixStream) -> Option<Pid> {
    socket_peercred(daemon).ok().map(|peer| peer.pid)
}

fn ask(line: &str, mut stream: UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    // The daemon answers what it has got, then closes.
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => {
            let why = format!("no answer within {} seconds", TIMEOUT.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        _ => e,
    })?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
    }
    Ok(answer)
}

/// The order for a restart, with the daemon's new arguments, if any.
pub(super) fn restart_with(arguments: &[String]) -> Vec<String> {
    let mut words = vec!["RESTART".to_owned()];
    if !arguments.is_empty() {
        words.push(json!(arguments).to_string());
    }
    words
}
