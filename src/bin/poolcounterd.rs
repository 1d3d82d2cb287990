//! The daemon's executable: reads the command line and serves.

use clap::Parser;
use poolcounterd::server::{self, Options, Server};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(e) => {
            // Standard output may be closed; nothing to be done about it here.
            let _ = e.print();
            return if e.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match &options.check {
        Some(server) => check(server.as_deref(), options.port),
        None => serve(&options),
    }
}

fn serve(options: &Options) -> ExitCode {
    server::start_logging();
    match Server::start(options) {
        Ok(server) => {
            server.run();
            ExitCode::SUCCESS
        }
        Err(e) => fail(&e.to_string()),
    }
}

fn check(server: Option<&str>, port: u16) -> ExitCode {
    match server::check(server, port) {
        Ok(answer) => {
            let _ = write!(std::io::stdout(), "{answer}");
            ExitCode::SUCCESS
        }
        Err(e) => fail(&format!("Not well: {e}")),
    }
}

/// Standard error may be closed: no reason to panic.
fn fail(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::FAILURE
}
