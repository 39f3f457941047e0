//! Attacks at the door of the real server (contract.md, Doors): what each is, and that nothing comes of it.
//!
//! What is no HTTP at all stands in `malformed`, web pages in `guard` too, other people's tokens in `tokens`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::binary::Serving;
use crate::support::http::{PATIENCE, Reply, Stream};
use crate::support::program::most_resident_mb;
use crate::support::socket::Socket;

/// All that comes back until the connection ends.
async fn told(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // What is refused early may not be taken to its end.
    let _ = socket.write_all(bytes).await;
    let mut all = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut all)).await;
    assert!(read.is_ok(), "the connection stays open: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
    String::from_utf8_lossy(&all).into_owned()
}

/// The statuses of the answers in what came back.
fn statuses(text: &str) -> Vec<u16> {
    let lines = text.split("HTTP/1.1 ").skip(1);
    lines.map(|rest| rest.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0)).collect()
}

async fn session_count(serving: &Serving) -> usize {
    let reply = serving.request("GET", "/sessions").send(serving.address).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["items"].as_array().unwrap().len()
}

async fn is_well(serving: &Serving) {
    let reply = serving.request("GET", "/health").send(serving.address).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("ok")));
}

/// A request in text. `HOST` and `TOKEN` stand for themselves.
fn text(serving: &Serving, request: &str) -> Vec<u8> {
    let (host, token) = (serving.address.to_string(), serving.token().unwrap_or_default());
    request.replace("HOST", &host).replace("TOKEN", &token).into_bytes()
}

#[tokio::test]
async fn no_page_writes_or_reads() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let own = format!("http://{}", serving.address);
    let rebound = format!("attacker.example:{}", serving.address.port());
    let post = || serving.request("POST", "/sessions");
    let form = |kind: &str, body: &[u8]| {
        post().header("Origin", "https://attacker.example").header("Content-Type", kind).body(body)
    };
    let silent = |kind: &str, body: &[u8]| post().header("Content-Type", kind).body(body);
    let multipart = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{}\r\n--b--\r\n";
    let body = json!({});
    #[rustfmt::skip]
    let table = [
        // The token is there in all of them: it is not what keeps pages out.
        ("rebinding", post().without("Host").header("Host", &rebound).json(&body), 403),
        ("rebinding, reading", serving.request("GET", "/sessions").without("Host").header("Host", &rebound), 403),
        ("rebinding, health", serving.request("GET", "/health").without("Host").header("Host", &rebound), 403),
        ("rebinding with an own Origin", post().without("Host").header("Host", &rebound).header("Origin", &format!("http://{rebound}")).json(&body), 403),
        ("rebinding by a trailing dot", post().without("Host").header("Host", &format!("localhost.:{}", serving.address.port())).json(&body), 403),
        ("rebinding by user information", post().without("Host").header("Host", &format!("localhost@{rebound}")).json(&body), 403),
        ("form, urlencoded", form("application/x-www-form-urlencoded", b"a=b"), 403),
        ("form, multipart", form("multipart/form-data; boundary=b", multipart), 403),
        ("form, text/plain", form("text/plain", b"{\"a\":\"=\"}"), 403),
        ("form, json", form("application/json", b"{}"), 403),
        ("form without an Origin, urlencoded", silent("application/x-www-form-urlencoded", b"a=b"), 400),
        ("form without an Origin, multipart", silent("multipart/form-data; boundary=b", multipart), 400),
        ("form without an Origin, text/plain", silent("text/plain; application/json", b"{}"), 400),
        ("form without an Origin, no type", post().body(b"{}"), 400),
        ("two types", silent("application/json, text/plain", b"{}"), 400),
        ("a sandboxed frame", post().header("Origin", "null").json(&body), 403),
        ("two Origins", post().header("Origin", &own).header("Origin", "https://attacker.example").json(&body), 400),
        ("an Origin that begins like ours", post().header("Origin", &format!("{own}.attacker.example")).json(&body), 403),
        ("an Origin of another scheme", post().header("Origin", &own.replace("http", "https")).json(&body), 403),
        ("a fetch without Origin", post().header("Sec-Fetch-Site", "cross-site").json(&body), 403),
        ("a fetch of the same site", post().header("Sec-Fetch-Site", "same-site").json(&body), 403),
    ];
    for (what, request, status) in table {
        let reply = request.send(serving.address).await;
        assert_eq!(reply.status, status, "{what}: {reply:?}");
        assert!(
            !reply.code().is_empty() && !reply.headers.iter().any(|(n, _)| n.starts_with("access-control-")),
            "{what}"
        );
    }
    for path in ["/sessions", "/health", "/nowhere"] {
        let preflight = serving.request("OPTIONS", path).header("Origin", "https://attacker.example");
        let preflight = preflight.header("Access-Control-Request-Method", "POST");
        let reply = preflight.header("Access-Control-Request-Headers", "authorization").send(serving.address).await;
        assert_eq!(reply.status, 403, "{path}: {reply:?}");
        assert!(!reply.headers.iter().any(|(name, _)| name.starts_with("access-control-")), "{path}: {reply:?}");
    }
    assert_eq!(session_count(&serving).await, 0);
    assert_eq!(post().header("Origin", &own).json(&body).send(serving.address).await.status, 201);
    serving.stop().await;
}

