//! Which messages stay, what stands in the place of the others, and what a transcript leaves out.

use serde_json::json;

use super::*;
use crate::protocol::{AttachedFile, CompactionTrigger, ToolCallRequest};

/// `u` what the user says, `a` an answer, `c` a call, `C` two calls, `r` a result, `s` a summary; a digit in front: so many tokens.
fn story(text: &str) -> Vec<Message> {
    let call = |id: usize| ToolCallRequest { id: id.to_string(), name: "t".into(), arguments: serde_json::Map::new() };
    let mut size = 1;
    let mut messages = Vec::new();
    for (at, c) in text.chars().enumerate() {
        let said = || format!("{at} {}", "x".repeat(size * 4))[..size * 4].to_owned();
        let user = |text: String| Message::User(vec![Part::Text { text }]);
        messages.push(match c {
            '1'..='9' => {
                size = c.to_digit(10).unwrap_or(1) as usize * 10;
                continue;
            }
            'u' => user(said()),
            's' => user(format!("{SUMMARY_MARK}\nold")),
            'a' => Message::assistant(said(), vec![]),
            'c' => Message::assistant("", vec![call(at)]),
            'C' => Message::assistant("", vec![call(at), call(at + 1)]),
            'r' => Message::ToolResult {
                call_id: at.to_string(),
                name: "t".into(),
                output: said(),
                is_error: false,
                parts: Vec::new(),
            },
            other => panic!("{other}"),
        });
    }
    messages
}

#[test]
fn what_stays_and_what_goes() {
    #[rustfmt::skip]
    let table = [
        // story,            newest, said, kept and carried
        ("2uauaua",           60, 0,   Some((3, vec![]))),
        ("2uauaua",           61, 30,  Some((3, vec![1]))),
        ("2uauaua",           500, 0,  None),
        ("2uauaua",           0,  0,   Some((0, vec![]))),
        ("2uauaua",           0,  60,  Some((0, vec![6, 4, 2]))),
        ("2uauaua",           0,  40,  Some((0, vec![4, 2]))),
        // A result is never alone.
        ("2ucrucr",           45, 0,   Some((3, vec![]))),
        ("2ucrucr",           40, 0,   Some((2, vec![]))),
        ("2ucrCrr",           45, 0,   Some((3, vec![]))),
        ("2ucrCrr",           25, 0,   Some((0, vec![]))),
        ("2ucrCrr",           0,  20,  Some((0, vec![6]))),
        // A summary is summed up again, not kept, and there has to be more than that.
        ("2sua",              500, 0,  None),
        ("2sua",              0,  0,   Some((0, vec![]))),
        ("2suaua",            45, 90,  Some((2, vec![2]))),
        ("s",                 0,  0,   None),
        ("",                  9,  9,   None),
        // One that is too long is passed over.
        ("1u9u1ucr",          0,  25,  Some((0, vec![5, 3]))),
    ];
    for (text, newest, said, want) in table {
        let want = want.map(|(kept, carried)| Cut { kept, carried });
        assert_eq!(cut(&story(text), Keep { prompt: false, newest, said, last: 0 }), want, "{text} {newest} {said}");
    }
    // A prompt that is to be answered stays, whatever its length.
    // What is worked on stays although it is longer than what else the user said may be.
    let keep = |last| Keep { prompt: true, newest: 25, said: 10, last };
    for (text, last, want) in [("1u6ucrcr", 60, vec![5]), ("1u6ucrcr", 59, vec![6]), ("6ucr1ua", 60, vec![])] {
        assert_eq!(cut(&story(text), keep(last)).unwrap().carried, want, "{text} {last}");
    }
    for (text, want) in [("9u", None), ("2ua9u", Some(1)), ("2uacr", Some(0)), ("s", None)] {
        assert_eq!(
            cut(&story(text), Keep { prompt: true, newest: 1, said: 0, last: 0 }).map(|cut| cut.kept),
            want,
            "{text}"
        );
    }
}

/// Whatever is cut, each result that stays has its call in front of it.
#[test]
fn no_result_without_its_call() {
    let pieces = ["u", "a", "cr", "Crr", "s", "3cr", "1u"];
    for seed in 0_usize..3_000 {
        let (mut text, mut rest) = (String::new(), seed * 7_919 + 13);
        for _ in 0..9 {
            text.push_str(pieces[rest % pieces.len()]);
            rest = rest / pieces.len() + seed;
        }
        let mut messages = story(&text);
        for newest in [0, 5, 20, 40, 80] {
            let Some(Cut { kept, carried }) = cut(&messages, Keep { prompt: newest > 20, newest, said: 30, last: 40 })
            else {
                continue;
            };
            assert!(
                !matches!(messages.get(messages.len() - kept), Some(Message::ToolResult { .. })),
                "{text} {newest}"
            );
            assert!(carried.iter().all(|back| matches!(messages[messages.len() - kept - back], Message::User(_))));
            messages = story(&text);
        }
    }
}

