//! A session's file: what is refused is named with its line, what is taken comes out again as it was, and a change to any
//! event shows.

use std::io::BufReader;

use super::line::{End, EventLine, FORMAT, Head, Line, VERSION, put};
use super::reading::{Imported, NotRead};
use crate::protocol::SessionId;
use crate::store::chain::Chain;

/// The property of the target `transfer`. The first letter says of what: a file as it (s)tands, or one whose numbers and
/// chain are made to (f)it first; then the place of a byte that is changed, and by what.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((b's', [size, file @ ..])) => {
            let pieces = BufReader::with_capacity(usize::from(*size % 9) + 1, file);
            let (whole, pieces) = (read(file), Imported::read(&mut { pieces }));
            match (&whole, &pieces) {
                (Ok(whole), Ok(pieces)) => assert_eq!(written(whole), written(pieces)),
                (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
                (one, other) => panic!("{one:?}\n{other:?}"),
            }
            match whole {
                Ok(session) => taken(session),
                Err(error) => refused(&error, file),
            }
        }
        Some((b'f', [high, low, change, file @ ..])) => {
            let Some(file) = fitting(file) else { return };
            match read(&file) {
                Ok(session) => {
                    changed(&session, &file, (usize::from(u16::from_be_bytes([*high, *low])), *change));
                    taken(session);
                }
                Err(error) => refused(&error, &file),
            }
        }
        Some(_) | None => {}
    }
}

fn read(file: &[u8]) -> Result<Imported, NotRead> {
    Imported::read(&mut { file })
}

/// A refusal names one of the lines, or the one that is missing behind them, and what was expected there.
fn refused(error: &NotRead, file: &[u8]) {
    let NotRead::Line { line, field, expected } = error else { panic!("{error}: it is memory") };
    let lines = file.split(|byte| *byte == b'\n').count() as u64;
    assert!((1..=lines + 1).contains(line), "{error}");
    assert!(!field.is_empty() && !expected.is_empty(), "{error}");
    let own = |text: &str| file.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(!expected.contains(" at line ") || own(" at line "), "{error}: it is on one line");
}

/// As it was written.
fn written(session: &Imported) -> Vec<u8> {
    let mut out = Vec::new();
    let mut line = |line: &Line| put(&mut out, line).expect("it is memory");
    let head =
        Head { format: FORMAT.to_owned(), version: VERSION, program: String::new(), session_id: session.id().clone() };
    line(&Line { head: Some(head), ..Line::default() });
    let mut chain = Chain::default();
    for event in &session.events {
        chain.push(event);
        line(&Line { event: Some(EventLine::of(event)), ..Line::default() });
    }
    line(&Line { session: Some(session.session.clone()), ..Line::default() });
    for turn in &session.turns {
        line(&Line { turn: Some(turn.clone()), ..Line::default() });
    }
    let end = End { events: session.events.len() as u64, turns: session.turns.len() as u64, chain: chain.head() };
    line(&Line { end: Some(end), ..Line::default() });
    out
}

/// What was taken is taken again, under another id too.
fn taken(mut session: Imported) {
    for seq in 1..=session.events() as u64 {
        assert_eq!(session.events[usize::try_from(seq).expect("few") - 1].seq, seq);
    }
    let file = written(&session);
    let again = read(&file).unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&file)));
    assert_eq!(written(&again), file);
    let other: SessionId = "another.one".parse().expect("an id");
    session.rename(&other);
    let file = written(&session);
    let renamed = read(&file).unwrap_or_else(|error| panic!("renamed: {error}\n{}", String::from_utf8_lossy(&file)));
    assert_eq!(renamed.id(), &other);
}

/// With one byte changed it is refused, or it says the same.
fn changed(session: &Imported, file: &[u8], (at, change): (usize, u8)) {
    let mut other = file.to_vec();
    let at = at % other.len();
    other[at] ^= change;
    let Ok(read) = read(&other) else { return };
    assert_eq!(read.events(), session.events());
    let events = |session: &Imported| {
        let one = |event| serde_json::to_string(&EventLine::of(event)).expect("plain data");
        session.events.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(events(&read), events(session), "byte {at}, {}", String::from_utf8_lossy(&other));
}

/// The lines with numbers, a chain and an end that fit them. None: some cannot be read.
fn fitting(file: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut chain, mut turns) = (Vec::new(), Chain::default(), 0);
    for text in file.split(|byte| *byte == b'\n').filter(|text| !text.is_empty()) {
        let mut line: Line = serde_json::from_slice(text).ok()?;
        if let Some(event) = line.event.take() {
            let mut event = event.into_event();
            event.seq = chain.seq() + 1;
            chain.push(&event);
            line.event = Some(EventLine::of(&event));
        }
        turns += u64::from(line.turn.is_some());
        if line.end.is_some() {
            line.end = Some(End { events: chain.seq(), turns, chain: chain.head() });
        }
        put(&mut out, &line).expect("it is memory");
    }
    (!out.is_empty()).then_some(out)
}

#[test]
fn every_input_holds() {
    crate::base::replay::replay("transfer", b"sf", holds);
}
