//! Makes scripts from seeds.

use super::scenes::{leave_log_unread, scene};
use super::steps::{CONTROL, OTHER_CONTROL, RULES, Say, Script, Step};
use super::vocabulary::{
    ADDRESSES, COMMAND_LINES, FLOODS, JUNK, REQUESTS, SIGNALS, STARTS, STATISTICS,
};
use crate::simulation::driver::play::OPERATORS;
use crate::simulation::kernel::draws::Choices;
use crate::simulation::operator::expected_rules::RULES_TEXTS;
use crate::simulation::random::Random;
use crate::simulation::reports::http::{self, HTTP};
use protocol::Mode;

/// Places of clients are below; operators have their own.
pub(super) const FIRST_HTTP_CLIENT: u8 = 50;

/// The kind of a run: what may happen, and how often.
struct ScriptProfile {
    /// Where most clients connect to.
    main: &'static str,
    places: u64,
    keys: u64,
    timeouts_s: &'static [u64],
    rooms: &'static [(usize, usize)],
    floods: bool,
    cuts: bool,
    /// There are HTTP clients.
    http: bool,
    operators: bool,
    signals: bool,
    changes_environment: bool,
    has_rules: bool,
    arrives: bool,
    fails: bool,
}

impl Script {
    /// The script of this seed, with at least `turns` turns.
    pub(crate) fn generate(seed: u64, turns: usize) -> Self {
        let mut random = Random(seed);
        let arguments = random.one_of(COMMAND_LINES);
        let profile = ScriptProfile::choose(arguments, &mut random);
        let mut script = Script {
            arguments,
            start: random.one_of(STARTS),
            logs: random.next() % 16 == 0,
            steps: Vec::new(),
        };
        let mut left = turns;
        while left > 0 {
            let step = profile.step(&mut random);
            if let Step::Turn { .. } = step {
                left -= 1;
                profile.prepare_turn(&mut random, &mut script.steps);
                // The log filter is process-wide: it would change the logs of other runs.
                if script.logs && profile.operators && random.next() % 40 == 0 {
                    let line = random.one_of(&["LOG info", "LOG poolcounterd=debug"]);
                    script
                        .steps
                        .push(Step::Ask { place: profile.operator_place(&mut random), line });
                    script.steps.extend(leave_log_unread(&mut random));
                }
            }
            script.steps.push(step);
            if step == Step::TrialEnds && random.next() % 2 == 0 {
                // Shows what the next image does by itself, before something else comes.
                script.steps.extend((0..3).map(|seed| turn(seed, false)));
            }
        }
        if profile.operators {
            script.steps.extend(profile.end_steps(&mut random));
        }
        script
    }
}

/// A turn in which nothing arrives.
fn turn(seed: u64, fails: bool) -> Step {
    Step::Turn { choices: Choices::Seed(seed), arrives: false, fails }
}

impl ScriptProfile {
    fn choose(arguments: &str, random: &mut Random) -> Self {
        let mut one_in = |n: u64| random.next() % n == 0;
        let (floods, cuts, operators) = (one_in(6), one_in(2), one_in(2));
        let signals = one_in(2);
        let http = one_in(if arguments.contains("--http") { 1 } else { 9 });
        let (changes_environment, arrives, fails) = (one_in(3), one_in(2), one_in(4));
        const ROOMS: [&[(usize, usize)]; 3] = [
            &[(100_000, 100_000)],
            &[(100_000, 100_000), (64, 1), (4096, 40), (5000, 3000), (100_000, 9000)],
            &[(64, 1), (8192, 8), (4096, 40), (300, 200)],
        ];
        let has_rules = arguments.contains("--rules");
        let has_free_port = arguments.contains("-p 0");
        ScriptProfile {
            main: if has_free_port { "10.0.0.1:40001" } else { "10.0.0.1:7531" },
            places: random.one_of(&[2, 3, 5, 9, 20]),
            keys: random.one_of(&[1, 1, 2, 3]),
            timeouts_s: random.one_of(&[&[1, 1, 2], &[0, 1, 2, 15, 86_400]]),
            rooms: random.one_of(&ROOMS),
            floods,
            cuts,
            http,
            operators,
            signals,
            changes_environment,
            has_rules,
            arrives,
            fails,
        }
    }

