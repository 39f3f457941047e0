//! The scripted model: OpenAI chat completions and Responses on loopback, as fast as the socket takes them.
//!
//! What it answers follows from the request alone: a marker in the last user message names the script, and the
//! number of tool results behind that message is the step. It clocks itself: `GET /spans` gives, and forgets,
//! when each answer began and ended, so that a run can take the model's share out of a turn.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::http::{Connection, find, find_last};
use crate::pace::Pacer;
use crate::{Options, json_string, now_us};

/// Newest answers that are kept for `GET /spans`.
const SPANS_MAX: usize = 10_000;

/// One answer: its script, when the request was there, when its first and its last byte were written.
struct Span {
    script: &'static str,
    start_us: u64,
    first_us: u64,
    end_us: u64,
}

/// What to say.
enum Reply {
    /// So many short texts.
    Texts(usize),
    /// The same, with a thought behind each, so that no two texts stand together.
    Mixed(usize),
    /// So many short texts, each written by itself.
    Flushed(usize),
    /// So many short texts, so many milliseconds apart.
    Paced(usize, u64),
    /// One tool call: name and arguments in JSON.
    Call(&'static str, String),
}

/// Serves until it is killed. Writes its port to `--port-file`.
pub fn serve(options: &Options) -> Result<String, String> {
    let file = options.text("port-file")?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|cause| format!("cannot listen: {cause}"))?;
    let port = listener.local_addr().map_err(|cause| cause.to_string())?.port();
    std::fs::write(file, port.to_string()).map_err(|cause| format!("{file}: {cause}"))?;
    let (spans, pacer) = (Arc::new(Mutex::new(VecDeque::new())), Pacer::start());
    for stream in listener.incoming().flatten() {
        let (spans, pacer) = (Arc::clone(&spans), pacer.clone());
        std::thread::spawn(move || {
            // A client that goes away in the middle is its own affair: the run notices.
            if let Ok(connection) = Connection::accepted(stream, "client".to_owned(), None) {
                drop(answer_all(connection, &spans, &pacer));
            }
        });
    }
    Ok(String::from("{}"))
}

fn answer_all(mut connection: Connection, spans: &Mutex<VecDeque<Span>>, pacer: &Pacer) -> Result<(), String> {
    let mut tools = Tools::default();
    while let Some(head) = connection.head()? {
        let body = connection.body(&head)?;
        let start_us = now_us();
        match head.line.split(' ').nth(1).unwrap_or_default() {
            "/spans" => {
                let taken = spans.lock().map(|mut spans| std::mem::take(&mut *spans)).unwrap_or_default();
                connection.write(&plain(200, &spans_json(&taken)))?;
            }
            path if path.ends_with("/chat/completions") || path.ends_with("/responses") => {
                let responses = path.ends_with("/responses");
                let (script, reply) = reply_to(&body, &mut tools);
                let (first_us, end_us) = match responses {
                    true => stream_responses(&mut connection, &reply)?,
                    false => stream(&mut connection, &reply, pacer)?,
                };
                if let Ok(mut spans) = spans.lock() {
                    spans.truncate(SPANS_MAX - 1);
                    spans.push_front(Span { script, start_us, first_us, end_us });
                }
            }
            path => connection.write(&plain(404, &format!("{{\"error\":{}}}", json_string(path))))?,
        }
    }
    Ok(())
}

fn plain(status: u16, json: &str) -> Vec<u8> {
    let length = json.len();
    format!("HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}").into()
}

fn spans_json(spans: &VecDeque<Span>) -> String {
    let each = spans.iter().rev().map(|span| {
        let Span { script, start_us, first_us, end_us } = span;
        format!("{{\"script\":\"{script}\",\"startUs\":{start_us},\"firstUs\":{first_us},\"endUs\":{end_us}}}")
    });
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

/// The tools of the requests before on a connection: tens of kilobytes that are the same each time and need not be looked
/// through again.
#[derive(Default)]
struct Tools {
    text: Vec<u8>,
    native: bool,
    /// The shell is called as codex calls it.
    codex: bool,
}

impl Tools {
    /// What stands before the tools (or all of it, where something stands behind them), and whether they are called as
    /// simse's are. None: there are none.
    fn split<'b>(&mut self, body: &'b [u8]) -> Option<(&'b [u8], bool)> {
        if !self.text.is_empty() && body.ends_with(&self.text) {
            return Some((&body[..body.len() - self.text.len()], self.native));
        }
        let at = find(body, b"\"tools\":[{")?;
        let native = find(&body[at..], b"\"fs_read\"").is_some();
        let codex = find(&body[at..], b"\"exec_command\"").is_some();
        if find(&body[at..], b"\"role\":\"").is_some() {
            self.codex = codex;
            return Some((body, native));
        }
        *self = Self { text: body[at..].to_vec(), native, codex };
        Some((&body[..at], native))
    }
}

