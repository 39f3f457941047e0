//! What is kept once, and what is forgotten by itself.

use std::time::Duration;

use super::*;

const DAY_MS: u64 = 24 * 3600 * 1000;

fn pinned(text: &str) -> NewEntry {
    NewEntry { text: text.into(), metadata: json!({ "pinned": true }).as_object().cloned().expect("an object") }
}

fn keeping(entries_max: usize, days: Option<u64>) -> RecallStore {
    let unused_max = days.map(|days| Duration::from_millis(days * DAY_MS));
    RecallStore::in_memory().expect("opens").keeping(Keep { entries_max, unused_max })
}

fn texts(store: &RecallStore, project: &str) -> Vec<String> {
    store.list(project, 0, 100).expect("listed").into_iter().map(|entry| entry.text).collect()
}

fn add(store: &RecallStore, text: &str) -> AddedAll {
    store.add("p", &[entry(text)]).expect("kept")
}

/// As if everything had happened so many days earlier.
fn days_pass(store: &RecallStore, days: u64) {
    let sql = format!(
        "UPDATE entry SET created_at = created_at - {0}, used_at = max(0, used_at - {0}); UPDATE project SET swept_at = max(0, swept_at - {0})",
        days * DAY_MS
    );
    store.with("let days pass", |connection| connection.execute_batch(&sql)).expect("passed");
}

#[test]
fn what_is_written_in_another_way_is_known() {
    let store = store_with("p", &["Run `npm test`."]);
    for same in ["run npm test", "Run  \"npm test\"!", " Run `npm test`. "] {
        assert!(!add(&store, same).added[0].new, "{same}");
    }
    for other in ["Run `npm Test`.", "Never run `npm test`.", "Run `npm tests`."] {
        assert!(add(&store, other).added[0].new, "{other}");
    }
    assert_eq!(texts(&store, "p").len(), 4);
}

#[test]
fn a_full_project_forgets_what_is_of_least_use() {
    let store = keeping(4, None);
    let first = store.add("p", &[pinned("pinned"), entry("used"), entry("old"), entry("older no more")]).expect("kept");
    assert_eq!(first.forgotten, 0);
    days_pass(&store, 3);
    store.used(&[first.added[1].key]).expect("noted");
    // Used now, once: a week fresher than what is noted now.
    assert_eq!(add(&store, "new").forgotten, 1);
    assert_eq!(texts(&store, "p"), ["new", "older no more", "used", "pinned"]);
    store.add("p", &[entry("newer"), entry("newest")]).expect("kept");
    assert_eq!(texts(&store, "p"), ["newest", "newer", "used", "pinned"]);
    // What came with the rest stays, and what is pinned; then there is no room.
    let many: Vec<NewEntry> = (0..4).map(|n| entry(&format!("many {n}"))).collect();
    let full = store.add("p", &many).expect_err("full");
    assert_eq!(full, RecallError::Full { entries_max: 4 });
    assert_eq!(texts(&store, "p"), ["newest", "newer", "used", "pinned"], "all or none");
    assert_eq!(store.add("p", &many[..3]).expect("kept").forgotten, 3);
    assert_eq!((texts(&store, "p").len(), store.count("p").expect("counted")), (4, 4));
    // Nothing of what is gone is found, and another project is not asked for room.
    assert!(found(&store, "p", "newest").is_empty());
    store.add("q", &[entry("elsewhere")]).expect("kept");
    assert_eq!((texts(&store, "q").len(), texts(&store, "p").len()), (1, 4));
}

#[test]
fn a_fact_that_comes_later_pins_and_unpins() {
    let store = keeping(1, None);
    add(&store, "one");
    store.add("p", &[pinned("one")]).expect("kept");
    assert!(store.add("p", &[entry("two")]).is_err());
    store.add("p", &[about("one", "free")]).expect("kept");
    assert_eq!(add(&store, "two").forgotten, 1);
    assert_eq!(texts(&store, "p"), ["two"]);
}

#[test]
fn what_nobody_uses_for_long_is_forgotten() {
    let store = keeping(100, Some(30));
    let first = store.add("p", &[pinned("pinned"), entry("used"), entry("unused")]).expect("kept");
    days_pass(&store, 20);
    store.used(&[first.added[1].key]).expect("noted");
    days_pass(&store, 20);
    assert_eq!(add(&store, "new").forgotten, 1);
    assert_eq!(texts(&store, "p"), ["new", "used", "pinned"]);
    days_pass(&store, 31);
    // Once an hour is enough.
    store
        .with("as if it had just been done", |c| c.execute("UPDATE project SET swept_at = swept_at + ?", [31 * DAY_MS]))
        .expect("set");
    assert_eq!(add(&store, "newer").forgotten, 0);
    days_pass(&store, 1);
    assert_eq!(add(&store, "newest").forgotten, 2);
    assert_eq!(texts(&store, "p"), ["newest", "newer", "pinned"]);
}

#[test]
fn a_text_that_is_found_again_and_again_counts_once_an_hour() {
    let store = RecallStore::in_memory().expect("opens");
    let key = add(&store, "one").added[0].key;
    (0..5).for_each(|_| store.used(&[key, 12_345]).expect("noted"));
    let uses = |store: &RecallStore| {
        store.with("count", |c| c.query_row("SELECT uses FROM entry", [], |row| row.get::<_, i64>(0))).expect("counted")
    };
    assert_eq!(uses(&store), 1);
    days_pass(&store, 1);
    store.used(&[key]).expect("noted");
    assert_eq!(uses(&store), 2);
}

#[test]
fn a_vector_without_a_direction_is_settled() {
    let store = store_with("p", &["one", "two"]);
    let keys: Vec<i64> = store.list("p", 0, 9).expect("listed").iter().map(|entry| entry.key).collect();
    store.put_vectors("m", &[(keys[0], vec![0.0, 0.0]), (keys[1], vec![1.0, 0.0])]).expect("kept");
    let sought = Sought { query: "two", vector: Some(("m", &[1.0, 0.0])), results: 5, threshold: 0.0 };
    let found = store.find("p", &sought).expect("searched");
    assert_eq!((found.ranked.len(), found.unsettled.len()), (2, 0));
    assert_eq!(
        (store.vector_of(keys[0]).expect("read"), store.vector_of(keys[1]).expect("read").map(|(m, v)| (m, v.len()))),
        (None, Some(("m".to_owned(), 2)))
    );
}
