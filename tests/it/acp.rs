//! Sessions that an ACP agent answers, from the routes to the agent's program and back.

use std::time::Duration;

use serde_json::{Value, json};
use simse::app::Caller;
use simse::config::{AcpPermissionPolicy, AcpServer, Settings, Storage};
use simse::protocol::TurnId;
use simse::server::ListenOptions;

use super::support::agent::settings;
use super::support::house::House;
use super::support::http::request;

/// A server with one agent, `a`, that is `how`, and a session of it.
pub async fn house(how: &str) -> (House, String) {
    house_with(settings("a", how), |_| {}).await
}

pub async fn house_with(agent: AcpServer, change: impl FnOnce(&mut Settings)) -> (House, String) {
    let house = House::with(ListenOptions::default(), |settings| {
        settings.acp_servers = vec![agent];
        change(settings);
    })
    .await;
    let session = house.session(json!({ "agent": "a" })).await;
    (house, session)
}

/// All events of a session so far: their types, and their payloads.
pub async fn events(house: &House, session: &str) -> Vec<(String, Value)> {
    let session = session.parse().unwrap();
    let mut reader = house.app.events(&Caller::default(), &session, 0).await.unwrap();
    let last = house.app.session(&Caller::default(), &session).await.unwrap().last_seq;
    let mut all = Vec::new();
    while (all.len() as u64) < last {
        let batch = reader.next().await.unwrap().unwrap();
        for event in batch.events.iter() {
            all.push((event.kind.clone().into_owned(), serde_json::from_str(event.payload.get()).unwrap()));
        }
    }
    all
}

fn kinds(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(kind, _)| kind.as_str()).collect()
}

pub fn facts(turn: &Value) -> Value {
    serde_json::from_str(turn["result"].as_str().unwrap_or_else(|| panic!("no result: {turn}"))).unwrap()
}

#[tokio::test]
async fn an_agent_answers_with_texts_thoughts_and_calls() {
    let (house, session) = house("").await;
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "List", "kind": "execute" });
    let started = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "in_progress",
        "rawInput": { "command": "ls" } });
    let ended = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed",
        "content": [{ "type": "content", "content": { "type": "text", "text": "a.txt" } }] });
    let script = format!(
        "noise hello there\nthink hm\nsay Let me \nsay look.\nupdate {call}\nupdate {started}\nupdate {ended}\nsay Done."
    );
    let turn = house.prompt(&session, &script).await;
    assert_eq!((&turn["status"], &turn["result"]), (&json!("completed"), &json!("Done.")), "{turn}");
    assert_eq!(turn["usage"]["totalTokens"], 10);
    let mut events = events(&house, &session).await;
    // What it says at one moment is one piece or two.
    events.dedup_by(|next, before| next.0 == "stream.delta" && before.0 == "stream.delta");
    let want = [
        "session.created",
        "session.prompt",
        "loop.start",
        "stream.start",
        "agent.session",
        "stream.reasoning",
        "stream.delta",
        "stream.complete",
        "tool.call.start",
        "tool.call.end",
        "turn.complete",
        "stream.start",
        "stream.delta",
        "stream.complete",
        "turn.complete",
        "loop.complete",
        "session.completed",
    ];
    assert_eq!(kinds(&events), want);
    assert_eq!(events[8].1, json!({ "callId": "c1", "name": "acp:a/execute", "args": { "command": "ls" } }));
    assert_eq!((&events[9].1["output"], &events[9].1["isError"]), (&json!("a.txt"), &json!(false)));
    assert_eq!(events[7].1["text"], "Let me look.");
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!((&view["agent"], &view["model"], &view["messageCount"]), (&json!("a"), &json!("acp/a"), &json!(4)));
    house.close().await;
}

