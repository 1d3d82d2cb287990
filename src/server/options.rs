//! The command line.

use clap::Parser;

/// The port that PoolCounter clients know.
pub const PORT: u16 = 7531;

const ABOUT: &str = "\
Lock daemon for MediaWiki's PoolCounter: lets a few render a page while the \
others wait for the result, or tells them at once that the queue is full.";

const AFTER_HELP: &str = "\
Signals:
  SIGTERM, SIGINT  stop at once

If standard input is a listening socket, or systemd passes sockets (LISTEN_FDS),
those are served and -l and -p are ignored.

RUST_LOG=debug shows what happens to each command.

Talk to it:  echo 'STATS FULL' | nc -w1 localhost 7531";

/// What the daemon was told to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "poolcounterd", version, about = ABOUT, after_help = AFTER_HELP)]
pub struct Options {
    /// Address to listen on: a literal IPv4 or IPv6 address, or several with
    /// commas. `::` serves IPv4 too. Given more than once, the last one counts.
    /// [default: 127.0.0.1 and, where there is one, ::1]
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        overrides_with = "listen",
        allow_hyphen_values = true
    )]
    pub listen: Option<String>,

    /// TCP port; 0 takes a free one and logs which.
    #[arg(short, long, default_value_t = PORT, overrides_with = "port")]
    pub port: u16,

    /// Connections that the kernel keeps for us until we accept them; it takes
    /// no more than net.core.somaxconn.
    #[arg(long, value_name = "N", default_value_t = 4096, overrides_with = "backlog",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub backlog: i32,

    /// Connections served at a time; one more is closed at once.
    /// [default: as many as there are descriptors]
    #[arg(long, value_name = "N", overrides_with = "max_connections")]
    pub max_connections: Option<usize>,

    /// Ask the daemon at this address for its uptime instead of serving; exit
    /// with 0 if it answers, 1 if not. [default address: localhost and --port]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1)]
    pub check: Option<Option<String>>,

    /// Words that are no options. The daemon we replace ignores them, and one in
    /// an old /etc/default/poolcounter must not keep us from starting.
    #[arg(hide = true)]
    pub ignored: Vec<String>,
}
