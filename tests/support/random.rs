//! Random numbers that a seed repeats.

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014): small, and a seed gives the same numbers on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }
}

/// A number from an environment variable: a seed to repeat, or how much to try.
///
/// # Panics
/// When the variable is not a number.
pub(crate) fn number_from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Each day starts at a different seed, so that the tests try something new. All runs
/// of a day start at the same one, so that a failure can be repeated without its
/// output.
#[expect(clippy::disallowed_types, reason = "the seed differs each day, if somebody asks for it")]
pub(crate) fn seed_of_the_day() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).expect("a clock");
    since.as_secs() / 86_400 * 1_000_000
}