/// The script that the request asks for, and its next reply.
///
/// Requests come from `JSON.stringify` and its like, without blanks, so that `"role":"user"` stands for itself:
/// within a string its quotes would be escaped.
fn reply_to(body: &[u8], tools: &mut Tools) -> (&'static str, Reply) {
    // Side requests (titles, summaries) repeat the user's words but offer no tools.
    let Some((messages, native)) = tools.split(body) else { return ("side", Reply::Texts(2)) };
    let turn = &messages[find_last(messages, b"\"role\":\"user\"").unwrap_or(0)..];
    let step = count(turn, b"\"role\":\"tool\"") + count(turn, b"\"type\":\"function_call_output\"");
    let directory = word_behind(turn, "bench-dir=").unwrap_or_else(|| String::from("."));
    if let Some(number) = word_behind(turn, "bench-tools=") {
        return match tool_step(step, &directory, &number, native) {
            Some((name, arguments)) => ("tools", Reply::Call(name, arguments)),
            None => ("tools", Reply::Texts(5)),
        };
    }
    if let Some(number) = word_behind(turn, "bench-edits=") {
        return match edit_step(step, &directory, &number, native) {
            Some((name, arguments)) => ("edits", Reply::Call(name, arguments)),
            None => ("edits", Reply::Texts(5)),
        };
    }
    if word_behind(turn, "bench-bash=").is_some() {
        return match (step, tools.codex) {
            (0, true) => ("bash", Reply::Call("exec_command", String::from("{\"cmd\":\"true\"}"))),
            (0, false) => {
                let (name, arguments) = bash("true", native);
                ("bash", Reply::Call(name, arguments))
            }
            _ => ("bash", Reply::Texts(5)),
        };
    }
    if word_behind(turn, "bench-output=").is_some() {
        return match step {
            0 => {
                let (name, arguments) = bash(OUTPUT_COMMAND, native);
                ("output", Reply::Call(name, arguments))
            }
            _ => ("output", Reply::Texts(5)),
        };
    }
    if let Some(texts) = word_behind(turn, "bench-paced=").and_then(|digits| digits.parse().ok()) {
        let every = word_behind(turn, "bench-every=").and_then(|digits| digits.parse().ok());
        return ("paced", Reply::Paced(texts, every.unwrap_or(50)));
    }
    if let Some(texts) = word_behind(turn, "bench-mixed=").and_then(|digits| digits.parse().ok()) {
        return ("mixed", Reply::Mixed(texts));
    }
    if let Some(texts) = word_behind(turn, "bench-flushed=").and_then(|digits| digits.parse().ok()) {
        return ("flushed", Reply::Flushed(texts));
    }
    match word_behind(turn, "bench-deltas=").and_then(|digits| digits.parse().ok()) {
        Some(texts) => ("deltas", Reply::Texts(texts)),
        None => ("turn", Reply::Texts(5)),
    }
}

/// 30 kB in 20 pieces, 20 ms apart: lines of 100 bytes, 15 a piece.
const OUTPUT_COMMAND: &str = "i=0; while [ $i -lt 20 ]; do j=0; while [ $j -lt 15 ]; do \
    printf '%02d %02d the quick brown fox jumps over the lazy dog and then over the fence, the ditch and the old wall\\n' $i $j; \
    j=$((j+1)); done; sleep 0.02; i=$((i+1)); done";

/// Step `step` of the turn that writes a file and edits it ten times; None behind the last.
fn edit_step(step: usize, directory: &str, number: &str, native: bool) -> Option<(&'static str, String)> {
    let note = json_string(&format!("{directory}/edited-{number}.txt"));
    match step {
        0 => Some(write_call(&note, native)),
        1..=10 => Some(edit_call(&note, (&format!("line {step} of"), &format!("line number {step} of")), native)),
        _ => None,
    }
}

