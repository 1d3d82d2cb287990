//! What happens to the daemon, as a list that a seed makes and that a person can read. Any list is
//! valid, in any order: so steps can be removed from one that fails.

use crate::simulation::kernel::draws::Choices;
use protocol::Mode;
use std::fmt::{self, Debug, Display, Formatter};

/// What a client sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Say {
    Acquire {
        mode: Mode,
        key: u8,
        workers: u32,
        max_queue: u32,
        timeout_s: u64,
    },
    Release,
    Stats(&'static str),
    /// Not a command.
    Junk(&'static [u8]),
    /// A line that is too long.
    TooLong,
    /// To HTTP.
    Http(&'static str),
    /// The same line many times.
    Flood {
        line: &'static str,
        times: usize,
    },
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client in this place connects; the last one there leaves first.
    Connect {
        place: u8,
        to: &'static str,
        room: (usize, usize),
    },
    /// It sends something, which is on its way then, in two pieces if `cut` is not 0.
    Say {
        place: u8,
        what: Say,
        cut: u8,
    },
    /// The next thing on its way arrives.
    Arrive {
        place: u8,
    },
    /// All that is on its way from anybody arrives.
    ArriveAll,
    /// The client reads.
    Read {
        place: u8,
        max: usize,
    },
    /// It sends no more.
    End {
        place: u8,
    },
    /// It closes its connection.
    Close {
        place: u8,
    },
    Reset {
        place: u8,
    },
    Urgent {
        place: u8,
    },
    /// Its host loses power.
    Vanish {
        place: u8,
    },
    /// Time passes.
    Advance {
        ms: u64,
    },
    /// Time passes until the daemon's loop wakes up.
    AdvanceToDeadline,
    /// The daemon runs one turn of its loop. `choices` decides what the kernel may choose,
    /// `arrives` whether something may arrive meanwhile, and `fails` whether calls may fail.
    Turn {
        choices: Choices,
        arrives: bool,
        fails: bool,
    },
    Signal(i32),
    /// An operator sends a line to the control socket.
    Ask {
        place: u8,
        line: &'static str,
    },
    /// The same, with a descriptor.
    AskPassing {
        place: u8,
        line: &'static str,
    },
    /// An operator sends more than a request may have, with lines in it.
    AskTooLong {
        place: u8,
    },
    /// An operator closes its writing side, and waits for answers.
    OperatorEnds {
        place: u8,
    },
    /// An operator does not wait for its answers.
    OperatorLeaves {
        place: u8,
    },
    /// The trial of a hot restart has its result.
    TrialEnds,
    /// A crowd of clients connects.
    Crowd {
        clients: usize,
    },
    /// More clients of a crowd keep trying to connect: whenever one client is accepted, one of
    /// these comes.
    Insist {
        clients: usize,
        to: &'static str,
    },
    /// Each of a crowd asks for a lock of its own.
    CrowdAsks,
    /// Each of a crowd asks for three locks of its own, and for one that others want too.
    CrowdHolds,
    CrowdLeaves,
    /// The next binary closes a connection that it was handed.
    LosesOne,
    /// The daemon's binary is removed, or is there again.
    Binary {
        is_there: bool,
    },
    /// The binary's directory is replaced by another one, with another binary.
    DirectoryReplaced,
    /// The limit of descriptors changes.
    Descriptors {
        max: u64,
    },
    /// Somebody edits the file of rules.
    EditRules {
        text: &'static str,
    },
    /// A file vanishes.
    Remove {
        path: &'static str,
    },
    /// Another daemon listens on a path, or ends.
    Foreign {
        path: &'static str,
        listens: bool,
    },
    /// Another daemon listens on this port, or ends.
    ForeignPort {
        port: u16,
        listens: bool,
    },
    /// The service manager closes the sockets that it passed.
    ManagerLetsGo,
    /// The service manager has crashed, and is back with another socket.
    ManagerReplaced,
    /// The service manager reads its notifications, or stops reading.
    ManagerReads(bool),
    /// The log is read, or not any more.
    LogReads(bool),
}

/// What starts the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A shell.
    Shell,
    /// A shell, in the directory of the binary.
    Directory,
    /// A service manager, which wants notifications.
    Manager,
    /// One that also wants those of a watchdog.
    Watchdog,
    /// One that passes a listening TCP socket, and keeps it.
    Socket,
    /// A program that passes its listening socket as standard input.
    Stdin,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) arguments: &'static str,
    pub(crate) start: Start,
    /// The daemon logs; the log may not be read.
    pub(crate) logs: bool,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Whether a seed decides any of its turns.
    pub(crate) fn has_seeds(&self) -> bool {
        let has_seed = |step: &Step| matches!(step, Step::Turn { choices: Choices::Seed(_), .. });
        self.steps.iter().any(has_seed)
    }

    /// Gives its turns these choices, and the usual ones to the turns after them.
    pub(crate) fn with_choices(&self, choices: &[Choices]) -> Script {
        let mut script = self.clone();
        let mut choices = choices.iter();
        for step in &mut script.steps {
            if let Step::Turn { choices: of_turn, .. } = step {
                *of_turn = choices.next().copied().unwrap_or(Choices::USUAL);
            }
        }
        script
    }
}

