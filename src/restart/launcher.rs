//! Starts a new binary, in a trial and in the restart itself: its path, the two files that it
//! gets (snapshot, answer), its arguments and environment, exec.

use crate::platform::failed_call::{named, named_unless_plain};
use crate::platform::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::platform::os::fs::{
    self, File, MemfdFlags, MetadataExt, OFlags, SealFlags, fcntl_add_seals, ftruncate,
    memfd_create,
};
use crate::platform::os::io::{
    DupFlags, Errno, FdFlags, dup3, fcntl_dupfd_cloexec, fcntl_setfd, pread,
};
use crate::platform::os::stdio::stdin;
use crate::platform::os::{env, process};
use crate::platform::{sys, terminal};
use crate::restart::restart_error::RestartError;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::num::ParseIntError;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Where the new image finds its snapshot: `PID:DESCRIPTOR`. The process id invalidates
/// the variable in any other process.
const HANDOFF_VARIABLE: &str = "POOLCOUNTERD_HANDOFF";

/// Descriptors that the new image opens before it has read its snapshot: signalfd,
/// an epoll instance, and some spare ones.
const DESCRIPTORS_NEEDED: usize = 4;

/// An answer is a line with an address for each listener, and with at most 64 rules of some
/// 400 characters, which JSON may escape. More can't be an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 18;

const SNAPSHOT_NAME: &str = "poolcounterd-snapshot";
const ANSWER_NAME: &str = "poolcounterd-answer";

/// Large, because each write is a system call.
const BUFFER_BYTES: usize = 1 << 20;

/// Starts new binaries. Made before anything else is opened, and handed on from image
/// to image.
pub(crate) struct Launcher {
    /// The path of the new binary: the one that started the first image. If the file
    /// there was replaced, the replacement runs.
    pub(crate) program: PathBuf,
    pub(crate) files: TrialFiles,
}

/// What a hot restart carries over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LauncherState {
    /// The descriptors of the two trial files.
    pub trial_fds: [RawFd; 2],
    /// Absolute path of the binary for the next hot restart.
    #[serde(with = "serde_bytes")]
    pub program: Vec<u8>,
}

impl Launcher {
    /// The file that a hot restart executes.
    ///
    /// # Errors
    /// It is not known.
    pub(crate) fn binary(&self) -> io::Result<BinaryIdentity> {
        if self.program.as_os_str().is_empty() {
            return Err(io::Error::other(UNKNOWN_PROGRAM));
        }
        let meta = fs::metadata(&self.program).map_err(named_unless_plain("statx"))?;
        let modified = (meta.mtime(), meta.mtime_nsec());
        Ok(BinaryIdentity { device: meta.dev(), inode: meta.ino(), modified })
    }

    /// Checks that a daemon without connections has descriptors for a hot restart, besides that
    /// of the operator.
    ///
    /// # Errors
    /// There are too few.
    pub(crate) fn check_descriptors() -> io::Result<()> {
        spare_descriptors(DESCRIPTORS_NEEDED + 1)
    }