/// Each row can be read in two ways. However it is read here, the request that is hidden in it is not run, and the
/// connection ends, so that nothing behind it is taken for another's.
#[tokio::test]
async fn nothing_is_smuggled() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let hidden = "POST /sessions HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", text(&serving, hidden).len());
    let head = |headers: &str| {
        format!(
            "POST /nowhere HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\n{headers}\r\n"
        )
    };
    let length = text(&serving, hidden).len();
    let chunked = "Transfer-Encoding: chunked\r\n";
    #[rustfmt::skip]
    let table = [
        ("CL.TE", head(&format!("Content-Length: 4\r\n{chunked}")) + "0\r\n\r\n" + hidden),
        ("TE.CL", head(&format!("{chunked}Content-Length: 4\r\n")) + &chunk),
        ("CL.CL", head(&format!("Content-Length: 0\r\nContent-Length: {length}\r\n")) + hidden),
        ("CL.CL in one", head(&format!("Content-Length: 0, {length}\r\n")) + hidden),
        ("a length with a sign", head("Content-Length: +0\r\n") + hidden),
        ("a length in hexadecimal", head("Content-Length: 0x0\r\n") + hidden),
        ("a length with a blank inside", head("Content-Length: 0 0\r\n") + hidden),
        ("an empty length", head("Content-Length: \r\n") + hidden),
        ("a blank before the colon", head("Transfer-Encoding : chunked\r\n") + "0\r\n\r\n" + hidden),
        ("a tab before the colon", head("Transfer-Encoding\t: chunked\r\n") + "0\r\n\r\n" + hidden),
        ("a folded coding", head("Transfer-Encoding:\r\n chunked\r\n") + "0\r\n\r\n" + hidden),
        ("a folded length", head(&format!("Content-Length: 0\r\n X: y\r\n{chunked}")) + "0\r\n\r\n" + hidden),
        ("a header that begins with a blank", head(&format!(" {chunked}")) + "0\r\n\r\n" + hidden),
        ("identity, chunked", head("Transfer-Encoding: identity\r\n") + hidden),
        ("xchunked", head("Transfer-Encoding: xchunked\r\n") + "0\r\n\r\n" + hidden),
        ("chunked, identity", head("Transfer-Encoding: chunked, identity\r\n") + "0\r\n\r\n" + hidden),
        ("chunked twice", head("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n") + "0\r\n\r\n" + hidden),
        ("a quoted coding", head("Transfer-Encoding: \"chunked\"\r\n") + "0\r\n\r\n" + hidden),
        ("a vertical tab before the coding", head("Transfer-Encoding: \x0bchunked\r\n") + "0\r\n\r\n" + hidden),
        ("a carriage return alone", head("X: y\rTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + hidden),
        ("a null in a header", head("X: \0\r\n") + hidden),
        ("a chunk size with a sign", head(chunked) + "+0\r\n\r\n" + hidden),
        ("a chunk size with 0x", head(chunked) + "0x0\r\n\r\n" + hidden),
        ("a chunk size that overflows", head(chunked) + "10000000000000000\r\n\r\n" + hidden),
        ("a chunk size with a line feed in its extension", head(chunked) + "0;a\nb\r\n\r\n" + hidden),
        ("no end behind a chunk", head(chunked) + "2\r\n{}0\r\n\r\n" + hidden),
        ("gzip, chunked", head("Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n" + hidden),
        ("chunked, chunked", head("Transfer-Encoding: chunked, chunked\r\n") + "0\r\n\r\n" + hidden),
        ("chunked in two headers", head(&format!("{chunked}{chunked}")) + "0\r\n\r\n" + hidden),
        ("another coding in a header before", head(&format!("Transfer-Encoding: gzip\r\n{chunked}")) + "0\r\n\r\n" + hidden),
        ("an empty coding before", head("Transfer-Encoding: , chunked\r\n") + "0\r\n\r\n" + hidden),
        ("chunked with a parameter", head("Transfer-Encoding: chunked;q=1\r\n") + "0\r\n\r\n" + hidden),
        ("chunks in HTTP/1.0", head(chunked).replace("HTTP/1.1", "HTTP/1.0") + "0\r\n\r\n" + hidden),
    ];
    for (what, request) in table {
        let answer = told(serving.address, &text(&serving, &request)).await;
        let statuses = statuses(&answer);
        assert!(!statuses.contains(&201), "{what}: the hidden request ran: {answer}");
        assert!(statuses.len() <= 1 && statuses.iter().all(|status| matches!(status, 400 | 404)), "{what}: {answer}");
        if what.contains("chunked") || what.contains("coding") {
            assert!(statuses == [400] && answer.contains("connection: close"), "{what}: {answer}");
        }
        assert_eq!(session_count(&serving).await, 0, "{what}");
    }
    is_well(&serving).await;
    serving.stop().await;
}

/// Whatever came before it in its connection: a request that can be read in two ways is none.
#[tokio::test]
async fn nothing_is_smuggled_behind_what_can_hardly_be_followed() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let head = |line: &str, headers: &str| {
        format!(
            "{line} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\n{headers}\r\n"
        )
    };
    let zeros = "0".repeat(70);
    let chunked = "Transfer-Encoding: chunked\r\n";
    let post = |headers: &str| head("POST /nowhere", headers);
    #[rustfmt::skip]
    let before = [
        ("zeroes before a length", post(&format!("Content-Length: {zeros}2\r\n")) + "{}"),
        ("zeroes for a length", head("GET /health", &format!("Content-Length: {zeros}\r\n"))),
        ("zeroes before a size", post(chunked) + &zeros + "2\r\n{}\r\n0\r\n\r\n"),
        ("a head in a chunk with zeroes before its size", post(chunked) + &format!("{zeros}50\r\n\r\nPOST /nowhere HTTP/1.1\r\nContent-Length: 90000\r\n\r\n{}\r\n0\r\n\r\n", " ".repeat(29))),
        ("line feeds in trailers", post(chunked) + "2\r\n{}\r\n0\r\nX: y\n\nz\r\n\r\n"),
        ("a line feed for trailers", post(chunked) + "2\r\n{}\r\n0\r\n\nX: y\r\n\r\n"),
    ];
    let twice = |headers: &str| head("POST /sessions", headers) + "2\r\n{}\r\n0\r\n\r\n";
    let smuggled = [twice(&format!("Content-Length: 4\r\n{chunked}")), twice("Transfer-Encoding: gzip, chunked\r\n")];
    for (what, before) in &before {
        for hidden in &smuggled {
            let answer = told(serving.address, &text(&serving, &format!("{before}{hidden}"))).await;
            let statuses = statuses(&answer);
            assert!(!statuses.contains(&201) && statuses.len() <= 2, "{what}: {answer}");
            assert_eq!(session_count(&serving).await, 0, "{what}");
        }
    }
    is_well(&serving).await;
    serving.stop().await;
}

/// What looks odd and has one meaning only: the body ends where every reader sees its end.
#[tokio::test]
async fn what_is_odd_and_clear_is_read_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let head = |headers: &str| {
        format!(
            "POST /sessions HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\r\n"
        )
    };
    #[rustfmt::skip]
    let table = [
        ("the same length twice", head("Content-Length: 2\r\nContent-Length: 2\r\n") + "{}", [201, 400]),
        ("a chunk's extension", head("Transfer-Encoding: chunked\r\n") + "2;name=\"value\"\r\n{}\r\n0\r\n\r\n", [201, 201]),
        ("zeroes before a size", head("Transfer-Encoding: chunked\r\n") + "0002\r\n{}\r\n0\r\n\r\n", [201, 201]),
        ("trailers", head("Transfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\nHost: attacker.example\r\nContent-Length: 9\r\n\r\n", [201, 201]),
        ("capitals", head("TRANSFER-ENCODING: CHUNKED\r\n") + "2\r\n{}\r\n0\r\n\r\n", [201, 201]),
    ];
    for (what, request, allowed) in table {
        let answer = told(serving.address, &text(&serving, &request)).await;
        let statuses = statuses(&answer);
        assert!(statuses.len() == 1 && allowed.contains(&statuses[0]), "{what}: {answer}");
    }
    // Megabytes of extensions are no chunk.
    let long = head("Transfer-Encoding: chunked\r\n") + "2;" + &"x".repeat(1 << 20) + "\r\n{}\r\n0\r\n\r\n";
    let answer = told(serving.address, &text(&serving, &long)).await;
    assert!(!answer.contains("201 Created"), "{answer}");
    is_well(&serving).await;
    serving.stop().await;
}

#[tokio::test]
async fn no_id_leads_anywhere_else() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    let long = "a".repeat(257);
    let longer = "a".repeat(60_000);
    #[rustfmt::skip]
    let ids = [
        "..", ".", "%2e%2e", "%2e", "%2E%2E%2Ftoken", "..%2ftoken", "..%5ctoken", "%00", "s%00", "%0a", "s%0d%0aX:%20y",
        "%252e%252e", "s%20", "%20", "%", "%zz", "%ff", "%c0%ae%c0%ae", "%e2%80%ae", "~", "*", "s;x", "s,", "'%20OR%201=1--", "@ci", "%40ci",
        "$(id)", "%7B%7D", "s%2F..%2Fs", "s%2Fevents", long.as_str(),
    ];
    for id in ids {
        for path in [format!("/sessions/{id}"), format!("/sessions/{id}/events"), format!("/sessions/s/turns/{id}")] {
            let reply = serving.request("GET", &path).send(serving.address).await;
            assert!(matches!(reply.status, 400 | 404), "{path}: {reply:?}");
            assert!(!reply.code().is_empty());
        }
        let reply = serving.request("DELETE", &format!("/permissions/grants/{id}")).send(serving.address).await;
        assert!(matches!(reply.status, 400 | 404), "{id}: {reply:?}");
        let raw = id.replace("%2e", ".").replace("%2E", ".").replace("%2F", "/").replace("%2f", "/");
        let chosen = serving.request("POST", "/sessions").json(&json!({ "sessionId": raw }));
        let reply = chosen.send(serving.address).await;
        assert_eq!(reply.status, 400, "{raw}: {reply:?}");
        assert_eq!(reply.json()["error"]["details"]["field"], "sessionId", "{raw}");
    }
    for path in [format!("/sessions/{longer}"), format!("/{longer}"), format!("/sessions?cursor={longer}")] {
        let reply = serving.request("GET", &path).send(serving.address).await;
        assert!(matches!(reply.status, 400 | 404 | 414), "{}", reply.status);
    }
    for path in [
        "//sessions",
        "/sessions/",
        "/./sessions",
        "/x/../sessions",
        "/sessions/../health",
        "/SESSIONS",
        "/health/",
        "/%68ealth",
    ] {
        let reply = serving.request("GET", path).send(serving.address).await;
        assert!(matches!(reply.status, 400 | 404), "{path}: {}", reply.status);
    }
    let named = serving.request("GET", "/sessions").without("Authorization").header("X-Client-ID", "../x");
    assert_eq!(named.send(serving.address).await.status, 400);
    assert_eq!(session_count(&serving).await, 0);
    serving.stop().await;
}

