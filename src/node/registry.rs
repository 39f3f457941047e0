//! The tool registry: `crate::tool::Registry` and the way of one call, for JavaScript.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use napi::Env;
use napi::bindgen_prelude::{PromiseRaw, within_runtime_if_available};
use napi_derive::napi;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bridge::{Bridge, NativeBridge};
use super::cancel::{CancelHandle, token_of};
use super::error::{envelope, parse, to_json};
use super::events::{NativeEvents, OwnEvents};
use super::gate::{RegistryGate, process_directory};
use super::hooks::JsHooks;
use super::host_options::{BashOptions, ExecOptions, FilesystemOptions, GitOptions};
use super::permission::NativeRules;
use super::text::{JsText, js_text};
use super::tool::JsTool;
use crate::agent::{CallEnvironment, CallOutcome, Sink, run_call, run_each};
use crate::hook::Line;
use crate::host::filesystem_tools;
use crate::model::WireNames;
use crate::protocol::{ErrorBody, ToolAnnotations, ToolCallRequest, ToolCallResult, ToolDefinition};
use crate::tool::{Arguments, Registry, Scope, Tool, check_parameters, told_schema};

/// What a registry is made with.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Options {
    /// The number of the JavaScript object that handlers and hooks belong to.
    target: u32,
    /// Whether `permissionResolver` is an object of the caller's own, asked for every call.
    #[serde(default)]
    foreign_resolver: bool,
    /// Whether somebody answers an `ask` of the rules.
    #[serde(default)]
    asks: bool,
    #[serde(default)]
    default_tool_timeout_ms: Option<u64>,
    #[serde(default)]
    max_output_chars: Option<usize>,
}

/// Calls, and how many of them run at once. What belongs to one call stands at the same place in each list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Batch {
    ids: Vec<String>,
    names: Vec<String>,
    arguments: Vec<Arguments>,
    max_concurrency: usize,
}

impl Batch {
    fn into_calls(self) -> Vec<ToolCallRequest> {
        let calls = self.ids.into_iter().zip(self.names).zip(self.arguments);
        calls.map(|((id, name), arguments)| ToolCallRequest { id, name, arguments }).collect()
    }
}

/// The outcomes of a batch in JSON: of a call that went well only what its caller does not know, the others whole, with their
/// places. Written as they come, so that none of them is kept.
#[derive(Default)]
struct Outcomes {
    /// How many there are.
    count: usize,
    outputs: Vec<u8>,
    durations: Vec<u8>,
    others: Vec<u8>,
}

impl Outcomes {
    fn push(&mut self, outcome: &CallOutcome) {
        let CallOutcome { result, findings, timed_out_ms: _, failure, ran: _ } = outcome;
        let plain = !result.is_error
            && failure.is_none()
            && findings.is_empty()
            && result.parts.is_empty()
            && result.details.is_none();
        match result.duration_ms {
            Some(duration_ms) if plain => {
                append(&mut self.outputs, &result.output);
                append(&mut self.durations, &duration_ms);
            }
            Some(_) | None => {
                append(&mut self.outputs, "");
                append(&mut self.durations, &0);
                append(&mut self.others, &(self.count, Shown::from(outcome)));
            }
        }
        self.count += 1;
    }

    fn into_json(self) -> String {
        let Self { count: _, outputs, durations, others } = self;
        let parts: [&[u8]; 7] =
            [b"{\"outputs\":[", &outputs, b"],\"durations\":[", &durations, b"],\"others\":[", &others, b"]}"];
        // What serde writes is UTF-8.
        String::from_utf8(parts.concat()).unwrap_or_default()
    }
}

/// Adds a value to the inside of a JSON array.
fn append(list: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    if !list.is_empty() {
        list.push(b',');
    }
    // A list in memory takes everything, and none of these values can fail.
    drop(serde_json::to_writer(list, value));
}

/// A tool registry.
#[napi]
pub struct NativeRegistry {
    environment: CallEnvironment,
    bridge: Arc<Bridge>,
    target: u32,
    hook_mask: Arc<AtomicU32>,
    /// Where the file tools work.
    working_directory: Arc<Mutex<Option<PathBuf>>>,
}

