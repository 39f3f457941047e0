//! Counting: turns, tool calls and requests to models, each where it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::sink::TurnSink;
use super::traced::model_span;
use crate::agent::{CallEnd, CallFate};
use crate::base::clock;
use crate::base::metrics::meters::{Meters, ModelMeter, NO_TOOL, Outcome};
use crate::base::trace::{Origin, Span, Tracer};
use crate::model::{Model, ModelError, ModelEvent, ModelFacts, ModelRequest, ModelStream};
use crate::protocol::{Spending, TurnRecord, TurnStatus, Usage, VerdictSource};
use crate::tool::Registry;

/// Counts the end of a turn.
pub(super) fn count_end(meters: &Meters, record: &TurnRecord) {
    let outcome = match record.status {
        TurnStatus::Completed => Outcome::Completed,
        TurnStatus::Aborted => Outcome::Aborted,
        TurnStatus::Interrupted => Outcome::Interrupted,
        TurnStatus::Failed | TurnStatus::Queued | TurnStatus::Running | TurnStatus::Waiting | TurnStatus::Paused => {
            Outcome::Failed
        }
    };
    let ended = record.ended_at.unwrap_or_else(clock::now_ms);
    let time_ms = ended.saturating_sub(record.started_at.unwrap_or(ended));
    meters.turns.ended(outcome, Duration::from_millis(time_ms));
}

/// Counts the end of a question to the client.
pub(super) fn count_answer(meters: &Meters, allowed: bool, by: VerdictSource) {
    let by = match by {
        VerdictSource::Policy => "policy",
        VerdictSource::Floor => "floor",
        VerdictSource::Mode => "mode",
        VerdictSource::Agent => "agent",
        VerdictSource::Client => "client",
        VerdictSource::Program => "program",
        VerdictSource::Grant => "grant",
        VerdictSource::Timeout => "timeout",
        VerdictSource::NoClient => "no-client",
        VerdictSource::Abort => "abort",
        VerdictSource::Hook => "hook",
    };
    let answers = meters.answered.of(by);
    if allowed { answers.allowed.count() } else { answers.denied.count() }
}

/// Counts the end of a tool call. Names that no tool of the turn has are one name.
pub(super) fn count_call(meters: &Meters, registry: &Registry, end: &CallEnd<'_>) {
    let meter = meters.tools.of(&tool_name(registry, end.name));
    match end.how {
        CallFate::Done => meter.ok.count(),
        CallFate::Failed => meter.failed.count(),
        CallFate::TimedOut => meter.timed_out.count(),
        CallFate::Refused => meter.refused.count(),
    }
    if let Some(time) = end.ran {
        meter.seconds.took(time);
    }
}

/// A tool's own name, whatever a model called it; one name for all that nobody has.
pub(super) fn tool_name(registry: &Registry, name: &str) -> String {
    registry.get(name).map_or_else(|| NO_TOOL.to_owned(), |tool| tool.definition().name.clone())
}

/// A model whose requests are counted.
pub(super) struct Metered {
    model: Arc<dyn Model>,
    meters: Arc<Meters>,
    tracer: Tracer,
    payer: Option<Arc<TurnSink>>,
}

impl Metered {
    /// The same model, counted; what it takes is the payer's.
    pub(super) fn over(
        model: Arc<dyn Model>,
        (meters, tracer): (&Arc<Meters>, &Tracer),
        payer: Option<&Arc<TurnSink>>,
    ) -> Arc<dyn Model> {
        Arc::new(Self { model, meters: Arc::clone(meters), tracer: tracer.clone(), payer: payer.cloned() })
    }
}

impl Model for Metered {
    fn id(&self) -> &str {
        self.model.id()
    }

    fn available(&self) -> Result<(), ModelError> {
        self.model.available()
    }

    fn facts(&self) -> ModelFacts {
        self.model.facts()
    }

    fn takes_images(&self) -> bool {
        self.model.takes_images()
    }

    fn is_agent(&self) -> bool {
        self.model.is_agent()
    }

    fn only_carries(&self) -> bool {
        self.model.only_carries()
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let meter = self.meters.models.of(self.model.id());
        let origin = Origin::current();
        let span = model_span(&self.tracer, self.model.id(), origin.context);
        let origin = Origin { context: span.context(), ..origin };
        let inner = match self.payer.as_ref().and_then(|payer| payer.out_of_touch()) {
            None => self.model.stream(request, cancel),
            // Who is in this server's place may have sent it as well.
            Some(known) => {
                let model = Arc::clone(&self.model);
                let asked = async move {
                    cancel.run_until_cancelled(known).await.map(|()| model.stream(request, cancel.clone()))
                };
                Box::pin(stream::once(asked).filter_map(std::future::ready).flatten())
            }
        };
        let (usage, payer) = (Usage::default(), self.payer.clone());
        Box::pin(Counted { span, origin, inner, meter, payer, began: None, waits: true, usage, over: false })
    }
}

/// A reply that is counted as it comes.
struct Counted {
    span: Span,
    /// What the request belongs to, for the provider on the other side.
    origin: Origin,
    inner: ModelStream,
    meter: Arc<ModelMeter>,
    payer: Option<Arc<TurnSink>>,
    /// When it was first waited for.
    began: Option<Instant>,
    /// Nothing has come yet.
    waits: bool,
    usage: Usage,
    over: bool,
}

