//! A scripted ACP agent: a program that speaks the wire and does what its prompts say.
//!
//! It is this very test binary, started again: [`settings`] makes the entry that starts it, and the test below
//! becomes it. What the test harness prints before makes the noise that every client of agents has to skip.
//! A prompt's last text is its script, one step a line; the answer to the prompt follows the last step.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use simse::config::AcpServer;

/// How the agent is, by a variable of its environment: words of [`Agent::new`].
const HOW: &str = "SCRIPTED_AGENT";

/// The entry of an agent that is `how`, such as `load=/a/directory modes=plan,act`.
pub fn settings(name: &str, how: &str) -> AcpServer {
    let args = ["--exact", "support::agent::a_prompt_is_a_script", "--nocapture", "--test-threads=1"];
    AcpServer {
        name: name.into(),
        command: std::env::current_exe().unwrap().display().to_string(),
        args: args.map(str::to_owned).into(),
        cwd: None,
        env: BTreeMap::from([(HOW.to_owned(), how.to_owned())]),
        default_agent: None,
        timeout_ms: Some(20_000),
        permission_policy: None,
        auth_method: None,
        files: true,
        terminals: true,
        tools: simse::config::AcpTools::default(),
        mcp_servers: simse::config::AcpMcpServers::default(),
        exit_grace_ms: 2_000,
    }
}

#[test]
fn a_prompt_is_a_script() {
    if let Ok(how) = std::env::var(HOW) {
        Agent::new(&how).run();
        std::process::exit(0);
    }
    let agent = settings("a", "");
    let mut program = std::process::Command::new(agent.command);
    program.args(agent.args).envs(agent.env).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut program = program.spawn().unwrap();
    let prompt = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "say hello\nstop refusal" }] });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": prompt });
    writeln!(program.stdin.take().unwrap(), "{message}").unwrap();
    let said = program.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(r#""text":"hello""#) && said.contains(r#""stopReason":"refusal""#), "{said}");
}

struct Agent {
    how: BTreeMap<String, String>,
    waiting: VecDeque<Value>,
    modes: BTreeMap<String, String>,
    directories: BTreeMap<String, String>,
    cancelled: Vec<String>,
    next_id: u64,
    children: Vec<std::process::Child>,
    /// What options were set to, by session.
    options: BTreeMap<String, BTreeMap<String, Value>>,
    /// Updates that are sent once the prompt is answered.
    later: Vec<(String, Value)>,
    /// The terminal that was opened last.
    terminal: Value,
    /// What the client says that it can do.
    client: Value,
    /// What it was told while it worked.
    heard: Vec<String>,
    logged_in: bool,
    /// The tool servers that sessions were opened with, and the one of them that is ours, started.
    servers: BTreeMap<String, Value>,
    further: BTreeMap<String, Value>,
    ours: BTreeMap<String, ToolServer>,
}

/// A tool server that the agent started.
struct ToolServer {
    program: std::process::Child,
    said: std::io::BufReader<std::process::ChildStdout>,
    next_id: u64,
}

impl ToolServer {
    fn start(entry: &Value) -> Self {
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let env = entry["env"].as_array().unwrap().iter().map(|one| (text(one, "name"), text(one, "value")));
        let mut program = std::process::Command::new(text(entry, "command"))
            .args(texts(&entry["args"]))
            .envs(env)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = std::io::BufReader::new(program.stdout.take().unwrap());
        let mut server = Self { program, said, next_id: 0 };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "scripted", "version": "1" } });
        assert_eq!(server.ask("initialize", &hello)["result"]["serverInfo"]["name"], "simse");
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.program.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "our tools are gone");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }
}

impl Agent {
    fn new(how: &str) -> Self {
        let word = |word: &str| {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            (key.to_owned(), value.to_owned())
        };
        Self {
            how: how.split_whitespace().map(word).collect(),
            waiting: VecDeque::new(),
            modes: BTreeMap::new(),
            directories: BTreeMap::new(),
            cancelled: Vec::new(),
            next_id: 0,
            children: Vec::new(),
            options: BTreeMap::new(),
            later: Vec::new(),
            terminal: Value::Null,
            client: Value::Null,
            heard: Vec::new(),
            logged_in: false,
            servers: BTreeMap::new(),
            further: BTreeMap::new(),
            ours: BTreeMap::new(),
        }
    }

    fn is(&self, word: &str) -> bool {
        self.how.contains_key(word)
    }

    fn run(&mut self) {
        while let Some(message) = self.waiting.pop_front().or_else(read) {
            self.take(message);
        }
        if self.is("outlives") {
            loop {
                std::thread::park();
            }
        }
    }