#[tokio::test]
async fn one_program_serves_all_sessions_and_ends_with_the_server() {
    let (house, one) = house("outlives").await;
    let two = house.session(json!({ "agent": "a" })).await;
    let first = facts(&house.prompt(&one, "facts").await);
    let second = facts(&house.prompt(&two, "facts").await);
    let again = facts(&house.prompt(&one, "facts").await);
    assert_eq!((&first["pid"], &first["session"]), (&again["pid"], &again["session"]));
    assert_eq!(first["pid"], second["pid"]);
    assert_ne!(first["session"], second["session"]);
    assert_eq!(again["blocks"], json!(["facts"]), "a session that goes on is told only what is new");
    let child = house.prompt(&one, "child").await["result"].as_str().unwrap().to_owned();
    let alive = |pid: &str| std::path::Path::new("/proc").join(pid).join("cwd").read_link().is_ok();
    let pid = first["pid"].to_string();
    assert!(alive(&pid) && alive(&child));
    house.close().await;
    assert!(!alive(&pid) && !alive(&child), "nothing outlives the server");
}

/// Prompts without waiting, and answers with the turn's id.
pub async fn begin(house: &House, session: &str, script: &str) -> TurnId {
    let body = json!({ "prompt": script });
    let reply = house.call("POST", &format!("/sessions/{session}/prompt"), Some(body)).await;
    assert_eq!(reply.status, 202, "{reply:?}");
    reply.json()["turnId"].as_str().unwrap().parse().unwrap()
}

/// The turn's record once it has ended.
pub async fn end(house: &House, session: &str, turn: &TurnId) -> Value {
    let (caller, session) = (Caller::default(), session.parse().unwrap());
    let record = house.app.wait_turn(&caller, &session, turn);
    let record = tokio::time::timeout(Duration::from_secs(30), record).await.expect("the turn ends");
    serde_json::to_value(record.unwrap()).unwrap()
}

