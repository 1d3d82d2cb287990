//! The command `poolcounter`: runs programs under locks, shows what servers report, sends orders to
//! the daemon of this host; here are its subcommands and the list of servers. `main.rs` calls it. It
//! may know connections and the protocol, terminals and signals; of the daemon it knows what comes
//! over sockets.

mod ask;
mod check;
mod control;
mod drain;
mod duration;
mod every_server;
mod keys;
mod lists;
mod order;
mod output;
mod reported_rules;
mod run;
mod server_list;
mod shown_key;
mod stats;
mod stats_full;
mod status;
mod table;
mod top;
mod unsafe_calls;
mod which;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{
    Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint,
};
use server_list::ServerList;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

const AFTER_HELP: &str = "\
Several servers: a key belongs to one of them, chosen just as MediaWiki's client
does; run asks the next one only with --fallback. Without -s, those in
POOLCOUNTER_SERVERS are asked; else those in the file /etc/poolcounter/servers,
except by check; else 127.0.0.1.";

/// The heading of the options that all subcommands have.
const COMMON: &str = "Common options";

/// Instead of clap's own, which have no heading.
fn help_and_version() -> [Arg; 2] {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).global(true);
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    let all = [help.help("Print help"), version.help("Print the version")];
    all.map(|option| option.help_heading(COMMON))
}

// The help shows `[v6]` as it is written here.
#[allow(rustdoc::broken_intra_doc_links)]
#[derive(Debug, Parser)]
#[command(name = "poolcounter", version, after_help = AFTER_HELP,
          about = "Locks shared by many machines: runs commands under them, shows who holds them.",
          disable_help_flag = true, disable_version_flag = true, args = help_and_version())]
struct Arguments {
    /// A server: host, host:port or [v6]:port. Separate several by spaces or commas, or
    /// repeat the option. [default: see below]
    #[arg(short, long = "server", value_name = "SERVER", value_hint = ValueHint::Hostname,
          global = true, help_heading = COMMON)]
    server: Vec<String>,

    #[command(subcommand)]
    subcommand: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a command while holding a lock.
    // KEY is not optional, but behind `--` it is not apart from COMMAND.
    #[command(after_help = run::AFTER_HELP,
              override_usage = "poolcounter run [OPTIONS] <KEY> -- <COMMAND>...")]
    Run(run::RunOptions),
    /// Print the statistics of the servers.
    Stats {
        /// Print an object of JSON for each server.
        #[arg(long)]
        json: bool,
    },
    /// List the keys that exist now, those with the most waiters first, then those that are
    /// held for longest.
    Keys(keys::KeysOptions),
    /// Show the holders and waiters of a key.
    Key {
        /// The key; \xNN stands for a byte.
        #[arg(value_name = "KEY")]
        key: OsString,
        /// Print an object of JSON for each server.
        #[arg(long)]
        json: bool,
    },
    /// Print the servers of a key, in the order in which clients try them.
    Which {
        /// The key as the client has it, with spaces, or as lists show it; \xNN stands for a byte.
        #[arg(value_name = "KEY")]
        key: OsString,
        /// The key is POOL:KEY, and its lock is one of N slots, as MediaWiki's `slots`.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        hash_slots: Option<u32>,
    },
    /// List the addresses of clients, those with the most connections first.
    Clients(Rows),
    /// List the last holds and waits that took long (the daemon's --slow).
    Slow(Rows),
    /// Watch servers as htop does: hot keys, queues, oldest holders, clients, rates.
    #[command(after_help = top::AFTER_HELP)]
    Top {
        /// The time between two queries of a server, such as 1, 0.5 or 1m.
        #[arg(long, value_name = "TIME", default_value = "1",
              value_parser = duration::parse_bounded_duration)]
        interval: Duration,
    },
    /// Check the servers, as a plugin of Nagios and Icinga.
    #[command(after_help = check::AFTER_HELP)]
    Check(check::CheckOptions),
    /// Order the daemon of this host to drain: no new clients, exit when the last one has left.
    #[command(after_help = drain::AFTER_HELP)]
    Drain(drain::DrainOptions),
    /// Order the daemon of this host to take new clients again.
    Undrain(control::OrderOptions),
    /// Close the connections that hold a key, one connection, or all from an address.
    // Clap's own line is longer than 80 columns.
    #[command(
        override_usage = "poolcounter free [OPTIONS] <--key KEY|--client NUMBER|--host ADDRESS>"
    )]
    Free(control::FreeOptions),
    /// List the rules of the daemon of this host, and what they do.
    Rules(control::OrderOptions),
    /// Change the rules of the daemon of this host while it runs.
    Rule {
        #[command(flatten)]
        options: control::OrderOptions,
        #[command(subcommand)]
        action: control::RuleAction,
    },
    /// Send any order to the control socket; HELP lists them.
    Control {
        #[command(flatten)]
        options: control::OrderOptions,
        /// The order, such as LOG debug, which logs six lines for each lock.
        #[arg(value_name = "WORDS", required = true)]
        words: Vec<String>,
    },
}

/// Options of lists.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Rows {
    /// How many rows, of all servers together. A server lists 200 at most, and shows how many exist.
    #[arg(value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Print an object of JSON for each server.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The options of an order to the control socket, which is on this host.
    fn order(&self) -> Option<&control::OrderOptions> {
        match &self.subcommand {
            Action::Drain(options) => Some(&options.order),
            Action::Undrain(options) => Some(options),
            Action::Free(options) => Some(&options.order),
            Action::Rules(options) => Some(options),
            Action::Rule { options, .. } | Action::Control { options, .. } => Some(options),
            _ => None,
        }
    }
}