    /// The launcher of a cold start.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Launcher { files: TrialFiles::reserve()?, program: program_path() })
    }

    /// What a hot restart carries over.
    pub(crate) fn state(&self) -> LauncherState {
        let program = self.program.as_os_str().as_encoded_bytes().to_vec();
        LauncherState { trial_fds: self.files.numbers(), program }
    }

    /// Continues with the old image's launcher, whose `snapshot` is read.
    pub(crate) fn resume(state: LauncherState, snapshot: OwnedFd) -> io::Result<Self> {
        let [_, answer] = state.trial_fds;
        let answer = match sys::inherited_descriptor(answer) {
            Ok(answer) => answer,
            Err(_) => file_in_memory(ANSWER_NAME, MemfdFlags::CLOEXEC)?,
        };
        let files = TrialFiles { snapshot, answer };
        files.clear();
        Ok(Launcher { files, program: PathBuf::from(OsString::from_vec(state.program)) })
    }

    /// The second phase: hands `descriptors` and the output of `write` to the program.
    /// Returns only on failure; then the files may still hold the snapshot.
    pub(crate) fn hand_over(
        &mut self,
        arguments: &[OsString],
        binary: BinaryIdentity,
        descriptors: &[BorrowedFd<'_>],
        write: impl FnOnce(&mut Out<'_>) -> io::Result<()>,
    ) -> Result<Infallible, RestartError> {
        let written = self.files.renew().and_then(|()| self.files.write_snapshot(write));
        written.map_err(RestartError::NotWritten)?;
        // An administrator may have lowered the limit since the start (prlimit(1)).
        spare_descriptors(DESCRIPTORS_NEEDED).map_err(RestartError::NoDescriptors)?;
        if self.binary().ok() != Some(binary) {
            return Err(RestartError::Replaced(self.program.clone()));
        }
        let mut all = descriptors.to_vec();
        all.extend(self.files.both());
        let error = match set_flags(&all, FdFlags::empty()) {
            Ok(()) => sys::execute(&self.program, &self.words(arguments), &self.environment()),
            Err(e) => e,
        };
        let program = self.program.clone();
        Err(match set_flags(&all, FdFlags::CLOEXEC) {
            Ok(()) => RestartError::NotExecuted(program, error),
            Err(then) => RestartError::NotUndone(program, error, then),
        })
    }

    /// Executes the program as [`Launcher::hand_over`] does, in the forked child of a
    /// trial, to read the snapshot only. Returns only on failure, with the reason.
    pub(crate) fn execute_trial(&self, arguments: &[OsString]) -> io::Error {
        if let Err(e) = self.files.keep_on_exec() {
            return e;
        }
        let mut environment = self.environment();
        // A program's notifications in a trial must not reach the service manager.
        environment.retain(|(name, _)| name != "NOTIFY_SOCKET");
        let arguments = [&["--read-snapshot".into()], arguments].concat();
        sys::execute(&self.program, &self.words(&arguments), &environment)
    }

    /// The command line, with the name that the daemon was started by.
    fn words(&self, arguments: &[OsString]) -> Vec<OsString> {
        let name = env::args_os().next().unwrap_or_else(|| self.program.clone().into());
        [&[name], arguments].concat()
    }

    /// The environment of the daemon, with the variables for the next image.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let handoff = format!("{}:{}", process::id(), self.files.snapshot.as_raw_fd());
        let ours = [Some((HANDOFF_VARIABLE, handoff)), terminal::for_next_image()];
        let is_ours = |name: &OsString| ours.iter().flatten().any(|(ours, _)| name == ours);
        let mut environment: Vec<_> = env::vars_os().filter(|(name, _)| !is_ours(name)).collect();
        environment.extend(ours.iter().flatten().map(|(name, value)| (name.into(), value.into())));
        environment
    }
}

/// The two files that a new binary is handed, in memory. Between restarts they are empty
/// and only reserve low descriptor numbers ([`sys::fork_apart`]).
pub(crate) struct TrialFiles {
    pub(crate) snapshot: OwnedFd,
    pub(crate) answer: OwnedFd,
}

impl TrialFiles {
    /// Opens them. To be called before anything else is opened. If there are no files in memory
    /// here, others take their places: what a hot restart asks for comes with
    /// [`TrialFiles::renew`], which fails then.
    pub(crate) fn reserve() -> io::Result<Self> {
        let create = |name| file_in_memory(name, MemfdFlags::CLOEXEC).or_else(|_| stand_in());
        Ok(TrialFiles { snapshot: create(SNAPSHOT_NAME)?, answer: create(ANSWER_NAME)? })
    }

    pub(crate) fn both(&self) -> [BorrowedFd<'_>; 2] {
        [self.snapshot.as_fd(), self.answer.as_fd()]
    }

    /// Lets execve(2) hand them to the new image.
    pub(crate) fn keep_on_exec(&self) -> io::Result<()> {
        set_flags(&self.both(), FdFlags::empty())
    }

