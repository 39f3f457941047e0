//! Traces and logs by OTLP: a collector of the test's own takes them, in the bytes of protobuf; what is followed across
//! processes, and what a collector that is not there costs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use simse::base::trace::{Collector, secret};
use simse::config::Storage;
use simse::server::ListenOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::binary::Serving;
use crate::support::house::{Does, House};
use crate::support::http::request;
use crate::support::model_server::{Answer, ModelServer, queue};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Requests as they came: the head in lower case, and the body.
type Heard = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Somebody who takes every request.
async fn listener() -> (SocketAddr, Heard) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let heard = Heard::default();
    let told = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            tokio::spawn(take(stream, Arc::clone(&told)));
        }
    });
    (address, heard)
}

async fn take(mut stream: TcpStream, heard: Heard) {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        bytes.extend_from_slice(&piece[..length]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let whole = end + 4 + length.unwrap_or(0_usize);
        if bytes.len() >= whole {
            heard.lock().push((head, bytes[end + 4..whole].to_vec()));
            bytes.drain(..whole);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    }
}

/// A field of a message of protobuf.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message. Panics at what is none.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let mut next = |length: usize| {
            let (head, rest) = bytes.split_at(length);
            bytes = rest;
            head.to_vec()
        };
        let field = match tag & 7 {
            1 => Field::Number(u64::from_le_bytes(next(8).try_into().unwrap())),
            5 => Field::Number(u32::from_le_bytes(next(4).try_into().unwrap()).into()),
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes);
                let (head, rest) = bytes.split_at(usize::try_from(length).unwrap());
                bytes = rest;
                Field::Bytes(head.to_vec())
            }
            wire => panic!("no wire type: {wire}"),
        };
        all.push((tag >> 3, field));
    }
    all
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return number;
        }
    }
    panic!("no end of a number")
}

/// All messages in field `number`.
fn inner(message: &[(u64, Field)], number: u64) -> Vec<Vec<u8>> {
    let bytes = |(at, field): &(u64, Field)| match field {
        Field::Bytes(bytes) if *at == number => Some(bytes.clone()),
        _ => None,
    };
    message.iter().filter_map(bytes).collect()
}

fn text(message: &[(u64, Field)], number: u64) -> String {
    inner(message, number).pop().map(|bytes| String::from_utf8(bytes).unwrap()).unwrap_or_default()
}

