//! `run`, a command under a lock: its options, and what they come to. `machine` decides, `driver`
//! does it.

mod act;
mod driver;
mod ending;
#[cfg(test)]
mod judge;
mod line;
mod machine;
mod moment;
mod plan;
mod request;
mod stderr_thread;

use self::driver::{Task, drive};
use self::ending::ExitBy;
use self::plan::{NoServer, OnLost, Plan, Talk};
use self::request::{LockRequest, wait_s};
use self::stderr_thread::StderrThread;
use super::duration::parse_bounded_duration;
use super::order::order;
use super::server_list::ServerList;
use super::shown_key::cut;
use super::status;
use super::unsafe_calls::{end_as_first_process, end_by};
use protocol::{Mode, UNLIMITED, time_from_text};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

/// Behind each line if no list names a server: a daemon on each host would be a lock on each.
const ON_THIS_HOST: &str = " (no list of servers: 127.0.0.1 is asked)";

/// In the command's environment, while there is a lock.
const KEY_VARIABLE: &str = "POOLCOUNTER_KEY";

/// How much is shown of a key that is refused, perhaps for its length.
const REFUSED_KEY_COLUMNS_MAX: usize = 80;

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

/// What happens to the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LossAction {
    /// Print a warning; the command continues.
    Warn,
    /// Stop the command and all that it has started: SIGTERM, then SIGKILL.
    Kill,
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
    /// down. With --timeout at most what is left of that, but at least 2. [default: 30]
    #[arg(long, value_name = "TIME", value_parser = parse_bounded_duration,
          allow_negative_numbers = true, help_heading = group::SERVERS)]
    connect_timeout: Option<Duration>,

    /// What to do when the connection, and with it the lock, is lost while the command
    /// runs.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = LossAction::Warn,
          help_heading = group::SERVERS)]
    on_lost: LossAction,

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
    let exit_by = match options.task(list) {
        Ok(task) => drive(&task, &stderr).exit_by(options.conflict_exit_code),
        Err(why) => {
            stderr.print(&why);
            ExitBy::Status(status::USAGE)
        }
    };
    stderr.finish();
    match exit_by {
        ExitBy::Status(code) => ExitCode::from(code),
        ExitBy::Signal(signal) => end_by(signal),
    }
}

impl RunOptions {
    /// # Errors
    /// The options contradict one another, or the server could not read the request.
    fn task<'a>(&'a self, list: &'a ServerList) -> Result<Task<'a>, String> {
        self.check()?;
        let key = self.key.as_deref().unwrap_or_default().as_bytes().to_vec();
        let plan = self.plan(list, &key);
        let request = LockRequest {
            key,
            mode: if self.any { Mode::ForAnyone } else { Mode::ForMe },
            workers: self.workers,
            max_queue: plan.max_queue,
        };
        request.check(plan.wait_s).map_err(|why| {
            let key = String::from_utf8_lossy(&request.key);
            let shown = cut(&key, REFUSED_KEY_COLUMNS_MAX, false);
            format!("{shown}: {why}; {:?} was not run", self.command[0])
        })?;
        Ok(Task { list, plan, request, command: &self.command })
    }

    fn check(&self) -> Result<(), String> {
        if self.kill_after.is_some() && self.on_lost != LossAction::Kill {
            return Err("--kill-after has a meaning only with --on-lost kill".to_owned());
        }
        if self.any && self.timeout == Some(Duration::ZERO) {
            let why = "--any waits for another client's work, which --timeout 0 does not";
            return Err(why.to_owned());
        }
        match self.queue.filter(|&queue| queue < self.workers) {
            Some(queue) => Err(format!(
                "--queue {queue} counts those that hold the key too, so it can't be less than \
                 --workers {}",
                self.workers
            )),
            None => Ok(()),
        }
    }

    fn plan(&self, list: &ServerList, key: &[u8]) -> Plan {
        let tries_max = if self.fallback { usize::MAX } else { 1 };
        let servers = order(&list.servers, key).into_iter().take(tries_max).cloned();
        Plan {
            servers: servers.collect(),
            has_fallback: self.fallback,
            wait_s: self.timeout.map(wait_s),
            is_any: self.any,
            max_queue: self.queue.unwrap_or(UNLIMITED),
            is_own_key: self.workers == 1
                && std::env::var_os(KEY_VARIABLE).is_some_and(|own| own.as_bytes() == key),
            connect_timeout: self.connect_timeout,
            no_server: self.no_server,
            on_lost: match self.on_lost {
                LossAction::Warn => OnLost::Warn,
                LossAction::Kill => OnLost::Kill { after: self.kill_after.unwrap_or(KILL_AFTER) },
            },
            talk: match (self.quiet, self.verbose) {
                (true, _) => Talk::Quiet,
                (false, true) => Talk::Verbose,
                (false, false) => Talk::Usual,
            },
        }
    }
}
