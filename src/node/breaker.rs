//! The loop breaker for a loop that is written in JavaScript.

use napi_derive::napi;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::error::{parse, to_json};
use crate::agent::{BreakerLimits, LoopBreaker, Step};
use crate::protocol::{ToolCallRequest, ToolCallResult, ToolDefinition};

/// [`BreakerLimits`], each of which may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Limits {
    identical_calls: Option<u32>,
    empty_searches: Option<u32>,
    identical_replies: Option<u32>,
    unreadable_replies: Option<u32>,
}

impl From<Limits> for BreakerLimits {
    fn from(given: Limits) -> Self {
        let usual = Self::default();
        Self {
            identical_calls: given.identical_calls.unwrap_or(usual.identical_calls),
            empty_searches: given.empty_searches.unwrap_or(usual.empty_searches),
            identical_replies: given.identical_replies.unwrap_or(usual.identical_replies),
            unreadable_replies: given.unreadable_replies.unwrap_or(usual.unreadable_replies),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reply {
    text: String,
    tool_calls: Vec<ToolCallRequest>,
    unreadable: bool,
}

/// A [`Step`] as `js/breaker.cjs` hands it on.
#[derive(Debug, Serialize)]
struct Advice {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// What is remembered of one turn.
#[napi]
pub struct NativeLoopBreaker {
    limits: BreakerLimits,
    inner: Mutex<LoopBreaker>,
}

#[napi]
impl NativeLoopBreaker {
    /// With these limits; what is left out is as usual.
    #[napi(constructor, catch_unwind)]
    pub fn new(limits: String) -> napi::Result<Self> {
        let limits = BreakerLimits::from(parse::<Limits>("limits", &limits)?);
        Ok(Self { limits, inner: Mutex::new(LoopBreaker::new(limits)) })
    }

    /// Looks at a reply: `{action, message?}` in JSON.
    #[napi(catch_unwind)]
    pub fn reply(&self, reply: String) -> napi::Result<String> {
        let Reply { text, tool_calls, unreadable } = parse("reply", &reply)?;
        let (action, message) = match self.inner.lock().reply(&text, &tool_calls, unreadable) {
            Step::GoOn => ("continue", None),
            Step::Tell(message) => ("tell", Some(message)),
            Step::Stop(message) => ("stop", Some(message)),
        };
        Ok(to_json(&Advice { action, message }))
    }

    /// Counts a call; why it is not to be run.
    #[napi(catch_unwind)]
    pub fn call(&self, call: String) -> napi::Result<Option<String>> {
        let call: ToolCallRequest = parse("call", &call)?;
        Ok(self.inner.lock().call(&call).map(|repeated| repeated.told))
    }

    /// Looks at a result; a hint for the model.
    #[napi(catch_unwind)]
    pub fn result(&self, result: String, definition: Option<String>) -> napi::Result<Option<String>> {
        let result: ToolCallResult = parse("result", &result)?;
        let definition: Option<ToolDefinition> = definition.map(|text| parse("definition", &text)).transpose()?;
        Ok(self.inner.lock().result(definition.as_ref(), &result))
    }

    /// Forgets everything: a new turn.
    #[napi(catch_unwind)]
    pub fn reset(&self) {
        *self.inner.lock() = LoopBreaker::new(self.limits);
    }
}
