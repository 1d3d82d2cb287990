//! Compares a key with the patterns of all rules at once, in time linear in the key.
//!
//! What stands before the first star and behind the last one is compared with the ends of the
//! key. The pieces between stars are found by one automaton (A. Aho, M. Corasick, "Efficient
//! String Matching", 1975), which reads each byte of the key once: each rule waits for its
//! next piece, and the first place behind the previous one is always right. However many
//! pieces end at a byte, only the rules that wait for one of them cost anything there.

use crate::rules::pattern::Pattern;
use crate::rules::rule::RULES_MAX;
use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton;
use aho_corasick::nfa::contiguous::NFA;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Which of the rules in force match a key: bit n stands for rule n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matches(pub(crate) u64);

impl Matches {
    pub(crate) const NONE: Matches = Matches(0);

    /// Whether no rule matches.
    pub fn is_empty(self) -> bool {
        self == Matches::NONE
    }

    /// The numbers of the rules, in the order in which they apply.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let without_lowest = |bits: &u64| Some(bits & bits.wrapping_sub(1));
        let bits = core::iter::successors(Some(self.0), without_lowest);
        bits.take_while(|&bits| bits != 0).map(|bits| bits.trailing_zeros() as usize)
    }
}

/// The patterns of all rules: bit n stands for rule n.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    patterns: Vec<PatternParts>,
    /// The rules whose keys may begin and end with anything, and contain pieces.
    open_ended: u64,
    /// By the first byte of a key: the other rules whose keys may begin with it.
    by_first_byte: Vec<u64>,
    /// `None` if no pattern has a piece between stars.
    automaton: Option<NFA>,
    /// By the number of a piece: the rules whose first piece it ends with.
    begins: Vec<u64>,
    /// Space for a search, so that it allocates nothing.
    waiting: RefCell<Vec<u64>>,
    /// How many bytes of keys it was compared with.
    matched_bytes: Cell<u64>,
}

/// Compares keys with one pattern, as with those of rules.
#[derive(Debug)]
pub struct KeyFilter(Matcher);

impl KeyFilter {
    /// For this pattern.
    pub fn new(pattern: &Pattern) -> Self {
        KeyFilter(Matcher::new(core::iter::once(pattern)))
    }

    /// Whether the pattern matches `key`. Takes time linear in the key.
    pub fn matches(&self, key: &[u8]) -> bool {
        !self.0.matches(key).is_empty()
    }
}

/// A pattern, in the parts that are compared with a key.
#[derive(Clone, Debug)]
struct PatternParts {
    first: Vec<u8>,
    /// `None` without a star.
    last: Option<Vec<u8>>,
    /// The pieces between stars.
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    len: usize,
    /// The numbers of the pieces that end with it, itself included.
    endings: Range<usize>,
}

impl PatternParts {
    fn of(pattern: &Pattern, texts: &[&[u8]]) -> Self {
        let (first, between, last) = pattern.parts();
        let piece = |text: &[u8]| {
            let number = texts.partition_point(|other| backwards(other).lt(backwards(text)));
            let endings = texts[number..].partition_point(|other| other.ends_with(text));
            Piece { len: text.len(), endings: number..number + endings }
        };
        PatternParts {
            first: first.to_vec(),
            last: last.map(<[u8]>::to_vec),
            pieces: between.filter(|text| !text.is_empty()).map(piece).collect(),
        }
    }

    /// Whether the key begins and ends as the pattern does.
    fn has_ends_of(&self, key: &[u8]) -> bool {
        let Some(rest) = key.strip_prefix(&self.first[..]) else {
            return false;
        };
        self.last.as_ref().map_or(rest.is_empty(), |last| rest.ends_with(last))
    }

    fn last_bytes(&self) -> usize {
        self.last.as_ref().map_or(0, Vec::len)
    }
}

fn backwards(text: &[u8]) -> impl Iterator<Item = &u8> {
    text.iter().rev()
}

/// The pieces between stars of all patterns, each once. Read backwards they are in alphabetical
/// order, so those that end with a piece follow it.
fn pieces_of<'a>(patterns: &[&'a Pattern]) -> Vec<&'a [u8]> {
    let all = patterns.iter().flat_map(|pattern| pattern.parts().1);
    let mut texts: Vec<&[u8]> = all.filter(|text| !text.is_empty()).collect();
    texts.sort_by(|one, other| backwards(one).cmp(backwards(other)));
    texts.dedup();
    texts
}

