//! Does what the machine decides, one act after the other, blocking.

mod about_key;
mod connection;
mod descendants;
mod failure;
mod job;
mod notice;
mod uptime;

use self::about_key::about_key;
use self::connection::Connection;
use self::failure::failure;
use self::job::RunningJob;
use self::notice::WaitNotice;
use super::KEY_VARIABLE;
use super::act::{AboutKey, Act, Answer, Event, Failure, Uptime};
use super::ending::Ending;
use super::line::Subject;
use super::machine::Machine;
use super::moment::Moment;
use super::plan::{Plan, Talk};
use super::request::LockRequest;
use super::stderr_thread::StderrThread;
use crate::every_server::ask_each;
use crate::server_list::{ServerList, VARIABLE};
use connect::{LookUp, Place, ServerName, Stream};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// When a wait is told of: if that is asked for, and on a terminal.
const TOLD_AFTER: Duration = Duration::from_millis(300);
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// What is asked, of whom, and what runs then.
pub(super) struct Task<'a> {
    pub(super) list: &'a ServerList,
    pub(super) plan: Plan,
    pub(super) request: LockRequest,
    pub(super) command: &'a [OsString],
}

/// Now.
#[allow(clippy::disallowed_methods, reason = "an Instant stands still while the host sleeps")]
fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment(Duration::try_from(time).unwrap_or_default())
}

/// Asks for the lock, and runs the command; returns how it ended, or why it did not run.
pub(super) fn drive(task: &Task<'_>, stderr: &StderrThread) -> Ending {
    let key = String::from_utf8_lossy(&task.request.key).into_owned();
    let subject = Subject { key, command: task.command[0].clone() };
    let mut machine = Machine::new(task.plan.clone(), now());
    let mut driver = Driver { task, stderr, look_up: None, connection: None, job: None };
    let mut event = Event::Begun;
    loop {
        let (lines, act) = machine.next(event, now());
        for line in lines {
            stderr.print(&subject.text(&line));
        }
        event = match act {
            Act::End(ending) => return ending,
            act => driver.perform(act),
        };
    }
}

struct Driver<'a> {
    task: &'a Task<'a>,
    stderr: &'a StderrThread,
    /// That has not ended.
    look_up: Option<(ServerName, LookUp)>,
    /// On which the lock is asked for, or held.
    connection: Option<Connection>,
    job: Option<RunningJob>,
}

