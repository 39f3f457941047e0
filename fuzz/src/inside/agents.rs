//! Lines of an agent's program (ACP): how the bytes come changes nothing, and a message written again is the same one.

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::BufReader;

use super::wire::{Lines, Message, NoLine, RpcError, answer, note};

/// The longest line of these streams.
const LINE_BYTES_MAX: usize = 256;

/// The property of the target `agents`: first the size of each read, then what is read.
pub fn holds(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let shown = String::from_utf8_lossy(stream);
    let mut lines = Lines::new(BufReader::with_capacity(usize::from(*size % 9) + 1, stream), LINE_BYTES_MAX);
    let mut wanted = stream.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    // Behind the last line break there is a line only where something stands.
    wanted.pop_if(|last| last.is_empty());
    for want in wanted {
        let next = lines.next().now_or_never().expect("all of it is there");
        if want.len() > LINE_BYTES_MAX {
            assert!(matches!(next, Err(NoLine::TooLong)), "{shown}");
            return;
        }
        assert_eq!(next.ok().as_deref(), Some(want), "{shown}");
        if let Some(message) = Message::parse(want) {
            again(&message);
        }
    }
    let end = lines.next().now_or_never().expect("all of it is there");
    assert!(matches!(end, Err(NoLine::End)), "{shown}");
}

/// Written again it is the same, on one line, also behind a stray print.
fn again(message: &Message) {
    let (line, want) = match message {
        Message::Answer { id, result } => {
            // An error of ours has no data beside it.
            let result = result.clone().map_err(|error| RpcError { data: None, ..error });
            let told = result.clone().map_err(|error| (error.code, error.message));
            (answer(&Value::from(*id), told), Message::Answer { id: *id, result })
        }
        Message::Request { id, method, params } => {
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            (format!("{line}\n"), message.clone())
        }
        Message::Note { method, params } => (note(method, params), message.clone()),
    };
    let text = line.strip_suffix('\n').expect("a line ends");
    assert!(!text.contains(['\n', '\r']), "{text:?}");
    assert_eq!(Message::parse(text.as_bytes()).as_ref(), Some(&want), "{text}");
    assert_eq!(Message::parse(format!("Loading… {text}").as_bytes()).as_ref(), Some(&want), "{text}");
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("agents", b"\x00\x03", holds);
}
