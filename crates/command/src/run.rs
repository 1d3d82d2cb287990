//! `run`, a command under a lock: options, the request, the command's environment, what happens
//! without a server or when it does not admit this host.

mod descendants;
mod job;
mod notice;
mod stderr_thread;
mod waiting;

use self::job::{Job, JobContext, JobEnd, OnLost};
use self::notice::{about_key, holders, limiting_rule};
use self::stderr_thread::StderrThread;
use self::waiting::{Waited, wait_for_lock};
use super::duration::parse_bounded_duration;
use super::every_server::ask_each;
use super::lock_client::{Client, Error, Lock, LockRequest, Outcome};
use super::server_list::{ServerList, VARIABLE};
use super::status;
use super::unsafe_calls::{Signals, check_death_signal, end_as_first_process, end_by};
use connect::{ServerName, uptime};
use protocol::reports::KeyReport;
use protocol::time_from_text;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Behind each line if no list names a server: a daemon on each host would be a lock on each.
const ON_THIS_HOST: &str = " (no list of servers: 127.0.0.1 is asked)";

/// In the command's environment, while there is a lock.
const KEY_VARIABLE: &str = "POOLCOUNTER_KEY";

/// How long processes may ignore SIGTERM.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// Below the options of `run`.
pub(super) const AFTER_HELP: &str = "\
Exit status: the command's own (128+N if signal N ended it); or
  0   --any: another client did the work, the command was not run
  1   the time is over or the queue is full (-E sets another)
  64  the command line is not valid, or the server's name has several addresses
  69  the command can't be executed
  74  the lock was lost, and --on-lost kill stopped the command
  75  no server answers (--no-server run runs the command without a lock), or
      it does not admit this host, or an operator has ended the wait, or a
      rule denies the key
  76  the server's answer is invalid";

/// Headings of the options.
mod group {
    pub(super) const LOCK: &str = "The lock";
    pub(super) const WAIT: &str = "The wait";
    pub(super) const SERVERS: &str = "Servers that fail";
    pub(super) const MESSAGES: &str = "Messages";
}

/// What happens when no server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum NoServer {
    /// Run the command without a lock.
    Run,
    /// Don't run it.
    Fail,
}

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunOptions {
    /// How many clients may hold the key at once.
    #[arg(short = 'n', long, value_name = "WORKERS", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = group::LOCK)]
    workers: u32,

    /// How many clients may hold the key or wait for it, including this one.
    /// [default: any number]
    #[arg(short, long, value_name = "QUEUE", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = group::LOCK)]
    queue: Option<u32>,

    /// Another holder's finished work will do: if a holder releases the lock during the wait,
    /// exit with 0 and do not run the command.
    #[arg(long, help_heading = group::LOCK)]
    any: bool,

    /// How long to wait for the lock, rounded up to whole seconds; 0 means no wait.
    /// [default: for ever]
    #[arg(short, long, value_name = "TIME", value_parser = time_from_text,
          allow_negative_numbers = true, help_heading = group::WAIT)]
    timeout: Option<Duration>,

    /// Exit status when the lock is not given, because the time is over or the queue is full.
    #[arg(short = 'E', long, value_name = "STATUS", default_value_t = status::CONFLICT,
          help_heading = group::WAIT)]
    conflict_exit_code: u8,

    /// What to do when no server that may be asked answers.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = NoServer::Fail,
          help_heading = group::SERVERS)]
    no_server: NoServer,

    /// When the key's own server is down, ask the next one of the list, as MediaWiki does: the
    /// command may then run while another client has the lock.
    #[arg(long, help_heading = group::SERVERS)]
    fallback: bool,

    /// How long a server may accept no connection, or be away during the wait, before it counts as
    /// down. [default: 30, or what is left of --timeout, but at least 2]
    #[arg(long, value_name = "TIME", value_parser = parse_bounded_duration,
          allow_negative_numbers = true, help_heading = group::SERVERS)]
    connect_timeout: Option<Duration>,

    /// What to do when the connection, and with it the lock, is lost while the command
    /// runs.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Warn,
          help_heading = group::SERVERS)]
    on_lost: OnLost,

    /// With --on-lost kill: the time between SIGTERM and SIGKILL. A process that ignores
    /// SIGTERM runs that long while the lock is free.
    /// [default: 10]
    #[arg(short, long, value_name = "TIME", value_parser = time_from_text,
          allow_negative_numbers = true, help_heading = group::SERVERS)]
    kill_after: Option<Duration>,

    /// Print who holds the lock during the wait, as on a terminal after a second, and each wait
    /// whose connection was lost.
    #[arg(short, long, help_heading = group::MESSAGES)]
    verbose: bool,

    /// Print no line if the lock is not given, because the time is over or the queue is full.
    #[arg(long, conflicts_with = "verbose", help_heading = group::MESSAGES)]
    quiet: bool,

    /// What to lock.
    #[arg(
        value_name = "KEY",
        required_unless_present = "command",
        help = "What to lock. For one that begins with a hyphen: run [OPTIONS] -- KEY -- COMMAND"
    )]
    key: Option<OsString>,

    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

