//! The pipeline over a small application whose work each test holds and lets go.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::protocol::{ClientId, ErrorCode};
use crate::store::{MemoryStore, SqliteStore, Write, commit};

/// Counts what is done. A prompt that says `hold` waits until it is let go; `fail` fails; `busy` is refused.
#[derive(Default)]
struct Shop {
    store: Option<Arc<dyn Store>>,
    done: Mutex<Vec<String>>,
    version: AtomicU64,
    versions_asked: AtomicUsize,
    held: Notify,
    holding: Notify,
}

impl Shop {
    fn done(&self) -> Vec<String> {
        self.done.lock().clone()
    }
}

impl Operations for Shop {
    fn version(&self, _: Caller, _: SessionId) -> BoxFuture<'_, Result<u64, ApiError>> {
        self.versions_asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(self.version.load(Ordering::Relaxed))))
    }

    fn perform(self: Arc<Self>, task: Task) -> BoxFuture<'static, Result<Performed, ApiError>> {
        Box::pin(async move {
            let said = match &task.operation {
                Operation::Prompt(prompt) | Operation::Steer(prompt) => prompt.prompt.text(),
                other => other.kind().0.to_owned(),
            };
            if said.contains("hold") || matches!(&task.operation, Operation::Abort(body) if body.reason.is_some()) {
                self.holding.notify_one();
                self.held.notified().await;
            }
            assert!(!said.contains("panic"), "as it was asked");
            if said.contains("fail") {
                return Err(ApiError::conflict("as it was asked"));
            }
            if said.contains("busy") {
                return Err(ApiError::new(ErrorCode::ResourceExhausted, "as it was asked"));
            }
            let changes = task.operation.kind().1 != parse::Class::Read;
            let version = self.version.load(Ordering::Relaxed) + u64::from(changes);
            let answer = json!({ "said": said, "number": self.done.lock().len() });
            if task.operation.rides() {
                let rows = task.receipt.take(&answer, version)?;
                commit(self.store.as_ref().expect("a store"), rows).await.expect("written");
            }
            self.version.store(version, Ordering::Relaxed);
            self.done.lock().push(said);
            Performed::of(&answer, Some(version))
        })
    }
}

struct House {
    commands: Commands,
    shop: Arc<Shop>,
}

const CLOCKS: Clocks = Clocks { run: Duration::from_secs(30), dependencies: Duration::from_secs(20) };

fn house_over(store: Arc<dyn Store>, per_minute: u32, in_flight_max: usize) -> House {
    let shop = Arc::new(Shop { store: Some(Arc::clone(&store)), ..Shop::default() });
    House { commands: Commands::with(store, per_minute, (CLOCKS, in_flight_max)), shop }
}

fn house() -> House {
    house_over(Arc::new(MemoryStore::new()), 0, 100)
}

fn command(value: &Value) -> Command {
    match Message::parse(value.to_string().as_bytes()) {
        Ok(Message::Command(command)) => *command,
        other => panic!("no command: {other:?}"),
    }
}

fn prompt(id: &str, session: &str, text: &str) -> Value {
    json!({ "type": "prompt", "id": id, "sessionId": session, "prompt": text })
}

impl House {
    fn submit(&self, value: &Value) -> Submitted {
        self.commands.submit(Arc::clone(&self.shop), Caller::default(), command(value))
    }

    async fn run(&self, value: &Value) -> Handled {
        self.submit(value).end().await
    }

    /// Its steps in words, and its end.
    async fn steps(&self, value: &Value) -> (Vec<&'static str>, Handled) {
        let mut submitted = self.submit(value);
        let mut steps = Vec::new();
        loop {
            match submitted.next().await.expect("an end") {
                Step::Accepted => steps.push("accepted"),
                Step::Started => steps.push("started"),
                Step::Done(handled) => return (steps, handled),
            }
        }
    }

    /// Waits until the work that is held has begun.
    async fn holding(&self) {
        self.shop.holding.notified().await;
    }

    fn let_go(&self) {
        self.shop.held.notify_one();
    }
}

fn code(handled: &Handled) -> Option<ErrorCode> {
    handled.outcome.error.as_ref().map(|error| error.code)
}

fn field(handled: &Handled) -> String {
    let details = handled.outcome.error.as_ref().and_then(|error| error.details.clone()).unwrap_or_default();
    details["field"].as_str().unwrap_or_default().to_owned()
}

fn text(handled: &Handled) -> String {
    serde_json::to_string(&*handled.outcome).expect("JSON")
}

