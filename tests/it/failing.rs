//! When models fail, over each of the wires: each way to fail against a server that speaks the wire, and what is left of it in
//! the turn, in its log, in the history, and at the tools.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, json};
use simse::agent::{Ended, TurnInput, TurnOutcome, run_turn};
use simse::app::{App, Caller, EventPage, Extras};
use simse::base::BoxFuture;
use simse::config::{Api, Settings};
use simse::model::{Model, ModelFacts, StopReason};
use simse::protocol::{
    CreateSession, EventBody, ItemBody, Message, Part, Prompt, SessionId, ToolDefinition, TurnRecord, TurnStop,
};
use simse::provider::{HttpModelOptions, Key, Place, http_model};
use simse::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};
use tokio_util::sync::CancellationToken;

use crate::support::http::within;
use crate::support::model_server::{Answer, ModelServer, Script, Step, queue};
use crate::support::says::{Says, WIRES, event};
use crate::support::turns::{Log, turn, user};

const PATIENCE: Duration = Duration::from_secs(20);

fn steps(said: &str, last: Step) -> Answer {
    Answer::steps(vec![Step::Send(said.to_owned().into()), last])
}

fn place(server: &ModelServer, patience: Duration) -> Place {
    Place::new("mine", server.base_url(), patience)
}

fn model_at(api: Api, place: Place) -> Arc<dyn Model> {
    let options = HttpModelOptions { name: "m".into(), api, facts: ModelFacts::default(), body: Map::new() };
    http_model(options, &Arc::new(place))
}

/// A tool whose every run leaves a trace.
struct Counts(ToolDefinition, AtomicUsize);

impl Counts {
    fn new() -> Arc<Self> {
        let definition =
            json!({ "name": "count", "description": "counts", "parameters": { "n": { "type": "number" } } });
        Arc::new(Self(serde_json::from_value(definition).unwrap(), AtomicUsize::new(0)))
    }

    fn runs(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

impl Tool for Counts {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }
    fn run<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok("counted".to_owned().into())))
    }
}

/// What came of a turn.
pub(super) struct Came {
    pub(super) outcome: TurnOutcome,
    log: Arc<Log>,
    pub(super) server: ModelServer,
    pub(super) runs: usize,
}

impl Came {
    /// Of a turn against these answers. `change`: what is different about it.
    pub(super) async fn of(api: Api, answers: Vec<Answer>, change: impl FnOnce(&mut TurnInput)) -> Self {
        Self::patiently(api, PATIENCE, answers, change).await
    }

    pub(super) async fn patiently(
        api: Api,
        patience: Duration,
        answers: Vec<Answer>,
        change: impl FnOnce(&mut TurnInput),
    ) -> Self {
        let server = ModelServer::start(queue(answers)).await;
        let (log, counts, directory) = (Arc::new(Log::default()), Counts::new(), tempfile::tempdir().unwrap());
        let model = model_at(api, place(&server, patience));
        let mut input = turn(model, &log, directory.path(), vec![Arc::clone(&counts) as Arc<dyn Tool>]);
        change(&mut input);
        let outcome = within(run_turn(input, CancellationToken::new())).await;
        let runs = counts.runs();
        Self { outcome, log, server, runs }
    }

    /// The kind of its failure.
    pub(super) fn kind(&self) -> String {
        let Ended::Failed(error) = &self.outcome.ended else { panic!("{:?}", self.outcome) };
        error.details.as_ref().unwrap()["kind"].as_str().unwrap().to_owned()
    }

    /// `(attempt, pause)` of each retry.
    pub(super) fn retries(&self) -> Vec<(u32, u64)> {
        let retry = |e: &EventBody| match e {
            EventBody::StreamRetry { attempt, delay_ms, .. } => Some((*attempt, *delay_ms)),
            _ => None,
        };
        self.log.0.lock().iter().filter_map(retry).collect()
    }

