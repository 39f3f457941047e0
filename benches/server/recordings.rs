//! Recorded answers of models, given again as fast as the socket takes them: each wire's own path leads to its file.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crate::Options;
use crate::http::Connection;

/// What a path ends with or holds, and the file in the directory.
const WIRES: [(&str, &str); 4] = [
    ("/chat/completions", "openai-chat.sse"),
    ("/responses", "openai-responses.sse"),
    ("/messages", "anthropic-messages.sse"),
    (":streamGenerateContent", "gemini.sse"),
];

/// Bytes that are written at once, as a chunk of their own.
const PIECE_BYTES: usize = 1 << 14;

/// Serves until it is killed. Writes its port to `--port-file`.
pub fn serve(options: &Options) -> Result<String, String> {
    let (file, directory) = (options.text("port-file")?, Path::new(options.text("directory")?));
    let mut answers = Vec::new();
    for (path, name) in WIRES {
        let recorded = std::fs::read(directory.join(name)).map_err(|cause| format!("{name}: {cause}"))?;
        let mut wire =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in recorded.chunks(PIECE_BYTES) {
            wire.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            wire.extend_from_slice(piece);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        answers.push((path, wire));
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|cause| format!("cannot listen: {cause}"))?;
    let port = listener.local_addr().map_err(|cause| cause.to_string())?.port();
    std::fs::write(file, port.to_string()).map_err(|cause| format!("{file}: {cause}"))?;
    let answers = Arc::new(answers);
    for stream in listener.incoming().flatten() {
        let answers = Arc::clone(&answers);
        std::thread::spawn(move || {
            // A client that goes away in the middle is its own affair: the run notices.
            if let Ok(connection) = Connection::accepted(stream, "client".to_owned(), None) {
                drop(answer_all(connection, &answers));
            }
        });
    }
    Ok(String::from("{}"))
}

fn answer_all(mut connection: Connection, answers: &[(&str, Vec<u8>)]) -> Result<(), String> {
    while let Some(head) = connection.head()? {
        connection.body(&head)?;
        let path = head.line.split(' ').nth(1).unwrap_or_default();
        match answers.iter().find(|(part, _)| path.contains(part)) {
            Some((_, wire)) => connection.write(wire)?,
            None => connection.write(b"HTTP/1.1 404 -\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
    Ok(())
}
