//! Remembering and finding over a real store, with an embedding model that does what each test says.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::base::BoxFuture;
use crate::model::{ModelError, Vectors};
use crate::protocol::EventBody;
use crate::store::recall::Keep;
use crate::tool::{Arguments, ToolContext, ToolError, ToolEvents};

/// Meanings as numbers: how much a text is about animals, tools, numbers.
fn meaning(text: &str) -> Vec<f32> {
    let about = |words: &[&str]| f32::from(u8::from(words.iter().any(|word| text.contains(word))));
    vec![about(&["cat", "feline", "dog"]), about(&["hammer", "saw"]), about(&["seven", "eight"]), 0.01]
}

type Reply = Box<dyn Fn(&[String]) -> Result<Vectors, ModelError> + Send + Sync>;

/// Answers as told, then truly; counts what it was asked.
struct Scripted {
    name: &'static str,
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Vec<String>>>,
}

impl Scripted {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, replies: Mutex::default(), asked: Mutex::default() })
    }

    fn next(&self, reply: impl Fn(&[String]) -> Result<Vectors, ModelError> + Send + Sync + 'static) {
        self.replies.lock().push_back(Box::new(reply));
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.asked.lock().clone()
    }
}

impl Embedder for Scripted {
    fn model(&self) -> &str {
        self.name
    }

    fn embed<'a>(
        &'a self,
        texts: &'a [String],
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vectors, ModelError>> {
        self.asked.lock().push(texts.to_vec());
        let reply = self.replies.lock().pop_front();
        let truly = || Ok(texts.iter().map(|text| meaning(text)).collect());
        Box::pin(std::future::ready(reply.map_or_else(truly, |reply| reply(texts))))
    }
}

fn over(store: RecallStore, embedder: Option<&Arc<Scripted>>) -> MemoryManager {
    let embedder = embedder.map(|embedder| Arc::clone(embedder) as Arc<dyn Embedder>);
    Memories::new(store, embedder, Wanted::default()).of(Project::Named("test".into()))
}

