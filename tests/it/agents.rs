//! Agents of markdown files: listed with what is wrong with them, chosen for sessions, and held to what their files say.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use simse::app::App;
use simse::config::DefinitionFolders;
use simse::protocol::{EventBody, TurnStatus};
use simse::server::ListenOptions;

use crate::support::house::{Does, House};
use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::sessions::{events, open, provider, session, turn};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn agent(directory: &Path, name: &str, head: &str, body: &str) {
    write(&directory.join(format!(".simse/agents/{name}.md")), &format!("---\nname: {name}\n{head}\n---\n\n{body}\n"));
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn agents_are_listed_with_kind_source_and_faults_and_follow_their_files() {
    let home = tempfile::tempdir().unwrap();
    write(&home.path().join("agents/mine.md"), "---\nname: mine\ndescription: of the user\n---\n");
    let homes = vec![home.path().to_owned()];
    let folders = |settings: &mut simse::config::Settings| {
        settings.definitions = DefinitionFolders { homes, ..DefinitionFolders::default() };
    };
    let house = House::with(ListenOptions::default(), folders).await;
    let work = house.work.path().to_owned();
    agent(
        &work,
        "coder",
        "description: writes\nmodel: test/puppet\npolicy: {allow: [Patch], delegate_targets: [explore]}\nmax_iters: 7",
        "Code.",
    );
    agent(&work, "lost", "model: no/such", "");
    agent(&work, "bad", "kind: neither", "");
    write(&work.join("agents/seed.md"), "---\nname: seed\ntools: [Read]\n---\nText.\n");
    let list = house.call("GET", "/agents", None).await.json();
    let names: Vec<&str> = list["agents"].as_array().unwrap().iter().filter_map(|a| a["name"].as_str()).collect();
    assert_eq!(names, ["simse", "coder", "lost", "seed", "mine", "build", "plan", "explore"]);
    let coder = named(&list, "coder");
    let shown = ["kind", "source", "available", "model", "policy", "delegateTargets", "maxIterations"]
        .map(|member| coder[member].clone());
    let want = [
        json!("main"),
        json!("project"),
        json!(true),
        json!("test/puppet"),
        json!(["Patch"]),
        json!(["explore"]),
        json!(7),
    ];
    assert_eq!(shown, want);
    assert_eq!(
        (&named(&list, "explore")["kind"], &named(&list, "explore")["source"]),
        (&json!("subagent"), &json!("built-in"))
    );
    assert_eq!((&named(&list, "mine")["source"], &named(&list, "seed")["tools"]), (&json!("user"), &json!(["Read"])));
    assert_eq!(named(&list, "lost")["available"], false);
    assert!(named(&list, "lost")["reason"].as_str().is_some_and(|reason| reason.contains("`no/such`")));
    let faults = list["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0]["path"].as_str().is_some_and(|path| path.ends_with(".simse/agents/bad.md")));
    assert!(
        faults[0]["reason"].as_str().is_some_and(|reason| reason.contains("`kind`: expected `main` or `subagent`"))
    );
    // A file that changes counts at the next look, and one that goes is gone.
    agent(&work, "bad", "kind: main", "");
    fs::remove_file(work.join(".simse/agents/lost.md")).unwrap();
    let list = house.call("GET", "/agents", None).await.json();
    assert_eq!((named(&list, "bad")["kind"].clone(), named(&list, "lost").clone()), (json!("main"), Value::Null));
    assert_eq!(list["faults"], json!([]));
    // Another directory has others.
    fs::create_dir_all(work.join("sub/.git")).unwrap();
    let query = format!("/agents?workingDirectory={}", work.join("sub").display());
    let list = house.call("GET", &query, None).await.json();
    assert_eq!((named(&list, "coder").clone(), named(&list, "mine")["source"].clone()), (Value::Null, json!("user")));
    let missing = house.call("GET", "/agents?workingDirectory=/no/such", None).await;
    assert_eq!((missing.status, missing.json()["error"]["details"]["field"].clone()), (400, json!("workingDirectory")));
    house.close().await;
}

#[tokio::test]
async fn a_session_takes_its_agents_model_unless_another_is_said() {
    let house = House::open().await;
    let work = house.work.path().to_owned();
    agent(&work, "coder", "model: test/puppet\nreasoning: high", "Code.");
    agent(&work, "bad", "tools: 7", "");
    agent(&work, "lost", "model: no/such", "");
    let created = async |body: Value| house.call("POST", "/sessions", Some(body)).await;
    let view = created(json!({"agent": "coder"})).await.json();
    assert_eq!(
        (&view["agent"], &view["model"], &view["reasoning"]),
        (&json!("coder"), &json!("test/puppet"), &json!("high"))
    );
    let view = created(json!({"agent": "coder", "model": "demo/scripted", "reasoning": "low"})).await.json();
    assert_eq!((&view["model"], &view["reasoning"]), (&json!("demo/scripted"), &json!("low")));
    for (name, status, words) in [
        ("nobody", 400, "an agent of GET /agents"),
        ("bad", 400, "whose file has a fault: `tools`: expected a list of names"),
        ("explore", 400, "only other agents can delegate"),
        ("lost", 503, "its model `no/such`"),
    ] {
        let refused = created(json!({"agent": name})).await;
        assert_eq!(refused.status, status, "{name}: {refused:?}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains(words), "{name}: {refused:?}");
    }
    // Changed between turns, and told in the log; `simse` is no agent of a file.
    let id = house.session(json!({"model": "demo/scripted"})).await;
    let changed = house.call("PATCH", &format!("/sessions/{id}"), Some(json!({"agent": "coder"}))).await.json();
    assert_eq!((&changed["agent"], &changed["model"]), (&json!("coder"), &json!("test/puppet")));
    let bad = house.call("PATCH", &format!("/sessions/{id}"), Some(json!({"agent": "explore"}))).await;
    assert_eq!((bad.status, bad.json()["error"]["details"]["field"].clone()), (400, json!("agent")));
    let back = house
        .call("PATCH", &format!("/sessions/{id}"), Some(json!({"agent": "simse", "interactionMode": "auto"})))
        .await
        .json();
    assert_eq!((&back["agent"], &back["interactionMode"]), (&json!("simse"), &json!("auto")));
    house.close().await;
}

#[tokio::test]
async fn what_an_agent_may_not_is_refused_when_it_is_called_all_the_same() {
    let house = House::open().await;
    let work = house.work.path().to_owned();
    agent(&work, "reader", "model: test/puppet\ntools: [Read, Bash]\npolicy: []", "Read.");
    agent(
        &work,
        "ruled",
        "model: test/puppet\npermissions: [{tool: bash, pattern: 'echo secret*', policy: deny}]",
        "Mind.",
    );
    fs::write(work.join("a.txt"), "a").unwrap();
    let id = house.session(json!({"agent": "reader", "permissionMode": "auto"})).await;
    house.round(&[
        Does::Calls("Write", json!({"path": "b.txt", "content": "b"})),
        Does::Calls("no_such_tool", json!({})),
        Does::Calls("fs_read", json!({"path": "a.txt"})),
        Does::Calls(
            "bash",
            json!({"command": "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: c.txt\n+c\n*** End Patch\nEOF"}),
        ),
    ]);
    house.prompt(&id, "go").await;
    let outputs = outputs(&house, &id).await;
    assert!(outputs[0].contains("the agent `reader` may not use it: its tools are Read, Bash"), "{outputs:?}");
    assert_eq!(outputs[1], "Tool not found: \"no_such_tool\"");
    assert!(outputs[2].contains('a'), "{outputs:?}");
    assert!(outputs[3].contains("may not change files: its policy does not name `Patch`"), "{outputs:?}");
    assert!(!work.join("b.txt").exists() && !work.join("c.txt").exists());
    // Its rules stand beside all others, also where everything else is allowed.
    let id = house.session(json!({"agent": "ruled", "permissionMode": "auto"})).await;
    house.round(&[Does::Calls("bash", json!({"command": "echo secrets"}))]);
    house.prompt(&id, "go").await;
    let outputs = self::outputs(&house, &id).await;
    assert!(outputs[0].contains("by the rules of the agent `ruled`"), "{outputs:?}");
    // A file that is gone opens no gate.
    fs::remove_file(work.join(".simse/agents/ruled.md")).unwrap();
    let failed = house.prompt(&id, "again").await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(
        failed["error"]["message"].as_str().unwrap().contains("no markdown file defines the agent `ruled` any more")
    );
    house.close().await;
}

/// What the tools of a session gave, in their order.
async fn outputs(house: &House, id: &str) -> Vec<String> {
    let history = house.call("GET", &format!("/sessions/{id}/history"), None).await.json();
    let items = history["items"].as_array().unwrap().iter().filter(|item| item["type"] == "tool_result");
    items.map(|item| item["output"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn with_model(server: &ModelServer, directory: &Path) -> std::sync::Arc<App> {
    open(directory, |settings| {
        let entry = json!({ "name": "p", "api": "openai-chat", "apiKey": "k", "baseUrl": server.base_url() });
        settings.providers = vec![provider(entry)];
        settings.model = Some("p/m".into());
    })
    .await
}

#[tokio::test]
async fn the_model_is_told_the_agents_text_and_its_tools_alone_and_the_rounds_are_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let calls = || Answer::calls("", &[("r", "fs_list", json!({"path": "."}))]);
    let server = ModelServer::start(queue([calls(), calls(), calls(), Answer::text(&["done"])])).await;
    let app = with_model(&server, directory.path()).await;
    agent(directory.path(), "short", "tools: [LS, git_*]\nmax_iters: 2", "You are short of time.");
    let id = session(&app, json!({"agent": "short"})).await;
    let done = turn(&app, &id, json!({"prompt": "go"})).await;
    assert_eq!(
        (done.rounds, done.stop_reason.map(|stop| serde_json::to_value(stop).unwrap())),
        (2, Some(json!("max_iterations")))
    );
    let sent = server.requests()[0].json();
    let system = sent["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("You are short of time.") && system.contains("Working directory: "), "{system}");
    let tools: Vec<&str> =
        sent["tools"].as_array().unwrap().iter().filter_map(|t| t["function"]["name"].as_str()).collect();
    assert!(tools[0] == "fs_list" && tools[1..].iter().all(|tool| tool.starts_with("git_")), "{tools:?}");
    // The text that was changed counts from the next turn on.
    agent(directory.path(), "short", "tools: [LS]", "You have all the time.");
    turn(&app, &id, json!({"prompt": "go"})).await;
    let sent = server.requests().last().unwrap().json();
    assert!(sent["messages"][0]["content"].as_str().unwrap().starts_with("You have all the time."));
}

#[tokio::test]
async fn a_mention_gives_one_turn_to_another_agent() {
    let directory = tempfile::tempdir().unwrap();
    let server = ModelServer::start(queue((0..6).map(|_| Answer::text(&["done"])))).await;
    let app = with_model(&server, directory.path()).await;
    agent(directory.path(), "reviewer", "tools: [LS]\nreasoning: high", "You review.");
    write(&directory.path().join(".simse/commands/look.md"), "---\ndescription: d\n---\nLook at $ARGUMENTS well.\n");
    let id = session(&app, json!({})).await;
    let asked = async |body: Value| {
        let done = turn(&app, &id, body).await;
        assert_eq!(done.status, TurnStatus::Completed, "{:?}", done.error);
        let sent = server.requests().last().unwrap().json();
        let messages = sent["messages"].as_array().unwrap().clone();
        let text = |message: &Value| match &message["content"] {
            Value::Array(parts) => parts[0]["text"].as_str().unwrap().to_owned(),
            content => content.as_str().unwrap().to_owned(),
        };
        let reviews = text(&messages[0]).starts_with("You review.");
        (reviews, text(messages.last().unwrap()), sent["tools"].as_array().unwrap().len())
    };
    let all = asked(json!({"prompt": "hello"})).await.2;
    assert_eq!(asked(json!({"prompt": "@reviewer look at this"})).await, (true, "look at this".into(), 1));
    // The turn behind it is the session's own agent's again.
    assert_eq!(asked(json!({"prompt": "and now"})).await, (false, "and now".into(), all));
    // A command behind the name is filled in; a name that nobody has is text.
    assert_eq!(asked(json!({"prompt": "@reviewer /look a.rs"})).await, (true, "Look at a.rs well.".into(), 1));
    assert_eq!(asked(json!({"prompt": "@nobody look"})).await, (false, "@nobody look".into(), all));
    // The same as a setting, with other parts beside the text.
    let body = json!({"prompt": [{"type": "text", "text": "look"}], "turn": {"agent": "reviewer"}});
    assert_eq!(asked(body).await, (true, "look".into(), 1));
    let told: Vec<Option<String>> = events(&app, &id)
        .await
        .into_iter()
        .filter_map(|event| match event {
            EventBody::SessionPrompt { turn, .. } => Some(turn.and_then(|turn| turn.agent)),
            _ => None,
        })
        .collect();
    let reviewer = || Some("reviewer".to_owned());
    assert_eq!(told, [None, reviewer(), None, reviewer(), None, reviewer()]);
    let view = app.session(&Default::default(), &id).await.unwrap();
    assert_eq!((view.agent.as_str(), serde_json::to_value(view.reasoning).unwrap()), ("simse", json!("auto")));
}

#[tokio::test]
async fn an_explanation_tells_of_the_agent_and_of_those_above() {
    let house = House::open().await;
    let work = house.work.path().to_owned();
    let rules = "permissions: {defaultPolicy: allow, rules: [{tool: bash, pattern: 'git *', policy: deny}, {tool: bash, pattern: 'make *', policy: ask}]}";
    agent(&work, "careful", &format!("policy: [Patch, Delegate]\n{rules}"), "Be careful.");
    let allow = json!({"defaultPolicy": "allow", "rules": []});
    let root =
        json!({"agent": "careful", "model": "demo/scripted", "toolPermissions": allow, "permissionMode": "auto"});
    let root = house.session(root).await;
    let body = json!({"parent": root, "model": "demo/scripted", "permissionMode": "auto"});
    let child = house.session(body).await;
    let explained = async |id: &str, tool: &str, arguments: Value| {
        let body = json!({"sessionId": id, "tool": tool, "arguments": arguments});
        let reply = house.call("POST", "/permissions/explain", Some(body)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let run = |command: &str| json!({ "command": command });
    // The agent of the session itself, and of the one above, whose name stands there then.
    for (id, above) in [(&root, Value::Null), (&child, json!(root))] {
        let told = explained(id, "bash", run("git push")).await;
        assert_eq!((&told["decision"], &told["source"]), (&json!("deny"), &json!("agent")), "{told}");
        assert_eq!((&told["agent"], &told["sessionId"]), (&json!("careful"), &above), "{told}");
        assert!(told["reason"].as_str().unwrap().starts_with("by the rules of the agent `careful`: "), "{told}");
        let told = explained(id, "bash", run("make all")).await;
        assert_eq!((&told["decision"], &told["source"]), (&json!("ask"), &json!("agent")), "{told}");
        let told = explained(id, "bash", run("ls")).await;
        assert_eq!((&told["decision"], &told["agent"]), (&json!("allow"), &Value::Null), "{told}");
    }
    // What the one above may not, by its own rules, as it is set now.
    house.call("PATCH", &format!("/sessions/{root}"), Some(json!({"permissionMode": "plan"}))).await;
    let told = explained(&child, "bash", run("touch x")).await;
    assert_eq!((&told["decision"], &told["sessionId"]), (&json!("deny"), &json!(root)), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("plan mode"), "{told}");
    house.close().await;
}

#[tokio::test]
async fn who_only_works_for_other_agents_cannot_be_mentioned() {
    let house = House::open().await;
    let id = house.session(json!({"model": "demo/scripted"})).await;
    for body in [json!({"prompt": "@explore look"}), json!({"prompt": "look", "turn": {"agent": "explore"}})] {
        let refused = house.call("POST", &format!("/sessions/{id}/prompt"), Some(body)).await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("only other agents can delegate"));
    }
    let body = json!({"prompt": "look", "turn": {"agent": "nobody"}});
    let refused = house.call("POST", &format!("/sessions/{id}/prompt"), Some(body)).await;
    assert_eq!((refused.status, refused.json()["error"]["details"]["field"].clone()), (400, json!("turn.agent")));
    house.close().await;
}

#[tokio::test]
async fn an_agent_in_auto_mode_works_by_actions_and_leaves_a_packet() {
    let directory = tempfile::tempdir().unwrap();
    let content = "fn f<T>() -> Vec<{ 1 }> { \"}\" }";
    let write = json!({"type": "tool", "tool": "Write", "args": {"path": "f.rs", "content": content}});
    let patch = "*** Begin Patch\n*** Add File: g.rs\n+g\n*** End Patch\n";
    let first = format!("I write.\n{write}\n{}", json!({"type": "patch", "patch": patch}));
    let packet = json!({"title": "Written", "acceptance_criteria": ["it is there"]});
    let last = json!({"type": "finalize_task", "packet": packet}).to_string();
    let server = ModelServer::start(queue([
        Answer::text(&["I will write f.rs."]),
        Answer::text(&[&first]),
        Answer::text(&[&last]),
    ]))
    .await;
    let app = with_model(&server, directory.path()).await;
    agent(directory.path(), "auto", "mode: auto", "Work alone.");
    let id = session(&app, json!({"agent": "auto", "permissionMode": "auto"})).await;
    let done = turn(&app, &id, json!({"prompt": "go"})).await;
    assert_eq!((done.status, done.rounds, done.output), (TurnStatus::Completed, 3, Some(packet)), "{:?}", done.error);
    assert_eq!(fs::read_to_string(directory.path().join("f.rs")).unwrap(), content);
    assert_eq!(fs::read_to_string(directory.path().join("g.rs")).unwrap(), "g\n");
    let called: Vec<String> = events(&app, &id)
        .await
        .into_iter()
        .filter_map(|event| match event {
            EventBody::ToolCallStart { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(called, ["Write", "apply_patch"]);
    let sent: Vec<Value> = server.requests().iter().map(|request| request.json()).collect();
    assert!(sent[0].get("tools").is_none(), "{}", sent[0]);
    assert!(sent[0]["messages"][0]["content"].as_str().unwrap().contains("\"finalize_task\""));
    assert!(sent[1].to_string().contains("Nothing of this answer was carried out"));
    assert!(sent[2]["messages"].as_array().unwrap().iter().all(|message| message["role"] != "tool"));
}

#[tokio::test]
async fn a_plan_is_approved_edited_or_rejected_by_a_client() {
    let house = House::open().await;
    let work = house.work.path().to_owned();
    let decide = async |id: &str, body: Value| house.call("POST", &format!("/sessions/{id}/plan"), Some(body)).await;
    let ended = async |id: &str, turn: &Value| {
        let path = format!("/sessions/{id}/turns/{}", turn["turnId"].as_str().unwrap());
        loop {
            let turn = house.call("GET", &path, None).await.json();
            if turn["status"] == "completed" {
                return turn;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    // Nobody plans in a session that does not.
    let other = house.session(json!({})).await;
    let refused = decide(&other, json!({"decision": "approve"})).await;
    assert_eq!((refused.status, refused.json()["error"]["details"]["why"].clone()), (409, json!("not_planning")));
    let id = house.session(json!({"agent": "plan", "model": "test/puppet", "permissionMode": "plan"})).await;
    let none = decide(&id, json!({"decision": "approve"})).await;
    assert_eq!((none.status, none.json()["error"]["details"]["why"].clone()), (409, json!("no_plan")));
    house.round(&[Does::Calls("fs_write", json!({"path": "a.txt", "content": "too early"}))]);
    house.round(&[Does::Says("1. Write a.txt.")]);
    house.prompt(&id, "plan it").await;
    assert!(!work.join("a.txt").exists());
    // Rejected, it plans anew and stays as it is.
    house.round(&[Does::Says("1. Write a.txt with care.")]);
    let again = decide(&id, json!({"decision": "reject", "message": "More care."})).await;
    assert_eq!(again.status, 202, "{again:?}");
    let turn = ended(&id, &again.json()).await;
    assert!(turn["prompt"].as_str().unwrap().ends_with("change nothing yet.\n\nMore care."), "{turn}");
    let view = house.call("GET", &format!("/sessions/{id}"), None).await.json();
    assert_eq!((&view["agent"], &view["permissionMode"]), (&json!("plan"), &json!("plan")));
    // Edited, it is carried out as it stands there.
    house.round(&[Does::Calls("fs_write", json!({"path": "a.txt", "content": "now"}))]);
    let body = json!({"decision": "edit", "plan": "1. Write a.txt: now.", "permissionMode": "accept-edits"});
    let turn = ended(&id, &decide(&id, body).await.json()).await;
    assert!(turn["prompt"].as_str().unwrap().ends_with("1. Write a.txt: now."), "{turn}");
    assert_eq!(fs::read_to_string(work.join("a.txt")).unwrap(), "now");
    let view = house.call("GET", &format!("/sessions/{id}"), None).await.json();
    assert_eq!((&view["agent"], &view["permissionMode"]), (&json!("build"), &json!("accept-edits")));
    house.close().await;
}
