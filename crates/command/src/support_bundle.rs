//! `support-bundle`: saves in one text file what explains an incident, before anybody restarts
//! anything: what the daemon answers, what the kernel and systemd know about it, the journal. A
//! daemon that hangs, or is gone, costs no more than its own sections.

use super::output::{escape_controls, print, print_error};
use super::unsafe_calls::process_of;
use connect::{ServerName, StatsConnection, connect_unix, send_order};
use rustix::process::Pid;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// How long the daemon may take for an answer, and each command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Shown instead of a key or an address.
const HIDDEN: &str = "hidden";

/// Fields of JSON that have a key or an address, or text with one.
const NAMING_FIELDS: [&str; 4] = ["key", "address", "name", "detail"];

pub(super) const AFTER_HELP: &str = "\
Run it as root on the daemon's host, before anything is restarted. What can't be
read is named in its place. --private leaves out what has keys or addresses:
lists, rules, values of options, the unit's text, the journal. The names of
rules stay.";

/// What systemd knows of a unit without its command line and addresses.
const UNIT_PROPERTIES: &str = "ActiveState,SubState,Result,Type,NRestarts,ExecMainStartTimestamp,\
    ExecMainStatus,StateChangeTimestamp,MainPID,MemoryCurrent,MemoryPeak,CPUUsageNSec,TasksCurrent,\
    LimitNOFILE,Restart,WatchdogUSec,WatchdogTimestamp";

/// Options of `support-bundle`.
#[derive(Debug, clap::Args)]
pub(super) struct BundleOptions {
    /// The daemon's control socket. Without permission for it, the port of the first
    /// server is asked.
    #[arg(long = "control-socket", value_name = "PATH", default_value = connect::DEFAULT_PATH)]
    socket: PathBuf,

    /// The daemon's unit.
    #[arg(long, value_name = "UNIT", default_value = "poolcounter")]
    unit: String,

    /// Leave out or hide keys and addresses.
    #[arg(long)]
    private: bool,

