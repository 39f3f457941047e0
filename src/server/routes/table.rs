//! The route table: every route with its words for the OpenAPI document. The router and the document are both made from
//! it, so that neither has a route that the other lacks.

use std::sync::Arc;

mod board;
mod files;
mod nodes;
mod texts;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{budget, mcp, runs, session_tokens};
use crate::app::{Aborted, Accepted, Interrupted, Paused, Resolved, Resumed, any_setting};
use crate::protocol::{
    AgentList, AgentState, AskMcp, CancelRun, CancelledRuns, Compact, ConfigView, Control, CountTokens, CreateSession,
    Deleted, Event, ExplainCall, Feedback, GrantView, Health, Item, MadeSessionToken, McpAnswer, McpView, ModelList,
    NewSessionToken, Page, PermissionExplanation, Prompt, Proof, RunContext, RunView, SessionBudgets, SessionTokenList,
    SessionView, TokenCount, ToolList, TrustProject, TurnRecord,
};
use crate::server::openapi::{
    Operation, acp_names, cursor, flag, id, last_event_id, lifecycle_types, limit, newest_or_position, operation,
    page_limit, position, query, reference, types,
};
use crate::server::{Shared, acp, lifecycle, mcp as mcp_door, metrics, ws};

/// One route.
pub(crate) struct Row {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    pub(crate) handler: MethodRouter<Arc<Shared>>,
}

fn row<H, T>((method, filter): (Method, MethodFilter), path: &'static str, handler: H, operation: Operation) -> Row
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    Row { method, path, operation, handler: on(filter, handler) }
}

/// All routes.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = sessions();
    rows.extend(controls());
    rows.extend(looks());
    rows.extend(files::rows());
    rows.extend(texts::rows());
    rows.extend(tool_servers());
    rows.extend(tokens());
    rows.extend(run_tree());
    rows.extend(board::rows());
    rows.extend(permissions());
    rows.extend(server());
    rows.extend(nodes::rows());
    rows.extend(agent());
    rows.extend(protocols());
    rows
}

const GET: (Method, MethodFilter) = (Method::GET, MethodFilter::GET);
const POST: (Method, MethodFilter) = (Method::POST, MethodFilter::POST);
const PUT: (Method, MethodFilter) = (Method::PUT, MethodFilter::PUT);
const PATCH: (Method, MethodFilter) = (Method::PATCH, MethodFilter::PATCH);
const DELETE: (Method, MethodFilter) = (Method::DELETE, MethodFilter::DELETE);

fn sessions() -> Vec<Row> {
    let list = operation("sessions.list", "The caller's sessions, the newest first.")
        .takes(cursor("SessionId"))
        .takes(limit())
        .gives::<Page<SessionView>>(200, "A page of sessions.");
    let create = operation("sessions.create", "A new session. Nothing is spawned.")
        .body::<CreateSession>()
        .gives::<SessionView>(201, "The session.")
        .headers(&["Location", "ETag"])
        .refuses(&[404])
        .command();
    let get = operation("sessions.get", "A session as it is now.")
        .takes(flag("snapshot", "With where it is exactly (`snapshot`): its events `after` `snapshot.seq` go on from there without a gap or a repeat."))
        .takes(query("limit", "With `snapshot`: at most so many items of the history.", page_limit()))
        .gives::<SessionView>(200, "The session.")
        .headers(&["ETag"]);
    let configure = operation("sessions.configure", "Changes settings of a session, from its next turn on.")
        .full_body(|schemas| {
            let mut changes = schemas.incoming::<crate::protocol::Configure>();
            if let (Some(fields), serde_json::Value::Object(more)) = (changes.as_object_mut(), any_setting()) {
                fields.extend(more);
            }
            changes
        })
        .gives::<SessionView>(200, "The session.")
        .versioned();
    let delete = operation("sessions.delete", "Stops what runs in a session, ends its streams, and forgets it.")
        .gives::<Deleted>(200, "It is gone.")
        .versioned();
    vec![
        row(GET, "/sessions", super::list, list),
        row(POST, "/sessions", super::create, create),
        row(GET, "/sessions/{sessionId}", super::show, get),
        row(PATCH, "/sessions/{sessionId}", super::configure, configure),
        row(DELETE, "/sessions/{sessionId}", super::delete, delete),
    ]
}