/// Aborts the running turn.
async fn abort(house: &House, session: &str) {
    let reply = house.call("POST", &format!("/sessions/{session}/abort"), Some(json!({ "reason": "enough" }))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// Waits for a session's question, answers it, and gives it back.
pub async fn decide(house: &House, session: &str, decision: &str) -> Value {
    let mut stream = house.events(session, "").await;
    let question = stream.until("permission.request").await.pop().unwrap().data["payload"].clone();
    let body = json!({ "requestId": question["requestId"], "decision": decision });
    let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(body)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    question
}

fn ask(kind: &str, input: &Value) -> String {
    format!("ask {}", json!({ "toolCallId": "c1", "title": "Do it", "kind": kind, "rawInput": input }))
}

#[tokio::test]
async fn a_question_is_the_clients_and_the_weakest_option_answers_it() {
    for (decision, want) in [("allow", "[id_allow_once]"), ("deny", "[id_reject_once]")] {
        let (house, session) = house("").await;
        let turn = begin(&house, &session, &ask("execute", &json!({ "command": "make it" }))).await;
        let question = decide(&house, &session, decision).await;
        assert_eq!((&question["callId"], &question["toolName"]), (&json!("c1"), &json!("acp:a/execute")));
        assert_eq!((&question["args"]["command"], &question["preview"]["title"]), (&json!("make it"), &json!("Do it")));
        assert_eq!(end(&house, &session, &turn).await["result"], want);
        let seen = events(&house, &session).await;
        let kinds = kinds(&seen);
        let at = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
        assert!(at("tool.call.start") < at("permission.request") && at("permission.response") < at("tool.call.end"));
        assert_eq!(kinds.iter().filter(|kind| kind.starts_with("permission.")).count(), 2);
        house.close().await;
    }
}

#[tokio::test]
async fn what_an_agent_asks_a_person_is_a_question_to_the_clients() {
    let properties =
        json!({ "branch": { "type": "string", "enum": ["main", "next"] }, "depth": { "type": "integer" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["branch", "depth"] });
    let form = json!({ "mode": "form", "message": "Where?", "toolCallId": "c1", "requestedSchema": schema });
    let (house, session) = house("").await;
    let no = json!({ "cancelled": true });
    let table = [
        (
            vec![json!({ "value": "next" }), json!({ "value": "3" })],
            json!({ "action": "accept", "content": { "branch": "next", "depth": 3 } }),
        ),
        (vec![no], json!({ "action": "decline" })),
    ];
    for (answers, want) in table {
        let after = house.app.session(&Caller::default(), &session.parse().unwrap()).await.unwrap().last_seq;
        let mut stream = house.events(&session, &format!("?after={after}")).await;
        let turn = begin(&house, &session, &format!("form {form}")).await;
        for mut answer in answers {
            let asked = stream.until("client.request").await.pop().unwrap().data["payload"].clone();
            assert_eq!(asked["callId"], "c1");
            let title = asked["question"]["title"].as_str().unwrap();
            assert!(title.starts_with("The agent `a` asks: Where?\n"), "{title}");
            answer["requestId"] = asked["requestId"].clone();
            let reply = house.call("POST", &format!("/sessions/{session}/feedback"), Some(answer)).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let said = end(&house, &session, &turn).await["result"].as_str().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), want);
    }

    // Who looks at all sessions has seen that this one waited.
    let mut all =
        request(house.address, "GET", "/events?types=client.request,client.response").open(house.address).await;
    assert_eq!(all.event().await.kind(), "ready");
    for kind in ["client.request", "client.response", "client.request", "client.response", "client.request"] {
        let event = all.event().await;
        assert_eq!((event.kind(), &event.data["sessionId"]), (kind, &json!(session)));
    }

    // An abort ends the question, and the agent hears so before its turn is over.
    let after = house.app.session(&Caller::default(), &session.parse().unwrap()).await.unwrap().last_seq;
    let mut stream = house.events(&session, &format!("?after={after}")).await;
    let turn = begin(&house, &session, &format!("form {form}\nwait")).await;
    stream.until("client.request").await;
    abort(&house, &session).await;
    let ended = stream.until("client.response").await.pop().unwrap().data["payload"].clone();
    assert_eq!((&ended["cancelled"], &ended["by"]), (&json!(true), &json!("abort")));
    assert_eq!(end(&house, &session, &turn).await["status"], "aborted");

    // What nobody can be asked is refused, and says why.
    let bad = [
        (json!({ "mode": "url", "message": "m", "url": "https://example.org" }), "mode"),
        (json!({ "mode": "form", "requestedSchema": {} }), "message"),
        (json!({ "mode": "form", "message": "m", "requestedSchema": 1 }), "requestedSchema"),
    ];
    for (form, field) in bad {
        let turn = begin(&house, &session, &format!("form {form}")).await;
        let said = end(&house, &session, &turn).await["result"].as_str().unwrap().to_owned();
        let error: Value = serde_json::from_str(&said).unwrap();
        let words = error["message"].as_str().unwrap();
        assert!(error["code"] == -32602 && words.starts_with(field), "{error}");
    }
    house.close().await;
}

#[tokio::test]
async fn rules_about_our_tools_are_about_an_agents_too() {
    let rule =
        |tool: &str, pattern: Option<&str>, policy: &str| json!({ "tool": tool, "pattern": pattern, "policy": policy });
    let command = |command: Value| ask("execute", &json!({ "command": command }));
    let inside = |house: &House| house.work.path().canonicalize().unwrap().join("a.txt").display().to_string();
    #[rustfmt::skip]
    let table: Vec<(Value, Value, Box<dyn Fn(&House) -> String>, &str)> = vec![
        (json!("deny"), json!([rule("bash", Some("git *"), "allow")]), Box::new(move |_| command(json!("git status"))), "allow_once"),
        (json!("deny"), json!([rule("bash", Some("git *"), "allow")]), Box::new(move |_| command(json!(["bash", "-lc", "git status"]))), "allow_once"),
        (json!("deny"), json!([rule("bash", Some("git *"), "allow")]), Box::new(move |_| command(json!("git status; rm -rf /"))), "reject_once"),
        (json!("allow"), json!([rule("bash", Some("rm *"), "deny")]), Box::new(move |_| command(json!("rm -rf x"))), "reject_once"),
        (json!("allow"), json!([rule("acp:a/*", None, "deny")]), Box::new(move |_| command(json!("ls"))), "reject_once"),
        (json!("deny"), json!([rule("fs_write", None, "allow")]), Box::new(move |h| ask("edit", &json!({ "path": inside(h) }))), "allow_once"),
        (json!("deny"), json!([{ "tool": "*", "category": "read", "policy": "allow" }]), Box::new(move |h| ask("read", &json!({ "path": inside(h) }))), "allow_once"),
        (json!("deny"), json!([{ "tool": "*", "category": "read", "policy": "allow" }]), Box::new(|_| ask("read", &json!({ "path": "/etc/passwd" }))), "reject_once"),
        (json!("deny"), json!([rule("fetch", None, "allow")]), Box::new(|_| ask("fetch", &json!({ "url": "x" }))), "reject_once"),
    ];
    for (default, rules, script, want) in table {
        let (house, _) = house("").await;
        let permissions = json!({ "defaultPolicy": default, "rules": rules });
        let permissions: Value =
            serde_json::from_str(&permissions.to_string().replace("\"pattern\":null,", "")).unwrap();
        let session = house.session(json!({ "agent": "a", "toolPermissions": permissions })).await;
        let script = script(&house);
        let turn = house.prompt(&session, &script).await;
        assert_eq!(turn["result"], format!("[id_{want}]"), "{permissions} {script} {turn}");
        assert!(!kinds(&events(&house, &session).await).contains(&"permission.request"));
        house.close().await;
    }
}

#[tokio::test]
async fn a_policy_of_the_configuration_answers_without_anybody() {
    for (policy, answer, written) in [
        (AcpPermissionPolicy::AutoApprove, "[id_allow_once]written", true),
        (AcpPermissionPolicy::Deny, "[id_reject_once]files may not be written", false),
    ] {
        let agent = AcpServer { permission_policy: Some(policy), ..settings("a", "") };
        let (house, session) = house_with(agent, |_| {}).await;
        let file = house.work.path().join("a.txt");
        let script = format!("{}\nwrite {} words", ask("execute", &json!({ "command": "x" })), file.display());
        let turn = house.prompt(&session, &script).await;
        let history = house.call("GET", &format!("/sessions/{session}/history"), None).await.json().to_string();
        assert!(answer.split_inclusive(']').all(|said| history.contains(said)), "{turn} {history}");
        assert_eq!(file.exists(), written);
        assert!(!kinds(&events(&house, &session).await).contains(&"permission.request"));
        house.close().await;
    }
}

#[tokio::test]
async fn a_file_is_written_by_our_tool_asked_about_once_and_never_outside() {
    let (house, session) = house("").await;
    let file = house.work.path().canonicalize().unwrap().join("a.txt");
    let write = format!("write {} words", file.display());
    let turn = begin(&house, &session, &write).await;
    let question = decide(&house, &session, "allow").await;
    assert_eq!((&question["toolName"], &question["preview"]["isNew"]), (&json!("fs_write"), &json!(true)));
    assert_eq!(end(&house, &session, &turn).await["result"], "written");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "words");
    let session = house.session(json!({ "agent": "a" })).await;
    let edit = ask("edit", &json!({ "path": file.display().to_string() }));
    let turn = begin(&house, &session, &format!("{edit}\n{write} again")).await;
    assert_eq!(decide(&house, &session, "allow").await["toolName"], "acp:a/edit");
    assert_eq!(end(&house, &session, &turn).await["result"], "written", "one question for one change");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "words again");
    let allowed = json!({ "defaultPolicy": "allow", "rules": [] });
    let session = house.session(json!({ "agent": "a", "toolPermissions": allowed })).await;
    let both = format!("{write}\nown {} of its own\n{write} at last", file.display());
    let turn = house.prompt(&session, &both).await;
    assert_eq!(turn["result"], "written", "what it changed by itself is no stale file: {turn}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "words at last");
    let turn = house.prompt(&session, "write /tmp/outside-of-it.txt words").await;
    assert!(turn["result"].as_str().is_some_and(|said| said.contains("escapes the working directory")), "{turn}");
    house.close().await;
}

#[tokio::test]
async fn an_abort_stops_the_agent_and_the_session_goes_on() {
    let (house, session) = house("").await;
    let pid = facts(&house.prompt(&session, "facts").await)["pid"].clone();
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x", "status": "in_progress" });
    let waits = begin(&house, &session, &format!("say so far\nupdate {call}\nwait")).await;
    house.events(&session, "").await.until("tool.call.start").await;
    abort(&house, &session).await;
    let ended = end(&house, &session, &waits).await;
    assert_eq!((&ended["status"], &ended["reason"]), (&json!("aborted"), &json!("enough")));
    let seen = events(&house, &session).await;
    let last = kinds(&seen).split_off(seen.len() - 4);
    assert_eq!(last, ["tool.call.error", "tool.call.end", "loop.complete", "abort"], "what was open is closed");
    assert_eq!(seen[seen.len() - 4].1["error"]["code"], "CONFLICT");
    let asks = begin(&house, &session, &ask("execute", &json!({ "command": "x" }))).await;
    house.events(&session, "").await.until("permission.request").await;
    abort(&house, &session).await;
    assert_eq!(end(&house, &session, &asks).await["status"], "aborted");
    assert_eq!(facts(&house.prompt(&session, "facts").await)["pid"], pid, "the program is the same");
    house.close().await;
}

#[tokio::test]
async fn a_call_that_the_agent_never_ends_is_its_failure() {
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "x", "status": "in_progress" });
    for then in ["say done", "crash"] {
        let (house, session) = house("").await;
        house.prompt(&session, &format!("update {call}\n{then}")).await;
        let seen = events(&house, &session).await;
        let error = seen.iter().find(|(kind, _)| kind == "tool.call.error").unwrap();
        assert_eq!(error.1["error"]["code"], "UPSTREAM_UNAVAILABLE", "{then}: {error:?}");
        let ended = seen.iter().find(|(kind, _)| kind == "tool.call.end").unwrap();
        assert_eq!((&ended.1["isError"], &ended.1["callId"]), (&json!(true), &json!("c1")));
        house.close().await;
    }
}