fn made(kept: u64, carried: &[u64]) -> Compaction {
    Compaction {
        trigger: CompactionTrigger::Threshold,
        summary: "## Goal\nx".into(),
        kept,
        carried: carried.to_vec(),
        files: TouchedFiles { changed: vec!["a.rs".into(), "b.rs".into()], read: vec!["c.rs".into()] },
        attached: vec![AttachedFile { path: "a.rs".into(), text: "1: fn a".into() }],
        tokens_before: 9,
        tokens_after: 3,
        usage: None,
    }
}

#[test]
fn the_summary_stands_before_what_stays() {
    let before = story("2uaucra");
    let mut messages = before.clone();
    shorten_to(&mut messages, &made(3, &[3, 1]));
    assert_eq!(messages[1..], [&before[..1], &before[2..3], &before[3..]].concat());
    assert!(is_summary(&messages[0]));
    let Message::User(parts) = &messages[0] else { panic!() };
    let texts: Vec<&str> =
        parts.iter().map(|part| if let Part::Text { text } = part { text.as_str() } else { "" }).collect();
    assert_eq!(
        texts,
        [
            "[Conversation summary]\n## Goal\nx",
            "Files changed so far: a.rs, b.rs\nFiles read so far: c.rs",
            "[The file a.rs as it is now]\n1: fn a",
        ]
    );
    assert_eq!(files_of(&messages[0]), made(0, &[]).files, "the next summary goes on from them");
    assert_eq!(files_of(&before[0]), TouchedFiles::default());
    // What a log says that does not fit its messages is no panic.
    let mut odd = story("ua");
    shorten_to(&mut odd, &made(99, &[7, 0]));
    assert_eq!(odd[1..], story("ua"));
}

#[test]
fn who_heard_what_went_needs_no_summary() {
    let made = made(2, &[3]);
    #[rustfmt::skip]
    let table = [((6, 6), 4), ((5, 6), 3), ((4, 6), 2), ((3, 6), 0), ((0, 6), 0)];
    for (heard, want) in table {
        assert_eq!(heard_of(&made, heard), want, "{heard:?}");
    }
}

#[test]
fn a_transcript_loses_outputs_first_and_then_its_middle() {
    let mut messages = story("2uaua");
    let arguments = json!({ "path": "a.rs" }).as_object().cloned().unwrap_or_default();
    messages
        .push(Message::assistant("look", vec![ToolCallRequest { id: "1".into(), name: "fs_read".into(), arguments }]));
    messages.push(Message::ToolResult {
        call_id: "1".into(),
        name: "fs_read".into(),
        output: format!("head{}tail", "ä".repeat(5_000)),
        is_error: true,
        parts: Vec::new(),
    });
    let whole = transcript(&messages, 1_000_000);
    assert!(whole.contains("[Assistant]\nlook\n[calls fs_read {\"path\":\"a.rs\"}]"), "{whole}");
    assert!(whole.contains("[Tool Result: fs_read (failed)]\nhead"), "{whole}");
    assert!(whole.ends_with("tail") && whole.len() < 3_000, "an output is cut in its middle: {}", whole.len());
    let less = transcript(&messages, 1_000);
    assert!(less.ends_with("tail") && units(&less) <= 1_000, "{less}");
    let least = transcript(&messages, 500);
    assert!(least.ends_with("[10008 bytes]"), "{least}");
    let tiny = transcript(&messages, 300);
    assert!(tiny.contains(LEFT_OUT) && units(&tiny) <= 400, "{tiny}");
    let long = [Message::User(vec![Part::Text { text: format!("begin{}end", "x".repeat(9_000)) }])];
    let ends = transcript(&long, 500);
    assert!(ends.contains("[User]\nbegin") && ends.ends_with("end") && units(&ends) <= 600, "{ends}");
    // An earlier summary stays, without the files that were shown again with it.
    let mut summed = story("9uauaua");
    shorten_to(&mut summed, &made(2, &[]));
    for room in [100_000, 1_200, 400] {
        let told = transcript(&summed, room);
        assert!(
            told.contains("## Goal\nx") && told.contains("Files changed so far: a.rs") && !told.contains("fn a"),
            "{told}"
        );
    }
    assert_eq!(transcript(&[], 10), "");
}

#[test]
fn summaries_are_tidy_and_bounded() {
    assert_eq!(tidied(" \n", 100), None);
    assert_eq!(tidied("\n a \n", 100).as_deref(), Some("a"));
    let long = tidied(&"ä".repeat(100), 51).unwrap();
    assert!(long.starts_with(&"ä".repeat(25)) && long.ends_with("too long]") && long.len() < 100, "{long}");
    for (text, is_one) in [
        ("## Goal\nx\n## Next steps\ny", true),
        ("**Goal:**\nx\n\n**State**\ny", true),
        ("## Goal\nx", false),
        ("The goal is x, and the state y.", false),
        ("OK", false),
    ] {
        assert_eq!(looks_like_summary(text), is_one, "{text}");
    }
}
