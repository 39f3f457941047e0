//! What an agent says of itself, what its sessions are set to, and what our tools do for it.

use serde_json::{Value, json};
use simse::config::{AcpPermissionPolicy, Settings, Storage};
use simse::server::ListenOptions;

use super::acp::{begin, decide, end, events, facts, house, house_with};
use super::support::agent::settings;
use super::support::house::House;

/// The payloads of one type.
fn of<'a>(events: &'a [(String, Value)], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|(it, _)| it == kind).map(|(_, payload)| payload).collect()
}

/// Where the session works.
async fn working_directory(house: &House, session: &str) -> std::path::PathBuf {
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    view["workingDirectory"].as_str().unwrap().into()
}

async fn state(house: &House, session: &str) -> Value {
    let reply = house.call("GET", &format!("/sessions/{session}/agent"), None).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

#[tokio::test]
async fn what_an_agent_says_of_itself_is_told_and_can_be_looked_up() {
    let (house, session) = house("").await;
    let updates = [
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "look", "priority": "high", "status": "pending" }] }),
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "look", "priority": "high", "status": "completed" }] }),
        json!({ "sessionUpdate": "available_commands_update",
            "availableCommands": [{ "name": "plan", "description": "Plans", "input": { "hint": "what" } }] }),
        json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": { "amount": 0.25, "currency": "USD" } }),
        json!({ "sessionUpdate": "notice", "severity": "warning", "title": "Careful" }),
        json!({ "sessionUpdate": "compaction_update", "compactionId": "1", "status": "in_progress" }),
        json!({ "sessionUpdate": "compaction_summary_chunk", "compactionId": "1", "content": { "type": "text", "text": "so" } }),
        json!({ "sessionUpdate": "compaction_update", "compactionId": "1", "status": "completed" }),
        json!({ "sessionUpdate": "session_info_update", "title": "A talk" }),
        json!({ "sessionUpdate": "brand_new_thing", "whatever": [1, 2] }),
        json!({ "sessionUpdate": "session_message", "messageId": 5 }),
    ];
    let script: Vec<String> = updates.iter().map(|told| format!("update {told}")).collect();
    let later = json!({ "sessionUpdate": "usage_update", "used": 50, "size": 100 });
    let turn = house.prompt(&session, &format!("{}\nlater {later}\nsay done", script.join("\n"))).await;
    assert_eq!(turn["result"], "done", "{turn}");
    let seen = events(&house, &session).await;
    assert_eq!(of(&seen, "agent.plan").len(), 2);
    assert_eq!(
        of(&seen, "agent.commands")[0]["commands"][0],
        json!({ "name": "plan", "description": "Plans", "hint": "what" })
    );
    assert_eq!(
        of(&seen, "agent.usage")[0],
        &json!({ "used": 10, "size": 100, "cost": { "amount": 0.25, "currency": "USD" } })
    );
    assert_eq!(of(&seen, "client.notice")[0], &json!({ "level": "warning", "text": "Careful" }));
    assert_eq!(
        of(&seen, "agent.compaction")[1],
        &json!({ "compactionId": "1", "status": "completed", "summary": "so" })
    );
    assert_eq!(of(&seen, "session.configured")[0], &json!({ "title": "A talk" }));
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!(view["title"], "A talk");
    // What it said between the turns comes with the next one; a title that the user gave stays.
    let title = json!({ "sessionUpdate": "session_info_update", "title": "Another" });
    let turn = house.prompt(&session, &format!("update {title}\nsay more")).await;
    assert_eq!(turn["result"], "more", "{turn}");
    let state = state(&house, &session).await;
    assert_eq!((&state["agent"], &state["usage"]["used"]), (&json!("a"), &json!(50)));
    assert_eq!(
        state["plans"],
        json!([{ "entries": [{ "content": "look", "priority": "high", "status": "completed" }] }])
    );
    assert_eq!(state["commands"][0]["name"], "plan");
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    assert_eq!(view["title"], "A talk");
    house.close().await;
}

