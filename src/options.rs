//! The command line: options, their limits and errors, and the arguments of a reload.

use crate::logging::filter::check_filter;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, Args, Command, CommandFactory, Parser, ValueHint};
use connect::PORT;
use engine::rules::rule::Rule;
use ipnet::{IpNet, Ipv4Net};
use log::warn;
use protocol::{seconds_from_text, time_from_text};
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The most keys that `/metrics` names.
const HTTP_KEYS_MAX: usize = 100;

/// The longest `--keepalive`.
const KEEPALIVE_S_MAX: u32 = 16_000;

/// The longest `--slow`.
const SLOW_S_MAX: u64 = 1_000_000_000;

const ABOUT: &str = "\
Lock daemon for MediaWiki's PoolCounter: a few servers render a page while the \
others wait for the result, or hear at once that the queue is full.";

const AFTER_HELP: &str = "\
Signals:
  SIGTERM, SIGINT  stop at once: all locks are lost
  SIGUSR1, SIGHUP  hot restart: hand every connection, lock and wait to the
                   binary that is now at the daemon's path. But SIGHUP stops a
                   daemon whose terminal hung up, and nohup makes it ignored
  SIGQUIT          drain: no new clients, exit when the last client has left
  SIGUSR2          drain; a second one ends the drain

If standard input is a listening socket, or systemd passes sockets (LISTEN_FDS),
the daemon serves those and ignores -l and -p.

RUST_LOG=debug shows every command and answer: six lines for each lock.

Talk to it:  echo 'STATS FULL' | nc -N localhost 7531

poolcounterd(8) describes each option, poolcounter.rules(5) the file of rules.";

/// The groups of options, by purpose; the manual page has the same ones.
mod group {
    pub(super) const ADDRESSES: &str = "Addresses";
    pub(super) const CLIENTS: &str = "Who may connect";
    pub(super) const LIMITS: &str = "Limits and rules";
    pub(super) const MONITORING: &str = "Monitoring";
    pub(super) const OPERATION: &str = "Operation";
    pub(super) const INSTEAD: &str = "Instead of serving";
}

/// What the program does.
#[derive(Debug)]
pub enum Task {
    /// Serves.
    Serve(Options),
    /// Says whether it can continue what an old image hands over (`restart/dry_run.rs`).
    ReadSnapshot(Options),
    /// Orders the running daemon to make a hot restart.
    Reload {
        /// The path of its control socket, if not the usual one.
        control: Option<String>,
    },
    /// Asks a daemon for its uptime.
    Check {
        /// Where it is, if not on this machine.
        server: Option<String>,
        /// Its port, if `server` does not name one.
        port: u16,
    },
    /// Checks a file of rules.
    CheckRules {
        /// The file.
        path: String,
        /// Which keys to explain.
        keys: Vec<String>,
    },
    /// Judges options as a start does.
    CheckOptions(Options),
    /// Prepares the daemon of this process for its end (`free_port.rs`).
    FreePort(i32),
}

impl Task {
    /// Reads a command line, of which the first word is the program's name.
    ///
    /// # Errors
    /// What is wrong with it; or the text that `--help` and `--version` ask for.
    pub fn from_words<I>(words: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item: Into<OsString> + Clone>,
    {
        CommandLine::try_parse_from(words).map(CommandLine::task)
    }

    /// All options, for documents and completions.
    pub fn command() -> Command {
        CommandLine::command()
    }
}

#[derive(Debug, Parser)]
#[command(name = "poolcounterd", version, about = ABOUT, after_help = AFTER_HELP,
          args_override_self = true, disable_help_flag = true, disable_version_flag = true, args = help_and_version())]
struct CommandLine {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    instead: Instead,
    #[arg(hide = true, value_parser = OtherWord)]
    other_words: Vec<()>,
}