fn hex(message: &[(u64, Field)], number: u64) -> String {
    inner(message, number).pop().unwrap_or_default().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A `KeyValue` as a pair.
fn pair(bytes: &[u8]) -> (String, String) {
    let message = fields(bytes);
    let value = fields(&inner(&message, 2)[0]);
    let shown = match &value[0] {
        (1, Field::Bytes(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
        (3, Field::Number(number)) => number.to_string(),
        other => panic!("{other:?}"),
    };
    (text(&message, 1), shown)
}

/// A span or a line of the log.
#[derive(Debug)]
struct Record {
    name: String,
    trace: String,
    span: String,
    parent: String,
    attributes: BTreeMap<String, String>,
    failed: bool,
}

/// What the requests to `path` told, in their order; each from the server of that name.
fn records(heard: &Heard, path: &str) -> Vec<Record> {
    let mut all = Vec::new();
    for (head, body) in heard.lock().iter().filter(|(head, _)| head.starts_with(&format!("post {path} "))) {
        assert!(head.contains("content-type: application/x-protobuf") && head.contains("x-key: sesame"), "{head}");
        for of_resource in inner(&fields(body), 1) {
            let of_resource = fields(&of_resource);
            let resource = fields(&inner(&of_resource, 1)[0]);
            let named = inner(&resource, 1).iter().any(|at| pair(at) == ("service.name".into(), "house".into()));
            assert!(named, "the resource has its name");
            for record in inner(&fields(&inner(&of_resource, 2)[0]), 2) {
                all.push(record_of(&fields(&record), path == "/v1/logs"));
            }
        }
    }
    all
}

fn record_of(message: &[(u64, Field)], log: bool) -> Record {
    let [name, trace, span, attributes] = if log { [5, 9, 10, 6] } else { [5, 1, 2, 9] };
    let failed = inner(message, 15).first().is_some_and(|status| fields(status).contains(&(3, Field::Number(2))));
    Record {
        name: if log { text(&fields(&inner(message, name)[0]), 1) } else { text(message, name) },
        trace: hex(message, trace),
        span: hex(message, span),
        parent: if log { String::new() } else { hex(message, 4) },
        attributes: inner(message, attributes).iter().map(|bytes| pair(bytes)).collect(),
        failed,
    }
}

fn collector(address: SocketAddr) -> Collector {
    Collector {
        endpoint: format!("http://{address}"),
        headers: vec![("x-key".into(), secret::Text("sesame".into()))],
        resource: vec![("service.name".into(), "house".into())],
    }
}

#[tokio::test]
async fn a_request_is_followed_to_its_last_call() {
    let (address, heard) = listener().await;
    let house = House::with(ListenOptions::default(), |settings| settings.collector = Some(collector(address))).await;
    std::fs::write(house.work.path().join("a.txt"), "what the file says").unwrap();
    let session = house.session(json!({})).await;
    house.round(&[Does::Says("what the model says"), Does::Calls("fs_read", json!({ "path": "a.txt" }))]);
    let path = format!("/sessions/{session}/prompt?wait=true");
    let asked = request(house.address, "POST", &path).json(&json!({ "prompt": "what the user says" }));
    let reply = asked.header("traceparent", PARENT).header("x-request-id", "req-7").send(house.address).await;
    assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("req-7")));
    let turn = reply.json()["turnId"].as_str().unwrap().to_owned();
    house.round(&[Does::Fails("no")]);
    house.prompt(&session, "again").await;
    house.close().await;

    let spans = records(&heard, "/v1/traces");
    let ours: Vec<&Record> = spans.iter().filter(|span| span.trace == TRACE).collect();
    let one = |name: &str| -> &Record {
        ours.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
    };
    let door = one("POST /sessions/{sessionId}/prompt");
    assert_eq!((door.parent.as_str(), door.failed), ("00f067aa0ba902b7", false));
    assert_eq!(door.attributes["http.response.status_code"], "200");
    assert_eq!(door.attributes["simse.request_id"], "req-7");
    let worked = one("turn");
    assert_eq!(worked.parent, door.span);
    for (name, value) in
        [("session_id", session.as_str()), ("turn_id", &turn), ("request_id", "req-7"), ("turn.outcome", "completed")]
    {
        assert_eq!(worked.attributes[&format!("simse.{name}")], value, "{worked:?}");
    }
    assert_eq!(
        (one("execute_tool fs_read").parent.as_str(), one("chat test/puppet").parent.as_str()),
        (worked.span.as_str(), worked.span.as_str())
    );
    assert_eq!(ours.iter().filter(|span| span.name == "chat test/puppet").count(), 2);
    assert_eq!(ours.len(), 5);
    let failed: Vec<_> = spans.iter().filter(|span| span.failed).map(|span| span.name.as_str()).collect();
    assert_eq!(failed.iter().filter(|name| ["chat test/puppet", "turn"].contains(name)).count(), 2, "{failed:?}");
    for (_, body) in heard.lock().iter() {
        let said = String::from_utf8_lossy(body);
        assert!(!["user says", "model says", "file says", "a.txt"].iter().any(|words| said.contains(words)), "{said}");
    }
}

/// Also without a collector of our own, a caller's trace goes on at the provider.
#[tokio::test]
async fn a_provider_is_told_whose_work_it_is() {
    let (address, heard) = listener().await;
    let (told, _) = listener().await;
    for collected in [false, true] {
        heard.lock().clear();
        let house = House::with(ListenOptions::default(), |settings| {
            settings.openai.base_url = Some(format!("http://{address}/v1").into());
            settings.collector = collected.then(|| collector(told));
        })
        .await;
        let session = house.session(json!({ "model": "openai/x" })).await;
        let path = format!("/sessions/{session}/prompt");
        let prompt = request(house.address, "POST", &path).json(&json!({ "prompt": "x" }));
        assert_eq!(prompt.header("traceparent", PARENT).send(house.address).await.status, 202);
        let head = loop {
            if let Some((head, _)) = heard.lock().first() {
                break head.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let line = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or_else(|| panic!("{head}"));
        assert_eq!(line == PARENT, !collected, "{line}");
        assert!(line.starts_with(&format!("00-{TRACE}-")), "{line}");
        house.call("POST", &format!("/sessions/{session}/abort"), Some(json!({}))).await;
        house.close().await;
    }
}

/// The lines of the log go there as well, each with the request that it belongs to.
#[tokio::test]
async fn the_log_is_copied_and_flushed_at_the_end() {
    let (address, heard) = listener().await;
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=sesame".to_owned()),
        ("OTEL_SERVICE_NAME", "house".to_owned()),
    ];
    let serving = Serving::start_with(&home, &[], &variables).await;
    let asked = serving.request("GET", "/tools").header("x-request-id", "req-9");
    assert_eq!(asked.send(serving.address).await.status, 200);
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0), "{err}");
    assert!(!err.contains("sesame"), "{err}");
    let lines = records(&heard, "/v1/logs");
    let line = lines.iter().find(|line| line.attributes.get("requestId").is_some_and(|id| id == "req-9"));
    let line = line.unwrap_or_else(|| panic!("{lines:#?}"));
    assert_eq!((line.name.as_str(), line.attributes["path"].as_str()), ("request", "/tools"));
    assert!(lines.iter().any(|line| line.name == "stopped"), "{lines:#?}");
    assert!(records(&heard, "/v1/traces").iter().any(|span| span.name == "GET /tools"));
}