#[tokio::test]
async fn what_is_packed_stays_packed() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &[]).await;
    // 10 MB of zeroes in some kilobytes would be what it unfolds to.
    for coding in ["gzip", "deflate", "br", "zstd", "compress", "gzip, gzip", "x-gzip", "identity, gzip"] {
        let bomb = serving.request("POST", "/sessions").header("Content-Type", "application/json");
        let reply = bomb.header("Content-Encoding", coding).body(&[0x1f, 0x8b, 8, 0]).send(serving.address).await;
        assert_eq!((reply.status, reply.code().as_str()), (415, "INVALID_ARGUMENT"), "{coding}");
        assert_eq!(reply.json()["error"]["details"]["field"], "Content-Encoding");
    }
    // Depth and width of JSON are bounded too.
    let deep = [b"{\"title\":".to_vec(), vec![b'['; 1 << 20]].concat();
    let wide = format!("{{{}\"title\":\"x\"}}", "\"title\":\"x\",".repeat(200_000)).into_bytes();
    for body in [deep, wide] {
        let request = serving.request("POST", "/sessions").header("Content-Type", "application/json").body(&body);
        assert_eq!(request.send(serving.address).await.status, 400);
    }
    assert_eq!(session_count(&serving).await, 0);
    serving.stop().await;
}