#[tokio::test]
async fn an_agent_that_does_not_stop_is_replaced() {
    let (house, session) = house("").await;
    let pid = facts(&house.prompt(&session, "facts").await)["pid"].clone();
    let deaf = begin(&house, &session, "say on it\ndeaf").await;
    let mut seen = house.events(&session, "").await;
    // Those of the turn before come first.
    while !seen.until("stream.delta").await.last().is_some_and(|frame| frame.data.to_string().contains("on it")) {}
    abort(&house, &session).await;
    assert_eq!(end(&house, &session, &deaf).await["status"], "aborted");
    let after = facts(&house.prompt(&session, "facts").await);
    assert_ne!(after["pid"], pid);
    let told = after["blocks"][0].as_str().unwrap();
    assert!(told.starts_with("[Conversation so far]") && told.contains("[Assistant]\non it"), "{told}");
    house.close().await;
}

#[tokio::test]
async fn every_fault_ends_one_turn_and_says_why() {
    #[rustfmt::skip]
    let table = [
        ("stderr out of luck\ncrash", "its program ended (exit status: 3); it said: ", "unavailable"),
        ("endless", "it sent a line of more than", "unavailable"),
        ("fail -32603", "as it was told (session/prompt, error -32603)", "refused"),
        ("fail -32000", "log in to it first: as it was told", "unauthorized"),
        ("stop max_turn_requests", "its own limit of requests", "refused"),
        ("stop cancelled", "cancelled the turn by itself", "refused"),
        ("stop bogus", "names no reason why it stopped", "malformed"),
        ("stop end_turn", "No response received from model.", "blank"),
    ];
    for (script, want, kind) in table {
        let (house, session) = house("").await;
        let turn = house.prompt(&session, script).await;
        let error = &turn["error"];
        assert_eq!((&turn["status"], &error["code"]), (&json!("failed"), &json!("UPSTREAM_UNAVAILABLE")), "{turn}");
        assert!(error["message"].as_str().is_some_and(|said| said.contains(want)), "{script}: {turn}");
        assert_eq!(error["details"]["kind"], kind, "{turn}");
        assert_eq!(house.prompt(&session, "say here").await["result"], "here", "{script}");
        house.close().await;
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_greeted_fails_the_turn() {
    let dumb = |how: &str| AcpServer { timeout_ms: Some(300), ..settings("a", how) };
    let echo = AcpServer { command: "echo".into(), args: vec!["hello".into()], ..settings("a", "") };
    #[rustfmt::skip]
    let table = [
        (dumb("mute"), "the agent `a`: no answer to initialize within 300 ms"),
        (AcpServer { timeout_ms: None, ..dumb("version=2") }, "it speaks version 2 of the protocol"),
        (echo, "the agent `a`: its program ended (exit status: 0)"),
        (AcpServer { timeout_ms: None, default_agent: Some("none".into()), ..dumb("modes=plan,act") }, "`defaultAgent` is `none`, and it offers plan, act"),
    ];
    for (agent, want) in table {
        let (house, session) = house_with(agent, |_| {}).await;
        let turn = house.prompt(&session, "facts").await;
        assert!(turn["error"]["message"].as_str().is_some_and(|said| said.contains(want)), "{want}: {turn}");
        assert_eq!(turn["error"]["code"], "UPSTREAM_UNAVAILABLE");
        house.close().await;
    }
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_refused_by_name() {
    let house = House::with(ListenOptions::default(), |settings_of_it| {
        let missing = AcpServer { command: "/no/such/agent".into(), ..settings("a", "") };
        let nowhere = AcpServer { cwd: Some("no/such/place".into()), ..settings("c", "") };
        settings_of_it.acp_servers = vec![missing, nowhere];
    })
    .await;
    let directory = house.work.path().canonicalize().unwrap().join("no/such/place");
    let nowhere = format!("its directory `{}` (cwd) is not there", directory.display());
    let agents = house.call("GET", "/agents", None).await.json();
    for (at, name, reason) in [(1, "a", "`/no/such/agent` is not installed"), (2, "c", nowhere.as_str())] {
        let refused = house.call("POST", "/sessions", Some(json!({ "agent": name }))).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "UPSTREAM_UNAVAILABLE"));
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains(reason), "{refused:?}");
        let agent = &agents["agents"][at];
        assert_eq!((&agent["name"], &agent["available"]), (&json!(name), &json!(false)), "{agents}");
        assert!(agent["reason"].as_str().is_some_and(|told| told.contains(reason)), "{agents}");
    }
    #[rustfmt::skip]
    let table = [
        (json!({ "agent": "b" }), "agent"),
        (json!({ "agent": "a", "model": "test/puppet" }), "model"),
        (json!({ "agent": "simse", "model": "acp/a" }), "model"),
    ];
    for (body, field) in table {
        let refused = house.call("POST", "/sessions", Some(body)).await;
        assert_eq!((refused.status, &refused.json()["error"]["details"]["field"]), (400, &json!(field)));
    }
    house.close().await;
}