    /// The texts of the model: those of the log, which have to be what is left of their pieces.
    pub(super) fn texts(&self) -> Vec<String> {
        whole_texts(&self.log.0.lock())
    }
}

/// The texts of streams that have ended, each held against its pieces.
fn whole_texts(events: &[EventBody]) -> Vec<String> {
    let (mut so_far, mut texts, mut open) = (String::new(), Vec::new(), false);
    for event in events {
        match event {
            EventBody::StreamStart {} => {
                assert!(!open, "a stream begins inside another");
                open = true;
                so_far.clear();
            }
            EventBody::StreamRetry { .. } => so_far.clear(),
            EventBody::StreamDelta { text } => so_far.push_str(text),
            EventBody::StreamComplete { text, .. } => {
                assert!(open, "a stream ends that has not begun");
                assert_eq!(text, &so_far, "a reader of the pieces has the same text");
                texts.push(text.clone());
                open = false;
            }
            _ => {}
        }
    }
    assert!(!open, "a stream is left open");
    texts
}

pub(super) fn done(api: Api) -> Vec<Answer> {
    let says = Says(api);
    vec![Answer::raw(says.text("Whole.") + &says.call() + &says.end("tool_calls")), says.answer("Done.")]
}

#[tokio::test]
async fn whatever_breaks_a_stream_one_reply_is_left_and_its_call_runs_once() {
    let quick = Duration::from_millis(400);
    for api in WIRES {
        let says = Says(api);
        let text = says.text("so far");
        let half_event = &text[..text.len() - 7];
        let called = says.text("so far") + &says.call();
        let half_arguments = says.text("so far") + &says.half_call("{\"n\":");
        #[rustfmt::skip]
        let table = [
            ("before the headers", Answer::steps(vec![Step::Cut])),
            ("behind the headers", steps(": hi\n\n", Step::Cut)),
            ("inside a text", steps(&text, Step::Cut)),
            ("inside a text, in good order", Answer::raw(text.clone())),
            ("inside an event", steps(half_event, Step::Cut)),
            ("inside the arguments", steps(&half_arguments, Step::Cut)),
            ("behind a whole call", steps(&called, Step::Cut)),
            ("behind a whole call, in good order", Answer::raw(called.clone())),
            ("an error in the stream", Answer::raw(called.clone() + &says.error("server_error"))),
            ("silence before the headers", Answer::silence()),
            ("silence behind a call", steps(&called, Step::Hang)),
            ("too many requests", Answer::status(429, &[], "{\"error\":{\"message\":\"slowly\",\"type\":\"tokens\",\"code\":\"rate_limit_exceeded\"}}")),
            ("too many requests, in Google's words", Answer::status(429, &[], "[{\"error\":{\"code\":429,\"message\":\"slowly\",\"status\":\"RESOURCE_EXHAUSTED\",\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"0.01s\"}]}}]")),
            ("overloaded", Answer::status(529, &[], "{\"error\":{\"message\":\"busy\",\"type\":\"overloaded_error\"}}")),
            ("inside a whole that is not streamed", steps("{\"choices\": [{\"message\": {\"content\": \"so f", Step::Cut).under(200, &[("content-type", "application/json")])),
            ("a gateway", Answer::status(502, &[], "<html>bad gateway</html>")),
        ];
        for (what, bad) in table {
            let answers = [vec![bad], done(api)].concat();
            let came = Came::patiently(api, quick, answers, |_| {}).await;
            assert_eq!(came.outcome.ended, Ended::Completed, "{api:?} {what}");
            assert_eq!(came.runs, 1, "{api:?} {what}");
            assert_eq!(came.texts(), ["Whole.", "Done."], "{api:?} {what}");
            assert_eq!(came.retries().iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [2], "{api:?} {what}");
            let [
                Message::User(_),
                Message::Assistant { text, calls, .. },
                Message::ToolResult { .. },
                Message::Assistant { .. },
            ] = &came.outcome.messages[..]
            else {
                panic!("{api:?} {what}: {:?}", came.outcome.messages)
            };
            assert_eq!((text.as_str(), calls.len()), ("Whole.", 1), "{api:?} {what}");
            let sent = came.server.requests();
            assert_eq!((sent.len(), &sent[0].body), (3, &sent[1].body), "{api:?} {what}: the same is asked again");
        }
    }
}

