//! A walk over all keys and connections, in steps: a row for each key and address, the top
//! ones, the oldest holds, gauges by group. Several turns see a part each, so that a million of
//! them do not hold up the loop. The report shows each part as it was when it was seen.

use super::report_view::{KEY_BYTES_MAX, ROWS_BYTES_MAX, ROWS_MAX};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::cmp::Reverse;
use engine::rules::matcher::{KeyFilter, Matches};
use engine::rules::pattern::Pattern;
use engine::rules::rule::Rule;
use engine::rules::{RULES_MAX, Rules};
use engine::view::{LockView, Phase, PoolView};
use engine::{ClientId, Engine, Time};
use protocol::Mode;

/// How many places of keys a turn looks at: less than a millisecond, optimized
/// (tests/load/reports.rs).
pub const PLACES_PER_TURN: usize = 20_000;

/// How many bytes of keys a turn compares with a pattern: some milliseconds.
const MATCHED_BYTES_MAX: usize = 1 << 20;

/// At most this many addresses are counted separately. If there are more, those with the
/// fewest connections so far are counted together.
const ADDRESSES_MAX: usize = 10_000;

/// How many of the oldest holds are listed with their holder.
const OLD_HOLDS: usize = 20;

/// One byte of a key more than lists show, to detect that it was cut.
const KEY_BYTES_KEPT: usize = KEY_BYTES_MAX + 1;

/// What a scan is to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanParts {
    /// All keys.
    pub keys: bool,
    /// All connections.
    pub clients: bool,
}

impl ScanParts {
    /// The parts of both.
    pub fn and(self, other: ScanParts) -> ScanParts {
        ScanParts { keys: self.keys || other.keys, clients: self.clients || other.clients }
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Scan {
    /// When it began.
    pub(super) began: Time,
    /// How many turns of the loop it took.
    pub(super) turns: u32,
    next_place: usize,
    /// The rows to show, the least important on top.
    keys: BinaryHeap<Reverse<Row>>,
    pub(super) keys_seen: u64,
    /// How many of the keys have waiters.
    pub(super) keys_waited_for: u64,
    /// When the oldest hold and the oldest wait began.
    pub(super) oldest_hold: Option<Time>,
    pub(super) oldest_wait: Option<Time>,
    /// The oldest hold of each of the keys that are held for longest, by its number in
    /// the order in which all holds began.
    old_holds: BTreeMap<u64, OldHold>,
    /// The number of the newest of these, once there are enough.
    newest_old_hold: Option<u64>,
    /// By [`Rule::identity`]: an order between two steps changes the rules' numbers.
    rules: BTreeMap<String, GroupGauges>,
    /// Of the rules that were in force in the last step, by number.
    rule_names: Rc<[String]>,
    /// By the number of the group.
    groups: Vec<GroupGauges>,
    addresses: BTreeMap<String, Address>,
    /// The sum over the addresses that are not counted separately, and how many there are; an
    /// address that comes back counts again.
    others: Address,
    others_len: usize,
    /// Made for the first request, because many may follow.
    ranked: OnceCell<RankedAddresses>,
    search: Option<Search>,
}

/// The addresses that lists show, and how much there is in all.
#[derive(Debug)]
pub(super) struct RankedAddresses {
    /// Most connections first, then by name.
    pub(super) rows: Vec<(String, Address)>,
    pub(super) addresses: usize,
    pub(super) connections: u64,
    /// The sum over the addresses that are not counted separately, if there are any.
    pub(super) others: Option<Address>,
}

/// One key. They are ordered by importance: more waiters, then an older hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    waiters: u32,
    oldest_hold_inverse: Reverse<Time>,
    pub(super) key: Vec<u8>,
    pub(super) figures: KeyFigures,
    /// The number of its group.
    pub(super) group: usize,
    pub(super) limiting_rules: LimitingRules,
}

impl Row {
    /// A key, cut to `bytes_max`, in the group of this number.
    fn of(key: &SeenKey<'_>, limiting_rules: LimitingRules, bytes_max: usize) -> Row {
        let SeenKey { pool, group, figures } = *key;
        Row {
            waiters: figures.waiters() as u32,
            oldest_hold_inverse: Reverse(figures.oldest_hold.unwrap_or_default()),
            key: pool.key()[..pool.key().len().min(bytes_max)].to_vec(),
            figures,
            group,
            limiting_rules,
        }
    }