#[tokio::test]
async fn a_call_is_previewed_while_it_runs_and_may_begin_with_an_update() {
    let (house, session) = house("").await;
    let mut stream = house.events(&session, "").await;
    let content = |text: &str| json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
    let update = |status: &str, text: &str| {
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "kind": "execute", "status": status,
            "rawInput": { "command": "make" }, "content": content(text) })
    };
    let script = format!(
        "update {}\nupdate {}\nupdate {}\nsay ok",
        update("in_progress", "one\n"),
        update("in_progress", "one\ntwo\n"),
        update("completed", "one\ntwo\nthree\n"),
    );
    let turn = begin(&house, &session, &script).await;
    let seen = stream.until("session.completed").await;
    assert_eq!(end(&house, &session, &turn).await["result"], "ok");
    let pieces: Vec<&Value> = seen
        .iter()
        .filter(|event| event.data["type"] == "tool.call.output")
        .map(|event| &event.data["payload"]["text"])
        .collect();
    assert_eq!(pieces, ["one\n", "two\n"]);
    let all = events(&house, &session).await;
    assert_eq!((of(&all, "tool.call.start").len(), of(&all, "tool.call.end").len()), (1, 1));
    assert_eq!(of(&all, "tool.call.end")[0]["output"], "one\ntwo\nthree\n");
    house.close().await;
}

#[tokio::test]
async fn what_a_terminal_of_the_agents_own_shows_is_the_output_of_its_call() {
    let (house, session) = house("").await;
    let mut stream = house.events(&session, "").await;
    let beside = |status: &str, meta: Value| json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": status, "_meta": meta });
    let begun = json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "make", "kind": "execute", "status": "pending",
        "content": [{ "type": "terminal", "terminalId": "c1" }], "_meta": { "terminal_info": { "terminal_id": "c1" } } });
    let script = [
        begun,
        beside("in_progress", json!({ "terminal_output": { "terminal_id": "c1", "data": "one\n" } })),
        beside(
            "completed",
            json!({ "terminal_output_delta": { "data": "two\n" }, "terminal_exit": { "exit_code": 0 } }),
        ),
    ];
    let script: Vec<String> = script.iter().map(|told| format!("update {told}")).collect();
    begin(&house, &session, &format!("{}\nsay ok", script.join("\n"))).await;
    let seen = stream.until("session.completed").await;
    let told: Vec<(&str, &Value)> = seen
        .iter()
        .map(|event| (event.data["type"].as_str().unwrap_or_default(), &event.data["payload"]))
        .filter(|(kind, _)| kind.starts_with("tool.call."))
        .collect();
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["tool.call.start", "tool.call.output", "tool.call.output", "tool.call.end"]);
    assert_eq!((&told[1].1["text"], &told[2].1["text"]), (&json!("one\n"), &json!("two\n")));
    assert_eq!(told[3].1["output"], "one\ntwo\n");
    house.close().await;
}

#[tokio::test]
async fn options_are_shown_set_and_set_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (data, work) = (directory.path().join("data"), directory.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    let open = async || {
        House::with(ListenOptions::default(), |all: &mut Settings| {
            all.acp_servers = vec![settings("a", "options modes=ask,act")];
            all.storage = Storage::Directory(data.clone());
            all.working_directory = work.canonicalize().unwrap();
        })
        .await
    };
    let house = open().await;
    let session = house.session(json!({ "agent": "a" })).await;
    house.prompt(&session, "say hello").await;
    let at_first = state(&house, &session).await;
    let ids: Vec<&str> = at_first["options"].as_array().unwrap().iter().map(|o| o["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["mode", "effort", "fast"]);
    assert_eq!((&at_first["options"][1]["value"], &at_first["chosen"]), (&json!("low"), &json!({})));
    let path = format!("/sessions/{session}");
    let body = json!({ "reasoning": "high", "agentOptions": { "fast": true, "mode": "act" } });
    let view = house.call("PATCH", &path, Some(body)).await.json();
    assert_eq!((&view["reasoning"], &view["agentOptions"]), (&json!("high"), &json!({ "fast": true, "mode": "act" })));
    let told = facts(&house.prompt(&session, "facts").await);
    assert_eq!((&told["options"], &told["mode"]), (&json!({ "effort": "high", "fast": true }), &json!("act")));
    let now = state(&house, &session).await;
    let values: Vec<&Value> = now["options"].as_array().unwrap().iter().map(|option| &option["value"]).collect();
    assert_eq!(values, [&json!("act"), &json!("high"), &json!(true)]);
    // The agent may change it, and is left alone; so it is until something else is chosen.
    let mode = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "ask" });
    house.prompt(&session, &format!("update {mode}\nsay ok")).await;
    assert_eq!(state(&house, &session).await["options"][0]["value"], "ask");
    house.close().await;
    let house = open().await;
    let told = facts(&house.prompt(&session, "facts").await);
    assert_eq!((&told["options"], &told["mode"]), (&json!({ "effort": "high", "fast": true }), &json!("act")));
    house.close().await;
}

