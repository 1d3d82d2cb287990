//! What a run of the suite measured.

use crate::scenario::Figures;

/// One program's figures in one round of one scenario.
pub struct Sample {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The program's name.
    pub program: String,
    /// Counted from 0.
    pub round: usize,
    /// What was measured.
    pub figures: Figures,
}

/// All results of a run.
pub struct Outcome {
    /// All samples, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// What could not be measured, and why.
    pub failures: Vec<String>,
    /// The programs compared.
    pub programs: Vec<String>,
    /// The number of rounds.
    pub rounds: usize,
    /// What the engine's own benchmark printed: keys, ns per pair and so on.
    pub engine: Vec<EngineRow>,
}

/// The engine alone, with this many live keys.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineRow {
    /// The number of live keys.
    pub keys: u64,
    /// Nanoseconds for an uncontended ACQ4ME and RELEASE.
    pub pair_ns: f64,
    /// The slowest single insert while growing to this many keys.
    pub worst_insert_ms: f64,
}

impl Outcome {
    /// Figure `metric` of `program` in `scenario`, round by round.
    pub fn by_round(&self, scenario: &str, program: &str, metric: &str) -> Vec<Option<f64>> {
        let in_round = |round| {
            let of_it =
                |s: &&Sample| s.scenario == scenario && s.program == program && s.round == round;
            let sample = self.samples.iter().find(of_it)?;
            sample.figures.iter().find(|(name, _)| *name == metric).map(|(_, value)| *value)
        };
        (0..self.rounds).map(in_round).collect()
    }

    /// The same, without the rounds that failed.
    pub fn values(&self, scenario: &str, program: &str, metric: &str) -> Vec<f64> {
        self.by_round(scenario, program, metric).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_round_leaves_a_gap() {
        let sample = |round, value| Sample {
            scenario: "kept-1",
            program: "ours".into(),
            round,
            figures: vec![("cpu_request", value)],
        };
        let outcome = Outcome {
            samples: vec![sample(0, 4.0), sample(2, 5.0)],
            failures: Vec::new(),
            programs: vec!["ours".into()],
            rounds: 3,
            engine: Vec::new(),
        };
        let by_round = outcome.by_round("kept-1", "ours", "cpu_request");
        assert_eq!(by_round, [Some(4.0), None, Some(5.0)]);
        assert_eq!(outcome.values("kept-1", "ours", "cpu_request"), [4.0, 5.0]);
        assert!(outcome.values("kept-1", "floor", "cpu_request").is_empty());
    }
}