#[tokio::test]
async fn the_same_again_is_answered_and_not_done() {
    let house = house();
    let (steps, first) = house.steps(&prompt("1", "s", "go")).await;
    assert_eq!(steps, ["accepted", "started"]);
    assert!(first.outcome.error.is_none() && !first.replayed);
    let (steps, again) = house.steps(&json!({ "prompt": "go", "sessionId": "s", "id": "1", "type": "prompt" })).await;
    assert_eq!((steps, again.replayed, text(&again)), (vec![], true, text(&first)));
    let other = house.run(&prompt("1", "s", "something else")).await;
    assert_eq!((code(&other), field(&other).as_str(), other.accepted), (Some(ErrorCode::Conflict), "id", false));
    // A key makes the same of commands with several ids, and is a name of its own.
    let keyed = |id: &str, text: &str| json!({ "type": "prompt", "id": id, "idempotencyKey": "1", "sessionId": "s", "prompt": text });
    assert!(!house.run(&keyed("2", "keyed")).await.replayed);
    assert!(house.run(&keyed("3", "keyed")).await.replayed && house.run(&keyed("2", "keyed")).await.replayed);
    assert_eq!(field(&house.run(&keyed("4", "other")).await), "idempotencyKey");
    assert_eq!(house.shop.done(), ["go", "keyed"]);
    assert_eq!(house.commands.counts(), (0, 0));
}

#[tokio::test]
async fn a_server_that_ends_takes_no_more_and_says_why() {
    let house = house();
    house.run(&prompt("1", "s", "go")).await;
    house.commands.settle(std::time::Duration::from_secs(1)).await;
    let refused = house.run(&prompt("2", "s", "late")).await;
    assert_eq!((code(&refused), refused.accepted), (Some(ErrorCode::UpstreamUnavailable), false));
    assert!(text(&refused).contains("the server is stopping"), "{refused:?}");
    assert_eq!(house.shop.done(), ["go"]);
}

/// Each name that was answered with an outcome stands for it from then on.
#[tokio::test]
async fn what_is_answered_under_another_name_is_known_under_it() {
    let named = |kind: &str, id: Option<&str>, key: Option<&str>| {
        let mut value = json!({ "type": kind, "sessionId": "s" });
        for (field, name) in [("id", id), ("idempotencyKey", key)] {
            if let Some(name) = name {
                value[field] = name.into();
            }
        }
        match kind {
            "prompt" => value["prompt"] = "go".into(),
            "get_turn" => value["turnId"] = "turn_1".into(),
            _ => {}
        }
        value
    };
    // What is sent after the first one: each has one name that is known by then, and may have one that is not.
    let others =
        [(Some("2"), Some("k")), (Some("2"), None), (Some("2"), Some("l")), (None, Some("l")), (Some("3"), Some("l"))];
    for kind in ["prompt", "abort", "undo", "get_turn"] {
        let house = house();
        let first = house.run(&named(kind, Some("1"), Some("k"))).await;
        assert!(!first.replayed && first.outcome.error.is_none(), "{kind}: {first:?}");
        for (id, key) in others {
            let (steps, again) = house.steps(&named(kind, id, key)).await;
            assert_eq!((steps, again.replayed, text(&again)), (vec![], true, text(&first)), "{kind} {id:?} {key:?}");
        }
        let mut behind = prompt("behind", "s", "behind");
        behind["dependsOn"] = json!(["3"]);
        assert!(house.run(&behind).await.outcome.error.is_none(), "{kind}");
        assert_eq!((house.shop.done().len(), house.commands.counts()), (2, (0, 0)), "{kind}");
    }
    // The same while the first one is under way.
    let house = house();
    house.run(&json!({ "type": "get_turn", "id": "taken", "sessionId": "s", "turnId": "turn_1" })).await;
    let prompt = |id: &str, key: &str| json!({ "type": "prompt", "id": id, "idempotencyKey": key, "sessionId": "s", "prompt": "hold" });
    let first = house.submit(&prompt("1", "k"));
    house.holding().await;
    let beside = [("2", "k"), ("2", "l"), ("1", "l"), ("3", "l")].map(|(id, key)| house.submit(&prompt(id, key)));
    let mut behind = json!({ "type": "abort", "id": "behind", "sessionId": "s", "dependsOn": ["3"] });
    let behind_all = house.submit(&behind);
    behind["id"] = "other".into();
    behind["dependsOn"] = json!(["4"]);
    assert_eq!(code(&house.run(&behind).await), Some(ErrorCode::InvalidArgument), "nobody has given that");
    assert_eq!(field(&house.run(&prompt("taken", "k")).await), "id", "it waits for nothing");
    house.let_go();
    let first = first.end().await;
    for other in beside {
        let other = other.end().await;
        assert_eq!((other.replayed, text(&other)), (true, text(&first)));
    }
    assert!(behind_all.end().await.outcome.error.is_none());
    for (id, key) in [("1", "m"), ("2", "n"), ("3", "o"), ("9", "l")] {
        assert_eq!(text(&house.run(&prompt(id, key)).await), text(&first), "{id} {key}");
    }
    assert_eq!(
        (house.shop.done(), house.commands.counts()),
        (["get_turn", "hold", "abort"].map(str::to_owned).to_vec(), (0, 0))
    );
}

/// Names cost what commands cost: nobody fills the memory of outcomes with them.
#[tokio::test]
async fn another_name_counts_as_a_command() {
    let house = house_over(Arc::new(MemoryStore::new()), 2, 100);
    let keyed =
        |id: &str| json!({ "type": "prompt", "id": id, "idempotencyKey": "k", "sessionId": "s", "prompt": "go" });
    for (id, refused) in [("1", None), ("2", None), ("3", Some(ErrorCode::ResourceExhausted)), ("2", None)] {
        assert_eq!(code(&house.run(&keyed(id)).await), refused, "{id}");
    }
    assert_eq!(house.shop.done().len(), 1);
}

