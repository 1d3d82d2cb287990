//! What a new binary does in the trial: restores the old image's snapshot by the code of the
//! restart itself, with more memory and stack than that takes, and prints its answer.
//! [`trial`](super::trial) is the old image's side.

use crate::listening::addresses;
use crate::listening::listeners::Listeners;
use crate::operator::orders::Operators;
use crate::operator::rule_book::read_rules;
use crate::options::Options;
use crate::platform::descriptors;
use crate::platform::failed_call::named;
use crate::platform::os::fd::OwnedFd;
use crate::platform::os::fs::is_same_file;
use crate::platform::os::io::fcntl_dupfd_cloexec;
use crate::platform::os::mio::Poll;
use crate::platform::os::{process, stdio};
use crate::platform::sys::{self, inherited_descriptor};
use crate::reporting::http::Http;
use crate::reporting::report_queue::Reporting;
use crate::restart::launcher::inherited_snapshot;
use crate::restart::new_image::{Restored, restore};
use crate::restart::restart_error::RestartError;
use crate::restart::trial::TrialAnswer;
use crate::sockets::socket::Socket;
use engine::rules::rule::Rule;
use std::hint::black_box;
use std::io::{self, Read};

/// How much more memory than in the trial the new image finds in any case.
const HEAP_MARGIN_BYTES: usize = 4 << 20;
const STACK_MARGIN_BYTES: usize = 256 << 10;

/// Reads a trial snapshot and returns the answer to print, namely that this binary could
/// take over with `options`. The snapshot is handed over as in the restart itself; an
/// operator may also pipe one in, to find out whether this binary can read it.
///
/// # Errors
/// Why it can't, to be printed too.
pub fn dry_run(options: &Options) -> Result<String, RestartError> {
    let rules_file = read_rules(options).map_err(RestartError::Rules)?;
    let (process, restored) = match inherited_snapshot().map_err(RestartError::SnapshotLost)? {
        Some(snapshot) => (Some(process::id() as i32), take_over(snapshot, options, &rules_file)?),
        None => (None, read_standard_input(options, &rules_file)?),
    };
    let wanted = addresses::wanted(options).map_err(RestartError::Listen)?;
    sys::raise_descriptor_limit();
    let answer = TrialAnswer {
        poolcounterd: env!("CARGO_PKG_VERSION").to_owned(),
        process,
        descriptors_max: descriptors::limit(),
        summary: restored.summary(),
        wanted,
        is_control_given: options.control.is_some(),
        rules_file,
        max_hold: options.max_hold.clone(),
    };
    build_the_rest(restored, options).map_err(RestartError::System)?;
    serde_json::to_string(&answer).map_err(|e| RestartError::System(e.into()))
}

/// Restores what was handed over, and finds the snapshot at each descriptor, where the
/// old image has put it in place of a socket.
fn take_over(
    snapshot: OwnedFd,
    options: &Options,
    rules_file: &[Rule],
) -> Result<Restored, RestartError> {
    let adopt = |number| {
        let stand_in = inherited_descriptor(number)?;
        if is_same_file(&stand_in, &snapshot) {
            Ok(Socket::new(stand_in, /* is_unix */ false))
        } else {
            Err(io::Error::other("it was replaced"))
        }
    };
    let bytes = sys::MappedFile::new(&snapshot).map_err(RestartError::System)?;
    let restored = restore(&bytes, options, Some(rules_file.to_vec()), adopt);
    let mut restored = restored.map_err(RestartError::Snapshot)?;
    let lost = restored.lost.len();
    if let Some((_, e)) = restored.lost.drain(..).next() {
        return Err(RestartError::ConnectionsLost(lost, e));
    }
    for number in restored.server.kept_descriptors() {
        adopt(number).map_err(|e| RestartError::DescriptorLost(number, e))?;
    }
    Ok(restored)
}

#[expect(clippy::disallowed_methods, reason = "the old image or an operator pipes it in")]
fn read_standard_input(options: &Options, rules_file: &[Rule]) -> Result<Restored, RestartError> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(RestartError::System)?;
    if bytes.is_empty() {
        return Err(RestartError::NoSnapshot);
    }
    // Stands in for each connection.
    let stand_in =
        |_| Ok(Socket::new(fcntl_dupfd_cloexec(stdio::stdout(), 3)?, /* is_unix */ false));
    restore(&bytes, options, Some(rules_file.to_vec()), stand_in).map_err(RestartError::Snapshot)
}

/// Builds what the new image builds besides the restored state, and touches a margin of memory.
fn build_the_rest(restored: Restored, options: &Options) -> io::Result<()> {
    let operator = Operators::new(sys::take_over_signals()?, restored.server.settings.clone());
    let poll = Poll::new().map_err(named("epoll_create1"))?;
    operator.watch(poll.registry())?;
    let others = (Listeners::none(options), Reporting::new(options), Http::new(options));
    black_box(vec![1_u8; HEAP_MARGIN_BYTES]);
    touch_stack();
    drop((restored, poll, operator, others));
    Ok(())
}

#[inline(never)]
fn touch_stack() {
    black_box([1_u8; STACK_MARGIN_BYTES]);
}
