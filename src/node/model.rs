//! Models that are JavaScript generators. `js/models.cjs` pulls them and holds what they yield against its form; here is
//! what the engine sees: a [`Model`] with time-outs, limits and cancellation.
//!
//! What a model is asked has names of tools that every provider takes, as on the wires of our own providers, and names in
//! its answer are restored. Invariant: when the stream is dropped or ends, JavaScript hears that no more is wanted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bridge::{Bridge, CallFailure};
use super::chunks::{Assembler, Failure, WIRE};
use super::error::to_json;
use super::feed::{Fed, Feed};
use crate::hook::show_message;
use crate::model::{CallIds, Model, ModelError, ModelEvent, ModelFacts, ModelRequest, ModelStream, Prices, WireNames};
use crate::protocol::{Message, ToolDefinition, Usage};
use crate::tool::{output_in_words, told_schema};

/// The longest id of a call that every provider takes.
const CALL_ID_BYTES_MAX: usize = 40;

/// What the facade says of one of its models.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct GivenModel {
    /// `provider/name`.
    id: String,
    /// Its name for people.
    label: Option<String>,
    /// Tokens of its window, and of one reply.
    context_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Whether it can be shown images.
    #[serde(default = "yes")]
    images: bool,
    /// Whether it can think before it answers.
    #[serde(default = "yes")]
    reasoning: bool,
    /// Whether it holds its answers to a schema by itself. Unsaid: it is told the schema in words. False: no schema is asked of it.
    structured_output: Option<bool>,
    prices: Option<GivenPrices>,
}

/// In US dollars for a million tokens.
#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenPrices {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

impl GivenModel {
    fn prices(&self) -> Option<Prices> {
        self.prices.map(|given| {
            let GivenPrices { input, output, cache_read, cache_write } = given;
            Prices { input, output, cache_read, cache_write }
        })
    }
}

fn yes() -> bool {
    true
}

/// A model of the JavaScript object `target`.
pub(super) struct JsModel {
    given: GivenModel,
    /// Its place among the models of that object.
    at: usize,
    bridge: Arc<Bridge>,
    target: u32,
    /// Longest silence.
    idle_timeout: Duration,
    /// The tools of the last request, in the words that JavaScript is told.
    told: Mutex<Option<(Arc<[ToolDefinition]>, Arc<Told>)>>,
}

/// Tools as JavaScript is told of them.
struct Told {
    names: WireNames,
    /// A list in JSON.
    json: String,
}

impl JsModel {
    /// The models of object `target`, in their order.
    pub(super) fn all(
        given: &[GivenModel],
        (bridge, target): (&Arc<Bridge>, u32),
        idle_timeout: Duration,
    ) -> Vec<Arc<dyn Model>> {
        let model = |(at, given): (usize, &GivenModel)| {
            let (given, bridge) = (given.clone(), Arc::clone(bridge));
            Arc::new(Self { given, at, bridge, target, idle_timeout, told: Mutex::default() }) as Arc<dyn Model>
        };
        given.iter().enumerate().map(model).collect()
    }

    fn told(&self, tools: &Arc<[ToolDefinition]>) -> Arc<Told> {
        let mut kept = self.told.lock();
        if let Some((known, told)) = kept.as_ref()
            && Arc::ptr_eq(known, tools)
        {
            return Arc::clone(told);
        }
        let told = Arc::new(Told::of(tools));
        *kept = Some((Arc::clone(tools), Arc::clone(&told)));
        told
    }

