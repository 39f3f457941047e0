//! What is found in memory is what the tables hold: compared with a look at every text and every vector, over changes
//! from this handle and from another one.

use super::*;

/// Numbers that are the same on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Some words, the first ones more often.
    fn words(&mut self) -> String {
        let words: Vec<String> =
            (0..1 + self.below(9)).map(|_| format!("w{}ing", self.below(30) * self.below(30) / 20)).collect();
        words.join(" ")
    }

    fn vector(&mut self) -> Vec<f32> {
        (0..24).map(|_| f32::from(u8::try_from(self.below(201)).expect("small")) - 100.0).collect()
    }
}

fn sought<'a>(query: &'a str, vector: Option<&'a [f32]>, (results, threshold): (usize, f64)) -> Sought<'a> {
    Sought { query, vector: vector.map(|vector| ("m", vector)), results, threshold }
}

fn assert_same(found: &[Ranked], want: &[Ranked], what: &str) {
    let keys = |ranked: &[Ranked]| ranked.iter().map(|one| one.key).collect::<Vec<_>>();
    assert_eq!(keys(found), keys(want), "{what}: {found:?}, not {want:?}");
    assert!(found.iter().zip(want).all(|(a, b)| (a.score - b.score).abs() < 1e-9), "{what}: {found:?}, not {want:?}");
}

#[test]
fn a_search_in_memory_finds_what_a_look_at_all_texts_finds() {
    let store = RecallStore::in_memory().expect("opens");
    let mut dice = Dice(42);
    let texts: Vec<NewEntry> = (0..600).map(|n| entry(&format!("{} n{n}", dice.words()))).collect();
    let added = store.add("p", &texts).expect("kept").added;
    // A third has no vector; some are the same.
    let vectors: Vec<(i64, Vec<f32>)> = added
        .iter()
        .filter(|one| one.key % 3 != 0)
        .map(|one| (one.key, if one.key % 7 == 0 { vec![1.0; 24] } else { dice.vector() }))
        .collect();
    store.put_vectors("m", &vectors).expect("kept");
    store.put_refused("m", added[2].key).expect("noted");
    let mut answers = 0;
    for round in 0..120 {
        let (query, vector) = (dice.words(), if round % 4 == 0 { vec![1.0; 24] } else { dice.vector() });
        for vector in [None, Some(vector.as_slice())] {
            for bounds in [(1, 0.0), (5, 0.3), (100, 0.0), (100, 0.9)] {
                let sought = sought(&query, vector, bounds);
                let found = store.find("p", &sought).expect("searched");
                let want = store.find_in_tables("p", &sought).expect("searched");
                assert_same(&found.ranked, &want.ranked, &format!("{sought:?}"));
                assert_eq!(found.unsettled, want.unsettled);
                answers += found.ranked.len();
            }
        }
    }
    assert!(answers > 10_000, "{answers}");
    let piece = store.find("p", &sought("=>", None, (5, 0.0))).expect("searched");
    assert_eq!(piece, Finding::default());
    assert_eq!(store.find("nobody", &sought("w0ing", None, (5, 0.0))).expect("searched"), Finding::default());
}

/// Does something to the memory.
fn change(store: &RecallStore, dice: &mut Dice) {
    let there = store.list("p", 0, 1_000).expect("listed");
    let any = |dice: &mut Dice| {
        let at = dice.below(there.len().max(1) as u64);
        there.get(usize::try_from(at).expect("small")).cloned()
    };
    match dice.below(20) {
        0..8 => drop(store.add("p", &[entry(&dice.words()), entry(&dice.words())]).expect("kept")),
        8..10 => {
            let Some(one) = any(dice) else { return };
            store.add("p", &[about(&one.text, &dice.words())]).expect("kept");
        }
        10..13 => {
            let Some(one) = any(dice) else { return };
            assert!(store.delete("p", &one.id).expect("forgotten"));
        }
        13..18 => {
            let vectors: Vec<_> = there.iter().take(3).map(|one| (one.key, dice.vector())).collect();
            store.put_vectors(if dice.below(6) == 0 { "other" } else { "m" }, &vectors).expect("kept");
        }
        18 => {
            let Some(one) = any(dice) else { return };
            store.put_refused("m", one.key).expect("noted");
        }
        _ if dice.below(8) == 0 => drop(store.clear("p").expect("forgotten")),
        _ => drop(store.add("q", &[entry(&dice.words())]).expect("kept")),
    }
}

#[test]
fn changes_of_this_handle_and_of_another_one_are_seen() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || RecallStore::open(&directory.path().join("memory.db")).expect("opens");
    let (one, other) = (open(), open());
    let mut dice = Dice(7);
    for round in 0..150 {
        for _ in 0..dice.below(4) {
            change(if dice.below(2) == 0 { &one } else { &other }, &mut dice);
        }
        let (query, vector) = (dice.words(), dice.vector());
        let sought = sought(&query, (round % 3 > 0).then_some(vector.as_slice()), (50, 0.0));
        let anew = open();
        let want = anew.find("p", &sought).expect("searched");
        for handle in [&one, &other] {
            let found = handle.find("p", &sought).expect("searched");
            assert_same(&found.ranked, &want.ranked, &format!("round {round}"));
            assert_eq!(found.unsettled, want.unsettled, "round {round}");
        }
    }
}

