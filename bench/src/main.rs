//! `poolcounter-bench`: load for PoolCounter daemons, and the benchmark suite
//! behind `docs/development/benchmarks.md`.
//!
//! - [`load`]: puts load on any server, for operators;
//! - [`suite`]: measures reference, floor and ours in turn, in the [`scenario`]s, of which
//!   [`tails`] and [`worst_turn`] are two;
//! - [`fleet`] and [`traffic`]: many connections in one epoll loop, and what they
//!   send;
//! - [`server`], [`process`]: the measured servers and what they cost;
//! - [`outcome`], [`figures`], [`report`], [`plots`], [`plot`]: from samples to the page.

mod figures;
mod fleet;
mod load;
mod outcome;
mod pipelines;
mod plot;
mod plots;
mod process;
mod report;
mod scenario;
mod server;
mod suite;
mod tails;
mod traffic;
mod worst_turn;

use clap::Parser;

/// Errors are messages for the user.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Load generator and benchmark suite for PoolCounter daemons
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
enum Command {
    Load(load::Args),
    Suite(suite::Args),
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
    let outcome = match Command::parse() {
        Command::Load(args) => load::run(&args),
        Command::Suite(args) => suite::run(&args),
        Command::Confine { core, command } => server::confine(core, &command),
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("poolcounter-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
