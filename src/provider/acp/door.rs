//! Where an agent's tool clients come in: it starts a small program (`simse bridge`) as an MCP server of its session, and that joins
//! its standard streams to us here, over loopback (docs/adr/0100).
//!
//! A room is the tools of one session of ours, behind a key that only that session's entry was given. What is called in it runs in the
//! turn that is under way there, as any call of ours; without one nothing runs. `speak` is the protocol.
//!
//! Invariants: who does not bring a key within its time is let go, and hears nothing; a room lets call what its session offers now and
//! nothing else; all of it ends with the agent's program.

mod speak;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::wire::Lines;
use crate::base::limit;
use crate::protocol::{SessionId, ToolCallResult, ToolDefinition};

pub(super) use speak::wire_name;

/// Longest first line of a client: a key and its end.
const KEY_BYTES_MAX: usize = 200;
/// Calls that a turn has not taken yet.
const UNTAKEN_MAX: usize = 8;

/// A call of one of our tools.
#[derive(Debug)]
pub(super) struct Call {
    pub name: String,
    pub arguments: Map<String, Value>,
    /// The agent wants it no more.
    pub stop: CancellationToken,
    /// Dropped: there is no result.
    pub reply: oneshot::Sender<ToolCallResult>,
}

/// The tools of one session.
#[derive(Debug)]
pub(super) struct Room {
    at: SocketAddr,
    key: String,
    tools: watch::Sender<Arc<[ToolDefinition]>>,
    turn: Mutex<Option<mpsc::Sender<Call>>>,
}

impl Room {
    /// Where its clients come in.
    pub fn door(&self) -> String {
        self.at.to_string()
    }

    /// What they bring.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What can be called in it from now on.
    fn furnish(&self, tools: Vec<ToolDefinition>) {
        self.tools.send_if_modified(|now| {
            let other = **now != *tools;
            if other {
                *now = tools.into();
            }
            other
        });
    }

    /// The calls of the turn that begins.
    pub fn enter(self: &Arc<Self>) -> Calls {
        let (tell, calls) = mpsc::channel(UNTAKEN_MAX);
        *self.turn.lock() = Some(tell);
        Calls { room: Some(Arc::clone(self)), calls }
    }

    fn turn(&self) -> Option<mpsc::Sender<Call>> {
        self.turn.lock().clone()
    }
}

/// The calls that a turn takes. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Calls {
    room: Option<Arc<Room>>,
    calls: mpsc::Receiver<Call>,
}

impl Calls {
    /// Of a session without tools of ours.
    pub fn none() -> Self {
        Self { room: None, calls: mpsc::channel(1).1 }
    }

    /// The next one. None: none will come.
    pub async fn next(&mut self) -> Option<Call> {
        self.calls.recv().await
    }

    /// What can be called.
    pub fn offered(&self) -> Arc<[ToolDefinition]> {
        self.room.as_ref().map(|room| room.tools.borrow().clone()).unwrap_or_default()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            *room.turn.lock() = None;
        }
    }
}

/// The rooms of one running program.
#[derive(Debug, Default)]
pub(super) struct Door {
    at: tokio::sync::OnceCell<SocketAddr>,
    rooms: Mutex<HashMap<SessionId, Arc<Room>>>,
}

impl Door {
    /// The room of a session, furnished anew. None: it has none.
    pub fn room(&self, host: &SessionId, tools: Vec<ToolDefinition>) -> Option<Arc<Room>> {
        let room = self.rooms.lock().get(host).cloned()?;
        room.furnish(tools);
        Some(room)
    }

    /// The same; one is made where there is none. `stop` ends it all.
    pub async fn make(
        self: &Arc<Self>,
        host: &SessionId,
        tools: Vec<ToolDefinition>,
        stop: &CancellationToken,
    ) -> io::Result<Arc<Room>> {
        let at = *self.at.get_or_try_init(|| self.listen(stop)).await?;
        let mut rooms = self.rooms.lock();
        let room = rooms.entry(host.clone()).or_insert_with(|| {
            let key = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
            Arc::new(Room { at, key, tools: watch::Sender::default(), turn: Mutex::default() })
        });
        room.furnish(tools);
        Ok(Arc::clone(room))
    }

    async fn listen(self: &Arc<Self>, stop: &CancellationToken) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let at = listener.local_addr()?;
        tokio::spawn(Arc::clone(self).stand(listener, stop.clone()));
        Ok(at)
    }

    async fn stand(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let places = Arc::new(Semaphore::new(limit::ACP_TOOL_CLIENTS_MAX));
        loop {
            let taken = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                taken = listener.accept() => taken,
            };
            let Ok((stream, _)) = taken else {
                // Out of descriptors, most likely: it is tried again a little later.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // Who comes when all places are taken is let go.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let (door, stop) = (Arc::clone(&self), stop.clone());
            tokio::spawn(async move {
                let _place = place;
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = door.receive(stream) => {}
                }
            });
        }
    }

    /// Takes a client from its key to its end.
    async fn receive(&self, stream: TcpStream) {
        let (reading, writing) = stream.into_split();
        let mut lines = Lines::new(BufReader::new(reading), KEY_BYTES_MAX);
        let patience = Duration::from_millis(limit::ACP_TOOL_CLIENT_GREETING_MS);
        let Ok(Ok(key)) = tokio::time::timeout(patience, lines.next()).await else { return };
        let Some(room) = self.of_key(key.trim_ascii()) else {
            tracing::warn!("somebody came to an agent's tools without a key of them; let go");
            return;
        };
        lines.allow(limit::ACP_LINE_BYTES_MAX);
        speak::with(room, lines, writing).await;
    }

    /// All keys are looked at, whichever it is: how long that takes says nothing of them.
    fn of_key(&self, key: &[u8]) -> Option<Arc<Room>> {
        let rooms = self.rooms.lock();
        let same = |room: &Room| {
            let own = room.key.as_bytes();
            own.len() == key.len() && own.iter().zip(key).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
        };
        rooms.values().fold(None, |found, room| if same(room) { Some(Arc::clone(room)) } else { found })
    }
}