/// However much others ask for: what was done under a name is not done again, and what could not be remembered is not done.
#[tokio::test]
async fn nobody_pushes_out_what_others_have_done() {
    let House { commands, shop } = house();
    let house = House { commands: commands.remembering(3), shop };
    let first = house.run(&prompt("1", "s", "one")).await;
    for id in ["2", "3"] {
        assert_eq!(code(&house.run(&prompt(id, "s", id)).await), None);
    }
    for id in ["4", "5"] {
        let refused = house.run(&prompt(id, "s", id)).await;
        assert_eq!((code(&refused), refused.accepted), (Some(ErrorCode::ResourceExhausted), false));
    }
    let again = house.run(&prompt("1", "s", "one")).await;
    assert_eq!((again.replayed, text(&again)), (true, text(&first)));
    let nameless = json!({ "type": "prompt", "sessionId": "s", "prompt": "nameless" });
    assert_eq!(code(&house.run(&nameless).await), None, "what has no name needs none");
    let abort = json!({ "type": "abort", "id": "6", "sessionId": "s" });
    assert_eq!(code(&house.run(&abort).await), None, "controls have more room");
    let read = json!({ "type": "list_sessions", "id": "7" });
    assert_eq!(code(&house.run(&read).await), None, "reads are not stored");
    assert_eq!(house.shop.done(), ["one", "2", "3", "nameless", "abort", "list_sessions"]);
}

/// Whoever fills all the room there is keeps nobody from stopping what runs.
#[tokio::test]
async fn controls_have_room_of_their_own() {
    let house = house_over(Arc::new(MemoryStore::new()), 0, 1);
    let held = house.submit(&prompt("1", "s", "hold"));
    house.holding().await;
    assert_eq!(code(&house.run(&prompt("2", "t", "two")).await), Some(ErrorCode::ResourceExhausted));
    assert_eq!(code(&house.run(&json!({ "type": "abort", "id": "3", "sessionId": "t" })).await), None);
    house.let_go();
    assert_eq!(code(&held.end().await), None);
    assert_eq!(house.commands.counts(), (0, 0));
}

#[tokio::test]
async fn failures_are_outcomes_and_refusals_are_not() {
    let house = house();
    let first = house.run(&prompt("1", "s", "fail")).await;
    let again = house.run(&prompt("1", "s", "fail")).await;
    assert_eq!((code(&first), again.replayed, text(&again)), (Some(ErrorCode::Conflict), true, text(&first)));
    for _ in 0..2 {
        let busy = house.run(&prompt("2", "s", "busy")).await;
        assert_eq!((code(&busy), busy.replayed), (Some(ErrorCode::ResourceExhausted), false));
    }
    let broken = house.run(&prompt("3", "s", "panic")).await;
    assert_eq!(code(&broken), Some(ErrorCode::Internal));
    assert!(house.run(&prompt("3", "s", "panic")).await.replayed);
    assert_eq!(house.commands.counts(), (0, 0));
}

#[tokio::test]
async fn what_comes_beside_the_same_is_done_once() {
    let house = house();
    let mut first = house.submit(&prompt("1", "s", "hold"));
    house.holding().await;
    let beside: Vec<_> = (0..10).map(|_| house.submit(&prompt("1", "s", "hold"))).collect();
    assert_eq!(code(&house.run(&prompt("1", "s", "other")).await), Some(ErrorCode::Conflict));
    house.let_go();
    let mut last = None;
    while let Some(step) = first.next().await {
        if let Step::Done(handled) = step {
            last = Some(handled);
        }
    }
    let last = last.expect("an end");
    for other in beside {
        let other = other.end().await;
        assert_eq!((other.replayed, text(&other)), (true, text(&last)));
    }
    assert_eq!((last.replayed, house.shop.done().len()), (false, 1));
}

#[tokio::test]
async fn outcomes_outlive_the_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let abort = json!({ "type": "abort", "id": "a", "sessionId": "s" });
    let stuck = json!({ "type": "abort", "id": "stuck", "sessionId": "s", "reason": "hold" });
    let (before, abort_before) = {
        let house = house_over(Arc::new(SqliteStore::open(directory.path()).expect("opens")), 0, 100);
        let first = house.run(&prompt("1", "s", "go")).await;
        let failed = house.run(&prompt("2", "s", "fail")).await;
        let aborted = house.run(&abort).await;
        drop(house.submit(&stuck));
        house.holding().await;
        // The process ends in the middle of it.
        house.commands.shared.store.close().await.expect("closed");
        ((text(&first), text(&failed)), text(&aborted))
    };
    let house = house_over(Arc::new(SqliteStore::open(directory.path()).expect("opens again")), 0, 100);
    let again = (house.run(&prompt("1", "s", "go")).await, house.run(&prompt("2", "s", "fail")).await);
    assert_eq!((text(&again.0), text(&again.1)), before);
    assert_eq!(text(&house.run(&abort).await), abort_before);
    let cut = house.run(&stuck).await;
    assert_eq!((code(&cut), cut.replayed), (Some(ErrorCode::Internal), true));
    assert!(text(&cut).contains("interrupted by restart"), "{}", text(&cut));
    assert_eq!(text(&house.run(&stuck).await), text(&cut));
    assert!(house.shop.done().is_empty(), "nothing ran twice");
}

