//! What endpoints of models stream, over each of the wires: one end and nothing behind it, the key
//! nowhere, and calls that are the same in whatever pieces they come.

use arbitrary::{Result, Unstructured};
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::assemble::Assembler;
use crate::base::sse::SseReader;
use crate::model::{ModelError, ModelEvent};
use crate::protocol::ToolCallRequest;
use crate::provider::wire::{Assemble, Redactor, State, from_status};
use crate::provider::{anthropic, gemini, responses};

/// What must be told to nobody.
const KEY: &str = "k3y";
/// The longest line of these streams.
const LINE_BYTES_MAX: usize = 4096;

/// The property of the target `answers`. The first letter says of what: a (s)tream, a (w)hole answer, an (e)rror's body,
/// (c)alls in pieces; of Responses a stream of (i)tems, and a whole (r)esponse; a stream of (m)essages, and one of (g)enerated content.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b's', [size, stream @ ..])) => in_pieces(stream, *size, &|| Box::new(assembler())),
        Some((b'i', [size, stream @ ..])) => in_pieces(stream, *size, &|| Box::new(of_items())),
        Some((b'm', [size, stream @ ..])) => in_pieces(stream, *size, &|| Box::new(of_blocks())),
        Some((b'g', [size, stream @ ..])) => in_pieces(stream, *size, &|| Box::new(of_parts())),
        Some((b'w', body)) => whole(body, assembler()),
        Some((b'r', body)) => whole(body, of_items()),
        Some((b'e', [status, body @ ..])) => {
            let error = from_status(400 + u16::from(*status), None, &String::from_utf8_lossy(body));
            let error = redactor().error(error);
            assert!(!error.to_string().contains(KEY), "{error}");
        }
        Some((b'c', data)) => drop(calls(&mut Unstructured::new(data))),
        Some(_) | None => {}
    }
}

fn redactor() -> Redactor {
    Redactor::new(Some(&SecretString::from(KEY)), "http://localhost/v1")
}

fn assembler() -> Assembler {
    Assembler::new("openai/m", redactor())
}

fn of_items() -> responses::Assembler {
    responses::Assembler::new("openai/m", redactor())
}

fn of_blocks() -> anthropic::Assembler {
    anthropic::Assembler::new("anthropic/m", redactor())
}

fn of_parts() -> gemini::Assembler {
    gemini::Assembler::new("gemini/m", redactor())
}

fn whole(body: &[u8], mut assembler: impl Assemble) {
    let taken = assembler.take_whole(&String::from_utf8_lossy(body));
    let events: Vec<ModelEvent> = assembler.drain().collect();
    told(&events, &taken, assembler.state());
}

fn in_pieces(stream: &[u8], size: u8, assembler: &dyn Fn() -> Box<dyn Assemble>) {
    let whole = read(assembler(), &mut std::iter::once(stream));
    let pieces = read(assembler(), &mut stream.chunks(usize::from(size % 9) + 1));
    assert_eq!(unnamed(whole), unnamed(pieces), "{:?}", String::from_utf8_lossy(stream));
}

/// The same without the ids that were made where the wire had none: each is another.
fn unnamed((mut events, result): Told) -> Told {
    for event in &mut events {
        if let ModelEvent::Call(ToolCallRequest { id, .. }) | ModelEvent::BadCall { id, .. } = event
            && id.len() == "call_0123456789abcdef".len()
            && id.starts_with("call_")
        {
            id.clear();
        }
    }
    (events, result)
}

type Told = (Vec<ModelEvent>, std::result::Result<(), ModelError>);

/// What a stream says, as the provider reads it.
fn read(mut assembler: Box<dyn Assemble>, pieces: &mut dyn Iterator<Item = &[u8]>) -> Told {
    let mut reader = SseReader::new(LINE_BYTES_MAX);
    let mut events = Vec::new();
    let mut broken = None;
    for piece in pieces {
        let pushed = reader.push(piece, |event, data| {
            if broken.is_none() {
                let done = assembler.state() == State::Done;
                broken = assembler.take(event, data).err();
                let before = events.len();
                events.extend(assembler.drain());
                assert!(!done || (broken.is_none() && events.len() == before), "something comes behind the end");
            }
        });
        if pushed.is_err() || broken.is_some() {
            break;
        }
    }
    let result = broken.map_or_else(|| assembler.close(), Err);
    events.extend(assembler.drain());
    told(&events, &result, assembler.state());
    (events, result)
}

