//! Answers that come in their time: one thread writes a text to each of many connections again and again.
//!
//! Each text says when it was written, so that whoever reads it at the other end knows how long it was under way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::now_us;

/// An answer that is handed over: its head is written already.
pub struct Paced {
    /// Where it goes.
    pub stream: TcpStream,
    /// Texts that it has.
    pub texts: usize,
    /// Time between two.
    pub every: Duration,
    /// Is told of the end, with the time of the first text.
    pub done: Sender<u64>,
}

/// Hands answers to the thread that paces them.
#[derive(Clone)]
pub struct Pacer(Sender<Paced>);

impl Pacer {
    /// Starts the thread.
    pub fn start() -> Self {
        let (sender, receiver) = channel();
        std::thread::spawn(move || pace(&receiver));
        Self(sender)
    }

    /// Hands one in, and waits for its end. When its first and its last text were written.
    pub fn run(&self, stream: TcpStream, texts: usize, every: Duration) -> Result<(u64, u64), String> {
        let (done, end) = channel();
        self.0.send(Paced { stream, texts, every, done }).map_err(|_| "the pacer has ended".to_owned())?;
        let first_us = end.recv().map_err(|_| "a paced answer broke off".to_owned())?;
        Ok((first_us, now_us()))
    }
}

fn pace(handed: &Receiver<Paced>) {
    let mut answers: Vec<Option<(Paced, u64, usize)>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    loop {
        let wait =
            due.peek().map_or(Duration::from_secs(60), |Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        match handed.recv_timeout(wait) {
            Ok(paced) => {
                due.push(Reverse((Instant::now(), answers.len())));
                answers.push(Some((paced, now_us(), 0)));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(Reverse((at, which))) = due.peek().copied().filter(|Reverse((at, _))| *at <= Instant::now()) {
            due.pop();
            let Some(answer) = answers.get_mut(which) else { continue };
            let Some((paced, first_us, written)) = answer else { continue };
            let text = format!(
                "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\
                 \"delta\":{{\"content\":\"t{} \"}},\"finish_reason\":null}}]}}\n\n",
                now_us()
            );
            let sent = paced.stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes());
            *written += 1;
            if sent.is_err() {
                *answer = None;
            } else if *written == paced.texts {
                // Who no longer waits does not want to know.
                let _ = paced.done.send(*first_us);
                *answer = None;
            } else {
                due.push(Reverse((at + paced.every, which)));
            }
        }
    }
}