impl CommandLine {
    fn task(self) -> Task {
        let CommandLine { options, instead, .. } = self;
        let mut words = instead.check_rules.into_iter();
        if instead.read_snapshot > 0 {
            Task::ReadSnapshot(options)
        } else if instead.reload {
            Task::Reload { control: options.control }
        } else if let Some(server) = instead.check {
            Task::Check { server, port: options.port }
        } else if let Some(path) = words.next() {
            Task::CheckRules { path, keys: words.collect() }
        } else if instead.check_options {
            Task::CheckOptions(options)
        } else if let Some(pid) = instead.free_port {
            Task::FreePort(pid)
        } else {
            Task::Serve(options)
        }
    }
}

/// The options for serving.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Listen on this literal IPv4 or IPv6 address, or on several, separated by
    /// commas. `::` serves IPv4 too. The last -l counts.
    /// [default: 127.0.0.1 and, if the machine has it, ::1]
    #[arg(short, long, value_name = "ADDRESS", allow_hyphen_values = true,
          help_heading = group::ADDRESSES)]
    pub listen: Option<String>,

    /// TCP port; 0 takes a free port and logs it.
    #[arg(short, long, default_value_t = PORT, value_parser = parse_port,
          help_heading = group::ADDRESSES)]
    pub port: u16,

    /// Connections that the kernel queues until the daemon accepts them; at most
    /// net.core.somaxconn.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(i32).range(1..), help_heading = group::ADDRESSES)]
    pub backlog: i32,

    /// Serve only these addresses, such as 10.0.0.0/8 or 2001:db8::/32, and close
    /// other connections. May be given several times. [default: serve all]
    #[arg(long, value_name = "CIDR", value_parser = parse_net, help_heading = group::CLIENTS)]
    pub allow: Vec<IpNet>,

    /// Serve at most this many connections at a time, and close further ones at once.
    /// [default: as many as there are descriptors]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = group::CLIENTS)]
    pub max_connections: Option<usize>,

    /// Serve at most this many connections from one address at a time, and close further
    /// ones at once. [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_count, help_heading = group::CLIENTS)]
    pub max_connections_per_ip: Option<usize>,

    /// Limit groups of keys by the rules in this file. A hot restart reads it again.
    /// [default: no rules]
    #[arg(long, value_name = "FILE",
          value_parser = parse_path, value_hint = ValueHint::FilePath,
          help_heading = group::LIMITS)]
    pub rules: Option<String>,

    /// Close the connection of a client that has held a lock for this long. `*` in the
    /// pattern matches anything, \xNN a byte. May be given several times; the first
    /// pattern that matches a key counts. [default: no limit]
    #[arg(long, value_name = "PATTERN=TIME", value_parser = Rule::parse_max_hold,
          help_heading = group::LIMITS)]
    pub max_hold: Vec<Rule>,

    /// Probe the host of a client that is silent; if it does not respond, free
    /// its locks after 1.5 times this time. 0 turns this off.
    #[arg(long = "keepalive", value_name = "TIME", default_value_t = 60, value_parser = parse_keepalive,
          help_heading = group::LIMITS)]
    pub keepalive_s: u32,

    /// Also serve HTTP at this address, for monitoring and browsers, read-only. May be
    /// given several times. [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_socket,
          help_heading = group::MONITORING)]
    pub http: Vec<SocketAddr>,

    /// Serve HTTP only to these addresses. May be given several times.
    /// [default: those of --allow]
    #[arg(long, value_name = "CIDR", value_parser = parse_net, help_heading = group::MONITORING)]
    pub http_allow: Vec<IpNet>,

    /// List this many of the most requested keys in /metrics, and as many of those that
    /// take most time; at most 100.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_keys,
          help_heading = group::MONITORING)]
    pub http_keys: usize,

    /// Remember and log holds and waits that take longer, such as 5 or 250ms.
    /// [default: none]
    #[arg(long = "slow", value_name = "TIME", value_parser = parse_slow,
          help_heading = group::MONITORING)]
    pub slow_ns: Option<u64>,

    /// Hide keys and addresses of clients on the port and over HTTP; the control socket
    /// and the log show them.
    #[arg(long, help_heading = group::MONITORING)]
    pub private: bool,

    /// Also take orders from operators on a Unix socket at this path; HELP lists them.
    /// "none" is no socket. [default: none]
    #[arg(long, value_name = "PATH",
          value_parser = parse_path, value_hint = ValueHint::FilePath,
          help_heading = group::OPERATION)]
    pub control: Option<String>,

    /// Group whose members may also use the control socket. [default: none]
    #[arg(long, value_name = "GROUP", value_parser = parse_group,
          help_heading = group::OPERATION)]
    pub control_group: Option<String>,

    /// What to log: error, warn, info, debug, trace or off.
    /// [default: RUST_LOG, else info]
    #[arg(long, value_name = "FILTER", value_parser = check_filter,
          help_heading = group::OPERATION)]
    pub log: Option<String>,
}