fn manager(embedder: Option<&Arc<Scripted>>) -> MemoryManager {
    over(RecallStore::in_memory().unwrap(), embedder)
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

async fn adds(manager: &MemoryManager, texts: &[&str]) -> Remembered {
    let entries = texts.iter().map(|text| entry_about(text, None)).collect();
    manager.add(entries, &never()).await.unwrap()
}

/// Texts and scores in hundredths.
async fn finds(manager: &MemoryManager, query: &str) -> (Vec<(String, i64)>, Option<String>) {
    let found = manager.search(query, Wanted::default(), &never()).await.unwrap();
    #[allow(clippy::cast_possible_truncation, reason = "a score lies in 0..=1")]
    let shown = |answer: Answer| (answer.entry.text, (answer.score * 100.0).round() as i64);
    (found.answers.into_iter().map(shown).collect(), found.degraded)
}

fn owned(answers: &[(&str, i64)]) -> Vec<(String, i64)> {
    answers.iter().map(|(text, score)| ((*text).to_owned(), *score)).collect()
}

#[tokio::test]
async fn without_a_model_words_decide_and_the_best_has_one() {
    let manager = manager(None);
    adds(&manager, &["run tests with npm test", "tests need a database", "colours are chosen by hand"]).await;
    let (found, degraded) = finds(&manager, "npm tests").await;
    assert_eq!((found[0].clone(), degraded), (("run tests with npm test".to_owned(), 100), None));
    assert!(found.iter().all(|(text, _)| text.contains("tests")), "{found:?}");
    assert_eq!(finds(&manager, "weather").await, (vec![], None));
    assert_eq!(finds(&manager, "=>").await.0, vec![]);
}

#[tokio::test]
async fn with_a_model_meanings_count_and_words_help() {
    let model = Scripted::new("m");
    let manager = manager(Some(&model));
    adds(&manager, &["the cat sleeps", "a hammer is heavy", "error E4711 in the saw"]).await;
    // One request for all texts of one call.
    assert_eq!(model.asked().len(), 1);
    let (found, degraded) = finds(&manager, "feline").await;
    assert_eq!((found, degraded), (owned(&[("the cat sleeps", 100)]), None));
    // A name that the model knows nothing of is found by its letters: nearness 0, and seven tenths of the way for the words.
    assert_eq!(finds(&manager, "E4711").await.0[0], ("error E4711 in the saw".to_owned(), 70));
    let (found, _) = finds(&manager, "hammer").await;
    assert_eq!(found[0], ("a hammer is heavy".to_owned(), 100));
    assert_eq!(found[1].0, "error E4711 in the saw");
    // A threshold of the call's own.
    let wanted = Wanted { threshold: Some(0.8), results: Some(1) };
    assert!(manager.search("E4711", wanted, &never()).await.unwrap().answers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_is_said_and_left_alone_for_a_while() {
    let model = Scripted::new("m");
    let manager = manager(Some(&model));
    let down = || ModelError::Transient { message: "down".into(), retry_after: None };
    model.next(move |_| Err(down()));
    model.next(move |_| Err(down()));
    let added = adds(&manager, &["the cat sleeps"]).await;
    let reason = added.degraded.expect("said");
    assert!(reason.contains("words alone") && reason.ends_with("down"), "{reason}");
    // Kept all the same; tried twice, since that may help, and not again at once.
    assert_eq!((added.added.len(), model.asked().len()), (1, 2));
    let (found, degraded) = finds(&manager, "cat").await;
    assert_eq!((found, degraded), (owned(&[("the cat sleeps", 100)]), Some(reason)));
    assert_eq!(model.asked().len(), 2);
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    // It is back: the text gets its vector with the next search, and is found by its meaning.
    assert_eq!(finds(&manager, "feline").await, (owned(&[("the cat sleeps", 100)]), None));
    assert_eq!(model.asked()[2..], [vec!["feline".to_owned()], vec!["the cat sleeps".to_owned()]]);
    assert_eq!(finds(&manager, "feline").await.0.len(), 1);
    assert_eq!(model.asked().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn bad_answers_and_refusals_lose_no_text() {
    #[rustfmt::skip]
    let table: Vec<(Result<Vectors, ModelError>, usize, &str)> = vec![
        (Ok(vec![]), 1, "expected 1 vectors"),
        (Ok(vec![vec![1.0], vec![1.0]]), 1, "got 2"),
        (Ok(vec![vec![]]), 1, "of length 0"),
        (Ok(vec![vec![f32::NAN]]), 1, "finite"),
        (Err(ModelError::Unauthorized("wrong key".into())), 1, "wrong key"),
        (Err(ModelError::Refused("no such model".into())), 1, "no such model"),
        (Err(ModelError::Malformed("no JSON".into())), 1, "no JSON"),
    ];
    for (reply, asked, want) in table {
        let model = Scripted::new("m");
        let manager = manager(Some(&model));
        model.next(move |_| reply.clone());
        let degraded = adds(&manager, &["the cat sleeps"]).await.degraded.expect("said");
        assert!(degraded.contains(want), "{degraded}");
        assert_eq!(model.asked().len(), asked, "{want}");
        assert_eq!(finds(&manager, "cat sleep").await.0, owned(&[("the cat sleeps", 100)]));
    }
}

#[tokio::test]
async fn a_text_that_the_model_refuses_spoils_no_other() {
    let picky = |texts: &[String]| -> Result<Vectors, ModelError> {
        match texts.iter().any(|text| text.contains("too long")) {
            true => Err(ModelError::Refused("8192 tokens at most".into())),
            false => Ok(texts.iter().map(|text| meaning(text)).collect()),
        }
    };
    let model = Scripted::new("m");
    let manager = manager(Some(&model));
    (0..20).for_each(|_| model.next(picky));
    let added = adds(&manager, &["the cat sleeps", "a text too long for it", "a hammer is heavy"]).await;
    // The batch, then one by one; what was refused is not sent again.
    assert_eq!((added.degraded, model.asked().len()), (None, 4));
    assert_eq!(finds(&manager, "feline").await, (owned(&[("the cat sleeps", 100)]), None));
    assert_eq!(model.asked().len(), 5);
    assert_eq!(finds(&manager, "long").await.0[0], ("a text too long for it".to_owned(), 100));
    // Alone it is refused as well, and that costs the next search nothing.
    assert!(adds(&manager, &["also too long"]).await.degraded.expect("said").contains("8192"));
    assert_eq!(finds(&manager, "feline").await.0.len(), 1);
    let asked = model.asked().len();
    assert_eq!(finds(&manager, "feline").await.1, None);
    assert_eq!(model.asked().len(), asked + 1, "the question alone: what was refused is not sent again");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_hangs_is_given_up() {
    struct Hangs;
    impl Embedder for Hangs {
        fn model(&self) -> &str {
            "hangs"
        }
        fn embed<'a>(
            &'a self,
            _: &'a [String],
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, Result<Vectors, ModelError>> {
            Box::pin(std::future::pending())
        }
    }
    let memories = Memories::new(RecallStore::in_memory().unwrap(), Some(Arc::new(Hangs)), Wanted::default());
    let manager = memories.of(Project::Named("test".into()));
    let degraded = adds(&manager, &["the cat sleeps"]).await.degraded.expect("said");
    assert!(degraded.contains("no answer within 20000 ms"), "{degraded}");
    assert_eq!(finds(&manager, "cat").await.0.len(), 1);
}

#[tokio::test]
async fn another_model_or_length_takes_over_text_by_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory.db");
    let open = || RecallStore::open(&path).unwrap();
    let first = Scripted::new("first");
    let manager = over(open(), Some(&first));
    adds(&manager, &["the cat sleeps", "a hammer is heavy"]).await;
    manager.memories.close().await.unwrap();

    let second = Scripted::new("second");
    let manager = over(open(), Some(&second));
    assert_eq!(finds(&manager, "feline").await, (owned(&[("the cat sleeps", 100)]), None));
    assert_eq!(second.asked().len(), 2, "the question, then the texts that had vectors of the first only");
    assert_eq!(finds(&manager, "saw").await.0.len(), 1);
    assert_eq!(second.asked().len(), 3);

    // The same model with vectors of another length.
    let longer = |texts: &[String]| Ok(texts.iter().map(|text| [meaning(text), vec![0.01]].concat()).collect());
    second.next(longer);
    second.next(longer);
    assert_eq!(finds(&manager, "feline").await, (owned(&[("the cat sleeps", 100)]), None));
    assert_eq!(second.asked().last().unwrap().len(), 2);
}

#[tokio::test]
async fn a_batch_is_embedded_in_pieces_and_a_known_text_is_not_embedded_again() {
    let model = Scripted::new("m");
    let manager = manager(Some(&model));
    let many: Vec<String> = (0..150).map(|n| format!("note {n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(adds(&manager, &many).await.added.len(), 150);
    assert_eq!(model.asked().iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 22]);
    let again = adds(&manager, &many[..2]).await;
    assert!(again.added.iter().all(|one| !one.new));
    assert_eq!(model.asked().len(), 3);
    assert_eq!(manager.size().await.unwrap(), 150);
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused_by_name() {
    let manager = manager(None);
    let long = "x".repeat(limit::MEMORY_TEXT_BYTES_MAX + 1);
    let topic = "t".repeat(limit::MEMORY_METADATA_BYTES_MAX);
    for (text, topic, want) in [
        ("", None, "`text`"),
        (" \n", None, "not empty"),
        (&long, None, "at most 16384 bytes"),
        ("a", Some(&topic), "`metadata`"),
    ] {
        let entry = entry_about(text, topic.map(String::as_str));
        let said = manager.add(vec![entry_about("good", None), entry], &never()).await.unwrap_err().to_string();
        assert!(said.contains(want), "{said}");
    }
    assert_eq!(manager.size().await.unwrap(), 0, "all or none");
    let many = vec![entry_about("a", None); limit::MEMORY_BATCH_MAX + 1];
    assert!(manager.add(many, &never()).await.unwrap_err().to_string().contains("at most 1000"));
    #[rustfmt::skip]
    let table = [
        ("", Wanted::default(), "`query`"),
        (long.as_str(), Wanted::default(), "at most 16384 bytes"),
        ("a", Wanted { results: Some(0), ..Wanted::default() }, "`maxResults`: expected a whole number from 1 to 100, got 0"),
        ("a", Wanted { results: Some(101), ..Wanted::default() }, "got 101"),
        ("a", Wanted { threshold: Some(1.1), ..Wanted::default() }, "`threshold`: expected a number from 0 to 1, got 1.1"),
        ("a", Wanted { threshold: Some(f64::NAN), ..Wanted::default() }, "got NaN"),
    ];
    for (query, wanted, want) in table {
        let said = manager.search(query, wanted, &never()).await.unwrap_err().to_string();
        assert!(said.contains(want), "{said}");
    }
}

#[tokio::test]
async fn texts_are_listed_read_and_forgotten() {
    let manager = manager(None);
    let added = adds(&manager, &["one", " two ", "three"]).await.added;
    let texts: Vec<String> = manager.list(1, 2).await.unwrap().into_iter().map(|entry| entry.text).collect();
    assert_eq!(texts, ["two", "one"]);
    assert_eq!(manager.get(&added[1].id).await.unwrap().unwrap().text, "two");
    assert_eq!(manager.get("mem_none").await.unwrap(), None);
    assert!(manager.delete(&added[1].id).await.unwrap() && !manager.delete(&added[1].id).await.unwrap());
    assert_eq!(manager.text_search("three", Wanted::default()).await.unwrap().len(), 1);
    assert_eq!((manager.clear().await.unwrap(), manager.size().await.unwrap()), (2, 0));
}

type Said = (Result<String, ToolError>, Vec<EventBody>);

async fn call(manager: &MemoryManager, name: &str, arguments: Value) -> Said {
    let seen: Arc<Mutex<Vec<EventBody>>> = Arc::default();
    let events = Arc::clone(&seen);
    let context = ToolContext {
        call_id: "c".into(),
        session: None,
        cancel: never(),
        scope: Arc::default(),
        events: ToolEvents::new(move |event| events.lock().push(event)),
        veil: None,
        previewed: Default::default(),
        judged: Default::default(),
        clients: Default::default(),
    };
    let tools = memory_tools(manager);
    let tool = tools.iter().find(|tool| tool.definition().name == name).unwrap();
    let arguments: Arguments = arguments.as_object().cloned().unwrap();
    let said = tool.run(arguments, &context).await.map(|output| output.text);
    let seen = seen.lock().clone();
    (said, seen)
}

#[tokio::test]
async fn the_tools_say_what_they_did_and_publish_it() {
    let manager = manager(None);
    let (said, events) = call(&manager, "memory_add", json!({"text": "tests: `npm test` 😀", "topic": "tests"})).await;
    let id = said.unwrap().strip_prefix("Remembered: ").unwrap().to_owned();
    assert_eq!(events, [EventBody::MemoryAdd { id: id.clone(), content_length: 20 }]);
    let (said, events) = call(&manager, "memory_add", json!({"text": "tests: `npm test` 😀"})).await;
    assert_eq!((said.unwrap(), events), (format!("Known already: {id}"), vec![]));

    let (said, events) = call(&manager, "memory_search", json!({"query": "npm", "maxResults": 3})).await;
    assert_eq!(said.unwrap(), format!("1. [tests] (score: 1.00, id: {id})\n   tests: `npm test` 😀"));
    let [EventBody::MemorySearch { query, result_count: 1, degraded: None, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(query, "npm");
    let (said, _) = call(&manager, "memory_search", json!({"query": "weather"})).await;
    assert_eq!(said.unwrap(), "Nothing is remembered about that.");

    let (said, events) = call(&manager, "memory_delete", json!({"id": id})).await;
    assert_eq!((said.unwrap(), events), (format!("Forgotten: {id}"), vec![EventBody::MemoryDelete { id: id.clone() }]));
    let (said, events) = call(&manager, "memory_delete", json!({"id": id})).await;
    assert!(said.unwrap_err().to_string().contains(&id) && events.is_empty());

    for (name, arguments, want) in [
        ("memory_search", json!({"query": ""}), "`query`"),
        ("memory_search", json!({"query": "a", "maxResults": 0}), "`maxResults`"),
        ("memory_search", json!({"query": "a", "maxResults": 1.5}), "got 1.5"),
        ("memory_add", json!({"text": " "}), "`text`"),
    ] {
        let (said, events) = call(&manager, name, arguments).await;
        let Err(ToolError::BadArguments(said)) = said else { panic!("{name}: {said:?}") };
        assert!(said.contains(want) && events.is_empty(), "{said}");
    }
}

#[tokio::test]
async fn a_search_that_is_degraded_tells_the_model_and_the_log() {
    let model = Scripted::new("m");
    let manager = manager(Some(&model));
    adds(&manager, &["the cat sleeps"]).await;
    model.next(|_| Err(ModelError::Unauthorized("wrong key".into())));
    let (said, events) = call(&manager, "memory_search", json!({"query": "cat"})).await;
    let said = said.unwrap();
    assert!(said.contains("the cat sleeps") && said.contains("wrong key"), "{said}");
    let [EventBody::MemorySearch { degraded: Some(reason), .. }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("wrong key"));
}

#[tokio::test]
async fn a_note_that_is_much_like_others_tells_of_them() {
    for model in [None, Some(Scripted::new("m"))] {
        let manager = manager(model.as_ref());
        let first = "the tests of the cat need a database on port 5433";
        let (said, _) = call(&manager, "memory_add", json!({"text": first})).await;
        let id = said.unwrap().strip_prefix("Remembered: ").unwrap().to_owned();
        let (said, _) = call(&manager, "memory_add", json!({"text": "colours are chosen by hand"})).await;
        assert!(!said.unwrap().contains("Much like"));
        let (said, _) =
            call(&manager, "memory_add", json!({"text": "the tests of the cat need a database on port 5434"})).await;
        let said = said.unwrap();
        let want = format!("\n\nMuch like it was noted before; delete what is out of date:\n- (id: {id}) {first}");
        assert!(said.starts_with("Remembered: mem_") && said.ends_with(&want), "{said}");
        let (said, _) = call(&manager, "memory_add", json!({"text": format!("  \"{first}\".")})).await;
        assert_eq!(said.unwrap(), format!("Known already: {id}"));
    }
}

#[tokio::test]
async fn of_texts_that_are_much_alike_the_others_give_way() {
    let manager = manager(None);
    let long =
        "the server of the tests listens on a port of its own and logs all that it does into a file below target";
    let alike =
        [format!("{long} now"), format!("{long} always"), format!("{long} too"), "a server for tests".to_owned()];
    adds(&manager, &alike.each_ref().map(String::as_str)).await;
    let search = async |results| {
        let wanted = Wanted { results: Some(results), threshold: Some(0.0) };
        let found = manager.search("server tests port logs file target", wanted, &never()).await.unwrap();
        found.answers.into_iter().map(|answer| answer.entry.text).collect::<Vec<_>>()
    };
    let two = search(2).await;
    assert!(two[0].starts_with(long) && two[1] == alike[3], "{two:?}");
    // Where nobody else wants their place they have it, and the order is that of the scores.
    assert_eq!(search(3).await.iter().filter(|text| text.starts_with(long)).count(), 2);
    let four = search(4).await;
    assert_eq!((four.len(), &four[3]), (4, &alike[3]));
}

#[tokio::test]
async fn a_full_memory_says_what_it_forgot() {
    let store = RecallStore::in_memory().unwrap().keeping(Keep { entries_max: 1, unused_max: None });
    let manager = over(store, None);
    adds(&manager, &["one"]).await;
    let (said, _) = call(&manager, "memory_add", json!({"text": "two"})).await;
    assert!(said.unwrap().ends_with("(1 of the notes that were of least use were forgotten to make room.)"));
    assert_eq!(manager.size().await.unwrap(), 1);
}
