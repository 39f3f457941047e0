//! What a loop in JavaScript decides as the server's own does: which outputs go, how many tokens a text has, which prompt a model
//! gets, which instruction files there are.

use std::path::PathBuf;

use napi::Env;
use napi::bindgen_prelude::{PromiseRaw, Uint32Array};
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{envelope, parse, to_json};
use crate::config::ProviderPrompts;
use crate::context::tokens::count;
use crate::context::{Look, PRUNED_MARK, PruneOptions, Pruner, SUMMARY_MARKS};
use crate::prompt::{discover, provider_prompt};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenOptions {
    protect_recent_turns: usize,
    prune_minimum_tokens: Option<usize>,
    prune_protect_tokens: Option<usize>,
}

/// What messages begin with that matter to pruning: an output that is blank already, then the marks of summaries. JSON.
#[napi(catch_unwind)]
pub fn prune_marks() -> String {
    to_json(&std::iter::once(PRUNED_MARK).chain(SUMMARY_MARKS).collect::<Vec<_>>())
}

/// The rule of pruning over one conversation that grows. Texts stay in JavaScript: only what matters of them comes over.
#[napi]
pub struct NativePruner {
    inner: Mutex<(Pruner, usize)>,
}

#[napi]
impl NativePruner {
    /// At the beginning of a conversation.
    #[napi(constructor, catch_unwind)]
    pub fn new(options: String) -> napi::Result<Self> {
        let given: GivenOptions = parse("prune", &options)?;
        let options = PruneOptions {
            protected_turns: given.protect_recent_turns,
            // JavaScript says of each output whether its tool is one of them.
            protected_tools: Vec::new(),
            protected_tokens: given.prune_protect_tokens,
            minimum_tokens: given.prune_minimum_tokens,
        };
        Ok(Self { inner: Mutex::new((Pruner::new(options), 0)) })
    }

    /// Takes the next messages, two numbers each: 0 the user's, 1 another's, 2 a summary, 3 an output, 4 one that stays; and the length of an output.
    /// Gives whether outputs go (1) or not (0), how many of those that were told of before still count, and those that are new.
    #[napi(catch_unwind)]
    pub fn add(&self, messages: &[u32]) -> Uint32Array {
        let mut inner = self.inner.lock();
        let (pruner, told) = &mut *inner;
        for message in messages.chunks_exact(2) {
            let look = match message[0] {
                0 => Look::User,
                2 => Look::Summary,
                3 | 4 => Look::Output { units: message[1] as usize, stays: message[0] == 4 },
                _ => Look::Other,
            };
            if look == Look::Summary {
                *told = 0;
            }
            pruner.push(look);
        }
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut out = vec![u32::from(pruner.is_due()), number(*told)];
        out.extend(pruner.due().iter().skip(*told).map(|at| number(*at)));
        *told = pruner.due().len();
        Uint32Array::new(out)
    }
}

/// Tokens of a text for a model.
#[napi(catch_unwind)]
pub fn count_tokens(text: String, model_id: String) -> f64 {
    // Far below 2^53.
    #[allow(clippy::cast_precision_loss, reason = "no text has so many")]
    let tokens = count(&model_id, &text) as f64;
    tokens
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
