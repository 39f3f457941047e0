//! Answers of models for tools that ask for one while they work: permission first, then the model, then its text within limits.
//!
//! Invariant: nothing is sent to a model before the gate has said yes to what is sent. The text is cut here, at its limit of tokens
//! (estimated, as not every provider says while it streams) and at stop texts, so that both hold whatever the model heeds.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Gate, GateQuestion, Preview};
use crate::base::BoxFuture;
use crate::context::describe_images;
use crate::hook::{NotSampled, SampleRequest, SampleStop, Sampled, Sampler};
use crate::model::{Model, ModelEvent, ModelRequest, Models, StopReason};
use crate::permission::Subject;
use crate::protocol::{Message, Part, ToolAnnotations, ToolCallRequest, ToolCategory, ToolDefinition};
use crate::tool::Arguments;

/// Bytes of text that are reckoned as one token.
const BYTES_PER_TOKEN: usize = 4;

/// The models of one turn.
pub struct TurnSampler {
    /// Who gives permission.
    gate: Arc<dyn Gate>,
    /// The model of the turn.
    model: Arc<dyn Model>,
    /// The others.
    models: Models,
}

impl TurnSampler {
    /// Those of a turn with this model.
    pub fn new(gate: &Arc<dyn Gate>, model: &Arc<dyn Model>, models: Models) -> Self {
        Self { gate: Arc::clone(gate), model: Arc::clone(model), models }
    }

    /// The first that is hinted at and can be used; else the turn's own; else the default one. Never an agent: it would work on a
    /// task of its own, with tools.
    fn choose(&self, hints: &[String]) -> Option<Arc<dyn Model>> {
        let listed = self.models.list();
        let usable = |model: &&Arc<dyn Model>| !model.is_agent() && model.available().is_ok();
        let hinted = hints.iter().map(|hint| hint.to_lowercase()).find_map(|hint| {
            let is_meant = |model: &&Arc<dyn Model>| !hint.is_empty() && model.id().to_lowercase().contains(&hint);
            let own = Some(&self.model).filter(usable).filter(is_meant);
            own.or_else(|| listed.iter().filter(usable).find(is_meant)).cloned()
        });
        let default = || self.models.get(&self.models.default_id());
        hinted
            .or_else(|| Some(Arc::clone(&self.model)).filter(|model| usable(&model)))
            .or_else(|| default().filter(|model| usable(&model)))
    }

    async fn permit(
        &self,
        (request, model): (&SampleRequest, &str),
        cancel: &CancellationToken,
    ) -> Result<(), NotSampled> {
        let arguments = shown(request, model);
        let definition = ToolDefinition {
            category: Some(ToolCategory::Other),
            annotations: Some(ToolAnnotations {
                title: Some(format!("{} asks a model", request.who)),
                ..ToolAnnotations::default()
            }),
            ..ToolDefinition::new(request.name.clone(), "An answer of a model for a tool server.", Arguments::new())
        };
        let call = ToolCallRequest { id: request.call_id.clone(), name: request.name.clone(), arguments };
        let question = GateQuestion {
            request: &call,
            like: &[],
            definition: Some(&definition),
            subject: &Subject::None,
            place: None,
            insists: false,
            unfit: false,
            asked: false,
            preview: &Itself,
        };
        let verdict = self.gate.check(question, cancel).await;
        if verdict.allowed {
            return Ok(());
        }
        if cancel.is_cancelled() {
            return Err(NotSampled::Aborted);
        }
        let why = if verdict.reason.is_empty() { "the user said no".to_owned() } else { verdict.reason };
        Err(NotSampled::Denied(why))
    }
}

impl Sampler for TurnSampler {
    fn sample<'a>(
        &'a self,
        request: SampleRequest,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Sampled, NotSampled>> {
        Box::pin(async move {
            let none = || NotSampled::Failed("there is no model that could answer".to_owned());
            let model = self.choose(&request.hints).ok_or_else(none)?;
            self.permit((&request, model.id()), cancel).await?;
            let SampleRequest { system, mut messages, tokens_max, stops, .. } = request;
            if !model.takes_images() {
                describe_images(&mut messages);
            }
            let asked = ModelRequest { system, messages: messages.into(), ..ModelRequest::default() };
            // What is cut is not streamed on.
            let enough = cancel.child_token();
            let _over = enough.clone().drop_guard();
            let limits = Limits {
                bytes_max: usize::try_from(tokens_max).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN),
                stops,
            };
            let (text, stop) = limits.read(model.stream(asked, enough), cancel).await?;
            Ok(Sampled { model: model.id().to_owned(), text, stop })
        })
    }
}

