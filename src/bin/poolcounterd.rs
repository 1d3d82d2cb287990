//! The daemon's executable: reads the command line and serves.

use clap::error::{ContextKind, ContextValue};
use connect::{OrderError, Place, places};
use poolcounterd::{Ended, Obstacle, Options, Server, StartError, Task, check_rules};
use protocol::answers::OK;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// EX_UNAVAILABLE of sysexits.h: an address can't be had now. The unit tries again.
const NO_ADDRESS: u8 = 69;

/// EX_OSERR of sysexits.h: the system refused something. The unit tries again.
const SYSTEM_REFUSED: u8 = 71;

/// EX_TEMPFAIL of sysexits.h. The unit counts it as success and does not start
/// the service again (poolcounterd(8), EXIT STATUS).
const DRAINED: u8 = 75;

/// How long a healthy daemon may take to answer, at worst.
const ANSWER_S: u64 = 5;

fn main() -> ExitCode {
    let task = match Task::from_words(std::env::args_os()) {
        Ok(task) => task,
        Err(e) if is_asked_before_a_restart() => {
            let text = e.to_string();
            print(text.lines().next().unwrap_or_default());
            return ExitCode::FAILURE;
        }
        Err(mut e) if e.use_stderr() => {
            // "use '-- --bogus'": that is refused too.
            e.insert(ContextKind::Suggested, ContextValue::None);
            return fail(e.to_string().trim_end());
        }
        Err(e) => {
            // Fails if standard output is closed.
            let _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    let answer = match task {
        Task::Serve(options) => return serve(options),
        Task::ReadSnapshot(options) => return read_snapshot(&options),
        Task::Reload { control } => {
            reload(control.as_deref()).map_err(|why| format!("Not reloaded: {why}"))
        }
        Task::Check { server, port } => {
            let places = places(server.as_deref(), port).map_err(|e| e.to_string());
            let uptime = places.and_then(first_uptime);
            uptime.map_err(|e| format!("Check failed: {e}"))
        }
        Task::CheckRules { path, keys } => check_rules(&path, &keys).map_err(|e| e.to_string()),
        Task::CheckOptions(options) => return check_options(&options),
        Task::FreePort(pid) => {
            poolcounterd::free_port(pid).map_err(|why| format!("Not freed: {why}"))
        }
    };
    match answer {
        Ok(answer) => print(answer.trim_end()),
        Err(why) => fail(&why),
    }
}

fn serve(options: Options) -> ExitCode {
    poolcounterd::start_logging(&options);
    match Server::start(options) {
        Ok(server) => match server.run() {
            Ended::Stopped => ExitCode::SUCCESS,
            Ended::Drained => ExitCode::from(DRAINED),
        },
        Err(e) => {
            explain(&e);
            match e.obstacle() {
                // As in the C daemon, whose own tests demand it (`test_invalid_listen`). The
                // unit does not start the service again.
                Obstacle::Options => ExitCode::FAILURE,
                Obstacle::Address => ExitCode::from(NO_ADDRESS),
                Obstacle::System => ExitCode::from(SYSTEM_REFUSED),
            }
        }
    }
}

fn check_options(options: &Options) -> ExitCode {
    poolcounterd::start_logging(options);
    match poolcounterd::check_options(options) {
        Ok(()) => print("the options are valid"),
        Err(e) => {
            explain(&e);
            ExitCode::FAILURE
        }
    }
}

fn explain(error: &StartError) {
    poolcounterd::print_error(&error.to_string());
    if let Some(advice) = error.advice() {
        poolcounterd::print_error(&advice);
    }
}

/// `control` is the path of the control socket.
fn reload(control: Option<&str>) -> Result<String, String> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    let control = control.unwrap_or(connect::DEFAULT_PATH);
    let order = match poolcounterd::arguments_after_reload(&words, control)? {
        None => "RESTART".to_owned(),
        Some(arguments) => format!("RESTART {}", serde_json::json!(arguments)),
    };
    let answer = connect::send_order(Path::new(control), &order, connect::RESTART_TIMEOUT);
    let answer = answer.map_err(|e| match e {
        OrderError::Cut(ref heard) => format!("{control}: {e}: {}", heard.trim_end()),
        _ => format!("{control}: {e}"),
    })?;
    if answer.starts_with(OK) { Ok(answer) } else { Err(answer.trim_end().to_owned()) }
}

/// Whether an old image started this process for [`read_snapshot`]. Must work before
/// the arguments are parsed.
fn is_asked_before_a_restart() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first == "--read-snapshot")
}

/// The daemon runs this before a hot restart and reads the last line that it prints.
fn read_snapshot(options: &Options) -> ExitCode {
    match poolcounterd::dry_run(options) {
        // A wrapper may have left its line unfinished.
        Ok(answer) => print(&format!("\n{answer}")),
        Err(why) => {
            print(&why.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The answer of the first place where a daemon is. Uses a thread, because nothing
/// else bounds all steps together: looking up a name, and asking at each place. Without one, each
/// step has its own bound.
fn first_uptime(places: Vec<Place>) -> Result<String, String> {
    let late = format!("{}: timed out, no answer within {ANSWER_S} seconds", places[0]);
    let (sender, answer) = mpsc::channel();
    let asked = places.clone();
    let asking = thread::Builder::new().spawn(move || {
        // Fails after the timeout.
        let _ = sender.send(ask_in_turn(&asked));
    });
    if asking.is_err() {
        return ask_in_turn(&places);
    }
    answer.recv_timeout(Duration::from_secs(ANSWER_S)).unwrap_or(Err(late))
}

/// If no server answers, the first error is the most telling: ::1 is tried after 127.0.0.1.
fn ask_in_turn(places: &[Place]) -> Result<String, String> {
    let (first, others) = (&places[0], &places[1..]);
    let uptime = |place: &Place| place.uptime().ok();
    first.uptime().or_else(|e| others.iter().find_map(uptime).ok_or(e))
}

/// Does not panic if standard output is closed.
#[expect(clippy::disallowed_methods, reason = "no daemon runs that it could block")]
fn print(line: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// For an invalid command line, and for a question or an order that failed. Does not panic
/// if standard error is closed.
fn fail(message: &str) -> ExitCode {
    poolcounterd::print_error(message);
    ExitCode::FAILURE
}