/// What [`Step::AskTooLong`] sends: as it is refused, nothing in it is executed.
pub(crate) fn too_long_request() -> Vec<u8> {
    [&[b'x'; 1_200_000], &b"\nDRAIN\n"[..]].concat()
}

pub(crate) const CONTROL: &str = "/run/control.sock";
/// The file of `--rules`.
pub(crate) const RULES: &str = "/etc/rules";
pub(crate) const OTHER_CONTROL: &str = "/run/other.sock";

impl Say {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Say::Acquire { mode, key, workers, max_queue, timeout_s } => {
                let word = match mode {
                    Mode::ForMe => "ACQ4ME",
                    Mode::ForAnyone => "ACQ4ANY",
                };
                format!("{word} k{key} {workers} {max_queue} {timeout_s}\n").into_bytes()
            }
            Say::Release => b"RELEASE\n".to_vec(),
            Say::Stats(which) => format!("STATS {which}\n").into_bytes(),
            Say::Junk(bytes) => bytes.to_vec(),
            Say::TooLong => [&[b'x'; 5000][..], b"\n"].concat(),
            Say::Http(text) => text.as_bytes().to_vec(),
            Say::Flood { line, times } => line.repeat(times).into_bytes(),
        }
    }
}

/// As [`Script`] needs it.
impl Debug for Say {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Say::Acquire { mode, key, workers, max_queue, timeout_s } => write!(
                f,
                "Say::Acquire {{ mode: Mode::{mode:?}, key: {key}, workers: {workers}, \
                 max_queue: {max_queue}, timeout_s: {timeout_s} }}"
            ),
            Say::Release => write!(f, "Say::Release"),
            Say::Stats(which) => write!(f, "Say::Stats({which:?})"),
            Say::Junk(bytes) => write!(f, "Say::Junk(b\"{}\")", bytes.escape_ascii()),
            Say::TooLong => write!(f, "Say::TooLong"),
            Say::Http(text) => write!(f, "Say::Http({text:?})"),
            Say::Flood { line, times } => {
                write!(f, "Say::Flood {{ line: {line:?}, times: {times} }}")
            }
        }
    }
}

/// In a form that can be pasted into a test.
impl Display for Script {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "Script {{")?;
        writeln!(f, "    arguments: {:?},", self.arguments)?;
        writeln!(f, "    start: Start::{:?},", self.start)?;
        writeln!(f, "    logs: {},", self.logs)?;
        writeln!(f, "    steps: vec![")?;
        for step in &self.steps {
            writeln!(f, "        Step::{step:?},")?;
        }
        writeln!(f, "    ],")?;
        write!(f, "}}")
    }
}