    pub(super) fn oldest_hold(&self) -> Time {
        self.oldest_hold_inverse.0
    }
}

/// How many hold a key and wait for it, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyFigures {
    pub(super) holders: usize,
    pub(super) for_me: usize,
    pub(super) for_anyone: usize,
    oldest_hold: Option<Time>,
    pub(super) oldest_wait: Option<Time>,
}

impl KeyFigures {
    fn of(pool: PoolView<'_>) -> KeyFigures {
        let [holders, for_me, for_anyone] = Phase::QUEUED.map(|phase| pool.count(phase));
        let oldest_of = |phase| pool.locks(phase).next().map(|lock| lock.since());
        let [oldest_hold, oldest_for_me, oldest_for_anyone] = Phase::QUEUED.map(oldest_of);
        let oldest_wait = earlier(oldest_for_me, oldest_for_anyone);
        KeyFigures { holders, for_me, for_anyone, oldest_hold, oldest_wait }
    }

    pub(super) fn waiters(&self) -> usize {
        self.for_me + self.for_anyone
    }
}

/// A key that a step looks at, and the number of its group.
#[derive(Clone, Copy)]
struct SeenKey<'a> {
    pool: PoolView<'a>,
    group: usize,
    figures: KeyFigures,
}

/// A hold, with its holder and its key.
#[derive(Clone, Debug)]
pub(super) struct OldHold {
    pub(super) client: ClientId,
    pub(super) mode: Mode,
    pub(super) row: Row,
}

/// The rules that limited a key when it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LimitingRules {
    /// Of all rules that were in force then, by number.
    names: Rc<[String]>,
    limiting: Matches,
    denying: Option<usize>,
}

impl LimitingRules {
    fn of(pool: PoolView<'_>, rules: &Rules, names: &Rc<[String]>) -> LimitingRules {
        let matches = pool.matches();
        let (limiting, denying) = (rules.limiting(matches), rules.denying(matches));
        LimitingRules { names: Rc::clone(names), limiting, denying }
    }

    /// Their names, in the order in which they apply.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.limiting.iter().map(|n| &self.names[n])
    }

    /// The one that denies the key.
    pub(super) fn denied_by(&self) -> Option<String> {
        self.denying.map(|n| self.names[n].clone())
    }
}

/// Keys that a rule matches, or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupGauges {
    pub(super) keys: u64,
    pub(super) holders: u64,
    pub(super) waiters: u64,
    /// When the oldest hold began.
    pub(super) oldest_hold: Option<Time>,
    /// How many keys have an oldest hold that counts as stuck.
    pub(super) stuck: u64,
}

impl GroupGauges {
    fn merge(&mut self, later: &GroupGauges) {
        self.keys += later.keys;
        self.holders += later.holders;
        self.waiters += later.waiters;
        self.oldest_hold = earlier(self.oldest_hold, later.oldest_hold);
        self.stuck += later.stuck;
    }
}

/// The connections from one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) connections: u64,
    pub(super) holds: u64,
    pub(super) waits: u64,
}

impl Address {
    fn add(&mut self, other: Address) {
        self.connections += other.connections;
        self.holds += other.holds;
        self.waits += other.waits;
    }
}

impl Scan {
    /// A walk that begins at `now`, and also looks for the keys that match a `pattern`.
    pub fn new(now: Time, pattern: Option<&[u8]>) -> Self {
        // One that is no pattern has been refused.
        let pattern = pattern.and_then(|pattern| Pattern::parse(pattern).ok());
        let search = pattern.map(|pattern| Search::new(&pattern));
        Scan { began: now, search, ..Scan::default() }
    }

    /// Notes that a turn of the loop begins.
    pub fn count_turn(&mut self) {
        self.turns += 1;
    }

    /// Looks at the keys in the next `places`, or fewer if so many bytes are compared with a pattern.
    /// Returns whether these were the last.
    pub fn step(&mut self, engine: &Engine, places: usize) -> bool {
        let end = self.next_place.saturating_add(places).min(engine.pool_places());
        let rules = engine.rules();
        let names = rules.in_force().iter().map(|rule| rule.rule.shown_name().to_owned());
        self.rule_names = names.collect();
        let mut by_rule = [GroupGauges::default(); RULES_MAX];
        // One place after the other takes a tenth longer.
        let at_once = if self.search.is_some() { 1 } else { places };
        let mut bytes_left = MATCHED_BYTES_MAX;
        while self.next_place < end && bytes_left > 0 {
            let until = self.next_place.saturating_add(at_once).min(end);
            for pool in engine.pools_in(self.next_place, until) {
                let group = rules.group_of(pool.matches());
                let key = SeenKey { pool, group, figures: KeyFigures::of(pool) };
                self.add_groups(&key, rules, &mut by_rule);
                self.add_key(&key, rules);
                if self.search.is_some() {
                    bytes_left = bytes_left.saturating_sub(pool.key().len());
                }
            }
            self.next_place = until;
        }
        self.add_rules(rules, &by_rule);
        self.next_place >= engine.pool_places()
    }

