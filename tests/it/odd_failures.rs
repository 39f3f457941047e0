//! Odd ways to fail, over each of the wires: those that come together, and those that only proxies and small servers have.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use simse::agent::Ended;
use simse::config::Api;
use simse::protocol::Message;

use super::failing::{Came, done};
use crate::support::model_server::{Answer, Step, call_chunks};
use crate::support::says::{Says, WIRES, content};

/// A call with these arguments, as they are written.
fn calls_with(api: Api, name: &str, arguments: &str) -> String {
    match api {
        Api::Chat => call_chunks(0, "c1", name, arguments),
        Api::Gemini => {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            content(&json!([{ "functionCall": { "id": "c1", "name": name, "args": arguments } }]), None)
        }
        api => Says(api).half_call(&arguments.replace('\\', "\\\\")).replace("\"count\"", &format!("\"{name}\"")),
    }
}

/// The output of the one call of a turn that went on after it and has run nothing.
fn told(came: &Came, what: &str) -> String {
    assert_eq!((came.outcome.ended.clone(), came.runs), (Ended::Completed, 0), "{what}");
    assert_eq!(came.outcome.final_text, "I see.", "{what}");
    let results = came.outcome.messages.iter().filter_map(|message| match message {
        Message::ToolResult { output, is_error: true, .. } => Some(output.clone()),
        _ => None,
    });
    results.collect::<Vec<_>>().join("|")
}

#[tokio::test]
async fn a_call_that_cannot_be_is_told_to_the_model_and_runs_nothing() {
    for api in WIRES {
        let says = Says(api);
        #[rustfmt::skip]
        let table = [
            ("count", "[1]", "one JSON object, got an array"), ("count", "\"n\"", "one JSON object, got a string"), ("count", "7", "one JSON object, got a number"),
            ("count", "true", "one JSON object, got a boolean"), ("", "{}", "names no tool"), ("county", "{}", "county"),
        ];
        for (name, arguments, words) in table {
            let what = format!("{api:?} {name} {arguments}");
            let bad = Answer::raw(calls_with(api, name, arguments) + &says.end("tool_calls"));
            let came = Came::of(api, vec![bad, says.answer("I see.")], |_| {}).await;
            let told = told(&came, &what);
            assert!(told.contains(words), "{what}: {told}");
            // What goes back is taken by the strictest of servers: a name, and an object.
            let sent = came.server.requests()[1].json().to_string();
            assert!(!sent.contains("\"name\":\"\""), "{what}: {sent}");
        }
    }
}

/// The limit may come before the first of them: that is not a call without arguments.
#[tokio::test]
async fn a_call_that_the_limit_cut_before_its_arguments_runs_nothing() {
    // Over Gemini's wire calls come whole.
    for api in WIRES.into_iter().filter(|api| *api != Api::Gemini) {
        let says = Says(api);
        for before in [String::new(), says.text("so ")] {
            let cut = Answer::raw(before + &says.half_call("") + &says.end("length"));
            let came = Came::of(api, vec![cut, says.answer("I see.")], |_| {}).await;
            let told = told(&came, &format!("{api:?}"));
            assert!(told.contains("limit of tokens inside the arguments, after 0 bytes"), "{api:?}: {told}");
        }
        // One without arguments that was not cut runs.
        let whole = Answer::raw(says.half_call("") + &says.end("tool_calls"));
        assert_eq!(Came::of(api, vec![whole, says.answer("I see.")], |_| {}).await.runs, 1, "{api:?}");
    }
}