#[tokio::test]
async fn tokens_that_are_cut_off_behind_the_end_make_no_failure() {
    let says = Says(Api::Chat);
    let whole = says.text("all") + &says.end("stop");
    let at = whole.find("\"usage\"").unwrap();
    for last in [Step::Cut, Step::Hang] {
        let patience = Duration::from_millis(400);
        let came = Came::patiently(Api::Chat, patience, vec![steps(&whole[..at + 12], last)], |_| {}).await;
        assert_eq!((came.outcome.ended.clone(), came.texts()), (Ended::Completed, vec!["all".to_owned()]));
        assert_eq!((came.server.requests().len(), came.retries().len()), (1, 0));
        assert_eq!(came.outcome.progress.usage.total_tokens, 0);
    }
    // On the other wires they stand in the end itself: it has not come.
    for (api, word) in [(Api::Responses, "\"usage\""), (Api::Messages, "\"usage\""), (Api::Gemini, "\"usageMetadata\"")]
    {
        let says = Says(api);
        let whole = says.text("all") + &says.end("stop");
        let at = whole.find(word).unwrap();
        let cut = steps(&whole[..at + 12], Step::Cut);
        let came = Came::of(api, vec![cut, says.answer("all")], |_| {}).await;
        assert_eq!((came.outcome.ended.clone(), came.texts()), (Ended::Completed, vec!["all".to_owned()]), "{api:?}");
        assert_eq!((came.retries().len(), came.outcome.progress.usage.total_tokens), (1, 15), "{api:?}");
    }
    // Anthropic's end comes in two events: the second one is not waited for.
    let says = Says(Api::Messages);
    let whole = says.text("all") + &says.end("stop");
    let at = whole.find("event: message_stop").unwrap();
    for last in [Step::Cut, Step::Hang] {
        let patience = Duration::from_millis(400);
        let came = Came::patiently(Api::Messages, patience, vec![steps(&whole[..at], last)], |_| {}).await;
        assert_eq!((came.outcome.ended.clone(), came.texts()), (Ended::Completed, vec!["all".to_owned()]));
        assert_eq!((came.retries().len(), came.outcome.progress.usage.total_tokens), (0, 15));
    }
}

#[tokio::test]
async fn pauses_heed_the_server_up_to_a_limit_and_are_not_all_alike() {
    for api in WIRES {
        let busy = |seconds: &str| Answer::status(503, &[("retry-after", seconds)], "busy");
        let came = Came::of(api, vec![busy("3600"), busy("0"), Says(api).answer("ok")], |input| {
            input.retry.delay_max = Duration::from_millis(40);
            input.retry.base_delay = Duration::from_millis(10);
        })
        .await;
        let retries = came.retries();
        assert_eq!((came.outcome.ended, retries[0]), (Ended::Completed, (2, 40)), "an hour is too long");
        assert!(retries[1].0 == 3 && (10..=20).contains(&retries[1].1), "{retries:?}");
        // It is given up then.
        let came = Came::of(api, vec![busy("0")], |_| {}).await;
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("transient", 3));
        assert_eq!(came.outcome.messages.len(), 1, "nothing empty is left of it");
    }
}