impl RunOptions {
    /// With the key of `-- KEY -- COMMAND`, all of which clap takes for the command. `None`
    /// if there is no key.
    pub(super) fn with_key(mut self) -> Option<RunOptions> {
        if self.key.is_none() && self.command.len() > 2 && self.command[1] == "--" {
            self.key = Some(self.command.remove(0));
            self.command.remove(0);
        }
        self.key.as_ref().is_some_and(|key| !key.is_empty()).then_some(self)
    }
}

/// Runs the command; returns its exit status, or that of why it did not run.
pub(super) fn run(list: &ServerList, options: &RunOptions) -> ExitCode {
    let stderr = StderrThread::new(if list.is_this_host { ON_THIS_HOST } else { "" });
    end_as_first_process();
    let ended = match request(options) {
        Ok(request) => {
            let client = client(list.servers.clone(), options);
            let run = Run { list, options, stderr: &stderr };
            run.under_lock(&client, &request).unwrap_or_else(|why| run.without_lock(&why))
        }
        Err(why) => {
            stderr.print(&why);
            RunEnd::Status(status::USAGE)
        }
    };
    stderr.finish();
    ended.code()
}

/// How `run` ends.
enum RunEnd {
    Status(u8),
    /// By the signal that has ended the command.
    By(i32),
}

impl RunEnd {
    fn code(self) -> ExitCode {
        match self {
            RunEnd::Status(code) => ExitCode::from(code),
            RunEnd::By(signal) => end_by(signal),
        }
    }
}

fn client(servers: Vec<ServerName>, options: &RunOptions) -> Client {
    let client = Client::new(servers, options.connect_timeout);
    if options.fallback { client.with_fallback() } else { client }
}

/// # Errors
/// The options contradict one another.
fn request(options: &RunOptions) -> Result<LockRequest, String> {
    if options.kill_after.is_some() && options.on_lost != OnLost::Kill {
        return Err("--kill-after has a meaning only with --on-lost kill".to_owned());
    }
    if options.any && options.timeout == Some(Duration::ZERO) {
        return Err("--any waits for another client's work, which --timeout 0 does not".to_owned());
    }
    if let Some(queue) = options.queue.filter(|&queue| queue < options.workers) {
        let workers = options.workers;
        return Err(format!(
            "--queue {queue} counts those that hold the key too, so it can't be less than \
             --workers {workers}"
        ));
    }
    let key = options.key.as_deref().unwrap_or_default().as_bytes();
    let mut request = LockRequest::new(key).workers(options.workers);
    if let Some(queue) = options.queue {
        request = request.max_queue(queue);
    }
    if let Some(timeout) = options.timeout {
        request = request.timeout(timeout);
    }
    Ok(if options.any { request.any() } else { request })
}

