//! Prints to standard error in a thread that may block, so that `run` never does.

use crate::output::print_error;
use crate::unsafe_calls::with_signals_blocked;
use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long `run` waits at its end until its lines are read.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints lines in a thread of its own, which the first line starts. A full pipe, or a
/// terminal that was stopped by Ctrl-S, blocks that thread alone.
pub(super) struct StderrThread {
    thread: RefCell<Option<Thread>>,
    /// Behind each line.
    note: &'static str,
}

struct Thread {
    lines: Sender<String>,
    /// Sends nothing; closes when all lines are printed.
    end: Receiver<()>,
}

impl StderrThread {
    pub(super) fn new(note: &'static str) -> StderrThread {
        StderrThread { thread: RefCell::default(), note }
    }

    pub(super) fn note(&self) -> &'static str {
        self.note
    }

    /// Prints a line, immediately if possible; here if there can't be another thread.
    pub(super) fn print(&self, line: &str) {
        let line = format!("{line}{}", self.note);
        let mut thread = self.thread.borrow_mut();
        if thread.is_none() {
            *thread = Thread::start();
        }
        match &*thread {
            Some(thread) => _ = thread.lines.send(line),
            // A line that may wait is better than none.
            None => print_error(&line),
        }
    }

    /// Waits until all lines are printed, or for `PATIENCE`.
    pub(super) fn finish(&self) {
        if let Some(Thread { lines, end }) = self.thread.take() {
            drop(lines);
            let _ = end.recv_timeout(PATIENCE);
        }
    }
}

impl Thread {
    /// `None` if there can't be another thread.
    fn start() -> Option<Thread> {
        let (lines, received) = channel::<String>();
        let (ended, end) = channel();
        let print_all = move || {
            received.iter().for_each(|line| print_error(&line));
            drop(ended);
        };
        // Signals are for the thread that passes them on.
        let thread = with_signals_blocked(|| std::thread::Builder::new().spawn(print_all));
        thread.ok().map(|_| Thread { lines, end })
    }
}