#[tokio::test]
async fn a_key_that_is_refused_is_read_anew_once() {
    for api in WIRES {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let path = file.clone();
        // The key changes while the first request with it is under way.
        let (header, front) = Says(api).key_header();
        let good = format!("{front}sk-new");
        let script: Script = Arc::new(move |request| match request.header(header) {
            Some(key) if key == good => Says(api).answer("in"),
            _ => {
                std::fs::write(&path, "sk-new\n").unwrap();
                Answer::status(401, &[], "{\"error\":{\"message\":\"sk-old is wrong\"}}")
            }
        });
        std::fs::write(&file, "sk-old\n").unwrap();
        let server = ModelServer::start(script).await;
        let keyed = || {
            let mut place = place(&server, PATIENCE);
            place.key = Key::File(file.clone());
            model_at(api, place)
        };
        let log = Arc::new(Log::default());
        let outcome = within(run_turn(turn(keyed(), &log, directory.path(), vec![]), CancellationToken::new())).await;
        assert_eq!((outcome.ended, outcome.final_text.as_str()), (Ended::Completed, "in"));
        assert_eq!(server.requests().len(), 2);
        assert!(!log.words().contains(&"stream.retry".to_owned()), "nothing was said that is void");
        // One that stays wrong is asked about once.
        let never =
            ModelServer::start(queue([Answer::status(401, &[], "{\"error\":{\"message\":\"sk-new is wrong\"}}")]))
                .await;
        let mut place = place(&never, PATIENCE);
        place.key = Key::File(file.clone());
        let log = Arc::new(Log::default());
        let input = turn(model_at(api, place), &log, directory.path(), vec![]);
        let Ended::Failed(error) = within(run_turn(input, CancellationToken::new())).await.ended else {
            panic!("it fails")
        };
        assert_eq!(error.details, Some(json!({ "kind": "unauthorized" })));
        assert!(!error.message.contains("sk-new"), "{}", error.message);
        assert_eq!(never.requests().len(), 1);
    }
}

#[tokio::test]
async fn garbage_fails_with_its_kind_and_strange_bytes_do_not() {
    for api in WIRES {
        let says = Says(api);
        for garbage in
            ["data: <html>\n\n", "data: {\"choices\": 3, \"type\": 4, \"candidates\": 5}\n\n", "data: {\"choices\n\n"]
        {
            let came = Came::of(api, vec![Answer::raw(says.text("a") + garbage)], |_| {}).await;
            assert_eq!((came.kind().as_str(), came.server.requests().len()), ("malformed", 1), "{api:?} {garbage}");
            assert_eq!(came.texts(), ["a"], "what was said before stays said");
        }
        let page = Answer::status(200, &[("content-type", "text/html; charset=utf-8")], "<html>welcome</html>");
        let came = Came::of(api, vec![page], |_| {}).await;
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("malformed", 1), "{api:?}");
        let whole = says.text("ä😀") + &says.end("stop");
        for body in [format!("\u{FEFF}{whole}"), whole.replace('\n', "\r\n"), format!(": note\n\n{whole}")] {
            for size in [1, 5] {
                let pieces = body.as_bytes().chunks(size).map(|piece| Step::Send(piece.to_vec().into())).collect();
                let came = Came::of(api, vec![Answer::steps(pieces)], |_| {}).await;
                assert_eq!(
                    (came.outcome.ended.clone(), came.texts()),
                    (Ended::Completed, vec!["ä😀".to_owned()]),
                    "{api:?}"
                );
            }
        }
        // Half a character is replaced, and what comes behind it is heard.
        let mut bytes = says.text("<>").into_bytes();
        let at = bytes.windows(2).position(|two| two == b"<>").unwrap();
        bytes.splice(at..at + 2, [0xF0, 0x9F]);
        bytes.extend(says.text("b").bytes().chain(says.end("stop").bytes()));
        let came = Came::of(api, vec![Answer::raw(bytes)], |_| {}).await;
        assert_eq!((came.outcome.ended.clone(), came.texts()), (Ended::Completed, vec!["\u{FFFD}b".to_owned()]));
    }
}

