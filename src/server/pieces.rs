//! The bytes of a WebSocket between the line and tungstenite, which puts messages together: what is begun is counted, has its
//! time, and comes in pieces.
//!
//! tungstenite makes its buffer as large as the largest frame and keeps it so. It therefore gets small ones: a large frame of
//! data is handed on as a beginning and its continuations. A piece is a multiple of four bytes long, so the mask stays as it is.
//!
//! Invariants: what has come of a message is counted until the message after it, or the next look for more. The time of a message
//! runs while nothing comes, whatever pings stand between its pieces; while nobody reads here it stands still.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead as _, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::intake::{Full, Intake, Share};

/// Longest frame that is handed on.
const PIECE_BYTES: usize = 8 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Longest head of a frame.
const HEAD_BYTES_MAX: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
const CONTROL_BYTES_MAX: u64 = 125;

/// What is wrong with what comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A message is too large.
    TooLarge,
    /// There is no room for a message as large.
    NoRoom,
    /// A message was not whole in its time.
    Late,
    /// It is no frame of a WebSocket.
    Broken,
}

/// What a message may take.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Bytes of a message.
    pub(super) bytes_max: usize,
    /// How long nothing may come of one that is begun, in sum.
    pub(super) time: Duration,
    /// The room of all.
    pub(super) intake: Arc<Intake>,
}

/// A line, as tungstenite sees it.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    inner: BufReader<T>,
    bounds: Bounds,
    share: Share,
    head: Head,
    frame: Frame,
    /// Bytes so far of a message that is begun.
    message: Option<u64>,
    /// The message is whole, and may still be in somebody's hands.
    whole: bool,
    /// The head of a piece that is not handed on yet.
    told: Vec<u8>,
    clock: Clock,
    fault: Option<Fault>,
    told_fault: Arc<OnceLock<Fault>>,
}

/// What has come of the head of a frame.
#[derive(Debug, Default)]
struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: usize,
}

/// The frame that is coming in.
#[derive(Debug, Default)]
struct Frame {
    /// The first byte of its head; behind the first piece, that of a continuation.
    first: u8,
    is_control: bool,
    mask: [u8; 4],
    /// Of the piece that is being handed on.
    piece_left: usize,
    /// Behind that piece.
    left: u64,
}

/// The time of what is begun.
#[derive(Debug)]
struct Clock {
    left: Duration,
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Head {
    /// Bytes that the head has, as far as they show it.
    fn needed(&self) -> usize {
        if self.length < 2 {
            return 2;
        }
        let mask = if self.bytes[1] & MASKED == 0 { 0 } else { 4 };
        mask + match self.bytes[1] & !MASKED {
            126 => 4,
            127 => 10,
            _ => 2,
        }
    }

    /// Takes what belongs to it. Gives back how much that is.
    fn take(&mut self, data: &[u8]) -> usize {
        let mut taken = 0;
        while self.length < self.needed() && taken < data.len() {
            self.bytes[self.length] = data[taken];
            self.length += 1;
            taken += 1;
        }
        taken
    }

    fn is_whole(&self) -> bool {
        self.length == self.needed()
    }

    /// Bytes behind it.
    fn payload(&self) -> u64 {
        let bytes = &self.bytes;
        match bytes[1] & !MASKED {
            126 => u64::from(u16::from_be_bytes([bytes[2], bytes[3]])),
            127 => bytes[2..10].iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
            short => u64::from(short),
        }
    }

    /// None: it has none.
    fn mask(&self) -> Option<[u8; 4]> {
        let at = self.length.checked_sub(4).filter(|_| self.bytes[1] & MASKED != 0)?;
        self.bytes[at..self.length].try_into().ok()
    }
}

impl<T: AsyncRead> Pieces<T> {
    /// The line, and where is told what was wrong with it once reading has failed.
    pub(super) fn new(inner: T, bounds: Bounds) -> (Self, Arc<OnceLock<Fault>>) {
        let told_fault = Arc::new(OnceLock::new());
        let pieces = Self {
            inner: BufReader::with_capacity(READ_BYTES, inner),
            share: Share::of(&bounds.intake),
            head: Head::default(),
            frame: Frame::default(),
            message: None,
            whole: false,
            told: Vec::new(),
            clock: Clock { left: bounds.time, since: None, sleep: None },
            fault: None,
            told_fault: Arc::clone(&told_fault),
            bounds,
        };
        (pieces, told_fault)
    }

