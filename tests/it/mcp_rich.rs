//! What tool servers want of a session while they work, and what they tell: answers of models, roots, progress, resources.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use simse::config::{McpServer, Settings};
use simse::mcp::{Client, Identity, News, OnProgress, Program};
use simse::protocol::{PermissionPolicy, PermissionRule};
use simse::server::ListenOptions;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::mcp::{call, names, until};
use crate::support::house::{Does, House};

struct Rich {
    room: TempDir,
    house: House,
}

impl Rich {
    /// A server that speaks such revisions of the protocol, see its script.
    async fn open(speaks: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let room = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/mcp_rich.mjs");
        let entry = json!({ "name": "r", "command": "node", "args": [script, room.path().join("log"), speaks], "env": { "API_KEY": "s3cret-key" } });
        let server: McpServer = serde_json::from_value(entry).unwrap();
        let house = House::with(ListenOptions::default(), |settings| {
            settings.mcp_servers = vec![server];
            settings.permissions.default_policy = PermissionPolicy::Allow;
            change(settings);
        })
        .await;
        Self { room, house }
    }

    fn heard(&self, method: &str) -> Vec<Value> {
        let path: PathBuf = self.room.path().join("log");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let notes = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        notes.filter(|note| note["method"] == method).collect()
    }
}

fn sampling(policy: PermissionPolicy) -> impl FnOnce(&mut Settings) {
    move |settings| {
        let rule =
            PermissionRule { tool: "sampling:*".into(), pattern: None, policy, category: None, annotations: None };
        settings.permissions.rules.push(rule);
    }
}

#[tokio::test]
async fn a_server_has_an_answer_of_a_model_once_a_person_said_yes() {
    model_answers("older").await;
    model_answers("newest").await;
}

async fn model_answers(speaks: &str) {
    let rich = Rich::open(speaks, sampling(PermissionPolicy::Ask)).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    let path = format!("/sessions/{session}");
    let mut events = house.events(&session, "").await;
    for (answer, want) in [("allow", "It is a test."), ("deny", "it is not allowed")] {
        house.round(&[Does::Calls("mcp:r/sample", json!({ "temperature": 0.5 }))]);
        if answer == "allow" {
            house.round(&[Does::Says("It is "), Does::Says("a test.")]);
        }
        assert_eq!(house.call("POST", &format!("{path}/prompt"), Some(json!({ "prompt": "go" }))).await.status, 202);
        let asked = events.until("permission.request").await.pop().unwrap().data["payload"].clone();
        assert_eq!(asked["toolName"], "sampling:r");
        let args = &asked["args"];
        assert_eq!((&args["model"], &args["maxTokens"]), (&json!("test/puppet"), &json!(50)));
        assert_eq!(args["messages"][0]["content"][0], "What is it?");
        let system = args["systemPrompt"].as_str().unwrap();
        assert!(system.starts_with("Be brief.") && !system.contains("s3cret-key"), "{system}");
        let feedback = json!({ "requestId": asked["requestId"], "decision": answer });
        assert_eq!(house.call("POST", &format!("{path}/feedback"), Some(feedback)).await.status, 200);
        let seen = events.until("session.completed").await;
        let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
        let output = end.data["payload"]["output"].as_str().unwrap();
        assert!(output.contains(want), "{output}");
        if answer == "allow" {
            let said: Value = serde_json::from_str(output).unwrap();
            assert_eq!(
                (&said["model"], &said["stopReason"], &said["role"]),
                (&json!("test/puppet"), &json!("endTurn"), &json!("assistant"))
            );
            let told = seen.iter().find(|frame| frame.kind() == "client.notice").unwrap();
            assert!(told.data["payload"]["text"].as_str().unwrap().contains("`r` had an answer"));
        }
    }
    rich.house.close().await;
}

#[tokio::test]
async fn what_a_rule_says_needs_no_question_and_what_is_not_offered_is_refused() {
    let rich = Rich::open("older", sampling(PermissionPolicy::Allow)).await;
    let session = rich.house.session(json!({})).await;
    let asks = async |arguments: Value, says: Option<&'static str>| {
        rich.house.round(&[Does::Calls("mcp:r/sample", arguments)]);
        says.inspect(|says| rich.house.round(&[Does::Says(says)]));
        rich.house.prompt(&session, "go").await;
        let history = rich.house.call("GET", &format!("/sessions/{session}/history?limit=1000"), None).await.json();
        let items = history["items"].as_array().unwrap().clone();
        let last = items.iter().rfind(|item| item["output"].is_string()).unwrap();
        serde_json::from_str::<Value>(last["output"].as_str().unwrap()).unwrap()
    };
    let cut = asks(json!({ "maxTokens": 2 }), Some("0123456789")).await;
    assert_eq!((&cut["content"]["text"], &cut["stopReason"]), (&json!("01234567"), &json!("maxTokens")));
    let stopped = asks(json!({ "stopSequences": ["STOP"] }), Some("one STOP two")).await;
    assert_eq!((&stopped["content"]["text"], &stopped["stopReason"]), (&json!("one "), &json!("stopSequence")));
    let tools = asks(json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }), None).await;
    assert!(tools["error"]["message"].as_str().unwrap().starts_with("tools: expected none"), "{tools}");
    let audio = json!({ "messages": [{ "role": "user", "content": { "type": "audio", "data": "AAEC", "mimeType": "audio/wav" } }] });
    assert_eq!(asks(audio, None).await["error"]["code"], -32602);
    rich.house.close().await;
}

