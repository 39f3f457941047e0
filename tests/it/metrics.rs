//! `GET /metrics`: what is counted is true, every name stands in docs/operations.md, and the text is what Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use simse::config::Storage;
use simse::server::ListenOptions;

use crate::support::binary::Serving;
use crate::support::house::{Does, House};
use crate::support::http::request;
use crate::support::model_server::{Answer, ModelServer, queue};

const OPERATIONS: &str = include_str!("../../docs/operations.md");

/// Samples by name and labels as they stand there, and the kind of each family.
type Samples = BTreeMap<String, f64>;
type Kinds = BTreeMap<String, String>;

/// Reads the text format, version 0.0.4, and lets nothing pass that it does not allow.
fn parse(text: &str) -> (Samples, Kinds) {
    let (mut samples, mut kinds, mut helped) = (Samples::new(), Kinds::new(), BTreeSet::new());
    let mut family = String::new();
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(is_name(name) && !help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no kind: {line}"));
            assert!(helped.contains(name) && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "a family twice: {line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            name.clone_into(&mut family);
        } else {
            let (key, name, value) = sample(line);
            let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} among those of {family}"));
            match kinds[&family].as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                _ => assert_eq!(suffix, "", "{line}"),
            }
            assert!(samples.insert(key, value).is_none(), "a sample twice: {line}");
        }
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        check_histogram(name, &samples);
    }
    (samples, kinds)
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// A sample's line as it is told apart from others, its name, and its value.
fn sample(line: &str) -> (String, String, f64) {
    let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let Some((name, labels)) = key.split_once('{') else {
        assert!(is_name(key), "{line}");
        return (key.to_owned(), key.to_owned(), value);
    };
    let mut rest = labels.strip_suffix('}').unwrap_or_else(|| panic!("no end: {line}"));
    let mut seen = BTreeSet::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(is_name(label) && seen.insert(label), "{line}");
        let mut escaped = false;
        let end = after.char_indices().find_map(|(at, c)| match c {
            '\\' if !escaped => {
                escaped = true;
                None
            }
            '"' if !escaped => Some(at),
            c => {
                assert!(!escaped || ['\\', '"', 'n'].contains(&c), "{line}");
                escaped = false;
                None
            }
        });
        rest = &after[end.unwrap_or_else(|| panic!("no quote: {line}")) + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    assert!(is_name(name), "{line}");
    (key.to_owned(), name.to_owned(), value)
}

/// Buckets grow, end with all, and all is the count.
fn check_histogram(name: &str, samples: &Samples) {
    let prefix = format!("{name}_bucket{{");
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (key, value) in samples.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let (labels, bound) = key[prefix.len()..].split_once("le=\"").unwrap();
        let bound: f64 = bound.trim_end_matches("\"}").parse().unwrap();
        series.entry(labels.trim_end_matches(',').to_owned()).or_default().push((bound, *value));
    }
    for (labels, mut buckets) in series {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name}{{{labels}}}: {buckets:?}");
        let (last, all) = *buckets.last().unwrap();
        let braces =
            |part: &str| if labels.is_empty() { format!("{name}{part}") } else { format!("{name}{part}{{{labels}}}") };
        assert!(last.is_infinite() && samples[&braces("_count")] == all, "{name}{{{labels}}}");
        assert!(samples.contains_key(&braces("_sum")));
    }
}

async fn page(house: &House) -> (Samples, Kinds) {
    let reply = house.call("GET", "/metrics", None).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/plain; version=0.0.4; charset=utf-8")));
    parse(std::str::from_utf8(&reply.body).unwrap())
}

