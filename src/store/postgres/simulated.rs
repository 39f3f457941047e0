//! Many servers over one database in a world of their own: virtual time, a database that is tables and locks, clocks that are wrong and go
//! wrong, messages that take their time, and faults. What the servers do is as in `node`, `shared`, `write` and the session's `tenure`;
//! who is silent is found by the real [`Watched`](super::shared::Watched), with the real times. Checked at every step:
//!
//! - (a) an event is committed only by a node that is not over then and holds the session;
//! - (b) the numbers of a log have no gap, no event is there twice, and who was told that it is there was told the truth;
//! - (c) no two nodes that are not over take a session for theirs;
//! - (d) ten seconds after the last fault each open turn runs at a node that is there, and what was left open was ended once;
//! - (e) nobody is declared over who was not silent for so long in the eyes of who could see, and nobody with whom nothing is wrong;
//! - (f) no node takes more than half of what another one left.
//!
//! A world follows from its seed, and a failure names it. That the checks see something is shown by breaking one rule at a time.

mod checks;
mod database;
mod faults;
mod server;
mod world;
mod writer;

use self::checks::Figures;
use self::world::World;

/// Worlds that every run of the tests looks at, and those among them that are bigger.
const SEEDS: u64 = 80;
const BIG_EACH: u64 = 40;
/// Each so many of them, where more are asked for, is as big as can be.
const HUGE_EACH: u64 = 1_000;
/// In so many worlds a rule that is broken has to be found.
const BROKEN_SEEDS: u64 = 2_000;
/// Trees that are looked for, and those that are taken at the same time: as in the session's `tenure`.
const TREES: (usize, usize) = (64, 8);
/// Time after which is looked for sessions that nobody has, in any case: as there.
const ROUND_MS: u64 = 10_000;
/// How long the database bears a transaction that does nothing, and lets a statement wait for a lock: as in `connect`.
const IDLE_MS: u64 = 3_000;
const LOCK_MS: u64 = 10_000;

/// Numbers that look like chance and follow from a seed (splitmix64).
#[derive(Debug, Clone)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// One of so many.
    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.below(u64::try_from(count).expect("few"))).expect("few")
    }
}

/// What the protocol consists of, each of which can be left out.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// A transaction marks the row of its node, and fails when that is over.
    fences: bool,
    /// The end of a log moves only for who holds it.
    compares_holder: bool,
    /// Who has beaten since it was looked at is not declared over.
    compares_beat: bool,
    /// Only what nobody has who is there is taken.
    looks_for_holder: bool,
    /// In a time in which nothing was seen, nobody was silent.
    knows_own_blindness: bool,
    /// Nor was anybody in a time in which the own beats did not get through.
    needs_own_beat: bool,
    /// Who declares somebody over does not wait for a transaction.
    passes_locked: bool,
    /// Who did not hear whether it has taken a session finds out.
    knows_own_taking: bool,
    /// What was taken and could not be dealt with is tried again.
    deals_again: bool,
    /// No session wakes while it is given up.
    wakes_outside_moves: bool,
}

/// The protocol as it is meant.
const ALL: Rules = Rules {
    fences: true,
    compares_holder: true,
    compares_beat: true,
    looks_for_holder: true,
    knows_own_blindness: true,
    needs_own_beat: true,
    passes_locked: true,
    knows_own_taking: true,
    deals_again: true,
    wakes_outside_moves: true,
};

/// How big a world is.
#[derive(Debug, Clone, Copy)]
struct Size {
    servers: usize,
    sessions: usize,
}

impl Size {
    fn of(seed: u64, may_be_huge: bool) -> Self {
        let mut chance = Chance(seed ^ 0x512e);
        if may_be_huge && seed % HUGE_EACH == HUGE_EACH - 1 {
            return Self { servers: 300, sessions: 20_000 };
        }
        if seed % BIG_EACH == BIG_EACH - 1 {
            return Self { servers: 12 + chance.pick(20), sessions: 4_000 };
        }
        Self { servers: 2 + chance.pick(7), sessions: 10 + chance.pick(60) }
    }
}

/// One world to its end: what is against the promises, what was counted, and its trace.
fn simulate(seed: u64, rules: Rules, size: Size) -> (Vec<String>, Figures, u64) {
    World::new((seed, rules), size).run()
}