#[tokio::test]
async fn a_collector_that_is_not_there_is_told_once_and_holds_nothing_up() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--otlp-endpoint", &format!("http://{nobody}")]).await;
    for _ in 0..600 {
        assert_eq!(serving.request("GET", "/health").send(serving.address).await.status, 200);
    }
    let (code, _, err) = serving.stop().await;
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(err.matches("the collector takes nothing").count(), 1, "{err}");
}

#[tokio::test]
async fn without_a_collector_nothing_is_told() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_owned();
    let house =
        House::with(ListenOptions::default(), |settings| settings.storage = Storage::Directory(directory)).await;
    assert!(!house.app.tracer().is_on());
    let session = house.session(json!({})).await;
    assert_eq!(house.prompt(&session, "x").await["status"], "completed");
    house.close().await;
}

/// What waits is still somebody's work when the server is another.
#[tokio::test]
async fn a_prompt_that_waits_belongs_to_its_request_over_a_restart() {
    let model = ModelServer::start(queue([Answer::silence(), Answer::text(&["done"])])).await;
    let home = tempfile::tempdir().unwrap();
    let arguments = ["--openai-base-url", &model.base_url(), "--model", "openai/x"];
    let mut serving = Serving::start(&home, &arguments).await;
    let create = serving.request("POST", "/sessions").json(&json!({ "sessionId": "s" }));
    assert_eq!(create.send(serving.address).await.status, 201);
    let prompt = |text: &str| serving.request("POST", "/sessions/s/prompt").json(&json!({ "prompt": text }));
    assert_eq!(prompt("first").send(serving.address).await.status, 202);
    model.came(1).await;
    let second = prompt("second").header("traceparent", PARENT).header("x-request-id", "req-2");
    let queued = second.send(serving.address).await;
    assert_eq!((queued.status, &queued.json()["status"]), (202, &json!("queued")));
    serving.child.kill().await.unwrap();
    let again = Serving::start(&home, &arguments).await;
    model.came(2).await;
    let requests = model.requests();
    assert_eq!((requests[0].header("traceparent"), requests[1].header("traceparent")), (None, Some(PARENT)));
    again.stop().await;
}
