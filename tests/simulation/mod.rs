//! The whole server in a simulated world: its own code, compiled against a simulated
//! kernel ([`kernel`], with the names of src/platform/os.rs in [`os`] and of
//! src/platform/sys.rs in [`sys`]). A seed makes a script ([`scripts`]): what clients,
//! operators, administrators and other processes do, and when the daemon's loop turns
//! ([`driver`]). [`clients`], [`reports`], [`operator`], [`log`] and [`invariants`] judge it; [`explore`]
//! tries many seeds, and shrinks what fails. [`conformance`] compares the kernel with Linux.

mod clients;
mod conformance;
mod driver;
mod explore;
mod found;
pub(crate) mod kernel;
mod log;
#[allow(unused_imports)]
pub(crate) use explore::alone;
// The engine's own tests use all of it.
mod invariants;
#[allow(dead_code)]
#[path = "../../crates/engine/tests/model/simulation/model.rs"]
mod model;
mod operator;
#[expect(clippy::unnecessary_wraps, reason = "the signatures are the real ones")]
pub(crate) mod os;
#[path = "../support/random.rs"]
pub(crate) mod random;
mod reports;
mod scripts;
#[allow(dead_code)]
#[path = "../support/stopwatch.rs"]
mod stopwatch;
pub(crate) use os::sys;
