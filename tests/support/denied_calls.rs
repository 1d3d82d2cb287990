//! Records which system calls a program makes, and denies it one of them, for its whole life and
//! for all that it starts, as the profile of a container does (seccomp(2)).

use super::{Log, launched, skip};
use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// The errors of a kernel that lacks the call, and of a profile that denies it.
const ERRORS: [(&str, u16); 2] = [("ENOSYS", 38), ("EPERM", 1)];

/// Calls with several uses, each of which may be denied, and the arguments that tell which it is.
const USES: [(&str, &[usize]); 6] = [
    ("setsockopt", &[1, 2]),
    ("getsockopt", &[1, 2]),
    ("fcntl", &[1]),
    ("ioctl", &[1]),
    ("prctl", &[0]),
    ("socket", &[0]),
];

/// Calls with another name than the function that makes them, on arm64 or with musl.
const MADE_BY: [(&str, &str); 4] = [
    ("epoll_pwait", "epoll_wait"),
    // Where the library has no statx.
    ("newfstatat", "statx"),
    ("openat", "open"),
    ("pread64", "pread"),
];

/// A system call, or one use of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeniedCall {
    /// As the kernel's tables have it, such as `accept4`.
    pub(crate) name: String,
    /// What it is used for, such as `TCP_NODELAY`; a number if strace does not know its name.
    pub(crate) used_for: Option<String>,
    number: u32,
    /// Positions of arguments, and their values.
    arguments: Vec<(usize, u32)>,
}

impl DeniedCall {
    /// The calls in a line of strace's output: the call as such, and its use.
    fn in_line(line: &str) -> Vec<DeniedCall> {
        // PID [NUMBER] NAME(ARGUMENTS
        let parse = || {
            let (_, rest) = line.split_once('[')?;
            let (number, rest) = rest.split_once("] ")?;
            let (name, arguments) = rest.split_once('(')?;
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let number = number.trim().parse().ok().filter(|_| is_name)?;
            Some((number, name.to_owned(), arguments))
        };
        let Some((number, name, text)) = parse() else { return Vec::new() };
        let whole = DeniedCall { name, used_for: None, number, arguments: Vec::new() };
        let used = whole.used_for(text);
        [Some(whole), used].into_iter().flatten().collect()
    }

    fn used_for(&self, text: &str) -> Option<DeniedCall> {
        let words: Vec<&str> = text.split(", ").collect();
        if self.name == "clone" {
            let flags = words.iter().find_map(|word| word.strip_prefix("flags="))?;
            let position = if cfg!(target_arch = "s390x") { 1 } else { 0 };
            return flags.contains("CLONE_FILES */|").then(|| {
                let value = flags.split('|').filter_map(value_of).sum();
                self.with("CLONE_FILES", vec![(position, value)])
            });
        }
        let (_, positions) = USES.iter().find(|(name, _)| *name == self.name)?;
        let arguments = positions.iter().map(|&n| Some((n, value_of(words.get(n)?)?)));
        let last = words.get(*positions.last()?)?;
        let named = last.split_once("/* ").and_then(|(_, rest)| rest.split_once(" */"));
        let named = named.map(|(name, _)| name).filter(|name| !name.contains('?'));
        // Both kinds of time.
        let named = named.map(|name| name.trim_end_matches("_NEW").trim_end_matches("_OLD"));
        let number = last.split([' ', ')']).next()?;
        Some(self.with(named.unwrap_or(number), arguments.collect::<Option<_>>()?))
    }

    fn with(&self, used_for: &str, arguments: Vec<(usize, u32)>) -> DeniedCall {
        DeniedCall { used_for: Some(used_for.to_owned()), arguments, ..self.clone() }
    }