/// What excludes serving, and each other.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct Instead {
    /// Ask the daemon at this address, or on the Unix socket at this path, for its uptime;
    /// exit with 0 if it answers, 1 if not.
    /// [default address: localhost and --port]
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, help_heading = group::INSTEAD)]
    check: Option<Option<String>>,

    /// Check this file of rules, and print what applies to each of the keys that follow
    /// it; exit with 1 if the file is invalid.
    #[arg(long, value_name = "FILE", num_args = 1.., action = ArgAction::Set,
          help_heading = group::INSTEAD)]
    check_rules: Vec<String>,

    /// Judge the other options, and the file of rules that they name, as a start does;
    /// exit with 1 if they are refused. Nothing is opened.
    #[arg(long, help_heading = group::INSTEAD)]
    check_options: bool,

    /// Order the running daemon to make a hot restart, over its control socket, and wait
    /// until it is done. The other options replace the daemon's; without any it keeps its
    /// own. Exit with 1 if the restart is refused.
    #[arg(long, help_heading = group::INSTEAD)]
    reload: bool,

    /// Asks a new binary, before a hot restart, whether it can continue
    /// (docs/operate/procedures.md).
    // Counted: the first one is the old image's, another one is an operator's.
    #[arg(long, hide = true, action = ArgAction::Count, value_parser = clap::value_parser!(u8).range(..=1))]
    read_snapshot: u8,

    /// Do not serve, but prepare the daemon of this process for its end: for the Debian
    /// package's scripts (`free_port.rs`).
    // Not the first process of the system, whose sockets are systemd's.
    #[arg(long, value_name = "PID", hide = true, value_parser = clap::value_parser!(i32).range(2..))]
    free_port: Option<i32>,
}

/// Instead of clap's own, which have no heading.
fn help_and_version() -> [Arg; 2] {
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help);
    let version = Arg::new("version").short('V').long("version").action(ArgAction::Version);
    let all = [help.help("Print this help"), version.help("Print the version")];
    all.map(|option| option.help_heading(group::INSTEAD))
}

impl Options {
    pub(super) fn warn_of_likely_mistakes(&self) {
        for rule in self.max_hold.iter().filter(|rule| has_several(rule)) {
            let pattern = &rule.pattern;
            warn!("--max-hold: {pattern} is one pattern; give each limit an option of its own");
        }
    }
}

/// Whether the value of `--max-hold` seems to be a list, such as `a=1,b=2`, whose pattern is
/// `a=1,b`.
fn has_several(rule: &Rule) -> bool {
    let pattern = rule.pattern.to_string();
    let is_rule =
        |part: &str| part.rsplit_once('=').is_some_and(|(_, time)| seconds_from_text(time).is_ok());
    // What follows the last separator has lost its time.
    pattern.rsplit([',', ';']).skip(1).any(is_rule)
}

/// Passes over an empty word, such as a container's variable that is not set, and refuses any other
/// that is neither an option nor the value of one: an option was meant.
#[derive(Clone)]
struct OtherWord;

