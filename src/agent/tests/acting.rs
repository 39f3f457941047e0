//! Turns whose model answers with JSON actions.

use super::*;
use crate::protocol::{AgentDefinition, AgentGate, AgentKind, DefinitionSource, InteractionMode};

fn acting(script: &Arc<Script>, log: &Arc<Log>, gates: Option<&[AgentGate]>) -> TurnInput {
    let works_as = AgentDefinition {
        name: "auto".into(),
        description: String::new(),
        kind: AgentKind::Main,
        mode: Some(InteractionMode::Auto),
        model: None,
        reasoning: None,
        tools: None,
        gates: gates.map(<[_]>::to_vec),
        delegate_targets: None,
        permissions: None,
        max_iterations: None,
        skills: None,
        prompt: String::new(),
        source: DefinitionSource::Project,
        path: None,
    };
    let works_as = Some(Arc::new(works_as));
    TurnInput { mode: InteractionMode::Auto, works_as, ..input(Arc::clone(script), log) }
}

fn requests(script: &Script) -> Vec<ModelRequest> {
    script.asked.lock().clone()
}

fn action(action: Value) -> Result<ModelEvent, ModelError> {
    says(&format!("{action}\n"))
}

#[tokio::test]
async fn actions_are_carried_out_in_their_order_and_the_packet_is_the_output() {
    let log = Arc::new(Log::default());
    let packet = json!({"title": "t", "user_stories": ["<a> {b}"]});
    let script = Script::new([
        vec![
            says("First I look.\n"),
            action(json!({"type": "tool", "tool": "echo", "args": {"text": "1"}})),
            action(json!({"type": "tool", "tool": "echo", "args": {"text": "2"}})),
            tokens(10),
            DONE,
        ],
        vec![
            action(json!({"type": "tool", "tool": "echo", "args": {"text": "3"}})),
            action(json!({"type": "finalize_task", "packet": packet})),
            DONE,
        ],
    ]);
    let outcome = run_turn(acting(&script, &log, None), CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.progress.rounds), (Ended::Completed, 2));
    assert_eq!((outcome.output, outcome.final_text), (Some(packet.clone()), packet.to_string()));
    let called = log.find(|event| match event {
        EventBody::ToolCallStart { args, .. } => Some(args["text"].clone()),
        _ => None,
    });
    assert_eq!(called, [json!("1"), json!("2"), json!("3")]);
    // The model is told the tools and the results in words.
    let requests = requests(&script);
    assert!(requests[0].tools.is_empty() && requests[0].system.contains("- echo: "), "{}", requests[0].system);
    let Some(Message::User(parts)) = requests[1].messages.last() else { panic!("{:?}", requests[1].messages) };
    assert_eq!(parts.len(), 2, "{parts:?}");
    assert!(requests[1].messages.iter().all(|message| !matches!(message, Message::ToolResult { .. })));
}

#[tokio::test]
async fn a_task_does_not_end_behind_a_failure_nor_through_a_shut_gate() {
    let log = Arc::new(Log::default());
    let finalize = || action(json!({"type": "finalize_task", "packet": {"title": "t"}}));
    let script = Script::new([
        vec![action(json!({"type": "tool", "tool": "gone"})), finalize(), DONE],
        vec![finalize(), DONE],
        vec![action(json!({"type": "done", "message": "All done."})), DONE],
    ]);
    let outcome = run_turn(acting(&script, &log, Some(&[AgentGate::Patch])), CancellationToken::new()).await;
    assert_eq!((outcome.ended, outcome.output), (Ended::Completed, None));
    assert_eq!((outcome.final_text.as_str(), outcome.progress.rounds), ("All done.", 3));
    let last = |at: usize| format!("{:?}", requests(&script)[at].messages.last());
    assert!(last(1).contains("The task goes on"), "{}", last(1));
    assert!(last(2).contains("`finalize_task` was refused: the policy of the agent `auto`"), "{}", last(2));
    assert!(!requests(&script)[0].system.contains("finalize_task"), "it is not told of what it may not");
}

#[tokio::test]
async fn prose_is_never_run_and_after_four_such_answers_the_turn_stops() {
    let log = Arc::new(Log::default());
    let prose = |at: usize| vec![says(&format!("I will now call echo with text {at}.")), DONE];
    let script = Script::new([prose(1), prose(2), prose(3), prose(4), prose(5)]);
    let outcome = run_turn(acting(&script, &log, None), CancellationToken::new()).await;
    let Ended::Failed(error) = &outcome.ended else { panic!("{outcome:?}") };
    assert!(error.message.contains("4 times in a row"), "{error:?}");
    assert_eq!(outcome.progress.rounds, 4);
    assert!(!log.words().iter().any(|word| word == "tool.call.start"));
    let told = format!("{:?}", requests(&script)[1].messages.last());
    assert!(told.contains("Nothing of this answer was carried out: it has no action"), "{told}");
}