#[tokio::test]
async fn a_server_is_told_where_work_is_done_and_a_call_that_goes_on_may_take_its_time() {
    at_work("older").await;
    at_work("newest").await;
}

async fn at_work(speaks: &str) {
    let rich = Rich::open(speaks, |_| {}).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    let (roots, failed) = call(house, &session, "mcp:r/roots", json!({})).await;
    let roots: Value = serde_json::from_str(&roots).unwrap();
    let work = house.work.path().canonicalize().unwrap();
    assert_eq!((failed, &roots["roots"][0]["uri"]), (false, &json!(format!("file://{}", work.display()))));
    // Its level is that of our log; nothing of it fails a call.
    if speaks == "older" {
        until("it was told a level", || !rich.heard("logging/setLevel").is_empty()).await;
    } else {
        let said = rich.heard("tools/call").pop().unwrap()["params"]["_meta"].clone();
        assert!(said["io.modelcontextprotocol/logLevel"].is_string(), "{said}");
        assert_eq!(said["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert!(rich.heard("initialize").is_empty());
    }
    assert_eq!(call(house, &session, "mcp:r/chatter", json!({ "count": 500 })).await, ("said".into(), false));
    let mut events = house.events(&session, "?after=0").await;
    assert_eq!(call(house, &session, "mcp:r/slow", json!({})).await, ("at last".into(), false));
    let mut shown = Vec::new();
    while !shown.iter().any(|text: &String| text.contains("4/4")) {
        let seen = events.until("tool.call.output").await;
        let payload = seen.last().unwrap().data["payload"].clone();
        assert_eq!(payload["name"], "mcp:r/slow");
        shown.push(payload["text"].as_str().unwrap().to_owned());
    }
    assert!(shown.iter().all(|text| text.starts_with("[progress ") && !text.contains("s3cret-key")), "{shown:?}");
    rich.house.close().await;
}

#[tokio::test]
async fn resources_are_tools_of_their_server() {
    let rich = Rich::open("newest", |_| {}).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    let (list, _) = call(house, &session, "mcp:r/resources/list", json!({})).await;
    assert_eq!(
        list,
        "mem://1 \"one\" (text/plain): The first.\ntemplate mem://{n} \"any\"\n(more with the cursor \"c\\\"2\")"
    );
    let (rest, _) = call(house, &session, "mcp:r/resources/list", json!({ "cursor": "c\"2" })).await;
    assert_eq!(rest, "mem://2 \"two\"");
    let (read, failed) = call(house, &session, "mcp:r/resources/read", json!({ "uri": "mem://7" })).await;
    assert_eq!(
        (read.as_str(), failed),
        ("[resource mem://7 (text/plain)]\ninside mem://7\n[resource mem://7, image/png, 4 bytes]", false)
    );
    let (bad, failed) = call(house, &session, "mcp:r/resources/read", json!({})).await;
    assert!(failed && bad.contains("\"uri\""), "{bad}");
    assert!(names(house).contains(&"mcp:r/resources/read".to_owned()));
    rich.house.close().await;
}

/// A person is shown the page that a server wants opened, and says yes or no; we open nothing.
#[tokio::test]
async fn a_page_is_shown_before_it_counts_as_opened() {
    page_opens("older").await;
    page_opens("newest").await;
}

async fn page_opens(speaks: &str) {
    let rich = Rich::open(speaks, |_| {}).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    let mut events = house.events(&session, "").await;
    let prompt = async || {
        let path = format!("/sessions/{session}/prompt");
        assert_eq!(house.call("POST", &path, Some(json!({ "prompt": "go" }))).await.status, 202);
    };
    for (value, want) in [(true, r#"{"action":"accept"}"#), (false, r#"{"action":"decline"}"#)] {
        house.round(&[Does::Calls("mcp:r/page", json!({}))]);
        house.round(&[Does::Says("done")]);
        prompt().await;
        let asked = events.until("client.request").await.pop().unwrap().data["payload"].clone();
        let shown = asked.to_string();
        assert!(shown.contains("Please log in.") && shown.contains("https://pages.example/login?step=1"), "{shown}");
        let feedback = json!({ "requestId": asked["requestId"], "value": value });
        assert_eq!(house.call("POST", &format!("/sessions/{session}/feedback"), Some(feedback)).await.status, 200);
        let seen = events.until("session.completed").await;
        let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
        assert_eq!(end.data["payload"]["output"], want);
    }
    house.round(&[Does::Calls("mcp:r/page", json!({ "url": "file:///etc/passwd" }))]);
    house.round(&[Does::Says("done")]);
    prompt().await;
    let seen = events.until("session.completed").await;
    let end = seen.iter().find(|frame| frame.kind() == "tool.call.end").unwrap();
    assert!(end.data["payload"]["output"].as_str().unwrap().contains("expected an http or https address"), "{end:?}");
    rich.house.close().await;
}

#[tokio::test]
async fn a_server_that_ends_a_request_with_questions_gets_it_once_more_and_not_for_ever() {
    let rich = Rich::open("newest", |_| {}).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    assert_eq!(call(house, &session, "mcp:r/busy", json!({})).await, ("done".into(), false));
    let sent = rich.heard("tools/call");
    let again = &sent.last().unwrap()["params"];
    assert_eq!((sent.len(), &again["requestState"], again.get("inputResponses")), (2, &json!("b1"), None));
    let (said, failed) = call(house, &session, "mcp:r/endless", json!({})).await;
    assert!(failed && said.contains("asked something 32 times"), "{said}");
    // What a session may not have is refused, and the call ends with that.
    let (said, failed) = call(
        house,
        &session,
        "mcp:r/sample",
        json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
    )
    .await;
    assert!(failed && said.contains("tools: expected none"), "{said}");
    rich.house.close().await;
}

#[tokio::test]
async fn a_server_of_the_newest_revision_is_listened_to_and_again_when_it_breaks_off() {
    let rich = Rich::open("newest", |_| {}).await;
    let house = &rich.house;
    let session = house.session(json!({})).await;
    assert!(!call(house, &session, "mcp:r/roots", json!({})).await.1);
    until("it is listened to", || !rich.heard("subscriptions/listen").is_empty()).await;
    assert_eq!(call(house, &session, "mcp:r/grow", json!({})).await, ("it grew".into(), false));
    until("its new tool is there", || names(house).contains(&"mcp:r/grown".to_owned())).await;
    assert_eq!(call(house, &session, "mcp:r/deaf", json!({})).await, ("deaf".into(), false));
    until("what it did meanwhile is seen", || names(house).contains(&"mcp:r/unheard".to_owned())).await;
    assert_eq!(rich.heard("subscriptions/listen").len(), 2);
    rich.house.close().await;
}

#[tokio::test]
async fn older_servers_that_cannot_be_asked_what_they_can_are_greeted_as_ever() {
    for speaks in ["fragile", "silent"] {
        let rich = Rich::open(speaks, |_| {}).await;
        let house = &rich.house;
        let session = house.session(json!({})).await;
        let (roots, failed) = call(house, &session, "mcp:r/roots", json!({})).await;
        assert!(!failed && roots.contains("file://"), "{speaks}: {roots}");
        let (said, failed) = call(house, &session, "mcp:r/die", json!({})).await;
        assert!(failed && said.contains("exit code 3"), "{said}");
        assert!(!call(house, &session, "mcp:r/roots", json!({})).await.1);
        assert_eq!(rich.heard("server/discover").len(), 1, "it is not asked twice");
        rich.house.close().await;
    }
}

/// What is told in one write with the answer, and as early as the request is known: nothing of it is lost, late or out of its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_server_tells_at_once_comes_in_its_order_and_before_the_answer() {
    const CALLS: usize = 200;
    const EACH: usize = 10;
    for speaks in ["older", "newest"] {
        let room = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/mcp_rich.mjs");
        let entry = json!({ "name": "r", "command": "node", "args": [script, room.path().join("log"), speaks] });
        let logged = Arc::new(Mutex::new(Vec::new()));
        let program = Program {
            told: Arc::new({
                let logged = Arc::clone(&logged);
                move |_, news| {
                    if let News::Log { data, .. } = news {
                        logged.lock().unwrap().push(data);
                    }
                }
            }),
            answer: Arc::new(|_, _| Box::pin(std::future::ready(Err("nothing is answered".to_owned())))),
            samples: false,
            elicits: false,
            opens_pages: false,
            opens: None,
        };
        let servers = vec![serde_json::from_value::<McpServer>(entry).unwrap()];
        let client = Client::new(servers, (room.path().to_owned(), Vec::new()), Identity::default(), program).unwrap();
        client.connect("r").await.unwrap();
        let cancel = CancellationToken::new();
        let whole: Vec<f64> = (1..=EACH).map(|step| f64::from(u32::try_from(step).unwrap())).collect();
        for _ in 0..CALLS {
            let steps = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&steps);
            let on_progress: OnProgress = Arc::new(move |step| seen.lock().unwrap().push(step.progress));
            let params = json!({ "name": "hurry", "arguments": { "count": EACH } });
            let asked = ("tools/call", params.as_object().unwrap().clone());
            client.request("r", asked, (Some(on_progress), &cancel)).await.unwrap();
            assert_eq!(*steps.lock().unwrap(), whole, "{speaks}");
        }
        let first: Vec<Value> = (1..=EACH).map(Value::from).collect();
        assert_eq!(logged.lock().unwrap()[..EACH], first, "{speaks}");
        client.disconnect("r").await;
    }
}
