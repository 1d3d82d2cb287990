//! Terminals that a test makes for the daemon.

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::os::fd::OwnedFd;

/// A terminal: the user's side and the side that programs open.
pub(crate) fn terminal() -> (File, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    let master = master.expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("unlock");
    let path = ptsname(&master, Vec::new()).expect("ptsname");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = open(path.as_c_str(), flags, Mode::empty()).expect("open the terminal");
    (master.into(), slave)
}