    /// A message as the model reads it: its own replies also in its own words, where it wants them back.
    fn shown(&self, message: &Message, told: (&WireNames, &CallIds<'_>)) -> Value {
        let mut shown = shown(message, told);
        if let Message::Assistant { original: Some(original), .. } = message
            && original.wire == WIRE
            && original.model == self.given.id
        {
            shown["original"] = json!(original.items);
        }
        shown
    }

    /// The request as JavaScript reads it.
    fn written(&self, request: &ModelRequest, told: &Told) -> String {
        let ids = CallIds::of(&request.messages, CALL_ID_BYTES_MAX, |_, calls| {
            calls.iter().map(|call| Some(call.id.as_str().into())).collect()
        });
        let shown = |message| self.shown(message, (&told.names, &ids));
        let messages: Vec<Value> = request.messages.iter().map(shown).collect();
        let mut system = request.system.clone();
        let mut schema = String::new();
        if let Some(wanted) = request.output_schema.as_deref() {
            schema = format!(",\"outputSchema\":{}", to_json(wanted));
            if self.given.structured_output != Some(true) {
                let apart = if system.is_empty() { "" } else { "\n\n" };
                system.push_str(apart);
                system.push_str(&output_in_words(wanted));
            }
        }
        let (system, messages) = (to_json(&system), to_json(&messages));
        let (id, reasoning, tools) = (to_json(&self.given.id), to_json(&request.reasoning), &told.json);
        format!(
            "{{\"at\":{},\"request\":{{\"model\":{id},\"system\":{system},\"messages\":{messages},\
             \"tools\":{tools},\"reasoning\":{reasoning}{schema}}}}}",
            self.at
        )
    }
}

impl Told {
    fn of(tools: &[ToolDefinition]) -> Self {
        let names = WireNames::of(tools);
        let tool = |tool: &ToolDefinition| {
            let name = names.wire(&tool.name);
            json!({ "name": name, "description": tool.description, "parameters": told_schema(tool) })
        };
        let json = to_json(&tools.iter().map(tool).collect::<Vec<_>>());
        Self { names, json }
    }
}

/// A message as hooks see it, its tools named as the model knows them.
fn shown(message: &Message, (names, ids): (&WireNames, &CallIds<'_>)) -> Value {
    let mut shown = show_message(message);
    match message {
        Message::User(_) => {}
        Message::Assistant { calls, .. } => {
            for (at, call) in calls.iter().enumerate() {
                shown["toolCalls"][at]["name"] = names.wire(&call.name).into();
                if let Some(id) = ids.call(message, at) {
                    shown["toolCalls"][at]["id"] = id.into();
                }
            }
        }
        Message::ToolResult { name, .. } => {
            shown["toolName"] = names.wire(name).into();
            if let Some(id) = ids.result(message) {
                shown["toolCallId"] = id.into();
            }
        }
    }
    shown
}

impl Model for JsModel {
    fn id(&self) -> &str {
        &self.given.id
    }

    fn facts(&self) -> ModelFacts {
        ModelFacts {
            label: self.given.label.clone(),
            context_tokens: self.given.context_tokens,
            output_tokens_max: self.given.output_tokens,
            images: self.given.images,
            reasoning: self.given.reasoning,
            structured_output: self.given.structured_output != Some(false),
            prices: self.given.prices(),
            ..ModelFacts::default()
        }
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let told = self.told(&request.tools);
        let talk = Box::new(Talk {
            phase: Phase::Asking(self.written(&request, &told)),
            bridge: Arc::clone(&self.bridge),
            target: self.target,
            id: self.given.id.clone(),
            told,
            prices: self.given.prices(),
            idle_timeout: self.idle_timeout,
            cancel,
            ready: VecDeque::new(),
        });
        Box::pin(futures_util::stream::unfold(talk, |mut talk| async move {
            let item = talk.next().await?;
            Some((item, talk))
        }))
    }
}

/// One request and its answer.
struct Talk {
    phase: Phase,
    bridge: Arc<Bridge>,
    target: u32,
    id: String,
    told: Arc<Told>,
    prices: Option<Prices>,
    idle_timeout: Duration,
    cancel: CancellationToken,
    /// Events that came together and are handed out one by one.
    ready: VecDeque<ModelEvent>,
}

enum Phase {
    Asking(String),
    Listening(Feed, Assembler),
    Failed(ModelError),
    Over,
}

impl Talk {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Failed(error) => return Some(Err(error)),
                Phase::Asking(input) => self.ask(&input),
                Phase::Listening(feed, assembler) => self.listen(feed, assembler).await,
            };
        }
    }

    fn ask(&self, input: &str) -> Phase {
        if self.cancel.is_cancelled() {
            return Phase::Failed(ModelError::Aborted);
        }
        let feed = Feed::open(&self.bridge, (self.target, "model"), input);
        feed.map_or_else(|| Phase::Failed(self.gone()), |feed| Phase::Listening(feed, Assembler::of(&self.id)))
    }

    fn gone(&self) -> ModelError {
        ModelError::Unavailable(format!("the JavaScript side of the model `{}` is gone", self.id))
    }

    async fn listen(&mut self, mut feed: Feed, mut assembler: Assembler) -> Phase {
        let fed = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Phase::Failed(ModelError::Aborted),
            fed = tokio::time::timeout(self.idle_timeout, feed.next()) => fed,
        };
        let mut events = Vec::new();
        let taken = match fed {
            Err(_) => Err(self.silent()),
            Ok(Fed::Batch(batch)) => assembler.take(&batch, &mut events),
            Ok(Fed::End(answer)) => self.ended(answer).inspect(|()| assembler.close(&mut events)),
        };
        let prices = self.prices;
        self.ready.extend(events.into_iter().map(|event| priced(self.told.names.restore(event), prices)));
        match taken {
            Err(error) => Phase::Failed(error),
            Ok(()) if assembler.is_done() => Phase::Over,
            Ok(()) => Phase::Listening(feed, assembler),
        }
    }

    fn silent(&self) -> ModelError {
        let message = format!("the model `{}` was silent for {} ms", self.id, self.idle_timeout.as_millis());
        ModelError::Transient { message, retry_after: None }
    }

    /// How the generator ended: it returned, or what it threw, sorted by `js/models.cjs`.
    fn ended(&self, answer: Result<String, CallFailure>) -> Result<(), ModelError> {
        let text = match answer {
            Ok(text) => text,
            Err(CallFailure::Threw(message) | CallFailure::BadInput(message)) => {
                return Err(ModelError::Unavailable(message));
            }
            Err(CallFailure::Aborted) => return Err(self.gone()),
        };
        match serde_json::from_str::<Option<Failure>>(&text) {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => Err(failure.into()),
            Err(error) => {
                Err(ModelError::Malformed(format!("how the model `{}` ended cannot be read: {error}", self.id)))
            }
        }
    }
}