/// The command line, for its documents.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(mut e) => {
            hint_at_habits(&mut e);
            if e.use_stderr() && subcommand().as_deref() == Some(CHECK) {
                return wrong_check(&e.render().to_string());
            }
            let is_printed = e.print().map_err(output::report_output_error).is_ok();
            return match (e.use_stderr(), is_printed) {
                (true, _) => ExitCode::from(status::USAGE),
                (false, true) => ExitCode::SUCCESS,
                (false, false) => ExitCode::FAILURE,
            };
        }
    };
    let is_check = matches!(arguments.subcommand, Action::Check(_));
    let servers = match arguments.order() {
        None if is_check => ServerList::without_file(&arguments.server),
        None => ServerList::find(&arguments.server),
        Some(order) if arguments.server.is_empty() && order.server.is_empty() => {
            Ok(ServerList { servers: Vec::new(), is_this_host: true })
        }
        Some(_) => {
            let why = "-s names servers, but this order goes to the daemon of this host";
            Err(format!("{why}: --control-socket"))
        }
    };
    let servers = match servers {
        Ok(servers) => servers,
        Err(why) if is_check => return wrong_check(&format!("POOLCOUNTER UNKNOWN - {why}")),
        Err(why) => {
            output::print_error(&why);
            return ExitCode::from(status::USAGE);
        }
    };
    execute(arguments.subcommand, servers)
}

/// # Errors
/// The command line is wrong, or asks for help.
fn parse() -> Result<Arguments, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(argument) = empty_argument(&command, &matches) {
        let why = format!("{argument} is empty; is a variable not set?");
        return Err(command.error(ErrorKind::InvalidValue, why));
    }
    Arguments::from_arg_matches(&matches)
}

/// Which argument is empty, except among the words of `run`'s command.
fn empty_argument(command: &clap::Command, matches: &ArgMatches) -> Option<String> {
    let is_empty = |argument: &&Arg| {
        let values = matches.try_get_raw(argument.get_id().as_str()).ok().flatten();
        argument.get_id() != "command" && values.is_some_and(|mut all| all.any(OsStr::is_empty))
    };
    if let Some(argument) = command.get_arguments().find(is_empty) {
        return Some(argument.to_string());
    }
    let (name, matches) = matches.subcommand()?;
    empty_argument(command.find_subcommand(name)?, matches)
}

/// The subcommand that is a plugin.
const CHECK: &str = "check";

/// Monitoring shows standard output alone, and has another status.
fn wrong_check(why: &str) -> ExitCode {
    output::print(why);
    ExitCode::from(check::Severity::Unknown.status())
}

/// The subcommand of a command line that is invalid.
fn subcommand() -> Option<String> {
    let matches = command().ignore_errors(true).try_get_matches().ok()?;
    matches.subcommand_name().map(str::to_owned)
}

/// Slips of those who know flock(1): `run KEY COMMAND`, `-w 5`, and `-n` without a number.
fn hint_at_habits(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    if subcommand().as_deref() != Some("run") {
        return;
    }
    let has_hyphens = std::env::args_os().any(|word| word == "--");
    let hint = match word.split([' ', '=']).next().unwrap_or_default() {
        "-w" | "--wait" => "the time to wait is -t here, as in -t 5",
        "-n" | "--workers" | "--nonblock" | "--nb" => "not to wait is -t 0 here",
        // Otherwise the hint is its opposite.
        "--no-fallback" => "no other server is asked without --fallback",
        word if !word.starts_with('-') && !has_hyphens => "put -- before the command",
        _ => return,
    };
    let hint = ContextValue::StyledStrs(vec![hint.into()]);
    error.insert(ContextKind::Suggested, hint);
}

fn execute(action: Action, list: ServerList) -> ExitCode {
    let servers = &list.servers;
    let rows = |kind, rows: Rows| stats::list(servers, kind, rows.rows, rows.json);
    match action {
        Action::Run(options) => match options.with_key() {
            Some(options) => run::run(&list, &options),
            None => {
                output::print_error("no KEY: poolcounter run [OPTIONS] -- KEY -- COMMAND");
                ExitCode::from(status::USAGE)
            }
        },
        Action::Stats { json } => stats::stats(servers, json),
        Action::Keys(options) => keys::print_keys(servers, &options),
        Action::Clients(options) => rows(lists::ListKind::Clients, options),
        Action::Slow(options) => rows(lists::ListKind::Slow, options),
        Action::Key { key, json } => stats::show_key(servers, key.as_bytes(), json),
        Action::Which { key, hash_slots } => which::which(servers, key.as_bytes(), hash_slots),
        Action::Top { interval } => top::top(servers, interval),
        Action::Check(options) => check::check(servers, &options),
        Action::Drain(options) => drain::drain(&options),
        Action::Undrain(options) => control::order("UNDRAIN", &options),
        Action::Free(options) => control::free(&options),
        Action::Rules(options) => control::rules(&options),
        Action::Rule { options, action } => control::rule(&action, &options),
        Action::Control { options, words } => control::order(&words.join(" "), &options),
    }
}