#[tokio::test]
async fn an_option_that_is_not_offered_is_told_and_the_session_stays_usable() {
    let (house, session) = house("options").await;
    let path = format!("/sessions/{session}");
    let table = [
        (json!({ "colour": "red" }), "offers effort, fast"),
        (json!({ "effort": "huge" }), "`effort` cannot be `huge`: it offers low, high"),
        (json!({ "fast": "yes" }), "`fast` cannot be `yes`: it offers true and false"),
    ];
    for (options, want) in table {
        house.call("PATCH", &path, Some(json!({ "agentOptions": options }))).await;
        let turn = house.prompt(&session, "say never").await;
        let words = turn["error"]["message"].as_str().unwrap();
        assert!(words.contains(want) && words.contains("the agent `a`"), "{words}");
    }
    let body = json!({ "agentOptions": {}, "reasoning": "minimal" });
    house.call("PATCH", &path, Some(body)).await;
    assert_eq!(house.prompt(&session, "say here").await["result"], "here");
    let seen = events(&house, &session).await;
    let notice = of(&seen, "client.notice")[0]["text"].as_str().unwrap();
    assert!(notice.contains("`reasoning` is `minimal`") && notice.contains("low, high"), "{notice}");
    let body = json!({ "agentOptions": { "effort": 5 } });
    let reply = house.call("PATCH", &path, Some(body)).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    let own = house.session(json!({})).await;
    let reply = house.call("PATCH", &format!("/sessions/{own}"), Some(json!({ "agentOptions": { "a": "b" } }))).await;
    assert_eq!((reply.status, &reply.json()["error"]["details"]["field"]), (409, &json!("agentOptions")), "{reply:?}");
    house.close().await;
}

