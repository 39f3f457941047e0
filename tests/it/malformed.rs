//! What comes in at the door and is no HTTP: the answer has the one envelope all the same (contract.md, Errors).

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use simse::server::ListenOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::house::House;
use crate::support::http::{PATIENCE, Reply, Stream, request};

/// How much of the connection a row uses up after its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The client goes on listening and sends no more.
    Listens,
    /// The client ends its half.
    Ends,
}

fn head(line: &str, headers: &str) -> Vec<u8> {
    format!("{line}\r\nHost: HOST\r\n{headers}\r\n").into_bytes()
}

fn post(headers: &str, body: &str) -> Vec<u8> {
    head("POST /sessions HTTP/1.1", &format!("Content-Type: application/json\r\n{headers}\r\n{body}"))
}

/// All that comes back until the connection ends, which it must do by itself and in order.
async fn told(address: SocketAddr, bytes: &[u8], then: Then) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let text = bytes.to_vec();
    let host = address.to_string();
    let bytes = match text.windows(4).position(|four| four == b"HOST") {
        Some(at) => [&text[..at], host.as_bytes(), &text[at + 4..]].concat(),
        None => text,
    };
    // What is too large may be refused before all of it is sent.
    let _ = socket.write_all(&bytes).await;
    if then == Then::Ends {
        socket.shutdown().await.unwrap();
    }
    let mut all = Vec::new();
    let reading = socket.read_to_end(&mut all);
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(read) => drop(read.expect("the connection broke")),
        Err(_) => panic!("the connection stays open: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(100)])),
    }
    all
}

/// The only answer in `bytes`: nothing may stand behind it.
fn only(what: &str, bytes: &[u8]) -> Reply {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("{what}: no answer: {}", String::from_utf8_lossy(bytes)));
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = text.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()));
    let reply = Reply { status, headers: headers.collect(), body: bytes[end + 4..].to_vec() };
    assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()), "{what}: {reply:?}");
    reply
}