impl TypedValueParser for OtherWord {
    type Value = ();

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, word: &OsStr) -> Result<(), clap::Error> {
        if word.is_empty() {
            return Ok(());
        }
        let dash = refuse_dash(&word.to_string_lossy()).err();
        let why = dash.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("{word:?} is not an option{why}\n");
        Err(clap::Error::raw(ErrorKind::UnknownArgument, message))
    }
}

/// Refuses a word that begins with a dash that a word processor or a wiki has put in place of a
/// hyphen: U+2010 to U+2015, the minus sign, or a small or a wide one. It was meant as an option.
fn refuse_dash(word: &str) -> Result<String, String> {
    let is_dash = |c: char| {
        matches!(c, '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}')
    };
    let Some(dash) = word.chars().next().filter(|&c| is_dash(c)) else {
        return Ok(word.to_owned());
    };
    let name = word.trim_start_matches(|c| c == '-' || is_dash(c));
    let hyphens = if name.chars().nth(1).is_some_and(char::is_alphabetic) { "--" } else { "-" };
    Err(format!("it begins with the dash {dash} instead of a hyphen: type {hyphens}{name}"))
}

/// Parses a path. A file whose name begins with a dash is `./—name`.
fn parse_path(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("an empty path".to_owned()) } else { refuse_dash(text) }
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "a port is a number from 0 to 65535".to_owned())
}

/// Parses a limit of connections. 0 is invalid: it would refuse every client.
fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "must be a number, at least 1; without the option there is no limit".into())
}

/// Parses how many keys are named, few enough for Prometheus's series.
fn parse_keys(text: &str) -> Result<usize, String> {
    let keys = text.parse().ok().filter(|&keys| keys <= HTTP_KEYS_MAX);
    keys.ok_or_else(|| format!("must be a number from 0 to {HTTP_KEYS_MAX}"))
}

/// Parses a time that the kernel counts in whole seconds.
fn parse_keepalive(text: &str) -> Result<u32, String> {
    let seconds = u32::try_from(seconds_from_text(text)?).ok();
    let seconds = seconds.filter(|&seconds| seconds <= KEEPALIVE_S_MAX);
    seconds.ok_or_else(|| format!("must be at most {KEEPALIVE_S_MAX} s"))
}

/// Parses a time, into nanoseconds.
fn parse_slow(text: &str) -> Result<u64, String> {
    let ns = u64::try_from(time_from_text(text)?.as_nanos()).ok();
    let ns = ns.filter(|&ns| ns <= SLOW_S_MAX * 1_000_000_000);
    ns.ok_or_else(|| format!("must be at most {SLOW_S_MAX} s; without the option nothing is slow"))
}

/// Parses an address with a port.
fn parse_socket(text: &str) -> Result<SocketAddr, String> {
    let hint = "must be a literal address and a port, such as 10.1.2.3:9531 or [::]:9531";
    text.parse().map_err(|_| hint.to_owned())
}

/// Parses a network or a single address.
fn parse_net(text: &str) -> Result<IpNet, String> {
    let address = |_| text.parse::<IpAddr>().map(IpNet::from);
    let net = text.parse().or_else(address);
    net.map(canonical).map_err(|_| "must be such as 10.0.0.0/8, 2001:db8::/32 or 10.1.2.3".into())
}

/// Converts an IPv4-mapped network to IPv4 (`::ffff:10.0.0.0/104` to `10.0.0.0/8`),
/// because IPv4 clients are matched by their IPv4 address.
fn canonical(net: IpNet) -> IpNet {
    const MAPPED_PREFIX_LEN: u8 = 96;
    let IpNet::V6(v6) = net else { return net };
    let v4 = v6.addr().to_ipv4_mapped();
    let prefix_len = v6.prefix_len().checked_sub(MAPPED_PREFIX_LEN);
    let v4_net = v4.zip(prefix_len).and_then(|(v4, len)| Ipv4Net::new(v4, len).ok());
    v4_net.map_or(net, IpNet::V4)
}

