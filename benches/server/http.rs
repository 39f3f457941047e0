//! As much of HTTP/1.1 as the servers under test use: keep-alive, `Content-Length`, chunked bodies, both directions.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest silence of a peer before the run fails.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest head that is read.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How the bytes of a body are delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// So many bytes.
    Length(usize),
    /// Chunks with their sizes.
    Chunked,
}

/// The first line of a message and what its body needs.
#[derive(Debug)]
pub struct Head {
    /// `POST /x HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub line: String,
    framing: Framing,
}

impl Head {
    /// The status of a response.
    pub fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

/// One connection, with what was read and not yet used.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    used: usize,
    address: String,
}

impl Connection {
    /// Connects to `host:port`.
    pub fn open(address: &str) -> Result<Self, String> {
        let resolved = address.to_socket_addrs().ok().and_then(|mut all| all.next());
        let socket = resolved.ok_or(format!("`{address}` is no address"))?;
        let stream =
            TcpStream::connect_timeout(&socket, SILENCE).map_err(|cause| format!("connect to {address}: {cause}"))?;
        Self::accepted(stream, address.to_owned(), Some(SILENCE))
    }

    /// Takes over an accepted connection. None waits for ever.
    pub fn accepted(stream: TcpStream, address: String, silence: Option<Duration>) -> Result<Self, String> {
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(silence));
        set.map_err(|cause| format!("{address}: {cause}"))?;
        Ok(Self { stream, buffer: Vec::with_capacity(1 << 16), used: 0, address })
    }

    /// Writes all of it.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|cause| format!("write to {}: {cause}", self.address))
    }

    /// Reads once. False: the peer has closed.
    fn fill(&mut self) -> Result<bool, String> {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        let before = self.buffer.len();
        self.buffer.resize(before + (1 << 16), 0);
        let read = self.stream.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        read.map(|count| count > 0).map_err(|cause| format!("read from {}: {cause}", self.address))
    }

    fn fill_or_fail(&mut self) -> Result<(), String> {
        if self.fill()? { Ok(()) } else { Err(format!("{} closed the connection in the middle", self.address)) }
    }

    /// Reads a head. None: the peer has closed between two messages.
    pub fn head(&mut self) -> Result<Option<Head>, String> {
        loop {
            if let Some(end) = find(&self.buffer[self.used..], b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.buffer[self.used..self.used + end]).into_owned();
                self.used += end + 4;
                return parse_head(&text).map(Some);
            }
            if self.buffer.len() - self.used > HEAD_BYTES_MAX {
                return Err(format!("{}: a head of more than {HEAD_BYTES_MAX} bytes", self.address));
            }
            let silent = self.used == self.buffer.len();
            if !self.fill()? {
                return if silent { Ok(None) } else { Err(format!("{} closed in a head", self.address)) };
            }
        }
    }

    /// Reads a whole body behind its head.
    pub fn body(&mut self, head: &Head) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        match head.framing {
            Framing::Length(length) => {
                while self.buffer.len() - self.used < length {
                    self.fill_or_fail()?;
                }
                body.extend_from_slice(&self.buffer[self.used..self.used + length]);
                self.used += length;
            }
            Framing::Chunked => while self.chunk(&mut body)? {},
        }
        Ok(body)
    }

    /// Appends the next chunk of a chunked body to `body`. False: that was the last.
    pub fn chunk(&mut self, body: &mut Vec<u8>) -> Result<bool, String> {
        let size = loop {
            match find(&self.buffer[self.used..], b"\r\n") {
                Some(end) => {
                    let line = String::from_utf8_lossy(&self.buffer[self.used..self.used + end]).into_owned();
                    self.used += end + 2;
                    let digits = line.split(';').next().unwrap_or_default().trim();
                    break usize::from_str_radix(digits, 16).map_err(|_| format!("`{line}` is no chunk size"))?;
                }
                None => self.fill_or_fail()?,
            }
        };
        while self.buffer.len() - self.used < size + 2 {
            self.fill_or_fail()?;
        }
        body.extend_from_slice(&self.buffer[self.used..self.used + size]);
        self.used += size + 2;
        Ok(size > 0)
    }

    /// The socket, and what was read and not yet used.
    pub fn into_parts(mut self) -> (TcpStream, Vec<u8>) {
        self.buffer.drain(..self.used);
        (self.stream, self.buffer)
    }

    /// The socket once more, for who writes to it beside this.
    pub fn socket(&self) -> Result<TcpStream, String> {
        self.stream.try_clone().map_err(|cause| cause.to_string())
    }

    /// Sends a request with a JSON body and reads the answer's status and body.
    pub fn post(&mut self, path: &str, json: &str) -> Result<(u16, Vec<u8>), String> {
        let request = post_bytes(&self.address, path, json);
        self.write(&request)?;
        self.answer()
    }

    /// Reads an answer.
    pub fn answer(&mut self) -> Result<(u16, Vec<u8>), String> {
        let head = self.head()?.ok_or(format!("{} closed without an answer", self.address))?;
        let body = self.body(&head)?;
        Ok((head.status(), body))
    }

    /// Opens an event stream and reads the head of its answer.
    pub fn subscribe(&mut self, path: &str) -> Result<(), String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", self.address);
        self.write(request.as_bytes())?;
        let head = self.head()?.ok_or(format!("{} closed without an answer", self.address))?;
        match (head.status(), head.framing) {
            (200, Framing::Chunked) => Ok(()),
            _ => Err(format!("GET {path}: `{}` is no event stream", head.line)),
        }
    }
}

/// The bytes of a POST.
pub fn post_bytes(host: &str, path: &str, json: &str) -> Vec<u8> {
    let length = json.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
    )
    .into_bytes()
}

fn parse_head(text: &str) -> Result<Head, String> {
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default().to_owned();
    let mut framing = Framing::Length(0);
    for header in lines {
        let (name, value) = header.split_once(':').ok_or(format!("`{header}` is no header"))?;
        match (name.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", digits) => {
                let length = digits.parse().map_err(|_| format!("`{digits}` is no length"))?;
                framing = Framing::Length(length);
            }
            ("transfer-encoding", coding) if coding.eq_ignore_ascii_case("chunked") => framing = Framing::Chunked,
            _ => {}
        }
    }
    Ok(Head { line, framing })
}

/// Where `needle` begins in `haystack`.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|byte| byte == first) {
        let start = from + at;
        if haystack[start + 1..].starts_with(rest) {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

/// Where the last `needle` begins in `haystack`.
pub fn find_last(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    (0..=haystack.len().checked_sub(needle.len())?).rev().find(|&start| haystack[start..].starts_with(needle))
}
