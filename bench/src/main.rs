//! `poolcounter-bench`: compares this daemon with Debian's C daemon and with the least that the
//! kernel charges for the protocol (`floor.c`).
//!
//! - [`suite`]: measures reference, floor and ours in turn, in the [`scenario`]s;
//! - [`fleet`] and [`traffic`]: many connections in one epoll loop, and what they
//!   send;
//! - [`server`], [`process`]: the measured servers and what they cost;
//! - [`outcome`], [`figures`], [`report`]: from samples to the tables.

mod figures;
mod fleet;
mod outcome;
mod process;
mod report;
mod scenario;
mod server;
mod suite;
mod traffic;

use clap::{Parser, Subcommand};

/// Errors are messages for the user.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Compare this daemon with the reference and the floor
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    suite: suite::Args,
    #[command(subcommand)]
    confined: Option<Confined>,
}

#[derive(Debug, Subcommand)]
enum Confined {
    /// Become COMMAND on one core, to be killed with the parent
    #[command(hide = true)]
    Confine {
        #[arg(long)]
        core: usize,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.confined {
        Some(Confined::Confine { core, command }) => server::confine(core, &command),
        None => suite::run(&cli.suite),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("poolcounter-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
