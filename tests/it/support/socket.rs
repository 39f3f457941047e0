//! The client's end of a WebSocket, as a test wants it: every frame is its own.

#![allow(dead_code, reason = "each user takes the parts that it needs")]

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::house::House;
use super::http::PATIENCE;

/// A client's end of a socket. It speaks just enough to be one.
pub struct Socket {
    /// The connection.
    pub stream: TcpStream,
    bytes: Vec<u8>,
}

impl Socket {
    /// Opens one with more lines in its head. The head of the answer when it is refused.
    pub async fn open(house: &House, head: &str) -> Result<Self, String> {
        Self::open_at(house.address, head).await
    }

    /// The same at an address.
    pub async fn open_at(address: SocketAddr, head: &str) -> Result<Self, String> {
        Self::open_path(address, "/ws", head).await
    }

    /// The same at another path.
    pub async fn open_path(address: SocketAddr, path: &str, head: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{head}\r\n",
            address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "{}", String::from_utf8_lossy(&bytes));
            let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let answer = String::from_utf8_lossy(&bytes[..end]).into_owned();
            if !answer.starts_with("HTTP/1.1 101 ") {
                return Err(answer);
            }
            let lower = answer.to_ascii_lowercase();
            assert!(lower.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{answer}");
            // Nothing is packed, whoever asks for it.
            assert!(!lower.contains("sec-websocket-extensions"), "{answer}");
            return Ok(Self { stream, bytes: bytes.split_off(end + 4) });
        }
    }

    /// Opens one and takes the first message.
    pub async fn ready(house: &House) -> Self {
        let mut socket = Self::open(house, "").await.unwrap();
        let ready = socket.next().await;
        assert_eq!((&ready["type"], &ready["transport"]), (&json!("server_ready"), &json!("websocket")), "{ready}");
        socket
    }

    /// Sends a whole frame.
    pub async fn frame(&mut self, opcode: u8, payload: &[u8]) {
        self.stream.write_all(&frame(0x80 | opcode, payload)).await.unwrap();
    }

    /// Sends a message.
    pub async fn say(&mut self, value: &Value) {
        self.frame(1, value.to_string().as_bytes()).await;
    }

    /// The next frame: what it is, and what it holds.
    pub async fn raw(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Some((opcode, payload, length)) = split(&self.bytes) {
                self.bytes.drain(..length);
                return (opcode, payload);
            }
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.bytes));
            assert!(read.await.expect("in time").unwrap() > 0, "the socket has ended");
        }
    }

    /// The same; None when the connection has ended.
    pub async fn try_raw(&mut self) -> Option<(u8, Vec<u8>)> {
        while split(&self.bytes).is_none() {
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.bytes)).await;
            if !matches!(read.expect("in time"), Ok(1..)) {
                return None;
            }
        }
        Some(self.raw().await)
    }

    /// The next message; pings are answered.
    pub async fn next(&mut self) -> Value {
        let reading = async {
            loop {
                match self.raw().await {
                    (1, payload) => return serde_json::from_slice(&payload).unwrap(),
                    (9, payload) => self.frame(10, &payload).await,
                    other => panic!("{other:?}"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no message came")
    }

    /// Frames up to the answer to a command, which is the last.
    pub async fn answer(&mut self, command: &Value) -> Vec<Value> {
        self.say(command).await;
        let mut all = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame["type"] == "response";
            all.push(frame);
            if last {
                return all;
            }
        }
    }

    /// The answer to a command.
    pub async fn response(&mut self, command: &Value) -> Value {
        self.answer(command).await.pop().unwrap()
    }
}

fn split(bytes: &[u8]) -> Option<(u8, Vec<u8>, usize)> {
    let (head, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, usize::from(short)),
    };
    let payload = bytes.get(head..head + length)?.to_vec();
    Some((bytes[0] & 0x0f, payload, head + length))
}

/// The bytes of a frame of a client; `first` has its flags and its opcode.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}
