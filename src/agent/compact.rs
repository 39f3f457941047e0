//! A conversation that comes near the end of its model's window is summed up by a model, and goes on with the summary.
//!
//! It is done before a request that would come too near (`threshold`), behind one that a provider found too long (`overflow`), and
//! when a client asks (`manual`). What is summed up is sent as it was sent before, with the task behind it: a provider that keeps
//! the beginning of requests has it there. Where that does not fit either, the model is given a transcript that does.
//!
//! Invariants: each `compaction.start` has one `compaction.complete` or `compaction.failed`; what fails leaves the conversation as
//! it was; no call is parted from its result; a turn that could not be brought below its limit does not try that again by itself,
//! so that nothing goes round in circles.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::fault::{Fault, model_failure};
use super::reply::{Asking, Listener, Reply, plus};
use super::touched::{attached, touched};
use super::turn::Turn;
use super::{Ended, Sink, SinkError, Wish};
use crate::base::{BoxFuture, limit};
use crate::context::{
    Cut, Keep, UNITS_PER_TOKEN, conversation_chars, conversation_tokens, cut, heard_of, looks_like_summary, shorten_to,
    tidied, transcript,
};
use crate::model::{Messages, Model, ModelError, ModelRequest, StopReason};
use crate::prompt::{compaction_system, compaction_task};
use crate::protocol::{
    Compaction, CompactionTrigger, ErrorBody, ErrorCode, EventBody, Message, Part, Reasoning, Usage,
};

/// Tokens of what a request has beside its messages, at most about: while there is room for so many, they need not be counted.
const OVERHEAD_TOKENS: u64 = 40_000;
/// Tokens that a reply is to have room for.
const REPLY_TOKENS: u64 = 16_384;
/// UTF-16 units that a token has at most, over a whole conversation.
const UNITS_PER_TOKEN_MAX: u64 = 8;
/// From so many UTF-16 units of messages on a count shows how dense they are.
const UNITS_THAT_SHOW: u64 = 100_000;
/// How dense they are taken to be before that: code and JSON are denser than prose.
const UNITS_PER_TOKEN_GUESSED: u64 = 3;
/// Tokens that a UTF-16 unit has at most.
const TOKENS_PER_UNIT_MAX: u64 = 3;
/// How often a transcript is made shorter that does not fit.
const SHORTER_MAX: u32 = 3;
/// By this part of what a request may have a conversation has to grow before what was tried in vain is tried again.
const TRIED_AGAIN: u64 = 10;
/// UTF-16 units of a transcript that are reckoned as one token: fewer than in plain text, as it is to fit.
const TRANSCRIPT_UNITS: u64 = 3;

/// When and by whom a conversation is summed up.
#[derive(Clone, Default)]
pub struct Compacting {
    /// Hundredths of the model's window that it fills then. 0: only when it does not fit.
    pub percent: u32,
    /// The model that sums up. None: the turn's own.
    pub model: Option<Arc<dyn Model>>,
}

/// How it ended.
pub(super) enum Compacted {
    /// The conversation is shorter.
    Done,
    /// There is nothing that could be summed up.
    Nothing,
    /// It is as it was.
    Failed(ErrorBody),
    /// The turn was told to end.
    Stopped(Ended),
}

/// A summary that a model gave.
struct Summary {
    text: String,
    usage: Option<Usage>,
}

/// Why there is none.
enum NoSummary {
    Failed(ModelError),
    Stopped,
}