#[tokio::test]
async fn what_happened_is_counted() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_owned();
    let house = House::with(ListenOptions::default(), move |settings| {
        settings.storage = Storage::Directory(directory);
    })
    .await;
    std::fs::write(house.work.path().join("a.txt"), "a").unwrap();
    let session = house.session(json!({})).await;
    house.round(&[
        Does::Calls("fs_read", json!({ "path": "a.txt" })),
        // It runs and fails; the next does not fit, and so does not run.
        Does::Calls("fs_read", json!({ "path": "not-there.txt" })),
        Does::Calls("fs_read", json!({ "path": 5 })),
        Does::Calls("nobody_has_this", json!({})),
    ]);
    assert_eq!(house.prompt(&session, "go").await["status"], "completed");
    house.round(&[Does::Fails("no")]);
    assert_eq!(house.prompt(&session, "go").await["status"], "failed");
    house.round(&[Does::Waits]);
    let mut stream = house.events(&session, "").await;
    house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "wait" }))).await;
    house.call("POST", &format!("/sessions/{session}/prompt"), Some(json!({ "prompt": "next" }))).await;
    stream.until("turn.queued").await;
    house.call("GET", "/secret-path-of-somebody", None).await;
    house.call("GET", &format!("/sessions/{session}x"), None).await;
    let last_seq =
        async || house.call("GET", &format!("/sessions/{session}"), None).await.json()["lastSeq"].as_f64().unwrap();
    let before = last_seq().await;
    let (told, _) = page(&house).await;
    #[rustfmt::skip]
    let table = [
        ("simse_turns_started_total", 3.0), ("simse_turns_ended_total{outcome=\"completed\"}", 1.0),
        ("simse_turns_ended_total{outcome=\"failed\"}", 1.0), ("simse_turn_duration_seconds_count{outcome=\"failed\"}", 1.0),
        ("simse_turns{state=\"running\"}", 1.0), ("simse_turns{state=\"queued\"}", 1.0), ("simse_turns{state=\"paused\"}", 0.0),
        ("simse_sessions{state=\"awake\"}", 1.0), ("simse_sessions{state=\"asleep\"}", 0.0),
        ("simse_tool_calls_total{tool=\"fs_read\",outcome=\"ok\"}", 1.0), ("simse_tool_duration_seconds_count{tool=\"fs_read\"}", 2.0),
        ("simse_tool_calls_total{tool=\"unknown\",outcome=\"refused\"}", 1.0), ("simse_tool_duration_seconds_count{tool=\"unknown\"}", 0.0),
        ("simse_tool_calls_total{tool=\"fs_read\",outcome=\"refused\"}", 1.0), ("simse_tool_calls_total{tool=\"fs_read\",outcome=\"failed\"}", 1.0),
        ("simse_model_requests_total{model=\"test/puppet\",outcome=\"ok\"}", 2.0),
        ("simse_model_requests_total{model=\"test/puppet\",outcome=\"refused\"}", 1.0),
        ("simse_model_first_delta_seconds_count{model=\"test/puppet\"}", 2.0),
        ("simse_http_requests_total{route=\"/sessions/{sessionId}/prompt\",method=\"POST\",status=\"202\"}", 2.0),
        ("simse_http_requests_total{route=\"/sessions/{sessionId}/prompt\",method=\"POST\",status=\"200\"}", 2.0),
        ("simse_http_requests_total{route=\"none\",method=\"GET\",status=\"404\"}", 1.0),
        ("simse_http_requests_total{route=\"/sessions/{sessionId}\",method=\"GET\",status=\"404\"}", 1.0),
        ("simse_event_streams", 1.0), ("simse_websockets", 0.0), ("simse_limit_used{limit=\"turnsRunning\"}", 1.0),
        ("simse_store_commits_failed_total", 0.0), ("simse_permission_questions_total", 0.0),
    ];
    for (key, want) in table {
        assert_eq!(told.get(key), Some(&want), "{key} in {told:#?}");
    }
    assert!(told["simse_tool_duration_seconds_sum{tool=\"fs_read\"}"] > 0.0, "a short time is a time: {told:#?}");
    let after = last_seq().await;
    assert!((before..=after).contains(&told["simse_events_appended_total"]), "{before} to {after}: {told:#?}");
    assert!(told["simse_store_commit_duration_seconds_count"] >= 5.0);
    assert!(told["simse_model_tokens_total{model=\"test/puppet\",direction=\"input\"}"] == 0.0);
    assert!(
        !told.keys().any(|key| key.contains(&session) || key.contains("secret") || key.contains("nobody")),
        "{told:#?}"
    );
    drop(stream);
    house.go_on();
    house.close().await;
}

