//! Logins at tool servers: renewed once for all, made anew where the authorization server is another, bound to a key, vouched for by a file.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use simse::config::McpServer;
use simse::mcp::{Client, ClientError, Identity, Program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::model_server::{Answer, ModelServer, Request};

/// How the authorization servers are.
#[derive(Default)]
struct Ways {
    /// Which of them the server names.
    named: u32,
    /// Says nothing when it is asked for tokens.
    hangs: bool,
    /// Answers so when it is asked for tokens.
    fails: Option<u16>,
    /// Binds tokens to keys, and wants this in proofs.
    binds: Option<&'static str>,
    lasts: u64,
}

/// A tool server and its authorization servers, all behind one address.
#[derive(Default)]
struct Town {
    base: Mutex<String>,
    ways: Mutex<Ways>,
    made: Mutex<u32>,
    valid: Mutex<HashSet<String>>,
    /// What was sent to which of them: where, and what.
    heard: Mutex<Vec<(String, Value)>>,
    /// The proofs that came: where, and their parts.
    proofs: Mutex<Vec<(String, Value, Value)>>,
}

fn fields(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body).into_owned();
    let spelt = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let hex: Vec<u8> = rest.by_ref().take(2).collect();
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
                }
                b'+' => bytes.push(b' '),
                byte => bytes.push(byte),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), Value::from(spelt(value)))).collect::<serde_json::Map<_, _>>().into()
}

fn plain(status: u16, value: &Value) -> Answer {
    Answer::status(status, &[("content-type", "application/json")], &value.to_string())
}

impl Town {
    async fn open(ways: Ways) -> (Arc<Self>, ModelServer) {
        let town = Arc::new(Self { ways: Mutex::new(ways), ..Self::default() });
        let answering = Arc::clone(&town);
        let server = ModelServer::start(Arc::new(move |request| answering.answer(request))).await;
        *town.base.lock() = server.base_url().replace("/v1", "");
        (town, server)
    }

    fn base(&self) -> String {
        self.base.lock().clone()
    }

