//! The command line.

use crate::engine::HoldLimit;
use clap::Parser;
use ipnet::IpNet;
use std::net::IpAddr;

/// The port that PoolCounter clients know.
pub const PORT: u16 = 7531;

const ABOUT: &str = "\
Lock daemon for MediaWiki's PoolCounter: lets a few render a page while the \
others wait for the result, or tells them at once that the queue is full.";

const AFTER_HELP: &str = "\
Signals:
  SIGTERM, SIGINT  stop at once
  SIGUSR1, SIGHUP  hot restart: hand every connection, lock and wait to the
                   binary that stands at our path now, without losing one
  SIGUSR2          drain: no new clients, exit when the last has left; again:
                   listen again

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

    /// Serve a Unix socket at this path as well.
    #[arg(long, value_name = "PATH", overrides_with = "listen_unix")]
    pub listen_unix: Option<String>,

    /// Mode of that socket's file, in octal: who may connect to it.
    #[arg(long, value_name = "MODE", default_value = "660", value_parser = parse_mode,
          overrides_with = "listen_unix_mode")]
    pub listen_unix_mode: u32,

    /// Close connections from other addresses than these, such as 10.0.0.0/8 or
    /// 2001:db8::/32. May be given several times. [default: all are served]
    #[arg(long, value_name = "CIDR", value_parser = parse_net)]
    pub allow: Vec<IpNet>,

    /// Connections served at a time from one address. [default: no limit]
    #[arg(long, value_name = "N", overrides_with = "max_connections_per_ip")]
    pub max_connections_per_ip: Option<usize>,

    /// After how many seconds of silence a client's host is asked whether it is
    /// still there. One that is not has its locks freed within twice that time.
    /// 0 never asks.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, overrides_with = "keepalive",
          value_parser = clap::value_parser!(u32).range(..=16_000))]
    pub keepalive: u32,

    /// Take a lock away from whoever holds it for longer. `*` in the pattern
    /// stands for anything. May be given several times; the first that matches a
    /// key counts. [default: no limit]
    #[arg(long, value_name = "PATTERN=SECONDS")]
    pub max_hold: Vec<HoldLimit>,

    /// Connections served at a time; one more is closed at once.
    /// [default: as many as there are descriptors]
    #[arg(long, value_name = "N", overrides_with = "max_connections")]
    pub max_connections: Option<usize>,

    /// Ask the daemon at this address for its uptime instead of serving; exit
    /// with 0 if it answers, 1 if not. [default address: localhost and --port]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1)]
    pub check: Option<Option<String>>,

    /// Unix socket for operators (try HELP on it) and for --reload.
    #[arg(long, value_name = "PATH", overrides_with = "control")]
    pub control: Option<String>,

    /// Group whose members may use the control socket too.
    #[arg(long, value_name = "GROUP", overrides_with = "control_group")]
    pub control_group: Option<String>,

    /// Ask the running daemon for a hot restart, by --control's socket, and wait
    /// until it is done. Other options given with it become the daemon's new
    /// ones; without any it keeps its own. Exit with 1 if it was refused.
    #[arg(long)]
    pub reload: bool,

    /// What to log, as in RUST_LOG, which it overrides: error, warn, info, debug.
    #[arg(long, value_name = "FILTER", overrides_with = "log")]
    pub log: Option<String>,

    /// What a new binary is asked before a hot restart (docs/restart.md).
    #[arg(long, hide = true)]
    pub read_snapshot: bool,

    /// Words that are no options. The daemon we replace ignores them, and one in
    /// an old /etc/default/poolcounter must not keep us from starting.
    #[arg(hide = true)]
    pub ignored: Vec<String>,
}

/// A network, or an address alone.
fn parse_net(text: &str) -> Result<IpNet, String> {
    let address = |_| text.parse::<IpAddr>().map(IpNet::from);
    text.parse().or_else(address).map_err(|_| "not an address or network".to_owned())
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).map_err(|e| e.to_string())?;
    if mode > 0o777 { Err("more than 777".to_owned()) } else { Ok(mode) }
}

/// What `--reload` makes the daemon's new command line: everything on ours but
/// `--reload` itself. Empty when nothing is left but where to ask: then the
/// daemon keeps its own. `control` is the socket that is asked; it stays.
pub fn arguments_after_reload(ours: &[String], control: &str) -> Vec<String> {
    let mut rest: Vec<String> = ours.iter().filter(|word| *word != "--reload").cloned().collect();
    let asks_where = |word: &String| word.starts_with("--control=");
    let is_where = match rest.as_slice() {
        [] => true,
        [word] => asks_where(word),
        [word, _] => word == "--control",
        _ => false,
    };
    if is_where {
        return Vec::new();
    }
    if !rest.iter().any(|word| word == "--control" || asks_where(word)) {
        rest.extend(["--control".to_owned(), control.to_owned()]);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_reload(ours: &str) -> Vec<String> {
        let ours: Vec<String> = ours.split_whitespace().map(str::to_owned).collect();
        arguments_after_reload(&ours, "/run/c")
    }

    #[test]
    fn a_reload_without_options_keeps_the_old_ones() {
        for ours in ["--reload", "--reload --control /run/c", "--control=/run/c --reload"] {
            assert_eq!(after_reload(ours), [""; 0], "{ours}");
        }
    }

    #[test]
    fn a_reload_with_options_makes_them_the_new_ones_and_keeps_the_control_socket() {
        assert_eq!(after_reload("--reload -l ::"), ["-l", "::", "--control", "/run/c"]);
        assert_eq!(
            after_reload("--reload --control /run/c -l :: -p 1"),
            ["--control", "/run/c", "-l", "::", "-p", "1"]
        );
    }
}
