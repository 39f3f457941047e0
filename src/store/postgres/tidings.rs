//! What nodes tell one another of what there is to read: numbers of sessions with those of their newest events, and clients whose
//! lifecycle events have grown.
//!
//! It goes by `NOTIFY`, over a connection of its own and behind the commit: so no commit waits for it, and none for the queue that
//! PostgreSQL writes such words into one after the other. What is lost on the way is found by a look at all that is followed, once a
//! second.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, broadcast, watch};
use tokio_postgres::{AsyncMessage, Client};
use tokio_util::task::AbortOnDropHandle;

use super::connect::Reach;
use super::fault::Fault;
use super::letters::Postbox;
use super::node::Node;
use crate::store::lifecycle::Bell;
use crate::store::{CommandsGiven, Presence};

/// The channel.
const CHANNEL: &str = "simse";
/// Bytes of one message, about: PostgreSQL takes less than 8,000.
const MESSAGE_BYTES: usize = 6_000;
/// Time between two looks at what is followed.
const LOOK: Duration = Duration::from_secs(1);
/// So many of them later all look who read lifecycle events.
const BELL_ROUNDS: u64 = 5;
/// Pause before a connection is made anew.
const PAUSE: Duration = Duration::from_millis(500);
/// Sessions or clients of one message about who is there, or what they do.
const PRESENT_MAX: usize = 25;
/// Such messages that wait for who takes them.
const PRESENCES_MAX: usize = 64;
/// Letters of one message.
const LETTERS_MAX: usize = 250;
/// The number of the newest event of a session that is gone.
pub(super) const GONE: u64 = i64::MAX as u64;

/// What is told, and who follows.
pub(super) struct Tidings {
    node: i64,
    bell: Arc<Bell>,
    waiting: Mutex<Waiting>,
    more: Notify,
    /// Sessions that are followed here.
    followed: Mutex<HashMap<i64, watch::Sender<u64>>>,
    /// Whether anybody else is there to be told.
    has_company: AtomicBool,
    let_go: AtomicBool,
    /// Counts what may have left sessions that nobody has.
    departures: watch::Sender<u64>,
    /// Counts what may have changed of what all nodes know.
    changes: watch::Sender<u64>,
    presence: broadcast::Sender<Presence>,
    commands: broadcast::Sender<Vec<CommandsGiven>>,
    postbox: Arc<Postbox>,
}

/// What has not been told yet.
#[derive(Debug, Default)]
struct Waiting {
    sessions: BTreeMap<i64, u64>,
    clients: BTreeSet<String>,
    presence: Presence,
    commands: Vec<CommandsGiven>,
    /// Nodes that have letters.
    letters: BTreeSet<i64>,
    /// Letters that were answered.
    answered: BTreeSet<i64>,
    freed: bool,
    changed: bool,
}

/// What goes over the line.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Words {
    /// Who says it.
    node: i64,
    /// Sessions, and the numbers of their newest events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sessions: Vec<(i64, u64)>,
    /// Clients; the empty one is the one without an id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    clients: Vec<String>,
    /// Who is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    presence: Option<Presence>,
    /// Commands that were given there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    commands: Vec<CommandsGiven>,
    /// Nodes that have letters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    letters: Vec<i64>,
    /// Letters that were answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answered: Vec<i64>,
    /// It has given up sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    freed: bool,
    /// Something has changed that all nodes know.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    changed: bool,
}

impl Tidings {
    pub(super) fn new(node: &Node, bell: Arc<Bell>) -> Self {
        Self {
            node: node.number,
            bell,
            waiting: Mutex::default(),
            more: Notify::new(),
            followed: Mutex::default(),
            has_company: AtomicBool::new(true),
            let_go: AtomicBool::new(false),
            departures: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            presence: broadcast::Sender::new(PRESENCES_MAX),
            commands: broadcast::Sender::new(PRESENCES_MAX),
            postbox: Arc::default(),
        }
    }

    /// Who waits for letters here, and for answers to them.
    pub(super) fn postbox(&self) -> &Arc<Postbox> {
        &self.postbox
    }

    /// Tells a node that it has a letter.
    pub(super) fn tell_letter(&self, receiver: i64) {
        self.waiting.lock().letters.insert(receiver);
        self.more.notify_one();
    }