    fn answer(&self, request: &Request) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let base = self.base();
        if path == "/.well-known/oauth-protected-resource/mcp" {
            let named = format!("{base}/as{}", self.ways.lock().named);
            return plain(200, &json!({ "resource": format!("{base}/mcp"), "authorization_servers": [named] }));
        }
        if let Some(name) = path.strip_prefix("/.well-known/oauth-authorization-server/") {
            return self.metadata(name);
        }
        match path.split_once("/as").map(|(_, rest)| rest.split_once('/')) {
            Some(Some((_, "authorize"))) => {
                let asked = fields(query.as_bytes());
                self.heard.lock().push((path.to_owned(), asked.clone()));
                let (back, state) = (asked["redirect_uri"].as_str().unwrap(), asked["state"].as_str().unwrap());
                Answer::status(302, &[("location", &format!("{back}?code=c&state={state}"))], "")
            }
            Some(Some((number, "register"))) => {
                self.heard.lock().push((path.to_owned(), request.json()));
                let uris = request.json()["redirect_uris"].clone();
                plain(201, &json!({ "client_id": format!("client-{number}"), "redirect_uris": uris }))
            }
            Some(Some((number, "token"))) => self.token(request, number),
            _ if path == "/mcp" => self.serve(request),
            _ => Answer::status(404, &[], ""),
        }
    }

    fn metadata(&self, name: &str) -> Answer {
        let at = format!("{}/{name}", self.base());
        let mut metadata = json!({
            "issuer": at, "authorization_endpoint": format!("{at}/authorize"), "token_endpoint": format!("{at}/token"),
            "registration_endpoint": format!("{at}/register"), "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"], "token_endpoint_auth_methods_supported": ["none"],
        });
        if self.ways.lock().binds.is_some() {
            metadata["dpop_signing_alg_values_supported"] = json!(["ES256"]);
        }
        plain(200, &metadata)
    }

    fn token(&self, request: &Request, number: &str) -> Answer {
        let nonce = self.note_proof(request);
        self.heard.lock().push((format!("/as{number}/token"), fields(&request.body)));
        let ways = self.ways.lock();
        if ways.hangs {
            return Answer::silence();
        }
        if let Some(status) = ways.fails {
            return plain(status, &json!({ "error": "temporarily_unavailable" }));
        }
        if let Some(wanted) = ways.binds
            && nonce.as_deref() != Some(wanted)
        {
            let headers = [("content-type", "application/json"), ("dpop-nonce", wanted)];
            return Answer::status(400, &headers, &json!({ "error": "use_dpop_nonce" }).to_string());
        }
        let token = {
            let mut made = self.made.lock();
            *made += 1;
            format!("token-{number}-{made}")
        };
        self.valid.lock().insert(token.clone());
        let kind = if ways.binds.is_some() { "DPoP" } else { "Bearer" };
        plain(
            200,
            &json!({ "access_token": token, "token_type": kind, "expires_in": ways.lasts, "refresh_token": format!("again-{token}") }),
        )
    }

    /// What the proof repeats.
    fn note_proof(&self, request: &Request) -> Option<String> {
        let proof = request.header("dpop")?;
        let part =
            |part: &str| -> Value { serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
        let mut parts = proof.split('.').map(str::to_owned);
        let (head, claims) = (part(&parts.next().unwrap()), part(&parts.next().unwrap()));
        let nonce = claims["nonce"].as_str().map(str::to_owned);
        self.proofs.lock().push((request.path.clone(), head, claims));
        nonce
    }

    fn serve(&self, request: &Request) -> Answer {
        let nonce = self.note_proof(request);
        let (binds, named) = {
            let ways = self.ways.lock();
            (ways.binds, ways.named)
        };
        let challenge = |error: &str| {
            let at = format!("{}/.well-known/oauth-protected-resource/mcp", self.base());
            let scheme = if binds.is_some() { "DPoP" } else { "Bearer" };
            let challenge = format!("{scheme} error=\"{error}\", resource_metadata=\"{at}\"");
            Answer::status(401, &[("www-authenticate", &challenge), ("dpop-nonce", "from-the-server")], "no")
        };
        let given = request.header("authorization").unwrap_or_default();
        let token =
            given.split_once(' ').filter(|(scheme, _)| *scheme == if binds.is_some() { "DPoP" } else { "Bearer" });
        let is_its = |token: &str| token.starts_with(&format!("token-{named}-")) && self.valid.lock().contains(token);
        if !token.is_some_and(|(_, token)| is_its(token)) {
            return challenge("invalid_token");
        }
        if binds.is_some() && nonce.as_deref() != Some("from-the-server") {
            return challenge("use_dpop_nonce");
        }
        if request.body.is_empty() {
            return Answer::status(405, &[], "");
        }
        let message = request.json();
        let result = match message["method"].as_str().unwrap() {
            "initialize" => {
                let version = &message["params"]["protocolVersion"];
                json!({ "protocolVersion": version, "capabilities": { "tools": {} }, "serverInfo": { "name": "t", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "called" }] }),
            "ping" => json!({}),
            "server/discover" => {
                let error = json!({ "code": -32601, "message": "unknown" });
                return plain(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
            }
            _ => return Answer::status(202, &[], ""),
        };
        plain(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    }

    /// What was sent to the token endpoint of one of them.
    fn tokens_of(&self, number: u32) -> Vec<Value> {
        let at = format!("/as{number}/token");
        self.heard.lock().iter().filter(|(path, _)| *path == at).map(|(_, sent)| sent.clone()).collect()
    }

    fn revoke(&self) {
        self.valid.lock().clear();
    }
}

/// A browser whose user has agreed long ago.
async fn browse(mut address: String) {
    loop {
        let rest = address.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Its head is enough, and some servers keep the connection.
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") && stream.read_buf(&mut answer).await.unwrap() > 0 {}
        let answer = String::from_utf8_lossy(&answer).into_owned();
        match answer.lines().find_map(|line| line.strip_prefix("location: ")) {
            Some(next) => address = next.trim().to_owned(),
            None => return,
        }
    }
}

fn client(town: &Town, oauth: &Value) -> Client {
    let entry = json!({ "name": "far", "url": format!("{}/mcp", town.base()), "oauth": oauth });
    let program = Program {
        told: Arc::new(|_, _| {}),
        answer: Arc::new(|_, _| Box::pin(std::future::ready(Err("nothing is answered".to_owned())))),
        samples: false,
        elicits: false,
        opens_pages: false,
        opens: Some(Arc::new(|_, address| Box::pin(browse(address)))),
    };
    let here = std::env::temp_dir();
    let servers = vec![serde_json::from_value::<McpServer>(entry).unwrap()];
    Client::new(servers, (here, Vec::new()), Identity::default(), program).unwrap()
}

async fn echo(client: &Client) -> Result<Value, ClientError> {
    let params = json!({ "name": "echo", "arguments": {} });
    let asked = ("tools/call", params.as_object().unwrap().clone());
    timeout(Duration::from_secs(60), client.request("far", asked, (None, &CancellationToken::new()))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_that_twenty_calls_were_refused_with_is_renewed_once() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, ..Ways::default() }).await;
    let client = client(&town, &json!({}));
    client.connect("far").await.unwrap();
    assert_eq!(town.tokens_of(1).len(), 1);
    town.revoke();
    let called = join_all((0..20).map(|_| echo(&client))).await;
    assert!(called.iter().all(Result::is_ok), "{called:?}");
    let sent = town.tokens_of(1);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[1]["refresh_token"], "again-token-1-1");
    client.disconnect("far").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_token_endpoint_that_fails_is_asked_once_and_one_that_hangs_holds_up_nobody_who_aborts() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, ..Ways::default() }).await;
    let client = client(&town, &json!({}));
    client.connect("far").await.unwrap();
    town.revoke();
    town.ways.lock().fails = Some(503);
    let called = join_all((0..20).map(|_| echo(&client))).await;
    for called in called {
        let why = called.unwrap_err().to_string();
        assert!(why.contains("the MCP server `far`") && !why.contains("again-token"), "{why}");
    }
    assert_eq!(town.tokens_of(1).len(), 2, "the login, and one renewal that failed");
    {
        let mut ways = town.ways.lock();
        (ways.fails, ways.hangs) = (None, true);
    }
    let soon = tokio::time::Instant::now() + Duration::from_secs(30);
    while town.tokens_of(1).len() < 3 {
        assert!(tokio::time::Instant::now() < soon, "it is never asked again");
        let cancel = CancellationToken::new();
        let params = json!({ "name": "echo", "arguments": {} });
        let asked = ("tools/call", params.as_object().unwrap().clone());
        let call = client.request("far", asked, (None, &cancel));
        let aborting = async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            cancel.cancel();
        };
        let (called, ()) = tokio::join!(call, aborting);
        called.unwrap_err();
    }
    timeout(Duration::from_secs(20), client.disconnect("far")).await.unwrap();
}