#[napi]
impl NativeRegistry {
    /// An empty registry. `rules` judge each call; without them and without a foreign resolver everything is allowed.
    #[napi(constructor, catch_unwind)]
    pub fn new(bridge: &NativeBridge, options: String, rules: Option<&NativeRules>) -> napi::Result<Self> {
        let options: Options = parse("options", &options)?;
        let bridge = Arc::clone(&bridge.inner);
        let mut registry = Registry::default();
        if let Some(ms) = options.default_tool_timeout_ms {
            registry.default_timeout_ms = Some(ms);
        }
        if let Some(chars) = options.max_output_chars {
            registry.output_chars_max = chars;
        }
        let working_directory = Arc::default();
        let gate = RegistryGate {
            bridge: Arc::clone(&bridge),
            target: options.target,
            rules: rules.map(|r| Arc::clone(&r.inner)),
            foreign: options.foreign_resolver,
            asks: options.asks,
            working_directory: Arc::clone(&working_directory),
        };
        let hook_mask = Arc::new(AtomicU32::new(0));
        let hooks = JsHooks {
            bridge: Arc::clone(&bridge),
            target: options.target,
            mask: Arc::clone(&hook_mask),
            line: Line::default(),
        };
        bridge.leftovers.note(&registry.scope);
        let environment = CallEnvironment {
            untold: Arc::default(),
            scope: Arc::clone(&registry.scope),
            registry: Arc::new(registry),
            gate: Arc::new(gate),
            hooks: Arc::new(hooks),
            sink: None,
            session: None,
            clients: Line::default(),
            ear: None,
        };
        Ok(Self { environment, bridge, target: options.target, hook_mask, working_directory })
    }

    /// Registers a tool whose handler is number `handler` of the JavaScript object. `checks`: arguments are held against a
    /// schema there, and not against the definition.
    #[napi(catch_unwind)]
    pub fn register(&self, definition: String, handler: u32, checks: bool) -> napi::Result<()> {
        let definition: ToolDefinition = parse("definition", &definition)?;
        let tool = JsTool { definition, bridge: Arc::clone(&self.bridge), target: self.target, handler, checks };
        self.add(Arc::new(tool))
    }

    /// Says where parameters are no schema that arguments can be held against.
    #[napi(catch_unwind)]
    pub fn check_parameters(&self, parameters: String) -> napi::Result<()> {
        check_parameters(&parse("parameters", &parameters)?).map_err(|(path, message)| {
            let issues = json!({ "issues": [{ "path": path, "message": message }] });
            envelope("CONFIG_VALIDATION", format!("register: {path}: {message}"), issues)
        })
    }

    /// Takes a tool out.
    #[napi(catch_unwind)]
    pub fn unregister(&self, name: String) -> bool {
        self.environment.registry.unregister(&name)
    }

    /// Registers the file tools; their definitions.
    #[napi(catch_unwind)]
    pub fn register_filesystem(&self, options: String) -> napi::Result<String> {
        let options: FilesystemOptions = parse("options", &options)?;
        let workspace = options.workspace()?;
        *self.working_directory.lock() = Some(workspace.working_directory().to_owned());
        self.add_all(filesystem_tools(&workspace))
    }

    /// Registers the shell tool; its definition in a list.
    #[napi(catch_unwind)]
    pub fn register_bash(&self, options: String) -> napi::Result<String> {
        let options: BashOptions = parse("options", &options)?;
        self.add_all(options.tools()?)
    }

    /// Registers the tools for commands that go on; their definitions.
    #[napi(catch_unwind)]
    pub fn register_exec(&self, options: String) -> napi::Result<String> {
        let options: ExecOptions = parse("options", &options)?;
        self.add_all(options.tools()?)
    }

    /// Registers the git tools; their definitions.
    #[napi(catch_unwind)]
    pub fn register_git(&self, options: String) -> napi::Result<String> {
        let options: GitOptions = parse("options", &options)?;
        self.add_all(options.tools()?)
    }

    /// Whether the same call again is sensible: it looks at something that goes on. `arguments` is a JSON object.
    #[napi(catch_unwind)]
    pub fn may_repeat(&self, name: String, arguments: String) -> napi::Result<bool> {
        let arguments: crate::tool::Arguments = parse("arguments", &arguments)?;
        Ok(self.environment.registry.get(&name).is_some_and(|tool| tool.may_repeat(&arguments)))
    }

    /// All tools as models' interfaces take them: a list of [`WireTool`].
    #[napi(catch_unwind)]
    pub fn wire_tools(&self) -> JsText {
        let definitions = self.environment.registry.definitions();
        let names = WireNames::of(&definitions);
        let wire = |definition: &ToolDefinition| WireTool {
            wire_name: names.wire(&definition.name).into_owned(),
            schema: told_schema(definition),
            name: definition.name.clone(),
            description: definition.description.clone(),
            annotations: definition.annotations.clone().unwrap_or_default(),
        };
        js_text(to_json(&definitions.iter().map(wire).collect::<Vec<_>>()))
    }

    /// Says which hook points have handlers, a bit for each.
    #[napi(catch_unwind)]
    pub fn set_hook_mask(&self, mask: u32) {
        self.hook_mask.store(mask, Ordering::Release);
    }

