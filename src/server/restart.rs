//! Hot restart: the daemon hands everything to a new binary in the same process.
//!
//! Two phases. First, while the loop serves on, a child that is given nothing but
//! a trial snapshot asks the new binary whether it could go on from there
//! ([`Trial`]). Only if it can: the final snapshot, close-on-exec cleared, exec
//! ([`execute`]). Whatever fails, the old image goes on as if nothing had been.

use super::clock;
use super::options::Options;
use super::snapshot::{self, ListenerState, Snapshot};
use super::{listener, sys, unix_socket};
use crate::engine::{Engine, Time};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs::File;
use std::hash::RandomState;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Says to the new image where its snapshot is: `PID:DESCRIPTOR`. With our own
/// process id in it, a variable that strayed elsewhere means nothing.
const HANDOFF_VARIABLE: &str = "POOLCOUNTERD_HANDOFF";

/// How long the new binary may think about a trial snapshot. Reading that of
/// 10,000 connections takes some ten milliseconds.
const TRIAL_LIMIT_S: u64 = 5;

/// Where the new binary will be, decided when this one starts: the path that it
/// was started by, so that a file that replaced it there is what runs.
pub(super) fn program_path() -> io::Result<PathBuf> {
    let Some(name) = std::env::args_os().next() else {
        return std::env::current_exe();
    };
    let path = Path::new(&name);
    if path.components().count() > 1 {
        return std::path::absolute(path);
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories).map(|dir| dir.join(path)).find(|p| p.is_file());
    found.map_or_else(std::env::current_exe, std::path::absolute)
}

/// Which file a path means: to notice when it is replaced meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

fn identity_of(path: &Path) -> io::Result<FileIdentity> {
    let meta = std::fs::metadata(path)?;
    let modified = (meta.mtime(), meta.mtime_nsec());
    Ok(FileIdentity { device: meta.dev(), inode: meta.ino(), modified })
}

/// A new binary that is being asked whether it could go on.
pub(super) struct Trial {
    child: Child,
    /// Readable when the child has ended.
    pub(super) pidfd: OwnedFd,
    expected_answer: String,
    binary: FileIdentity,
    /// The command line of the new image.
    pub(super) arguments: Vec<OsString>,
    /// When the child is given up.
    pub(super) deadline: Time,
}

impl Trial {
    /// Starts asking.
    ///
    /// # Errors
    /// Why the new binary can't even be asked.
    pub(super) fn start(
        program: &Path,
        arguments: Vec<OsString>,
        snapshot: &Snapshot,
    ) -> io::Result<Self> {
        let text = snapshot.write();
        let binary = identity_of(program)?;
        let mut child = Command::new(program)
            .arg("--read-snapshot")
            .args(&arguments)
            .env_clear()
            .stdin(snapshot_file(&text)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pidfd = watch(&child).inspect_err(|_| end(&mut child))?;
        Ok(Trial {
            child,
            pidfd,
            expected_answer: answer_for(&text),
            binary,
            arguments,
            deadline: clock::now().plus_seconds(TRIAL_LIMIT_S),
        })
    }

    /// What came of it, once the child has ended or its time is up.
    ///
    /// # Errors
    /// Why the new binary is not to be trusted with the daemon's state.
    pub(super) fn verdict(mut self, program: &Path) -> Result<Vec<OsString>, String> {
        let status = self.child.try_wait();
        let Ok(Some(status)) = status else {
            end(&mut self.child);
            return Err(format!("the new binary did not answer within {TRIAL_LIMIT_S} s"));
        };
        let mut answer = [0; 4096];
        let stdout = self.child.stdout.as_mut();
        let len = stdout.and_then(|pipe| pipe.read(&mut answer).ok()).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..len]);
        let answer = answer.trim_end();
        if !status.success() || answer != self.expected_answer {
            let said = if answer.is_empty() { "nothing".into() } else { format!("{answer:?}") };
            return Err(format!("the new binary can't go on from here: {status}, it said {said}"));
        }
        if identity_of(program).ok() != Some(self.binary) {
            return Err("the new binary was replaced while it was being asked".to_owned());
        }
        Ok(self.arguments)
    }

    /// Forgets it: something else matters more now.
    pub(super) fn abandon(mut self) {
        end(&mut self.child);
    }
}