/// A name may belong to a group later; a number that no group can have never does.
fn parse_group(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("an empty name is no group".to_owned());
    }
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    // To chown(2), the last number means "leave it as it is".
    let can_be = !is_number || text.parse().is_ok_and(|id: u32| id != u32::MAX);
    if can_be { Ok(text.to_owned()) } else { Err("no group can have this number".to_owned()) }
}

/// The daemon's new command line after `--reload`: `words`, this program's, without `--reload`,
/// and with the path of the control socket, where the order goes. `None` if no option but
/// `--control` is among them: then the daemon keeps its own.
///
/// # Errors
/// A path is relative: the daemon may be in another directory.
pub fn arguments_after_reload(
    words: &[String],
    control: &str,
) -> Result<Option<Vec<String>>, String> {
    let command = CommandLine::command().no_binary_name(true);
    let matches = command.clone().try_get_matches_from(words).map_err(|e| e.to_string())?;
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    for option in command.get_arguments().filter(|it| it.get_value_hint() == ValueHint::FilePath) {
        let mut values = matches.get_raw(option.get_id().as_str()).into_iter().flatten();
        if let Some(path) = values.find(|path| Path::new(path).is_relative()) {
            let name = option.get_long().unwrap_or_default();
            return Err(format!(
                "--{name}: {path:?} is a relative path, and the daemon may be in another directory"
            ));
        }
    }
    let others = command.get_arguments().map(|option| option.get_id().as_str());
    if !others.filter(|id| !["reload", "control", "other_words"].contains(id)).any(is_given) {
        return Ok(None);
    }
    let added = (!is_given("control")).then(|| format!("--control={control}"));
    let own = words.iter().filter(|word| *word != "--reload").cloned();
    Ok(Some(added.into_iter().chain(own).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn after_reload(words: &str) -> Result<Option<String>, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Ok(arguments_after_reload(&words, "/run/c")?.map(|words| words.join(" ")))
    }

    /// Each option twice: the second value counts, or both if the help says "several times".
    #[test]
    fn an_option_may_be_repeated() {
        let parse = |words: &[&str]| {
            let words = ["poolcounterd"].iter().chain(words);
            format!("{:?}", Task::from_words(words).expect("valid"))
        };
        let with_the_last = [
            ("--listen", "127.0.0.1", "::1"),
            ("--port", "1", "2"),
            ("--backlog", "1", "2"),
            ("--max-connections-per-ip", "1", "2"),
            ("--keepalive", "1", "2"),
            ("--rules", "a", "b"),
            ("--http-keys", "1", "2"),
            ("--slow", "1", "2"),
            ("--max-connections", "1", "2"),
            ("--control", "a", "b"),
            ("--control-group", "a", "b"),
            ("--log", "info", "debug"),
            ("--check", "a", "b"),
            ("--check-rules", "a", "b"),
        ];
        for (option, first, second) in with_the_last {
            let last = parse(&[option, second]);
            assert_eq!(parse(&[option, first, option, second]), last, "{option}");
            assert_ne!(parse(&[option, first]), last, "{option}");
        }
        let with_all = [
            ("--allow", "10.0.0.0/8", "::1"),
            ("--max-hold", "a=1", "b=2"),
            ("--http", "127.0.0.1:1", "127.0.0.1:2"),
            ("--http-allow", "10.0.0.0/8", "::1"),
        ];
        for (option, first, second) in with_all {
            let both = parse(&[option, first, option, second]);
            for one in [first, second] {
                assert_ne!(parse(&[option, one]), both, "{option}");
            }
            assert_ne!(parse(&[option, second, option, first]), both, "{option}");
        }
        let flags = ["--private", "--check-options", "--reload"];
        for option in flags {
            assert_eq!(parse(&[option, option]), parse(&[option]), "{option}");
        }
        let with_values = with_the_last.iter().chain(&with_all).map(|(option, ..)| *option);
        let tried: BTreeSet<&str> = with_values.chain(flags).collect();
        let command = Task::command();
        let serves = |option: &&Arg| {
            let is_text = matches!(option.get_action(), ArgAction::Help | ArgAction::Version);
            !option.is_hide_set() && !is_text
        };
        let shown = command.get_arguments().filter(serves);
        let names = shown.filter_map(|option| option.get_long().map(|name| format!("--{name}")));
        assert_eq!(tried, names.collect::<Vec<_>>().iter().map(String::as_str).collect());
    }

    #[test]
    fn what_excludes_serving_excludes_each_other() {
        let command = Instead::augment_args(Command::new(""));
        let word = |option: &Arg| {
            let name = option.get_long().expect("a name");
            let value = if option.get_action().takes_values() { "=5" } else { "" };
            format!("--{name}{value}")
        };
        let words: Vec<String> = command.get_arguments().map(word).collect();
        for one in &words {
            let task = Task::from_words(["poolcounterd", one]).expect("one is valid");
            assert!(!matches!(task, Task::Serve(_)), "{one}");
            for other in words.iter().filter(|other| *other != one) {
                let error = Task::from_words(["poolcounterd", one, other]).expect_err("two");
                assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{one} {other}");
            }
        }
        // Another image would be asked to ask, and not to serve.
        let twice = ["poolcounterd", "--read-snapshot", "--read-snapshot"];
        assert!(Task::from_words(twice).is_err());
    }

    #[test]
    fn a_list_of_rules_in_one_option_is_found() {
        for (value, expected) in [
            ("*=1,b=2", true),
            ("a:*=600;b:*=60", true),
            ("a=1,b=2,c=3", true),
            ("a=10m,b=2", true),
            ("a,b=2", false),
            ("a=b,c=2", false),
            ("*:userlang=5=2", false),
            ("*=600", false),
        ] {
            assert_eq!(has_several(&Rule::parse_max_hold(value).unwrap()), expected, "{value}");
        }
    }

    #[test]
    fn a_reload_without_options_keeps_the_old_ones() {
        for words in
            ["--reload", "--reload --control /run/c", "--control=/c --reload", "--reload --"]
        {
            assert_eq!(after_reload(words), Ok(None), "{words}");
        }
        // A variable that is not set.
        assert_eq!(arguments_after_reload(&["--reload".into(), String::new()], "/run/c"), Ok(None));
    }

    #[test]
    fn a_reload_with_options_makes_them_the_new_ones_and_keeps_the_control_socket() {
        for (words, expected) in [
            ("--reload -l ::", "--control=/run/c -l ::"),
            ("--reload --port 1 --", "--control=/run/c --port 1 --"),
            ("--control /c --rules /r --reload -p1", "--control /c --rules /r -p1"),
            ("--reload --private --control=/c", "--private --control=/c"),
        ] {
            assert_eq!(after_reload(words), Ok(Some(expected.to_owned())), "{words}");
        }
    }

    #[test]
    fn a_reload_by_a_relative_path_is_refused() {
        for (words, expected) in [
            ("--reload --rules=r", "--rules: \"r\" is a relative path"),
            ("--reload --rules ./r --control /c", "--rules: \"./r\" is a relative path"),
            ("--reload --control ../c", "--control: \"../c\" is a relative path"),
        ] {
            let why = after_reload(words).expect_err("a relative path");
            assert!(why.starts_with(expected), "{words}: {why}");
        }
    }

    /// By this a reload knows them.
    #[test]
    fn options_with_a_path_say_so() {
        let command = Task::command();
        let serves = |option: &&Arg| option.get_help_heading() != Some(group::INSTEAD);
        for option in command.get_arguments().filter(serves) {
            let value = option.get_value_names().map(|names| names[0].as_str());
            let is_path = value.is_some_and(|value| ["FILE", "PATH"].contains(&value));
            assert_eq!(option.get_value_hint() == ValueHint::FilePath, is_path, "{option}");
        }
    }
}