    /// Tells who has sent a letter that it was answered.
    pub(super) fn tell_answered(&self, letter: i64) {
        self.waiting.lock().answered.insert(letter);
        self.more.notify_one();
    }

    /// Tells that there is more to read.
    pub(super) fn tell<'a>(&self, sessions: impl Iterator<Item = (i64, u64)>, clients: impl Iterator<Item = &'a str>) {
        let sessions: Vec<(i64, u64)> = sessions.collect();
        // Who follows a session since another node had it.
        self.advance(sessions.iter().copied());
        if !self.has_company.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.sessions.extend(sessions);
        for client in clients {
            if !waiting.clients.contains(client) {
                waiting.clients.insert(client.to_owned());
            }
        }
        let has_some = !waiting.sessions.is_empty() || !waiting.clients.is_empty();
        drop(waiting);
        if has_some {
            self.more.notify_one();
        }
    }

    /// Tells who is there.
    pub(super) fn tell_presence(&self, presence: Presence) {
        let is_nobody = presence == Presence::default();
        if !is_nobody && self.has_company.load(Ordering::Acquire) {
            self.waiting.lock().presence = presence;
            self.more.notify_one();
        }
    }

    /// What others tell of it.
    pub(super) fn presence(&self) -> broadcast::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// Tells of commands that were given here.
    pub(super) fn tell_commands(&self, given: Vec<CommandsGiven>) {
        if !given.is_empty() && self.has_company.load(Ordering::Acquire) {
            self.waiting.lock().commands = given;
            self.more.notify_one();
        }
    }

    /// What others tell of it.
    pub(super) fn commands(&self) -> broadcast::Receiver<Vec<CommandsGiven>> {
        self.commands.subscribe()
    }

    /// Tells that sessions were given up.
    pub(super) fn tell_freed(&self) {
        self.waiting.lock().freed = true;
        self.more.notify_one();
    }

    /// Tells that something has changed that all nodes know.
    pub(super) fn tell_changed(&self) {
        self.waiting.lock().changed = true;
        self.more.notify_one();
    }

    /// Changes when another node has changed such.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Sessions may be there that nobody has.
    pub(super) fn note_departure(&self) {
        self.departures.send_modify(|count| *count += 1);
    }

    /// Changes with each time.
    pub(super) fn departures(&self) -> watch::Receiver<u64> {
        self.departures.subscribe()
    }

    /// Whether anybody else is there.
    pub(super) fn set_company(&self, has_company: bool) {
        self.has_company.store(has_company, Ordering::Release);
    }

    /// A session was given up: what the writer knows of sessions no longer counts.
    pub(super) fn note_let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    /// Whether one was since the last time.
    pub(super) fn has_let_go(&self) -> bool {
        self.let_go.swap(false, Ordering::AcqRel)
    }

    /// Follows a session whose newest event was `seq` just now.
    pub(super) fn follow(&self, session: i64, seq: u64) -> watch::Receiver<u64> {
        let mut followed = self.followed.lock();
        let line = followed.entry(session).or_insert_with(|| watch::Sender::new(seq));
        let receiver = line.subscribe();
        advance(line, seq);
        receiver
    }

    /// Says and hears, as long as what is returned lives.
    pub(super) fn start(self: &Arc<Self>, reach: &Reach) -> [AbortOnDropHandle<()>; 3] {
        let (says, hears, looks) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        let (to, from, at) = (reach.clone(), reach.clone(), reach.clone());
        [
            AbortOnDropHandle::new(tokio::spawn(async move { says.say(&to).await })),
            AbortOnDropHandle::new(tokio::spawn(async move { hears.hear(&from).await })),
            AbortOnDropHandle::new(tokio::spawn(async move { looks.look(&at).await })),
        ]
    }

    async fn say(&self, reach: &Reach) {
        let mut line: Option<(Client, AbortOnDropHandle<()>)> = None;
        loop {
            self.more.notified().await;
            let waiting = std::mem::take(&mut *self.waiting.lock());
            let texts = messages(self.node, waiting);
            if line.as_ref().is_none_or(|(client, _)| client.is_closed()) {
                line = reach.line().await.ok();
            }
            // What cannot be said now is found by the look of who follows.
            let Some((client, _)) = &line else { continue };
            for text in texts {
                if client.execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &text]).await.is_err() {
                    line = None;
                    break;
                }
            }
        }
    }

    async fn hear(&self, reach: &Reach) {
        loop {
            match listen(reach).await {
                Ok((_client, messages)) => {
                    let mut messages = std::pin::pin!(messages);
                    while let Some(text) = messages.next().await {
                        self.take(&text);
                    }
                }
                Err(fault) => tracing::debug!(?fault, "what other servers tell cannot be heard"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn take(&self, text: &str) {
        let Ok(words) = serde_json::from_str::<Words>(text) else { return };
        if words.node == self.node {
            return;
        }
        for client in &words.clients {
            self.bell.ring(client);
        }
        if let Some(presence) = words.presence {
            // Nobody listens: nobody has to know.
            let _ = self.presence.send(presence);
        }
        if !words.commands.is_empty() {
            let _ = self.commands.send(words.commands);
        }
        if words.letters.contains(&self.node) {
            self.postbox.note_arrival();
        }
        for letter in &words.answered {
            self.postbox.wake(*letter);
        }
        if words.freed {
            self.note_departure();
        }
        if words.changed {
            self.changes.send_modify(|count| *count += 1);
        }
        self.advance(words.sessions.into_iter());
    }

    fn advance(&self, news: impl Iterator<Item = (i64, u64)>) {
        let mut followed = self.followed.lock();
        for (session, seq) in news {
            if seq == GONE {
                followed.remove(&session);
            } else if let Some(line) = followed.get(&session) {
                advance(line, seq);
            }
        }
    }

    async fn look(&self, reach: &Reach) {
        let mut line: Option<(Client, AbortOnDropHandle<()>)> = None;
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut rounds = 0_u64;
        loop {
            ticks.tick().await;
            let sessions: Vec<i64> = {
                let mut followed = self.followed.lock();
                followed.retain(|_, line| line.receiver_count() > 0);
                followed.keys().copied().collect()
            };
            // Whose lifecycle events grew elsewhere, and who was not told.
            rounds += 1;
            if rounds.is_multiple_of(BELL_ROUNDS) {
                self.bell.ring_all();
            }
            if sessions.is_empty() {
                continue;
            }
            if line.as_ref().is_none_or(|(client, _)| client.is_closed()) {
                line = reach.line().await.ok();
            }
            let Some((client, _)) = &line else { continue };
            match ends(client, &sessions).await {
                Ok(ends) => {
                    let gone: Vec<i64> = sessions.into_iter().filter(|session| !ends.contains_key(session)).collect();
                    self.advance(ends.into_iter().chain(gone.into_iter().map(|session| (session, GONE))));
                }
                Err(fault) => {
                    tracing::debug!(?fault, "what is followed could not be looked at");
                    line = None;
                }
            }
        }
    }
}

/// Raises it, where it is higher.
fn advance(line: &watch::Sender<u64>, seq: u64) {
    line.send_if_modified(|now| {
        let is_more = seq > *now;
        *now = (*now).max(seq);
        is_more
    });
}

async fn ends(client: &Client, sessions: &[i64]) -> Result<HashMap<i64, u64>, Fault> {
    let rows = client.query("SELECT session, seq FROM log_end WHERE session = ANY ($1)", &[&sessions]).await?;
    let end = |row: &tokio_postgres::Row| (row.get(0), u64::try_from(row.get::<_, i64>(1)).unwrap_or_default());
    Ok(rows.iter().map(end).collect())
}

/// As few messages as have room for all of it.
fn messages(node: i64, waiting: Waiting) -> Vec<String> {
    let Waiting { sessions, clients, presence, commands, letters, answered, freed, changed } = waiting;
    let (mut texts, mut words, mut bytes) = (Vec::new(), Words { node, ..Words::default() }, 0);
    let mut close = |words: &mut Words, bytes: &mut usize| {
        *bytes = 0;
        let full = std::mem::replace(words, Words { node, ..Words::default() });
        // Numbers and texts: they can be written.
        texts.extend(serde_json::to_string(&full));
    };
    for (session, seq) in sessions {
        // Two numbers at their longest.
        bytes += 44;
        words.sessions.push((session, seq));
        if bytes >= MESSAGE_BYTES {
            close(&mut words, &mut bytes);
        }
    }
    for client in clients {
        if bytes + client.len() * 2 >= MESSAGE_BYTES {
            close(&mut words, &mut bytes);
        }
        bytes += client.len() * 2 + 4;
        words.clients.push(client);
    }
    (words.freed, words.changed) = (freed, changed);
    if bytes > 0 || freed || changed {
        close(&mut words, &mut bytes);
    }
    // As many of them as an id may have bytes fit into one.
    for sessions in presence.sessions.chunks(PRESENT_MAX) {
        let presence = Presence { sessions: sessions.to_vec(), clients: Vec::new() };
        texts.extend(serde_json::to_string(&Words { node, presence: Some(presence), ..Words::default() }));
    }
    for clients in presence.clients.chunks(PRESENT_MAX) {
        let presence = Presence { sessions: Vec::new(), clients: clients.to_vec() };
        texts.extend(serde_json::to_string(&Words { node, presence: Some(presence), ..Words::default() }));
    }
    for commands in commands.chunks(PRESENT_MAX) {
        texts.extend(serde_json::to_string(&Words { node, commands: commands.to_vec(), ..Words::default() }));
    }
    let [letters, answered] = [letters, answered].map(|numbers| numbers.into_iter().collect::<Vec<_>>());
    for letters in letters.chunks(LETTERS_MAX) {
        texts.extend(serde_json::to_string(&Words { node, letters: letters.to_vec(), ..Words::default() }));
    }
    for answered in answered.chunks(LETTERS_MAX) {
        texts.extend(serde_json::to_string(&Words { node, answered: answered.to_vec(), ..Words::default() }));
    }
    texts
}

/// A connection that listens; it does as long as the client lives.
async fn listen(reach: &Reach) -> Result<(Client, impl Stream<Item = String> + use<>), Fault> {
    let connecting = reach.config.connect(reach.tls.clone());
    let connected = tokio::time::timeout(super::connect::READY_MAX, connecting).await;
    let (client, mut connection) = connected.map_err(|_| Fault::Lost("no connection".into()))??;
    let (say, heard) = tokio::sync::mpsc::channel(64);
    let driven = tokio::spawn(async move {
        let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(told) = message
                && say.send(told.payload().to_owned()).await.is_err()
            {
                return;
            }
        }
    });
    let driven = AbortOnDropHandle::new(driven);
    client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
    let heard = futures_util::stream::unfold((heard, driven), async |(mut heard, driven)| {
        let text = heard.recv().await?;
        Some((text, (heard, driven)))
    });
    Ok((client, heard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_fit_and_say_all() {
        let sessions: BTreeMap<i64, u64> = (0..1_000).map(|n| (i64::MAX - n, GONE)).collect();
        let clients: BTreeSet<String> = (0..200).map(|n| format!("{n}{}", "\"".repeat(120))).collect();
        let presence = Presence {
            sessions: vec!["s".repeat(128).parse().expect("an id"); 30],
            clients: vec![Some("c".repeat(128).parse().expect("an id")), None],
        };
        let given = |n: u32| CommandsGiven { client: "\"".repeat(120), control: true, count: n };
        let commands: Vec<CommandsGiven> = (0..60).map(given).collect();
        let (was, named_all) = (sessions.clone(), clients.clone());
        let waiting = Waiting {
            sessions: was,
            clients: named_all,
            presence,
            commands: commands.clone(),
            letters: (0..300).map(|n| i64::MAX - n).collect(),
            answered: (0..600).map(|n| i64::MAX - n).collect(),
            freed: true,
            changed: true,
        };
        let texts = messages(7, waiting);
        assert!(texts.iter().all(|text| text.len() < 8_000), "{:?}", texts.iter().map(String::len).max());
        let (mut told, mut named, mut present, mut freed) = (BTreeMap::new(), BTreeSet::new(), 0, 0);
        let (mut done, mut letters) = (Vec::new(), (BTreeSet::new(), BTreeSet::new()));
        for text in &texts {
            let words: Words = serde_json::from_str(text).expect("ours");
            assert_eq!(words.node, 7);
            told.extend(words.sessions);
            named.extend(words.clients);
            done.extend(words.commands);
            letters.0.extend(words.letters);
            letters.1.extend(words.answered);
            present += words.presence.map_or(0, |presence| presence.sessions.len() + presence.clients.len());
            freed += u32::from(words.freed && words.changed);
        }
        assert_eq!((told, named, present, freed, done), (sessions, clients, 32, 1, commands));
        assert_eq!((letters.0.len(), letters.1.len()), (300, 600));
        assert!(messages(7, Waiting::default()).is_empty());
    }
}