#[tokio::test]
async fn what_is_no_http_gets_the_envelope() {
    let house = House::open().await;
    let get = "GET /health HTTP/1.1";
    let many: String = (0..101).map(|n| format!("X-{n}: y\r\n")).collect();
    let long = "x".repeat(70_000);
    let (bad, large) = ("INVALID_ARGUMENT", "PAYLOAD_TOO_LARGE");
    let (listens, ends) = (Then::Listens, Then::Ends);
    #[rustfmt::skip]
    let table: Vec<(&str, Vec<u8>, Then, u16, &str)> = vec![
        ("words", b"hello, is anybody there?\r\n\r\n".to_vec(), listens, 400, bad),
        ("words without an end", b"hello".to_vec(), ends, 400, bad),
        ("half a head", b"GET /health HTTP/1.1\r\nHost: x".to_vec(), ends, 400, bad),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), listens, 400, bad),
        ("zeroes", vec![0; 1000], listens, 400, bad),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), listens, 400, bad),
        ("HTTP/2 in name", head("GET /health HTTP/2.0", ""), listens, 400, bad),
        ("HTTP/3", head("GET /health HTTP/3", ""), listens, 400, bad),
        ("HTTP/1.2", head("GET /health HTTP/1.2", ""), listens, 400, bad),
        ("HTTP/0.9", b"GET /health\r\n\r\n".to_vec(), listens, 400, bad),
        ("no path", b"GET\r\n\r\n".to_vec(), listens, 400, bad),
        ("a method that is none", head("G@T /health HTTP/1.1", ""), listens, 400, bad),
        ("a path with a control character", head("GET /he\x01lth HTTP/1.1", ""), listens, 400, bad),
        ("a path that is no address", head("GET http://[::/health HTTP/1.1", ""), listens, 400, bad),
        ("a header without a colon", head(get, "Nonsense\r\n"), listens, 400, bad),
        ("a name with a space", head(get, "X Y: z\r\n"), listens, 400, bad),
        ("a folded header", head(get, "X: y\r\n z\r\n"), listens, 400, bad),
        ("a control character in a header", head(get, "X: \x01\r\n"), listens, 400, bad),
        ("a length in words", post("Content-Length: two\r\n", "{}"), listens, 400, bad),
        ("a negative length", post("Content-Length: -2\r\n", "{}"), listens, 400, bad),
        ("two lengths", post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), listens, 400, bad),
        ("a length beyond all numbers", post("Content-Length: 99999999999999999999\r\n", "{}"), listens, 400, bad),
        ("the largest length", post("Content-Length: 18446744073709551615\r\n", "{}"), listens, 413, large),
        ("a length of 14 digits", post("Content-Length: 10000000000000\r\n", "{}"), listens, 413, large),
        ("a length and chunks", post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), listens, 400, bad),
        ("chunks and a length", post("Transfer-Encoding: chunked\r\ncontent-length:2\r\n", "2\r\n{}\r\n0\r\n\r\n"), listens, 400, bad),
        ("chunks and a length of none", post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "0\r\n\r\n"), listens, 400, bad),
        ("a length, chunks and a request in the body", post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"), listens, 400, bad),
        ("a coding that is not ours", post("Transfer-Encoding: gzip\r\n", "{}"), listens, 400, bad),
        ("chunks in HTTP/1.0", head("POST /sessions HTTP/1.0", "Transfer-Encoding: chunked\r\n"), listens, 400, bad),
        ("a chunk without a size", post("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), listens, 400, bad),
        ("a chunk that is longer than it says", post("Transfer-Encoding: chunked\r\n", "1\r\n{}\r\n0\r\n\r\n"), listens, 400, bad),
        ("a chunk that is cut off", post("Transfer-Encoding: chunked\r\n", "5\r\n{}"), ends, 400, bad),
        ("a body that is cut off", post("Content-Length: 50\r\n", "{}"), ends, 400, bad),
        ("a long path", head(&format!("GET /{long} HTTP/1.1"), ""), listens, 414, large),
        ("a long method", head(&format!("{long} / HTTP/1.1"), ""), listens, 414, large),
        ("a long header", head(get, &format!("X: {long}\r\n")), listens, 431, large),
        ("many headers", head(get, &many), listens, 431, large),
    ];
    for (what, bytes, then, status, code) in table {
        let reply = only(what, &told(house.address, &bytes, then).await);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{what}: {:?}", reply.json());
        assert_eq!(reply.header("connection"), Some("close"), "{what}");
        assert!(reply.header("x-request-id").is_some() && reply.header("date").is_some(), "{what}: {reply:?}");
        if status == 413 {
            // Whoever sends too much hears how much would do.
            let bytes_max = ListenOptions::default().body_bytes_max;
            let details = reply.json()["error"]["details"].clone();
            let told = (&details["expected"], &details["bytesMax"]);
            assert_eq!(told, (&json!(format!("at most {bytes_max} bytes")), &json!(bytes_max)), "{what}");
        }
    }
    house.close().await;
}

#[tokio::test]
async fn what_the_head_shows_is_refused_before_the_body_and_told_to_who_sends_it() {
    let house = House::open().await;
    let json = "Content-Type: application/json\r\n";
    let body = vec![b' '; 3 << 20];
    let long = format!("Content-Length: {}\r\n", body.len());
    #[rustfmt::skip]
    let table = [
        ("14 digits", format!("{json}Content-Length: 10000000000000\r\n"), 413, "PAYLOAD_TOO_LARGE", "body"),
        ("gzip", format!("{json}Content-Encoding: gzip\r\n{long}"), 415, "INVALID_ARGUMENT", "Content-Encoding"),
        ("one of two", format!("{json}Content-Encoding: identity\r\nContent-Encoding: br\r\n{long}"), 415, "INVALID_ARGUMENT", "Content-Encoding"),
        ("in chunks", format!("{json}Content-Encoding: deflate\r\nTransfer-Encoding: chunked\r\n"), 415, "INVALID_ARGUMENT", "Content-Encoding"),
        ("a form", format!("Content-Type: text/plain\r\n{long}"), 400, "INVALID_ARGUMENT", "Content-Type"),
        ("another page", format!("{json}Origin: http://attacker.example\r\n{long}"), 403, "FORBIDDEN", "Origin"),
    ];
    for (what, headers, status, code, field) in table {
        let head = String::from_utf8(head("POST /sessions HTTP/1.1", &headers)).unwrap();
        let head = head.replace("HOST", &house.address.to_string());
        // Of the body nothing has come when the answer is there, and the client goes on sending.
        let mut socket = TcpStream::connect(house.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Stream::read_head(socket).await;
        let reply = Reply { status: answer.status, body: answer.rest().await, headers: answer.headers.clone() };
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{what}: {reply:?}");
        assert_eq!(reply.json()["error"]["details"]["field"], field, "{what}");
        // Or it listens only when all is sent.
        let mut socket = TcpStream::connect(house.address).await.unwrap();
        let chunk = if what == "in chunks" { format!("{:x}\r\n", body.len()) } else { String::new() };
        socket.write_all(&[head.as_bytes(), chunk.as_bytes(), &body].concat()).await.expect(what);
        assert_eq!(Stream::read_head(socket).await.status, status, "{what}");
    }
    let plain = request(house.address, "POST", "/sessions").header("Content-Encoding", "Identity").json(&json!({}));
    assert_eq!(plain.send(house.address).await.status, 201, "no coding is none");
    house.close().await;
}

#[tokio::test]
async fn methods_that_nobody_has_are_answered_by_the_routes() {
    let house = House::open().await;
    for (line, status) in [
        ("BREW /sessions HTTP/1.1", 405),
        ("TRACE /health HTTP/1.1", 405),
        ("BREW /nowhere HTTP/1.1", 404),
        ("OPTIONS * HTTP/1.1", 404),
        ("CONNECT example.com:443 HTTP/1.1", 403),
    ] {
        let bytes = head(line, "Connection: close\r\n");
        let reply = only(line, &told(house.address, &bytes, Then::Listens).await);
        assert_eq!(reply.status, status, "{line}: {reply:?}");
        assert!(!reply.code().is_empty());
    }
    house.close().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_a_408_and_silence_is_silence() {
    let options = ListenOptions { head_timeout: Duration::from_millis(300), ..Default::default() };
    let house = House::with(options, |_| {}).await;
    let reply = only("half", &told(house.address, b"GET /health HTTP/1.1\r\nHo", Then::Listens).await);
    assert_eq!((reply.status, reply.code().as_str()), (408, "TIMEOUT"));
    assert_eq!(reply.header("connection"), Some("close"));
    for nothing in [&b""[..], b"\r\n"] {
        assert_eq!(told(house.address, nothing, Then::Listens).await, b"", "who asks nothing is told nothing");
    }
    house.close().await;
}

#[tokio::test]
async fn a_good_request_before_a_bad_one_is_answered_as_ever() {
    let house = House::open().await;
    let good = request(house.address, "GET", "/health").bytes();
    for pause in [false, true] {
        let mut socket = TcpStream::connect(house.address).await.unwrap();
        socket.write_all(&[good.clone(), good.clone()].concat()).await.unwrap();
        if pause {
            // The bad one comes on a connection that has answered already.
            socket.readable().await.unwrap();
        }
        socket.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let mut all = Vec::new();
        tokio::time::timeout(PATIENCE, socket.read_to_end(&mut all)).await.expect("stays open").unwrap();
        let text = String::from_utf8(all).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{text}");
        let last = text.rfind("HTTP/1.1 ").unwrap();
        let reply = only("the bad one", &text.as_bytes()[last..]);
        assert_eq!((reply.status, reply.code().as_str()), (400, "INVALID_ARGUMENT"));
    }
    house.close().await;
}

#[tokio::test]
async fn a_connection_serves_many_requests_with_errors_between() {
    let house = House::open().await;
    let mut socket = TcpStream::connect(house.address).await.unwrap();
    for round in 0..20 {
        let (path, status) = if round % 2 == 0 { ("/health", 200) } else { ("/nowhere", 404) };
        socket.write_all(&request(house.address, "GET", path).bytes()).await.unwrap();
        let mut answer = Stream::read_head(socket).await;
        assert_eq!(answer.status, status, "round {round}");
        answer.rest().await;
        socket = answer.into_socket();
    }
    house.close().await;
}

#[tokio::test]
async fn a_type_that_is_given_twice_is_refused() {
    let house = House::open().await;
    let twice = request(house.address, "POST", "/sessions").json(&json!({})).header("Content-Type", "text/plain");
    let reply = twice.send(house.address).await;
    assert_eq!((reply.status, reply.json()["error"]["details"]["field"].clone()), (400, json!("content-type")));
    house.close().await;
}