#[tokio::test]
async fn arguments_that_the_limit_cut_are_told_to_the_model_and_nothing_runs() {
    // Over Gemini's wire calls come whole: see gemini.rs for those that its provider cannot read.
    for api in WIRES.into_iter().filter(|api| *api != Api::Gemini) {
        let says = Says(api);
        let cut = says.half_call("{\"n\": 1, \"text\": \"half") + &says.end("length");
        let came = Came::of(api, vec![Answer::raw(cut), says.answer("I see.")], |_| {}).await;
        assert_eq!((came.outcome.ended.clone(), came.runs), (Ended::Completed, 0), "{api:?}");
        let Message::ToolResult { output, is_error: true, .. } = &came.outcome.messages[2] else { panic!("{api:?}") };
        assert!(output.contains("limit of tokens inside the arguments"), "{output}");
        // What goes back is JSON again.
        let sent = String::from_utf8(came.server.requests()[1].body.to_vec()).unwrap();
        let empty = if api == Api::Messages { "\"input\":{}" } else { "\"arguments\":\"{}\"" };
        assert!(sent.contains(empty), "{sent}");
    }
}

/// A turn behind two rounds whose outputs are long.
fn long(input: &mut TurnInput) {
    let call =
        |id: &str| serde_json::from_value(json!({ "id": id, "name": "count", "arguments": { "n": 1 } })).unwrap();
    let result = |id: &str| Message::ToolResult {
        call_id: id.into(),
        name: "count".into(),
        output: "x".repeat(40_000),
        is_error: false,
        parts: Vec::new(),
    };
    let mut messages = vec![user("first")];
    for id in ["1", "2"] {
        messages.extend([Message::assistant("", vec![call(id)]), result(id)]);
    }
    messages.extend([Message::assistant("so", vec![]), user("hello")]);
    input.messages = messages.into();
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_made_to_fit_once() {
    let bodies = [
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 210000 tokens > 200000 maximum\"}}",
        "[{\"error\":{\"code\":400,\"message\":\"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).\",\"status\":\"INVALID_ARGUMENT\"}}]",
        "{\"error\":{\"message\":\"Your input exceeds the context window of this model.\",\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\"}}",
        "{\"error\":{\"code\":400,\"message\":\"the request exceeds the available context size\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":9,\"n_ctx\":8}}",
        "{\"object\":\"error\",\"message\":\"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens\",\"type\":\"BadRequestError\",\"code\":400}",
    ];
    for api in WIRES {
        let says = Says(api);
        let refusals = bodies.iter().map(|body| Answer::status(400, &[], body));
        let inside = Answer::raw(says.text("half") + &says.error("context_length_exceeded"));
        for bad in refusals.chain([inside]) {
            let summary = says.answer("## Goal\nall\n## State\nhalf");
            let came = Came::of(api, vec![bad.clone(), summary, says.answer("fits")], long).await;
            assert_eq!(
                (came.outcome.ended.clone(), came.texts()),
                (Ended::Completed, vec!["fits".to_owned()]),
                "{api:?}"
            );
            let (sent, words) = (came.server.requests(), came.log.words());
            // The one between asks for a summary.
            assert!(sent.len() == 3 && sent[2].body.len() < sent[0].body.len() / 5, "{api:?}");
            let at = words.iter().position(|word| word == "compaction.complete").expect("it is told");
            assert_eq!(words[at + 1], "stream.retry");
            // It does not fit all the same: not this time, and not in the turns behind it.
            let came = Came::of(api, vec![bad.clone()], long).await;
            // As it is, a transcript in four sizes, and without what is old.
            assert_eq!((came.kind().as_str(), came.server.requests().len()), ("context_overflow", 6), "{api:?}");
            assert!(came.log.words().contains(&"compaction.prune".to_owned()), "{api:?}");
            let mut messages = came.outcome.messages.clone();
            messages.push(user("again"));
            let came = Came::of(api, vec![bad], |input| input.messages = messages).await;
            assert_eq!(came.kind(), "context_overflow");
            assert!(came.server.requests().len() <= 6, "{api:?}");
        }
    }
}

#[tokio::test]
async fn content_that_is_not_taken_and_answers_that_are_cut_for_it() {
    for api in WIRES {
        let says = Says(api);
        let body = "{\"error\":{\"message\":\"filtered\",\"code\":\"content_filter\"}}";
        let came = Came::of(api, vec![Answer::status(400, &[], body)], |_| {}).await;
        assert_eq!((came.kind().as_str(), came.server.requests().len()), ("content_filter", 1), "{api:?}");
        // Anthropic's own word for both is a refusal.
        let cut = if api == Api::Messages { StopReason::Refusal } else { StopReason::ContentFilter };
        for (why, stop) in [("content_filter", cut), ("length", StopReason::Length)] {
            let came = Came::of(api, vec![Answer::raw(says.text("so far") + &says.end(why))], |_| {}).await;
            assert_eq!((came.outcome.ended.clone(), came.outcome.stop), (Ended::Completed, Some(stop)), "{api:?}");
            assert_eq!(came.texts(), ["so far"]);
        }
    }
}

#[tokio::test]
async fn reasoning_goes_back_to_the_model_that_it_came_from_item_by_item() {
    let says = Says(Api::Responses);
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VjcmV0" });
    let thinks = event(&json!({ "type": "response.output_item.done", "output_index": 0, "item": reasoning }));
    let first = Answer::raw(thinks.clone() + &says.call() + &says.end("tool_calls"));
    let last = Answer::raw(thinks + &answer_text("Done.") + &says.end("stop"));
    let came = Came::of(Api::Responses, vec![first, last], |_| {}).await;
    assert_eq!(came.outcome.ended, Ended::Completed);
    let sent = came.server.requests()[1].json();
    let kinds: Vec<&str> =
        sent["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "reasoning", "function_call", "function_call_output"]);
    assert_eq!(sent["input"][1], reasoning);
    // Another wire is told what was said and done, and nothing of it.
    let messages = came.outcome.messages.clone();
    let other = Came::of(Api::Chat, vec![Says(Api::Chat).answer("ok")], |input| {
        input.messages = messages;
        input.messages.push(user("more"));
    })
    .await;
    let sent = String::from_utf8(other.server.requests()[0].body.to_vec()).unwrap();
    assert!(sent.contains("Done.") && !sent.contains("c2VjcmV0") && !sent.contains("rs_1"), "{sent}");
}

/// A text as an item that is done.
fn answer_text(text: &str) -> String {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    let item =
        json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content });
    event(&json!({ "type": "response.output_item.done", "output_index": 1, "item": item }))
}

