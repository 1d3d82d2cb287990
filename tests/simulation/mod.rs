//! The whole server in a simulated world: its own code, compiled against a simulated
//! kernel ([`kernel`], with the names of src/server/kernel/world.rs in [`world`] and of
//! src/server/kernel/sys.rs in [`sys`]). A seed makes a script ([`generate`], [`script`]): what
//! clients, operators, administrators and other processes do, and when the daemon's loop
//! turns ([`play`], [`disturb`]). [`oracle`] and [`rules`] judge it; [`explore`] tries
//! many seeds, and shrinks what fails. [`conformance`] compares the kernel with Linux.

mod browsers;
mod conformance;
mod connections;
mod disturb;
mod explore;
mod figures;
mod found;
mod generate;
pub(crate) mod kernel;
mod life;
mod logged;
mod manager;
#[allow(unused_imports)]
pub(crate) use explore::alone;
// tests/engine uses all of it.
mod lost;
mod memory;
#[allow(dead_code)]
#[path = "../engine/simulation/model.rs"]
mod model;
mod new_image;
mod observed;
mod operators;
mod oracle;
mod play;
mod printed;
#[path = "../support/random.rs"]
pub(crate) mod random;
mod rest;
mod rules;
mod scenes;
mod script;
mod shares;
mod shown;
mod slow;
mod sockets;
pub(crate) mod sys;
mod told;
mod top;
mod whose;
mod words;
pub(crate) mod world;
mod world_files;
mod world_net;
mod world_process;
