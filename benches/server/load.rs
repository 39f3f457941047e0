//! The measuring clients: many creations side by side, and turns watched through an event stream.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::http::{Connection, find, post_bytes};
use crate::{Options, now_us};

/// Events with the `--keep` marker that are kept of one turn.
const KEPT_MAX: usize = 256;

/// `POST`s the same body over several connections, one request at a time on each. Of several paths, each connection
/// has its own, as far as there are enough of them.
pub fn create(options: &Options) -> Result<String, String> {
    let (address, path, body) = (options.text("address")?, options.text("path")?, options.text("body")?);
    let connections = options.number("connections", None)?.max(1);
    let each = options.number("count", None)?.div_ceil(connections);
    let warm = options.number("warm", Some(0))?.div_ceil(connections);
    let paths: Vec<&str> = path.split(',').collect();
    let results = std::thread::scope(|scope| {
        let start = |at: usize| {
            let request = post_bytes(address, paths[at % paths.len()], body);
            scope.spawn(move || post_many(address, &request, warm, each))
        };
        let threads: Vec<_> = (0..connections).map(start).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a client died".to_owned())?).collect()
    });
    let results: Vec<Posted> = Result::from_iter::<Vec<Result<Posted, String>>>(results)?;
    let begin = results.iter().map(|posted| posted.begin).min().ok_or("no client")?;
    let end = results.iter().map(|posted| posted.end).max().ok_or("no client")?;
    let mut times_us: Vec<u64> = results.into_iter().flat_map(|posted| posted.times_us).collect();
    times_us.sort_unstable();
    let seconds = (end - begin).as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "a count of requests stays far below 2^52")]
    let rate = times_us.len() as f64 / seconds;
    let at = |share: usize| times_us.get((times_us.len() * share / 1000).min(times_us.len() - 1)).copied().unwrap_or(0);
    Ok(format!(
        "{{\"count\":{},\"seconds\":{seconds:.4},\"perSecond\":{rate:.1},\"p50Us\":{},\"p99Us\":{},\"maxUs\":{}}}",
        times_us.len(),
        at(500),
        at(990),
        at(1000),
    ))
}

/// What one connection saw.
struct Posted {
    begin: Instant,
    end: Instant,
    times_us: Vec<u64>,
}

fn post_many(address: &str, request: &[u8], warm: usize, count: usize) -> Result<Posted, String> {
    let mut connection = Connection::open(address)?;
    for _ in 0..warm {
        post_one(&mut connection, request)?;
    }
    let begin = Instant::now();
    let mut times_us = Vec::with_capacity(count);
    for _ in 0..count {
        times_us.push(post_one(&mut connection, request)?);
    }
    Ok(Posted { begin, end: Instant::now(), times_us })
}

/// Microseconds from the first byte written to the last byte read.
fn post_one(connection: &mut Connection, request: &[u8]) -> Result<u64, String> {
    let sent = Instant::now();
    connection.write(request)?;
    let (status, body) = connection.answer()?;
    let time = sent.elapsed();
    match status {
        200..300 => Ok(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
        _ => Err(format!("status {status}: {}", String::from_utf8_lossy(&body))),
    }
}

/// What the event stream showed of one turn.
#[derive(Default)]
struct Seen {
    first_delta_us: u64,
    last_delta_us: u64,
    terminal_us: u64,
    deltas: usize,
    bytes: usize,
    kept: Vec<String>,
}

/// What to look for.
struct Markers {
    terminal: String,
    failure: Option<String>,
    delta: Option<String>,
    keep: Option<String>,
}

/// Prompts one after another, each watched to its end through one event stream.
pub fn turns(options: &Options) -> Result<String, String> {
    let address = options.text("address")?;
    let (prompt, body) = (options.text("prompt")?, options.text("body")?);
    let limit = Duration::from_millis(options.number("limit-ms", Some(60_000))? as u64);
    let own = |name: &str| options.optional(name).map(str::to_owned);
    let markers = Markers {
        terminal: options.text("terminal")?.to_owned(),
        failure: own("failure"),
        delta: own("delta"),
        keep: own("keep"),
    };
    let mut stream = Connection::open(address)?;
    stream.subscribe(options.text("events")?)?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let problem = watch(&mut stream, &markers, &sender).err();
        // Nobody listens any more when the turns are through.
        drop(sender.send(Err(problem.unwrap_or_else(|| "the event stream has ended".to_owned()))));
    });
    let mut connection = Connection::open(address)?;
    let mut results = Vec::new();
    for number in 1..=options.number("count", None)? {
        let json = body.replace("{n}", &number.to_string());
        let sent_us = now_us();
        let (status, answer) = connection.post(prompt, &json)?;
        if !(200..300).contains(&status) {
            return Err(format!("POST {prompt}: {status}: {}", String::from_utf8_lossy(&answer)));
        }
        results.push(turn_json(number, sent_us, &seen(&receiver, limit, number)?));
    }
    Ok(format!("[{}]", results.join(",\n")))
}