#[test]
fn who_missed_too_much_reads_all_of_it_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || RecallStore::open(&directory.path().join("memory.db")).expect("opens");
    let (one, other) = (open(), open());
    one.add("p", &[entry("first")]).expect("kept");
    let first = sought("first", None, (5, 0.0));
    assert_eq!(one.find("p", &first).expect("searched").ranked.len(), 1);
    let texts: Vec<NewEntry> = (0..1_500).map(|n| entry(&format!("second {n}"))).collect();
    other.add("p", &texts).expect("kept");
    assert_eq!(one.find("p", &sought("1499", None, (5, 0.0))).expect("searched").ranked.len(), 1);
    // As if so much had happened that the changes are no longer kept.
    other.add("p", &[entry("third")]).expect("kept");
    other.with("forget changes", |connection| connection.execute("DELETE FROM change", [])).expect("forgotten");
    assert_eq!(one.find("p", &sought("third", None, (5, 0.0))).expect("searched").ranked.len(), 1);
}

#[test]
fn changes_are_forgotten_and_slots_of_gone_texts_too() {
    let store = RecallStore::in_memory().expect("opens");
    let number = |store: &RecallStore| {
        store
            .with("count", |c| c.query_row("SELECT count(*) FROM change", [], |row| row.get::<_, i64>(0)))
            .expect("counted")
    };
    let texts: Vec<NewEntry> = (0..2_600).map(|n| entry(&format!("note {n}"))).collect();
    let added = store.add("p", &texts).expect("kept").added;
    let note = sought("note", None, (5, 0.0));
    assert_eq!(store.find("p", &note).expect("searched").ranked.len(), 5);
    let before = store.indexes.sizes()[0].1;
    for one in &added[..2_000] {
        assert!(store.delete("p", &one.id).expect("forgotten"));
        // One by one they are seen as changes.
        if one.key % 400 == 0 {
            store.find("p", &note).expect("searched");
        }
    }
    store.find("p", &note).expect("searched");
    store.find("p", &note).expect("searched");
    let after = store.indexes.sizes()[0].1;
    assert!(after * 2 < before, "{after} of {before}");
    assert_eq!(number(&store), 4_600);
    store
        .with("many changes", |c| {
            let transaction = c.transaction()?;
            (0..16_000).try_for_each(|_| note_change(&transaction))?;
            transaction.commit()
        })
        .expect("noted");
    assert_eq!(number(&store), CHANGES_MAX);
}

fn note_change(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    note(transaction, 1, (range_of(1).0 | 2_600, false))
}

#[test]
fn projects_without_room_are_searched_in_the_tables() {
    let texts: Vec<NewEntry> = (0..400).map(|n| entry(&format!("note number {n}"))).collect();
    let with = |bytes_max| {
        let store = RecallStore { indexes: Indexes::within(bytes_max), ..RecallStore::in_memory().expect("opens") };
        for project in ["p", "q"] {
            let added = store.add(project, &texts).expect("kept").added;
            let vectors: Vec<_> = added.iter().map(|one| (one.key, vec![1.0, 0.5])).collect();
            store.put_vectors("m", &vectors).expect("kept");
        }
        store
    };
    let seven = sought("number 7", Some(&[1.0, 0.5]), (3, 0.0));
    let find = |store: &RecallStore, project| store.find(project, &seven).expect("searched").ranked;
    let roomy = with(1 << 20);
    let want = find(&roomy, "p");
    assert_eq!((find(&roomy, "q").len(), roomy.indexes.sizes().len()), (3, 2));
    let needed = roomy.indexes.sizes()[0].1;
    // Nobody fits.
    let none = with(needed / 2);
    assert_same(&find(&none, "p"), &want, "in the tables");
    assert_eq!(none.indexes.sizes(), [("p".to_owned(), 0)]);
    // When most of it is gone, it fits.
    for one in &none.list("p", 0, 350).expect("listed") {
        assert!(none.delete("p", &one.id).expect("forgotten"));
    }
    assert_eq!(find(&none, "p").len(), 3);
    assert!(none.indexes.sizes()[0].1 > 0);
    // One fits, two do not: the one that was searched last stays.
    let one = with(needed + needed / 2);
    assert_eq!((find(&one, "p").len(), find(&one, "q").len()), (3, 3));
    assert_eq!(one.indexes.sizes().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["q"]);
    assert_eq!(find(&one, "p").len(), 3);
    one.close().expect("closed");
    assert!(one.indexes.sizes().is_empty() && one.find("p", &seven).is_err());
}

#[test]
fn more_equals_than_are_looked_at_are_ordered_all_the_same() {
    let store = RecallStore::in_memory().expect("opens");
    let texts: Vec<NewEntry> = (0..2_100).map(|n| entry(&format!("note {n}"))).collect();
    let added = store.add("p", &texts).expect("kept").added;
    let vectors: Vec<_> = added.iter().map(|one| (one.key, vec![1.0, 0.0])).collect();
    store.put_vectors("m", &vectors).expect("kept");
    let newest: Vec<i64> = added.iter().rev().take(4).map(|one| one.key).collect();
    for vector in [None, Some([1.0, 0.1].as_slice())] {
        let found = store.find("p", &sought("note", vector, (4, 0.0))).expect("searched").ranked;
        assert_eq!(found.iter().map(|one| one.key).collect::<Vec<_>>(), newest);
    }
}

#[test]
fn how_rare_a_word_is_tells_nothing_of_another_project() {
    let store = store_with("p", &["common rare", "common", "common again", "other"]);
    let scores = |store: &RecallStore| store.find("p", &sought("rare again", None, (5, 0.0))).expect("searched").ranked;
    let before = scores(&store);
    store
        .add(
            "q",
            &vec!["rare"; 50].iter().enumerate().map(|(n, word)| entry(&format!("{word} {n}"))).collect::<Vec<_>>(),
        )
        .expect("kept");
    assert_eq!(scores(&store), before);
    assert_eq!(before.len(), 2);
}
