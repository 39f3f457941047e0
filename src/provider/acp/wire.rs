//! Lines in and out: JSON-RPC 2.0, one message a line, as ACP speaks it over standard streams.
//!
//! Invariant: a line is never held beyond the limit, however long it goes on.

use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What an agent answers with when it cannot do what it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

/// A message from the agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    /// To a request of ours.
    Answer { id: u64, result: Result<Value, RpcError> },
    /// Something the agent wants.
    Request { id: Value, method: String, params: Value },
    /// Something the agent says.
    Note { method: String, params: Value },
}

impl Message {
    /// Reads one. None: the line is no message, such as a stray print. One without a line break of its own may
    /// stand before a message.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let begin = || memchr::memmem::find(line, br#"{"jsonrpc""#).filter(|at| *at > 0);
        Self::parse_whole(line).or_else(|| Self::parse_whole(&line[begin()?..]))
    }

    fn parse_whole(line: &[u8]) -> Option<Self> {
        let Value::Object(mut fields) = serde_json::from_slice(line).ok()? else { return None };
        let id = fields.remove("id");
        if let Some(method) = fields.remove("method") {
            let method = method.as_str()?.to_owned();
            let params = fields.remove("params").unwrap_or(Value::Null);
            return Some(match id {
                Some(id) => Self::Request { id, method, params },
                None => Self::Note { method, params },
            });
        }
        let id = id?.as_u64()?;
        let result = match (fields.remove("error"), fields.remove("result")) {
            (Some(error), _) if !error.is_null() => Err(RpcError {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or("no message").to_owned(),
                data: error.get("data").filter(|data| !data.is_null()).cloned(),
            }),
            (_, result) => Ok(result.unwrap_or(Value::Null)),
        };
        Some(Self::Answer { id, result })
    }
}

/// A request's line.
pub(super) fn request(id: u64, method: &str, params: &impl Serialize) -> String {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// A notification's line.
pub(super) fn note(method: &str, params: &impl Serialize) -> String {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

/// The line of an answer to the agent's request `id`.
pub(super) fn answer(id: &Value, result: Result<Value, (i64, String)>) -> String {
    line(&match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    })
}

fn line(message: &Value) -> String {
    // JSON escapes line breaks: one message is one line.
    format!("{message}\n")
}

/// Reads lines of at most a limit.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    bytes_max: usize,
}

/// Why there is no further line.
#[derive(Debug)]
pub(super) enum NoLine {
    /// The stream has ended.
    End,
    /// It broke.
    Broken(std::io::Error),
    /// A line is longer than the limit.
    TooLong,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, line: Vec::new(), bytes_max }
    }

    /// Longer lines, or shorter ones, from the next one on.
    pub fn allow(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// The next line without its end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Vec<u8>, NoLine> {
        loop {
            let chunk = self.reader.fill_buf().await.map_err(NoLine::Broken)?;
            if chunk.is_empty() {
                let rest = std::mem::take(&mut self.line);
                return if rest.is_empty() { Err(NoLine::End) } else { Ok(rest) };
            }
            let end = memchr::memchr(b'\n', chunk);
            let bytes = end.unwrap_or(chunk.len());
            if self.line.len() + bytes > self.bytes_max {
                return Err(NoLine::TooLong);
            }
            self.line.extend_from_slice(&chunk[..bytes]);
            self.reader.consume(end.map_or(bytes, |at| at + 1));
            if end.is_some() {
                return Ok(std::mem::take(&mut self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_message_and_what_is_noise() {
        #[rustfmt::skip]
        let table = [
            (r#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#, Some(Message::Answer { id: 3, result: Ok(json!({"a": 1})) })),
            (r#"{"id":3,"result":null}"#, Some(Message::Answer { id: 3, result: Ok(Value::Null) })),
            (r#"{"id":3,"error":{"code":-1,"message":"m","data":"d"}}"#,
                Some(Message::Answer { id: 3, result: Err(RpcError { code: -1, message: "m".into(), data: Some("d".into()) }) })),
            (r#"{"id":3,"error":"odd"}"#,
                Some(Message::Answer { id: 3, result: Err(RpcError { code: 0, message: "no message".into(), data: None }) })),
            (r#"{"id":"x","method":"m","params":[1]}"#,
                Some(Message::Request { id: "x".into(), method: "m".into(), params: json!([1]) })),
            (r#"{"method":"m"}"#, Some(Message::Note { method: "m".into(), params: Value::Null })),
            (r#"{"id":"not ours","result":1}"#, None),
            (r#"[{"method":"m"}]"#, None),
            ("Loading model…", None),
            (r#"Loading… {"jsonrpc":"2.0","method":"m"}"#, Some(Message::Note { method: "m".into(), params: Value::Null })),
            ("{}", None),
            ("", None),
        ];
        for (line, want) in table {
            assert_eq!(Message::parse(line.as_bytes()), want, "{line}");
        }
    }

    #[tokio::test]
    async fn lines_end_where_they_end_and_at_the_limit() {
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(3, &b"ab\n\nlonger\r\nlast"[..]), 8);
        for want in ["ab", "", "longer\r", "last"] {
            assert_eq!(lines.next().await.expect("a line"), want.as_bytes());
        }
        assert!(matches!(lines.next().await, Err(NoLine::End)));
        let mut lines = Lines::new(tokio::io::BufReader::with_capacity(3, tokio::io::repeat(b'x')), 1000);
        assert!(matches!(lines.next().await, Err(NoLine::TooLong)));
        assert!(lines.line.capacity() <= 2048);
    }
}