impl Matcher {
    /// For the patterns of at most [`RULES_MAX`] rules.
    pub(crate) fn new<'a>(patterns: impl Iterator<Item = &'a Pattern>) -> Self {
        let patterns: Vec<&Pattern> = patterns.collect();
        let texts = pieces_of(&patterns);
        let build = || NFA::new(&texts).expect("patterns are far shorter than 2^31 bytes");
        let mut matcher = Matcher {
            patterns: Vec::new(),
            open_ended: 0,
            by_first_byte: vec![0; 1 + usize::from(u8::MAX)],
            automaton: (!texts.is_empty()).then(build),
            begins: vec![0; texts.len()],
            waiting: RefCell::default(),
            matched_bytes: Cell::new(0),
        };
        for (rule, pattern) in patterns.into_iter().enumerate() {
            matcher.add(rule, PatternParts::of(pattern, &texts));
        }
        matcher
    }

    fn add(&mut self, rule: usize, parts: PatternParts) {
        if let Some(piece) = parts.pieces.first() {
            self.begins[piece.endings.clone()].iter_mut().for_each(|rules| *rules |= 1 << rule);
        }
        match parts.first.first() {
            Some(&byte) => self.by_first_byte[usize::from(byte)] |= 1 << rule,
            None if parts.pieces.is_empty() || parts.last_bytes() > 0 => {
                self.by_first_byte.iter_mut().for_each(|rules| *rules |= 1 << rule);
            }
            None => self.open_ended |= 1 << rule,
        }
        self.patterns.push(parts);
    }

    pub(crate) fn matched_bytes(&self) -> u64 {
        self.matched_bytes.get()
    }

    #[inline(always)]
    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.matched_bytes.set(self.matched_bytes.get() + bytes);
    }

    /// The rules whose patterns match `key`.
    pub(crate) fn matches(&self, key: &[u8]) -> Matches {
        self.count_bytes(key.len() as u64);
        let (mut found, mut searched) = (0, self.open_ended);
        let first_byte = key.first().copied().unwrap_or_default();
        let may_match = self.by_first_byte.get(usize::from(first_byte)).copied();
        for rule in Matches(may_match.unwrap_or_default()).iter() {
            let parts = &self.patterns[rule];
            if parts.has_ends_of(key) {
                let rules = if parts.pieces.is_empty() { &mut found } else { &mut searched };
                *rules |= 1 << rule;
            }
        }
        if searched != 0 {
            found |= self.search(key, searched);
        }
        Matches(found)
    }

    /// Which of the rules `searched` have all their pieces in `key`, one behind the other.
    fn search(&self, key: &[u8], searched: u64) -> u64 {
        let Some(automaton) = &self.automaton else {
            return 0;
        };
        let mut waiting = self.waiting.borrow_mut();
        waiting.clear();
        waiting.extend(self.begins.iter().map(|begins| begins & searched));
        let mut search = Search {
            matcher: self,
            key_bytes: key.len(),
            waiting: &mut waiting,
            found: [0; RULES_MAX],
            rest: [0; RULES_MAX],
            left: searched,
        };
        let mut state = automaton.start_state(Anchored::No).expect("it searches everywhere");
        for (at, &byte) in key.iter().enumerate() {
            state = automaton.next_state(Anchored::No, state, byte);
            if automaton.is_match(state) {
                // The longest one comes first, and ends with all others.
                search.record(automaton.match_pattern(state, 0).as_usize(), at + 1);
                if search.left == 0 {
                    break;
                }
            }
        }
        searched & !search.left
    }
}

/// A search for the pieces of patterns in a key.
struct Search<'a> {
    matcher: &'a Matcher,
    key_bytes: usize,
    /// By the number of a piece: the rules that wait for a piece that it ends with.
    waiting: &'a mut [u64],
    /// How many pieces of each rule were found.
    found: [u8; RULES_MAX],
    /// Where each rule's next piece may begin.
    rest: [u32; RULES_MAX],
    /// The rules that the key does not match so far.
    left: u64,
}