#[tokio::test]
async fn floods_are_answered_or_refused_and_others_are_served() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--connections-max", "50", "--log-level", "error"]).await;
    // Some thousand requests in one breath, read slowly.
    let one = text(&serving, "GET /health HTTP/1.1\r\nHost: HOST\r\n\r\n");
    let mut socket = TcpStream::connect(serving.address).await.unwrap();
    let flood = one.repeat(4_999);
    let last = text(&serving, "GET /health HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n");
    let (mut reading, mut writing) = socket.split();
    let both = async {
        let write = async {
            writing.write_all(&flood).await.unwrap();
            writing.write_all(&last).await.unwrap();
        };
        let mut all = Vec::new();
        let read = reading.read_to_end(&mut all);
        let (_, read) = tokio::join!(write, read);
        read.unwrap();
        all
    };
    let all = tokio::time::timeout(PATIENCE, both).await.expect("the flood is answered");
    assert_eq!(String::from_utf8(all).unwrap().matches("HTTP/1.1 200 OK\r\n").count(), 5_000);
    // Half-open heads fill the room; one more is told so, and those that are served go on.
    let mut served = TcpStream::connect(serving.address).await.unwrap();
    served.write_all(&one).await.unwrap();
    let mut answer = Stream::read_head(served).await;
    answer.rest().await;
    let mut served = answer.into_socket();
    let mut idle = Vec::new();
    for _ in 0..49 {
        let mut socket = TcpStream::connect(serving.address).await.unwrap();
        socket.write_all(b"GET /health HTTP/1.1\r\nX-Slow: ").await.unwrap();
        idle.push(socket);
    }
    let refused = until_refused(&serving, &one).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "RESOURCE_EXHAUSTED"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    served.write_all(&one).await.unwrap();
    assert_eq!(Stream::read_head(served).await.status, 200, "who is in goes on");
    drop(idle);
    let started = Instant::now();
    while serving.request("GET", "/health").try_send(serving.address).await.is_none_or(|reply| reply.status != 200) {
        assert!(started.elapsed() < PATIENCE, "the room is not free again");
        tokio::task::yield_now().await;
    }
    serving.stop().await;
}

