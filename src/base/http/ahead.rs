//! Reads the body of an answer ahead of who takes it.
//!
//! A body that is written in many small pieces comes as many small pieces, and each would cost whoever takes it a turn of its own on the
//! processor. Here a task takes them as they come; who is busy with some finds all that came meanwhile, together (ADR 0118).
//!
//! Invariant: nothing is lost or changes its order, and an error comes behind all that came before it. No more than
//! [`AHEAD_BYTES_MAX`] (or one piece that is longer) waits, and as much was taken over.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use super::innermost;

/// Bytes that wait for who takes them, at most.
const AHEAD_BYTES_MAX: u32 = 256 << 10;
/// Pieces that are taken over at once, at most.
const PIECES_MAX: usize = 1_024;

/// A body that is read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    came: UnboundedReceiver<Result<Bytes, String>>,
    room: Arc<Semaphore>,
    /// What was taken over and not given yet, the next piece last.
    taken: Vec<Result<Bytes, String>>,
    _reads: AbortOnDropHandle<()>,
}

impl Ahead {
    /// Begins to read the body of this answer.
    pub(super) fn of(response: Response) -> Self {
        // Unbounded: what it holds is bounded in bytes, by the room.
        let (give, came) = unbounded_channel();
        let room = Arc::new(Semaphore::new(AHEAD_BYTES_MAX as usize));
        let reads = AbortOnDropHandle::new(tokio::spawn(read(response, give, Arc::clone(&room))));
        Self { came, room, taken: Vec::new(), _reads: reads }
    }

    /// The next piece; None at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        if self.taken.is_empty() {
            self.came.recv_many(&mut self.taken, PIECES_MAX).await;
            self.took();
        }
        self.taken.pop().transpose()
    }

    /// The next piece, if it is there.
    pub(super) fn there(&mut self) -> Option<Bytes> {
        if self.taken.is_empty() {
            while self.taken.len() < PIECES_MAX
                && let Ok(item) = self.came.try_recv()
            {
                self.taken.push(item);
            }
            self.took();
        }
        self.taken.pop_if(|item| item.is_ok())?.ok()
    }

    /// Makes room for what was taken over.
    fn took(&mut self) {
        let room = self.taken.iter().flatten().map(|piece| cost(piece) as usize).sum();
        self.room.add_permits(room);
        self.taken.reverse();
    }
}

/// How much room a piece takes.
fn cost(piece: &Bytes) -> u32 {
    u32::try_from(piece.len()).unwrap_or(AHEAD_BYTES_MAX).min(AHEAD_BYTES_MAX)
}

async fn read(mut response: Response, give: UnboundedSender<Result<Bytes, String>>, room: Arc<Semaphore>) {
    loop {
        let item = match response.chunk().await {
            Ok(Some(piece)) => {
                // Err: it is never closed.
                let Ok(taken) = room.acquire_many(cost(&piece)).await else { return };
                taken.forget();
                Ok(piece)
            }
            Ok(None) => return,
            Err(error) => Err(innermost(&error)),
        };
        let last = item.is_err();
        if give.send(item).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;
    use crate::base::http::{Answer, HttpError, Post, post};

    /// A server of one answer in chunks, and the answer. The answer's bytes are what `say` writes.
    async fn answered(say: impl FnOnce(&mut TcpStream) + Send + 'static) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0_u8; 4096];
            assert!(stream.read(&mut asked).unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            say(&mut stream);
        });
        let (bearer, headers, body) = (None, Vec::new(), Bytes::new());
        let request = Post { url, bearer, headers, accept: "*/*", body, idle_timeout: Duration::from_millis(20_000) };
        post(request).await.unwrap()
    }

    /// Waits, an end to it, until so much has been written.
    async fn written(told: Receiver<usize>) -> usize {
        tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(60)).unwrap()).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pieces_come_whole_and_in_order_with_those_that_wait_at_once() {
        let (tell, told) = channel();
        let mut answer = answered(move |stream| {
            for number in 0..5_000 {
                let piece = format!("{number};");
                stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).unwrap();
            }
            stream.write_all(b"0\r\n\r\n").unwrap();
            tell.send(5_000).unwrap();
        })
        .await;
        assert_eq!(written(told).await, 5_000);
        let crate::base::http::Body::Ahead(ahead) = &answer.body else { panic!("it is read ahead") };
        let read = async {
            // To the end, and not to 5,000: a piece that two reads of the system divide comes as two.
            while !ahead.came.is_closed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), read).await.expect("nobody takes them, and they are read");
        let (mut said, mut waited) = (String::new(), 0);
        while let Some(piece) = answer.chunk().await.unwrap() {
            waited += 1;
            said.push_str(str::from_utf8(&piece).unwrap());
            while let Some(piece) = answer.there() {
                said.push_str(str::from_utf8(&piece).unwrap());
            }
        }
        let want: String = (0..5_000).map(|number| format!("{number};")).collect();
        assert_eq!(said, want);
        assert_eq!(waited, 1, "all were there");
        assert_eq!((answer.chunk().await, answer.there()), (Ok(None), None));
    }

    #[tokio::test]
    async fn what_breaks_off_says_so_behind_what_came_before() {
        let mut answer = answered(|stream| stream.write_all(b"1\r\na\r\n1\r\nb\r\n9\r\nhalf").unwrap()).await;
        let mut said = Vec::new();
        let error = loop {
            match answer.chunk().await {
                Ok(piece) => said.extend_from_slice(&piece.expect("it does not end well")),
                Err(error) => break error,
            }
            while let Some(piece) = answer.there() {
                said.extend_from_slice(&piece);
            }
        };
        assert!(matches!(error, HttpError::Cut { .. }), "{error:?}");
        assert!(said.starts_with(b"ab"), "{said:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flood_that_nobody_takes_is_not_kept() {
        let (tell, told) = channel();
        let answer = answered(move |stream| {
            // Until no more is taken: what the system's own buffers hold is some megabytes.
            stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            let piece = format!("{:x}\r\n{}\r\n", 1 << 10, "x".repeat(1 << 10));
            let mut wrote = 0;
            while wrote < 256 << 20 && stream.write_all(piece.as_bytes()).is_ok() {
                wrote += piece.len();
            }
            tell.send(wrote).unwrap();
        })
        .await;
        let wrote = written(told).await;
        assert!(wrote < 64 << 20, "{wrote} bytes");
        let crate::base::http::Body::Ahead(ahead) = &answer.body else { panic!("it is read ahead") };
        assert!(ahead.room.available_permits() < 64 << 10, "it is full");
    }
}