/// A refusal, of the wires that have words for one.
fn refusal(says: Says) -> String {
    match says.0 {
        Api::Chat => {
            let delta =
                json!({ "choices": [{ "index": 0, "delta": { "refusal": "I will not." }, "finish_reason": null }] });
            format!("data: {delta}\n\n{}", says.end("stop"))
        }
        Api::Responses => {
            event(&json!({ "type": "response.refusal.delta", "output_index": 0, "delta": "I will not." }))
                + &says.end("stop")
        }
        Api::Messages | Api::Gemini => says.text("I will not.") + &says.end("refusal"),
    }
}

async fn open(directory: &Path, server: &ModelServer) -> Arc<App> {
    let mut settings = Settings::new(directory.canonicalize().unwrap());
    settings.storage = simse::config::Storage::Directory(directory.join("data"));
    let provider = |name: &str, api: &str| {
        serde_json::from_value(json!({ "name": name, "api": api, "apiKey": "k", "baseUrl": server.base_url() }))
            .expect("a provider")
    };
    settings.providers = WIRES.map(|api| provider(api.name(), api.name())).into();
    settings.model = Some("openai-chat/m".into());
    App::open(settings, Extras::default()).await.expect("it opens")
}

async fn session(app: &App, model: &str) -> SessionId {
    let body: CreateSession = serde_json::from_value(json!({ "model": model })).unwrap();
    app.create_session(&Caller::default(), body).await.expect("a session").session_id
}

async fn prompted(app: &App, session: &SessionId, prompt: &str) -> TurnRecord {
    let body: Prompt = serde_json::from_value(json!({ "prompt": prompt })).unwrap();
    let accepted = app.prompt(&Caller::default(), session, body).await.expect("accepted");
    within(app.wait_turn(&Caller::default(), session, &accepted.turn_id)).await.expect("it ends")
}