    /// The line alone; what was begun is given back.
    pub(super) fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// Begins the frame whose head has come.
    fn begin(&mut self) -> Result<(), Fault> {
        let head = std::mem::take(&mut self.head);
        let (first, length) = (head.bytes[0], head.payload());
        let mask = head.mask().ok_or(Fault::Broken)?;
        let (last, opcode) = (first & FIN != 0, first & OPCODE);
        match opcode {
            _ if first & RESERVED != 0 => return Err(Fault::Broken),
            0x8..=0xa if !last || length > CONTROL_BYTES_MAX => return Err(Fault::Broken),
            0x8..=0xa => {}
            0 if self.message.is_none() => return Err(Fault::Broken),
            1 | 2 if self.message.is_some() => return Err(Fault::Broken),
            0..=2 => {
                if self.message.is_none() {
                    self.share.clear();
                    self.whole = false;
                }
                let bytes = self.message.unwrap_or(0).checked_add(length);
                self.message = bytes.filter(|bytes| *bytes <= self.bounds.bytes_max as u64);
                self.message.ok_or(Fault::TooLarge)?;
            }
            _ => return Err(Fault::Broken),
        }
        self.frame = Frame { first, is_control: first & CONTROL != 0, mask, piece_left: 0, left: length };
        self.next_piece();
        Ok(())
    }

    /// Begins the next piece of the frame: the first one has its opcode, the last one its end.
    fn next_piece(&mut self) {
        let frame = &mut self.frame;
        let piece = usize::try_from(frame.left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        frame.left -= piece as u64;
        let first = if frame.left == 0 { frame.first } else { frame.first & !FIN };
        frame.piece_left = piece;
        self.told.push(first);
        match u8::try_from(piece) {
            Ok(short @ ..126) => self.told.push(MASKED | short),
            _ => {
                self.told.push(MASKED | 126);
                self.told.extend_from_slice(&(piece as u16).to_be_bytes());
            }
        }
        self.told.extend_from_slice(&frame.mask);
        frame.first &= FIN;
        self.look_for_its_end();
    }

    /// Notes what of a piece has been handed on.
    fn passed(&mut self, bytes: usize) -> Result<(), Fault> {
        self.frame.piece_left -= bytes;
        if !self.frame.is_control {
            self.share.grow(bytes).map_err(|Full| Fault::NoRoom)?;
        }
        if self.frame.piece_left == 0 && self.frame.left > 0 {
            self.next_piece();
        }
        self.look_for_its_end();
        Ok(())
    }

    fn look_for_its_end(&mut self) {
        let frame = &self.frame;
        let is_over = frame.piece_left == 0 && frame.left == 0;
        if is_over && !frame.is_control && frame.first & FIN != 0 {
            self.message = None;
            self.whole = true;
        }
    }

    /// Whether nothing is begun.
    fn is_between(&self) -> bool {
        self.message.is_none() && self.head.length == 0 && self.frame.piece_left == 0
    }
}

impl<T: AsyncRead + Unpin> Pieces<T> {
    /// Hands on what has come, as far as there is room for it.
    fn fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Result<(), Fault>>> {
        while buf.remaining() > 0 {
            if !self.told.is_empty() {
                let bytes = self.told.len().min(buf.remaining());
                buf.put_slice(&self.told[..bytes]);
                self.told.drain(..bytes);
                continue;
            }
            let data = ready!(Pin::new(&mut self.inner).poll_fill_buf(cx))?;
            if data.is_empty() {
                break;
            }
            let taken = if self.frame.piece_left > 0 {
                let bytes = data.len().min(self.frame.piece_left).min(buf.remaining());
                buf.put_slice(&data[..bytes]);
                bytes
            } else {
                self.head.take(data)
            };
            Pin::new(&mut self.inner).consume(taken);
            let outcome = if self.frame.piece_left > 0 {
                self.passed(taken)
            } else if self.head.is_whole() {
                self.begin()
            } else {
                Ok(())
            };
            if let Err(fault) = outcome {
                return Poll::Ready(Ok(Err(fault)));
            }
        }
        Poll::Ready(Ok(Ok(())))
    }

    /// Waits for more of what is begun, as long as it may take.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Fault> {
        if self.is_between() {
            self.clock = Clock { left: self.bounds.time, since: None, sleep: None };
            return Poll::Pending;
        }
        // A timer that is set to now takes a moment, and would be set anew each time.
        if self.clock.left.is_zero() {
            return Poll::Ready(Fault::Late);
        }
        let now = Instant::now();
        let end = now + self.clock.left;
        self.clock.since = Some(now);
        let sleep = self.clock.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        sleep.as_mut().reset(end);
        sleep.as_mut().poll(cx).map(|()| Fault::Late)
    }

