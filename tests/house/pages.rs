//! The pages for operators repeat the recorded figures.

use std::path::Path;

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// The first word of `text` as a number, such as `15,600` or `24.2`.
fn number(text: &str) -> f64 {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.replace(',', "").parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// The CPU time of a cycle of cycle-20 in µs: in the tables, and on the slower processor, of which
/// the text below the tables tells.
fn recorded_cycles(benchmarks: &str) -> (f64, f64) {
    let row = benchmarks.lines().skip_while(|line| !line.starts_with("| **cycle-20**")).nth(1);
    let in_table = number(row.and_then(|row| row.split('|').nth(4)).expect("a figure"));
    let text = benchmarks.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, slower) = text.split_once("a lock of cycle-20 took ").expect("the slower processor");
    (in_table, number(slower))
}

#[test]
fn sizing_is_computed_from_the_slower_recorded_benchmark() {
    let (in_table, slower) = recorded_cycles(&page("docs/benchmarks.md"));
    assert!(slower >= in_table, "plan with the slower processor: it took {in_table} µs");
    let scaling = page("docs/scaling.md");
    let line = scaling.lines().find(|line| line.starts_with("| a lock: connect, lock, release"));
    let line = line.expect("a row for a lock");
    for part in [format!("| {slower:.0} µs of one core |"), format!(" took {in_table:.0} |")] {
        assert!(line.contains(&part), "docs/scaling.md needs {part} in {line}");
    }
    let computed = format!("round(n*10*{slower:.0}e-4, 1)");
    assert!(scaling.contains(&computed), "docs/scaling.md needs {computed}");
    let rows = scaling.lines().skip_while(|line| !line.starts_with("| web servers |")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let cells: Vec<f64> = row.split('|').skip(1).take(4).map(number).collect();
        let [_, locks_a_second, shown, daemons] = cells[..] else { panic!("{row}") };
        let percent = locks_a_second * slower / 1e4;
        let rounding = if percent < 1.0 { 0.05 } else { 0.5 };
        assert!((percent - shown).abs() <= rounding, "{percent} % of a core: {row}");
        let needed = (percent / 50.0).ceil();
        assert!(daemons == needed, "{needed} daemons with half of a core each: {row}");
    }
}