    /// For a report.
    pub(crate) fn shown(&self) -> String {
        match &self.used_for {
            Some(what) => format!("{}({what})", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether this is a call as such, which has several uses.
    pub(crate) fn has_several_uses(&self) -> bool {
        self.used_for.is_none() && USES.iter().any(|(name, _)| *name == self.name)
    }

    /// Whether a message names it as strace does, or as its function of the C library: `call:`, or
    /// `call(use):`. Which socket it is, the rest of the message says.
    pub(crate) fn is_named_in(&self, message: &str) -> bool {
        // As the C daemon says it.
        let message = message.replace("Couldn't bind to ", "bind: ");
        match &self.used_for {
            Some(_) if self.name != "socket" => [": ", ", "]
                .into_iter()
                .any(|end| message.contains(&format!("{}{end}", self.shown()))),
            _ => {
                let made_by = MADE_BY.iter().filter(|(name, _)| *name == self.name);
                let names = made_by.map(|(_, function)| *function).chain([self.name.as_str()]);
                let named = |name| {
                    let named = |end| message.contains(&format!("{name}{end}"));
                    [": ", "(", ", "].into_iter().any(named)
                };
                names.into_iter().any(named)
            }
        }
    }

    /// A filter that fails the call with `error` and allows all others, in hexadecimal digits:
    /// BPF's instructions, as the kernel's documentation of seccomp describes them.
    fn filter(&self, error: u16) -> String {
        const LOAD: u16 = 0x20;
        const SKIP_UNLESS_EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        const FAIL: u32 = 0x0005_0000;
        const ALLOW: u32 = 0x7fff_0000;
        let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
        let place_of = |argument: usize| 16 + 8 * argument as u32 + low_half;
        let arguments = self.arguments.iter().map(|&(n, value)| (place_of(n), value));
        let compared: Vec<_> = std::iter::once((0, self.number)).chain(arguments).collect();
        let mut program = Vec::new();
        for (n, &(place, value)) in compared.iter().enumerate() {
            let to_allow = 2 * (compared.len() - n) - 1;
            program.push((LOAD, 0, place));
            program.push((SKIP_UNLESS_EQUAL, to_allow as u8, value));
        }
        program.extend([(RETURN, 0, FAIL | u32::from(error)), (RETURN, 0, ALLOW)]);
        let bytes = program.into_iter().flat_map(|(code, if_not, value)| {
            let [low, high] = code.to_ne_bytes();
            let [a, b, c, d] = value.to_ne_bytes();
            [low, high, 0, if_not, a, b, c, d]
        });
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }

    /// `program`, which is denied this call.
    pub(crate) fn denied_to(
        &self,
        error: u16,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Command {
        let (filter, prctl) = (self.filter(error), libc::SYS_prctl.to_string());
        launched(&["perl", "-e", LOADER, &prctl, &filter], program, arguments)
    }
}

/// PR_SET_NO_NEW_PRIVS, then PR_SET_SECCOMP with a filter: prctl(2).
const LOADER: &str = r#"
    my $prctl = shift() + 0;
    my $filter = pack "H*", shift;
    my $program = pack "S x![P] P", length($filter) / 8, $filter;
    syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
    syscall($prctl, 22, 2, $program, 0, 0) == 0 or die "seccomp: $!";
    exec { $ARGV[0] } @ARGV or die "exec: $!";
"#;

/// The number at the beginning of an argument, as strace writes it.
fn value_of(argument: &str) -> Option<u32> {
    let digits = argument.split([' ', ')', '|']).next()?;
    match digits.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// `program` with all its system calls written to `trace`.
pub(crate) fn recorded(program: impl AsRef<OsStr>, arguments: &[&str], trace: &Path) -> Command {
    let trace = trace.to_str().expect("a path");
    // It detaches itself, so that the program is a child of the test.
    let strace = ["strace", "-D", "-f", "-qq", "-n", "-X", "verbose", "-o", trace];
    launched(&strace, program, arguments)
}

/// The calls in such a file.
pub(crate) fn calls_in(trace: &Path) -> Vec<DeniedCall> {
    let trace = std::fs::read(trace).expect("strace's file");
    let trace = String::from_utf8_lossy(&trace);
    let all: BTreeSet<DeniedCall> = trace.lines().flat_map(DeniedCall::in_line).collect();
    all.into_iter().collect()
}

/// `program`, some of whose calls fail, as strace writes it: `clone3,clone:error=EAGAIN`.
pub(crate) fn injected(fault: &str, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let fault = format!("inject={fault}");
    // It detaches itself, so that the program is a child of the test.
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &fault];
    launched(&strace, program, arguments)
}

/// While it exists, calls of a process that runs already, and of its new children, fail.
pub(crate) struct InjectedFault(Child);

impl InjectedFault {
    pub(crate) fn into(pid: u32, fault: &str) -> Self {
        let (pid, fault) = (pid.to_string(), format!("inject={fault}"));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-e", &fault, "-p", &pid]);
        let mut strace = strace.stderr(Stdio::piped()).spawn().expect("strace");
        let said = Log::read_from(strace.stderr.take().expect("stderr"));
        said.wait_for("attached");
        InjectedFault(strace)
    }
}

impl Drop for InjectedFault {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether calls can be recorded and denied here; if not, reports a skipped test.
pub(crate) fn can_deny() -> bool {
    let call = DeniedCall {
        name: "getppid".to_owned(),
        used_for: None,
        number: libc::SYS_getppid as u32,
        arguments: Vec::new(),
    };
    let print = ["-e", "print getppid() == -1 ? 'denied' : 'allowed'"];
    let probe = call.denied_to(1, "perl", &print).stdout(std::process::Stdio::piped()).output();
    let works = probe.is_ok_and(|done| done.stdout == b"denied") && super::restart::can_inject();
    if !works {
        skip("no perl that may deny system calls");
    }
    works
}

/// Which calls a test denies: those that `make test` has time for; with `DENIED_CALLS=all` every
/// one, with another value those that contain it.
pub(crate) struct Chosen {
    of_interest: Vec<String>,
    text: String,
}

impl Chosen {
    pub(crate) fn from_environment(of_interest: &[&str]) -> Self {
        let text = std::env::var("DENIED_CALLS").unwrap_or_default();
        Chosen { of_interest: of_interest.iter().map(|&name| name.to_owned()).collect(), text }
    }

    fn includes(&self, call: &DeniedCall) -> bool {
        match self.text.as_str() {
            "" => self.of_interest.contains(&call.shown()),
            "all" => true,
            text => call.shown().contains(text),
        }
    }

    /// Tries each of the `calls` with each error, and prints a table. `act` tells what happened,
    /// and panics if that is wrong.
    pub(crate) fn deny<Act>(&self, calls: Vec<DeniedCall>, act: Act)
    where
        Act: Fn(&DeniedCall, u16) -> String + Copy + Send + Sync + 'static,
    {
        let calls = calls.into_iter().filter(|call| self.includes(call));
        let cases = calls.flat_map(|call| ERRORS.map(|(name, error)| (call.clone(), name, error)));
        let left = Mutex::new(cases);
        let table = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    while let Some((call, name, error)) = next(&left) {
                        let row = format!("{} → {name}", call.shown());
                        let outcome = std::thread::spawn(move || act(&call, error)).join();
                        let outcome = outcome.map_err(|panic| text_of(&*panic));
                        table.lock().expect("table").push((row, outcome));
                    }
                });
            }
        });
        let mut table = table.into_inner().expect("table");
        table.sort();
        for (row, outcome) in &table {
            match outcome {
                Ok(outcome) => println!("{row}: {outcome}"),
                Err(why) => println!("{row}: WRONG: {why}"),
            }
        }
        assert!(!table.is_empty(), "no such call is made");
        let wrong: Vec<_> = table.iter().filter(|(_, outcome)| outcome.is_err()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

fn next<T>(left: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    left.lock().expect("cases").next()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
