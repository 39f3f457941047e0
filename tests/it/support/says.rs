//! What a server of models says over each of the wires: the same things, each in its own words.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use serde_json::{Value, json};
use simse::config::Api;

use super::model_server::{Answer, call_chunks, end, text_chunk};

/// All wires.
pub const WIRES: [Api; 4] = Api::ALL;

/// An image of one dot.
pub const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// One of the wires.
#[derive(Clone, Copy)]
pub struct Says(pub Api);

impl Says {
    /// A piece of text.
    pub fn text(self, text: &str) -> String {
        match self.0 {
            Api::Chat => text_chunk(text),
            Api::Responses => event(&json!({ "type": "response.output_text.delta", "output_index": 0, "delta": text })),
            Api::Messages => {
                let block = json!({ "type": "text", "text": "" });
                let delta = json!({ "type": "text_delta", "text": text });
                event(&json!({ "type": "content_block_start", "index": 0, "content_block": block }))
                    + &event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))
                    + &event(&json!({ "type": "content_block_stop", "index": 0 }))
            }
            Api::Gemini => content(&json!([{ "text": text }]), None),
        }
    }

    /// The beginning of a call, without its end. Over Gemini's wire calls come whole: half a chunk of one.
    pub fn half_call(self, arguments: &str) -> String {
        match self.0 {
            Api::Chat => call_chunks(0, "c1", "count", arguments),
            Api::Responses => {
                let item =
                    json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "count", "arguments": "" });
                let added = json!({ "type": "response.output_item.added", "output_index": 1, "item": item });
                let piece =
                    json!({ "type": "response.function_call_arguments.delta", "output_index": 1, "delta": arguments });
                event(&added) + &event(&piece)
            }
            Api::Messages => {
                let block = json!({ "type": "tool_use", "id": "c1", "name": "count", "input": {} });
                let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
                event(&json!({ "type": "content_block_start", "index": 1, "content_block": block }))
                    + &event(&json!({ "type": "content_block_delta", "index": 1, "delta": delta }))
            }
            Api::Gemini => {
                let whole = self.call();
                let at = whole.find("\"args\"").expect("it has arguments");
                whole[..at + "\"args\":{\"n".len()].to_owned()
            }
        }
    }

    /// The call `count {"n":1}`.
    pub fn call(self) -> String {
        self.calls(&[("c1", "count", json!({ "n": 1 }))])
    }

    /// Calls `(id, name, arguments)`, side by side.
    pub fn calls(self, calls: &[(&str, &str, Value)]) -> String {
        let each = calls.iter().enumerate().map(|(at, (id, name, arguments))| match self.0 {
            Api::Chat => call_chunks(at, id, name, &arguments.to_string()),
            Api::Responses => {
                let item = json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments.to_string() });
                let mut begun = item.clone();
                begun["arguments"] = "".into();
                let piece = json!({ "type": "response.function_call_arguments.delta", "output_index": at + 1, "delta": arguments.to_string() });
                event(&json!({ "type": "response.output_item.added", "output_index": at + 1, "item": begun }))
                    + &event(&piece)
                    + &event(&json!({ "type": "response.output_item.done", "output_index": at + 1, "item": item }))
            }
            Api::Messages => {
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                let text = arguments.to_string();
                let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                let (one, two) = text.split_at(middle);
                let delta = |text: &str| {
                    let delta = json!({ "type": "input_json_delta", "partial_json": text });
                    event(&json!({ "type": "content_block_delta", "index": at + 1, "delta": delta }))
                };
                event(&json!({ "type": "content_block_start", "index": at + 1, "content_block": block }))
                    + &delta(one)
                    + &delta(two)
                    + &event(&json!({ "type": "content_block_stop", "index": at + 1 }))
            }
            Api::Gemini => {
                content(&json!([{ "functionCall": { "id": id, "name": name, "args": arguments } }]), None)
            }
        });
        each.collect()
    }

    /// The end, with why: in the words of the chat.
    pub fn end(self, why: &str) -> String {
        match self.0 {
            Api::Chat => end(why),
            Api::Responses => end_of_response(why),
            Api::Messages => {
                let reason = match why {
                    "length" => "max_tokens",
                    "content_filter" | "refusal" => "refusal",
                    "tool_calls" => "tool_use",
                    _ => "end_turn",
                };
                let usage = json!({ "input_tokens": 10, "output_tokens": 5 });
                let delta = json!({ "stop_reason": reason, "stop_sequence": null });
                event(&json!({ "type": "message_delta", "delta": delta, "usage": usage }))
                    + &event(&json!({ "type": "message_stop" }))
            }
            Api::Gemini => {
                let reason = match why {
                    "length" => "MAX_TOKENS",
                    "content_filter" | "refusal" => "SAFETY",
                    _ => "STOP",
                };
                content(&json!([{ "text": "" }]), Some(reason))
            }
        }
    }

    /// An error in the middle of a stream.
    pub fn error(self, code: &str) -> String {
        let full = code == "context_length_exceeded";
        match self.0 {
            Api::Chat => format!("data: {}\n\n", json!({ "error": { "message": "it broke", "code": code } })),
            Api::Responses => {
                let error = json!({ "code": code, "message": "it broke" });
                event(&json!({ "type": "response.failed", "response": { "status": "failed", "error": error } }))
            }
            Api::Messages => {
                let error = if full {
                    json!({ "type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum" })
                } else {
                    json!({ "type": "overloaded_error", "message": "Overloaded" })
                };
                event(&json!({ "type": "error", "error": error }))
            }
            Api::Gemini => {
                let error = if full {
                    json!({ "code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)." })
                } else {
                    json!({ "code": 503, "status": "UNAVAILABLE", "message": "The model is overloaded." })
                };
                format!("data: {}\n\n", json!({ "error": error }))
            }
        }
    }

    /// A whole answer.
    pub fn answer(self, text: &str) -> Answer {
        Answer::raw(self.text(text) + &self.end("stop"))
    }

    /// The header that the key stands in, and what stands before it there.
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self.0 {
            Api::Chat | Api::Responses => ("authorization", "Bearer "),
            Api::Messages => ("x-api-key", ""),
            Api::Gemini => ("x-goog-api-key", ""),
        }
    }
}

fn end_of_response(why: &str) -> String {
    let reason = match why {
        "length" => Some("max_output_tokens"),
        "content_filter" => Some("content_filter"),
        _ => None,
    };
    let status = if reason.is_some() { "incomplete" } else { "completed" };
    let details = reason.map(|reason| json!({ "reason": reason }));
    let usage = json!({ "input_tokens": 10, "output_tokens": 5, "total_tokens": 15 });
    let response = json!({ "status": status, "incomplete_details": details, "output": [], "usage": usage });
    event(&json!({ "type": format!("response.{status}"), "response": response }))
}

/// A chunk of Gemini's; the last one has the tokens.
pub fn content(parts: &Value, finish: Option<&str>) -> String {
    let mut chunk = json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "index": 0 }] });
    if let Some(reason) = finish {
        chunk["candidates"][0]["finishReason"] = reason.into();
        chunk["usageMetadata"] = json!({ "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 });
    }
    format!("data: {chunk}\n\n")
}

/// An event under the name of its type.
pub fn event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type"))
}
