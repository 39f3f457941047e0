//! Who may come in (contract.md, Doors): tried on real sockets. The whole table of the checks stands with the guard itself.

use std::time::{Duration, Instant};

use serde_json::json;
use simse::server::{ListenError, ListenOptions, Server};

use crate::support::house::House;
use crate::support::http::request;

async fn sessions(house: &House) -> usize {
    house.call("GET", "/sessions", None).await.json()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn no_web_page_reaches_the_server() {
    let house = House::open().await;
    let port = house.address.port();
    let body = json!({});
    let post = || request(house.address, "POST", "/sessions");
    let rebound = format!("attacker.example:{port}");
    #[rustfmt::skip]
    let table = [
        // A name that was pointed at this machine: DNS rebinding.
        ("rebinding", post().without("host").header("Host", &rebound).json(&body), 403, "FORBIDDEN"),
        ("rebinding, same origin", post().without("host").header("Host", &rebound).header("Origin", &format!("http://{rebound}")).json(&body), 403, "FORBIDDEN"),
        ("another port of this machine", post().header("Origin", "http://localhost:9999").json(&body), 403, "FORBIDDEN"),
        ("another site", post().header("Origin", "https://attacker.example").json(&body), 403, "FORBIDDEN"),
        ("a sandboxed page", post().header("Origin", "null").json(&body), 403, "FORBIDDEN"),
        // What a form can send without asking.
        ("a form", post().header("Content-Type", "application/x-www-form-urlencoded").body(b"a=b"), 400, "INVALID_ARGUMENT"),
        ("a form as text", post().header("Content-Type", "text/plain").body(b"{}"), 400, "INVALID_ARGUMENT"),
        ("no host", post().without("host").json(&body), 400, "INVALID_ARGUMENT"),
        ("two hosts", post().header("Host", "localhost").json(&body), 400, "INVALID_ARGUMENT"),
    ];
    for (what, request, status, code) in table {
        let reply = request.send(house.address).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{what}");
        assert_eq!(reply.header("access-control-allow-origin"), None, "{what}");
    }
    assert_eq!(sessions(&house).await, 0);
    let own = post().header("Origin", &format!("http://127.0.0.1:{port}")).json(&body).send(house.address).await;
    assert_eq!(own.status, 201);
    house.close().await;
}

#[tokio::test]
async fn the_token_opens_and_wrong_ones_are_slowed_down() {
    let options = ListenOptions { token: Some("sesame".to_owned().into()), ..Default::default() };
    let house = House::with(options, |_| {}).await;
    assert_eq!(house.call("GET", "/health", None).await.status, 200);
    let none = house.call("GET", "/tools", None).await;
    assert_eq!((none.status, none.code().as_str()), (401, "UNAUTHORIZED"));
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let with =
        |token: &str| request(house.address, "GET", "/tools").header("Authorization", &format!("Bearer {token}"));
    let started = Instant::now();
    for _ in 0..7 {
        assert_eq!(with("wrong").send(house.address).await.status, 401);
    }
    // Three are free; then 50, 100, 200 and 400 ms.
    assert!(started.elapsed() >= Duration::from_millis(700), "{:?}", started.elapsed());
    // Further ones wait for 800 ms, 1.6 s and 2 s more; the right one waits for nobody.
    let address = house.address;
    let wrong = || {
        let request = with("wrong");
        tokio::spawn(async move { request.send(address).await })
    };
    let waiting: Vec<_> = (0..5).map(|_| wrong()).collect();
    assert_eq!(with("sesame").send(house.address).await.status, 200);
    assert!(!waiting.iter().all(tokio::task::JoinHandle::is_finished), "the wrong ones are slowed down");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let in_query = request(house.address, "GET", "/tools?token=sesame").send(house.address).await;
    assert_eq!(in_query.status, 401);
    house.close().await;
}

#[tokio::test]
async fn a_public_address_needs_the_flag_and_a_token() {
    let house = House::open().await;
    let token = Some("sesame".to_owned().into());
    let options =
        |allow_public, token| ListenOptions { host: "0.0.0.0".into(), allow_public, token, ..Default::default() };
    for refused in [options(false, None), options(false, token.clone()), options(true, None)] {
        let error = Server::start(house.app.clone(), refused).await.unwrap_err();
        assert!(matches!(error, ListenError::NotAllowed(_)), "{error}");
    }
    let server = Server::start(house.app.clone(), options(true, token)).await.unwrap();
    let address = format!("127.0.0.1:{}", server.address().port()).parse().unwrap();
    // Any name will do: the token is what counts.
    let named = request(address, "GET", "/tools").without("host").header("Host", "box.example");
    assert_eq!(named.send(address).await.status, 401);
    let admitted = named.clone().header("Authorization", "Bearer sesame");
    assert_eq!(admitted.send(address).await.status, 200);
    let page = admitted.header("Origin", "https://attacker.example").send(address).await;
    assert_eq!(page.status, 403);
    server.stop(Duration::from_secs(1)).await;
    house.close().await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let house = House::open().await;
    let options = ListenOptions { port: house.address.port(), ..Default::default() };
    let error = Server::start(house.app.clone(), options).await.unwrap_err();
    assert!(matches!(error, ListenError::PortInUse { .. }));
    assert!(error.to_string().contains(&house.address.port().to_string()), "{error}");
    house.close().await;
}
