//! What a loop in JavaScript decides as the server's own does: which outputs go, which prompt a model gets, which
//! instruction files there are.

use std::path::PathBuf;

use napi::Env;
use napi::bindgen_prelude::PromiseRaw;
use napi_derive::napi;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{envelope, parse, to_json};
use crate::config::ProviderPrompts;
use crate::context::{Entry, PruneOptions, placeholder, prune_plan};
use crate::prompt::{discover, provider_prompt};

/// A conversation, as far as pruning looks at it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prunable {
    entries: Vec<Line>,
    options: GivenOptions,
}

/// Who speaks, the tool, and the text.
#[derive(Deserialize)]
struct Line(Speaker, String, String);

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Speaker {
    User,
    Other,
    Output,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenOptions {
    protect_recent_turns: usize,
    #[serde(default)]
    prune_protected_tools: Vec<String>,
    prune_minimum_tokens: Option<usize>,
    prune_protect_tokens: Option<usize>,
}

/// Which outputs of a conversation go, and what stands in their place: a JSON array of `[index, text]`.
#[napi(catch_unwind)]
pub fn prune_conversation(input: String) -> napi::Result<String> {
    let Prunable { entries, options } = parse("prune", &input)?;
    let lines: Vec<Entry<'_>> = entries
        .iter()
        .map(|Line(speaker, tool, text)| match speaker {
            Speaker::User => Entry::User(text),
            Speaker::Other => Entry::Other(text),
            Speaker::Output => Entry::Output { tool, text },
        })
        .collect();
    let options = PruneOptions {
        protected_turns: options.protect_recent_turns,
        protected_tools: options.prune_protected_tools,
        protected_tokens: options.prune_protect_tokens,
        minimum_tokens: options.prune_minimum_tokens,
    };
    let plan = prune_plan(&lines, &options).into_iter();
    let changes: Vec<Value> = plan.filter_map(|at| Some(json!([at, placeholder(&entries.get(at)?.2)]))).collect();
    Ok(to_json(&changes))
}

/// The prompt for a model; null: there is none.
#[napi(catch_unwind)]
pub fn provider_prompt_for(prompts: String, model_id: String) -> napi::Result<Option<String>> {
    let prompts: ProviderPrompts = parse("createProviderPromptResolver", &prompts)?;
    Ok(provider_prompt(&prompts, &model_id).map(ToOwned::to_owned))
}

/// The instruction files of a directory: a JSON array of `{path, content}`.
#[napi(catch_unwind, ts_return_type = "Promise<string>")]
pub fn discover_in<'env>(
    env: &'env Env,
    root_dir: String,
    patterns: Vec<String>,
) -> napi::Result<PromiseRaw<'env, String>> {
    env.spawn_future(async move {
        let look = move || discover(&[PathBuf::from(root_dir)], &patterns);
        let found = tokio::task::spawn_blocking(look)
            .await
            .map_err(|error| envelope("STORAGE_ERROR", format!("discoverInstructions: {error}"), Value::Null))?;
        let shown: Vec<Value> =
            found.iter().map(|file| json!({ "path": file.path, "content": file.content })).collect();
        Ok(to_json(&shown))
    })
}