    fn fail(&mut self, fault: Fault) -> Poll<io::Result<()>> {
        self.fault = Some(fault);
        // The first one is the one that counts.
        let _ = self.told_fault.set(fault);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, format!("{fault:?}"))))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Pieces<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(fault) = this.fault {
            return this.fail(fault);
        }
        if let Some(since) = this.clock.since.take() {
            this.clock.left = this.clock.left.saturating_sub(since.elapsed());
        }
        if std::mem::take(&mut this.whole) {
            this.share.clear();
            this.clock.left = this.bounds.time;
        }
        let before = buf.filled().len();
        let filled = this.fill(cx, buf);
        let has_come = buf.filled().len() > before;
        match filled {
            Poll::Ready(Ok(Ok(()))) => Poll::Ready(Ok(())),
            // What stands before it is handed on first.
            Poll::Ready(Ok(Err(fault))) if has_come => {
                this.fault = Some(fault);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(Err(fault))) => this.fail(fault),
            Poll::Pending if has_come => Poll::Ready(Ok(())),
            Poll::Pending => match this.wait(cx) {
                Poll::Ready(fault) => this.fail(fault),
                Poll::Pending => Poll::Pending,
            },
            Poll::Ready(Err(cause)) => Poll::Ready(Err(cause)),
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Pieces<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const MASK: [u8; 4] = [3, 1, 4, 15];

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first, MASKED | 127];
        bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&MASK);
        bytes.extend(masked(payload));
        bytes
    }

    fn masked(payload: &[u8]) -> Vec<u8> {
        payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()
    }

    fn pieces<T: AsyncRead>(line: T, intake: &Arc<Intake>) -> (Pieces<T>, Arc<OnceLock<Fault>>) {
        let time = Duration::from_secs(30);
        Pieces::new(line, Bounds { bytes_max: 1_000_000, time, intake: Arc::clone(intake) })
    }

    /// Heads and texts of frames.
    fn read(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let mut head = Head::default();
            bytes = &bytes[head.take(bytes)..];
            assert_eq!((head.is_whole(), head.mask()), (true, Some(MASK)));
            let (payload, rest) = bytes.split_at(usize::try_from(head.payload()).unwrap());
            frames.push((head.bytes[0], masked(payload)));
            bytes = rest;
        }
        frames
    }

    #[tokio::test]
    async fn large_frames_come_as_small_ones_and_all_of_them_comes() {
        let text: Vec<u8> = (0..100_001_u32).map(|number| number.to_le_bytes()[0]).collect();
        let (begin, end) = text.split_at(70_003);
        let sent =
            [frame(0x81, b"small"), frame(0x01, begin), frame(0x89, b"there"), frame(0x80, end), frame(0x82, b"")];
        for step in [1, 13, 50_000] {
            let intake = Intake::new(1_000_000);
            let (line, mut far) = tokio::io::duplex(step);
            let (mut pieces, fault) = pieces(line, &intake);
            let bytes = sent.concat();
            let writing = tokio::spawn(async move { far.write_all(&bytes).await });
            let mut got = Vec::new();
            pieces.read_to_end(&mut got).await.unwrap();
            writing.await.unwrap().unwrap();
            let frames = read(&got);
            assert!(frames.iter().all(|(_, payload)| payload.len() <= PIECE_BYTES), "{step}");
            let kinds: Vec<u8> = frames.iter().map(|(first, _)| *first).collect();
            let expected = [&[0x81, 0x01][..], &[0; 8], &[0x89], &[0; 3], &[0x80, 0x82]].concat();
            assert_eq!(kinds, expected, "{step}");
            let whole = frames[1..].iter().filter(|(first, _)| first & CONTROL == 0);
            let whole: Vec<u8> = whole.flat_map(|(_, payload)| payload.clone()).collect();
            assert!(whole == text, "{step}");
            assert_eq!((fault.get(), intake.used()), (None, 0), "{step}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_runs_while_a_message_is_begun_and_nothing_comes() {
        let intake = Intake::new(1_000_000);
        let (line, mut far) = tokio::io::duplex(1_000);
        let (mut pieces, fault) = pieces(line, &intake);
        let mut got = [0; 1_000];
        let nothing = tokio::time::timeout(Duration::from_secs(3_600), pieces.read(&mut got)).await;
        assert!(nothing.is_err(), "nothing is begun");
        far.write_all(&frame(0x01, b"a")).await.unwrap();
        assert!(pieces.read(&mut got).await.unwrap() > 0);
        // Nobody reads: it is not the client who is late.
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let began = Instant::now();
        let reading = tokio::spawn(async move { while pieces.read(&mut got).await.is_ok() {} });
        while !reading.is_finished() {
            // A line that is closed takes no more.
            drop(far.write_all(&frame(0x89, b"still here")).await);
            tokio::time::sleep(Duration::from_secs(7)).await;
        }
        assert_eq!(fault.get(), Some(&Fault::Late));
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn what_there_is_no_room_for_is_told_and_given_back() {
        let intake = Intake::new(10_000);
        let bytes = frame(0x01, &[b'x'; 90_000]);
        let (mut pieces, fault) = pieces(&bytes[..], &intake);
        let mut got = Vec::new();
        assert!(pieces.read_to_end(&mut got).await.is_err());
        assert_eq!(fault.get(), Some(&Fault::NoRoom));
        assert!(got.len() >= 64 << 10 && intake.used() > 0);
        pieces.into_inner();
        assert_eq!(intake.used(), 0);
    }
}
