//! The figures of the page.

use crate::figures::{Spread, human, spread};
use crate::outcome::Outcome;
use crate::plot::{Plot, Series, Shape};

/// (file name, plot)
pub fn plots(outcome: &Outcome) -> Vec<(&'static str, Plot)> {
    let series = |points: &[(&str, &str)]| -> Vec<Series> {
        let of = |program: &String| Series {
            name: program.clone(),
            values: points
                .iter()
                .map(|(scenario, metric)| spread(&outcome.values(scenario, program, metric)))
                .collect(),
        };
        outcome.programs.iter().map(of).filter(|s| s.values.iter().any(Option::is_some)).collect()
    };
    let kept = ["kept-1", "kept-50", "kept-1000", "kept-10000"].map(|s| (s, "cpu_request"));
    let cycle = ["cycle-20", "cycle-100", "cycle-300"].map(|s| (s, "cpu_cycle"));
    let percentiles = ["p50", "p75", "p90", "p99", "p99.9"].map(|p| ("paced-50", p));
    let beside = ["kept-50", "keys-1000", "keys-10000", "keys-50000"].map(|s| (s, "cpu_request"));
    let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
    let mut plots = vec![
        (
            "cpu-per-request",
            Plot {
                title: "CPU time of the server for one request".into(),
                unit: "µs, by number of kept connections; less is better".into(),
                places: names(&["1", "50", "1000", "10,000"]),
                series: series(&kept),
                shape: Shape::Bars,
            },
        ),
        (
            "cpu-per-cycle",
            Plot {
                title: "CPU time of the server for connect, lock, release, close".into(),
                unit: "µs, by number of clients at once; less is better".into(),
                places: names(&["20", "100", "300"]),
                series: series(&cycle),
                shape: Shape::Bars,
            },
        ),
        (
            "latency",
            Plot {
                title: "Latency at 40,000 requests a second on 50 connections".into(),
                unit: "µs from when a request was due, by percentile; logarithmic; less is better"
                    .into(),
                places: names(&["50 %", "75 %", "90 %", "99 %", "99.9 %"]),
                series: series(&percentiles),
                shape: Shape::Lines,
            },
        ),
        (
            "keys-daemon",
            Plot {
                title: "CPU time for one request while others hold keys".into(),
                unit: "µs, 50 kept connections, by number of keys that others hold; less is better"
                    .into(),
                places: names(&["0", "1000", "10,000", "50,000"]),
                series: series(&beside).into_iter().filter(|s| s.name != "floor").collect(),
                shape: Shape::Bars,
            },
        ),
    ];
    plots.push(("keys-engine", engine_plot(outcome)));
    plots
}

fn engine_plot(outcome: &Outcome) -> Plot {
    let flat = |x| Some(Spread { low: x, median: x, high: x });
    Plot {
        title: "The engine alone: an uncontended lock and release".into(),
        unit: "ns, by number of live keys; logarithmic; less is better".into(),
        places: outcome.engine.iter().map(|r| human(r.keys as f64)).collect(),
        series: vec![Series {
            name: "ours".into(),
            values: outcome.engine.iter().map(|r| flat(r.pair_ns)).collect(),
        }],
        shape: Shape::Lines,
    }
}