fn seen(receiver: &Receiver<Result<Seen, String>>, limit: Duration, number: usize) -> Result<Seen, String> {
    receiver.recv_timeout(limit).map_err(|_| format!("turn {number} did not end within {} ms", limit.as_millis()))?
}

fn turn_json(number: usize, sent_us: u64, seen: &Seen) -> String {
    format!(
        "{{\"turn\":{number},\"sentUs\":{sent_us},\"firstDeltaUs\":{},\"lastDeltaUs\":{},\"terminalUs\":{},\"deltas\":{},\"bytes\":{},\"kept\":[{}]}}",
        seen.first_delta_us,
        seen.last_delta_us,
        seen.terminal_us,
        seen.deltas,
        seen.bytes,
        seen.kept.join(","),
    )
}

/// Reads events for ever, and hands in what it saw at each terminal one.
fn watch(stream: &mut Connection, markers: &Markers, sender: &Sender<Result<Seen, String>>) -> Result<(), String> {
    let mut text = Vec::with_capacity(1 << 20);
    let mut seen = Seen::default();
    while stream.chunk(&mut text)? {
        let now = now_us();
        let mut used = 0;
        while let Some(length) = find_blank_line(&text[used..]) {
            let frame = &text[used..used + length];
            used += length + 2;
            if markers.failure.as_deref().is_some_and(|marker| find(frame, marker.as_bytes()).is_some()) {
                return Err(format!("a turn failed: {}", String::from_utf8_lossy(frame)));
            }
            if note(frame, now, markers, &mut seen) && sender.send(Ok(std::mem::take(&mut seen))).is_err() {
                return Ok(());
            }
        }
        text.drain(..used);
    }
    Ok(())
}

/// Counts one frame. True: it ends the turn.
fn note(frame: &[u8], now: u64, markers: &Markers, seen: &mut Seen) -> bool {
    let has = |marker: &str| find(frame, marker.as_bytes()).is_some();
    seen.bytes += frame.len() + 2;
    if markers.delta.as_deref().is_some_and(has) {
        seen.deltas += words(frame).max(1);
        seen.last_delta_us = now;
        if seen.first_delta_us == 0 {
            seen.first_delta_us = now;
        }
        return false;
    }
    if markers.keep.as_deref().is_some_and(has) && seen.kept.len() < KEPT_MAX {
        seen.kept.extend(data_of(frame));
    }
    let ends = has(&markers.terminal);
    if ends {
        seen.terminal_us = now;
    }
    ends
}

/// The words of a flood in a frame: `w`, six digits and a blank. One frame may hold what the model said in many.
fn words(frame: &[u8]) -> usize {
    let is_word = |word: &&[u8]| word[0] == b'w' && word[7] == b' ' && word[1..7].iter().all(u8::is_ascii_digit);
    frame.windows(8).filter(is_word).count()
}

/// The `data:` line of a frame.
fn data_of(frame: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(frame).ok()?;
    text.lines().find_map(|line| line.strip_prefix("data:")).map(|data| data.trim().to_owned())
}

fn find_blank_line(text: &[u8]) -> Option<usize> {
    find(text, b"\n\n")
}