#[tokio::test]
async fn whatever_is_odd_about_bytes_may_come_together() {
    for api in WIRES {
        let says = Says(api);
        let text = format!(
            "{}{}{}",
            says.text("ä<>😀"),
            ": lives\n\n",
            says.text("b") + &says.call() + &says.end("tool_calls")
        );
        let mut bytes = format!("\u{FEFF}{}", text.replace('\n', "\r\n")).into_bytes();
        let at = bytes.windows(2).position(|two| two == b"<>").unwrap();
        bytes.splice(at..at + 2, [0xF0, 0x9F]);
        for size in [1, 3, 7] {
            let pieces = bytes.chunks(size).map(|piece| Step::Send(piece.to_vec().into())).collect();
            let came = Came::of(api, vec![Answer::steps(pieces), says.answer("I see.")], |_| {}).await;
            assert_eq!((came.outcome.ended.clone(), came.runs), (Ended::Completed, 1), "{api:?} {size}");
            assert_eq!(came.texts(), ["ä\u{FFFD}😀b", "I see."], "{api:?} {size}");
        }
    }
}

#[tokio::test]
async fn what_comes_behind_the_end_is_nobodys() {
    for api in WIRES {
        let says = Says(api);
        // Gemini's end is the end of its body; what stands behind the reason to stop there is the tokens.
        let behind = if api == Api::Gemini {
            "data: \n\n: lives\n\n".to_owned()
        } else {
            says.text("more") + &says.call() + "data: {\"x\n\nrubbish"
        };
        let said = says.text("all") + &says.end("stop") + &behind;
        for last in [Step::Cut, Step::Send("\n\n".into())] {
            let answer = Answer::steps(vec![Step::Send(said.clone().into()), last]);
            let came = Came::of(api, vec![answer], |_| {}).await;
            assert_eq!(
                (came.outcome.ended.clone(), came.texts(), came.runs),
                (Ended::Completed, vec!["all".to_owned()], 0),
                "{api:?}"
            );
            assert_eq!((came.retries().len(), came.outcome.progress.usage.total_tokens), (0, 15), "{api:?}");
        }
    }
}

#[tokio::test]
async fn a_line_of_some_megabytes_is_read_and_one_beyond_the_bound_is_not() {
    for api in WIRES {
        let says = Says(api);
        let long = "ä".repeat(3_900_000);
        let came = Came::of(api, vec![Answer::raw(says.text(&long) + &says.end("stop"))], |_| {}).await;
        assert_eq!(came.outcome.ended, Ended::Completed, "{api:?}");
        assert!(came.outcome.final_text == long, "{api:?}: all of it is there");
        let came = Came::of(api, vec![Answer::raw(says.text(&"x".repeat(8 << 20)) + &says.end("stop"))], |_| {}).await;
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("malformed", 1), "{api:?}");
    }
}

#[tokio::test]
async fn pauses_may_be_told_as_a_date() {
    for (date, most) in [("Wed, 21 Oct 2015 07:28:00 GMT", 20), ("Thu, 31 Dec 2099 23:59:59 GMT", 40)] {
        for status in [429, 503, 529] {
            let busy = Answer::status(status, &[("retry-after", date)], "{\"error\":{\"message\":\"busy\"}}");
            let came = Came::of(Api::Chat, vec![busy, Says(Api::Chat).answer("ok")], |input| {
                input.retry.delay_max = Duration::from_millis(40);
                input.retry.base_delay = Duration::from_millis(10);
            })
            .await;
            let retries = came.retries();
            assert_eq!((came.outcome.ended, retries.len()), (Ended::Completed, 1), "{date}");
            assert!(retries[0].1 <= most && (most != 40 || retries[0].1 == 40), "{date}: {retries:?}");
        }
    }
}