/// What a command is run with.
struct Run<'a> {
    list: &'a ServerList,
    options: &'a RunOptions,
    stderr: &'a StderrThread,
}

impl Run<'_> {
    fn under_lock(&self, client: &Client, request: &LockRequest) -> Result<RunEnd, NoLock> {
        let Run { options, stderr, .. } = *self;
        let key = request.key();
        let shown = String::from_utf8_lossy(key);
        let Waited { outcome, server } =
            wait_for_lock(client, request, (options.verbose, options.quiet), stderr);
        let why = match outcome {
            Ok(Outcome::Locked(lock)) => {
                if options.any && options.verbose {
                    stderr.print(&format!("{shown}: no other client did the work"));
                }
                return Ok(self.execute(Some(lock)));
            }
            Ok(Outcome::Done) => {
                if options.verbose {
                    let command = &options.command[0];
                    stderr.print(&format!(
                        "{shown}: another client did the work; {command:?} was not run"
                    ));
                }
                return Ok(RunEnd::Status(0));
            }
            Ok(Outcome::QueueFull) => {
                let report = server.and_then(|server| about_key(&server, key)).unwrap_or_default();
                // Nobody else does it either.
                if let Some(rule) = report.denied_by {
                    let command = &options.command[0];
                    let why = format!("denied by rule {rule}; {command:?} was not run");
                    stderr.print(&format!("{shown}: {why}"));
                    return Ok(RunEnd::Status(status::NO_SERVER));
                }
                match limiting_rule(&report, &["maxqueue=", "total="]) {
                    Some((setting, rule)) => format!("limited by rule {rule}: {setting}"),
                    None => "the queue is full".to_owned(),
                }
            }
            Ok(Outcome::TimedOut) => {
                let report = server.and_then(|server| about_key(&server, key));
                late(&report.unwrap_or_default(), options)
            }
            Err(e) => return Err(no_lock(&e, client, request, options)),
        };
        if !options.quiet {
            stderr.print(&format!("{shown}: {why}; {:?} was not run", options.command[0]));
        }
        Ok(RunEnd::Status(options.conflict_exit_code))
    }

    fn without_lock(&self, no_lock: &NoLock) -> RunEnd {
        let Run { options, stderr, .. } = *self;
        let (why, command) = (&no_lock.why, &options.command[0]);
        if no_lock.is_down && options.no_server == NoServer::Run {
            stderr.print(&format!("{why}; running {command:?} without a lock"));
            return self.execute(None);
        }
        stderr.print(&format!("{why}; {command:?} was not run"));
        RunEnd::Status(no_lock.status)
    }

    fn execute(&self, lock: Option<Lock>) -> RunEnd {
        let Run { list, options, stderr } = *self;
        let mut command = Command::new(&options.command[0]);
        command.args(&options.command[1..]);
        // That of a run around this one is about another lock.
        command.env_remove(KEY_VARIABLE);
        if let Some(lock) = &lock {
            command.env(KEY_VARIABLE, OsStr::from_bytes(lock.key()));
        }
        // A run in the command asks the same servers, wherever this one has them from.
        if !list.is_this_host {
            let names: Vec<&str> = list.servers.iter().map(ServerName::as_str).collect();
            command.env(VARIABLE, names.join(" "));
        }
        if let Err(e) = check_death_signal() {
            stderr.print(&format!(
            "prctl(PR_SET_PDEATHSIG): {e}: if this process is killed, the command runs on without \
             a lock"
        ));
        }
        let signals = match Signals::block() {
            Ok(signals) => signals,
            Err(e) => {
                stderr.print(&format!("{e}; {:?} was not run", options.command[0]));
                return RunEnd::Status(status::NOT_EXECUTED);
            }
        };
        let (on_lost, kill_after) = (options.on_lost, options.kill_after.unwrap_or(KILL_AFTER));
        let with =
            JobContext { signals: &signals, lock: lock.as_ref(), on_lost, kill_after, stderr };
        let (ended, was_lost, was_stopped) = match Job::start(with, &mut command) {
            Ok(mut job) => (job.wait(), job.was_lost, job.was_stopped),
            Err(e) => {
                stderr.print(&format!("can't execute {:?}: {e}", options.command[0]));
                return RunEnd::Status(status::NOT_EXECUTED);
            }
        };
        give_back(lock, ended, was_lost, stderr);
        match ended {
            _ if was_stopped => RunEnd::Status(status::LOST),
            JobEnd::Exited(code) => RunEnd::Status(code),
            JobEnd::Killed(signal) => RunEnd::By(signal),
        }
    }
}

