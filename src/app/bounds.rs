//! What `bodies` and its neighbours check beyond a body's form, as schemas say it: the OpenAPI document adds it to the
//! types. A test sends what lies on either side of each bound.

use serde_json::{Value, json};

use crate::base::limit;
use crate::protocol::{ApiError, Configure};

/// No control character in it.
const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
/// Something that is no white space in it.
const SAYS_SOMETHING: &str =
    "[^\\u0009-\\u000d\\u0020\\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";

/// What can be changed of a task.
pub const CHANGES_OF_TASKS: [&str; 7] =
    ["status", "subject", "description", "activeForm", "owner", "addBlocks", "addBlockedBy"];

/// Adds to the schema of the body `name` what is checked behind its parser.
pub fn narrow(name: &str, schema: &mut Value) {
    if name == "ExplainCall" {
        // The one field that has two names.
        let tool = schema.pointer("/properties/tool").cloned().unwrap_or(Value::Bool(true));
        merge(schema, "/properties", json!({ "name": tool }));
    }
    for (place, bounds) in bounds(name) {
        merge(schema, place, bounds);
    }
}

/// Something is to be changed. `whole` is what errors call all that was said.
///
/// # Errors
/// `INVALID_ARGUMENT` that names what may be.
pub(super) fn check_some(whole: &str, changes: &Configure) -> Result<(), ApiError> {
    if *changes != Configure::default() {
        return Ok(());
    }
    let expected = "agent, interactionMode, model, reasoning, agentOptions, modelFallbacks, budget, title, instructions, tools, permissionMode, workingDirectory or additionalDirectories";
    Err(ApiError::invalid(whole, format!("at least one of {expected}")))
}

fn merge(schema: &mut Value, place: &str, more: Value) {
    let place = schema.pointer_mut(place).and_then(Value::as_object_mut);
    if let (Some(place), Value::Object(more)) = (place, more) {
        place.extend(more);
    }
}

/// Where in a body's schema something is to be added, and what.
fn bounds(name: &str) -> Vec<(&'static str, Value)> {
    let text = |bytes_max: usize| json!({ "maxLength": bytes_max });
    let title = json!({ "maxLength": limit::TITLE_CHARS_MAX, "pattern": NO_CONTROLS });
    let whole = json!({ "minimum": 1, "maximum": (1_u64 << 53) - 1 });
    match name {
        "CreateSession" | "Configure" => vec![
            ("/properties/title", title),
            ("/properties/instructions", text(limit::INSTRUCTIONS_BYTES_MAX)),
            ("/properties/tools", json!({ "maxItems": limit::TOOL_ENTRIES_MAX })),
            ("/properties/modelFallbacks", json!({ "maxItems": limit::FALLBACKS_MAX, "uniqueItems": true })),
            ("/properties/additionalDirectories", json!({ "maxItems": limit::DIRECTORIES_MAX })),
        ],
        "TurnSettings" => {
            vec![("/properties/modelFallbacks", json!({ "maxItems": limit::FALLBACKS_MAX, "uniqueItems": true }))]
        }
        "Budget" => vec![
            ("/properties/tokens", whole.clone()),
            ("/properties/costUsd", json!({ "minimum": 1e-9 })),
            ("/properties/timeMs", whole.clone()),
            ("/properties/turns", whole.clone()),
            ("/properties/toolCalls", whole),
        ],
        "Fork" => vec![("/properties/title", title), ("/properties/at", json!({ "minimum": 1 }))],
        "Compact" => vec![("/properties/focus", text(limit::COMPACT_FOCUS_CHARS_MAX))],
        "Control" | "CancelRun" => vec![("/properties/reason", text(limit::REASON_BYTES_MAX))],
        "Feedback" => vec![
            ("/properties/message", text(limit::REASON_BYTES_MAX)),
            ("/properties/expiresInMs", json!({ "minimum": 1 })),
            ("/properties/cancelled", json!({ "enum": [true, null] })),
            ("", json!({ "allOf": feedback() })),
        ],
        "PlanDecision" => {
            let is = |decision: &str| json!({ "properties": { "decision": { "const": decision } } });
            let said = json!({ "required": ["plan"], "properties": { "plan": { "type": "string", "pattern": SAYS_SOMETHING } } });
            let only = json!([
                { "if": is("edit"), "then": said, "else": { "not": given("plan") } },
                { "if": is("reject"), "then": { "not": given("permissionMode") } },
            ]);
            vec![
                ("/properties/message", text(limit::REASON_BYTES_MAX)),
                ("/properties/plan", text(limit::PROMPT_BYTES_MAX / 2)),
                ("/properties/permissionMode", json!({ "not": { "const": "plan" } })),
                ("", json!({ "allOf": only })),
            ]
        }
        "NewSessionToken" => {
            vec![("/properties/expiresInMs", json!({ "minimum": 1, "maximum": limit::SESSION_TOKEN_MS_MAX }))]
        }
        "NewTask" => of_task(&["/properties/blockedBy"]),
        "ChangeTask" => {
            let mut bounds = of_task(&["/properties/addBlocks", "/properties/addBlockedBy"]);
            bounds.push(("", one_or_more(&CHANGES_OF_TASKS)));
            bounds
        }
        "PermissionRule" => vec![("/properties/pattern", json!({ "minLength": 1 }))],
        "CategoryFilter" => vec![("/anyOf/1", json!({ "minItems": 1 }))],
        "ExplainCall" => {
            vec![("", json!({ "required": [], "oneOf": [{ "required": ["tool"] }, { "required": ["name"] }] }))]
        }
        "PromptContent" => vec![
            ("/anyOf/0", json!({ "pattern": SAYS_SOMETHING, "maxLength": limit::PROMPT_BYTES_MAX })),
            ("/anyOf/1", json!({ "minItems": 1, "contains": something() })),
        ],
        "Part" => vec![
            ("/oneOf/1/properties/mediaType", json!({ "pattern": "^image/" })),
            ("/oneOf/1/properties/data", json!({ "pattern": "^[A-Za-z0-9+/=]+$" })),
        ],
        _ => Vec::new(),
    }
}