    fn step(&self, random: &mut Random) -> Step {
        if self.http && random.next() % 6 == 0 {
            return self.http_step(random);
        }
        let place = (random.next() % self.places) as u8;
        match random.next() % 100 {
            0..8 => {
                let is_main = random.next() % 3 > 0;
                let to = if is_main { self.main } else { random.one_of(ADDRESSES) };
                Step::Connect { place, to, room: random.one_of(self.rooms) }
            }
            8..34 => {
                let cut = if self.cuts { random.next() as u8 } else { 0 };
                Step::Say { place, what: self.input(random), cut }
            }
            34..48 => Step::Arrive { place },
            48..52 => Step::ArriveAll,
            52..60 => Step::Read { place, max: random.one_of(&[1, 7, 100, 100_000]) },
            60..66 => self.leave_step(place, random),
            66..70 => Step::Advance { ms: random.one_of(&[0, 1, 20, 300, 1000, 3000, 20_000]) },
            70 => Step::AdvanceToDeadline,
            71..74 => self.environment_step(random),
            74..77 => self.operator_step(random),
            _ => Step::Turn {
                choices: Choices::Seed(random.next()),
                arrives: self.arrives && random.next() % 2 == 0,
                fails: self.fails && random.next() % 4 == 0,
            },
        }
    }

    /// A turn for which nothing has arrived shows little: mostly, something arrives.
    fn prepare_turn(&self, random: &mut Random, steps: &mut Vec<Step>) {
        match random.next() % 8 {
            0..3 => steps.push(Step::ArriveAll),
            3..7 => {
                let place = (random.next() % self.places) as u8;
                steps.push(Step::Say { place, what: self.input(random), cut: 0 });
                steps.extend([Step::Arrive { place }; 2]);
            }
            _ if self.operators && self.floods && random.next() % 32 == 0 => {
                // More than may be connected.
                steps.extend((0..20).map(|place| Step::Ask { place, line: "HELP" }));
            }
            _ if self.http && self.floods && random.next() % 32 == 0 => {
                // All ask at once for a report that takes a turn of its own.
                let mut texts = http::request_texts();
                let text = texts.find(|text| text.contains("json")).expect("one of them");
                let (what, room) = (Say::Http(text), random.one_of(self.rooms));
                for place in FIRST_HTTP_CLIENT..FIRST_HTTP_CLIENT + 20 {
                    steps.push(Step::Connect { place, to: HTTP, room });
                    steps.push(Step::Say { place, what, cut: 0 });
                }
                steps.push(Step::ArriveAll);
            }
            _ if self.operators && random.next() % 16 == 0 => {
                steps.extend(scene(self.main, self.fails, random));
            }
            _ if self.operators && random.next() % 64 == 0 => {
                // After a request that takes a while.
                steps.extend([Step::Ask { place: 9, line: "RESTART" }, Step::ArriveAll]);
                steps.push(Step::AskTooLong { place: 9 });
                for _ in 0..14 {
                    steps.extend([turn(random.next(), false), Step::ArriveAll]);
                }
            }
            _ => {}
        }
    }

    /// Something that a client of HTTP does.
    fn http_step(&self, random: &mut Random) -> Step {
        let place = FIRST_HTTP_CLIENT + (random.next() % self.http_places()) as u8;
        match random.next() % 24 {
            0..8 => Step::Connect { place, to: HTTP, room: random.one_of(self.rooms) },
            8..17 => {
                let cut = if self.cuts { random.next() as u8 } else { 0 };
                let times = random.one_of(&[1, 1, 1, 1, 1, 3000]);
                let text = random.one_of(&http::request_texts().collect::<Vec<_>>());
                let what =
                    if times == 1 { Say::Http(text) } else { Say::Flood { line: "x", times } };
                Step::Say { place, what, cut }
            }
            17..19 => Step::Arrive { place },
            19..22 => Step::Read { place, max: random.one_of(&[1, 300, 100_000, 100_000]) },
            22 => self.leave_step(place, random),
            _ => Step::Advance { ms: random.one_of(&[20, 1000, 2000, 5000, 10_000]) },
        }
    }

    /// Sometimes there are more than may be connected.
    fn http_places(&self) -> u64 {
        if self.floods { 24 } else { 4 }
    }

    fn input(&self, random: &mut Random) -> Say {
        let key = 1 + (random.next() % self.keys) as u8;
        match random.next() % 20 {
            0..9 => Say::Acquire {
                mode: random.one_of(&[Mode::ForMe, Mode::ForAnyone]),
                key,
                workers: random.one_of(&[1, 1, 2, 9]),
                max_queue: random.one_of(&[1, 3, 9, 100]),
                timeout_s: random.one_of(self.timeouts_s),
            },
            9..15 => Say::Release,
            15 => Say::Stats(random.one_of(STATISTICS)),
            16 | 17 => Say::Junk(random.one_of(JUNK)),
            18 if random.next() % 4 == 0 => Say::TooLong,
            _ if self.floods => {
                let times = random.one_of(&[3, 60, 800, 3000]);
                Say::Flood { line: random.one_of(FLOODS), times }
            }
            _ => Say::Release,
        }
    }

