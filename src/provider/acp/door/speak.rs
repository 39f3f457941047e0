//! MCP with one tool client of an agent: the handshake, the tools of its room, their calls.
//!
//! Only tools: no resources, prompts or questions. Invariants: each request has one answer, but for one that was taken back, which has
//! none; when the client is gone, what it called is given up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::wire::{self, Lines, Message};
use super::{Call, Room};
use crate::base::limit;
use crate::protocol::{Part, ToolCallResult, ToolDefinition};
use crate::tool::told_schema;

/// Versions of the protocol that are spoken, newest first. What is spoken here is the same in all of them.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// JSON-RPC: the method does not exist.
const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong.
const INVALID_PARAMS: i64 = -32602;
/// What an agent's model is told once.
const INSTRUCTIONS: &str =
    "Tools of the server that runs this session. Calls work in its working directory, under its permission rules.";

type Outcome = Result<Value, (i64, String)>;

/// One client.
struct Client<W> {
    room: Arc<Room>,
    out: tokio::sync::Mutex<W>,
    /// Its requests that run, by their ids.
    running: Mutex<HashMap<String, CancellationToken>>,
}

/// Speaks with it until it is gone.
pub(super) async fn with<R, W>(room: Arc<Room>, mut lines: Lines<R>, out: W)
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut tools = room.tools.subscribe();
    let client = Arc::new(Client { room, out: tokio::sync::Mutex::new(out), running: Mutex::default() });
    // Ends with this function, and what is called with it.
    let mut calls = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            Ok(()) = tools.changed() => {
                client.send(wire::note("notifications/tools/list_changed", &json!({}))).await;
                continue;
            }
            Some(_) = calls.join_next(), if !calls.is_empty() => continue,
        };
        let Ok(line) = line else { return client.give_up() };
        match Message::parse(&line) {
            Some(Message::Request { id, method, params }) if method == "tools/call" => {
                if let Some(stop) = client.admit(&id).await {
                    let client = Arc::clone(&client);
                    calls.spawn(async move { client.call((id, params), stop).await });
                }
            }
            Some(Message::Request { id, method, params }) => {
                let outcome = client.answer(&method, &params);
                client.send(wire::answer(&id, outcome)).await;
            }
            Some(Message::Note { method, params }) if method == "notifications/cancelled" => {
                let stop = client.running.lock().remove(&params["requestId"].to_string());
                stop.inspect(CancellationToken::cancel);
            }
            // Nothing is asked of it, and no other notification matters here.
            Some(Message::Note { .. } | Message::Answer { .. }) | None => {}
        }
    }
}

impl<W: AsyncWrite + Unpin> Client<W> {
    async fn send(&self, line: String) {
        let mut out = self.out.lock().await;
        // One that is gone is noticed where it is read.
        if out.write_all(line.as_bytes()).await.is_ok() {
            let _ = out.flush().await;
        }
    }

    fn give_up(&self) {
        self.running.lock().values().for_each(CancellationToken::cancel);
    }

