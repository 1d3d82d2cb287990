//! Makes a script that fails as short as possible.

use crate::simulation::pair::Pair;
use crate::simulation::script::{Script, Step};
use std::panic::{self, AssertUnwindSafe};

/// How many scripts are tried at most.
const TRIES_MAX: usize = 20_000;

/// Runs `script`. Calls `see` after each step with the step and the pair.
///
/// # Panics
/// When the script fails. The message has the reason, the shortest script that fails,
/// and how to run it again.
pub(crate) fn check(script: &Script, replay: &str, see: impl FnMut(&Step, &Pair)) {
    let result = panic::catch_unwind(AssertUnwindSafe(|| script.run(see)));
    if matches!(result, Ok(Ok(()))) {
        return;
    }
    // Panics while shrinking only repeat the failure.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let shortest = shrink(script, |script| failure_of(script).is_some());
    let failure = failure_of(&shortest);
    panic::set_hook(hook);
    panic!("{}\n\nfrom {shortest}\n\nreplay: {replay}", failure.expect("it failed before"));
}

/// What goes wrong in `script`, including panics of the engine.
fn failure_of(script: &Script) -> Option<String> {
    match panic::catch_unwind(AssertUnwindSafe(|| script.run(|_, _| ()))) {
        Ok(result) => result.err(),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            Some(format!("the engine panicked: {}", text.unwrap_or("(no text)")))
        }
    }
}

/// Removes steps as long as the rest still `fails`: half of them at first, single
/// ones in the end.
pub(crate) fn shrink(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut shortest = script.clone();
    let mut tries = 0;
    let mut still_fails = |candidate: Script, shortest: &mut Script| {
        tries += 1;
        let better = tries <= TRIES_MAX && fails(&candidate);
        if better {
            *shortest = candidate;
        }
        better
    };
    still_fails(Script { start_ns: 0, ..shortest.clone() }, &mut shortest);
    still_fails(Script { rules: 0, ..shortest.clone() }, &mut shortest);
    let mut len = shortest.steps.len().div_ceil(2);
    while len > 0 {
        let mut removed = false;
        let mut start = 0;
        while start < shortest.steps.len() {
            let mut candidate = shortest.clone();
            let end = shortest.steps.len().min(start + len);
            candidate.steps.drain(start..end);
            if still_fails(candidate, &mut shortest) {
                removed = true;
            } else {
                start = end;
            }
        }
        // Repeats the single steps while that helps: each removal may have made
        // another step unnecessary.
        if len > 1 || !removed {
            len /= 2;
        }
    }
    shortest
}