/// What the agent was answered, one answer a line.
fn answers(turn: &Value) -> Vec<Value> {
    let said = turn["result"].as_str().unwrap_or_else(|| panic!("no result: {turn}"));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn commands_run_in_our_shell_and_are_waited_for_cut_and_ended() {
    let mut agent = settings("a", "");
    agent.permission_policy = Some(AcpPermissionPolicy::AutoApprove);
    let (house, session) = house_with(agent, |_| {}).await;
    let create = json!({ "command": "sh", "args": ["-c", "printf 'abcä'; exit 3"], "outputByteLimit": 3 });
    let script = format!(
        "call terminal/create {create}\ncall terminal/wait_for_exit\ncall terminal/output\nshows c1\ncall terminal/release\ncall terminal/output"
    );
    let turn = house.prompt(&session, &script).await;
    let seen = events(&house, &session).await;
    let texts: Vec<String> =
        of(&seen, "stream.complete").iter().map(|p| p["text"].as_str().unwrap().to_owned()).collect();
    let all = answers(&json!({ "result": texts.concat() }));
    let status = json!({ "exitCode": 3, "signal": null });
    assert_eq!(all[1], status);
    assert_eq!(all[2], json!({ "output": "cä", "truncated": true, "exitStatus": status }));
    assert_eq!((&all[3], &all[4]["code"]), (&json!({}), &json!(-32002)), "{turn}");
    let calls = of(&seen, "tool.call.end");
    assert_eq!((&calls[0]["name"], &calls[0]["output"]), (&json!("bash"), &json!("[exit code 3]\nabcä")));
    assert_eq!((&calls[1]["name"], &calls[1]["output"]), (&json!("acp:a/execute"), &json!("cä")));
    let script = "call terminal/create {\"command\":\"sleep\",\"args\":[\"1000\"]}\ncall terminal/output\ncall terminal/kill\ncall terminal/wait_for_exit\ncall terminal/output";
    let all = answers(&house.prompt(&session, script).await);
    assert_eq!(all[1], json!({ "output": "", "truncated": false }));
    assert_eq!(all[3], json!({ "exitCode": null, "signal": "SIGTERM" }));
    assert_eq!(all[4]["exitStatus"]["signal"], "SIGTERM");
    // What nobody lets go ends with the turn.
    let turn = house.prompt(&session, "call terminal/create {\"command\":\"sleep 1000\"}\nsay x").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let seen = events(&house, &session).await;
    assert_eq!(of(&seen, "tool.call.start").len(), of(&seen, "tool.call.end").len());
    house.close().await;
}

#[tokio::test]
async fn a_command_is_judged_by_our_rules_and_asked_about_once() {
    let data = tempfile::tempdir().unwrap();
    let keep = |all: &mut Settings| all.storage = Storage::Directory(data.path().to_owned());
    let (house, session) = house_with(settings("a", ""), keep).await;
    let create = json!({ "command": "sh", "args": ["-c", "echo hi > made"] });
    let script = format!("call terminal/create {create}\ncall terminal/wait_for_exit");
    let turn = begin(&house, &session, &script).await;
    let question = decide(&house, &session, "deny").await;
    assert_eq!((&question["toolName"], &question["args"]["command"]), (&json!("bash"), &json!("echo hi > made")));
    let refused = end(&house, &session, &turn).await;
    let said = refused["result"].as_str().unwrap().lines().next().unwrap().to_owned();
    let error: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(error["code"], -32603, "{refused}");
    // The agent asks by itself, in other words, and runs it then.
    let asked = json!({ "toolCallId": "c9", "title": "Make it", "kind": "execute", "rawInput": { "command": ["bash", "-lc", "echo hi > made"] } });
    let turn = begin(&house, &session, &format!("ask {asked}\n{script}")).await;
    let after = house.app.session(&Default::default(), &session.parse().unwrap()).await.unwrap().last_seq;
    let mut stream = house.events(&session, &format!("?after={after}")).await;
    let view = house.call("GET", &format!("/sessions/{session}"), None).await.json();
    let open = match view["requests"][0]["payload"]["requestId"].as_str() {
        Some(id) => id.to_owned(),
        None => stream.until("permission.request").await.pop().unwrap().data["payload"]["requestId"]
            .as_str()
            .unwrap()
            .to_owned(),
    };
    let body = json!({ "requestId": open, "decision": "allow" });
    assert_eq!(house.call("POST", &format!("/sessions/{session}/feedback"), Some(body)).await.status, 200);
    assert_eq!(end(&house, &session, &turn).await["status"], "completed");
    let seen = events(&house, &session).await;
    assert_eq!(of(&seen, "permission.request").len(), 2, "one for each, and none for what was allowed");
    assert_eq!(std::fs::read_to_string(working_directory(&house, &session).await.join("made")).unwrap(), "hi\n");
    let diff = house.call("GET", &format!("/sessions/{session}/diff"), None).await.json();
    assert!(diff.to_string().contains("made"), "{diff}");
    house.close().await;
}

#[tokio::test]
async fn a_file_is_read_as_it_is_and_never_outside() {
    let (house, session) = house("").await;
    let directory = working_directory(&house, &session).await;
    let content = format!("\u{feff}one\r\n{}\nthree", "x".repeat(10_000));
    std::fs::write(directory.join("f"), &content).unwrap();
    let read = |path: &std::path::Path, more: Value| {
        let mut params = json!({ "path": path });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("call fs/read_text_file {params}")
    };
    let outside = tempfile::NamedTempFile::new().unwrap();
    let script = [
        read(&directory.join("f"), json!({})),
        read(&directory.join("f"), json!({ "line": 3 })),
        read(&directory.join("f"), json!({ "line": 1, "limit": 1 })),
        read(&directory.join("missing"), json!({})),
        read(outside.path(), json!({})),
    ];
    let turn = house.prompt(&session, &script.join("\n")).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let seen = events(&house, &session).await;
    let texts: Vec<String> =
        of(&seen, "stream.complete").iter().map(|p| p["text"].as_str().unwrap().to_owned()).collect();
    let all = answers(&json!({ "result": texts.concat() }));
    assert_eq!(all[0]["content"], content);
    assert_eq!((&all[1]["content"], &all[2]["content"]), (&json!("three"), &json!("\u{feff}one\r\n")));
    assert_eq!(all[3]["code"], -32002, "{}", all[3]);
    assert_eq!(all[4]["code"], -32603, "{}", all[4]);
    assert_eq!(of(&seen, "tool.call.end").len(), 5);
    house.close().await;
}

#[tokio::test]
async fn an_agent_is_told_what_is_served() {
    let (house, session) = house("").await;
    let client = facts(&house.prompt(&session, "facts").await)["client"].clone();
    assert_eq!(client["fs"], json!({ "readTextFile": true, "writeTextFile": true }));
    assert_eq!((&client["terminal"], &client["session"]["notices"]), (&json!(true), &json!({})));
    house.close().await;
}

async fn steer(house: &House, session: &str, words: &str) {
    let body = json!({ "prompt": words, "mode": "steer" });
    let reply = house.call("POST", &format!("/sessions/{session}/prompt"), Some(body)).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

#[tokio::test]
async fn what_is_said_meanwhile_reaches_an_agent_at_once_where_it_takes_that() {
    let (house, session) = house("steers=injected").await;
    let mut stream = house.events(&session, "").await;
    let turn = begin(&house, &session, "say one\nhear\nsay two").await;
    stream.until("stream.delta").await;
    steer(&house, &session, "look").await;
    let record = end(&house, &session, &turn).await;
    assert_eq!((&record["status"], &record["result"]), (&json!("completed"), &json!("heard looktwo")), "{record}");
    let seen = events(&house, &session).await;
    let told = |kind: &str, payload: &Value| match kind {
        "stream.complete" => format!("said {}", payload["text"].as_str().unwrap_or_default()),
        "session.steer" => format!("steer {}", payload["prompt"].as_str().unwrap_or_default()),
        other => other.to_owned(),
    };
    let mut kinds: Vec<String> = seen.iter().map(|(kind, payload)| told(kind, payload)).collect();
    // What it says at one moment is one piece or two.
    kinds.dedup();
    let want = [
        "stream.delta",
        "turn.control",
        "said one",
        "turn.complete",
        "steer look",
        "stream.start",
        "stream.delta",
        "said heard looktwo",
        "turn.complete",
        "loop.complete",
        "session.completed",
    ];
    assert_eq!(kinds[kinds.len() - want.len()..], want);
    // What it heard so is not told again.
    let next = facts(&house.prompt(&session, "facts").await);
    assert_eq!(next["blocks"], json!(["facts"]));
    let history = house.call("GET", &format!("/sessions/{session}/history"), None).await.json();
    let roles: Vec<&str> = history["items"].as_array().unwrap().iter().map(|i| i["type"].as_str().unwrap()).collect();
    assert_eq!(roles.len(), 6, "{roles:?}");
    house.close().await;
}

#[tokio::test]
async fn what_an_agent_does_not_take_now_it_is_prompted_with() {
    for outcome in ["promptRequired", "failed"] {
        let (house, session) = house(&format!("steers={outcome}")).await;
        let mut stream = house.events(&session, "").await;
        let turn = begin(&house, &session, "say one\nhear").await;
        stream.until("stream.delta").await;
        steer(&house, &session, "facts").await;
        let told = facts(&end(&house, &session, &turn).await);
        assert_eq!(told["blocks"], json!(["facts"]), "{outcome}");
        assert_eq!(facts(&house.prompt(&session, "facts").await)["blocks"], json!(["facts"]));
        house.close().await;
    }
}

#[tokio::test]
async fn a_login_is_by_the_method_that_is_configured_or_named_to_the_user() {
    let (house, session) = house("login").await;
    let turn = house.prompt(&session, "say never").await;
    let error = &turn["error"];
    assert_eq!(error["details"]["kind"], "unauthorized", "{turn}");
    let words = error["message"].as_str().unwrap();
    assert!(words.contains("it knows: a key (key); see `authMethod`"), "{words}");
    house.close().await;
    for (method, want) in [("key", None), ("magic", Some("`authMethod` is `magic`, and it knows a key (key)"))] {
        let mut agent = settings("a", "login");
        agent.auth_method = Some(method.to_owned());
        let (house, session) = house_with(agent, |_| {}).await;
        let turn = house.prompt(&session, "say in").await;
        match want {
            None => assert_eq!(turn["result"], "in", "{turn}"),
            Some(want) => {
                assert_eq!(turn["error"]["details"]["kind"], "unauthorized", "{turn}");
                assert!(turn["error"]["message"].as_str().unwrap().contains(want), "{turn}");
            }
        }
        house.close().await;
    }
}

#[tokio::test]
async fn a_fork_is_one_of_the_agents_too_as_long_as_the_other_rests() {
    for (how, same) in [("forks", true), ("", false)] {
        let (house, session) = house(how).await;
        let before = facts(&house.prompt(&session, "facts").await);
        let fork = async || {
            let reply = house.call("POST", &format!("/sessions/{session}/fork"), Some(json!({}))).await;
            assert_eq!(reply.status, 201, "{reply:?}");
            reply.json()["sessionId"].as_str().unwrap().to_owned()
        };
        let (first, late) = (fork().await, fork().await);
        let after = facts(&house.prompt(&first, "facts").await);
        let of = before["session"].as_str().unwrap();
        let forked = after["session"].as_str().unwrap();
        assert!(forked != of && (forked.starts_with('f') && forked.ends_with(of)) == same, "{how}: {before} {after}");
        assert_eq!(after["blocks"].as_array().unwrap().len() == 1, same, "only a new one is told what was: {after}");
        let again = facts(&house.prompt(&first, "facts").await);
        assert_eq!(again["session"], after["session"], "it is its own from now on");
        // The other one goes on: its agent has heard more than a fork of it.
        assert_eq!(facts(&house.prompt(&session, "facts").await)["session"], before["session"]);
        let after = facts(&house.prompt(&late, "facts").await);
        assert!(!after["session"].as_str().unwrap().starts_with('f'), "{after}");
        assert!(after["blocks"].as_array().unwrap().len() > 1, "{after}");
        house.close().await;
    }
}