    fn answer(&self, method: &str, params: &Value) -> Outcome {
        match method {
            "initialize" => {
                let asked = params["protocolVersion"].as_str().unwrap_or_default();
                let version = VERSIONS.into_iter().find(|known| *known == asked).unwrap_or(VERSIONS[0]);
                Ok(json!({
                    "protocolVersion": version,
                    "capabilities": { "tools": { "listChanged": true } },
                    "serverInfo": { "name": "simse", "version": env!("CARGO_PKG_VERSION") },
                    "instructions": INSTRUCTIONS,
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = self.room.tools.borrow().clone();
                Ok(json!({ "tools": tools.iter().map(told).collect::<Vec<_>>() }))
            }
            _ => Err((METHOD_NOT_FOUND, format!("no method {method}"))),
        }
    }

    /// Takes a call, where there is room for one more.
    async fn admit(&self, id: &Value) -> Option<CancellationToken> {
        let (key, stop) = (id.to_string(), CancellationToken::new());
        let refused = {
            let mut running = self.running.lock();
            if running.len() >= limit::ACP_TOOL_CALLS_MAX {
                Some(format!("{} calls are under way already", limit::ACP_TOOL_CALLS_MAX))
            } else {
                match running.entry(key) {
                    Entry::Occupied(there) => Some(format!("`id`: {} is worked on already", there.key())),
                    Entry::Vacant(free) => {
                        free.insert(stop.clone());
                        None
                    }
                }
            }
        };
        match refused {
            None => Some(stop),
            Some(why) => {
                self.send(wire::answer(id, Err((INVALID_PARAMS, why)))).await;
                None
            }
        }
    }

    async fn call(&self, (id, mut params): (Value, Value), stop: CancellationToken) {
        let token = params["_meta"]["progressToken"].take();
        let outcome = {
            let work = self.run(params, stop.clone());
            tokio::pin!(work);
            let mut signs = 0_u64;
            loop {
                tokio::select! {
                    outcome = &mut work => break outcome,
                    // A person may be thinking about it, and clients give up what gives no sign.
                    () = tokio::time::sleep(Duration::from_millis(limit::ACP_TOOL_PROGRESS_MS)), if !token.is_null() => {
                        signs += 1;
                        let sign = json!({ "progressToken": token, "progress": signs });
                        self.send(wire::note("notifications/progress", &sign)).await;
                    }
                }
            }
        };
        // Who took it back hears no more of it.
        if self.running.lock().remove(&id.to_string()).is_some() {
            self.send(wire::answer(&id, outcome)).await;
        }
    }

    async fn run(&self, mut params: Value, stop: CancellationToken) -> Outcome {
        let asked = params["name"].as_str().unwrap_or_default().to_owned();
        let tools = self.room.tools.borrow().clone();
        let Some(tool) = tools.iter().find(|tool| wire_name(&tool.name) == asked) else {
            return Err((INVALID_PARAMS, format!("`name`: there is no tool `{asked}`")));
        };
        let arguments = match params["arguments"].take() {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            _ => return Err((INVALID_PARAMS, "`arguments`: expected an object".to_owned())),
        };
        let (reply, result) = oneshot::channel();
        let call = Call { name: tool.name.clone(), arguments, stop, reply };
        let taken = match self.room.turn() {
            Some(turn) => turn.send(call).await.is_ok(),
            None => false,
        };
        if !taken {
            return Ok(failure("No turn runs in this session: the call was not carried out."));
        }
        Ok(result.await.map_or_else(|_| failure("The turn is over: the call has no result."), shown))
    }
}

/// A tool's name as clients take it: letters, digits, `_` and `-`.
pub(in super::super) fn wire_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// A tool as a client is told it.
fn told(tool: &ToolDefinition) -> Value {
    let hints = tool.annotations.clone().unwrap_or_default();
    let read_only = hints.read_only.unwrap_or(false);
    let mut annotations = json!({ "readOnlyHint": read_only });
    if let Some(title) = hints.title {
        annotations["title"] = title.into();
    }
    if !read_only {
        annotations["destructiveHint"] = hints.destructive.unwrap_or(true).into();
    }
    json!({
        "name": wire_name(&tool.name),
        "description": tool.description,
        "inputSchema": told_schema(tool),
        "annotations": annotations,
    })
}

fn failure(words: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": words }], "isError": true })
}

/// A result as a client is told it.
fn shown(result: ToolCallResult) -> Value {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let part = |part: &Part| match part {
        Part::Text { text: said } => text(said),
        Part::Image { media_type, data } => json!({ "type": "image", "mimeType": media_type, "data": data }),
    };
    let content: Vec<Value> = std::iter::once(text(&result.output)).chain(result.parts.iter().map(part)).collect();
    json!({ "content": content, "isError": result.is_error })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split};
    use tokio::sync::watch;

    use super::*;

    struct Other {
        read: BufReader<ReadHalf<DuplexStream>>,
        write: WriteHalf<DuplexStream>,
    }

    impl Other {
        async fn say(&mut self, message: Value) {
            self.write.write_all(format!("{message}\n").as_bytes()).await.expect("written");
        }

        async fn hear(&mut self) -> Value {
            let mut line = String::new();
            let read = tokio::time::timeout(Duration::from_secs(60), self.read.read_line(&mut line));
            read.await.expect("in time").expect("read");
            serde_json::from_str(&line).expect("a message")
        }
    }

    fn begun(names: &[&str]) -> (Arc<Room>, Other) {
        let room = Arc::new(Room {
            at: ([127, 0, 0, 1], 1).into(),
            key: "k".into(),
            tools: watch::Sender::default(),
            turn: Mutex::default(),
        });
        room.furnish(names.iter().map(|name| ToolDefinition::new(*name, "d", Map::new())).collect());
        let (here, there) = tokio::io::duplex(1 << 16);
        let (reading, writing) = split(here);
        tokio::spawn(with(Arc::clone(&room), Lines::new(BufReader::new(reading), 1 << 16), writing));
        let (read, write) = split(there);
        (room, Other { read: BufReader::new(read), write })
    }

    #[tokio::test]
    async fn tools_are_listed_and_their_calls_go_to_the_turn() {
        let (room, mut client) = begun(&["notify", "mcp:a/b"]);
        for (asked, want) in [("2025-03-26", "2025-03-26"), ("1999-01-01", VERSIONS[0])] {
            let params = json!({ "protocolVersion": asked });
            client.say(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })).await;
            assert_eq!(client.hear().await["result"]["protocolVersion"], want);
        }
        client.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client.say(json!({ "jsonrpc": "2.0", "id": "l", "method": "tools/list" })).await;
        let listed = client.hear().await;
        assert_eq!((&listed["id"], &listed["result"]["tools"][1]["name"]), (&json!("l"), &json!("mcp_a_b")));
        let call = |id: u64, name: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name, "arguments": { "x": 1 } } });
        client.say(call(2, "notify")).await;
        let told = client.hear().await;
        assert!(told["result"]["isError"] == true && told.to_string().contains("No turn runs"), "{told}");
        client.say(call(3, "bash")).await;
        assert_eq!(client.hear().await["error"]["code"], INVALID_PARAMS);
        let mut calls = room.enter();
        client.say(call(4, "mcp_a_b")).await;
        let taken = calls.next().await.expect("a call");
        assert_eq!((taken.name.as_str(), &taken.arguments["x"]), ("mcp:a/b", &json!(1)));
        let result = ToolCallResult {
            id: "1".into(),
            name: "mcp:a/b".into(),
            output: "out".into(),
            is_error: false,
            duration_ms: None,
            parts: vec![],
            details: None,
        };
        taken.reply.send(result).expect("awaited");
        assert_eq!(
            client.hear().await,
            json!({ "jsonrpc": "2.0", "id": 4, "result": { "content": [{ "type": "text", "text": "out" }], "isError": false } })
        );
        client.say(json!({ "jsonrpc": "2.0", "id": 5, "method": "resources/list" })).await;
        assert_eq!(client.hear().await["error"]["code"], METHOD_NOT_FOUND);
    }

    #[tokio::test]
    async fn a_call_that_is_taken_back_stops_and_a_turn_that_ends_leaves_none() {
        let (room, mut client) = begun(&["notify"]);
        let call =
            |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "notify" } });
        let mut calls = room.enter();
        client.say(call(1)).await;
        let first = calls.next().await.expect("a call");
        client
            .say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }))
            .await;
        first.stop.cancelled().await;
        drop(first);
        client.say(call(2)).await;
        let second = calls.next().await.expect("a call");
        drop((second, calls));
        let told = client.hear().await;
        assert!(
            told["id"] == 2 && told.to_string().contains("The turn is over"),
            "only the second is answered: {told}"
        );
        // The tools are others now.
        room.furnish(vec![ToolDefinition::new("other", "d", Map::new())]);
        assert_eq!(client.hear().await["method"], "notifications/tools/list_changed");
        let mut calls = room.enter();
        client.say(json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "other" } })).await;
        let third = calls.next().await.expect("a call");
        drop(client);
        third.stop.cancelled().await;
    }
}
