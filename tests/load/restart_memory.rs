//! The resident memory of a daemon that restarts often. tests/restart/promises.rs counts
//! other things that restarts could leave behind.

use crate::support::Server;
use crate::support::restart::{restart, status_number};

const RESTARTS: usize = 100;
/// Resident pages of the binary vary with the machine's free memory.
const GROWN_KB_MAX: u64 = 2_000;

#[test]
fn a_hundred_restarts_take_no_memory() {
    let server = Server::start_with(&["--log", "warn,poolcounterd=info"]);
    let [mut holder, mut waiter] = [(); 2].map(|()| server.connect());
    holder.exchange("ACQ4ME k 1 9 600", "LOCKED");
    waiter.send("ACQ4ME k 1 9 600");
    // The first restarts may allocate what later ones reuse.
    for _ in 0..3 {
        restart(&server);
    }
    let memory_kb = status_number(server.pid(), "VmRSS:");
    for _ in 0..RESTARTS {
        restart(&server);
    }
    let grown_kb = status_number(server.pid(), "VmRSS:").saturating_sub(memory_kb);
    println!(
        "{RESTARTS} restarts: {grown_kb} kB more than {memory_kb} kB, at most {GROWN_KB_MAX} kB"
    );
    assert!(grown_kb < GROWN_KB_MAX, "{grown_kb} kB more than {memory_kb} kB");
}