/// Tokens with what they cost, where that is known.
fn priced(event: ModelEvent, prices: Option<Prices>) -> ModelEvent {
    match (event, prices) {
        (ModelEvent::Usage(usage), Some(prices)) => ModelEvent::Usage(Usage { cost: prices.cost(&usage), ..usage }),
        (event, _) => event,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::protocol::{Part, ToolCallRequest};

    #[test]
    fn a_model_hears_names_that_every_provider_takes() {
        let tools = ["fs_read", "mcp:files/read"].map(|name| ToolDefinition::new(name, "d", Map::new()));
        let told = Told::of(&tools);
        let listed: Value = serde_json::from_str(&told.json).unwrap();
        let names: Vec<&str> = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["fs_read", "mcp__files__read"]);
        assert_eq!(listed[0]["parameters"]["type"], "object");
        let called = |name: &str| ToolCallRequest { id: "1".into(), name: name.into(), arguments: Map::new() };
        let said = Message::assistant("", vec![called("fs_read"), called("mcp:files/read")]);
        let calls = shown(&said, (&told.names, &CallIds::default()))["toolCalls"].clone();
        assert_eq!((calls[0]["name"].as_str(), calls[1]["name"].as_str()), (Some("fs_read"), Some("mcp__files__read")));
        let result = Message::ToolResult {
            call_id: "1".into(),
            name: "mcp:files/read".into(),
            output: "o".into(),
            is_error: false,
            parts: Vec::new(),
        };
        assert_eq!(shown(&result, (&told.names, &CallIds::default()))["toolName"], "mcp__files__read");
        let user = Message::User(vec![Part::Text { text: "hi".into() }]);
        assert_eq!(shown(&user, (&told.names, &CallIds::default())), json!({ "role": "user", "content": "hi" }));
        let restored = told.names.restore(ModelEvent::Call(called("mcp__files__read")));
        assert_eq!(restored, ModelEvent::Call(called("mcp:files/read")));
    }
}