    fn take(&mut self, message: Value) {
        let (id, params) = (message["id"].clone(), message["params"].clone());
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.initialize(&id, &params),
            "authenticate" if text(&params, "methodId") == "key" => {
                self.logged_in = true;
                result(&id, &json!({}));
            }
            "session/new" if self.is("login") && !self.logged_in => {
                send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": "no" } }));
            }
            "_session/steering" => {
                assert_eq!(params["_meta"]["steering"]["idleBehavior"], "promptRequired");
                let outcome = self.how["steers"].clone();
                if outcome == "injected" {
                    self.heard.push(text(&params["prompt"][0], "text"));
                }
                result(&id, &json!({ "outcome": outcome }));
                if outcome != "injected" {
                    self.heard.push("nothing".to_owned());
                }
            }
            "session/new" => {
                let session = format!("s{}-{}", self.next(), std::process::id());
                self.open(&session, &params);
                let mut answer = self.choices(&session);
                answer["sessionId"] = session.into();
                result(&id, &answer);
            }
            "session/set_config_option" => {
                let (session, option) = (text(&params, "sessionId"), text(&params, "configId"));
                self.options.entry(session.clone()).or_default().insert(option, params["value"].clone());
                result(&id, &self.choices(&session));
            }
            "session/fork" if self.is("forks") => {
                let session = format!("f{}-{}", self.next(), text(&params, "sessionId"));
                self.open(&session, &params);
                let mut answer = self.choices(&session);
                answer["sessionId"] = session.into();
                result(&id, &answer);
            }
            "session/load" => self.load(&id, &params),
            "session/set_mode" => {
                let (session, mode) = (text(&params, "sessionId"), text(&params, "modeId"));
                self.modes.insert(session, mode);
                result(&id, &json!({}));
            }
            "session/prompt" => {
                let stop = self.prompt(&params);
                let later = std::mem::take(&mut self.later);
                match stop {
                    Ok(reason) => result(
                        &id,
                        &json!({ "stopReason": reason, "usage": {
                        "inputTokens": 7, "outputTokens": 3, "totalTokens": 10 } }),
                    ),
                    Err((code, message)) => send(&json!({ "jsonrpc": "2.0", "id": id, "error": {
                        "code": code, "message": message } })),
                }
                later.iter().for_each(|(session, told)| update(session, told));
            }
            "session/cancel" => self.cancelled.push(text(&params, "sessionId")),
            _ if !id.is_null() && message["method"].is_string() => send(&json!({ "jsonrpc": "2.0", "id": id,
                "error": { "code": -32601, "message": "method not found" } })),
            _ => {}
        }
    }

    fn initialize(&mut self, id: &Value, params: &Value) {
        if self.is("mute") {
            return;
        }
        assert_eq!(params["protocolVersion"], 1);
        self.client = params["clientCapabilities"].clone();
        assert_eq!(params["clientCapabilities"]["elicitation"], json!({ "form": {} }));
        let version: u64 = self.how.get("version").and_then(|v| v.parse().ok()).unwrap_or(1);
        result(
            id,
            &json!({
                "protocolVersion": version,
                "agentCapabilities": { "loadSession": self.is("load"), "promptCapabilities": { "image": self.is("images") },
                    "mcpCapabilities": { "http": self.is("http") },
                    "sessionCapabilities": self.session_capabilities() },
                "agentInfo": { "name": "scripted", "version": "1" },
                "authMethods": [{ "id": "key", "name": "a key" }],
                "_meta": { "steering": { "supported": self.is("steers") } },
            }),
        );
    }

    fn session_capabilities(&self) -> Value {
        let mut all = json!({});
        for (word, name) in [("forks", "fork"), ("directories", "additionalDirectories")] {
            if self.is(word) {
                all[name] = json!({});
            }
        }
        all
    }

    fn next(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn choices(&self, session: &str) -> Value {
        let mut choices = json!({});
        if let Some(modes) = self.how.get("modes") {
            let modes: Vec<&str> = modes.split(',').collect();
            let all: Vec<Value> = modes.iter().map(|mode| json!({ "id": mode, "name": mode })).collect();
            choices["modes"] = json!({ "currentModeId": modes[0], "availableModes": all });
        }
        if self.is("options") {
            let set = self.options.get(session);
            let now = |id: &str, usual: Value| set.and_then(|set| set.get(id).cloned()).unwrap_or(usual);
            let level = |id: &str| json!({ "value": id, "name": id });
            choices["configOptions"] = json!([
                { "id": "effort", "name": "Effort", "category": "thought_level", "type": "select",
                    "currentValue": now("effort", "low".into()), "options": [level("low"), level("high")] },
                { "id": "fast", "name": "Fast", "type": "boolean", "currentValue": now("fast", false.into()) },
            ]);
        }
        choices
    }

    fn open(&mut self, session: &str, params: &Value) {
        self.directories.insert(session.to_owned(), text(params, "cwd"));
        self.further.insert(session.to_owned(), params["additionalDirectories"].clone());
        self.servers.insert(session.to_owned(), params["mcpServers"].clone());
        if let Some(directory) = self.how.get("load") {
            std::fs::write(PathBuf::from(directory).join(session), "").unwrap();
        }
    }

    fn load(&mut self, id: &Value, params: &Value) {
        let session = text(params, "sessionId");
        let kept = self.how.get("load").map(|directory| PathBuf::from(directory).join(&session));
        if !kept.is_some_and(|kept| kept.exists()) {
            send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32002, "message": "no such session" } }));
            return;
        }
        self.open(&session, params);
        for (kind, words) in [("user_message_chunk", "an old prompt"), ("agent_message_chunk", "an old answer")] {
            chunk(&session, kind, words);
        }
        result(id, &self.choices(&session));
    }

    /// Plays a prompt's script. The answer: why it stopped, or an error.
    fn prompt(&mut self, params: &Value) -> Result<String, (i64, String)> {
        let session = text(params, "sessionId");
        let blocks = params["prompt"].as_array().unwrap().clone();
        let script = blocks.last().map(|last| text(last, "text")).unwrap_or_default();
        for step in script.lines() {
            let (step, rest) = step.split_once(' ').unwrap_or((step, ""));
            match step {
                "say" => chunk(&session, "agent_message_chunk", rest),
                "think" => chunk(&session, "agent_thought_chunk", rest),
                "update" => update(&session, &serde_json::from_str(rest).unwrap()),
                "flood" => (0..rest.parse().unwrap()).for_each(|_| chunk(&session, "agent_message_chunk", "x")),
                "fill" => chunk(&session, "agent_message_chunk", &"x".repeat(rest.parse().unwrap())),
                "noise" => raw(rest),
                "stderr" => {
                    let mut errors = std::io::stderr().lock();
                    writeln!(errors, "{rest}").unwrap();
                }
                "facts" => chunk(&session, "agent_message_chunk", &self.facts(&session, &blocks)),
                "stop" => return Ok(rest.to_owned()),
                "fail" => return Err((rest.parse().unwrap(), "as it was told".to_owned())),
                "crash" => std::process::exit(3),
                "endless" => loop {
                    std::io::stdout().write_all(&[b'x'; 65536]).unwrap();
                },
                "child" => {
                    let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
                    chunk(&session, "agent_message_chunk", &child.id().to_string());
                    self.children.push(child);
                }
                "deaf" => loop {
                    std::thread::park();
                },
                "wait" => {
                    if self.wait(&session) {
                        return Ok("cancelled".to_owned());
                    }
                }
                "ask" => {
                    let call: Value = serde_json::from_str(rest).unwrap();
                    let outcome = self.ask(&session, &call);
                    if outcome["outcome"] == "cancelled" {
                        return Ok("cancelled".to_owned());
                    }
                    chunk(&session, "agent_message_chunk", &format!("[{}]", text(&outcome, "optionId")));
                }
                "form" => {
                    let mut params: Value = serde_json::from_str(rest).unwrap();
                    params["sessionId"] = session.clone().into();
                    let answer = self.request("elicitation/create", &params);
                    let said = answer.get("result").unwrap_or(&answer["error"]).to_string();
                    chunk(&session, "agent_message_chunk", &said);
                }
                "write" => {
                    let (path, content) = rest.split_once(' ').unwrap();
                    let params = json!({ "sessionId": session, "path": path, "content": content });
                    let answer = self.request("fs/write_text_file", &params);
                    let said = answer["error"]["message"].as_str().unwrap_or("written").to_owned();
                    chunk(&session, "agent_message_chunk", &said);
                }
                "own" => {
                    let (path, content) = rest.split_once(' ').unwrap();
                    std::fs::write(path, content).unwrap();
                }
                "hear" => {
                    while self.heard.is_empty() {
                        let message = read().unwrap_or_else(|| std::process::exit(0));
                        self.take(message);
                    }
                    let heard = std::mem::take(&mut self.heard).join(", ");
                    chunk(&session, "agent_message_chunk", &format!("heard {heard}"));
                }
                "later" => self.later.push((session.clone(), serde_json::from_str(rest).unwrap())),
                "call" => {
                    let (method, params) = rest.split_once(' ').unwrap_or((rest, "{}"));
                    let mut params: Value = serde_json::from_str(params).unwrap();
                    params["sessionId"] = session.clone().into();
                    if method.starts_with("terminal/") && method != "terminal/create" {
                        params["terminalId"] = self.terminal.clone();
                    }
                    let answer = self.request(method, &params);
                    if method == "terminal/create" && answer.get("error").is_none() {
                        self.terminal = answer["result"]["terminalId"].clone();
                    }
                    let said = answer.get("result").unwrap_or(&answer["error"]).to_string();
                    chunk(&session, "agent_message_chunk", &(said + "\n"));
                }
                "shows" => update(
                    &session,
                    &json!({ "sessionUpdate": "tool_call", "toolCallId": rest, "title": "Run",
                    "kind": "execute", "status": "completed",
                    "content": [{ "type": "terminal", "terminalId": self.terminal }] }),
                ),
                "tools" => {
                    let listed = self.our_tools(&session).ask("tools/list", &json!({}));
                    let names: Vec<String> =
                        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| text(tool, "name")).collect();
                    chunk(&session, "agent_message_chunk", &names.join(","));
                }
                "tool" => {
                    let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                    let arguments: Value = serde_json::from_str(arguments).unwrap();
                    let params = json!({ "name": name, "arguments": arguments });
                    let answer = self.our_tools(&session).ask("tools/call", &params);
                    let said = answer["result"]["content"][0]["text"].as_str().map(str::to_owned);
                    chunk(&session, "agent_message_chunk", &said.unwrap_or_else(|| answer.to_string()));
                }
                "toolpid" => {
                    let pid = self.our_tools(&session).program.id().to_string();
                    chunk(&session, "agent_message_chunk", &pid);
                }
                "request" => {
                    let answer = self.request(rest, &json!({ "sessionId": session }));
                    chunk(&session, "agent_message_chunk", &answer["error"]["code"].to_string());
                }
                other => panic!("no such step: {other}"),
            }
        }
        Ok("end_turn".to_owned())
    }

    /// Our own tools, as the session was given them.
    fn our_tools(&mut self, session: &str) -> &mut ToolServer {
        let given = &self.servers[session];
        self.ours.entry(session.to_owned()).or_insert_with(|| {
            let entry = given.as_array().unwrap().iter().find(|one| text(one, "name").starts_with("simse")).unwrap();
            ToolServer::start(entry)
        })
    }

    fn facts(&self, session: &str, blocks: &[Value]) -> String {
        json!({
            "session": session,
            "pid": std::process::id(),
            "cwd": self.directories.get(session),
            "further": self.further.get(session),
            "mode": self.modes.get(session),
            "options": self.options.get(session),
            "servers": self.servers.get(session),
            "client": self.client,
            "directory": std::env::current_dir().unwrap(),
            "secret": std::env::var("AGENT_SECRET").ok(),
            "blocks": blocks.iter().map(|block| text(block, "text")).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Asks for permission, and answers with the outcome.
    fn ask(&mut self, session: &str, call: &Value) -> Value {
        let option = |kind: &str| json!({ "optionId": format!("id_{kind}"), "name": kind, "kind": kind });
        let options = ["allow_always", "allow_once", "reject_once"].map(option);
        let params = json!({ "sessionId": session, "toolCall": call, "options": options });
        self.request("session/request_permission", &params)["result"]["outcome"].clone()
    }

    /// Asks the client something. What else comes meanwhile is dealt with later, but for cancels.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = format!("agent-{}", self.next());
        send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = read().unwrap_or_else(|| std::process::exit(0));
            if message["id"] == id.as_str() && message["method"].is_null() {
                return message;
            }
            if message["method"] == "session/cancel" {
                self.take(message);
            } else {
                self.waiting.push_back(message);
            }
        }
    }

    /// Waits until this session is cancelled; other sessions go on.
    fn wait(&mut self, session: &str) -> bool {
        loop {
            if let Some(at) = self.cancelled.iter().position(|cancelled| cancelled == session) {
                self.cancelled.remove(at);
                return true;
            }
            let message = read().unwrap_or_else(|| std::process::exit(0));
            self.take(message);
        }
    }
}

fn read() -> Option<Value> {
    let mut line = String::new();
    let count = std::io::stdin().lock().read_line(&mut line).unwrap();
    (count > 0).then(|| serde_json::from_str(&line).unwrap())
}

fn raw(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be left to hear it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn send(message: &Value) {
    raw(&message.to_string());
}

fn result(id: &Value, result: &Value) {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn update(session: &str, update: &Value) {
    let params = json!({ "sessionId": session, "update": update });
    send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
}

fn chunk(session: &str, kind: &str, words: &str) {
    update(session, &json!({ "sessionUpdate": kind, "content": { "type": "text", "text": words } }));
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
