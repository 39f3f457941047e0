//! The measuring clients of many: a crowd on one session, a long log read again, and many turns at once.

use std::time::{Duration, Instant};

use crate::http::{Connection, find, post_bytes};
use crate::streams::{Stream, id_of, read_all, type_of};
use crate::{Options, now_us};

/// Threads that read streams.
const READERS: usize = 2;
/// Connections that open streams, or prompt, side by side.
const HANDS: usize = 16;

/// What one stream of a crowd saw.
#[derive(Clone, Default)]
struct Seen {
    last_id: Option<u64>,
    events: usize,
    deltas: usize,
    /// Events whose number was not the next one.
    astray: usize,
    end_us: u64,
}

impl Seen {
    /// Takes a line. True: it ends the turn.
    fn take(&mut self, line: &[u8], terminal: &[u8], delta: &[u8]) -> bool {
        if let Some(id) = id_of(line) {
            self.astray += usize::from(self.last_id.is_some_and(|last| id != last + 1));
            self.last_id = Some(id);
            self.events += 1;
            return false;
        }
        let Some(kind) = type_of(line) else { return false };
        self.deltas += usize::from(kind.starts_with(delta));
        if kind.starts_with(terminal) {
            self.end_us = now_us();
        }
        self.end_us > 0
    }
}

fn in_threads<T: Send, R: Send>(parts: Vec<T>, work: impl Fn(T) -> Result<R, String> + Sync) -> Result<Vec<R>, String> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a client died".to_owned())?).collect()
    })
}

/// Opens a stream on each of the paths.
fn open_all(address: &str, paths: &[String]) -> Result<Vec<Stream>, String> {
    let parts = paths.chunks(paths.len().div_ceil(HANDS).max(1)).collect();
    let open = |paths: &[String]| paths.iter().map(|path| Stream::open(address, path)).collect::<Result<Vec<_>, _>>();
    Ok(in_threads(parts, open)?.into_iter().flatten().collect())
}

/// One turn, watched by `--clients` streams of the same session.
pub fn crowd(options: &Options) -> Result<String, String> {
    let address = options.text("address")?;
    let limit = Duration::from_millis(options.number("limit-ms", Some(60_000))? as u64);
    let (terminal, delta) = (options.text("terminal")?.as_bytes(), options.text("delta")?.as_bytes());
    let paths = vec![options.text("events")?.to_owned(); options.number("clients", None)?];
    let mut streams = open_all(address, &paths)?;
    let mut connection = Connection::open(address)?;
    let (prompt, body) = (options.text("prompt")?, options.text("body")?);
    let each = streams.len().div_ceil(READERS);
    let mut sent_us = 0;
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let read = |part: &mut [Stream]| {
            let mut seen = vec![Seen::default(); part.len()];
            read_all(part, limit, |at, line| seen[at].take(line, terminal, delta)).map(|_| seen)
        };
        let threads: Vec<_> = streams.chunks_mut(each).map(|part| scope.spawn(move || read(part))).collect();
        sent_us = now_us();
        let (status, answer) = connection.post(prompt, body)?;
        if !(200..300).contains(&status) {
            return Err(format!("POST {prompt}: {status}: {}", String::from_utf8_lossy(&answer)));
        }
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a reader died".to_owned())?);
        Ok(joined.collect::<Result<Vec<Vec<Seen>>, String>>()?.concat())
    })?;
    let over = seen.iter().filter(|one| one.end_us > 0).count();
    let least = |value: fn(&Seen) -> usize| seen.iter().map(value).min().unwrap_or(0);
    let most = |value: fn(&Seen) -> usize| seen.iter().map(value).max().unwrap_or(0);
    let last_us = seen.iter().map(|one| one.end_us).max().unwrap_or(0);
    Ok(format!(
        "{{\"clients\":{},\"over\":{over},\"deltasMin\":{},\"deltasMax\":{},\"eventsMin\":{},\"eventsMax\":{},\"astray\":{},\"sentUs\":{sent_us},\"lastUs\":{last_us}}}",
        seen.len(),
        least(|one| one.deltas),
        most(|one| one.deltas),
        least(|one| one.events),
        most(|one| one.events),
        seen.iter().map(|one| one.astray).sum::<usize>(),
    ))
}

/// A stream from its cursor to event `--until`.
pub fn resume(options: &Options) -> Result<String, String> {
    let until = options.number("until", None)? as u64;
    let begin = Instant::now();
    let mut stream = Stream::open(options.text("address")?, options.text("events")?)?;
    let (mut seen, mut first, mut bytes) = (Seen::default(), None, 0);
    let mut buffer = vec![0; 1 << 18];
    while seen.last_id.unwrap_or(0) < until {
        stream.read(&mut buffer, |line| {
            bytes += line.len() + 1;
            seen.take(line, b"-", b"-");
        })?;
        if first.is_none() && seen.events > 0 {
            first = Some(begin.elapsed());
        }
    }
    let (first, took) = (first.unwrap_or_default(), begin.elapsed());
    Ok(format!(
        "{{\"events\":{},\"astray\":{},\"bytes\":{bytes},\"firstMs\":{:.3},\"seconds\":{:.4}}}",
        seen.events,
        seen.astray,
        first.as_secs_f64() * 1e3,
        took.as_secs_f64(),
    ))
}