/// Asks until there is no room any more: the connections before it are accepted one after the other.
async fn until_refused(serving: &Serving, request: &[u8]) -> Reply {
    let started = Instant::now();
    loop {
        let mut socket = TcpStream::connect(serving.address).await.unwrap();
        socket.write_all(request).await.unwrap();
        let mut stream = Stream::read_head(socket).await;
        if stream.status != 200 {
            let body = stream.rest().await;
            return Reply { status: stream.status, headers: stream.headers, body };
        }
        assert!(started.elapsed() < PATIENCE, "nothing is refused");
    }
}

#[tokio::test]
async fn slow_heads_and_slow_bodies_are_cut_off_and_hold_up_nobody() {
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--head-timeout-ms", "700", "--body-timeout-ms", "700"]).await;
    let mut slow = Vec::new();
    let post =
        "POST /sessions HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\n";
    // A byte now and then is no sign of life.
    #[rustfmt::skip]
    let table = [
        ("a head", "GET /health HTTP/1.1\r\nHost: HOST\r\nX: ".to_owned(), "x"),
        ("a body", format!("{post}Content-Length: 100\r\n\r\n{{"), " "),
        ("a body in chunks", format!("{post}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"), "1\r\n \r\n"),
    ];
    for (what, begin, drip) in table {
        let mut socket = TcpStream::connect(serving.address).await.unwrap();
        socket.write_all(&text(&serving, &begin)).await.unwrap();
        slow.push((what, drip, socket));
    }
    let started = Instant::now();
    let drips = slow.into_iter().map(|(what, drip, socket)| async move {
        let (mut reading, mut writing) = socket.into_split();
        let dripping = async {
            while writing.write_all(drip.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::future::pending::<()>().await;
        };
        let mut all = Vec::new();
        tokio::select! {
            _ = tokio::time::timeout(PATIENCE, reading.read_to_end(&mut all)) => {}
            () = dripping => {}
        }
        (what, String::from_utf8_lossy(&all).into_owned())
    });
    let drips = futures_util::future::join_all(drips);
    let others = async {
        for _ in 0..20 {
            is_well(&serving).await;
        }
    };
    let (drips, ()) = tokio::join!(drips, others);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    for (what, answer) in drips {
        assert_eq!(statuses(&answer), [408], "{what}: {answer}");
    }
    assert_eq!(session_count(&serving).await, 0);
    serving.stop().await;
}

/// Connections that nobody says anything on take no descriptor that the server's own work needs: what is open goes on working, and
/// one more connection hears that there is no room.
#[tokio::test]
async fn connections_leave_descriptors_for_work() {
    const FILES: u32 = 256;
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start_with_files(&home, &["--model", "demo/scripted"], FILES).await;
    let health = serving.request("GET", "/health?verbose=true").send(serving.address).await.json();
    let limit = |name: &str| {
        health["limits"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["limit"].clone()
    };
    assert_eq!((limit("connections"), limit("turnsRunning")), (json!(FILES / 2), json!(FILES / 4)), "{health}");
    let own = TcpStream::connect(serving.address).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..FILES {
        idle.push(TcpStream::connect(serving.address).await.unwrap());
    }
    let refused = serving.request("GET", "/health").send(serving.address).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "RESOURCE_EXHAUSTED"));
    let request = "POST /sessions HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"sessionId\":\"s\"}";
    let prompt = "POST /sessions/s/prompt?wait=true HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\nContent-Type: application/json\r\nContent-Length: 17\r\nConnection: close\r\n\r\n{\"prompt\":\"demo\"}";
    let mut own = own;
    own.write_all(&text(&serving, &format!("{request}{prompt}"))).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, own.read_to_end(&mut answer)).await.unwrap().unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(statuses(&answer) == [201, 200] && answer.contains("\"completed\""), "{answer}");
    drop(idle);
    serving.stop().await;
}