    /// The file to write, which must not exist; - for standard output.
    /// [default: poolcounter-HOST-TIME.txt]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Where a section comes from.
enum Source {
    /// The daemon's answer to this request. It has keys or addresses.
    List(&'static str),
    /// The daemon's answer without either.
    Plain(&'static str),
    /// The daemon's answer in JSON.
    Json(&'static str),
    /// /proc/PID/cmdline, whose values may have keys and addresses.
    CommandLine,
    /// A file of this name in /proc/PID.
    Process(&'static str),
    /// What a command prints.
    Program(Vec<String>),
    /// The same, with keys or addresses.
    PrivateProgram(Vec<String>),
}

/// Writes the file; its name is printed.
pub(super) fn support_bundle(servers: &[ServerName], options: &BundleOptions) -> ExitCode {
    let result = match &options.file {
        Some(file) if file.as_os_str() == "-" => write(servers, options, &mut io::stdout().lock())
            .map_err(|e| format!("standard output: {e}")),
        file => write_file(servers, options, file.clone().unwrap_or_else(|| default_name(options))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

/// A file that can't be written whole is removed; one that a signal has cut has no end.
fn write_file(
    servers: &[ServerName],
    options: &BundleOptions,
    path: PathBuf,
) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    // For the owner alone: it may have keys and addresses.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let mut file = file.map_err(failed)?;
    write(servers, options, &mut file).map_err(|e| {
        let _ = fs::remove_file(&path);
        failed(e)
    })?;
    print(&path.display().to_string());
    Ok(())
}

fn default_name(options: &BundleOptions) -> PathBuf {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = if options.private { String::new() } else { format!("{host}-") };
    let time = output_of(&words(&["date", "-u", "+%Y%m%dT%H%M%SZ"]));
    PathBuf::from(format!("poolcounter-{host}{}.txt", time.unwrap_or_default().trim()))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The sections, in the order in which a reader needs them.
fn sections(unit: &str) -> Vec<Source> {
    let program = |line: &[&str]| Source::Program(words(line));
    vec![
        program(&["date", "--iso-8601=seconds"]),
        program(&["uname", "-srvm"]),
        Source::Plain("STATS FULL"),
        Source::Json("STATS JSON"),
        Source::List("STATS KEYS 200"),
        Source::List("STATS CLIENTS 200"),
        Source::List("STATS SLOW 128"),
        Source::List("STATS TOP minute keys"),
        Source::List("STATS TOP hour keys"),
        Source::List("STATS TOP hour clients"),
        Source::List("RULES"),
        Source::Plain("LOG"),
        Source::Json("STATS JSON HISTORY"),
        Source::CommandLine,
        Source::Process("status"),
        Source::Process("limits"),
        Source::Process("wchan"),
        Source::Process("stack"),
        Source::Process("cgroup"),
        program(&["systemctl", "show", "-p", UNIT_PROPERTIES, unit]),
        Source::PrivateProgram(words(&["systemctl", "cat", unit])),
        Source::PrivateProgram(words(&["systemctl", "show", unit])),
        Source::PrivateProgram(words(&["systemctl", "status", "--no-pager", "-n", "0", unit])),
        program(&["cat", "/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu"]),
        program(&["cat", "/proc/net/sockstat", "/proc/net/sockstat6"]),
        program(&["sysctl", "net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"]),
        Source::PrivateProgram(words(&[
            "journalctl",
            "-u",
            unit,
            "-n",
            "1000",
            "--no-pager",
            "-o",
            "short-iso",
        ])),
    ]
}

/// Writes section by section: what is there so far survives an interruption.
fn write(servers: &[ServerName], options: &BundleOptions, out: &mut impl Write) -> io::Result<()> {
    let mut daemon = Daemon::find(servers, options);
    writeln!(out, "poolcounter {} support bundle", env!("CARGO_PKG_VERSION"))?;
    if options.private {
        writeln!(out, "with --private: without keys and addresses")?;
    }
    for source in sections(&options.unit) {
        let title = source.title();
        let content = match source.content(&mut daemon, options.private) {
            Ok(content) if content.trim().is_empty() => "(empty)".to_owned(),
            Ok(content) => content,
            Err(why) => format!("({why})"),
        };
        let section = format!("\n== {title}\n{}\n", escape_controls(content.trim_end()));
        let section = if options.private { without_addresses(&section) } else { section };
        out.write_all(section.as_bytes())?;
    }
    writeln!(out, "\n== end")?;
    out.flush()
}

impl Source {
    fn title(&self) -> String {
        match self {
            Source::List(request) | Source::Plain(request) | Source::Json(request) => {
                (*request).to_owned()
            }
            Source::CommandLine => "/proc/PID/cmdline".to_owned(),
            Source::Process(name) => format!("/proc/PID/{name}"),
            Source::Program(words) | Source::PrivateProgram(words) => words.join(" "),
        }
    }

    /// # Errors
    /// Why there is none.
    fn content(&self, daemon: &mut Daemon, is_private: bool) -> Result<String, String> {
        match self {
            Source::List(_) | Source::PrivateProgram(_) if is_private => {
                Err("left out: --private".to_owned())
            }
            Source::List(request) | Source::Plain(request) => daemon.ask(request),
            Source::Json(request) => {
                let mut report: Value =
                    serde_json::from_str(&daemon.ask(request)?).map_err(|e| e.to_string())?;
                if is_private {
                    hide_names(&mut report);
                }
                serde_json::to_string(&report).map_err(|e| e.to_string())
            }
            Source::CommandLine if is_private => {
                daemon.process_file("cmdline").map(|it| options_in(&it))
            }
            Source::CommandLine => daemon.process_file("cmdline"),
            Source::Process(name) => daemon.process_file(name),
            Source::Program(words) | Source::PrivateProgram(words) => output_of(words),
        }
    }
}

/// The daemon, as far as it can be reached.
struct Daemon<'a> {
    options: &'a BundleOptions,
    /// Asked if the control socket can't be.
    server: Option<&'a ServerName>,
    process: Option<Pid>,
    /// It was silent: asking again would only take time.
    is_silent: bool,
}

impl Daemon<'_> {
    fn find<'a>(servers: &'a [ServerName], options: &'a BundleOptions) -> Daemon<'a> {
        let connected = connect_unix(&options.socket, PATIENCE).map(UnixStream::from);
        let process = connected.ok().and_then(process_of).or_else(|| main_process(&options.unit));
        let process = process.or_else(only_process);
        Daemon { options, server: servers.first(), process, is_silent: false }
    }

    fn ask(&mut self, request: &str) -> Result<String, String> {
        if self.is_silent {
            return Err("not asked: the daemon did not answer before".to_owned());
        }
        let socket = &self.options.socket;
        match (send_order(socket, request, PATIENCE), request.strip_prefix("STATS ")) {
            (Err(e), Some(words)) if e.kind() != io::ErrorKind::TimedOut => self.ask_port(words),
            (answer, _) => answer.map_err(|e| {
                self.is_silent = e.kind() == io::ErrorKind::TimedOut;
                format!("{}: {e}", socket.display())
            }),
        }
    }

    fn ask_port(&mut self, words: &str) -> Result<String, String> {
        let server = self.server.ok_or("no server")?;
        let answer = StatsConnection::connect(server).and_then(|mut it| it.query(words));
        answer.map_err(|e| {
            self.is_silent |= matches!(&e, connect::NoAnswer::Io(_));
            format!("{server}: {e}")
        })
    }

    fn process_file(&self, name: &str) -> Result<String, String> {
        let process = self.process.ok_or("no process of a daemon was found")?;
        let path = format!("/proc/{}/{name}", process.as_raw_nonzero());
        let content = fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
        // The words of a command line end with a zero byte each.
        Ok(String::from_utf8_lossy(&content).replace('\0', " "))
    }
}

/// As systemd knows it, which a daemon that hangs does not prevent.
fn main_process(unit: &str) -> Option<Pid> {
    let shown = output_of(&words(&["systemctl", "show", "-p", "MainPID", "--value", unit])).ok()?;
    Pid::from_raw(shown.trim().parse().ok()?)
}

/// Without permission for the socket, or for a daemon without a unit: the only process of this
/// name.
fn only_process() -> Option<Pid> {
    let is_one = |pid: &Pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
        name.is_ok_and(|name| name.trim_end() == "poolcounterd")
    };
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let pids = entries.filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?));
    let mut found = pids.filter(is_one);
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// The names of the options on a command line, which is in one line.
fn options_in(line: &str) -> String {
    let options = line.split(' ').filter(|word| word.starts_with('-'));
    let names = options.map(|word| match word.strip_prefix("--") {
        Some(_) => word.split('=').next().unwrap_or_default(),
        // Its value may stand behind it without a space.
        None => word.get(..2).unwrap_or(word),
    });
    format!("{} (values left out: --private)", names.collect::<Vec<_>>().join(" "))
}

/// What a program prints, also to standard error.
fn output_of(words: &[String]) -> Result<String, String> {
    // coreutils' timeout(1): a hung systemd must not stop the rest.
    let limit = format!("{}", PATIENCE.as_secs());
    let mut command = Command::new("timeout");
    command.arg(limit).args(words).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    let output = command.output().map_err(|e| format!("{}: {e}", words[0]))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn hide_names(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(hide_names),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if value.is_string() && NAMING_FIELDS.contains(&name.as_str()) {
                    *value = HIDDEN.into();
                } else {
                    hide_names(value);
                }
            }
        }
        _ => {}
    }
}

/// The text with each address replaced, with or without a port.
fn without_addresses(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:[]%".contains(c);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        shown += if is_address(word) { HIDDEN } else { word };
        let next = after.find(is_part).unwrap_or(after.len());
        shown += &after[..next];
        rest = &after[next..];
    }
    shown
}

/// `10.1.2.3`, `10.1.2.3:4711`, `[fe80::1%eth0]:4711`, `::1`; not `::` or a time.
fn is_address(word: &str) -> bool {
    word.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified())
        || is_address_in_text(word.trim_end_matches(['.', ':']))
}