#[tokio::test]
async fn a_lane_is_in_order_and_lanes_and_controls_go_beside_it() {
    let house = house();
    let first = house.submit(&prompt("1", "s", "hold"));
    let later: Vec<_> = (2..6).map(|n| house.submit(&prompt(&n.to_string(), "s", &n.to_string()))).collect();
    house.holding().await;
    house.run(&prompt("x", "t", "other lane")).await;
    house.run(&json!({ "type": "steer", "sessionId": "s", "prompt": "steered" })).await;
    house.run(&json!({ "type": "abort", "sessionId": "s" })).await;
    house.run(&json!({ "type": "get_session", "sessionId": "s" })).await;
    assert_eq!(house.shop.done(), ["other lane", "steered", "abort", "get_session"]);
    house.let_go();
    first.end().await;
    for submitted in later {
        submitted.end().await;
    }
    assert_eq!(house.shop.done()[4..], ["hold", "2", "3", "4", "5"]);
    assert_eq!(house.commands.counts(), (0, 0));
}

#[tokio::test]
async fn dependencies_that_cannot_be_met_are_refused_at_once() {
    let house = house();
    house.run(&prompt("good", "s", "go")).await;
    house.run(&prompt("bad", "s", "fail")).await;
    let held = house.submit(&prompt("held", "s", "hold"));
    house.holding().await;
    let on = |id: &str, session: &str, on: &str| json!({ "type": "prompt", "id": id, "sessionId": session, "prompt": "dependent", "dependsOn": [on] });
    #[rustfmt::skip]
    let table = [
        (on("1", "s", "none"), Some((ErrorCode::InvalidArgument, "dependsOn[0]"))),
        (on("2", "s", "bad"), Some((ErrorCode::Conflict, "dependsOn"))),
        (on("3", "s", "3"), Some((ErrorCode::InvalidArgument, "dependsOn[0]"))),
        (on("4", "s", "held"), Some((ErrorCode::Conflict, "dependsOn[0]"))),
        (on("5", "t", "good"), None),
    ];
    for (value, want) in table {
        let (steps, handled) = house.steps(&value).await;
        assert_eq!(code(&handled), want.map(|want| want.0), "{value}");
        if let Some((_, named)) = want {
            assert_eq!((field(&handled).as_str(), steps, handled.accepted), (named, vec![], false), "{value}");
        }
    }
    house.let_go();
    held.end().await;
    // Refused is not remembered: it may be asked again.
    assert!(house.run(&on("4", "s", "held")).await.outcome.error.is_none());
    assert!(house.run(&on("5", "t", "good")).await.replayed);
}

#[tokio::test(start_paused = true)]
async fn what_another_lane_still_works_on_is_awaited() {
    let house = house();
    let on = |id: &str, on: &str| json!({ "type": "prompt", "id": id, "sessionId": "t", "prompt": "after", "dependsOn": [on] });
    let held = house.submit(&prompt("1", "s", "hold"));
    house.holding().await;
    let mut waiting = house.submit(&on("2", "1"));
    assert!(matches!(waiting.next().await, Some(Step::Accepted)));
    assert!(matches!(waiting.next().await, Some(Step::Started)));
    house.let_go();
    assert!(held.end().await.outcome.error.is_none() && waiting.end().await.outcome.error.is_none());
    assert_eq!(house.shop.done(), ["hold", "after"]);
    let failing = house.submit(&prompt("3", "s", "hold and fail"));
    house.holding().await;
    let waiting = house.submit(&on("4", "3"));
    house.let_go();
    failing.end().await;
    assert_eq!(code(&waiting.end().await), Some(ErrorCode::Conflict));
    // Time is taken forward while nothing moves.
    let held = house.submit(&prompt("5", "s", "hold"));
    house.holding().await;
    let late = house.run(&on("6", "5")).await;
    assert_eq!((code(&late), late.outcome.timed_out), (Some(ErrorCode::Timeout), true));
    house.let_go();
    held.end().await;
    assert!(house.run(&on("6", "5")).await.replayed, "a time-out is an outcome");
    assert_eq!(house.shop.done(), ["hold", "after", "hold"]);
}

