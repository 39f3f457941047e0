//! Hooks around sessions and turns: what they hear, and what becomes of what they say.

use super::*;
use crate::hook::{
    Handler, HookSystem, Hooks, News, Notification, SessionEnd, SessionStart, Submission, Submitted, TurnStopping,
};
use crate::protocol::Role;

/// What hooks have heard, a line each.
type Heard = Arc<Mutex<Vec<String>>>;

fn now<T: Send + 'static>(answer: T) -> crate::hook::Answer<T> {
    Box::pin(std::future::ready(Ok(Some(answer))))
}

/// Notes all of it; adds to the start, to the prompt and to the end of a turn, and refuses what is called secret.
fn nosy(heard: &Heard) -> HookSystem {
    let hooks = HookSystem::default();
    let ear = |heard: &Heard| {
        let heard = Arc::clone(heard);
        move |line: String| heard.lock().push(line)
    };
    let note = ear(heard);
    hooks.register(Handler::SessionStart(Arc::new(move |start: SessionStart| {
        note(format!("start {:?}", start.source));
        now(vec!["the house rules".to_owned()])
    })));
    let note = ear(heard);
    hooks.register(Handler::SessionEnd(Arc::new(move |end: SessionEnd| {
        note(format!("end {:?}", end.reason));
        now(())
    })));
    let note = ear(heard);
    hooks.register(Handler::PromptSubmit(Arc::new(move |submitted: Submitted| {
        note(format!("prompt {}", submitted.prompt));
        now(match submitted.prompt.as_str() {
            "secret" => Submission::Blocked { reason: "that is secret".into() },
            "long" => Submission::Continue { prompt: Some("x".repeat(limit::PROMPT_BYTES_MAX + 1)), context: vec![] },
            "typo" => Submission::Continue { prompt: Some("corrected".into()), context: vec!["of today".into()] },
            _ => Submission::unchanged(),
        })
    })));
    let note = ear(heard);
    hooks.register(Handler::TurnStop(Arc::new(move |stop: TurnStopping| {
        let whose = stop.whose.expect("a session's");
        note(format!("stop {} {}", stop.text, whose.turn_id.is_some()));
        now(if stop.text == "lazy" { vec!["work".to_owned()] } else { Vec::new() })
    })));
    let note = ear(heard);
    hooks.register(Handler::Notification(Arc::new(move |told: Notification| {
        note(match told.news {
            News::TurnEnded(ended) => format!("turn {:?} {}", ended.status, ended.result.unwrap_or_default()),
            News::PermissionRequest { tool_name, .. } => format!("asked for {tool_name}"),
            News::ClientRequest { .. } | News::SubagentEnded(_) => "something else".to_owned(),
        });
        now(())
    })));
    hooks
}

async fn house(storage: Storage, hooks: HookSystem, directory: &Path) -> (Arc<App>, Arc<Script>) {
    let mut settings = Settings::new(directory.to_owned());
    settings.storage = storage;
    settings.limits.permission_timeout_ms = 1;
    let script = Arc::new(Script::default());
    let models: Vec<Arc<dyn Model>> = vec![Arc::clone(&script) as Arc<dyn Model>];
    let extras = Extras { models, hooks: Some(Arc::new(hooks)), ..Extras::default() };
    (App::open(settings, extras).await.unwrap(), script)
}

fn queued(text: &str) -> Prompt {
    let prompt = PromptContent::Text(text.into());
    Prompt { prompt, mode: PromptMode::Queue, configure: None, turn: None, if_version: None }
}

async fn turn(app: &App, id: &SessionId, text: &str) -> TurnRecord {
    let accepted = app.prompt(&anyone(), id, queued(text)).await.unwrap();
    app.wait_turn(&anyone(), id, &accepted.turn_id).await.unwrap()
}

fn texts(messages: &[Message]) -> Vec<String> {
    let text = |part: &Part| if let Part::Text { text } = part { text.clone() } else { "?".into() };
    messages
        .iter()
        .map(|message| match message {
            Message::User(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" | "),
            Message::Assistant { text, .. } => format!("> {text}"),
            Message::ToolResult { output, .. } => output.clone(),
        })
        .collect()
}