fn zipped(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Nobody asked for it; what stands before some servers does it all the same.
#[tokio::test]
async fn a_body_that_was_made_smaller_is_read_or_told_by_its_name() {
    for api in WIRES {
        let says = Says(api);
        let headers = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
        let whole = zipped(&(says.text("Whole.") + &says.call() + &says.end("tool_calls")));
        for size in [1, 50, 4_000] {
            let pieces = whole.chunks(size).map(|piece| Step::Send(piece.to_vec().into())).collect();
            let came =
                Came::of(api, vec![Answer::steps(pieces).under(200, &headers), says.answer("Done.")], |_| {}).await;
            assert_eq!((came.outcome.ended.clone(), came.runs), (Ended::Completed, 1), "{api:?} {size}");
            assert_eq!(came.texts(), ["Whole.", "Done."], "{api:?}");
        }
        // Cut, and broken.
        for bad in [whole[..whole.len() / 2].to_vec(), [&whole[..30], &[0xFF; 40]].concat()] {
            let answers = [vec![Answer::raw(bad).under(200, &headers)], done(api)].concat();
            let came = Came::of(api, answers, |_| {}).await;
            assert_eq!(
                (came.outcome.ended.clone(), came.runs, came.retries().len()),
                (Ended::Completed, 1, 1),
                "{api:?}"
            );
        }
        // The words of an error are read, too.
        let body = zipped("{\"error\":{\"message\":\"the model has no legs\",\"code\":\"model_not_found\"}}");
        let refused =
            Answer::raw(body).under(404, &[("content-type", "application/json"), ("content-encoding", "gzip")]);
        let came = Came::of(api, vec![refused], |_| {}).await;
        let Ended::Failed(error) = &came.outcome.ended else { panic!("{api:?}") };
        assert!(error.message.contains("no legs"), "{}", error.message);
        let br = Answer::raw(&b"\x0b\x02\x80hello\x03"[..])
            .under(200, &[("content-type", "text/event-stream"), ("content-encoding", "br")]);
        let came = Came::of(api, vec![br], |_| {}).await;
        let Ended::Failed(error) = &came.outcome.ended else { panic!("{api:?}") };
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("malformed", 1), "{api:?}");
        assert!(error.message.contains("`br`"), "{}", error.message);
    }
}

/// Errors under a good status, in whatever dress.
#[tokio::test]
async fn an_error_in_place_of_a_stream_is_told_in_its_own_words() {
    for api in WIRES {
        let body = "{\"error\":{\"message\":\"the model has no legs\",\"type\":\"invalid_request_error\",\"code\":\"model_not_found\"}}";
        for kind in
            ["text/plain", "text/event-stream", "application/json; charset=utf-8", "application/problem+json", ""]
        {
            for body in [body.to_owned(), format!("{body}\n")] {
                let answer = Answer::status(200, &[("content-type", kind)], &body);
                let came = Came::of(api, vec![answer], |_| {}).await;
                let Ended::Failed(error) = &came.outcome.ended else { panic!("{api:?} {kind}: {:?}", came.outcome) };
                assert!(error.message.contains("no legs"), "{api:?} {kind}: {}", error.message);
                assert_eq!(came.server.requests().len(), 1, "{api:?} {kind}: {}", error.message);
            }
        }
        let event = format!("event: error\ndata: {body}\n\n");
        let came = Came::of(api, vec![Answer::raw(Says(api).text("so far") + &event)], |_| {}).await;
        let Ended::Failed(error) = &came.outcome.ended else { panic!("{api:?}: {:?}", came.outcome) };
        assert!(error.message.contains("no legs"), "{api:?}: {}", error.message);
        let moved = Answer::status(307, &[("location", "https://elsewhere.example/v1")], "");
        let came = Came::of(api, vec![moved], |_| {}).await;
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("refused", 1), "{api:?}");
    }
}

/// Each drop of it is a sign of life, and none begins the wait anew.
#[tokio::test]
async fn an_error_that_comes_in_drops_is_told_by_its_status() {
    let asked = WIRES.map(|api| async move {
        let mut steps = Vec::new();
        for _ in 0..100 {
            steps.extend([Step::Send(" ".into()), Step::Pause(Duration::from_secs(1))]);
        }
        let dripping = Answer::steps(steps).under(400, &[("content-type", "application/json")]);
        (api, Came::of(api, vec![dripping], |_| {}).await)
    });
    for (api, came) in futures_util::future::join_all(asked).await {
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("refused", 1), "{api:?}");
    }
}