    /// Figures of all tools that were called.
    #[napi(catch_unwind)]
    pub fn metrics(&self) -> String {
        to_json(&self.environment.registry.metrics())
    }

    /// Forgets all figures.
    #[napi(catch_unwind)]
    pub fn clear_metrics(&self) {
        self.environment.registry.clear_metrics();
    }

    /// Runs one call; its outcome. `events` takes what the tool itself publishes meanwhile.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn execute<'env>(
        &self,
        env: &'env Env,
        request: String,
        cancel: Option<&CancelHandle>,
        events: Option<&NativeEvents>,
    ) -> napi::Result<PromiseRaw<'env, JsText>> {
        let request: ToolCallRequest = parse("call", &request)?;
        let (mut environment, cancel) = (self.environment.clone(), token_of(cancel));
        environment.sink = events.map(|events| Arc::new(OwnEvents(Arc::clone(&events.queue))) as Arc<dyn Sink>);
        settle(env, async move {
            let outcome = run_call(&environment, request, &cancel).await;
            Ok(js_text(to_json(&Shown::from(&outcome))))
        })
    }

    /// Runs a [`Batch`]; its [`Outcomes`]. `events` takes what happens meanwhile.
    #[napi(catch_unwind, ts_return_type = "Promise<string>")]
    pub fn execute_batch<'env>(
        &self,
        env: &'env Env,
        batch: String,
        cancel: Option<&CancelHandle>,
        events: Option<&NativeEvents>,
    ) -> napi::Result<PromiseRaw<'env, JsText>> {
        let (mut environment, cancel) = (self.environment.clone(), token_of(cancel));
        environment.sink = events.map(|events| Arc::clone(&events.queue) as Arc<dyn Sink>);
        env.spawn_future(async move {
            // Read where it runs: JavaScript's thread has other things to do.
            let read: Batch = parse("calls", &batch)?;
            let max_concurrency = read.max_concurrency;
            let mut outcomes = Outcomes::default();
            let take = |outcome: CallOutcome| outcomes.push(&outcome);
            run_each(&environment, read.into_calls(), max_concurrency, &cancel, take).await;
            Ok(js_text(outcomes.into_json()))
        })
    }
}

impl NativeRegistry {
    /// The tools themselves, for a server.
    pub(super) fn tools(&self) -> Arc<Registry> {
        Arc::clone(&self.environment.registry)
    }

    /// The tool that a call of that name would find, what it has of the session, and what relative patterns are relative to.
    pub(super) fn known(&self, name: &str) -> Option<(Arc<dyn Tool>, (Arc<Scope>, Option<PathBuf>))> {
        let directory = || self.working_directory.lock().clone().or_else(process_directory);
        let tool = self.environment.registry.get(name)?;
        Some((tool, (Arc::clone(&self.environment.scope), directory())))
    }

    pub(super) fn add(&self, tool: Arc<dyn Tool>) -> napi::Result<()> {
        let registered = self.environment.registry.register(tool);
        registered.map_err(|e| envelope("CONFIG_VALIDATION", e.to_string(), Value::Null))
    }

    pub(super) fn add_all(&self, tools: Vec<Arc<dyn Tool>>) -> napi::Result<String> {
        let definitions: Vec<ToolDefinition> = tools.iter().map(|tool| tool.definition().clone()).collect();
        tools.into_iter().try_for_each(|tool| self.add(tool))?;
        Ok(to_json(&definitions))
    }
}

/// Begins the work here, on JavaScript's thread, and goes on in the runtime only when it has to wait: a call that is
/// done at once saves two changes of thread, which cost more than all the rest of it.
fn settle<'env>(
    env: &'env Env,
    work: impl Future<Output = napi::Result<JsText>> + Send + 'static,
) -> napi::Result<PromiseRaw<'env, JsText>> {
    let mut work = Box::pin(work);
    match within_runtime_if_available(|| (&mut work).now_or_never()) {
        Some(Ok(text)) => PromiseRaw::resolve(env, text),
        Some(Err(error)) => PromiseRaw::reject(env, error),
        None => env.spawn_future(work),
    }
}

/// A tool as `js/interop.cjs` reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTool {
    name: String,
    /// Its name in letters that all interfaces take.
    wire_name: String,
    description: String,
    schema: Value,
    annotations: ToolAnnotations,
}

/// An outcome as `js/registry-calls.cjs` reads it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    result: &'a ToolCallResult,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    findings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a ErrorBody>,
}

impl<'a> From<&'a CallOutcome> for Shown<'a> {
    fn from(outcome: &'a CallOutcome) -> Self {
        let CallOutcome { result, findings, timed_out_ms, failure, ran: _ } = outcome;
        Self { result, findings, timed_out_ms: *timed_out_ms, failure: failure.as_ref() }
    }
}