    /// Their descriptors.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        self.both().map(|file| file.as_raw_fd())
    }

    /// Replaces them by new files: another process may still have the old ones open.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        let snapshot = file_in_memory(SNAPSHOT_NAME, MemfdFlags::CLOEXEC)?;
        let answer = file_in_memory(ANSWER_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // A program that writes without end must not fill the memory.
        ftruncate(&answer, ANSWER_BYTES_MAX).map_err(named("ftruncate"))?;
        fcntl_add_seals(&answer, SealFlags::GROW).map_err(named("fcntl(F_ADD_SEALS)"))?;
        dup3(&snapshot, &mut self.snapshot, DupFlags::CLOEXEC).map_err(named("dup3"))?;
        dup3(&answer, &mut self.answer, DupFlags::CLOEXEC).map_err(named("dup3"))
    }

    /// Writes the snapshot.
    pub(crate) fn write_snapshot(
        &self,
        write: impl FnOnce(&mut Out<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let copy = self.snapshot.try_clone().map_err(named("fcntl(F_DUPFD_CLOEXEC)"))?;
        let mut file = File::from(copy);
        // Without memory for the buffer, creating it would end the process.
        let mut memory = Vec::<u8>::new();
        memory.try_reserve_exact(BUFFER_BYTES).map_err(|_| Errno::NOMEM)?;
        drop(memory);
        let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, &mut file);
        write(&mut buffered).and_then(|()| buffered.flush()).map_err(named("write"))
    }

    /// Frees their memory.
    pub(crate) fn clear(&self) {
        for file in [&self.snapshot, &self.answer] {
            // Shrinking a file needs no resources.
            let _ = ftruncate(file, 0);
        }
    }

    pub(crate) fn answer(&self) -> io::Result<String> {
        let mut answer = Vec::new();
        // Without memory for it, the restart is refused.
        if answer.try_reserve_exact(ANSWER_BYTES_MAX as usize).is_err() {
            return Ok(String::new());
        }
        answer.resize(ANSWER_BYTES_MAX as usize, 0);
        let len = pread(&self.answer, &mut answer, 0).map_err(named("pread"))?;
        let answer = String::from_utf8_lossy(&answer[..len]);
        Ok(answer.trim_end_matches('\0').trim_end().to_owned())
    }
}

/// A file in memory that can't be executed: with `vm.memfd_noexec=2` the kernel creates no other.
/// Linux before 6.3 does not know the flag.
fn file_in_memory(name: &str, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let created = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags),
        created => created,
    };
    created.map_err(named("memfd_create"))
}

/// A file that can be neither read nor written.
fn stand_in() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    fs::open("/", flags, fs::Mode::empty()).map_err(named("open"))
}

/// Where a snapshot is written. Buffered, because records are written in small pieces.
pub(crate) type Out<'a> = BufWriter<&'a mut File>;

/// Why a hot restart is refused without a path.
const UNKNOWN_PROGRAM: &str = "the path of the program is not known: \
    when the daemon started, its file was removed, or in another root directory, or /proc was \
    not mounted";

/// Where the running file is, as an absolute path, or an empty path if that is not known. First
/// AT_EXECFN, getauxval(3): not `argv[0]`, where a parent may put anything. Then what the kernel
/// reports. Neither counts unless the running file is there: after a chroot(2) another one
/// may be, and to the path of a file that was removed the kernel adds " (deleted)".
fn program_path() -> PathBuf {
    // fexecve(3) leaves a descriptor's path, which is another file later.
    let is_lasting = |path: &PathBuf| !path.starts_with("/dev/fd") && !path.starts_with("/proc");
    let is_program = |path: &PathBuf| fs::is_file(path) && env::is_running_file(path);
    let executed = fs::absolute(sys::executed_path()).ok();
    if let Some(path) = executed.filter(is_lasting).filter(is_program) {
        return path;
    }
    // Fails without /proc.
    env::current_exe().ok().filter(is_program).unwrap_or_default()
}

/// Identifies the file at a path, to notice its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinaryIdentity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
}

/// Checks that so many descriptors are free.
fn spare_descriptors(count: usize) -> io::Result<()> {
    let open = || fcntl_dupfd_cloexec(stdin(), 3).map_err(named("fcntl(F_DUPFD_CLOEXEC)"));
    (0..count).map(|_| open()).collect::<io::Result<Vec<OwnedFd>>>().map(drop)
}

/// Without flags, execve(2) hands these descriptors to the new image.
fn set_flags(descriptors: &[BorrowedFd<'_>], flags: FdFlags) -> io::Result<()> {
    let set = |fd| fcntl_setfd(fd, flags).map_err(named("fcntl(F_SETFD)"));
    descriptors.iter().try_for_each(set)
}

/// The snapshot that an old image of this process left, if any.
pub(crate) fn inherited_snapshot() -> io::Result<Option<OwnedFd>> {
    let handoff = env::var(HANDOFF_VARIABLE).unwrap_or_default();
    let Some(fd) = handoff.strip_prefix(&format!("{}:", process::id())) else {
        return Ok(None);
    };
    let no_snapshot =
        |why: &dyn Display| io::Error::other(format!("{HANDOFF_VARIABLE}={handoff}: {why}"));
    let fd = fd.parse().map_err(|e: ParseIntError| no_snapshot(&e))?;
    sys::inherited_descriptor(fd).map(Some).map_err(|e| no_snapshot(&e))
}
