//! The pages for operators repeat the recorded figures.

use std::path::Path;

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
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