    /// Adds what a step has seen of the keys of each rule, by the rule's number.
    fn add_rules(&mut self, rules: &Rules, by_rule: &[GroupGauges]) {
        let mut step: BTreeMap<String, &GroupGauges> = BTreeMap::new();
        for (rule, seen) in rules.in_force().iter().zip(by_rule) {
            // A `--max-hold` may be given twice, and both have seen the same keys.
            step.entry(rule.rule.identity()).or_insert(seen);
        }
        for (rule, seen) in step {
            self.rules.entry(rule).or_default().merge(seen);
        }
    }

    fn add_key(&mut self, key: &SeenKey<'_>, rules: &Rules) {
        let SeenKey { pool, figures, .. } = *key;
        let waiters = figures.waiters() as u32;
        let oldest_hold = figures.oldest_hold.unwrap_or_default();
        self.keys_seen += 1;
        self.keys_waited_for += u64::from(waiters > 0);
        if let Some(holder) = pool.locks(Phase::Holding).next() {
            self.add_holder(holder, key, rules);
        }
        self.oldest_hold = earlier(self.oldest_hold, Some(oldest_hold));
        self.oldest_wait = earlier(self.oldest_wait, figures.oldest_wait);
        if let Some(search) = &mut self.search {
            search.add(pool.key(), (Reverse(oldest_hold), waiters), || {
                let limiting_rules = LimitingRules::of(pool, rules, &self.rule_names);
                Row::of(key, limiting_rules, usize::MAX)
            });
        }
        let importance = (waiters, Reverse(oldest_hold));
        if self.keys.len() >= ROWS_MAX {
            let least = self.keys.peek().map(|Reverse(row)| (row.waiters, row.oldest_hold_inverse));
            if least.is_some_and(|least| least >= importance) {
                return;
            }
            self.keys.pop();
        }
        let limiting_rules = LimitingRules::of(pool, rules, &self.rule_names);
        self.keys.push(Reverse(Row::of(key, limiting_rules, KEY_BYTES_KEPT)));
    }

    /// Counts a key for its rules and its group.
    fn add_groups(&mut self, key: &SeenKey<'_>, rules: &Rules, by_rule: &mut [GroupGauges]) {
        let SeenKey { pool, group, figures } = *key;
        let matches = pool.matches();
        let oldest_hold = figures.oldest_hold.unwrap_or(self.began);
        let is_stuck = rules.stuck_after_s(matches).is_some_and(|stuck_after_s| {
            self.began.ns_since(oldest_hold) >= u64::from(stuck_after_s) * 1_000_000_000
        });
        let of_key = GroupGauges {
            keys: 1,
            holders: figures.holders as u64,
            waiters: figures.waiters() as u64,
            oldest_hold: Some(oldest_hold),
            stuck: u64::from(is_stuck),
        };
        for rule in matches.iter() {
            by_rule[rule].merge(&of_key);
        }
        if self.groups.len() <= group {
            self.groups.resize(group + 1, GroupGauges::default());
        }
        self.groups[group].merge(&of_key);
    }

    /// What was seen of the keys that a rule matches.
    pub(super) fn of_rule(&self, rule: &Rule) -> GroupGauges {
        self.rules.get(&rule.identity()).copied().unwrap_or_default()
    }

    /// What was seen of a group.
    pub(super) fn of_group(&self, group: usize) -> GroupGauges {
        self.groups.get(group).copied().unwrap_or_default()
    }

    fn add_holder(&mut self, holder: LockView<'_>, key: &SeenKey<'_>, rules: &Rules) {
        if self.newest_old_hold.is_some_and(|newest| newest < holder.sequence()) {
            return;
        }
        let limiting_rules = LimitingRules::of(key.pool, rules, &self.rule_names);
        let row = Row::of(key, limiting_rules, KEY_BYTES_KEPT);
        let hold = OldHold { client: holder.client(), mode: holder.mode(), row };
        self.old_holds.insert(holder.sequence(), hold);
        if self.old_holds.len() > OLD_HOLDS {
            self.old_holds.pop_last();
        }
        if self.old_holds.len() == OLD_HOLDS {
            self.newest_old_hold = self.old_holds.last_key_value().map(|(&number, _)| number);
        }
    }