fn controls() -> Vec<Row> {
    let prompt = operation(
        "sessions.prompt",
        "A prompt: its turn runs, or waits, whether or not anybody waits for it.",
    )
    .more("With `Accept: text/event-stream` the answer is the turn's own events, from a `ready` frame to its end.")
    .takes(flag("wait", "Answer when the turn has ended, with its record."))
    .full_body(|schemas| schemas.incoming::<Prompt>())
    .example(serde_json::json!({ "prompt": "Which files are here?" }))
    .gives::<TurnRecord>(200, "With `wait`: the turn that has ended. Or its events.")
    .answers_with(200, "", "text/event-stream", |_| reference("Event"))
    .gives::<Accepted>(202, "It was accepted.")
    .versioned();
    let compact = operation(
        "sessions.compact",
        "Sums the conversation up in a hidden turn: from then on the model is shown the summary. All of it stays in the history.",
    )
    .more("It waits behind the turns before it. The model keeps its old view where that fails.")
    .takes(flag("wait", "Answer when it is done, with the record of its turn: `result` is the summary."))
    .body::<Compact>()
    .gives::<TurnRecord>(200, "With `wait`: the turn that has ended.")
    .gives::<Accepted>(202, "It was accepted.")
    .versioned();
    let control = |id, summary| operation(id, summary).body::<Control>();
    let abort = control("sessions.abort", "Aborts the turn that runs or is paused, at once: model, tools, questions.")
        .gives::<Aborted>(200, "It was aborted.")
        .versioned();
    let interrupt =
        control("sessions.interrupt", "Ends the turn at its next boundary; one that reaches none in time is cut off.")
            .gives::<Interrupted>(200, "It was interrupted.")
            .versioned();
    let pause = control("sessions.pause", "Lets the turn hold at its next boundary.")
        .gives::<Paused>(200, "It holds.")
        .gives::<Paused>(202, "It has not come to a boundary yet, and holds at the next one.")
        .versioned();
    let resume =
        control("sessions.resume", "Lets the paused turn go on.").gives::<Resumed>(200, "It goes on.").versioned();
    let feedback = operation("sessions.feedback", "Answers a question that waits.")
        .full_body(|schemas| schemas.incoming::<Feedback>())
        .example(serde_json::json!({ "callId": "call_1", "decision": "allow" }))
        .gives::<Resolved>(200, "What the answer has settled.")
        .versioned();
    vec![
        row(POST, "/sessions/{sessionId}/prompt", super::prompt, prompt),
        row(POST, "/sessions/{sessionId}/compact", super::compact, compact),
        row(POST, "/sessions/{sessionId}/abort", super::abort, abort),
        row(POST, "/sessions/{sessionId}/interrupt", super::interrupt, interrupt),
        row(POST, "/sessions/{sessionId}/pause", super::pause, pause),
        row(POST, "/sessions/{sessionId}/resume", super::resume, resume),
        row(POST, "/sessions/{sessionId}/feedback", super::feedback, feedback),
    ]
}

fn looks() -> Vec<Row> {
    let events = operation("sessions.events", "A session's events as a stream, from the first on or behind one.")
        .more("Server-sent events: a `ready` frame (StreamReady), then one frame an event with its number as `id`, and comments on a silent line. It ends with the session or the server.")
        .takes(position("after", "Behind this event. Default: from the first on."))
        .takes(types("Only events of these types."))
        .takes(last_event_id())
        .answers_with(200, "The stream.", "text/event-stream", |_| reference("Event"));
    let everywhere = operation("events", "How the caller's sessions come and go, and that one of them waits for somebody, as one stream.")
        .more("Server-sent events: a `ready` frame (StreamReady), then one frame an event with its place in this stream as `id`, and comments on a silent line.")
        .takes(query("after", "Behind this place; `newest`: only what comes from now on. Default: from the first on.", newest_or_position()))
        .takes(lifecycle_types())
        .takes(last_event_id())
        .answers_with(200, "The stream.", "text/event-stream", |_| reference("LifecycleEvent"));
    let history = operation("sessions.history", "A session's history, the oldest first; or its log.")
        .takes(position("cursor", "The `nextCursor` of the page before. Default: the first page."))
        .takes(limit())
        .takes(flag("events", "The events of the log as they are, instead of the items that they make."))
        .takes(flag(
            "back",
            "From the newest item on, the newest first; `cursor` may be `before` of a snapshot too. Not with `events`.",
        ))
        .takes(types("With `events`: only events of these types."))
        .answers_with(200, "A page of items; with `events`, of events.", "application/json", |schemas| {
            let (items, events) = (schemas.outgoing::<Page<Item>>(), schemas.outgoing::<Page<Event>>());
            serde_json::json!({ "anyOf": [items, events] })
        });
    let agent = operation(
        "sessions.agent",
        "What the agent of a session has said of itself last: its options, its commands, its plans.",
    )
    .gives::<AgentState>(200, "What it has said.");
    let turns = operation("sessions.turns", "The records of a session's turns, the newest first.")
        .takes(cursor("TurnId"))
        .takes(limit())
        .takes(flag("hidden", "With those that answer no prompt, such as compaction."))
        .gives::<Page<TurnRecord>>(200, "A page of turns.");
    let turn = operation("sessions.turn", "A turn's record.").gives::<TurnRecord>(200, "The turn.");
    vec![
        row(GET, "/sessions/{sessionId}/events", super::events, events),
        row(GET, "/events", lifecycle::open, everywhere),
        row(GET, "/sessions/{sessionId}/history", super::history, history),
        row(GET, "/sessions/{sessionId}/agent", super::agent, agent),
        row(GET, "/sessions/{sessionId}/turns", super::turns, turns),
        row(GET, "/sessions/{sessionId}/turns/{turnId}", super::turn, turn),
    ]
}