#[tokio::test]
async fn another_authorization_server_is_logged_in_at_anew_and_knows_nothing_of_the_one_before() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, ..Ways::default() }).await;
    let client = client(&town, &json!({}));
    client.connect("far").await.unwrap();
    echo(&client).await.unwrap();
    town.ways.lock().named = 2;
    town.revoke();
    echo(&client).await.unwrap();
    let paths: Vec<String> = town.heard.lock().iter().map(|(path, _)| path.clone()).collect();
    let before = ["/as1/register", "/as1/authorize", "/as1/token", "/as1/token"];
    assert_eq!(paths, [&before[..], &["/as2/register", "/as2/authorize", "/as2/token"]].concat());
    let of_the_second = |said: &str| {
        let heard = town.heard.lock();
        heard.iter().filter(|(path, _)| path.starts_with("/as2")).any(|(_, sent)| sent.to_string().contains(said))
    };
    assert!(!of_the_second("client-1") && !of_the_second("token-1"), "{:?}", town.heard.lock());
    // The connection that was there before renews at the one that there is now.
    town.revoke();
    echo(&client).await.unwrap();
    let sent = town.tokens_of(2).pop().unwrap();
    assert_eq!((&sent["grant_type"], &sent["client_id"]), (&json!("refresh_token"), &json!("client-2")));
    assert_eq!((town.tokens_of(1).len(), town.tokens_of(2).len()), (2, 2));
    client.disconnect("far").await;
}