/// Pings whose answers nobody takes: they are read no further, and the socket is cut off like any other that takes nothing.
#[tokio::test]
async fn a_flood_of_pings_takes_no_memory() {
    const TAKEN_MAX: usize = 128 << 20;
    const MORE_MB: u64 = 40;
    let home = tempfile::tempdir().unwrap();
    let serving = Serving::start(&home, &["--write-timeout-ms", "1000"]).await;
    let before = most_resident_mb(serving.child.id().unwrap());
    let bearer = format!("Authorization: Bearer {}\r\n", serving.token().unwrap());
    let mut socket = Socket::open_at(serving.address, &bearer).await.unwrap().stream;
    let ping = [&[0x89, 0x80 | 100, 0, 0, 0, 0][..], &[b'x'; 100]].concat();
    let pings = ping.repeat(1_000);
    let flood = async {
        for taken in (0..TAKEN_MAX).step_by(pings.len()) {
            if socket.write_all(&pings).await.is_err() {
                return taken;
            }
        }
        TAKEN_MAX
    };
    let taken = tokio::time::timeout(PATIENCE, flood).await.expect("it is cut off");
    assert!(taken < TAKEN_MAX, "all of it was taken");
    let after = most_resident_mb(serving.child.id().unwrap());
    assert!(after < before + MORE_MB, "{before} MB, then {after} MB for {taken} bytes");
    is_well(&serving).await;
    serving.stop().await;
}
