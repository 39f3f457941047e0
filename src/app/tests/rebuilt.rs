//! Whatever is done to sessions, in whatever order: what is stored of them is what their logs add up to.

use std::collections::BTreeMap;

use super::controls::{allow, asked, reached};
use super::*;
use crate::protocol::{Fork, Reasoning, TurnSettings, Undo};
use crate::session::Views;
use crate::store::{Grant, GrantSubject, Inspection};

/// Runs, each with a restart in it. `SIMSE_REBUILT_SEEDS` asks for more.
const SEEDS: u64 = 8;
/// What is done in each of them.
const STEPS: u64 = 48;
/// Sessions at most.
const SESSIONS: usize = 6;

/// What a tour has in it, whatever chance brings afterwards: events of these types.
const KINDS: [&str; 17] = [
    "session.prompt",
    "session.steer",
    "session.completed",
    "session.error",
    "session.configured",
    "session.forked",
    "turn.queued",
    "turn.control",
    "turn.paused",
    "turn.resumed",
    "turn.changes",
    "changes.undone",
    "permission.request",
    "permission.response",
    "permission.granted",
    "permission.revoked",
    "abort",
];

/// Numbers that look like chance and follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).expect("few")]
    }
}

async fn house(data: &Path) -> House {
    open(Storage::Directory(data.to_owned()), |settings| {
        asks_for_writes(settings);
        settings.limits.interrupt_grace_ms = 20;
    })
    .await
}

/// A round of any kind. One that fails is what a script without rounds does.
fn round(chance: &mut Chance) -> Round {
    match chance.below(8) {
        0..=2 => says("well"),
        3..=5 => calls("fs_write", json!({ "path": format!("{}.txt", chance.below(5)), "content": "x".repeat(9) })),
        6 => calls("fs_list", json!({})),
        _ => hangs(),
    }
}

async fn prompt(house: &House, id: &SessionId, chance: &mut Chance) {
    let rounds = 1 + chance.below(3);
    house.plays((0..rounds).map(|_| round(chance)));
    let title = (chance.below(4) == 0).then(|| format!("T{}", chance.below(9)));
    // A large one is kept apart while it waits.
    let length = chance.pick(&[1, 1, 2_000]);
    let body = Prompt {
        prompt: PromptContent::Text(format!("p{} ", chance.below(99)).repeat(length)),
        mode: chance.pick(&[
            PromptMode::Queue,
            PromptMode::Queue,
            PromptMode::Steer,
            PromptMode::Steer,
            PromptMode::Reject,
        ]),
        configure: title.map(|title| Configure { title: Some(title), ..Configure::default() }),
        turn: (chance.below(4) == 0)
            .then(|| TurnSettings { reasoning: Some(Reasoning::Low), ..TurnSettings::default() }),
        if_version: None,
    };
    // Who is refused has changed nothing.
    drop(house.app.prompt(&anyone(), id, body).await);
}

/// Answers what a session asks.
async fn answer(house: &House, id: &SessionId, chance: &mut Chance) {
    let Ok(view) = house.app.session(&anyone(), id).await else { return };
    for question in view.requests {
        let crate::protocol::EventBody::PermissionRequest { request_id, .. } = question else { continue };
        let decision = chance.pick(&[Decision::Allow, Decision::Allow, Decision::AllowAlways, Decision::Deny]);
        let body = Feedback { request_id: Some(request_id), decision: Some(decision), ..Feedback::default() };
        drop(house.app.feedback(&anyone(), id, body).await);
    }
}

/// One thing. What waits for the turn does so in a task of its own.
async fn step(house: &House, sessions: &mut Vec<SessionId>, chance: &mut Chance) {
    let id = sessions[usize::try_from(chance.below(sessions.len() as u64)).expect("few")].clone();
    let (app, of) = (Arc::clone(&house.app), id.clone());
    let control = Control::default;
    match chance.below(20) {
        0..=5 => prompt(house, &id, chance).await,
        6..=9 => answer(house, &id, chance).await,
        10 => drop(tokio::spawn(async move { app.interrupt(&anyone(), &of, control()).await })),
        11 | 12 => drop(tokio::spawn(async move { app.pause(&anyone(), &of, control()).await })),
        13 | 14 => drop(app.resume(&anyone(), &of, control()).await),
        15 => drop(app.abort(&anyone(), &of, control()).await),
        16 => {
            let reasoning = Some(chance.pick(&[Reasoning::Low, Reasoning::High]));
            let changes = Configure { reasoning, ..Configure::default() };
            drop(app.configure(&anyone(), &of, (changes, None)).await);
        }
        17 => {
            // Both want a session at rest.
            rest(house, &id, chance).await;
            let undone = app.undo(&anyone(), &of, Undo::default()).await;
            if chance.below(2) == 0 && undone.is_ok() {
                drop(app.redo(&anyone(), &of, Undo::default()).await);
            }
        }
        18 => {
            let grants = app.grants(&anyone(), (Some(&id), None)).await.unwrap().items;
            if let Some(grant) = grants.first() {
                app.revoke_grant(&anyone(), (grant.grant_id.clone(), Some(&id))).await.unwrap();
            }
        }
        _ if sessions.len() < SESSIONS => {
            let last = app.session(&anyone(), &id).await.unwrap().last_seq;
            let at = (chance.below(2) == 0).then(|| 1 + chance.below(last));
            let fork = app.fork(&anyone(), &id, Fork { at, ..Fork::default() }).await;
            sessions.extend(fork.map(|view| view.session_id));
        }
        _ => answer(house, &id, chance).await,
    }
    for _ in 0..chance.below(60) {
        tokio::task::yield_now().await;
    }
}

