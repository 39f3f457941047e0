//! What remembered texts promise, in memory and on disk.

mod found;
mod kept;

use serde_json::json;

use super::*;

fn entry(text: &str) -> NewEntry {
    NewEntry { text: text.into(), metadata: Map::new() }
}

fn about(text: &str, topic: &str) -> NewEntry {
    NewEntry { text: text.into(), metadata: json!({ "topic": topic }).as_object().cloned().expect("an object") }
}

fn store_with(project: &str, texts: &[&str]) -> RecallStore {
    let store = RecallStore::in_memory().expect("opens");
    store.add(project, &texts.iter().map(|text| entry(text)).collect::<Vec<_>>()).expect("kept");
    store
}

/// Texts by what BM25 makes of them, best first.
fn found(store: &RecallStore, project: &str, query: &str) -> Vec<String> {
    let mut hits: Vec<(i64, f64)> = store.by_words(project, query).expect("searched").into_iter().collect();
    hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    assert!(hits.iter().all(|(_, score)| *score > 0.0), "{hits:?}");
    let keys: Vec<i64> = hits.iter().map(|(key, _)| *key).collect();
    store.at(&keys).expect("read").into_iter().map(|entry| entry.text).collect()
}

#[test]
fn words_find_texts() {
    let texts = [
        "Run the tests with `npm test -- rust`",
        "The database is PostgreSQL 16 on port 5433",
        "createSimseServer starts nothing before start()",
        "部署用 make deploy 命令",
        "黒い猫が好きです",
        "Café Zoë owns the build 🎉",
        "제품 이름은 심세입니다",
        "",
    ];
    let store = store_with("p", &texts[..7]);
    #[rustfmt::skip]
    let table: &[(&str, &[usize])] = &[
        ("how do we run tests?", &[0]),
        ("testing", &[0]),
        ("postgresql port", &[1]),
        ("simse server", &[2]),
        ("CREATESIMSESERVER", &[2]),
        ("部署", &[3]),
        ("命令", &[3]),
        ("猫", &[4]),
        ("好き", &[4]),
        ("cafe zoe", &[5]),
        ("🎉", &[5]),
        ("심세", &[6]),
        ("nothing of this kind", &[2]),
        ("unheard-of", &[]),
        ("the", &[1, 5, 0]),
        ("", &[]),
        ("  \" ' ( ) * : ^ - + ", &[]),
    ];
    for (query, want) in table {
        let mut want: Vec<&str> = want.iter().map(|n| texts[*n]).collect();
        let mut got = found(&store, "p", query);
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want, "{query:?}");
    }
}

#[test]
fn the_rarer_word_and_the_shorter_text_weigh_more() {
    let store = store_with("p", &["alpha beta", "alpha gamma", "alpha delta", "beta and much more besides that"]);
    assert_eq!(found(&store, "p", "alpha beta")[0], "alpha beta");
    assert_eq!(found(&store, "p", "beta"), ["alpha beta", "beta and much more besides that"]);
}

#[test]
fn a_question_is_never_an_expression() {
    let store = store_with("p", &["plain words", "body word vector entry"]);
    #[rustfmt::skip]
    let hostile = [
        "\"", "\"\"\"", "plain\" OR \"x", "plain AND", "NOT plain", "body : plain", "{body} : plain", "plain*", "^plain",
        "NEAR(plain words, 5)", "plain -words", "plain + words", "-- ", "'; DROP TABLE entry; --", "\u{0}plain", "(((((",
        "plain\u{0}words", "\u{fffd}\u{202e}", "\u{0301}\u{0301}", "\u{0903}\u{093f}",
    ];
    for query in hostile {
        let hits = store.by_words("p", query).unwrap_or_else(|error| panic!("{query:?}: {error}"));
        assert!(hits.len() <= 2, "{query:?}");
    }
    assert_eq!(found(&store, "p", "NOT plain"), ["plain words"]);
    // Marks that the index takes for no word at all find nothing, and not everything.
    assert_eq!(found(&store, "p", "\u{0301}\u{0301}"), Vec::<String>::new());
    assert_eq!(store.count("p").expect("counted"), 2);
}

