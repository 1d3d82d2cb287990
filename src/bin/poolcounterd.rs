//! The daemon's executable: reads the command line and serves.

use clap::Parser;
use poolcounterd::server::{self, Options, Server};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(e) if is_asked_before_a_restart() => {
            let text = e.to_string();
            print(text.lines().next().unwrap_or_default());
            return ExitCode::FAILURE;
        }
        Err(e) => {
            // Standard output may be closed; nothing to be done about it here.
            let _ = e.print();
            return if e.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    if options.read_snapshot {
        read_snapshot(&options)
    } else if let Some(server) = &options.check {
        check(server.as_deref(), options.port)
    } else if options.reload {
        reload(&options)
    } else {
        serve(options)
    }
}

fn serve(options: Options) -> ExitCode {
    server::start_logging(&options);
    match Server::start(options) {
        Ok(server) => {
            server.run();
            ExitCode::SUCCESS
        }
        Err(e) => fail(&e.to_string()),
    }
}

fn reload(options: &Options) -> ExitCode {
    let path = options.control.as_deref().unwrap_or(server::DEFAULT_CONTROL_PATH);
    let ours: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match server::reload(path, &server::arguments_after_reload(&ours, path)) {
        Ok(answer) => print(&answer),
        Err(e) => fail(&format!("Not reloaded: {e}")),
    }
}

/// Whether this is [`read_snapshot`]'s part, said before the other arguments are
/// understood.
fn is_asked_before_a_restart() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == "--read-snapshot")
}

/// Asked by the daemon before a hot restart. Standard error is not looked at.
fn read_snapshot(options: &Options) -> ExitCode {
    match server::read_trial_snapshot(options) {
        Ok(answer) => print(&answer),
        Err(why) => {
            print(&why);
            ExitCode::FAILURE
        }
    }
}

fn check(server: Option<&str>, port: u16) -> ExitCode {
    match server::check(server, port) {
        Ok(answer) => print(answer.trim_end()),
        Err(e) => fail(&format!("Not well: {e}")),
    }
}

/// Standard output may be closed: no reason to panic.
fn print(line: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Standard error may be closed: no reason to panic.
fn fail(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::FAILURE
}