impl Search<'_> {
    /// This piece, and no longer one, ends in the key at `end`.
    #[inline(always)]
    fn record(&mut self, longest: usize, end: usize) {
        for rule in Matches(self.waiting[longest]).iter() {
            let PatternParts { first, pieces, .. } = &self.matcher.patterns[rule];
            let rest = first.len().max(self.rest[rule] as usize);
            if end - pieces[usize::from(self.found[rule])].len >= rest {
                self.advance(rule, end);
            }
        }
    }

    /// A rule's next piece ends at `end`.
    fn advance(&mut self, rule: usize, end: usize) {
        let parts = &self.matcher.patterns[rule];
        let found = usize::from(self.found[rule]);
        let ending = parts.pieces[found].endings.clone();
        self.waiting[ending].iter_mut().for_each(|rules| *rules &= !(1 << rule));
        self.found[rule] += 1;
        self.rest[rule] = end as u32;
        match parts.pieces.get(found + 1) {
            Some(next) => {
                let ending = next.endings.clone();
                self.waiting[ending].iter_mut().for_each(|rules| *rules |= 1 << rule);
            }
            // Otherwise the key is too short for its last piece, wherever this one stands.
            None if end + parts.last_bytes() <= self.key_bytes => self.left &= !(1 << rule),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::String;
    use alloc::string::ToString;

    fn matches(patterns: &[String], key: &[u8]) -> Vec<usize> {
        let patterns = patterns.iter().map(|text| Pattern::parse(text.as_bytes()).unwrap());
        let patterns: Vec<Pattern> = patterns.collect();
        Matcher::new(patterns.iter()).matches(key).iter().collect()
    }

    /// Tries each length for each star.
    fn is_match(pattern: &[u8], key: &[u8]) -> bool {
        let mut reached = vec![false; key.len() + 1];
        reached[0] = true;
        for &byte in pattern {
            let before = core::mem::take(&mut reached);
            let first = before.iter().position(|&reached| reached).unwrap_or(usize::MAX);
            let ends = |at: usize| match byte {
                b'*' => at >= first,
                byte => at > 0 && before[at - 1] && key[at - 1] == byte,
            };
            reached = (0..=key.len()).map(ends).collect();
        }
        reached[key.len()]
    }

    #[test]
    fn stars_stand_for_any_bytes() {
        for (pattern, key, expected) in [
            ("k", "k", true),
            ("k", "kk", false),
            ("*", "", true),
            ("*", "anything", true),
            ("enwiki:*", "enwiki:rcache:1234567:canonical", true),
            ("enwiki:*", "dewiki:pcache:idhash:9-0!canonical:revid:41", false),
            ("*:thumb", "x:thumb", true),
            ("*:thumb", "x:thumb:", false),
            ("a*b*c", "a--b--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("*:page:*", "w:pag:page:1", true),
            ("*cache:*", "enwiki:parsoid-rcache:1234567:useParsoid=1", true),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("a*b*b", "ab", false),
            ("*aa*a", "aaa", true),
            ("*aa*a", "aa", false),
            ("ab*b*", "ab", false),
            ("*ab*ba*", "aba", false),
            ("*ab*ba*", "abba", true),
            ("caf\\xc3\\xa9", "caf\u{e9}", true),
            ("caf\u{e9}", "caf\u{e9}", true),
            ("\\x2a*", "*k", true),
            ("\\x2a*", "k*k", false),
            ("\\x5C", "\\", true),
        ] {
            let expected = if expected { vec![0] } else { Vec::new() };
            assert_eq!(matches(&[pattern.to_owned()], key.as_bytes()), expected, "{pattern} {key}");
        }
    }

    /// Numbers that look random.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            // Knuth's MMIX generator.
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) % bound
        }

        fn text(&mut self, letters: &[u8], len: u64) -> Vec<u8> {
            (0..len).map(|_| letters[self.below(letters.len() as u64) as usize]).collect()
        }
    }

    /// Few letters, so that pieces overlap, contain one another and stand in keys.
    #[test]
    fn any_set_of_patterns_matches_as_each_by_itself() {
        let mut numbers = Numbers(47);
        for _ in 0..3_000 {
            let count_max = [RULES_MAX as u64, 6, 2][numbers.below(3) as usize];
            let count = 1 + numbers.below(count_max);
            let patterns: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let len = 1 + numbers.below(12);
                    numbers.text(b"ab:**", len)
                })
                .collect();
            let texts: Vec<String> =
                patterns.iter().map(|p| p.escape_ascii().to_string()).collect();
            for _ in 0..20 {
                let len = numbers.below(24);
                let key = numbers.text(b"ab:", len);
                let each = (0..patterns.len()).filter(|&n| is_match(&patterns[n], &key));
                let key_text = key.escape_ascii();
                assert_eq!(matches(&texts, &key), each.collect::<Vec<_>>(), "{texts:?} {key_text}");
            }
        }
    }
}