#[tokio::test]
async fn the_members_of_an_entry_reach_the_program() {
    let agent = AcpServer {
        cwd: Some("sub".into()),
        default_agent: Some("act".into()),
        env: [("SCRIPTED_AGENT".into(), "modes=plan,act".into()), ("AGENT_SECRET".into(), "s3".into())].into(),
        ..settings("a", "")
    };
    let (house, session) = house_with(agent, |settings| {
        std::fs::create_dir(settings.working_directory.join("sub")).unwrap();
        settings.provider_prompts.prompts = vec![("acp/*".into(), "Be brief.".into())];
    })
    .await;
    let work = house.work.path().canonicalize().unwrap();
    let told = facts(&house.prompt(&session, "facts").await);
    assert_eq!((&told["mode"], &told["secret"]), (&json!("act"), &json!("s3")));
    assert_eq!(told["directory"], work.join("sub").display().to_string());
    assert_eq!(told["cwd"], work.display().to_string());
    assert_eq!(told["blocks"], json!(["[Instructions]\nBe brief.", "facts"]));
    house.close().await;
}

#[tokio::test]
async fn after_a_restart_the_agents_session_goes_on() {
    let kept = tempfile::tempdir().unwrap();
    let (data, work) = (kept.path().join("data"), kept.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let opened = async |how: &str| {
        House::with(ListenOptions::default(), |settings_of_it| {
            settings_of_it.acp_servers = vec![settings("a", how)];
            settings_of_it.storage = Storage::Directory(data.clone());
            settings_of_it.working_directory = work.canonicalize().unwrap();
        })
        .await
    };
    let loads = format!("load={}", kept.path().display());
    for (how, same) in [(loads.as_str(), true), ("", false)] {
        let house = opened(how).await;
        let session = house.session(json!({ "agent": "a" })).await;
        let before = facts(&house.prompt(&session, "facts").await);
        house.close().await;
        let house = opened(how).await;
        let turn = house.prompt(&session, "facts").await;
        let after = facts(&turn);
        assert_ne!(before["pid"], after["pid"]);
        assert_eq!(before["session"] == after["session"], same, "{how}: {before} {after}");
        let blocks = after["blocks"].as_array().unwrap();
        assert_eq!(blocks.len() == 1, same, "only a new session is told what was: {blocks:?}");
        let history = house.call("GET", &format!("/sessions/{session}/history"), None).await.json();
        assert_eq!(history["items"].as_array().unwrap().len(), 4, "nothing is replayed into it: {history}");
        house.close().await;
    }
}

#[tokio::test]
async fn sessions_of_one_program_do_not_wait_for_each_other() {
    let (house, one) = house("").await;
    let two = house.session(json!({ "agent": "a" })).await;
    let waits = begin(&house, &one, "say on it\nwait").await;
    house.events(&one, "").await.until("stream.delta").await;
    assert_eq!(house.prompt(&two, "say meanwhile").await["result"], "meanwhile");
    abort(&house, &one).await;
    assert_eq!(end(&house, &one, &waits).await["status"], "aborted");
    house.close().await;
}

#[tokio::test]
async fn a_session_goes_over_from_a_model_to_an_agent_and_back() {
    let house = House::with(ListenOptions::default(), |settings_of_it| {
        settings_of_it.acp_servers = vec![settings("a", "")];
    })
    .await;
    let session = house.session(json!({ "agent": "simse" })).await;
    assert_eq!(house.prompt(&session, "hello").await["result"], "done");
    let over = json!({ "prompt": "facts", "configure": { "model": "acp/a" } });
    let path = format!("/sessions/{session}/prompt?wait=true");
    let told = facts(&house.call("POST", &path, Some(over)).await.json());
    assert_eq!(told["blocks"][0], "[Conversation so far]\n[User]\nhello\n\n[Assistant]\ndone");
    let back = json!({ "prompt": "again", "configure": { "model": "test/puppet" } });
    assert_eq!(house.call("POST", &path, Some(back)).await.json()["result"], "done");
    let over = json!({ "prompt": "facts", "configure": { "model": "acp/a" } });
    let told = facts(&house.call("POST", &path, Some(over)).await.json());
    assert_eq!(told["blocks"][0], "[Conversation so far]\n[User]\nagain\n\n[Assistant]\ndone", "only what it missed");
    house.close().await;
}

#[tokio::test]
async fn an_agent_answers_one_turn_alone() {
    let house = House::with(ListenOptions::default(), |settings_of_it| {
        settings_of_it.acp_servers = vec![settings("a", "")];
    })
    .await;
    let session = house.session(json!({ "agent": "simse" })).await;
    let path = format!("/sessions/{session}/prompt?wait=true");
    let once = json!({ "prompt": "facts", "turn": { "model": "acp/a" } });
    let told = facts(&house.call("POST", &path, Some(once.clone())).await.json());
    assert_eq!(told["blocks"][0], "facts", "{told}");
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!((&view["agent"], &view["model"]), (&json!("simse"), &json!("test/puppet")));
    assert_eq!(house.prompt(&session, "hello").await["result"], "done");
    let told = facts(&house.call("POST", &path, Some(once)).await.json());
    assert_eq!(told["blocks"][0], "[Conversation so far]\n[User]\nhello\n\n[Assistant]\ndone", "only what it missed");
    house.close().await;
}

#[tokio::test]
async fn a_flood_arrives_whole_and_unknown_requests_are_answered() {
    let (house, session) = house("").await;
    let turn = house.prompt(&session, "flood 20000").await;
    assert_eq!(turn["result"].as_str().map(str::len), Some(20_000));
    let turn = house.prompt(&session, "fill 4000000").await;
    assert_eq!(turn["result"].as_str().map(str::len), Some(4_000_000), "one long line");
    let turn = house.prompt(&session, "request craft/drainMidTurnQueue").await;
    assert_eq!(turn["result"], "-32601");
    house.close().await;
}