    /// The oldest hold of each key, first those of the keys that are held for longest.
    pub(super) fn old_holds(&self) -> impl Iterator<Item = &OldHold> {
        self.old_holds.values()
    }

    /// Adds a connection from `address` with its holds and waits.
    pub fn add_connection(&mut self, address: &str, holds: u64, waits: u64) {
        self.ranked.take();
        let row = match self.addresses.get_mut(address) {
            Some(row) => row,
            None => {
                self.make_room_for_address();
                self.addresses.entry(address.to_owned()).or_default()
            }
        };
        row.add(Address { connections: 1, holds, waits });
    }

    /// Counts the smaller half of the addresses together if they are too many.
    fn make_room_for_address(&mut self) {
        if self.addresses.len() < ADDRESSES_MAX {
            return;
        }
        let mut counts: Vec<u64> = self.addresses.values().map(|row| row.connections).collect();
        let (_, &mut median, _) = counts.select_nth_unstable(ADDRESSES_MAX / 2);
        self.addresses.retain(|_, row| {
            let stays = row.connections > median;
            if !stays {
                self.others.add(*row);
                self.others_len += 1;
            }
            stays
        });
    }

    /// The most important keys, first.
    pub(super) fn keys(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.keys.iter().map(|Reverse(row)| row).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        rows
    }

    /// The keys that match the pattern; none without one.
    pub(super) fn found(&self) -> Found<'_> {
        let Some(search) = &self.search else { return Found::default() };
        let mut rows: Vec<_> = search.rows.iter().map(|Reverse(row)| row).collect();
        rows.sort_unstable_by(|a, b| b.cmp(a));
        Found { matching: search.matching, rows: rows.into_iter().map(|(_, row)| row).collect() }
    }

    /// The most important addresses.
    pub(super) fn addresses(&self) -> &RankedAddresses {
        self.ranked.get_or_init(|| {
            let named = self.addresses.iter().map(|(address, row)| (address.as_str(), *row));
            let mut rows: Vec<(&str, Address)> = named.collect();
            rows.sort_unstable_by_key(|&(name, row)| (Reverse(row.connections), name));
            let addresses = rows.len() + self.others_len;
            let connections = rows.iter().map(|(_, row)| row.connections).sum::<u64>();
            rows.truncate(ROWS_MAX);
            let rows = rows.into_iter().map(|(name, row)| (name.to_owned(), row)).collect();
            let connections = connections + self.others.connections;
            let others = (self.others_len > 0).then_some(self.others);
            RankedAddresses { rows, addresses, connections, others }
        })
    }
}

/// The keys that match a pattern.
#[derive(Debug)]
struct Search {
    filter: KeyFilter,
    matching: u64,
    /// Those that are held for longest, the least important on top. They have their whole keys.
    rows: BinaryHeap<Reverse<(SearchRank, Row)>>,
    /// How long these keys are together.
    key_bytes: usize,
    /// What was left out ranks no higher.
    left_out: Option<SearchRank>,
}

/// An older hold comes first, then more waiters.
type SearchRank = (Reverse<Time>, u32);

impl Search {
    fn new(pattern: &Pattern) -> Search {
        let filter = KeyFilter::new(pattern);
        Search { filter, matching: 0, rows: BinaryHeap::new(), key_bytes: 0, left_out: None }
    }

    /// Adds a key if it matches; `row` makes its row.
    fn add(&mut self, key: &[u8], rank: SearchRank, row: impl FnOnce() -> Row) {
        if !self.filter.matches(key) {
            return;
        }
        self.matching += 1;
        if self.left_out.is_some_and(|left_out| left_out >= rank) {
            return;
        }
        self.rows.push(Reverse((rank, row())));
        self.key_bytes += key.len();
        while self.rows.len() > ROWS_MAX || self.key_bytes > ROWS_BYTES_MAX {
            let Some(Reverse((rank, row))) = self.rows.pop() else { break };
            self.key_bytes -= row.key.len();
            self.left_out = Some(rank);
        }
    }
}

/// What a scan has found by its pattern.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// How many keys match.
    pub(super) matching: u64,
    /// The first ones.
    pub(super) rows: Vec<&'a Row>,
}

fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