/// Lets a session come to rest: answers what it asks, lets go on what is paused, ends what hangs.
async fn rest(house: &House, id: &SessionId, chance: &mut Chance) {
    for round in 0.. {
        let view = house.app.session(&anyone(), id).await.unwrap();
        let Some(turn) = view.turn else {
            if view.queued == 0 {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        };
        let control = Control::default();
        match turn.status {
            TurnStatus::Waiting => answer(house, id, chance).await,
            TurnStatus::Paused => drop(house.app.resume(&anyone(), id, control).await),
            _ if round % 50 == 49 => drop(house.app.abort(&anyone(), id, control).await),
            _ => tokio::task::yield_now().await,
        }
    }
}

/// Holds all that is stored of a session, and all that is shown, against its log.
async fn holds(house: &House, id: &SessionId, (seed, when): (u64, &str)) -> Vec<String> {
    let store = &house.app.store;
    let row = store.session(id).await.unwrap().unwrap();
    let (log, mut views) = (house.log(id).await, Views::default());
    for event in &log {
        views.push(event).unwrap_or_else(|e| panic!("seed {seed}, {when}, event {}: {e}", event.seq));
    }
    let mut turns = Vec::new();
    while let Some(page) = Some(store.turns(id, turns.last().map(turn_id), 50).await.unwrap()).filter(|p| !p.is_empty())
    {
        turns.extend(page);
    }
    turns.reverse();
    let faults = views.compare(&row, &turns);
    assert!(
        faults.is_empty(),
        "seed {seed}, {when}: {faults:#?}\n{:#?}",
        log.iter().map(|e| &e.kind).collect::<Vec<_>>()
    );
    assert_eq!(older(&log).compare(&row, &turns), Vec::new(), "seed {seed}, {when}: a log that tells of no grants");
    if !row.settings.grants.is_empty() {
        let mut forged = row.clone();
        forged.settings.grants[0].id = crate::protocol::GrantId::generate();
        assert_eq!(views.compare(&forged, &turns).len(), 1, "it was another one that was given");
        forged.settings.grants.remove(0);
        assert_eq!(views.compare(&forged, &turns).len(), 1, "nobody has taken it back");
    }
    let mut forged = row.clone();
    forged.settings.grants.push(Grant {
        id: crate::protocol::GrantId::generate(),
        created_at: 1,
        expires_at: None,
        tool: "bash".into(),
        on: GrantSubject::Command("ls".into()),
    });
    assert_eq!(views.compare(&forged, &turns).len(), 1, "nobody has said yes to that");
    let view = house.app.session(&anyone(), id).await.unwrap();
    let shown = (view.version, view.message_count, view.usage, view.status, view.last_seq);
    let stored = (row.version, row.message_count, row.usage, row.status, log.len() as u64);
    assert_eq!(shown, stored, "seed {seed}, {when}: {id}");
    for kind in ["session.completed", "session.error", "abort"] {
        let ends = log.iter().filter(|event| event.kind == kind).count();
        assert!(ends <= turns.len(), "seed {seed}, {when}: {ends} {kind}");
    }
    log.into_iter().map(|event| event.kind.into_owned()).collect()
}

fn turn_id(turn: &crate::store::TurnRow) -> &TurnId {
    &turn.record.turn_id
}

/// The log as one of an earlier version, which tells of no grants.
fn older(log: &[Event]) -> Views {
    let mut views = Views::default();
    for event in log.iter().filter(|event| !["permission.granted", "permission.revoked"].contains(&&*event.kind)) {
        let mut event = event.clone();
        let payload = event.payload.get().replace(r#","tellsGrants":true"#, "");
        event.payload = serde_json::value::RawValue::from_string(payload).unwrap();
        views.push(&event).expect("in its place");
    }
    views
}

/// One that stays, and one that is taken back.
async fn grants(house: &House, id: &SessionId, reader: &mut EventReader) {
    for path in ["kept.txt", "lost.txt"] {
        house.plays([calls("fs_write", json!({ "path": path, "content": "x" })), says("written")]);
        house.prompts(id, "write", PromptMode::Queue).await.unwrap();
        let (request_id, decision) = (Some(asked(reader).await), Some(Decision::AllowAlways));
        house.app.feedback(&anyone(), id, Feedback { request_id, decision, ..Feedback::default() }).await.unwrap();
        until(reader, "session.completed").await;
    }
    let grants = house.app.grants(&anyone(), (Some(id), None)).await.unwrap().items;
    house.app.revoke_grant(&anyone(), (grants[1].grant_id.clone(), Some(id))).await.unwrap();
}

/// One of each, in a session of its own, and a fork of that.
async fn tour(house: &House) -> Vec<SessionId> {
    let id = house.session().await;
    let mut reader = house.app.events(&anyone(), &id, 0).await.unwrap();
    let write = || calls("fs_write", json!({ "path": "tour.txt", "content": "x" }));
    grants(house, &id, &mut reader).await;
    house.plays([write(), says("written"), says("next")]);
    house.prompts(&id, "write", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    house.prompts(&id, "and this", PromptMode::Steer).await.unwrap();
    house.prompts(&id, "next", PromptMode::Queue).await.unwrap();
    let (app, of) = (Arc::clone(&house.app), id.clone());
    let paused = tokio::spawn(async move { app.pause(&anyone(), &of, Control::default()).await });
    reached(&mut reader, "pause").await;
    allow(house, &id, request).await;
    paused.await.unwrap().unwrap();
    house.app.resume(&anyone(), &id, Control::default()).await.unwrap();
    for _ in 0..2 {
        until(&mut reader, "session.completed").await;
    }
    house.plays([write(), says("written"), hangs()]);
    house.prompts(&id, "write again", PromptMode::Queue).await.unwrap();
    let request = asked(&mut reader).await;
    std::fs::remove_file(house.directory.path().join("tour.txt")).unwrap();
    allow(house, &id, request).await;
    until(&mut reader, "session.completed").await;
    house.app.undo(&anyone(), &id, Undo::default()).await.unwrap();
    house.app.redo(&anyone(), &id, Undo::default()).await.unwrap();
    house.prompts(&id, "hang", PromptMode::Queue).await.unwrap();
    until(&mut reader, "stream.start").await;
    house.app.abort(&anyone(), &id, Control::default()).await.unwrap();
    until(&mut reader, "abort").await;
    // The script has no more rounds.
    house.prompts(&id, "fail", PromptMode::Queue).await.unwrap();
    until(&mut reader, "session.error").await;
    let changes = Configure { reasoning: Some(Reasoning::High), ..Configure::default() };
    house.app.configure(&anyone(), &id, (changes, None)).await.unwrap();
    let fork = house.app.fork(&anyone(), &id, Fork::default()).await.unwrap().session_id;
    vec![id, fork]
}

/// What waits and is large is there, and nothing else of the kind is.
pub(super) fn sound(data: &Path, (seed, when): (u64, &str)) {
    let (inspection, mut number) = (Inspection::open(data).unwrap(), 0);
    assert_eq!(inspection.database(), Ok(Vec::new()), "seed {seed}, {when}");
    while let Some(next) = inspection.next_session(number).unwrap() {
        number = next;
        let (_, faults) = inspection.session(number, &mut |_| {}).unwrap();
        assert_eq!(faults, [], "seed {seed}, {when}");
    }
}

async fn run(seed: u64, kinds: &mut BTreeMap<String, usize>) {
    let data = tempfile::tempdir().unwrap();
    let mut chance = Chance(seed);
    let mut house = house(data.path()).await;
    let mut sessions = tour(&house).await;
    sessions.push(house.session().await);
    for when in ["before the restart", "behind it"] {
        for _ in 0..STEPS / 2 {
            step(&house, &mut sessions, &mut chance).await;
        }
        let House { app, directory, .. } = house;
        // In the middle of what runs: it is aborted, what waits or is paused stays.
        app.shutdown(Duration::ZERO).await.unwrap();
        sound(data.path(), (seed, when));
        house = open(Storage::Directory(data.path().to_owned()), |settings| {
            asks_for_writes(settings);
            settings.limits.interrupt_grace_ms = 20;
            settings.allowed_roots = vec![directory.path().to_owned()];
        })
        .await;
        house.directory = directory;
        for id in &sessions {
            rest(&house, id, &mut chance).await;
            for kind in holds(&house, id, (seed, when)).await {
                *kinds.entry(kind).or_default() += 1;
            }
        }
    }
    house.app.shutdown(Duration::ZERO).await.unwrap();
    sound(data.path(), (seed, "at the end"));
}

#[tokio::test]
async fn what_is_stored_is_what_the_log_adds_up_to() {
    let seeds = std::env::var("SIMSE_REBUILT_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut kinds = BTreeMap::new();
    for seed in 0..seeds {
        run(seed, &mut kinds).await;
    }
    for kind in KINDS {
        assert!(kinds.contains_key(kind), "no {kind}: {kinds:?}");
    }
}