async fn events(app: &App, session: &SessionId) -> Vec<EventBody> {
    let wanted = EventPage { after: 0, limit: 1_000, types: None };
    let page = app.event_page(&Caller::default(), session, wanted).await.expect("events");
    page.items.iter().filter_map(simse::protocol::Event::body).collect()
}

async fn history(app: &App, session: &SessionId) -> Vec<String> {
    let page = app.history(&Caller::default(), session, 0, 100).await.expect("a history");
    let text = |body| match body {
        ItemBody::Message { content, .. } => match content.into_iter().next() {
            Some(Part::Text { text }) => text,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    page.items.into_iter().map(|item| text(item.body)).collect()
}

#[tokio::test]
async fn log_history_and_picture_agree_on_what_is_void_and_so_does_the_next_process() {
    for api in WIRES {
        let says = Says(api);
        let id = format!("{}/m", api.name());
        let directory = tempfile::tempdir().unwrap();
        // The second attempt says a word, and then nothing more.
        let text = says.text("Whole");
        let answers = vec![
            steps(&says.text("void "), Step::Cut),
            steps(&text, Step::Hang),
            says.answer("Whole."),
            Answer::raw(refusal(says)),
            says.answer("After the restart."),
        ];
        let server = ModelServer::start(queue(answers)).await;
        let app = open(directory.path(), &server).await;
        let session = session(&app, &id).await;
        let body: Prompt = serde_json::from_value(json!({ "prompt": "hi" })).unwrap();
        let accepted = app.prompt(&Caller::default(), &session, body).await.expect("accepted");
        let open_text = within(async {
            loop {
                // Looked at before the picture is taken: what came between the two is in the picture.
                let retried = events(&app, &session).await.iter().any(|e| matches!(e, EventBody::StreamRetry { .. }));
                let view = app.snapshot(&Caller::default(), &session, 10).await.expect("a picture");
                let open = view.snapshot.and_then(|snapshot| snapshot.open).and_then(|open| open.text);
                if let Some(text) = open.filter(|text| retried && !text.is_empty()) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(open_text, "Whole", "{api:?}: what broke is not in it");
        let body = serde_json::from_value(json!({ "reason": "enough" })).unwrap();
        app.abort(&Caller::default(), &session, body).await.expect("aborted");
        within(app.wait_turn(&Caller::default(), &session, &accepted.turn_id)).await.expect("it ends");
        assert_eq!(whole_texts(&events(&app, &session).await), ["Whole"]);
        assert_eq!(history(&app, &session).await, ["hi", "Whole"]);
        // A refusal is an answer, and says that it is one.
        assert_eq!(prompted(&app, &session, "more").await.result.as_deref(), Some("Whole."));
        let refused = prompted(&app, &session, "worse").await;
        // Gemini has no word for it but that of a filter.
        let stop = if api == Api::Gemini { TurnStop::ContentFilter } else { TurnStop::Refusal };
        assert_eq!((refused.result.as_deref(), refused.stop_reason), (Some("I will not."), Some(stop)));
        app.shutdown(Duration::from_secs(10)).await.expect("it stops");
        // The next process tells the model what is left.
        let app = open(directory.path(), &server).await;
        assert_eq!(prompted(&app, &session, "and now?").await.result.as_deref(), Some("After the restart."));
        let want = ["hi", "Whole", "more", "Whole.", "worse", "I will not.", "and now?", "After the restart."];
        assert_eq!(history(&app, &session).await, want);
        let sent = String::from_utf8(server.requests().last().unwrap().body.to_vec()).unwrap();
        assert!(!sent.contains("void"), "{sent}");
        for said in &want[..7] {
            assert!(sent.contains(&format!("\"{said}\"")), "{said} in {sent}");
        }
        app.shutdown(Duration::from_secs(10)).await.expect("it stops");
    }
}
