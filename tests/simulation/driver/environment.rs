//! The environment of the daemon: other processes, files, administrators.

use crate::simulation::kernel::files::PathEntry;
use crate::simulation::kernel::kernel;
use crate::simulation::kernel::processes::PROGRAM;
use crate::simulation::scripts::steps::{RULES, Step};
use std::net::SocketAddr;

/// What other processes and administrators do.
pub(crate) fn change_environment(step: &Step) {
    kernel(|k| match *step {
        Step::Binary { is_there: true } => {
            if k.path(PROGRAM).is_err() {
                k.add_path(PROGRAM, PathEntry::file());
            }
        }
        Step::Binary { is_there: false } => drop(k.paths.remove(PROGRAM)),
        Step::DirectoryReplaced => {
            k.add_path(PROGRAM, PathEntry::file());
            // The working directory of a daemon that was started there has no name any more.
            k.directory = k.directory.filter(|directory| directory.is_empty());
        }
        Step::ManagerLetsGo => k.release_held(),
        Step::ManagerReplaced => k.replace_manager(),
        Step::LosesOne => k.drops_connection = true,
        Step::Descriptors { max } => {
            (k.descriptors_max, k.limit_changed_ns) = (max, k.now_ns);
            k.image_descriptors_max = k.image_descriptors_max.max(max);
        }
        Step::EditRules { text } => k.rules_text = Some(text),
        Step::Remove { path: RULES } => k.rules_text = None,
        Step::Remove { path } => drop(k.paths.remove(path)),
        Step::Foreign { path, listens } => {
            if listens && k.path(path).is_err() {
                k.add_path(path, PathEntry::socket());
                k.set_foreign(path, true);
            } else if !listens {
                k.set_foreign(path, false);
            }
        }
        Step::ForeignPort { port, listens } => {
            k.foreign_ports.clear();
            if listens {
                k.foreign_ports.push(SocketAddr::from(([10, 0, 0, 1], port)));
            }
        }
        _ => unreachable!("{step:?} is no disturbance"),
    });
}
