//! Runs each file in `fuzz/seeds/` as a plain test: the inputs that fuzzing starts
//! from and those that it has found. An input for the engine that fails is shrunk and
//! printed as a script.

#[path = "../../fuzz/checks/control.rs"]
mod control;
#[path = "../../fuzz/checks/engine.rs"]
mod engine;
#[path = "../../fuzz/checks/handoff.rs"]
mod handoff;
#[path = "../../fuzz/checks/http.rs"]
mod http;
#[path = "../../fuzz/checks/lines.rs"]
mod lines;
#[path = "../../crates/engine/tests/model/shrink.rs"]
mod shrink;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../support/random.rs"]
mod random;
// Not all of it is used here.
#[allow(dead_code)]
#[path = "../../crates/engine/tests/model/simulation/mod.rs"]
mod simulation;
#[path = "../support/snapshot.rs"]
mod whole_snapshot;

use std::fs;
use std::path::Path;

fn for_each_seed(target: &str, check: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&dir).expect("the seeds are there") {
        let path = entry.expect("a directory can be read").path();
        println!("{}", path.display());
        check(&fs::read(&path).expect("a seed can be read"));
        count += 1;
    }
    assert!(count > 0, "{} is empty", dir.display());
}

#[test]
fn lines_are_split_and_parsed_as_they_should_be() {
    for_each_seed("lines", lines::check);
}

#[test]
fn the_engine_behaves_like_the_model() {
    for_each_seed("engine", |data| shrink::check(&engine::script(data), "this file", |_, _| ()));
}

#[test]
fn a_snapshot_is_refused_or_makes_a_valid_engine() {
    for_each_seed("handoff", handoff::check);
}

#[test]
fn a_control_request_is_refused_or_understood_as_sent() {
    for_each_seed("control", control::check);
}

#[test]
fn an_http_request_is_refused_or_understood_as_sent() {
    for_each_seed("http", http::check);
}

#[test]
fn each_target_is_checked_here() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/targets");
    let this = include_str!("main.rs");
    for entry in fs::read_dir(dir).expect("the targets are there") {
        let name = entry.expect("a directory can be read").file_name();
        let check = format!("../../fuzz/checks/{}", name.to_string_lossy());
        assert!(this.contains(&check), "{check} is not run on its seeds");
    }
}
