//! Event streams by the thousand, read by few threads: the sockets do not block, and `epoll` says which have something.
//!
//! Nothing is done for a stream that has nothing, so that two thousand quiet ones cost the processors nothing.
//!
//! A stream is taken apart into lines as it comes; what is kept of it is a line that is not whole yet.

#![allow(unsafe_code, reason = "the standard library cannot wait for several sockets at once")]

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::http::{Connection, find};

/// Pause between two looks: what comes in it is read together.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest wait of one look.
const LOOK_MS: i32 = 50;
/// Streams of which one look tells, at most.
const TOLD: usize = 1_024;
/// Where the type of an event stands in its line, at most.
const TYPE_WITHIN: usize = 160;

/// There is something to be read.
const EPOLLIN: u32 = 1;
const EPOLL_CTL_ADD: i32 = 1;
const EPOLL_CTL_DEL: i32 = 2;

/// Linux's `struct epoll_event`, which is packed on x86-64 alone.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy)]
struct Told {
    events: u32,
    which: u64,
}

unsafe extern "C" {
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(epoll: i32, what: i32, fd: i32, told: *mut Told) -> i32;
    fn epoll_wait(epoll: i32, told: *mut Told, count: i32, timeout_ms: i32) -> i32;
}

/// What waits for many sockets.
struct Watch {
    epoll: OwnedFd,
    told: Vec<Told>,
}

impl Watch {
    fn new() -> Result<Self, String> {
        // SAFETY: takes no pointers.
        let epoll = unsafe { epoll_create1(0) };
        if epoll < 0 {
            return Err(std::io::Error::last_os_error().to_string());
        }
        // SAFETY: it was opened in the line above, and nobody else has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self { epoll, told: vec![Told { events: 0, which: 0 }; TOLD] })
    }

    fn change(&self, what: i32, stream: &Stream, which: usize) -> Result<(), String> {
        let mut told = Told { events: EPOLLIN, which: which as u64 };
        // SAFETY: both descriptors are open, and the event lives until the call returns.
        let done = unsafe { epoll_ctl(self.epoll.as_raw_fd(), what, stream.tcp.as_raw_fd(), &raw mut told) };
        if done < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(()) }
    }

    /// The places of streams that have something.
    fn look(&mut self) -> Result<impl Iterator<Item = usize>, String> {
        // SAFETY: the pointer and the count are those of a vector that nobody else has meanwhile.
        let ready = unsafe { epoll_wait(self.epoll.as_raw_fd(), self.told.as_mut_ptr(), TOLD as i32, LOOK_MS) };
        let ready = usize::try_from(ready).map_err(|_| std::io::Error::last_os_error().to_string())?;
        Ok(self.told[..ready].iter().map(|told| told.which as usize))
    }
}

/// Where in a chunked body the next byte lies.
enum Place {
    /// In the line that says how long a chunk is.
    Size(usize),
    /// So many bytes before the end of a chunk.
    Data(usize),
    /// So many bytes before the next size.
    Behind(usize),
}

/// An event stream.
pub struct Stream {
    tcp: TcpStream,
    place: Place,
    line: Vec<u8>,
    early: Vec<u8>,
}

impl Stream {
    /// Opens it and reads the head of the answer.
    pub fn open(address: &str, path: &str) -> Result<Self, String> {
        let mut connection = Connection::open(address)?;
        connection.subscribe(path)?;
        let (tcp, early) = connection.into_parts();
        Ok(Self { tcp, place: Place::Size(0), line: Vec::new(), early })
    }

    /// From now on a read of it waits for nothing.
    pub fn unblock(&self) -> Result<(), String> {
        self.tcp.set_nonblocking(true).map_err(|cause| cause.to_string())
    }

    /// Reads what is there, once. Each whole line of the body is given to `take`.
    pub fn read(&mut self, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let early = std::mem::take(&mut self.early);
        self.feed(&early, &mut take);
        match self.tcp.read(buffer) {
            Ok(0) => Err("a stream was closed".to_owned()),
            Ok(count) => {
                self.feed(&buffer[..count], &mut take);
                Ok(())
            }
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(cause) => Err(format!("read from a stream: {cause}")),
        }
    }

    fn feed(&mut self, mut bytes: &[u8], take: &mut impl FnMut(&[u8])) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Size(size) => {
                    let digit = char::from(byte).to_digit(16).map(|digit| digit as usize);
                    self.place = match (byte, digit) {
                        (b'\n', _) => Place::Data(size),
                        (_, Some(digit)) => Place::Size(size * 16 + digit),
                        (_, None) => Place::Size(size),
                    };
                    bytes = rest;
                }
                Place::Data(left) => {
                    let (piece, rest) = bytes.split_at(left.min(bytes.len()));
                    self.lines(piece, take);
                    self.place = if piece.len() == left { Place::Behind(2) } else { Place::Data(left - piece.len()) };
                    bytes = rest;
                }
                Place::Behind(left) => {
                    self.place = if left == 1 { Place::Size(0) } else { Place::Behind(left - 1) };
                    bytes = rest;
                }
            }
        }
    }

    fn lines(&mut self, mut piece: &[u8], take: &mut impl FnMut(&[u8])) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                take(&piece[..end]);
            } else {
                self.line.extend_from_slice(&piece[..end]);
                take(&self.line);
                self.line.clear();
            }
            piece = &piece[end + 1..];
        }
        self.line.extend_from_slice(piece);
    }
}

/// Reads all of the streams until `take` has said of each that it is over, or the limit comes. How many are not over.
pub fn read_all(
    streams: &mut [Stream],
    limit: Duration,
    mut take: impl FnMut(usize, &[u8]) -> bool,
) -> Result<usize, String> {
    for stream in streams.iter() {
        stream.unblock()?;
    }
    let mut watch = Watch::new()?;
    for (at, stream) in streams.iter().enumerate() {
        watch.change(EPOLL_CTL_ADD, stream, at)?;
    }
    let (mut open, mut buffer) = (streams.len(), vec![0; 1 << 18]);
    let mut ready: Vec<usize> = Vec::new();
    let until = Instant::now() + limit;
    while open > 0 && Instant::now() < until {
        ready.extend(watch.look()?);
        for at in ready.drain(..) {
            let mut over = false;
            streams[at].read(&mut buffer, |line| over |= take(at, line))?;
            if over {
                watch.change(EPOLL_CTL_DEL, &streams[at], at)?;
                open -= 1;
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(open)
}

/// The number in an `id:` line.
pub fn id_of(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line.strip_prefix(b"id: ")?).ok()?.parse().ok()
}

/// What stands behind `"type":"` in a line of data, from there on.
pub fn type_of(line: &[u8]) -> Option<&[u8]> {
    let front = &line[..line.len().min(TYPE_WITHIN)];
    let at = find(front, b"\"type\":\"")?;
    line.get(at..)
}
