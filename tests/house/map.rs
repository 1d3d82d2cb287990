//! The map in CONTRIBUTING.md matches the sources: the modules of each room and the rooms
//! that they name. Arrows between modules make no circle.
//! `UPDATE=1 cargo test --test house map` draws the map again.

use crate::source::{NamePath, SOURCES, all_source_files, paths_in, top};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Maps a module to those that it names, as paths without the crate:
/// `server::snapshot::v1`.
type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_map_is_what_the_sources_say() {
    let graph = graph_of_sources();
    let drawn = drawn(&graph, &order_of(&graph));
    let path = top().join("CONTRIBUTING.md");
    let text = fs::read_to_string(&path).expect("CONTRIBUTING.md");
    let (before, rest) = text.split_once("```text\n").expect("a map");
    let (map, after) = rest.split_once("```").expect("the end of the map");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{before}```text\n{drawn}```{after}")).expect("write the map");
        return;
    }
    assert!(map == drawn, "UPDATE=1 cargo test --test house map draws the map as\n\n{drawn}");
}

#[test]
fn arrows_go_down_only() {
    let graph = graph_of_sources();
    let up = arrows_up(&graph, &order_of(&graph));
    assert!(up.is_empty(), "{up:#?}");
}

fn last(module: &str) -> &str {
    module.rsplit("::").next().expect("a split has a part")
}

fn graph_of_sources() -> Graph {
    let files = all_source_files();
    let modules: BTreeSet<String> = files.iter().filter_map(|file| module_of(file)).collect();
    let mut graph = Graph::new();
    for file in &files {
        let Some(module) = module_of(file) else {
            continue;
        };
        let paths = paths_in(&fs::read_to_string(file).expect("the source can be read"));
        let mut named: BTreeSet<String> =
            paths.iter().filter_map(|path| resolve(path, &module, &modules)).collect();
        named.remove(&module);
        // Each crate has a `bin`.
        graph.entry(module).or_default().extend(named);
    }
    graph
}

/// `src/server/restart/snapshot/v1.rs` is `server::snapshot::v1`, each file in `src/bin` is
/// `bin`; `lib.rs` and `tests.rs` are not modules here.
fn module_of(file: &Path) -> Option<String> {
    let in_crate = SOURCES.iter().find_map(|source| file.strip_prefix(top().join(source)).ok());
    let path = in_crate.expect("a file of a crate").with_extension("");
    if path.starts_with("bin") {
        return Some("bin".to_owned());
    }
    let path = path.to_str().expect("text").replace('/', "::");
    (path != "lib" && last(&path) != "tests").then_some(path)
}

/// The module that a path in the source of `from` names, directly or by an item in it.
/// A single name does not count: it was imported by a path, or it is not a module.
fn resolve(path: &NamePath, from: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut segments = path.iter().map(String::as_str).peekable();
    let mut base: Vec<&str> = from.split("::").collect();
    match segments.next_if(|_| path.len() > 1)? {
        "crate" | "poolcounter" | "poolcounterd" => base.clear(),
        "self" => {}
        "super" => {
            base.pop();
        }
        child => base.push(child),
    }
    while segments.next_if_eq(&"super").is_some() {
        base.pop();
    }
    base.extend(segments);
    let is_child =
        !matches!(path[0].as_str(), "crate" | "self" | "super" | "poolcounter" | "poolcounterd");
    let at_least = if is_child { from.split("::").count() + 1 } else { 1 };
    let mut prefixes = (at_least..=base.len()).rev().map(|len| base[..len].join("::"));
    prefixes.find(|module| modules.contains(module))
}

/// Every module, above those that it names, and above its children except those that name it, if
/// there is no circle.
fn order_of(graph: &Graph) -> Vec<&str> {
    let mut from_below = Vec::new();
    let mut seen = BTreeSet::new();
    for module in graph.keys() {
        visit(module, graph, &mut seen, &mut from_below);
    }
    from_below.reverse();
    from_below
}

fn visit<'a>(
    module: &'a str,
    graph: &'a Graph,
    seen: &mut BTreeSet<&'a str>,
    from_below: &mut Vec<&'a str>,
) {
    if !seen.insert(module) {
        return;
    }
    let is_child = |name: &&String| name.rsplit_once("::").is_some_and(|(up, _)| up == module);
    let children = graph.keys().filter(is_child).filter(|child| !graph[*child].contains(module));
    for below in graph[module].iter().chain(children) {
        visit(below, graph, seen, from_below);
    }
    from_below.push(module);
}

/// Each as the naming and the named module.
fn arrows_up<'a>(graph: &'a Graph, order: &[&str]) -> Vec<(&'a str, &'a str)> {
    let place = |module: &str| order.iter().position(|&other| other == module);
    let arrows = graph.iter().flat_map(|(from, named)| named.iter().map(move |to| (from, to)));
    let up = arrows.filter(|(from, to)| place(to) < place(from));
    up.map(|(from, to)| (from.as_str(), to.as_str())).collect()
}

