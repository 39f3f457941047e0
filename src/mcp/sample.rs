//! Servers that ask for an answer of a model while they work on a call (`sampling/createMessage`): whose model, and within which limits.
//!
//! Invariant: a request is answered by the session of the call that it belongs to, after it was allowed there, or by nobody. Tools,
//! sound and other sessions' context are not offered; how warm the answer is to be is the model's own affair.

#![allow(deprecated, reason = "servers of today ask for models, list roots and log; the next protocol drops all three")]

use rmcp::ErrorData;
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ErrorCode, Extensions, Role, SamplingMessage,
    SamplingMessageContentBlock,
};
use rmcp::service::InboundStreamOrigin;
use tokio_util::sync::CancellationToken;

use super::elicit::Calls;
use crate::base::limit;
use crate::base::secrets::Secrets;
use crate::hook::{NotSampled, SampleRequest, SampleStop, Sampled};
use crate::protocol::{Message, NoticeLevel, Part};

/// What the protocol says of a request that is refused.
const REFUSED: ErrorCode = ErrorCode(-1);

impl Calls {
    /// Has the session of the call answer that the server `name` asks for.
    ///
    /// # Errors
    /// Why there is no answer, for the server.
    pub(super) async fn sample(
        &self,
        name: &str,
        (params, secrets): (CreateMessageRequestParams, &Secrets),
        (extensions, gone): (&Extensions, &CancellationToken),
    ) -> Result<CreateMessageResult, ErrorData> {
        let invalid = |why: String| ErrorData::invalid_params(why, None);
        let mut request = read(params).map_err(invalid)?;
        let (audience, number) = self.samples_for(extensions.get::<InboundStreamOrigin>()).await.map_err(|why| {
            tracing::warn!(server = name, why, "a tool server asks for an answer of a model, and gets none");
            ErrorData::new(REFUSED, why, None)
        })?;
        if number > limit::MCP_SAMPLES_OF_CALL_MAX {
            let most = limit::MCP_SAMPLES_OF_CALL_MAX;
            return Err(ErrorData::new(REFUSED, format!("a call may ask for {most} answers at most"), None));
        }
        let line = audience.line().clone();
        let Some(sampler) = line.sampler() else {
            return Err(ErrorData::new(REFUSED, "there is no session that could answer", None));
        };
        hide(&mut request, secrets);
        request.name = format!("sampling:{name}");
        request.who = format!("The tool server `{name}`");
        request.call_id = audience.call_id().to_owned();
        let over = line.cancel().child_token();
        let _end = over.clone().drop_guard();
        let sampled = tokio::select! {
            biased;
            () = gone.cancelled() => Err(NotSampled::Aborted),
            () = audience.over() => Err(NotSampled::Aborted),
            sampled = sampler.sample(request, &over) => sampled,
        };
        let sampled = sampled.map_err(|error| match error {
            NotSampled::Denied(_) | NotSampled::Aborted => ErrorData::new(REFUSED, error.to_string(), None),
            NotSampled::Failed(why) => ErrorData::internal_error(why, None),
        })?;
        let told =
            format!("The tool server `{name}` had an answer of {} bytes from {}", sampled.text.len(), sampled.model);
        // It is short enough.
        let _ = line.notify(NoticeLevel::Info, told);
        Ok(answer(sampled))
    }
}

fn hide(request: &mut SampleRequest, secrets: &Secrets) {
    request.system = secrets.hidden(std::mem::take(&mut request.system));
    for message in &mut request.messages {
        match message {
            Message::User(parts) => {
                for part in parts {
                    if let Part::Text { text } = part {
                        *text = secrets.hidden(std::mem::take(text));
                    }
                }
            }
            Message::Assistant { text, .. } => *text = secrets.hidden(std::mem::take(text)),
            Message::ToolResult { .. } => {}
        }
    }
}