/// The limits are those of the verbose health, by name and by number.
#[tokio::test]
async fn limits_are_told_from_one_source() {
    let house = House::open().await;
    let (told, _) = page(&house).await;
    let health = house.call("GET", "/health?verbose=true", None).await.json();
    let limits = health["limits"].as_array().unwrap();
    assert_eq!(told.keys().filter(|key| key.starts_with("simse_limit_max{")).count(), limits.len());
    for limit in limits {
        let name = limit["name"].as_str().unwrap();
        assert_eq!(told[&format!("simse_limit_max{{limit=\"{name}\"}}")], limit["limit"].as_f64().unwrap(), "{name}");
        assert!(told.contains_key(&format!("simse_limit_used{{limit=\"{name}\"}}")), "{name}");
    }
    house.close().await;
}

#[tokio::test]
async fn every_name_is_written_down_and_no_other() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_owned();
    let house = House::with(ListenOptions::default(), move |s| s.storage = Storage::Directory(directory)).await;
    let (_, kinds) = page(&house).await;
    let rows = OPERATIONS.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let kind = rest.split(" |").next()?;
        ["counter", "gauge", "histogram"].contains(&kind).then(|| (name.to_owned(), kind.to_owned()))
    });
    assert_eq!(rows.collect::<Kinds>(), kinds, "docs/operations.md, Metrics");
    house.close().await;
}

/// What a model says of itself is not ours to trust: a counter that falls is taken for a restart.
#[tokio::test]
async fn a_model_that_says_too_much_turns_no_counter_back() {
    let said = |tokens: u64| {
        let chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m",
            "choices": [{ "index": 0, "delta": { "content": "x" }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": tokens, "completion_tokens": tokens },
        });
        Answer::raw(format!("data: {chunk}\n\ndata: [DONE]\n\n"))
    };
    let model = ModelServer::start(queue([said(10), said(u64::MAX), said(9)])).await;
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--openai-base-url", &model.base_url(), "--model", "openai/m"]).await;
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "a" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    for want in [10, u64::MAX, u64::MAX] {
        let prompt = serving.request("POST", "/sessions/a/prompt?wait=true").json(&json!({ "prompt": "x" }));
        assert_eq!(prompt.send(serving.address).await.json()["status"], "completed");
        let page = serving.request("GET", "/metrics").send(serving.address).await;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        for direction in ["input", "output"] {
            let key = format!("simse_model_tokens_total{{model=\"openai/m\",direction=\"{direction}\"}}");
            assert!(page.lines().any(|line| line == format!("{key} {want}")), "{key} {want}\n{page}");
        }
        let session = serving.request("GET", "/sessions/a").send(serving.address).await.json();
        for tokens in ["inputTokens", "outputTokens", "totalTokens"] {
            let told = session["usage"][tokens].as_u64();
            assert!(told >= Some(want), "{tokens}: {session}");
        }
    }
    serving.stop_well().await;
}

#[tokio::test]
async fn servers_in_one_process_count_for_themselves() {
    let (one, other) = (House::open().await, House::open().await);
    let session = one.session(json!({})).await;
    one.prompt(&session, "go").await;
    let key = "simse_turns_ended_total{outcome=\"completed\"}";
    assert_eq!((page(&one).await.0[key], page(&other).await.0[key]), (1.0, 0.0));
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn the_token_is_wanted_unless_a_setting_opens_them() {
    for (metrics_open, want) in [(false, 401), (true, 200)] {
        let token = Some("sesame".to_owned().into());
        let house = House::with(ListenOptions { token, metrics_open, ..Default::default() }, |_| {}).await;
        assert_eq!(house.call("GET", "/metrics", None).await.status, want);
        assert_eq!(house.call("POST", "/metrics", Some(json!({}))).await.status, 401);
        assert_eq!(house.call("GET", "/metrics?x=1", None).await.status, 401);
        let shown = request(house.address, "GET", "/metrics").header("authorization", "Bearer sesame");
        assert_eq!(shown.send(house.address).await.status, 200);
        house.close().await;
    }
}