#[test]
fn a_text_is_kept_once_and_newer_facts_replace_older() {
    let store = RecallStore::in_memory().expect("opens");
    let first = store.add("p", &[about("one", "old"), entry("two"), entry("one")]).expect("kept").added;
    assert_eq!(first.iter().map(|a| a.new).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(first[0].id, first[2].id);
    assert_eq!(found(&store, "p", "old"), ["one"]);
    let again = store.add("p", &[about("one", "fresh")]).expect("kept").added;
    assert_eq!((again[0].new, &again[0].id), (false, &first[0].id));
    assert_eq!((found(&store, "p", "old"), found(&store, "p", "fresh")), (vec![], vec!["one".to_owned()]));
    assert_eq!(store.get("p", &first[0].id).expect("read").expect("there").metadata["topic"], "fresh");
    assert_eq!(store.count("p").expect("counted"), 2);
    // The same text of another project is another entry.
    assert!(store.add("q", &[entry("one")]).expect("kept").added[0].new);
}

#[test]
fn projects_see_nothing_of_each_other() {
    let store = store_with("p", &["shared word one"]);
    let other = store.add("q", &[entry("shared word two")]).expect("kept").added.remove(0);
    let vector = vec![1.0, 0.0];
    let mine = store.list("p", 0, 9).expect("listed").remove(0);
    store.put_vectors("m", &[(mine.key, vector.clone()), (other.key, vector.clone())]).expect("kept");
    assert_eq!(found(&store, "p", "shared"), ["shared word one"]);
    assert_eq!(store.by_nearness("p", "m", &vector).expect("searched").into_keys().collect::<Vec<_>>(), [mine.key]);
    assert_eq!(store.containing("p", "word", 9).expect("searched"), [mine.key]);
    assert_eq!(store.get("p", &other.id).expect("read"), None);
    assert!(!store.delete("p", &other.id).expect("deleted"));
    assert_eq!(store.clear("p").expect("cleared"), 1);
    assert_eq!((store.count("p").expect("counted"), store.count("q").expect("counted")), (0, 1));
    assert_eq!(store.count("never heard of").expect("counted"), 0);
}

#[test]
fn what_is_forgotten_is_gone_from_everywhere() {
    let store = store_with("p", &["first text", "second text"]);
    let list = store.list("p", 0, 9).expect("listed");
    assert_eq!(list.iter().map(|e| e.text.as_str()).collect::<Vec<_>>(), ["second text", "first text"]);
    let gone = &list[0];
    store.put_vectors("m", &[(gone.key, vec![1.0])]).expect("kept");
    assert!(store.delete("p", &gone.id).expect("deleted"));
    assert!(!store.delete("p", &gone.id).expect("asked"));
    assert_eq!(found(&store, "p", "text"), ["first text"]);
    assert!(store.by_nearness("p", "m", &[1.0]).expect("searched").is_empty());
    // A vector that comes late finds its text gone, and the place is not given away again.
    store.put_vectors("m", &[(gone.key, vec![1.0])]).expect("passed over");
    let next = store.add("p", &[entry("third text")]).expect("kept").added.remove(0);
    assert!(next.key > gone.key);
    assert!(store.by_nearness("p", "m", &[1.0]).expect("searched").is_empty());
    assert_eq!(store.clear("p").expect("cleared"), 2);
    assert_eq!(found(&store, "p", "text"), Vec::<String>::new());
    assert!(store.add("p", &[entry("first text")]).expect("kept").added[0].new);
}

#[test]
fn vectors_are_compared_with_their_kind_alone() {
    let store = store_with("p", &["a", "b", "c", "d"]);
    let keys: Vec<i64> = store.list("p", 0, 9).expect("listed").iter().rev().map(|e| e.key).collect();
    store.put_vectors("m", &[(keys[0], vec![1.0, 0.0]), (keys[1], vec![3.0, 3.0])]).expect("kept");
    store.put_vectors("m", &[(keys[2], vec![1.0, 0.0, 0.0])]).expect("kept");
    let near = store.by_nearness("p", "m", &[2.0, 0.0]).expect("searched");
    assert_eq!(near.len(), 2, "{near:?}");
    assert!((near[&keys[0]] - 1.0).abs() < 1e-6 && (near[&keys[1]] - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6);
    let without = |model: &str, dimensions| -> Vec<i64> {
        let found = store.without_vector("p", (model, dimensions), 9).expect("searched");
        found.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(without("m", None), [keys[3]]);
    assert_eq!(without("m", Some(2)), [keys[3], keys[2]]);
    assert_eq!(without("n", None).len(), 4);
    // What the model refused is not offered to it again; to another it is.
    store.put_refused("m", keys[3]).expect("noted");
    assert_eq!((without("m", Some(2)), without("n", None).len()), (vec![keys[2]], 4));
    assert_eq!(store.by_nearness("p", "m", &[2.0, 0.0]).expect("searched").len(), 2);
    // Another model takes the place of the first.
    store.put_vectors("n", &[(keys[0], vec![0.0, 1.0])]).expect("kept");
    assert_eq!(store.by_nearness("p", "m", &[2.0, 0.0]).expect("searched").len(), 1);
    assert!(store.by_nearness("p", "m", &[0.0, 0.0]).expect("searched").is_empty());
}

#[test]
fn it_survives_its_process_and_refuses_work_when_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("memory.db");
    let store = RecallStore::open(&path).expect("opens");
    let added = store.add("p", &[about("kept for long", "t")]).expect("kept").added.remove(0);
    store.put_vectors("m", &[(added.key, vec![1.0, 2.0])]).expect("kept");
    store.close().expect("closed");
    store.close().expect("closed twice");
    assert_eq!(store.count("p"), Err(StoreError::Closed));
    assert_eq!(store.add("p", &[entry("x")]), Err(RecallError::Store(StoreError::Closed)));

    let store = RecallStore::open(&path).expect("opens again");
    assert_eq!(found(&store, "p", "long"), ["kept for long"]);
    assert_eq!(store.by_nearness("p", "m", &[1.0, 2.0]).expect("searched").len(), 1);
    let kept = store.get("p", &added.id).expect("read").expect("there");
    assert_eq!((kept.text.as_str(), &kept.metadata["topic"]), ("kept for long", &json!("t")));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_piece_of_text_is_found_as_it_stands() {
    let store = store_with("p", &["a => b", "100% sure", "a_b", "A => B"]);
    let texts = |piece: &str| -> Vec<String> {
        let keys = store.containing("p", piece, 9).expect("searched");
        store.at(&keys).expect("read").into_iter().map(|e| e.text).collect()
    };
    assert_eq!(texts("=>"), ["A => B", "a => b"]);
    assert_eq!(texts("%"), ["100% sure"]);
    assert_eq!(texts("_"), ["a_b"]);
}