/// Where an answer ends.
struct Limits {
    bytes_max: usize,
    stops: Vec<String>,
}

impl Limits {
    async fn read(
        &self,
        mut stream: crate::model::ModelStream,
        cancel: &CancellationToken,
    ) -> Result<(String, SampleStop), NotSampled> {
        let mut text = String::new();
        loop {
            let next = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(NotSampled::Aborted),
                next = stream.next() => next,
            };
            match next {
                None => return Err(NotSampled::Failed("the model's answer broke off".to_owned())),
                Some(Err(error)) => return Err(NotSampled::Failed(error.to_string())),
                Some(Ok(ModelEvent::Text(piece))) => text.push_str(&piece),
                Some(Ok(ModelEvent::Retrying { .. })) => text.clear(),
                Some(Ok(ModelEvent::Finished(stop))) => {
                    let stop = if stop == StopReason::Length { SampleStop::Tokens } else { SampleStop::End };
                    return Ok(self.cut(&mut text).map_or((text.clone(), stop), |cut| (text, cut)));
                }
                Some(Ok(_)) => continue,
            }
            if let Some(stop) = self.cut(&mut text) {
                return Ok((text, stop));
            }
        }
    }

    /// Cuts a text that is at its end.
    fn cut(&self, text: &mut String) -> Option<SampleStop> {
        let first = self.stops.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| text.find(stop.as_str())).min();
        if let Some(at) = first {
            text.truncate(at);
            return Some(SampleStop::Sequence);
        }
        if text.len() <= self.bytes_max {
            return None;
        }
        text.truncate(text.floor_char_boundary(self.bytes_max));
        Some(SampleStop::Tokens)
    }
}

/// What a person is asked about: all that would be sent, but for the bytes of images.
fn shown(request: &SampleRequest, model: &str) -> Arguments {
    let part = |part: &Part| match part {
        Part::Text { text } => Value::from(text.as_str()),
        Part::Image { media_type, data } => format!("[image, {media_type}, {} bytes of base64]", data.len()).into(),
    };
    let message = |message: &Message| match message {
        Message::User(parts) => json!({ "role": "user", "content": parts.iter().map(part).collect::<Vec<_>>() }),
        Message::Assistant { text, .. } => json!({ "role": "assistant", "content": [text] }),
        Message::ToolResult { output, .. } => json!({ "role": "tool", "content": [output] }),
    };
    let messages: Vec<Value> = request.messages.iter().map(message).collect();
    let mut arguments = Arguments::from_iter([
        ("model".to_owned(), Value::from(model)),
        ("messages".to_owned(), messages.into()),
        ("maxTokens".to_owned(), request.tokens_max.into()),
    ]);
    if !request.system.is_empty() {
        arguments.insert("systemPrompt".into(), request.system.as_str().into());
    }
    arguments
}

/// The arguments say it all.
#[derive(Debug)]
struct Itself;

impl Preview for Itself {
    fn compute<'a>(&'a self, _: &'a Arguments) -> BoxFuture<'a, Option<Value>> {
        Box::pin(std::future::ready(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_ends_at_its_limits() {
        let text =
            |pieces: &[&str]| pieces.iter().map(|piece| Ok(ModelEvent::Text((*piece).into()))).collect::<Vec<_>>();
        let end = |stop| vec![Ok(ModelEvent::Finished(stop))];
        #[rustfmt::skip]
        let table = [
            (text(&["one ", "two"]), end(StopReason::EndTurn), Ok(("one two", SampleStop::End))),
            (text(&["one"]), end(StopReason::Length), Ok(("one", SampleStop::Tokens))),
            (text(&["one S", "TOP two"]), vec![], Ok(("one ", SampleStop::Sequence))),
            (text(&["äääääääää"]), vec![], Ok(("ääääää", SampleStop::Tokens))),
            (text(&["one"]), vec![], Err(NotSampled::Failed("the model's answer broke off".into()))),
        ];
        for (pieces, last, want) in table {
            let stream = Box::pin(futures_util::stream::iter(pieces.into_iter().chain(last)));
            let limits = Limits { bytes_max: 13, stops: vec![String::new(), "STOP".into()] };
            let got = limits.read(stream, &CancellationToken::new()).await;
            assert_eq!(got, want.map(|(text, stop): (&str, _)| (text.to_owned(), stop)));
        }
    }
}