impl Turn {
    /// The turn that does nothing else.
    pub(super) async fn compact_only(
        &mut self,
        focus: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<Ended, SinkError> {
        if self.input.model.is_agent() {
            let why = format!("{} is an agent and keeps its own context", self.input.model.id());
            return Ok(Ended::Failed(Fault::NotCompacted.told(why)));
        }
        Ok(match self.compact((CompactionTrigger::Manual, focus), cancel).await? {
            Compacted::Done => Ended::Completed,
            Compacted::Nothing => {
                Ended::Failed(Fault::NotCompacted.told("there is nothing in the conversation to sum up".to_owned()))
            }
            Compacted::Failed(error) => Ended::Failed(error),
            Compacted::Stopped(ended) => ended,
        })
    }

    /// Sums the conversation up when the next request would come near the end of the model's window.
    pub(super) async fn keep_in_window(&mut self, cancel: &CancellationToken) -> Result<Option<Ended>, SinkError> {
        // What was tried in vain is tried again once a good deal has come.
        let grown = self.input.messages.chars() / UNITS_PER_TOKEN >= self.tried_at + self.ceiling() / TRIED_AGAIN;
        let waits = self.tried_at > 0 && !grown;
        if self.input.compacting.percent == 0 || waits || !self.is_too_long().await {
            return Ok(None);
        }
        let compacted = self.compact((CompactionTrigger::Threshold, None), cancel).await?;
        // What cannot be made shorter, or not short enough, is sent as it is: the provider says whether it fits.
        let in_vain = !matches!(compacted, Compacted::Done) || self.is_too_long().await;
        self.tried_at = if in_vain { (self.input.messages.chars() / UNITS_PER_TOKEN).max(1) } else { 0 };
        Ok(match compacted {
            Compacted::Stopped(ended) => Some(ended),
            Compacted::Done | Compacted::Nothing | Compacted::Failed(_) => None,
        })
    }

    /// Tokens of the model's window.
    fn window(&self) -> u64 {
        self.input.model.facts().context_tokens.unwrap_or(limit::CONTEXT_TOKENS_ASSUMED)
    }

    /// Tokens that a request may have.
    fn ceiling(&self) -> u64 {
        let (window, facts) = (self.window(), self.input.model.facts());
        let reply = facts.output_tokens_max.unwrap_or(REPLY_TOKENS).min(REPLY_TOKENS).min(window / 4);
        let percent = u64::from(self.input.compacting.percent.clamp(1, 100));
        (window / 100 * percent).min(window - reply)
    }

    /// Whether the next request has more tokens than it may. Cheap while it is far from that.
    async fn is_too_long(&self) -> bool {
        let ceiling = self.ceiling();
        let messages = &self.input.messages;
        if self.tokens_of(messages.chars(), messages) + OVERHEAD_TOKENS.min(ceiling / 2) < ceiling {
            return false;
        }
        // Old outputs may not be sent any more.
        let told = self.told(!self.input.model.takes_images()).await;
        if messages.measured().is_none() {
            // No provider has said yet how many they are.
            return self.counted(told).await >= ceiling;
        }
        self.tokens_of(told.chars(), messages) >= ceiling
    }

    /// About how many tokens a request has whose messages have so many UTF-16 units: as its provider has counted the last one,
    /// and what came since.
    fn tokens_of(&self, units: u64, messages: &Messages) -> u64 {
        match messages.measured() {
            Some((then, counted)) if then > 0 && counted > 0 => {
                // Some leave out what they had kept from the request before, and what any of them says is not ours to trust.
                let most = then.saturating_mul(TOKENS_PER_UNIT_MAX).saturating_add(OVERHEAD_TOKENS);
                let counted = counted.clamp(then / UNITS_PER_TOKEN_MAX, most);
                // As dense as what was counted, where that was mostly messages, and not the system text and the tools.
                let dense = then / counted.max(1);
                let per_token = if then >= UNITS_THAT_SHOW { dense.clamp(2, 6) } else { UNITS_PER_TOKEN_GUESSED };
                match units.checked_sub(then) {
                    Some(more) => counted.saturating_add(more.div_ceil(per_token)),
                    None => counted.saturating_mul(units) / then,
                }
            }
            Some(_) | None => {
                let tools = self.input.environment.told();
                let of_tool = |tool: &crate::protocol::ToolDefinition| {
                    let parameters = serde_json::to_string(&tool.parameters).map_or(0, |text| text.len());
                    tool.name.len() + tool.description.len() + parameters
                };
                let tools: usize = tools.iter().map(of_tool).sum();
                let overhead = u64::try_from(self.input.system.len() + tools).unwrap_or(u64::MAX);
                units.saturating_add(overhead).div_ceil(4)
            }
        }
    }

    /// Sums the conversation up.
    pub(super) async fn compact(
        &mut self,
        (trigger, focus): (CompactionTrigger, Option<&str>),
        cancel: &CancellationToken,
    ) -> Result<Compacted, SinkError> {
        let window = self.window();
        let keep = |room: u64| Keep {
            prompt: true,
            newest: limit::COMPACT_KEPT_TOKENS.min(room / 5),
            said: limit::COMPACT_SAID_TOKENS.min(room / 12),
            last: room / 5,
        };
        let keep = match trigger {
            CompactionTrigger::Manual => Keep { prompt: false, newest: 0, said: 0, last: 0 },
            CompactionTrigger::Threshold => keep(window),
            // The window is smaller than it is said to be.
            CompactionTrigger::Overflow => keep(window.min(conversation_tokens(&self.input.messages))),
        };
        // A reply that its provider has paused goes on with the very messages that there are.
        let goes_on = self.pieces().next().is_some();
        let Some(cut) = cut(&self.input.messages, keep).filter(|_| !goes_on) else { return Ok(Compacted::Nothing) };
        let focus = match self.hooked_focus((trigger, focus), cancel).await {
            Ok(focus) => focus,
            Err(held_back) => return Ok(held_back),
        };
        let focus = focus.as_deref();
        // Who reads the log prunes here too.
        self.input.messages.prune();
        let (count, chars) = (self.input.messages.len() as u64, self.input.messages.chars());
        let sink = Arc::clone(&self.input.sink);
        sink.emit(EventBody::CompactionStart { message_count: count, estimated_chars: chars, trigger })?;
        let stop = cancel.child_token();
        let summary = {
            let steering = Arc::clone(&self.input.steering);
            let interrupted = async {
                steering.called().await;
                while steering.wish() != Wish::Interrupt {
                    // It is to pause: that it does at its next boundary.
                    std::future::pending::<()>().await;
                }
                stop.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                summary = self.summary((trigger, focus, &cut), &stop) => summary?,
                () = interrupted => Err((NoSummary::Stopped, None)),
            }
        };
        let (summary, usage) = match summary {
            Ok(Summary { text, usage }) => (text, usage),
            Err((why, usage)) => {
                self.usage = self.usage.plus(usage.unwrap_or_default());
                return self.not_compacted(why, usage, cancel);
            }
        };
        self.usage = self.usage.plus(usage.unwrap_or_default());
        self.go_on_with((trigger, summary, usage), cut, cancel).await?;
        Ok(Compacted::Done)
    }

    /// Puts the summary into the place of what it sums up.
    async fn go_on_with(
        &mut self,
        (trigger, summary, usage): (CompactionTrigger, String, Option<Usage>),
        cut: Cut,
        cancel: &CancellationToken,
    ) -> Result<(), SinkError> {
        let chars = self.input.messages.chars();
        let hooks = Arc::clone(&self.input.environment.hooks);
        let hooked = hooks.compacting(&self.input.messages, summary.clone()).await;
        let window = self.window();
        let bytes_of = |part: u64| usize::try_from(window / part * UNITS_PER_TOKEN).unwrap_or(usize::MAX);
        let bytes_max = bytes_of(8).min(limit::SUMMARY_BYTES_MAX);
        let summary = tidied(&hooked, bytes_max).or_else(|| tidied(&summary, bytes_max)).unwrap_or_default();
        let touched = touched(&self.input.environment.registry, &self.input.messages);
        let room = match trigger {
            // There is less room than it was said.
            CompactionTrigger::Overflow => 0,
            CompactionTrigger::Manual | CompactionTrigger::Threshold => {
                bytes_of(10).min(limit::COMPACT_FILES_BYTES_MAX)
            }
        };
        let places = (self.input.messages.len() - cut.kept, room);
        let attached = attached(&self.input.environment, &touched, places, cancel).await;
        let mut made = Compaction {
            trigger,
            summary,
            kept: cut.kept as u64,
            carried: cut.carried.iter().map(|back| *back as u64).collect(),
            files: touched.files,
            attached,
            tokens_before: self.tokens_of(chars, &self.input.messages),
            tokens_after: 0,
            usage,
        };
        let before = self.input.messages.len();
        let mut messages = self.input.messages.to_vec();
        shorten_to(&mut messages, &made);
        made.tokens_after = conversation_tokens(&messages);
        self.final_text.clone_from(&made.summary);
        let summary_length = made.summary.encode_utf16().count() as u64;
        self.input.sink.emit(EventBody::CompactionComplete { summary_length, compaction: Box::new(made.clone()) })?;
        if let Some(agent) = &mut self.agent {
            agent.messages = heard_of(&made, (agent.messages, before));
        }
        self.begins = 0;
        self.input.messages = messages.into();
        // Instructions of folders went with the rest: who gets there again is told again.
        self.input.environment.scope.guided.forget();
        Ok(())
    }

    fn not_compacted(
        &self,
        why: NoSummary,
        usage: Option<Usage>,
        cancel: &CancellationToken,
    ) -> Result<Compacted, SinkError> {
        let (error, compacted) = match why {
            NoSummary::Failed(error) => {
                let error = model_failure(&error);
                (error.clone(), Compacted::Failed(error))
            }
            NoSummary::Stopped => {
                let message = "the turn was told to end before the conversation was summed up".to_owned();
                let error = ErrorBody { code: ErrorCode::Conflict, message, details: None };
                (error, Compacted::Stopped(self.at_boundary(cancel).unwrap_or(Ended::Aborted)))
            }
        };
        tracing::warn!(error = error.message, "a conversation was not summed up; it stays as it is");
        self.input.sink.emit(EventBody::CompactionFailed { error, usage })?;
        Ok(compacted)
    }

    /// Has it summed up: as it stands, and where that does not work, from a transcript.
    async fn summary(
        &self,
        (trigger, focus, cut): (CompactionTrigger, Option<&str>, &Cut),
        stop: &CancellationToken,
    ) -> Result<Result<Summary, (NoSummary, Option<Usage>)>, SinkError> {
        let other = self.input.compacting.model.as_ref().filter(|model| model.id() != self.input.model.id());
        let mut spent = None;
        if let Some(model) = other {
            match self.transcript_summed_up((model, focus, cut), stop).await? {
                Ok(summary) => return Ok(Ok(summary)),
                Err((NoSummary::Stopped, usage)) => return Ok(Err((NoSummary::Stopped, usage))),
                Err((NoSummary::Failed(error), usage)) => {
                    tracing::warn!(model = model.id(), %error, "the model for summaries fails; the session's own is asked");
                    spent = usage;
                }
            }
        }
        // Who answers in actions is told to do nothing else: a summary is none. What cannot fit is not sent either: a prompt may be
        // longer than the window, and what stands before it is summed up all the same.
        let room = self.window() - self.window() / 8;
        let fits = self.tokens_of(self.input.messages.chars(), &self.input.messages) < room;
        if trigger != CompactionTrigger::Overflow && fits && !self.acts() {
            let mut request = self.request().await;
            request.messages.push(Message::User(vec![Part::Text { text: compaction_task(focus) }]));
            request.output_schema = None;
            let (answered, usage) = self.ask_for_summary(&self.input.model, &request, stop).await?;
            spent = plus(spent, usage);
            match answered {
                Ok(text) => return Ok(Ok(Summary { text, usage: spent })),
                Err(NoSummary::Stopped) => return Ok(Err((NoSummary::Stopped, spent))),
                // It called tools instead of writing, or it was too long.
                Err(NoSummary::Failed(ModelError::Overflow(_) | ModelError::Malformed(_))) => {}
                Err(NoSummary::Failed(error)) => return Ok(Err((NoSummary::Failed(error), spent))),
            }
        }
        let model = Arc::clone(&self.input.model);
        let summary = self.transcript_summed_up((&model, focus, cut), stop).await?;
        Ok(match summary {
            Ok(Summary { text, usage }) => Ok(Summary { text, usage: plus(spent, usage) }),
            Err((why, usage)) => Err((why, plus(spent, usage))),
        })
    }

    async fn transcript_summed_up(
        &self,
        (model, focus, cut): (&Arc<dyn Model>, Option<&str>, &Cut),
        stop: &CancellationToken,
    ) -> Result<Result<Summary, (NoSummary, Option<Usage>)>, SinkError> {
        let window = model.facts().context_tokens.unwrap_or_else(|| self.window());
        let room = window - REPLY_TOKENS.min(window / 4);
        let mut units_max = room * TRANSCRIPT_UNITS * 9 / 10;
        let old = &self.input.messages[..self.input.messages.len() - cut.kept];
        let (mut spent, mut tries) = (None, 0);
        loop {
            let text = transcript(old, usize::try_from(units_max).unwrap_or(usize::MAX));
            // What is to become shorter begins with how long it is.
            units_max = units_max.min(text.encode_utf16().count() as u64);
            let parts = [text, compaction_task(focus)].map(|text| Part::Text { text });
            let request = ModelRequest {
                system: compaction_system().to_owned(),
                messages: vec![Message::User(parts.into())].into(),
                reasoning: Reasoning::Auto,
                ..ModelRequest::default()
            };
            let (answered, usage) = self.ask_for_summary(model, &request, stop).await?;
            spent = plus(spent, usage);
            match answered {
                Ok(text) => return Ok(Ok(Summary { text, usage: spent })),
                Err(NoSummary::Failed(ModelError::Overflow(_))) if tries < SHORTER_MAX => {
                    tries += 1;
                    units_max /= 2;
                }
                Err(why) => return Ok(Err((why, spent))),
            }
        }
    }

    /// Asks a model, as often as the turn's policy allows. Nothing of its reply is told to anybody.
    async fn ask_for_summary(
        &self,
        model: &Arc<dyn Model>,
        request: &ModelRequest,
        stop: &CancellationToken,
    ) -> Result<(Result<String, NoSummary>, Option<Usage>), SinkError> {
        let mut listener = Listener::new((&Unheard, self.input.steering.as_ref()), self.input.retry, stop);
        let mut attempt = 1;
        let asking = loop {
            match listener.ask(model.as_ref(), request.clone(), attempt).await? {
                Asking::Again { attempt: next } => attempt = next,
                asking => break asking,
            }
        };
        let Reply { text, usage, stop: stopped, calls, .. } = listener.into_reply();
        let answered = match asking {
            Asking::Replied => {
                fault_of((&text, !calls.is_empty()), stopped).map_or(Ok(text), |fault| Err(NoSummary::Failed(fault)))
            }
            Asking::Failed(error) => Err(NoSummary::Failed(error)),
            Asking::Aborted | Asking::Called | Asking::Again { .. } => Err(NoSummary::Stopped),
        };
        Ok((answered, usage))
    }

    /// The conversation as it is now, in the event that says that it was made shorter without a model.
    pub(super) fn pruned(&self) -> EventBody {
        let messages = &self.input.messages;
        EventBody::CompactionPrune {
            message_count: messages.len() as u64,
            estimated_chars: conversation_chars(messages),
        }
    }
}

/// Why an answer is no summary. None: it is one.
fn fault_of((text, calls): (&str, bool), stop: Option<StopReason>) -> Option<ModelError> {
    let malformed = |what: &str| Some(ModelError::Malformed(what.to_owned()));
    match stop {
        Some(StopReason::ContentFilter) => {
            Some(ModelError::Blocked("the provider cut the summary for its content".to_owned()))
        }
        Some(StopReason::Refusal) => Some(ModelError::Refused("the model did not want to sum up".to_owned())),
        Some(StopReason::Length) if text.trim().is_empty() => {
            Some(ModelError::Overflow("there was no room for a summary".to_owned()))
        }
        Some(StopReason::Length) => malformed("the summary did not come to its end"),
        _ if calls => malformed("the model called tools instead of summing up"),
        _ if !looks_like_summary(text) => malformed("the model answered with something else than a summary"),
        _ => None,
    }
}

/// What a summary is made of, piece by piece, is told to nobody.
struct Unheard;

impl Sink for Unheard {
    fn emit(&self, _: EventBody) -> Result<(), SinkError> {
        Ok(())
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), SinkError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