impl Counted {
    fn look(&mut self, event: &ModelEvent, began: Instant) {
        match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) if text.is_empty() => {}
            ModelEvent::Text(_)
            | ModelEvent::Reasoning(_)
            | ModelEvent::Call(_)
            | ModelEvent::BadCall { .. }
            | ModelEvent::Agent(_) => {
                if std::mem::take(&mut self.waits) {
                    self.meter.first.took(began.elapsed());
                }
            }
            ModelEvent::Original(_) => {}
            ModelEvent::Usage(usage) => self.usage = *usage,
            ModelEvent::Retrying { .. } => self.meter.failed.of("transient").count(),
            ModelEvent::Finished(_) => self.end(None),
        }
    }

    /// Counts the end, once.
    fn end(&mut self, failed: Option<&str>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        match failed {
            None => self.meter.replied.count(),
            Some(kind) => {
                self.meter.failed.of(kind).count();
                self.span.set("error.type", kind);
                self.span.fail();
            }
        }
        self.span.set("gen_ai.usage.input_tokens", self.usage.input_tokens);
        self.span.set("gen_ai.usage.output_tokens", self.usage.output_tokens);
        if let Some(payer) = &self.payer {
            payer.spend(Spending::of(&self.usage));
        }
        self.meter.input_tokens.add(self.usage.input_tokens);
        self.meter.output_tokens.add(self.usage.output_tokens);
        self.meter.seconds.took(self.began.map_or(Duration::ZERO, |began| began.elapsed()));
    }
}

impl Stream for Counted {
    type Item = Result<ModelEvent, ModelError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let began = *this.began.get_or_insert_with(Instant::now);
        let polled = match this.origin.context {
            Some(_) => this.origin.clone().sync_scope(|| this.inner.as_mut().poll_next(cx)),
            None => this.inner.as_mut().poll_next(cx),
        };
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(event))) => this.look(event, began),
            Poll::Ready(Some(Err(error))) => this.end(Some(error.kind())),
            Poll::Ready(None) => this.end(Some("cut")),
        }
        polled
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Nobody waits for its end any more. One that was never asked is none.
        if self.began.is_some() {
            self.end(Some("aborted"));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::base::metrics::{Counter, Page};
    use crate::model::StopReason;

    type Items = Vec<Result<ModelEvent, ModelError>>;

    struct Says(Items);

    impl Model for Says {
        fn id(&self) -> &str {
            "test/says"
        }
        fn stream(&self, _: ModelRequest, _: CancellationToken) -> ModelStream {
            Box::pin(futures_util::stream::iter(self.0.clone()))
        }
    }

    #[test]
    fn what_never_ran_has_no_time_and_what_ran_has_all_of_it() {
        let (meters, registry) = (Meters::default(), Registry::default());
        let quick = Some(Duration::from_micros(300));
        let table = [
            (CallFate::Done, quick),
            (CallFate::Failed, quick),
            (CallFate::TimedOut, quick),
            (CallFate::Refused, None),
            (CallFate::Refused, None),
        ];
        for (how, ran) in table {
            count_call(&meters, &registry, &CallEnd { name: "nobody", how, ran });
        }
        let meter = meters.tools.of(NO_TOOL);
        let counted = [&meter.ok, &meter.failed, &meter.timed_out, &meter.refused].map(Counter::get);
        assert_eq!((counted, meter.seconds.count()), ([1, 1, 1, 2], 3));
        let mut page = Page::default();
        meters.write(&mut page);
        let text = page.into_text();
        assert!(text.contains("simse_tool_duration_seconds_sum{tool=\"unknown\"} 0.0009"), "{text}");
    }

    #[tokio::test]
    async fn every_request_ends_in_one_count() {
        let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
        let text = || Ok(ModelEvent::Text("x".into()));
        let transient = ModelError::Transient { message: "m".into(), retry_after: None };
        #[rustfmt::skip]
        let table: [(Items, usize, &str, (u64, u64), u64); 5] = [
            // (what comes, how much of it is read, how it is counted, tokens, first pieces)
            (vec![text(), Ok(ModelEvent::Usage(usage(3, 4))), Ok(ModelEvent::Finished(StopReason::EndTurn))], 9, "ok", (3, 4), 1),
            (vec![Ok(ModelEvent::Text(String::new())), Err(ModelError::Refused("no".into()))], 9, "refused", (0, 0), 0),
            (vec![text(), Err(transient)], 9, "transient", (0, 0), 1),
            (vec![text()], 9, "cut", (0, 0), 1),
            (vec![text(), text()], 1, "aborted", (0, 0), 1),
        ];
        for (items, read, want, tokens, first) in table {
            let meters = Arc::new(Meters::default());
            let model = Metered::over(Arc::new(Says(items)), (&meters, &Tracer::default()), None);
            drop(model.stream(ModelRequest::default(), CancellationToken::new()));
            let stream = model.stream(ModelRequest::default(), CancellationToken::new());
            drop(stream.take(read).collect::<Vec<_>>().await);
            let meter = meters.models.of("test/says");
            let failed: Vec<_> = meter.failed.list().into_iter().map(|(kind, count)| (kind, count.get())).collect();
            match want {
                "ok" => assert_eq!((meter.replied.get(), failed.len()), (1, 0)),
                kind => assert_eq!((meter.replied.get(), failed), (0, vec![(kind.into(), 1)])),
            }
            assert_eq!((meter.input_tokens.get(), meter.output_tokens.get()), tokens, "{want}");
            assert_eq!((meter.first.count(), meter.seconds.count()), (first, 1), "{want}");
        }
    }
}