fn watch(child: &Child) -> io::Result<OwnedFd> {
    if let Some(stdout) = &child.stdout {
        // Whoever else the child may have started can't keep us waiting.
        rustix::io::ioctl_fionbio(stdout, true)?;
    }
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

/// Ends the child and leaves no zombie.
fn end(child: &mut Child) {
    // Both fail only when it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// The child's part: reads a trial snapshot from standard input and returns what
/// is to be printed: that the daemon could go on from there with `options`.
///
/// # Errors
/// Why not; to be printed as well.
pub fn read_trial_snapshot(options: &Options) -> Result<String, String> {
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text).map_err(|e| e.to_string())?;
    let listeners = read_back(&text)?;
    if options.reload || options.check.is_some() {
        return Err("a daemon can't go on with --reload or --check".to_owned());
    }
    if let Some(group) = &options.control_group {
        unix_socket::group_id(group).map_err(|e| e.to_string())?;
    }
    let addresses = options.listen.as_deref();
    listener::check_addresses(addresses, options.port, &listeners).map_err(|e| e.to_string())?;
    Ok(answer_for(&text))
}

fn answer_for(text: &[u8]) -> String {
    let version = snapshot::NEWEST;
    format!("can go on from snapshot {:016x} of version {version} or older", snapshot::digest(text))
}

/// Reads a snapshot as the new image will, up to its descriptors. What is of use
/// afterwards are the listeners.
fn read_back(text: &[u8]) -> Result<Vec<ListenerState>, String> {
    let snapshot = Snapshot::read(text).map_err(|e| e.to_string())?;
    Engine::from_image(snapshot.engine, RandomState::new(), clock::now())
        .map_err(|e| snapshot::SnapshotError::from(e).to_string())?;
    Ok(snapshot.listeners)
}

/// The second phase. Returns only when it failed; then nothing has changed.
pub(super) fn execute(
    program: &Path,
    arguments: &[OsString],
    snapshot: &Snapshot,
    descriptors: &[BorrowedFd],
) -> String {
    let text = snapshot.write();
    if let Err(e) = read_back(&text) {
        return format!("the snapshot is not readable: {e}");
    }
    let file = match snapshot_file(&text) {
        Ok(file) => file,
        Err(e) => return format!("no place for the snapshot: {e}"),
    };
    let argv0 = std::env::args_os().next().unwrap_or_else(|| program.into());
    let handoff = format!("{}:{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new(program);
    command.arg0(argv0).args(arguments).env(HANDOFF_VARIABLE, handoff);
    let mut all = descriptors.to_vec();
    all.push(file.as_fd());
    // Last of all, so that the trial's child can't have inherited anything.
    let error = match set_descriptor_flags(&all, FdFlags::empty()) {
        Ok(()) => command.exec(),
        Err(e) => e,
    };
    // We are still here. The attempt to exec has reset SIGPIPE.
    sys::ignore_sigpipe();
    let mended = set_descriptor_flags(&all, FdFlags::CLOEXEC);
    match mended {
        Ok(()) => format!("{} can't be executed: {error}", program.display()),
        Err(e) => format!("{} can't be executed: {error}; and then: {e}", program.display()),
    }
}

fn set_descriptor_flags(descriptors: &[BorrowedFd], flags: FdFlags) -> io::Result<()> {
    for fd in descriptors {
        rustix::io::fcntl_setfd(fd, flags)?;
    }
    Ok(())
}

/// The text in a file that exists in memory only, to be read from its start.
fn snapshot_file(text: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("poolcounterd-snapshot", MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

/// The snapshot that an old image of this process left for us, if one did.
///
/// # Errors
/// Why it can't be read.
pub(super) fn inherited_snapshot() -> io::Result<Option<Snapshot>> {
    let Ok(handoff) = std::env::var(HANDOFF_VARIABLE) else {
        return Ok(None);
    };
    let Some((pid, fd)) = handoff.split_once(':') else {
        return Ok(None);
    };
    if pid != std::process::id().to_string() {
        return Ok(None);
    }
    let fd = fd.parse().map_err(io::Error::other)?;
    let mut text = Vec::new();
    File::from(sys::inherited_descriptor(fd)?).read_to_end(&mut text)?;
    Snapshot::read(&text).map(Some).map_err(|e| io::Error::other(e.to_string()))
}
