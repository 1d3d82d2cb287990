//! What `run` says on standard error while a command runs: nobody waits for it.

use super::child::with_signals_blocked;
use crate::cli::output::print_error;
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long `run` waits at its end for somebody who reads what it says.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says lines in a thread of its own, which the first line starts. A pipe that nobody
/// reads, or a terminal that was stopped by Ctrl-S, holds up that thread alone.
#[derive(Default)]
pub(super) struct StderrThread {
    thread: RefCell<Option<Thread>>,
}

struct Thread {
    lines: Sender<String>,
    /// Says nothing, and ends when all is said.
    end: Receiver<()>,
}

impl StderrThread {
    /// Says a line, at once if it can be.
    pub(super) fn print(&self, line: &str) {
        let mut thread = self.thread.borrow_mut();
        if thread.is_none() {
            *thread = Thread::start();
        }
        if let Some(thread) = &*thread {
            let _ = thread.lines.send(line.to_owned());
        }
    }

    /// Waits until all is said, or for `PATIENCE`.
    pub(super) fn finish(&self) {
        if let Some(Thread { lines, end }) = self.thread.take() {
            drop(lines);
            let _ = end.recv_timeout(PATIENCE);
        }
    }
}

impl Thread {
    /// `None` if there can't be one: then nothing is said.
    fn start() -> Option<Thread> {
        let (lines, said) = channel::<String>();
        let (ended, end) = channel();
        let say_all = move || {
            said.iter().for_each(|line| print_error(&line));
            drop(ended);
        };
        // A signal is for the thread that passes it on.
        let thread = with_signals_blocked(|| std::thread::Builder::new().spawn(say_all));
        thread.ok().map(|_| Thread { lines, end })
    }
}