#[tokio::test]
async fn who_is_registered_at_one_authorization_server_is_not_sent_to_another() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, ..Ways::default() }).await;
    let client = client(&town, &json!({ "clientId": "mine", "clientSecret": "s3cret-of-mine" }));
    client.connect("far").await.unwrap();
    town.ways.lock().named = 2;
    town.revoke();
    let why = echo(&client).await.unwrap_err().to_string();
    assert!(why.contains("`oauth.clientId`") && why.contains("/as1") && why.contains("/as2"), "{why}");
    assert!(town.heard.lock().iter().all(|(path, _)| path.starts_with("/as1")), "{:?}", town.heard.lock());
    client.disconnect("far").await;
}

#[tokio::test]
async fn a_bound_token_goes_with_a_proof_of_its_key_also_when_it_is_renewed() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, binds: Some("from-as"), ..Ways::default() }).await;
    let client = client(&town, &json!({}));
    client.connect("far").await.unwrap();
    echo(&client).await.unwrap();
    town.revoke();
    echo(&client).await.unwrap();
    client.disconnect("far").await;
    let proofs = town.proofs.lock();
    let keys: HashSet<String> = proofs.iter().map(|(_, head, _)| head["jwk"].to_string()).collect();
    assert_eq!(keys.len(), 1, "one key for the login, its renewal and its use");
    let ids: HashSet<String> = proofs.iter().map(|(_, _, claims)| claims["jti"].to_string()).collect();
    assert_eq!(ids.len(), proofs.len(), "each proof is a new one");
    for (path, head, claims) in proofs.iter() {
        assert_eq!((&head["typ"], &head["alg"], head["jwk"].get("d")), (&json!("dpop+jwt"), &json!("ES256"), None));
        assert_eq!(claims["htu"], format!("{}{path}", town.base()));
        let hash = |token: &str| BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token));
        let known = [hash("token-1-1"), hash("token-1-2")];
        let for_token = claims["ath"].as_str();
        assert_eq!(for_token.is_some_and(|hash| known.contains(&hash.to_owned())), path == "/mcp", "{claims}");
    }
    // Refused for want of the nonce, once at each; from then on the proofs have it.
    assert_eq!(
        town.tokens_of(1).len(),
        4,
        "the login and its renewal, each refused once: a connection begins with none"
    );
    drop(proofs);
}

#[tokio::test]
async fn the_token_of_a_workload_is_read_anew_and_goes_to_whom_it_is_for() {
    let (town, _server) = Town::open(Ways { named: 1, lasts: 3_600, ..Ways::default() }).await;
    let room = tempfile::tempdir().unwrap();
    let file = room.path().join("token");
    let statement = |subject: &str, audience: &str| {
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(json!({ "alg": "ES256" })), part(json!({ "sub": subject, "aud": audience })))
    };
    let (first, second) =
        (statement("one", &format!("{}/as1", town.base())), statement("two", &format!("{}/as1/", town.base())));
    std::fs::write(&file, format!("{first}\n")).unwrap();
    let client = client(&town, &json!({ "workloadTokenFile": file, "clientId": "w", "scopes": ["a", "b"] }));
    client.connect("far").await.unwrap();
    std::fs::write(&file, &second).unwrap();
    town.revoke();
    echo(&client).await.unwrap();
    let sent = town.tokens_of(1);
    let used: Vec<&Value> = sent.iter().map(|sent| &sent["assertion"]).collect();
    assert_eq!(used, [&json!(first), &json!(second)]);
    assert_eq!(sent[0]["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    assert_eq!((&sent[0]["client_id"], &sent[0]["scope"]), (&json!("w"), &json!("a b")));
    client.disconnect("far").await;
    for (written, says) in [
        (statement("three", "https://elsewhere.example"), "is for another than the authorization server"),
        ("no token".to_owned(), "expected a JSON Web Token"),
    ] {
        std::fs::write(&file, &written).unwrap();
        let why = client.connect("far").await.unwrap_err().to_string();
        assert!(why.contains(says) && !why.contains(&written), "{why}");
    }
    assert_eq!(town.tokens_of(1).len(), 2, "nothing of it was sent");
}