fn tool_servers() -> Vec<Row> {
    let show = operation(
        "sessions.mcp",
        "The tool servers of a session, and the `.mcp.json` of the project that it works in.",
    )
    .gives::<McpView>(200, "The tool servers.");
    let trust = operation(
        "sessions.trustMcp",
        "Says yes to the `.mcp.json` of the project as it was seen, or takes that back. For owners.",
    )
    .more("Nothing of the file is started before; when it changes, the yes no longer counts.")
    .full_body(|schemas| schemas.incoming::<TrustProject>())
    .gives::<McpView>(200, "The tool servers.")
    .refuses(&[409]);
    let ask = operation("sessions.askMcp", "Asks a tool server of the session for prompts, resources and completions.")
        .full_body(|schemas| schemas.incoming::<AskMcp>())
        .example(serde_json::json!({ "server": "files", "method": "prompts/list" }))
        .gives::<McpAnswer>(200, "Its answer.")
        .refuses(&[503]);
    vec![
        row(GET, "/sessions/{sessionId}/mcp", mcp::show, show),
        row(POST, "/sessions/{sessionId}/mcp/trust", mcp::trust, trust),
        row(POST, "/sessions/{sessionId}/mcp/ask", mcp::ask, ask),
    ]
}

fn tokens() -> Vec<Row> {
    let create = operation("sessions.createToken", "A token that reaches this session and nothing else.")
        .more("It is told this once, and counts until it is revoked, has run out, its session is deleted, or the token that made it is revoked. Its bearer answers no questions and changes no settings.")
        .body::<NewSessionToken>()
        .example(serde_json::json!({ "expiresInMs": 86_400_000 }))
        .gives::<MadeSessionToken>(201, "The token.")
        .refuses(&[404, 409, 429]);
    let list = operation("sessions.tokens", "The tokens of a session that count, without the tokens themselves.")
        .gives::<SessionTokenList>(200, "The tokens.");
    let revoke = operation("sessions.revokeToken", "Takes a token of a session away: what it has opened ends.")
        .gives::<Deleted>(200, "It is gone.")
        .refuses(&[404]);
    vec![
        row(POST, "/sessions/{sessionId}/tokens", session_tokens::create, create),
        row(GET, "/sessions/{sessionId}/tokens", session_tokens::list, list),
        row(DELETE, "/sessions/{sessionId}/tokens/{tokenId}", session_tokens::revoke, revoke),
    ]
}

fn run_tree() -> Vec<Row> {
    let children = operation("sessions.children", "The sessions that stand directly under one, the newest first.")
        .takes(cursor("SessionId"))
        .takes(limit())
        .gives::<Page<SessionView>>(200, "A page of sessions.");
    let spent = operation("sessions.budget", "What a session's turns may spend, and what is spent of it.")
        .gives::<SessionBudgets>(200, "The budgets.");
    let list = operation("runs.list", "Turns as runs of a tree, those of the newest sessions first.")
        .takes(id("sessionId", "SessionId", "Only those of this session and of all under it."))
        .takes(query(
            "cursor",
            "The `nextCursor` of the page before. Default: the first page.",
            serde_json::json!({ "type": "string" }),
        ))
        .takes(limit())
        .gives::<Page<RunView>>(200, "A page of runs.")
        .refuses(&[404]);
    let show = operation("runs.get", "A run.").gives::<RunView>(200, "The run.");
    let view = serde_json::json!({ "type": "string", "enum": ["summary", "raw"] });
    let context = operation("runs.context", "What a run's conversation adds up to, or all of it.")
        .takes(query("view", "`raw`: with the conversation, a page of it. Default: `summary`.", view))
        .takes(position("cursor", "With `raw`: the `nextCursor` of the page before. Default: the first page."))
        .takes(limit())
        .gives::<RunContext>(200, "The run, and its conversation.");
    let cancel = operation("runs.cancel", "Ends a run, and all under it that go on or wait.")
        .body::<CancelRun>()
        .gives::<CancelledRuns>(200, "What was ended.")
        .refuses(&[409]);
    vec![
        row(GET, "/sessions/{sessionId}/children", runs::children, children),
        row(GET, "/sessions/{sessionId}/budget", budget::show, spent),
        row(GET, "/runs", runs::list, list),
        row(GET, "/runs/{runId}", runs::show, show),
        row(GET, "/runs/{runId}/context", runs::context, context),
        row(POST, "/runs/{runId}/cancel", runs::cancel, cancel),
    ]
}

