//! How long a recorded answer of a model takes from the socket to our events, on each wire.
//!
//! `cargo bench --bench parse -- --address HOST:PORT [--rounds N] [--wire NAME]` asks the server of recordings (`benches/server`, command
//! `recordings`) and prints one JSON line for each wire. `benches/tools/parse.mjs` holds the same recordings against the
//! vendors' SDKs for Node.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use simse::config::Api;
use simse::model::{Model, ModelEvent, ModelFacts, ModelRequest};
use simse::protocol::{Message, Part, Reasoning};
use simse::provider::{HttpModelOptions, Place, http_model};
use tokio_util::sync::CancellationToken;

const WIRES: [(&str, Api, &str); 4] = [
    ("openai-chat", Api::Chat, "/v1"),
    ("openai-responses", Api::Responses, "/v1"),
    ("anthropic-messages", Api::Messages, ""),
    ("gemini", Api::Gemini, ""),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
    // `cargo test --all-targets` starts it without anything to ask.
    let Some(address) = value("--address") else { return Ok(()) };
    let rounds: usize = value("--rounds").and_then(|digits| digits.parse().ok()).unwrap_or(5);
    let wire = value("--wire");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let asked = |name: &str| wire.as_deref().is_none_or(|wire| wire == name);
        for (name, api, path) in WIRES.into_iter().filter(|(name, ..)| asked(name)) {
            let place = Arc::new(Place::new("bench", format!("http://{address}{path}"), Duration::from_secs(60)));
            let facts = ModelFacts::default();
            let options = HttpModelOptions { name: "m".to_owned(), api, facts, body: serde_json::Map::new() };
            let model = http_model(options, &place);
            let mut times = Vec::new();
            let mut counted = (0, 0);
            for round in 0..=rounds {
                let since = Instant::now();
                counted = read(model.as_ref()).await?;
                if round > 0 {
                    times.push(since.elapsed().as_secs_f64() * 1000.0);
                }
            }
            times.sort_by(f64::total_cmp);
            let (texts, bytes) = counted;
            println!(
                "{{\"wire\":\"{name}\",\"ms\":{:.3},\"least\":{:.3},\"texts\":{texts},\"bytes\":{bytes}}}",
                times[times.len() / 2],
                times[0],
            );
        }
        Ok(())
    })
}

/// Reads an answer to its end: pieces of text and their bytes.
async fn read(model: &dyn Model) -> Result<(usize, usize), Box<dyn std::error::Error>> {
    let request = ModelRequest {
        messages: vec![Message::User(vec![Part::Text { text: "go".to_owned() }])].into(),
        reasoning: Reasoning::Auto,
        ..ModelRequest::default()
    };
    let mut events = model.stream(request, CancellationToken::new());
    let (mut texts, mut bytes, mut done) = (0, 0, false);
    while let Some(event) = events.next().await {
        match event? {
            ModelEvent::Text(text) => {
                texts += 1;
                bytes += text.len();
            }
            ModelEvent::Finished(_) => done = true,
            _ => {}
        }
    }
    if done { Ok((texts, bytes)) } else { Err("the answer has no end".into()) }
}