#[tokio::test]
async fn what_hooks_say_to_prompts_and_ends_is_the_conversation_after_a_restart_too() {
    let (data, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let heard = Heard::default();
    let storage = || Storage::Directory(data.path().to_owned());
    let (app, script) = house(storage(), nosy(&heard), work.path()).await;
    let id = app.create_session(&anyone(), CreateSession::default()).await.unwrap().session_id;
    let refused = app.prompt(&anyone(), &id, queued("secret")).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Forbidden);
    assert_eq!(refused.0.message, "the prompt was blocked by a hook: that is secret");
    assert_eq!(refused.0.details.unwrap()["reason"], "that is secret");
    let refused = app.prompt(&anyone(), &id, queued("long")).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::InvalidArgument, "what a hook puts there is held to the same limit");
    assert_eq!(app.session(&anyone(), &id).await.unwrap().last_seq, 1, "nothing has come of them");

    script.rounds.lock().extend([says("lazy"), says("done")]);
    let record = turn(&app, &id, "typo").await;
    assert_eq!((record.status, record.result.as_deref()), (TurnStatus::Completed, Some("done")));
    script.rounds.lock().extend([says("fine")]);
    turn(&app, &id, "next").await;
    let live = script.requests.lock().last().unwrap().messages.to_vec();
    #[rustfmt::skip]
    let want = [
        "corrected | [Added by a hook]\nthe house rules | [Added by a hook]\nof today",
        "> lazy", "work", "> done", "next",
    ];
    assert_eq!(texts(&live), want);
    let history = app.history(&anyone(), &id, 0, 100).await.unwrap();
    let users = history.items.iter().filter(|item| matches!(&item.body, ItemBody::Message { role: Role::User, .. }));
    assert_eq!(users.count(), 3, "a prompt, what a hook said to its end, and another prompt");
    app.shutdown(Duration::from_secs(5)).await.unwrap();
    drop(app);
    #[rustfmt::skip]
    let want = [
        "start New", "prompt secret", "prompt long", "prompt typo", "stop lazy true", "stop done true", "turn Completed done",
        "prompt next", "stop fine true", "turn Completed fine", "end Shutdown",
    ];
    assert_eq!(sorted_news(&heard), sorted(&want));

    heard.lock().clear();
    let (app, script) = house(storage(), nosy(&heard), work.path()).await;
    script.rounds.lock().extend([says("fine")]);
    turn(&app, &id, "after").await;
    let rebuilt = script.requests.lock().last().unwrap().messages.to_vec();
    assert_eq!(rebuilt[..live.len()], live[..]);
    assert_eq!(texts(&rebuilt).last().unwrap(), "after | [Added by a hook]\nthe house rules");
    assert_eq!(heard.lock()[0], "start Resumed");
    app.delete_session(&anyone(), &id).await.unwrap();
    app.shutdown(Duration::from_secs(5)).await.unwrap();
    let lines = heard.lock().clone();
    assert_eq!(lines.iter().filter(|line| line.starts_with("end ")).collect::<Vec<_>>(), ["end Deleted"]);
}

/// Notifications come behind the work's back: only among themselves are they in order.
fn sorted_news(heard: &Heard) -> Vec<String> {
    let mut lines = heard.lock().clone();
    lines.sort();
    lines
}

fn sorted(lines: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    lines.sort();
    lines
}

#[tokio::test]
async fn hooks_hear_of_questions_that_wait() {
    let work = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    let (app, script) = house(Storage::Memory, nosy(&heard), work.path()).await;
    let id = app.create_session(&anyone(), CreateSession::default()).await.unwrap().session_id;
    script.rounds.lock().extend([calls("bash", json!({ "command": "touch a" })), says("well")]);
    turn(&app, &id, "go").await;
    app.shutdown(Duration::from_secs(5)).await.unwrap();
    let lines = heard.lock().clone();
    let news: Vec<_> = lines.iter().filter(|l| l.starts_with("asked") || l.starts_with("turn")).collect();
    assert_eq!(news, ["asked for bash", "turn Completed well"]);
}

/// Refuses each prompt at length.
struct Verbose;

impl Hooks for Verbose {
    fn prompt_submit(&self, _: Submitted) -> BoxFuture<'_, Submission> {
        Box::pin(async { Submission::Blocked { reason: "r".repeat(1_000_000) } })
    }
}

#[tokio::test]
async fn a_reason_is_as_long_as_it_may_be() {
    let work = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(work.path().to_owned());
    settings.storage = Storage::Memory;
    let models: Vec<Arc<dyn Model>> = vec![Arc::new(Script::default())];
    let extras = Extras { models, hooks: Some(Arc::new(Verbose)), ..Extras::default() };
    let app = App::open(settings, extras).await.unwrap();
    let id = app.create_session(&anyone(), CreateSession::default()).await.unwrap().session_id;
    let refused = app.prompt(&anyone(), &id, queued("go")).await.unwrap_err();
    assert!(refused.0.message.len() < limit::HOOK_TEXTS_BYTES_MAX + 100);
}