/// What a task is held to; `lists`: the places of its fields that name others.
fn of_task(lists: &[&'static str]) -> Vec<(&'static str, Value)> {
    let texts = [
        ("/properties/subject", json!({ "maxLength": limit::TASK_BYTES_MAX, "pattern": SAYS_SOMETHING })),
        ("/properties/description", json!({ "maxLength": limit::TASK_BYTES_MAX })),
    ];
    let lists = lists.iter().map(|place| (*place, json!({ "maxItems": limit::TASKS_MAX })));
    texts.into_iter().chain(lists).collect()
}

/// What fits together in an answer to a question.
fn feedback() -> Value {
    let is = |field: &str, values: Value| json!({ "required": [field], "properties": { field: { "enum": values } } });
    let yes = json!({ "anyOf": [is("decision", json!(["allow", "allow_always"])), is("allowed", json!([true]))] });
    let reaches = is("scope", json!(["session", "project", "always"]));
    let always = is("decision", json!(["allow_always"]));
    json!([
        one_or_more(&["callId", "requestId"]),
        exactly_one(&["decision", "allowed", "value", "cancelled"]),
        { "if": { "anyOf": [given("value"), given("cancelled")] }, "then": given("requestId") },
        { "if": given("value"), "then": { "not": given("message") } },
        { "if": given("scope"), "then": yes },
        { "if": always, "then": { "not": is("scope", json!(["once"])) } },
        { "if": given("expiresInMs"), "then": { "anyOf": [always, reaches] } },
    ])
}

/// A part that says something.
fn something() -> Value {
    let image = json!({ "properties": { "type": { "const": "image" } } });
    let text =
        json!({ "required": ["text"], "properties": { "text": { "type": "string", "pattern": SAYS_SOMETHING } } });
    json!({ "type": "object", "anyOf": [image, text] })
}

/// What a change of settings has to be beside its form: a change.
pub fn any_setting() -> Value {
    one_or_more(&[
        "agent",
        "interactionMode",
        "model",
        "reasoning",
        "agentOptions",
        "modelFallbacks",
        "budget",
        "title",
        "instructions",
        "tools",
        "permissionMode",
        "workingDirectory",
        "additionalDirectories",
    ])
}

/// One of these fields at least is there, and not `null`.
fn one_or_more(fields: &[&str]) -> Value {
    json!({ "anyOf": fields.iter().map(|field| given(field)).collect::<Vec<_>>() })
}

fn exactly_one(fields: &[&str]) -> Value {
    json!({ "oneOf": fields.iter().map(|field| given(field)).collect::<Vec<_>>() })
}

fn given(field: &str) -> Value {
    json!({ "required": [field], "properties": { field: { "not": { "type": "null" } } } })
}
