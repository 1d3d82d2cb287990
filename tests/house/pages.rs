//! The pages for operators stay short, and repeat the recorded figures.

use std::path::Path;

/// What an operator may have to read. Evidence, and what authors of clients read, may be longer.
const PAGES: [&str; 8] = [
    "README.md",
    "SECURITY.md",
    "docs/install.md",
    "docs/mediawiki.md",
    "docs/operations.md",
    "docs/runbook.md",
    "docs/monitoring.md",
    "docs/scaling.md",
];

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

#[test]
fn pages_for_operators_are_short() {
    let metrics = page("docs/metrics.md");
    let without_table: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('|')).collect();
    let all = PAGES.map(|path| words(&page(path))).iter().sum::<usize>();
    let all = all + words(&without_table.join("\n"));
    assert!(all <= 12_000, "{all} words");
    assert!(words(&page("README.md")) <= 600);
}

#[test]
fn sizing_is_computed_from_the_recorded_benchmark() {
    let benchmarks = page("docs/benchmarks.md");
    let row = benchmarks.lines().skip_while(|line| !line.starts_with("| **cycle-20**")).nth(1);
    let ours =
        row.and_then(|row| row.split('|').nth(4)).and_then(|cell| cell.split_whitespace().next());
    let cycle_us: f64 = ours.expect("a figure").parse().expect("a number");
    let scaling = page("docs/scaling.md");
    let cell = format!("| a lock: connect, lock, release, close | {cycle_us:.0} µs of one core |");
    assert!(scaling.contains(&cell), "docs/scaling.md needs {cell}");
    let computed = format!("round(n*10*{cycle_us:.0}e-4, 1)");
    assert!(scaling.contains(&computed), "docs/scaling.md needs {computed}");
}