/// The first world behind `from` that shows what is wrong without a rule.
fn first_breach(rules: Rules, kind: &str, from: u64) -> Option<(u64, String)> {
    (0..BROKEN_SEEDS).map(|nth| (from + nth) % BROKEN_SEEDS).find_map(|seed| {
        let breaches = simulate(seed, rules, Size::of(seed, false)).0;
        breaches.into_iter().find(|breach| breach.contains(kind)).map(|breach| (seed, breach))
    })
}

/// Half of them, nearly all, and the worst, in milliseconds.
fn spread(times: &mut [u64]) -> [u64; 3] {
    times.sort_unstable();
    [50, 99, 100]
        .map(|part| times.get((times.len() * part / 100).min(times.len().max(1) - 1)).copied().unwrap_or_default())
}

#[test]
fn whatever_happens_each_session_has_one_server_and_nothing_is_left_behind() {
    // More of them by hand, with SIMSE_SIMULATED_CLUSTERS: some of those are as big as can be.
    let asked: Option<u64> = option_env!("SIMSE_SIMULATED_CLUSTERS").and_then(|many| many.parse().ok());
    let (many, began) = (asked.unwrap_or(SEEDS), std::time::Instant::now());
    let mut all = Figures::default();
    for seed in 0..many {
        let size = Size::of(seed, asked.is_some());
        let (breaches, figures, _) = simulate(seed, ALL, size);
        assert!(breaches.is_empty(), "seed {seed}, {size:?}: {breaches:#?}");
        all.add(figures);
    }
    println!("{many} worlds in {:?}: {:?}", began.elapsed(), all.counts);
    for (what, times) in
        [("nothing but nodes that are killed", &mut all.calm), ("whatever happens", &mut all.takeovers)]
    {
        let ([median, most, worst], count) = (spread(times), times.len());
        println!("{count} turns taken over, {what}: median {median} ms, 99 % {most} ms, worst {worst} ms");
    }
    println!("most of {} nodes that one other took: {:?} %", all.shares.len(), all.shares.iter().max());
    assert!(!all.shares.is_empty(), "nothing was shared out");
    let seen = [
        "events",
        "taken",
        "declared over",
        "killed",
        "frozen",
        "cut off",
        "restarted",
        "stalled",
        "unheard",
        "drained",
    ];
    for what in seen {
        assert!(all.counts.get(what).is_some_and(|count| *count >= many / 20), "few {what}: {:?}", all.counts);
    }
}

#[test]
fn a_rule_that_is_left_out_is_missed() {
    // Each with a world that shows it, to begin there.
    let table = [
        ("fences", Rules { fences: false, ..ALL }, ("(a)", 5)),
        // With the next one no other shows it.
        ("compares the holder", Rules { compares_holder: false, wakes_outside_moves: false, ..ALL }, ("(a)", 240)),
        ("wakes outside moves", Rules { wakes_outside_moves: false, ..ALL }, ("(c)", 24)),
        ("compares the beat", Rules { compares_beat: false, ..ALL }, ("(e)", 57)),
        ("looks for the holder", Rules { looks_for_holder: false, ..ALL }, ("(c)", 5)),
        ("knows its own blindness", Rules { knows_own_blindness: false, ..ALL }, ("(e)", 0)),
        ("needs its own beat", Rules { needs_own_beat: false, ..ALL }, ("(e)", 19)),
        ("passes what is locked", Rules { passes_locked: false, ..ALL }, ("(d)", 183)),
        ("knows its own taking", Rules { knows_own_taking: false, ..ALL }, ("(d)", 279)),
        ("deals again", Rules { deals_again: false, ..ALL }, ("(d)", 1_279)),
    ];
    for (rule, rules, (kind, from)) in table {
        let found = first_breach(rules, kind, from);
        println!("without \"{rule}\": {found:?}");
        assert!(found.is_some(), "nobody misses that it {rule}");
    }
}

#[test]
fn a_world_follows_from_its_seed() {
    let traces = || (0..4).map(|seed| simulate(seed, ALL, Size::of(seed, false)).2).collect::<Vec<u64>>();
    let first = traces();
    assert_eq!(first, traces());
    assert!(first.windows(2).all(|two| two[0] != two[1]), "worlds differ");
}

#[test]
fn the_database_bears_what_the_connections_say() {
    let limits = super::connect::LIMITS;
    assert!(limits.contains(&format!("idle_in_transaction_session_timeout={IDLE_MS}")), "{limits}");
    assert!(limits.contains(&format!("lock_timeout={LOCK_MS}")), "{limits}");
}
