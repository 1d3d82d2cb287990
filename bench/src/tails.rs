//! The scenario `tails`: latencies of all programs, close to each other in time.
//!
//! Disturbances of milliseconds decide the slowest thousandth of all requests. So all
//! servers run at once, and the load goes to each of them in turn, a twentieth of a second
//! at a time: a disturbance of a second or more hits all alike.

use crate::Result;
use crate::fleet::Fleet;
use crate::scenario::{Figures, Scale, latency_figures, must_be_clean, warm_fleet};
use crate::server::{Program, Server};
use crate::traffic::{Traffic, histogram};

const SLICE_S: f64 = 0.05;

/// At the start of a slice another server's code is in the caches: not counted.
const WARM_UP_S: f64 = 0.005;

const CONNECTIONS: usize = 50;

/// A running server and its load.
struct Lane {
    fleet: Fleet,
    traffic: Traffic,
    _server: Server,
    /// The latency at 99.9 % of each slice, in microseconds.
    of_slices: Vec<f64>,
    /// All slices together.
    latency: hdrhistogram::Histogram<u64>,
}

/// Measures `programs` on `core`; the figures of each.
pub fn tails(programs: &[&Program], core: usize, scale: &Scale) -> Result<Vec<Figures>> {
    let mut lanes = Vec::new();
    let mut rate = 0.0;
    for program in programs {
        let server = Server::start(program, core)?;
        let (mut fleet, mut traffic) = warm_fleet(&server, scale, CONNECTIONS)?;
        if program.name == "ours" || rate == 0.0 {
            let begin_ns = fleet.now_ns();
            traffic.run(&mut fleet, scale.warm_up)?;
            rate = traffic.requests as f64 * 5e8 / (fleet.now_ns() - begin_ns) as f64;
        }
        let (of_slices, latency) = (Vec::new(), histogram());
        lanes.push(Lane { fleet, traffic, _server: server, of_slices, latency });
    }
    let slices = (scale.window / SLICE_S).round() as usize;
    for slice in 0..slices {
        for turn in 0..lanes.len() {
            let lane = (slice + turn) % lanes.len();
            lanes[lane].run_slice(rate)?;
        }
    }
    lanes.into_iter().map(|lane| lane.figures(rate)).collect()
}

impl Lane {
    fn run_slice(&mut self, rate: f64) -> Result<()> {
        self.traffic.run_paced(&mut self.fleet, WARM_UP_S, rate)?;
        self.traffic.forget();
        self.traffic.run_paced(&mut self.fleet, SLICE_S, rate)?;
        must_be_clean(&self.traffic)?;
        self.of_slices.push(self.traffic.latency.value_at_quantile(0.999) as f64 / 1e3);
        // Both have the same bounds: this can't fail.
        let _ = self.latency.add(&self.traffic.latency);
        Ok(())
    }

    fn figures(mut self, rate: f64) -> Result<Figures> {
        self.traffic.latency = self.latency;
        let mut figures = latency_figures(&self.traffic);
        let median = crate::figures::quantile(&self.of_slices, 0.5).ok_or("no slice")?;
        figures.extend([("p99.9_slice", median), ("sent", rate)]);
        Ok(figures)
    }
}