/// What one stream of many turns saw.
#[derive(Default)]
struct Turn {
    seen: Seen,
    /// When the model wrote it and the microseconds from then to our read, of each delta behind the last prompt.
    late_us: Vec<(u64, u64)>,
    deltas: usize,
}

/// The microseconds that deltas say that they were written at: one event may hold several.
fn written_at(line: &[u8]) -> Vec<u64> {
    let Some(at) = find(line, b":\"t1") else { return Vec::new() };
    let words = line[at + 2..].split(|byte| !byte.is_ascii_alphanumeric());
    let words = words.map_while(|word| word.strip_prefix(b"t").or(word.is_empty().then_some(b"")));
    words.filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).collect()
}

/// A turn in each of the sessions in `--list` (lines of an event path and a prompt path), all at once.
pub fn many(options: &Options) -> Result<String, String> {
    let (address, body) = (options.text("address")?, options.text("body")?);
    let limit = Duration::from_millis(options.number("limit-ms", Some(120_000))? as u64);
    let (terminal, delta) = (options.text("terminal")?.as_bytes(), options.text("delta")?.as_bytes());
    let list = options.text("list")?;
    let list = std::fs::read_to_string(list).map_err(|cause| format!("{list}: {cause}"))?;
    let pairs: Vec<(&str, &str)> = list.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut streams = open_all(address, &pairs.iter().map(|(events, _)| (*events).to_owned()).collect::<Vec<_>>())?;
    // Counts while all turns run, until the first one ends: nobody knows yet when that is.
    let prompted_us = std::sync::atomic::AtomicU64::new(u64::MAX);
    let each = streams.len().div_ceil(READERS);
    let turns: Vec<Turn> = std::thread::scope(|scope| {
        let read = |part: &mut [Stream]| {
            let mut turns: Vec<Turn> = part.iter().map(|_| Turn::default()).collect();
            read_all(part, limit, |at, line| {
                let turn = &mut turns[at];
                let is_delta = type_of(line).is_some_and(|kind| kind.starts_with(delta));
                for written in is_delta.then(|| written_at(line)).into_iter().flatten() {
                    turn.deltas += 1;
                    if written > prompted_us.load(std::sync::atomic::Ordering::Relaxed) {
                        turn.late_us.push((written, now_us().saturating_sub(written)));
                    }
                }
                turn.seen.take(line, terminal, delta)
            })?;
            Ok(turns)
        };
        let threads: Vec<_> = streams.chunks_mut(each).map(|part| scope.spawn(move || read(part))).collect();
        let parts = pairs.chunks(pairs.len().div_ceil(HANDS).max(1)).collect();
        in_threads(parts, |part: &[(&str, &str)]| {
            let mut connection = Connection::open(address)?;
            part.iter().try_for_each(|(_, prompt)| {
                connection.write(&post_bytes(address, prompt, body))?;
                let (status, answer) = connection.answer()?;
                let said = || format!("POST {prompt}: {status}: {}", String::from_utf8_lossy(&answer));
                (200..300).contains(&status).then_some(()).ok_or_else(said)
            })
        })?;
        prompted_us.store(now_us() + 500_000, std::sync::atomic::Ordering::Relaxed);
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a reader died".to_owned())?);
        joined.collect::<Result<Vec<Vec<Turn>>, String>>().map(|turns| turns.into_iter().flatten().collect())
    })?;
    Ok(many_json(&turns))
}

fn many_json(turns: &[Turn]) -> String {
    let first_end = turns.iter().map(|turn| turn.seen.end_us).min().unwrap_or(0);
    let counted = |(written, late): &(u64, u64)| (*written < first_end).then_some(*late);
    let mut late: Vec<u64> = turns.iter().flat_map(|turn| turn.late_us.iter().filter_map(counted)).collect();
    late.sort_unstable();
    let at = |share: usize| late.get((late.len() * share / 1000).min(late.len().saturating_sub(1))).unwrap_or(&0);
    let over = turns.iter().filter(|turn| turn.seen.end_us > 0).count();
    format!(
        "{{\"turns\":{},\"over\":{over},\"astray\":{},\"deltas\":{},\"counted\":{},\"p50Us\":{},\"p99Us\":{},\"p999Us\":{},\"maxUs\":{}}}",
        turns.len(),
        turns.iter().map(|turn| turn.seen.astray).sum::<usize>(),
        turns.iter().map(|turn| turn.deltas).sum::<usize>(),
        late.len(),
        at(500),
        at(990),
        at(999),
        at(1000),
    )
}