impl Driver<'_> {
    fn perform(&mut self, act: Act) -> Event {
        match act {
            Act::LookUp { server, until } => Event::LookedUp(self.look_up(&server, until)),
            Act::Connect { address, until } => Event::Connected(self.connect(address, until)),
            Act::Ask { server, wait_s, until } => self.ask(server, wait_s, until),
            Act::AskUptime { server, since, until } => {
                Event::Uptime(self.ask_uptime(server, since, until))
            }
            Act::Pause { until } => {
                thread::sleep(until.since(now()));
                Event::Done
            }
            Act::StartIfHeld => self.start_if_held(),
            Act::StartWithoutLock => {
                // A server that was passed over may have answered last.
                self.connection = None;
                self.start()
            }
            Act::Watch { what, until } => {
                let job = self.job.as_mut().expect("a job");
                Event::Woke(job.watch(what, until, self.connection.as_ref()))
            }
            Act::Terminate => {
                let job = self.job.as_mut().expect("a job");
                Event::Terminated(job.terminate())
            }
            Act::Kill => {
                self.job().kill();
                Event::Done
            }
            Act::PassOn(signals) => {
                self.job().pass_on(&signals);
                Event::Done
            }
            Act::Release { until } => Event::Released(self.lock().release(until)),
            Act::AwaitReleased { until } => Event::Released(self.lock().await_released(until)),
            Act::AskAboutKey(server) => {
                let about = about_key(&server, &self.task.request.key);
                Event::AboutKey(about.map_or_else(AboutKey::default, |report| (&report).into()))
            }
            Act::AskWhoAnswers(servers) => Event::Answering(first_that_answers(&servers)),
            Act::End(_) => unreachable!("the loop ends"),
        }
    }

    /// One resolver is waited for at a time: it may take longer than an act.
    fn look_up(&mut self, server: &ServerName, until: Moment) -> Result<Vec<SocketAddr>, Failure> {
        let look_up = match self.look_up.take() {
            Some((of, begun)) if of == *server => begun,
            _ => LookUp::begin(server).map_err(|e| failure(&e))?,
        };
        let found = look_up.wait(until.since(now())).unwrap_or_else(|| {
            self.look_up = Some((server.clone(), look_up));
            Err(LookUp::too_late())
        });
        found.map_err(|e| failure(&e))
    }

    fn connect(&mut self, address: SocketAddr, until: Moment) -> Result<(), Failure> {
        self.connection = None;
        let stream = Stream::to(&address, until.since(now())).map_err(|e| failure(&e))?;
        let connection = Connection::new(stream);
        connection.watch_the_host();
        self.connection = Some(connection);
        Ok(())
    }

    fn ask(&mut self, server: ServerName, wait_s: Option<u64>, until: Option<Moment>) -> Event {
        let line = self.task.request.line(wait_s);
        let _notice = self.notice(server);
        let connection = self.connection.as_ref().expect("a connection");
        let answer = connection.ask(&line, until);
        if !matches!(answer, Ok(Answer::Locked)) {
            self.connection = None;
        }
        Event::Answered(answer)
    }

    fn ask_uptime(
        &mut self,
        server: ServerName,
        since: Moment,
        until: Option<Moment>,
    ) -> Result<Uptime, Failure> {
        let _notice = self.notice(server);
        let connection = self.connection.as_ref().expect("a connection");
        let uptime = connection.ask_uptime(since, until);
        if uptime.is_err() {
            self.connection = None;
        }
        uptime
    }

    /// Tells of the wait while it lasts, if somebody reads that.
    fn notice(&self, server: ServerName) -> Option<WaitNotice> {
        let (is_told, after) = match self.task.plan.talk {
            Talk::Verbose => (true, TOLD_AFTER),
            Talk::Usual => (io::stderr().is_terminal(), SHOWN_AFTER),
            Talk::Quiet => (false, SHOWN_AFTER),
        };
        let begin = || {
            let key = self.task.request.key.clone();
            WaitNotice::begin(server, key, after, self.stderr.note())
        };
        is_told.then(begin)
    }

    fn start_if_held(&mut self) -> Event {
        let connection = self.connection.as_ref().expect("a connection");
        if let Err(why) = connection.check_held() {
            self.connection = None;
            return Event::LostBeforeStart(why);
        }
        self.start()
    }

    fn start(&mut self) -> Event {
        let mut command = self.command();
        match RunningJob::start(&mut command, self.connection.as_ref(), self.task.plan.on_lost) {
            Ok((job, guard)) => {
                self.job = Some(job);
                Event::Started(guard)
            }
            Err(why) => Event::NotStarted(why),
        }
    }

    fn command(&self) -> Command {
        let Task { list, request, command: words, .. } = self.task;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        // That of a run around this one is about another lock.
        command.env_remove(KEY_VARIABLE);
        if self.connection.is_some() {
            command.env(KEY_VARIABLE, OsStr::from_bytes(&request.key));
        }
        // A run in the command asks the same servers, wherever this one has them from.
        if !list.is_this_host {
            let names: Vec<&str> = list.servers.iter().map(ServerName::as_str).collect();
            command.env(VARIABLE, names.join(" "));
        }
        command
    }

    fn job(&self) -> &RunningJob {
        self.job.as_ref().expect("a job")
    }

    fn lock(&self) -> &Connection {
        self.connection.as_ref().expect("a lock")
    }
}

fn first_that_answers(servers: &[ServerName]) -> Option<ServerName> {
    let answers = ask_each(servers, |server| Place::Server(server.clone()).uptime().is_ok());
    let answering = servers.iter().zip(answers).find(|(_, answers)| *answers);
    answering.map(|(server, _)| server.clone())
}
