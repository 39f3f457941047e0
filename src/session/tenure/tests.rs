//! A server that ends beside others: what it has begun has its end, and what it has not is theirs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::protocol::{PromptContent, SessionId, SessionStatus, TurnId, TurnStatus};
use crate::session::actor::queued_turn;
use crate::session::control::Command;
use crate::session::manager::Manager;
use crate::session::manager::tests::{created, manager, prompt};
use crate::store::{Postgres, Store, Waiting, Write, commit};

const LONG: Duration = Duration::from_secs(30);
/// Keeps turns from being written, until a note says so.
const HOLDS: &str = "BEGIN; LOCK TABLE turn IN SHARE MODE;
    DO $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM note WHERE kind = 'test') LOOP PERFORM pg_sleep(0.01); END LOOP;
    END $$; COMMIT";

async fn status(store: &Arc<dyn Store>, id: &SessionId, turn: &TurnId) -> TurnStatus {
    store.turn(id, turn).await.expect("read").expect("there").record.status
}

/// A session that sleeps and has a turn that waits.
async fn with_a_turn_that_waits(store: &Arc<dyn Store>, manager: &Manager, text: &str) -> (SessionId, TurnId) {
    let id = created(manager).await;
    let turn = queued_turn(&id, Waiting::Here(PromptContent::Text(text.into())), None);
    let turn_id = turn.record.turn_id.clone();
    let mut row = store.session(&id).await.expect("read").expect("there");
    row.status = SessionStatus::Active;
    let writes = vec![Write::UpdateSession(Box::new(row)), Write::SaveTurn(Box::new(turn))];
    commit(store, writes).await.expect("stored");
    (id, turn_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_just_being_begun_when_the_server_ends_has_its_end() {
    let Some(postgres) = Postgres::start() else { return };
    let postgres = Arc::new(postgres);
    let store = postgres.share(&[]).await;
    let manager = manager(Arc::clone(&store), LONG);
    let (id, turn) = with_a_turn_that_waits(&store, &manager, "slow").await;
    let holds = {
        let postgres = Arc::clone(&postgres);
        tokio::spawn(async move { postgres.raw(HOLDS).await })
    };
    let locks = async |what: &str| {
        let count = format!("SELECT count(*) FROM pg_locks WHERE relation = 'turn'::regclass AND {what}");
        while postgres.raw(&count).await != ["1"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    locks("mode = 'ShareLock' AND granted").await;
    let live = manager.live(None, &id).await.expect("there");
    // Its beginning is being written.
    locks("NOT granted").await;
    let lets_go = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        postgres.raw("INSERT INTO note VALUES ('test', 'go', '')").await;
    };
    let (ended, ()) = tokio::join!(manager.shutdown(LONG), lets_go);
    ended.expect("stored");
    assert_eq!(status(&store, &id, &turn).await, TurnStatus::Completed);
    holds.await.expect("no panic");
    drop(live);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_a_server_that_ends_is_for_another_one() {
    let Some(postgres) = Postgres::start() else { return };
    let [first, second] = [postgres.share(&[]).await, postgres.share(&[]).await];
    let [ends, stays] = [&first, &second].map(|store| manager(Arc::clone(store), LONG));
    let id = created(&ends).await;
    let live = ends.live(None, &id).await.expect("there");
    // It has not been handed over yet.
    ends.shelf.closing.store(true, Ordering::Release);
    let withdrawn = live.prompt(prompt("slow")).await.expect("accepted").turn_id;
    let view = stays.view(None, &id).await.expect("read");
    assert_eq!((view.status, view.queued), (SessionStatus::Active, 1), "others see that it waits");
    live.abort(Command { turn: Some(withdrawn), reason: "stop".into(), if_version: None }).await.expect("waits");
    let view = stays.view(None, &id).await.expect("read");
    assert_eq!((view.status, view.queued), (SessionStatus::Aborted, 0), "and that it no longer does");
    let accepted = live.prompt(prompt("slow")).await.expect("accepted");
    assert_eq!(accepted.status, TurnStatus::Queued);
    let waits = tokio::spawn({
        let turn = accepted.turn_id.clone();
        async move { live.wait(&turn).await }
    });
    ends.shutdown(LONG).await.expect("stored");
    assert!(waits.await.expect("no panic").is_err(), "it has not run here");
    assert_eq!(status(&first, &id, &accepted.turn_id).await, TurnStatus::Queued);
    first.close().await.expect("closes");
    stays.recover().await.expect("read");
    let record = stays.live(None, &id).await.expect("there").wait(&accepted.turn_id).await.expect("ends");
    assert_eq!(record.status, TurnStatus::Completed, "{record:?}");
}