/// Two lines for each room: its modules, each above those that it names, and the other
/// rooms that they name.
fn drawn(graph: &Graph, order: &[&str]) -> String {
    let mut rooms: Vec<(&str, Vec<&str>, BTreeSet<&str>)> = Vec::new();
    for module in order {
        let room = room_of(module, graph);
        let known = rooms.iter().position(|(other, ..)| *other == room);
        let at = known.unwrap_or_else(|| {
            rooms.push((room, Vec::new(), BTreeSet::new()));
            rooms.len() - 1
        });
        rooms[at].1.push(last(module));
        let named = graph[*module].iter().map(|named| room_of(named, graph));
        rooms[at].2.extend(named.filter(|named| *named != room));
    }
    let mut text = String::new();
    for (room, modules, named) in rooms {
        let mut wrap = |first: &str, words: &mut dyn Iterator<Item = &str>| {
            let mut line = format!("{first:17}");
            for word in words {
                if line.len() + 1 + word.len() > 119 {
                    writeln!(text, "{}", line.trim_end()).expect("a String");
                    line = " ".repeat(17);
                }
                line += &format!(" {word}");
            }
            writeln!(text, "{}", line.trim_end()).expect("a String");
        };
        wrap(room, &mut modules.into_iter());
        if !named.is_empty() {
            wrap("", &mut ["→"].into_iter().chain(named));
        }
    }
    text
}

/// The folder of a module, which for the page at its top is its own.
fn room_of<'a>(module: &'a str, graph: &Graph) -> &'a str {
    let in_folder = |name: &&String| name.strip_prefix(module).is_some_and(|s| s.starts_with("::"));
    match graph.keys().any(|name| in_folder(&name)) {
        true => module,
        false => module.rsplit_once("::").map_or("top", |(room, _)| room),
    }
}

#[test]
fn module_names_are_unique() {
    let graph = graph_of_sources();
    let names: BTreeSet<&str> = graph.keys().map(|module| last(module)).collect();
    assert_eq!(names.len(), graph.len(), "two modules have one name");
}

#[test]
fn arrows_that_make_a_circle_are_found() {
    let graph = |arrows: &[(&str, &[&str])]| -> Graph {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        arrows.iter().map(|(from, names)| ((*from).to_owned(), named(names))).collect()
    };
    let tree = graph(&[("a", &["a::c", "b"]), ("a::c", &["b"]), ("b", &[])]);
    assert_eq!(order_of(&tree), ["a", "a::c", "b"]);
    assert_eq!(arrows_up(&tree, &order_of(&tree)), []);
    let knot = graph(&[("a", &["b"]), ("a::c", &["a"]), ("b", &["b::d"]), ("b::d", &["b"])]);
    assert_eq!(arrows_up(&knot, &order_of(&knot)), [("b::d", "b")]);
    assert_eq!(
        drawn(&tree, &order_of(&tree)),
        "a                 a c\n                  → top\ntop               b\n"
    );
}

#[test]
fn what_a_module_names_is_found() {
    let modules =
        ["engine", "engine::time", "server", "server::sys", "server::snapshot", "protocol"];
    let modules: BTreeSet<String> = modules.map(str::to_owned).into();
    let named = |from: &str, source: &str| -> Vec<String> {
        let paths = paths_in(source);
        paths.iter().filter_map(|path| resolve(path, from, &modules)).collect()
    };
    for (from, source, expected) in [
        (
            "server",
            "use crate::{protocol::Reply, engine::time::Time};",
            &["protocol", "engine::time"][..],
        ),
        (
            "server::sys",
            "use super::Server; use super::snapshot::{self, X};",
            &["server", "server::snapshot", "server::snapshot"],
        ),
        ("server::sys", "use super::super::engine;", &["engine"]),
        ("server", "pub use snapshot::Snapshot; mod sys; use log::info;", &["server::snapshot"]),
        ("server", "fn f() { self::sys::g(); snapshot.read() }", &["server::sys"]),
        ("bin", "use poolcounterd::server::{self, Options};", &["server", "server"]),
        ("engine", "pub(in crate::server) fn f() {} use poolcounter::protocol;", &["protocol"]),
        ("engine", "/// crate::server\nfn f() { \"crate::server\"; }", &[]),
        (
            "engine",
            "#[cfg(test)]\nmod tests { use crate::server; }\nuse time::Time;",
            &["engine::time"],
        ),
        ("engine", "#[cfg(test)]\nuse crate::server;\nuse time::Time;", &["engine::time"]),
    ] {
        assert_eq!(named(from, source), expected, "{source}");
    }
}