/// As `locked by 10.1.2.9 for 3m 10s`; after a wait, that it timed out.
fn late(key: &KeyReport, options: &RunOptions) -> String {
    let holders = holders(key);
    if options.timeout == Some(Duration::ZERO) {
        return format!("locked{}", holders.unwrap_or_default());
    }
    let held = holders.map_or(String::new(), |holders| format!("; held{holders}"));
    format!("timed out{}{held}", shortened(key, options).unwrap_or_default())
}

/// As `; the wait was shortened to 1s by rule st`, if a rule did that.
fn shortened(key: &KeyReport, options: &RunOptions) -> Option<String> {
    let (setting, rule) = limiting_rule(key, &[TIMEOUT])?;
    let text = setting.strip_prefix(TIMEOUT)?;
    let time = time_from_text(text).ok()?;
    let is_shorter = options.timeout.is_none_or(|wanted| time < wanted);
    is_shorter.then(|| format!("; the wait was shortened to {text} by rule {rule}"))
}

/// The setting of a rule that shortens waits.
const TIMEOUT: &str = "timeout=";

/// Why there is neither a lock nor an answer.
struct NoLock {
    why: String,
    /// No server of the list answers, so none is known to have the lock.
    is_down: bool,
    status: u8,
}

impl NoLock {
    fn new(e: &Error, key: &[u8]) -> NoLock {
        let why = match e {
            // They name it.
            Error::Lost { .. } | Error::TurnedAway { .. } => e.to_string(),
            _ => format!("{}: {e}", String::from_utf8_lossy(key)),
        };
        let (is_down, status) = match e {
            Error::NoServer(_) | Error::Lost { .. } => (true, status::NO_SERVER),
            Error::TurnedAway { .. } => (false, status::NO_SERVER),
            Error::Refused(_) | Error::SeveralAddresses { .. } => (false, status::USAGE),
            Error::Unexpected(_) => (false, status::PROTOCOL),
        };
        NoLock { why, is_down, status }
    }

    /// When the time is over, some servers may not have been asked.
    fn unless_one_answers(mut self, tried: &[ServerName]) -> NoLock {
        if let Some(server) = first_that_answers(tried) {
            self.is_down = false;
            self.why += &format!("; but {server} answers");
        }
        self
    }
}

fn no_lock(e: &Error, client: &Client, request: &LockRequest, options: &RunOptions) -> NoLock {
    let no_lock = NoLock::new(e, request.key());
    if !matches!(e, Error::Lost { .. }) || options.no_server == NoServer::Fail {
        return no_lock;
    }
    no_lock.unless_one_answers(&client.order(request.key()).cloned().collect::<Vec<_>>())
}

fn first_that_answers(servers: &[ServerName]) -> Option<&ServerName> {
    let answers = ask_each(servers, |server| uptime(server).is_ok());
    let answering = servers.iter().zip(answers).find(|(_, answers)| *answers);
    answering.map(|(server, _)| server)
}

/// Gives the lock back: released after success, so that waiters get `DONE`, and otherwise by
/// closing the connection.
fn give_back(lock: Option<Lock>, ended: JobEnd, was_lost: bool, stderr: &StderrThread) {
    let Some(lock) = lock else { return };
    if was_lost || ended != JobEnd::Exited(0) {
        return;
    }
    if let Err(e) = lock.release() {
        stderr.print(&format!("{e} before the command ended: another one may have run meanwhile"));
    }
}