/// Texts, then calls, then the reply in its own words, then tokens, then the one end; an end exactly where nothing failed. Tokens
/// may be told before as well: what was sent is paid for.
fn told(events: &[ModelEvent], result: &std::result::Result<(), ModelError>, state: State) {
    let rank = |event: &ModelEvent| match event {
        ModelEvent::Text(_) | ModelEvent::Reasoning(_) => 0,
        ModelEvent::Call(_) | ModelEvent::BadCall { .. } => 1,
        ModelEvent::Original(_) => 2,
        ModelEvent::Usage(_) => 3,
        ModelEvent::Finished(_) => 4,
        ModelEvent::Retrying { .. } | ModelEvent::Agent(_) => panic!("{event:?} is no provider's"),
    };
    let last = events.iter().rposition(|event| rank(event) != 3 && rank(event) != 4).unwrap_or(0);
    let late = events.iter().enumerate().filter(|(at, event)| *at > last || rank(event) != 3);
    let ranks: Vec<u8> = late.map(|(_, event)| rank(event)).collect();
    assert!(ranks.is_sorted(), "{events:?}");
    let count = |wanted: u8| ranks.iter().filter(|rank| **rank == wanted).count();
    assert!(count(2) <= 1 && count(3) <= 1 && count(4) <= 1, "{events:?}");
    assert_eq!(count(4) == 1, state == State::Done, "{events:?}");
    match result {
        Ok(()) => assert_eq!(state, State::Done),
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains(KEY), "{text}");
        }
    }
}

/// Some calls, their arguments cut anywhere, come out whole and in their order.
fn calls(u: &mut Unstructured<'_>) -> Result<()> {
    let by_index: bool = u.arbitrary()?;
    let whole_names: bool = u.arbitrary()?;
    let count = u.int_in_range(1..=4)?;
    let mut wanted = Vec::new();
    for at in 0..count {
        let mut arguments = Map::new();
        for field in 0..u.int_in_range(0..=2)? {
            arguments.insert(format!("f{field}"), Value::from(u.arbitrary::<&str>()?));
        }
        let name = (*u.choose(&["fs_read", "a", "aa"])?).to_owned();
        wanted.push(ToolCallRequest { id: format!("call_{at}"), name, arguments });
    }
    let mut left: Vec<(String, bool)> =
        wanted.iter().map(|call| (Value::Object(call.arguments.clone()).to_string(), true)).collect();
    let mut assembler = assembler();
    let send = |assembler: &mut Assembler, chunk: &Value| assembler.take("", &chunk.to_string()).expect("a good chunk");
    let mut at = 0;
    while left.iter().any(|(text, first)| *first || !text.is_empty()) {
        let (text, first) = &mut left[at];
        if *first || !text.is_empty() {
            let size = u.int_in_range(0..=7)? + usize::from(!*first);
            let cut = (size..=text.len()).find(|cut| text.is_char_boundary(*cut)).unwrap_or(text.len());
            let piece: String = text.drain(..cut).collect();
            let call = &wanted[at];
            let mut function = json!({ "arguments": piece });
            if *first || whole_names {
                function["name"] = Value::from(call.name.as_str());
            }
            let mut delta = json!({ "function": function });
            if by_index {
                delta["index"] = Value::from(at);
            }
            if *first || !by_index {
                delta["id"] = Value::from(call.id.as_str());
            }
            *first = false;
            send(&mut assembler, &json!({ "choices": [{ "delta": { "tool_calls": [delta] } }] }));
        }
        // In whatever order they take turns; but each begins behind those before it.
        let begun = left.iter().take_while(|(_, first)| !first).count();
        at = u.int_in_range(0..=begun.min(left.len() - 1))?;
        if u.is_empty() {
            at = left.iter().position(|(text, first)| *first || !text.is_empty()).unwrap_or(0);
        }
    }
    send(&mut assembler, &json!({ "choices": [{ "delta": {}, "finish_reason": "tool_calls" }] }));
    assembler.close().expect("it said why it stopped");
    let got: Vec<ToolCallRequest> = assembler
        .drain()
        .filter_map(|event| match event {
            ModelEvent::Call(call) => Some(call),
            ModelEvent::Finished(_) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(got, wanted);
    Ok(())
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("answers", b"swecirmg", holds);
}