fn permissions() -> Vec<Row> {
    let explain =
        operation("permissions.explain", "What would happen to a call, and why. Nobody is asked, and nothing runs.")
            .full_body(|schemas| schemas.incoming::<ExplainCall>())
            .example(serde_json::json!({ "tool": "bash", "arguments": { "command": "ls" } }))
            .gives::<PermissionExplanation>(200, "What would happen.")
            .refuses(&[404]);
    let grants = operation("permissions.grants", "What was granted beyond one call.")
        .takes(id("sessionId", "SessionId", "Only what holds in this session."))
        .takes(cursor("SessionId"))
        .gives::<Page<GrantView>>(200, "A page of grants.")
        .refuses(&[404]);
    let revoke = operation("permissions.revoke", "Takes a grant back.")
        .takes(id("sessionId", "SessionId", "The session that it was given for, where it was given for one."))
        .gives::<Deleted>(200, "It is gone.")
        .versioned();
    vec![
        row(POST, "/permissions/explain", super::explain, explain),
        row(GET, "/permissions/grants", super::grants, grants),
        row(DELETE, "/permissions/grants/{grantId}", super::revoke, revoke),
    ]
}

fn server() -> Vec<Row> {
    let tools = operation("tools", "The tools that sessions have now.").gives::<ToolList>(200, "The tools.");
    let agents =
        operation("agents", "The agents that sessions can name: ours, external ones, and those of markdown files; and the types of sub-agents.")
            .takes(query(
                "workingDirectory",
                "As a session that works there has them. Default: the server's own directory.",
                serde_json::json!({ "type": "string" }),
            ))
            .gives::<AgentList>(200, "The agents.");
    let models = operation("models", "The models that sessions can name.").gives::<ModelList>(200, "The models.");
    let count_tokens = operation("countTokens", "What a prompt would cost: its tokens, as the model's provider counts them.")
        .more("Of models whose provider has a route for it: Anthropic's Messages and Gemini. Others are a `CONFLICT` (`why: \"no_token_count\"`).")
        .full_body(|schemas| schemas.incoming::<CountTokens>())
        .example(serde_json::json!({ "prompt": "Hello" }))
        .gives::<TokenCount>(200, "The tokens.")
        .refuses(&[409, 503]);
    let health = operation("health", "How the server is. Needs no token, unless it is asked for more.")
        .takes(flag("verbose", "What is bounded, too, and how full it is; needs a token."))
        .gives::<Health>(200, "It is well.")
        .gives::<Health>(503, "A part that is needed is down.")
        .open();
    let config =
        operation("config", "What the server was set to, and where each value comes from. Secrets are hidden.")
            .more("For the role `owner`.")
            .gives::<ConfigView>(200, "Every setting.");
    let proof = operation("proof", "Shows that it is the server that `server.json` tells of. Needs no token.")
        .more("A server can have gone, and another program have taken its port: who found it by `server.json` asks this before it sends a token.")
        .gives::<Proof>(200, "The answer to that word, as only this server can give it.")
        .open();
    let metrics = operation("metrics", "What the server counts, for Prometheus.").answers_with(
        200,
        "The page, in the text format 0.0.4.",
        "text/plain",
        |_| serde_json::json!({ "type": "string" }),
    );
    let openapi = operation("openapi", "This document.").answers_with(
        200,
        "The document.",
        "application/json",
        |_| serde_json::json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] }),
    );
    let socket = operation("ws", "The WebSocket: commands in, answers and events out.")
        .switches(101, "It is open.")
        .refuses(&[426])
        .door();
    vec![
        row(GET, "/tools", super::tools, tools),
        row(GET, "/agents", super::agents, agents),
        row(GET, "/models", super::models, models),
        row(POST, "/models/count-tokens", super::count_tokens, count_tokens),
        row(GET, "/config", super::config, config),
        row(GET, "/health", super::health, health),
        row(GET, "/proof/{nonce}", super::proof, proof),
        row(GET, "/metrics", metrics::show, metrics),
        row(GET, "/openapi.json", super::document, openapi),
        row(GET, "/ws", ws::open, socket),
    ]
}