fn is_address_in_text(word: &str) -> bool {
    let ip = |text: &str| {
        let without_zone = text.split('%').next().unwrap_or_default();
        without_zone.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified())
    };
    let host = word.rsplit_once(':').map(|(host, _)| host);
    ip(word)
        || word.parse::<SocketAddr>().is_ok()
        || host.is_some_and(|host| (host.starts_with('[') || host.contains('.')) && ip(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_hidden_and_nothing_else() {
        for (text, shown) in [
            ("from 10.1.2.3:4711, 10.1.2.4.", "from hidden, hidden"),
            ("[2001:db8::1]:7531 ::1 fe80::1%eth0", "hidden hidden hidden"),
            ("-l 10.1.2.3,192.0.2.1 --allow 10.9.0.0/16", "-l hidden,hidden --allow hidden/16"),
            ("at 12:34:56 v2.0.0 a:b 1.2.3 ::", "at 12:34:56 v2.0.0 a:b 1.2.3 ::"),
            ("2001:db8::/32 2001:db8::, from 2001:db8::1:", "hidden/32 hidden, from hidden"),
            ("", ""),
        ] {
            assert_eq!(without_addresses(text), shown);
        }
    }

    #[test]
    fn a_command_line_keeps_the_names_of_its_options() {
        let line = "/usr/bin/poolcounterd -l10.9.8.7 -l ::1 --max-hold=secret*=5 --slow 1 secret";
        let shown = "-l -l --max-hold --slow (values left out: --private)";
        assert_eq!(options_in(line), shown);
    }

    #[test]
    fn names_in_json_are_hidden_at_every_depth() {
        let mut report = json!({ "key": "k", "rows": [{ "address": "a", "holds": 1 }],
            "top": { "keys": { "by_time": [{ "name": "n" }] } }, "key_count": 3, "name": 4 });
        hide_names(&mut report);
        let expected = json!({ "key": "hidden", "rows": [{ "address": "hidden", "holds": 1 }],
            "top": { "keys": { "by_time": [{ "name": "hidden" }] } }, "key_count": 3, "name": 4 });
        assert_eq!(report, expected);
    }
}