/// Writes forty lines.
fn write_call(note: &str, native: bool) -> (&'static str, String) {
    let lines = json_string(&(1..=40).map(|n| format!("line {n} of the note\n")).collect::<String>());
    match native {
        true => ("fs_write", format!("{{\"path\":{note},\"content\":{lines}}}")),
        false => ("write", format!("{{\"filePath\":{note},\"content\":{lines}}}")),
    }
}

fn edit_call(note: &str, (old, new): (&str, &str), native: bool) -> (&'static str, String) {
    match native {
        true => ("fs_edit", format!("{{\"path\":{note},\"old_string\":\"{old}\",\"new_string\":\"{new}\"}}")),
        false => ("edit", format!("{{\"filePath\":{note},\"oldString\":\"{old}\",\"newString\":\"{new}\"}}")),
    }
}

/// Step `step` of the turn of ten tool calls; None behind the last.
fn tool_step(step: usize, directory: &str, number: &str, native: bool) -> Option<(&'static str, String)> {
    let note = json_string(&format!("{directory}/note-{number}.txt"));
    let source = json_string(&format!("{directory}/src/cart.js"));
    let read = |file: &str| match native {
        true => ("fs_read", format!("{{\"path\":{file}}}")),
        false => ("read", format!("{{\"filePath\":{file}}}")),
    };
    Some(match (step, native) {
        (0, _) => write_call(&note, native),
        (1 | 9, _) => read(&note),
        (2, _) => edit_call(&note, ("line 3 of", "line three of"), native),
        (3, _) => bash(&format!("wc -l note-{number}.txt"), native),
        (4, true) => ("fs_grep", String::from("{\"pattern\":\"line three\"}")),
        (4, false) => ("grep", String::from("{\"pattern\":\"line three\"}")),
        (5, true) => ("fs_glob", String::from("{\"pattern\":\"**/*.js\"}")),
        (5, false) => ("glob", String::from("{\"pattern\":\"**/*.js\"}")),
        (6, _) => read(&source),
        (7, _) => edit_call(&note, ("line 5 of", "line five of"), native),
        (8, _) => bash("true", native),
        _ => return None,
    })
}

fn bash(command: &str, native: bool) -> (&'static str, String) {
    let command = json_string(command);
    match native {
        true => ("bash", format!("{{\"command\":{command}}}")),
        false => ("bash", format!("{{\"command\":{command},\"description\":\"Run a command\"}}")),
    }
}

/// Writes the answer. When its first and its last byte were written.
fn stream(connection: &mut Connection, reply: &Reply, pacer: &Pacer) -> Result<(u64, u64), String> {
    let mut events = String::new();
    let mut push = |delta: &str, finish: &str| {
        events.push_str(
            "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":",
        );
        events.push_str(delta);
        events.push_str(",\"finish_reason\":");
        events.push_str(finish);
        events.push_str("}]}\n\n");
    };
    let mut paced = None;
    let finish = match reply {
        Reply::Texts(texts) => {
            push("{\"role\":\"assistant\",\"content\":\"\"}", "null");
            for number in 0..*texts {
                push(&format!("{{\"content\":\"w{number:06} \"}}"), "null");
            }
            "\"stop\""
        }
        Reply::Mixed(texts) => {
            for number in 0..*texts {
                push(&format!("{{\"content\":\"w{number:06} \"}}"), "null");
                push("{\"reasoning_content\":\"hm \"}", "null");
            }
            "\"stop\""
        }
        Reply::Flushed(texts) => return stream_flushed(connection, *texts),
        Reply::Paced(texts, every_ms) => {
            connection.write(HEAD)?;
            paced = Some(pacer.run(connection.socket()?, *texts, Duration::from_millis(*every_ms))?);
            "\"stop\""
        }
        Reply::Call(name, arguments) => {
            let (at, arguments) = (now_us(), json_string(arguments));
            push(
                &format!(
                    "{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"index\":0,\"id\":\"call_{at}\",\"type\":\"function\",\
                     \"function\":{{\"name\":\"{name}\",\"arguments\":\"\"}}}}]}}"
                ),
                "null",
            );
            push(&format!("{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":{arguments}}}}}]}}"), "null");
            "\"tool_calls\""
        }
    };
    push("{}", finish);
    events.push_str(
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\
         \"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110}}\n\ndata: [DONE]\n\n",
    );
    let (first_us, end_us) = send(connection, if paced.is_some() { b"" } else { HEAD }, events.as_bytes())?;
    Ok(paced.map_or((first_us, end_us), |(first_us, _)| (first_us, end_us)))
}