#[tokio::test]
async fn a_version_that_differs_is_named_with_the_one_that_was_wanted() {
    let house = house();
    house.run(&prompt("1", "s", "go")).await;
    let fork =
        |id: &str, version: u64| json!({ "type": "fork", "id": id, "sessionId": "s", "ifSessionVersion": version });
    let refused = house.run(&fork("2", 7)).await;
    assert_eq!(code(&refused), Some(ErrorCode::Conflict));
    let said = text(&refused);
    assert!(said.contains("version 1, not 7") && said.contains(r#""expected":1,"got":7"#), "{said}");
    assert_eq!(house.run(&fork("3", 1)).await.outcome.session_version, Some(2));
    assert_eq!(house.shop.done(), ["go", "fork"]);
    // The version of what changes the session is looked at by whoever makes the change.
    let asked = house.shop.versions_asked.load(Ordering::Relaxed);
    let held = command(&json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "ifSessionVersion": 4 }));
    assert!(matches!(&held.operation, Operation::Prompt(prompt) if prompt.if_version == Some(4)));
    assert_eq!((held.if_version, asked), (None, 2));
    let held = command(&json!({ "type": "undo", "sessionId": "s", "ifSessionVersion": 4 }));
    assert!(
        matches!(&held.operation, Operation::Undo(undo) if undo.if_version == Some(4)) && held.if_version.is_none()
    );
    for kind in ["abort", "interrupt", "pause", "resume", "delete_session"] {
        let held = command(&json!({ "type": kind, "sessionId": "s", "ifSessionVersion": 4 }));
        let looked_at = match &held.operation {
            Operation::Abort(body) | Operation::Interrupt(body) | Operation::Pause(body) | Operation::Resume(body) => {
                body.if_version
            }
            Operation::DeleteSession(if_version) => *if_version,
            other => panic!("{other:?}"),
        };
        assert_eq!((looked_at, held.if_version), (Some(4), None), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_starts_with_the_work_and_the_lane_waits_for_its_real_end() {
    let house = house();
    // What can be called back never happens: the answer says so, and so does the log.
    let late = house.run(&prompt("1", "s", "hold")).await;
    assert_eq!((code(&late), late.outcome.timed_out), (Some(ErrorCode::Timeout), true));
    let next = house.submit(&prompt("2", "s", "next"));
    house.holding().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(house.shop.done().is_empty(), "the lane is not free");
    house.let_go();
    assert!(next.end().await.outcome.error.is_none(), "its clock did not run while it waited");
    assert_eq!(house.shop.done(), ["next"], "what timed out was not done");
    let again = house.run(&prompt("1", "s", "hold")).await;
    assert_eq!((again.replayed, text(&again)), (true, text(&late)));
    assert_eq!((house.commands.counts(), house.commands.shared.room.available_permits()), ((0, 0), 100));
}

#[tokio::test]
async fn at_a_limit_new_work_is_refused_and_can_come_again() {
    let house = house_over(Arc::new(MemoryStore::new()), 3, 2);
    let held = [house.submit(&prompt("1", "s", "hold")), house.submit(&prompt("2", "s", "go"))];
    house.holding().await;
    let refused = house.run(&prompt("3", "t", "go")).await;
    assert_eq!((code(&refused), refused.accepted), (Some(ErrorCode::ResourceExhausted), false));
    house.let_go();
    for one in held {
        assert!(one.end().await.outcome.error.is_none(), "what is under way goes on");
    }
    assert!(house.run(&prompt("3", "t", "go")).await.outcome.error.is_none(), "it cost nothing");
    assert_eq!(code(&house.run(&prompt("4", "t", "go")).await), Some(ErrorCode::ResourceExhausted));
    for _ in 0..5 {
        assert!(house.run(&prompt("3", "t", "go")).await.replayed, "a replay costs nothing");
    }
    assert!(
        house.run(&json!({ "type": "abort", "sessionId": "s" })).await.outcome.error.is_none(),
        "controls have their own"
    );
    assert_eq!(house.shop.done(), ["hold", "go", "go", "abort"]);
}

#[tokio::test]
async fn without_an_id_nothing_is_remembered_and_clients_are_apart() {
    let house = house();
    let anonymous = json!({ "type": "prompt", "sessionId": "s", "prompt": "go" });
    let (first, second) = (house.submit(&anonymous), house.submit(&anonymous));
    assert!(first.id.starts_with(ANONYMOUS) && first.id != second.id);
    assert!(!first.end().await.replayed && !second.end().await.replayed);
    let client: ClientId = "other".parse().expect("an id");
    let caller = || Caller { client: Some(client.clone()), ..Caller::default() };
    for _ in 0..2 {
        house.run(&prompt("1", "s", "go")).await;
        house.commands.submit(Arc::clone(&house.shop), caller(), command(&prompt("1", "s", "theirs"))).end().await;
    }
    assert_eq!(house.shop.done(), ["go", "go", "go", "theirs"]);
}

/// One token lets many clients in, and each has names of its own, whatever signs are in them.
#[tokio::test]
async fn no_name_of_one_client_is_that_of_another() {
    let house = house();
    let of_token = |client: Option<&str>| {
        let name = "ci".parse().expect("a name");
        let client: Option<ClientId> = client.map(|client| client.parse().expect("an id"));
        Caller { client: Some(ClientId::of_token(&name, client.as_ref())), ..Caller::default() }
    };
    let keyed = |key: &str| json!({ "type": "prompt", "idempotencyKey": key, "sessionId": "s", "prompt": "go" });
    #[rustfmt::skip]
    let table = [
        (Some("k"), keyed("K0")), (None, keyed("k/K0")), (None, keyed("k%2FK0")), (None, prompt("k/K0", "s", "go")), (Some("i"), keyed("K0")),
        (None, prompt("i/K0", "s", "go")), (Some("k"), prompt("K0", "s", "go")), (Some("k"), keyed("k/K0")),
    ];
    for (client, message) in &table {
        let submit = || house.commands.submit(Arc::clone(&house.shop), of_token(*client), command(message));
        assert!(!submit().end().await.replayed, "{client:?} {message}");
        assert!(submit().end().await.replayed, "{client:?} {message}");
    }
    assert_eq!(house.shop.done().len(), table.len());
    // What is said of them are the words that were given.
    for (message, field, words) in [
        (keyed("k/K0"), "idempotencyKey", "k/K0"),
        (keyed("k%2FK0"), "idempotencyKey", "k%2FK0"),
        (prompt("i/K0", "s", "go"), "id", "i/K0"),
    ] {
        let mut other = message;
        other["prompt"] = json!("something else");
        let end = house.commands.submit(Arc::clone(&house.shop), of_token(None), command(&other)).end().await;
        assert_eq!(code(&end), Some(ErrorCode::Conflict));
        assert!(text(&end).contains(&format!("the {field} `{words}` was used")), "{}", text(&end));
    }
}

#[tokio::test]
async fn a_read_is_remembered_in_memory() {
    let house = house();
    let read = json!({ "type": "get_session", "id": "r", "sessionId": "s" });
    let first = house.run(&read).await;
    house.run(&prompt("1", "s", "go")).await;
    let again = house.run(&read).await;
    assert_eq!((again.replayed, text(&again)), (true, text(&first)));
    assert_eq!(code(&house.run(&prompt("r", "s", "go")).await), Some(ErrorCode::Conflict));
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Arc::new(SqliteStore::open(directory.path()).expect("opens"));
    let house = house_over(Arc::clone(&store) as Arc<dyn Store>, 0, 100);
    store.refuse_writes(true);
    let abort = json!({ "type": "abort", "id": "a", "sessionId": "s" });
    let refused = house.run(&abort).await;
    assert_eq!(code(&refused), Some(ErrorCode::Internal));
    assert!(house.shop.done().is_empty() && text(&refused).contains("nothing was done"), "{}", text(&refused));
    // Who has no id can stop a turn on a full disk.
    assert!(house.run(&json!({ "type": "abort", "sessionId": "s" })).await.outcome.error.is_none());
    store.refuse_writes(false);
    assert!(house.run(&abort).await.outcome.error.is_none(), "it can be asked again");
    drop(commit(&(store as Arc<dyn Store>), vec![Write::ForgetOutcome("none".into())]).await);
}

#[test]
fn messages_are_held_against_their_type() {
    let long = "x".repeat(257);
    let many: Vec<String> = (0..33).map(|n| n.to_string()).collect();
    #[rustfmt::skip]
    let table: Vec<(Value, Option<&str>)> = vec![
        (json!({ "type": "create_session" }), None),
        (json!({ "type": "create_session", "sessionId": "s", "title": "t" }), None),
        (json!({ "type": "delete_session", "sessionId": "s", "idempotencyKey": "k" }), None),
        (json!({ "type": "steer", "sessionId": "s", "prompt": "x", "mode": "steer" }), None),
        (json!({ "type": "list_sessions", "limit": 5, "cursor": "c" }), None),
        (json!({ "type": "get_history", "sessionId": "s", "cursor": "5" }), None),
        (json!({ "type": "get_history", "sessionId": "s", "cursor": "+5" }), Some("cursor")),
        (json!({ "type": "get_history", "sessionId": "s", "cursor": "" }), Some("cursor")),
        (json!({ "type": "get_history", "sessionId": "s", "cursor": "00000000000000000005" }), Some("cursor")),
        (json!({ "type": "abort", "sessionId": "s", "ifSessionVersion": 3.0 }), None),
        (json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "ifVersion": 3.0 }), None),
        (json!({ "type": "abort", "sessionId": "s", "ifSessionVersion": 3.5 }), Some("ifSessionVersion")),
        (json!({ "type": "abort", "sessionId": "s", "ifSessionVersion": -1 }), Some("ifSessionVersion")),
        (json!({ "type": "explain_permission", "sessionId": "s", "tool": "bash" }), None),
        (json!({ "type": "revoke_grant", "grantId": "g" }), None),
        (json!({ "type": "put_board_entry", "sessionId": "s", "key": "a/b", "value": null, "ifVersion": 0 }), None),
        (json!({ "type": "put_board_entry", "sessionId": "s", "value": 1 }), Some("key")),
        (json!({ "type": "put_board_entry", "sessionId": "s", "key": "/a", "value": 1 }), Some("key")),
        (json!({ "type": "put_board_entry", "sessionId": "s", "key": "a" }), Some("value")),
        (json!({ "type": "delete_board_entry", "sessionId": "s", "key": "a", "ifVersion": 3.0 }), None),
        (json!({ "type": "delete_board_entry", "sessionId": "s", "key": "a", "ifVersion": -3 }), Some("ifVersion")),
        (json!({ "type": "clear_board", "sessionId": "s" }), None),
        (json!({ "type": "clear_board", "sessionId": "s", "key": "a" }), Some("key")),
        (json!({ "type": "create_task", "sessionId": "s", "subject": "a", "blockedBy": ["1"] }), None),
        (json!({ "type": "create_task", "sessionId": "s" }), Some("subject")),
        (json!({ "type": "create_task", "sessionId": "s", "subject": " " }), Some("subject")),
        (json!({ "type": "create_task", "sessionId": "s", "subject": "a", "blockedBy": "1" }), Some("blockedBy")),
        (json!({ "type": "create_task", "sessionId": "s", "subject": "a", "blockedBy": vec!["1"; 101] }), Some("blockedBy")),
        (json!({ "type": "update_task", "sessionId": "s", "taskId": "1", "status": "completed" }), None),
        (json!({ "type": "update_task", "sessionId": "s", "taskId": "1" }), Some("command")),
        (json!({ "type": "update_task", "sessionId": "s", "status": "completed" }), Some("taskId")),
        (json!({ "type": "update_task", "sessionId": "s", "taskId": "1", "status": "done" }), Some("status")),
        (json!({ "type": "delete_task", "sessionId": "s", "taskId": "1" }), None),
        (json!({ "type": "undo", "sessionId": "s", "turnId": "t", "partial": true, "ifSessionVersion": 3 }), None),
        (json!({ "type": "redo", "sessionId": "s" }), None),
        (json!({ "type": "fork", "sessionId": "s", "at": 3, "newSessionId": "f", "title": "t", "ifSessionVersion": 3 }), None),
        (json!({ "type": "undo" }), Some("sessionId")),
        (json!({ "type": "undo", "sessionId": "s", "turns": 2 }), Some("turns")),
        (json!({ "type": "redo", "sessionId": "s", "ifVersion": 1, "ifSessionVersion": 2 }), Some("ifVersion")),
        (json!({ "type": "fork", "sessionId": "s", "at": -1 }), Some("at")),
        (json!({ "type": "fork", "sessionId": "s", "newSessionId": "a/b" }), Some("newSessionId")),
        (json!({ "type": "subscribe", "sessionId": "s", "after": 3, "types": ["abort"] }), None),
        (json!({ "type": "unsubscribe", "sessionId": "s" }), None),
        (json!({ "type": "subscribe", "after": "newest", "types": ["abort"] }), None),
        (json!({ "type": "unsubscribe" }), None),
        (json!({ "type": "subscribe", "sessionId": "s", "after": "newest" }), Some("after")),
        (json!({ "type": "subscribe", "after": "oldest" }), Some("after")),
        (json!({ "type": "subscribe", "after": -1 }), Some("after")),
        (json!({ "id": "1" }), Some("type")),
        (json!({ "type": 5 }), Some("type")),
        (json!({ "type": "promt" }), Some("type")),
        (json!({ "type": "prompt", "prompt": "x" }), Some("sessionId")),
        (json!({ "type": "prompt", "sessionId": "a/b", "prompt": "x" }), Some("sessionId")),
        (json!({ "type": "prompt", "sessionId": "s" }), Some("prompt")),
        (json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "urgent": true }), Some("urgent")),
        (json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "configure": { "model": 1 } }), Some("configure.model")),
        (json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "ifVersion": 1, "ifSessionVersion": 2 }), Some("ifVersion")),
        (json!({ "type": "steer", "sessionId": "s", "prompt": "x", "mode": "queue" }), Some("mode")),
        (json!({ "type": "abort", "sessionId": "s", "id": "anon:1" }), Some("id")),
        (json!({ "type": "abort", "sessionId": "s", "id": "" }), Some("id")),
        (json!({ "type": "abort", "sessionId": "s", "id": long }), Some("id")),
        (json!({ "type": "abort", "sessionId": "s", "idempotencyKey": "a\nb" }), Some("idempotencyKey")),
        (json!({ "type": "abort", "sessionId": "s", "dependsOn": many }), Some("dependsOn")),
        (json!({ "type": "abort", "sessionId": "s", "dependsOn": "1" }), Some("dependsOn")),
        (json!({ "type": "abort", "sessionId": "s", "ifSessionVersion": -1 }), Some("ifSessionVersion")),
        (json!({ "type": "create_session", "ifSessionVersion": 0 }), Some("ifSessionVersion")),
        (json!({ "type": "list_tools", "sessionId": "s" }), Some("sessionId")),
        (json!({ "type": "list_tools", "ifSessionVersion": 0 }), Some("ifSessionVersion")),
        (json!({ "type": "list_sessions", "limit": 0 }), Some("limit")),
        (json!({ "type": "get_turn", "sessionId": "s" }), Some("turnId")),
        (json!({ "type": "subscribe", "sessionId": "s", "from": 3 }), Some("from")),
        (json!([]), Some("command")),
        (json!({ "type": "configure", "sessionId": "s" }), Some("command")),
        (json!({ "type": "configure", "sessionId": "s", "title": null }), Some("command")),
    ];
    for (value, want) in table {
        let refused = Message::parse(value.to_string().as_bytes()).err();
        let named = refused.and_then(|unread| unread.error.0.details).map(|details| details["field"].clone());
        assert_eq!(named, want.map(Value::from), "{value}");
    }
    let twice = Message::parse(br#"{"type":"abort","type":"prompt","sessionId":"s"}"#).expect_err("refused");
    assert!(twice.error.0.message.contains("`type`"), "{:?}", twice.error);
    let known = Message::parse(br#"{"id":"7","type":"abort"}"#).expect_err("refused");
    assert_eq!((known.id.as_deref(), known.command.as_deref()), (Some("7"), Some("abort")));
}

#[test]
fn a_request_over_http_is_the_same_command() {
    let of = |kind, session: Option<&str>, body: &str| {
        let session = session.map(|id| id.parse().expect("an id"));
        let key = Some("k".to_owned());
        let request = Request { kind, session, key, if_version: None, fields: Vec::new(), body: body.as_bytes() };
        Command::of_request(request).expect("a command")
    };
    let keyed = |mut value: Value| {
        value["idempotencyKey"] = "k".into();
        command(&value)
    };
    let prompt = keyed(json!({ "type": "prompt", "sessionId": "s", "prompt": "x", "mode": "reject" }));
    assert_eq!(of("prompt", Some("s"), r#"{"mode":"reject","prompt":"x"}"#), prompt);
    let create = keyed(json!({ "type": "create_session", "sessionId": "s", "title": "t" }));
    assert_eq!(of("create_session", None, r#"{"title":"t","sessionId":"s"}"#), create);
    assert_eq!(of("abort", Some("s"), ""), keyed(json!({ "type": "abort", "sessionId": "s" })));
    assert_ne!(of("abort", Some("s"), "").fingerprint, of("abort", Some("t"), "").fingerprint);
    let prints: HashMap<_, _> =
        [("a", "{}"), ("b", r#"{"reason":"r"}"#)].map(|(n, b)| (of("abort", Some("s"), b).fingerprint, n)).into();
    assert_eq!(prints.len(), 2);
}

/// However the same is spelt, it is the same command; a default that is said is something that is said.
#[test]
fn a_key_goes_with_what_is_asked_however_it_is_spelt() {
    let over_http = |kind, body: &str| {
        let session = (kind != "create_session").then(|| "s".parse().expect("an id"));
        let key = Some("k".to_owned());
        let request = Request { kind, session, key, if_version: None, fields: Vec::new(), body: body.as_bytes() };
        Command::of_request(request).unwrap_or_else(|error| panic!("{body}: {error:?}")).fingerprint
    };
    let over_a_socket = |kind: &str, body: &str| {
        let session = if kind == "create_session" { "" } else { r#""sessionId":"s","# };
        let text = format!(r#"{{"type":"{kind}",{session}"idempotencyKey":"k",{}"#, &body[1..]);
        match Message::parse(text.as_bytes()) {
            Ok(Message::Command(command)) => command.fingerprint,
            other => panic!("{text}: {other:?}"),
        }
    };
    #[rustfmt::skip]
    let table = [
        // (type, a body, another, whether they ask for the same)
        ("prompt", r#"{"prompt":"x","mode":"queue"}"#, r#"{ "mode" : "queue",  "prompt":"x" }"#, true),
        ("prompt", r#"{"prompt":"x"}"#, r#"{"prompt":"\u0078"}"#, true),
        ("prompt", r#"{"prompt":"x"}"#, r#"{"prompt":"x","ifVersion":null,"configure":null}"#, true),
        ("prompt", r#"{"prompt":"x","configure":{"title":"t"}}"#, r#"{"prompt":"x","configure":{"model":null,"title":"t"}}"#, true),
        ("prompt", r#"{"prompt":[{"type":"text","text":"x"}]}"#, r#"{"prompt":[{"text":"x","type":"text"}]}"#, true),
        ("prompt", r#"{"prompt":"x"}"#, r#"{"prompt":"x "}"#, false),
        ("prompt", r#"{"prompt":"x"}"#, r#"{"prompt":"x","mode":"queue"}"#, false),
        ("configure", r#"{"title":"t"}"#, r#"{"model":null,"title":"t"}"#, true),
        ("configure", r#"{"title":"t"}"#, r#"{"title":""}"#, false),
        ("create_session", r#"{"title":"t"}"#, r#"{"sessionId":null,"title":"t"}"#, true),
        ("abort", r#"{"reason":"r"}"#, r#"{"reason":"r","ifVersion":null}"#, true),
        ("abort", r#"{"reason":"r","ifVersion":0}"#, r#"{"reason":"r","ifVersion":null}"#, false),
        ("feedback", r#"{"requestId":"r","value":{"a":1}}"#, r#"{"requestId":"r","value":{"a":1,"b":null}}"#, false),
    ];
    for (kind, one, other, same) in table {
        assert_eq!(over_http(kind, one) == over_http(kind, other), same, "{kind} {one} {other}");
        assert_eq!(over_a_socket(kind, one) == over_a_socket(kind, other), same, "{kind} {one} {other}");
    }
}