    fn leave_step(&self, place: u8, random: &mut Random) -> Step {
        match random.next() % 8 {
            0 | 1 => Step::End { place },
            2..5 => Step::Close { place },
            5 => Step::Reset { place },
            6 => Step::Urgent { place },
            _ => Step::Vanish { place },
        }
    }

    fn operator_step(&self, random: &mut Random) -> Step {
        if !self.operators {
            return Step::ArriveAll;
        }
        match random.next() % 10 {
            // Most runs end by themselves, not by SIGTERM.
            0..3 if !self.signals => Step::Advance { ms: 1 },
            0..3 if random.next() % 40 == 0 => Step::Signal(random.one_of(SIGNALS)),
            0..3 => Step::Signal(random.one_of(&SIGNALS[..SIGNALS.len() - 1])),
            3..6 => {
                let (place, line) = (self.operator_place(random), random.one_of(REQUESTS));
                match random.next() % 8 {
                    0 => Step::AskPassing { place, line },
                    _ => Step::Ask { place, line },
                }
            }
            6 if random.next() % 2 == 0 => Step::LosesOne,
            6 => Step::OperatorEnds { place: self.operator_place(random) },
            7 if random.next() % 2 == 0 => {
                Step::OperatorLeaves { place: self.operator_place(random) }
            }
            8 if random.next() % 2 == 0 => {
                let place = OPERATORS as u8 + self.operator_place(random);
                Step::Read { place, max: random.one_of(&[1, 200, 1_500, 100_000]) }
            }
            _ => Step::TrialEnds,
        }
    }

    /// Sometimes there are many operators.
    fn operator_place(&self, random: &mut Random) -> u8 {
        let places = if self.floods { 30 } else { 4 };
        (random.next() % places) as u8
    }

    /// How a run ends: often with what an operator does at the same time.
    fn end_steps(&self, random: &mut Random) -> Vec<Step> {
        let turn = |random: &mut Random| turn(random.next(), self.fails && random.next() % 4 == 0);
        let mut steps = Vec::new();
        if self.signals {
            steps.extend([Step::Signal(libc::SIGUSR1), turn(random)]);
        }
        for _ in 0..random.next() % 6 {
            steps.push(match random.next() % 5 {
                0 if self.signals => {
                    Step::Signal(random.one_of(&[libc::SIGUSR1, libc::SIGUSR2, libc::SIGQUIT]))
                }
                1 => Step::Signal(random.one_of(&[libc::SIGTERM, libc::SIGINT])),
                2 => Step::TrialEnds,
                3 => Step::Ask { place: 0, line: random.one_of(REQUESTS) },
                _ => turn(random),
            });
        }
        steps.push(turn(random));
        steps
    }

    fn environment_step(&self, random: &mut Random) -> Step {
        if !self.changes_environment {
            return Step::ArriveAll;
        }
        if random.next() % 8 == 0 {
            return random.one_of(&[
                Step::Crowd { clients: 150 },
                Step::CrowdAsks,
                Step::CrowdLeaves,
            ]);
        }
        if self.has_rules && random.next() % 3 == 0 {
            return match random.next() % 8 {
                0 => Step::Remove { path: RULES },
                _ => Step::EditRules { text: random.one_of(&RULES_TEXTS).0 },
            };
        }
        let path = random.one_of(&[OTHER_CONTROL, CONTROL]);
        let yes = random.next() % 2 == 0;
        match random.next() % 9 {
            0 => Step::Descriptors { max: random.one_of(&[34, 36, 40, 60, 20_000]) },
            1 if random.next() % 2 == 0 => Step::DirectoryReplaced,
            1 => Step::Binary { is_there: random.next() % 4 > 0 },
            2 => Step::Remove { path },
            3 => Step::Foreign { path, listens: yes },
            4 => Step::ForeignPort { port: random.one_of(&[7532, 7531]), listens: yes },
            5 if random.next() % 2 == 0 => Step::ManagerReplaced,
            5 => Step::ManagerLetsGo,
            6 => Step::ManagerReads(yes),
            _ => Step::LogReads(yes),
        }
    }
}