/// The Agent Client Protocol: its own messages, whose schemas it has itself.
fn agent() -> Vec<Row> {
    let [connection, session] = acp_names();
    let post = operation("acp.post", "A message of the Agent Client Protocol; `initialize` opens a connection.")
        .more("JSON-RPC, as the protocol has it. The answer to `initialize` names the connection in `Acp-Connection-Id`; all other messages bring that header, and `Acp-Session-Id` where their parameters name a session, and what comes of them is on the streams.")
        .takes(connection.clone())
        .takes(session.clone())
        .full_body(|_| serde_json::json!({ "type": "object", "required": ["jsonrpc"] }))
        .example(serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } }))
        .answers_with(200, "The answer to `initialize`.", "application/json", |_| {
            serde_json::json!({ "type": "object", "required": ["jsonrpc"] })
        })
        .headers(&["Acp-Connection-Id"])
        .switches(202, "It is taken.")
        .refuses(&[404])
        .foreign_door();
    let get = operation("acp.get", "The messages of a connection, or of one of its sessions; or a WebSocket.")
        .takes(connection.clone())
        .takes(session)
        .takes(last_event_id())
        .answers_with(
            200,
            "The stream: one frame a message, with its number as `id`.",
            "text/event-stream",
            |_| serde_json::json!({ "type": "object", "required": ["jsonrpc"] }),
        )
        .switches(101, "The WebSocket is open.")
        .refuses(&[404, 406, 409, 426])
        .foreign_door();
    let delete = operation("acp.delete", "Ends a connection.")
        .takes(connection)
        .switches(202, "It is over.")
        .refuses(&[404])
        .foreign_door();
    vec![
        row(POST, "/acp", acp::http::post, post),
        row(GET, "/acp", acp::http::get, get),
        row(DELETE, "/acp", acp::http::delete, delete),
    ]
}

/// Doors of protocols that are written down elsewhere.
fn protocols() -> Vec<Row> {
    let bound = || id("session", "SessionId", "The session that the client's calls run in. Default: one of its own.");
    let post = operation("mcp.post", "The tools and sessions as an MCP server: messages of a client.")
        .takes(bound())
        .more("Streamable HTTP of the Model Context Protocol, versions 2024-11-05 to 2025-11-25 and 2026-07-28: see docs/mcp.md.")
        .full_body(|_| serde_json::json!({ "type": ["object", "array"] }))
        .answers_with(200, "An answer, or a stream that ends with it.", "application/json", rpc)
        .answers_with(200, "", "text/event-stream", |_| serde_json::json!({ "type": "string" }))
        .switches(202, "It was taken, and there is nothing to answer.");
    let get = operation("mcp.get", "What an MCP client is told by itself, or the rest of a stream whose line broke.")
        .takes(bound())
        .answers_with(200, "The stream.", "text/event-stream", |_| serde_json::json!({ "type": "string" }));
    let delete = operation("mcp.delete", "Ends an MCP client's session: what it has asked for is given up.")
        .takes(bound())
        .switches(204, "It has ended.");
    let refused = |operation: Operation| {
        operation
            .answers_with(
                400,
                "No message, no session named, or a version that is not spoken.",
                "application/json",
                rpc,
            )
            .answers_with(404, "No such session of the protocol: initialize anew.", "application/json", rpc)
            .foreign_door()
    };
    let strict = |operation: Operation| {
        operation.answers_with(406, "`Accept` names not all that may come.", "application/json", rpc)
    };
    vec![
        row(POST, "/mcp", mcp_door::http::post, refused(strict(post))),
        row(GET, "/mcp", mcp_door::http::get, refused(strict(get))),
        row(DELETE, "/mcp", mcp_door::http::delete, refused(delete)),
    ]
}

/// A message in JSON-RPC; or the envelope of errors, where it came no further.
fn rpc(_: &mut crate::server::openapi::Schemas) -> serde_json::Value {
    serde_json::json!({ "type": "object" })
}