/// Short texts, each a piece of the body by itself, as a model's server writes what has just been made.
fn stream_flushed(connection: &mut Connection, texts: usize) -> Result<(u64, u64), String> {
    let event = |delta: &str, finish: &str| {
        let event = format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
             \"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        );
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    let first_us = now_us();
    connection.write(HEAD)?;
    for number in 0..texts {
        connection.write(event(&format!("{{\"content\":\"w{number:06} \"}}"), "null").as_bytes())?;
    }
    let last = format!("{}e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", event("{}", "\"stop\""));
    connection.write(last.as_bytes())?;
    Ok((first_us, now_us()))
}

/// The same over the wire of Responses. Nothing is paced on it.
fn stream_responses(connection: &mut Connection, reply: &Reply) -> Result<(u64, u64), String> {
    let at = now_us();
    let mut events = String::new();
    let mut push = |kind: &str, more: &str| {
        events.push_str(&format!("event: {kind}\ndata: {{\"type\":\"{kind}\",{more}}}\n\n"));
    };
    let response = format!("\"id\":\"resp_{at}\",\"object\":\"response\",\"model\":\"m\"");
    push("response.created", &format!("\"response\":{{{response},\"status\":\"in_progress\",\"output\":[]}}"));
    let item = match reply {
        Reply::Paced(..) | Reply::Mixed(_) => return Err(String::from("only texts and calls over Responses")),
        Reply::Texts(texts) | Reply::Flushed(texts) => {
            let head = format!("\"type\":\"message\",\"id\":\"msg_{at}\",\"role\":\"assistant\"");
            push(
                "response.output_item.added",
                &format!("\"output_index\":0,\"item\":{{{head},\"status\":\"in_progress\",\"content\":[]}}"),
            );
            let mut whole = String::new();
            for number in 0..*texts {
                let word = format!("w{number:06} ");
                push(
                    "response.output_text.delta",
                    &format!("\"item_id\":\"msg_{at}\",\"output_index\":0,\"content_index\":0,\"delta\":\"{word}\""),
                );
                whole.push_str(&word);
            }
            format!(
                "{{{head},\"status\":\"completed\",\"content\":[{{\"type\":\"output_text\",\"text\":\"{whole}\",\"annotations\":[]}}]}}"
            )
        }
        Reply::Call(name, arguments) => {
            let arguments = json_string(arguments);
            let head =
                format!("\"type\":\"function_call\",\"id\":\"fc_{at}\",\"call_id\":\"call_{at}\",\"name\":\"{name}\"");
            push(
                "response.output_item.added",
                &format!("\"output_index\":0,\"item\":{{{head},\"status\":\"in_progress\",\"arguments\":\"\"}}"),
            );
            push(
                "response.function_call_arguments.delta",
                &format!("\"item_id\":\"fc_{at}\",\"output_index\":0,\"delta\":{arguments}"),
            );
            format!("{{{head},\"status\":\"completed\",\"arguments\":{arguments}}}")
        }
    };
    push("response.output_item.done", &format!("\"output_index\":0,\"item\":{item}"));
    let usage = "\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":10,\
                 \"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":110}";
    push(
        "response.completed",
        &format!("\"response\":{{{response},\"status\":\"completed\",\"output\":[{item}],{usage}}}"),
    );
    send(connection, HEAD, events.as_bytes())
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";

fn send(connection: &mut Connection, head: &[u8], events: &[u8]) -> Result<(u64, u64), String> {
    let mut wire = Vec::with_capacity(1 << 16);
    wire.extend_from_slice(head);
    let first_us = now_us();
    for piece in events.chunks(1 << 14) {
        wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
        if wire.len() > 1 << 15 {
            connection.write(&wire)?;
            wire.clear();
        }
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    connection.write(&wire)?;
    Ok((first_us, now_us()))
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    let mut rest = haystack;
    let mut found = 0;
    while let Some(at) = find(rest, needle) {
        found += 1;
        rest = &rest[at + needle.len()..];
    }
    found
}

/// What stands behind `mark` up to a blank, a quote or a backslash.
fn word_behind(text: &[u8], mark: &str) -> Option<String> {
    let start = find(text, mark.as_bytes())? + mark.len();
    let ends = |byte: &u8| matches!(byte, b' ' | b'"' | b'\\');
    let end = text[start..].iter().position(ends)?;
    String::from_utf8(text[start..start + end].to_vec()).ok()
}