/// The request in our words, or why it cannot be answered.
fn read(params: CreateMessageRequestParams) -> Result<SampleRequest, String> {
    let bytes = serde_json::to_string(&params).map_or(usize::MAX, |text| text.len());
    if bytes > limit::MCP_SAMPLE_BYTES_MAX {
        return Err(format!("messages: expected at most {} bytes, got {bytes}", limit::MCP_SAMPLE_BYTES_MAX));
    }
    if params.max_tokens == 0 {
        return Err("maxTokens: expected a number above 0".into());
    }
    let mut messages = Vec::with_capacity(params.messages.len());
    for (at, message) in params.messages.into_iter().enumerate() {
        messages.push(said(message).map_err(|expected| format!("messages[{at}]: expected {expected}"))?);
    }
    if !matches!(messages.last(), Some(Message::User(_))) {
        return Err("messages: expected the last one to be the user's".into());
    }
    let hints = params.model_preferences.and_then(|wanted| wanted.hints).unwrap_or_default();
    Ok(SampleRequest {
        system: params.system_prompt.unwrap_or_default(),
        messages,
        tokens_max: params.max_tokens.min(limit::MCP_SAMPLE_TOKENS_MAX),
        stops: params.stop_sequences.unwrap_or_default(),
        hints: hints.into_iter().filter_map(|hint| hint.name).collect(),
        ..SampleRequest::default()
    })
}

fn said(message: SamplingMessage) -> Result<Message, &'static str> {
    let blocks = message.content.into_vec();
    let part = |block: SamplingMessageContentBlock| match block {
        SamplingMessageContentBlock::Text(text) => Ok(Part::Text { text: text.text }),
        SamplingMessageContentBlock::Image(image) => {
            super::content::image(&image).ok_or("an image of a kind that models take, in base64")
        }
        _ => Err("texts and images"),
    };
    let parts = blocks.into_iter().map(part).collect::<Result<Vec<_>, _>>()?;
    if message.role == Role::User {
        return Ok(Message::User(parts));
    }
    let texts = parts.into_iter().map(|part| match part {
        Part::Text { text } => Ok(text),
        Part::Image { .. } => Err("texts alone of the assistant"),
    });
    Ok(Message::assistant(texts.collect::<Result<Vec<_>, _>>()?.join("\n"), Vec::new()))
}

fn answer(sampled: Sampled) -> CreateMessageResult {
    let stop = match sampled.stop {
        SampleStop::End => CreateMessageResult::STOP_REASON_END_TURN,
        SampleStop::Tokens => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        SampleStop::Sequence => CreateMessageResult::STOP_REASON_END_SEQUENCE,
    };
    let message = SamplingMessage::assistant_text(sampled.text);
    CreateMessageResult::new(message, sampled.model).with_stop_reason(stop)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(messages: Value, more: Value) -> Result<SampleRequest, String> {
        let mut params = json!({ "messages": messages, "maxTokens": 100 });
        params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        read(serde_json::from_value(params).map_err(|error| error.to_string())?)
    }

    #[test]
    fn what_can_be_answered_and_what_cannot() {
        let text = |role: &str, text: &str| json!({ "role": role, "content": { "type": "text", "text": text } });
        let image =
            |kind: &str| json!({ "role": "user", "content": { "type": "image", "mimeType": kind, "data": "AAEC" } });
        let more = json!({
            "systemPrompt": "be brief", "maxTokens": 1_000_000, "stopSequences": ["X"],
            "modelPreferences": { "hints": [{ "name": "small" }, {}], "speedPriority": 1 }, "includeContext": "thisServer",
        });
        let read = request(json!([text("user", "a"), text("assistant", "b"), image("image/png")]), more).unwrap();
        assert_eq!((read.system.as_str(), read.tokens_max), ("be brief", limit::MCP_SAMPLE_TOKENS_MAX));
        assert_eq!((read.hints, read.stops), (vec!["small".to_owned()], vec!["X".to_owned()]));
        let shown = Part::Image { media_type: "image/png".into(), data: "AAEC".into() };
        assert_eq!((read.messages.len(), &read.messages[2]), (3, &Message::User(vec![shown])));
        #[rustfmt::skip]
        let table = [
            (json!([]), json!({}), "messages: expected the last one"),
            (json!([text("assistant", "b")]), json!({}), "messages: expected the last one"),
            (json!([image("image/bmp")]), json!({}), "messages[0]: expected an image of a kind"),
            (json!([{ "role": "user", "content": { "type": "audio", "mimeType": "audio/wav", "data": "AAEC" } }]), json!({}), "messages[0]: expected texts and images"),
            (json!([text("user", "a")]), json!({ "maxTokens": 0 }), "maxTokens: expected a number above 0"),
            (json!([text("user", &"a".repeat(limit::MCP_SAMPLE_BYTES_MAX))]), json!({}), "messages: expected at most"),
        ];
        for (messages, more, want) in table {
            let why = request(messages, more).unwrap_err();
            assert!(why.starts_with(want), "{why}");
        }
    }
}
