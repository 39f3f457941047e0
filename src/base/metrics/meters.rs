//! What one server counts of its requests, turns, tools, models and questions. The store counts its commits itself.
//!
//! Invariants: a label is a route's pattern, a tool of ours, a model's id, or a word out of a fixed list; never an id of a
//! session or client, never a text that somebody sent.

use std::sync::Arc;
use std::time::Duration;

use super::{Counter, Family, Gauge, Histogram, Kind, Page, QUICK, SLOW};

/// Routes that are told apart: more than there are.
const ROUTES_MAX: usize = 128;
/// Tools that are told apart. Tool servers may bring many.
const TOOLS_MAX: usize = 512;
/// Models that are told apart.
const MODELS_MAX: usize = 128;
/// What a route's name is when a request met none: refused at the door, or there is no such route.
pub const NO_ROUTE: &str = "none";
/// What a tool's name is that nobody has: models invent some.
pub const NO_TOOL: &str = "unknown";

/// The methods of requests; others count as `other`.
const METHODS: [&str; 8] = ["GET", "POST", "PATCH", "DELETE", "HEAD", "PUT", "OPTIONS", super::OTHER];
/// The statuses of answers; others count as 0.
const STATUSES: [u16; 24] = [
    101, 200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 426, 429, 431, 500, 501, 503,
    504,
];

/// A server's counts.
#[derive(Debug)]
pub struct Meters {
    /// Requests by route.
    pub routes: Family<RouteMeter>,
    /// Bytes of bodies that went out.
    pub sent_bytes: Counter,
    /// Event streams that are open.
    pub streams: Arc<Gauge>,
    /// WebSockets that are open.
    pub sockets: Arc<Gauge>,
    /// Turns.
    pub turns: TurnMeter,
    /// Calls by tool.
    pub tools: Family<ToolMeter>,
    /// Requests to models, by model.
    pub models: Family<ModelMeter>,
    /// Questions that were put to clients.
    pub asked: Counter,
    /// How they ended, by who decided.
    pub answered: Family<AnswerMeter>,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            routes: Family::new(ROUTES_MAX),
            sent_bytes: Counter::default(),
            streams: Arc::default(),
            sockets: Arc::default(),
            turns: TurnMeter::default(),
            tools: Family::new(TOOLS_MAX),
            models: Family::new(MODELS_MAX),
            asked: Counter::default(),
            answered: Family::new(32),
        }
    }
}

/// Requests of one route.
#[derive(Debug)]
pub struct RouteMeter {
    /// By method and status; the last status is any other.
    statuses: [[Counter; STATUSES.len() + 1]; METHODS.len()],
    seconds: Histogram,
}

impl Default for RouteMeter {
    fn default() -> Self {
        let statuses = std::array::from_fn(|_| std::array::from_fn(|_| Counter::default()));
        Self { statuses, seconds: Histogram::new(&QUICK) }
    }
}

impl RouteMeter {
    /// Counts a request whose answer began after `time`.
    pub fn answered(&self, method: &str, status: u16, time: Duration) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let status = STATUSES.binary_search(&status).unwrap_or(STATUSES.len());
        if let Some(counter) = self.statuses.get(method).and_then(|all| all.get(status)) {
            counter.count();
        }
        self.seconds.took(time);
    }
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Completed,
    /// By an error.
    Failed,
    /// A client aborted it, or the server stopped.
    Aborted,
    /// A client interrupted it.
    Interrupted,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Completed, Self::Failed, Self::Aborted, Self::Interrupted];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Turns.
#[derive(Debug)]
pub struct TurnMeter {
    /// Those that began.
    pub started: Counter,
    ended: [Histogram; Outcome::ALL.len()],
}

impl Default for TurnMeter {
    fn default() -> Self {
        Self { started: Counter::default(), ended: std::array::from_fn(|_| Histogram::new(&SLOW)) }
    }
}

impl TurnMeter {
    /// Counts the end of a turn, and how long it took.
    pub fn ended(&self, outcome: Outcome, time: Duration) {
        if let Some(ended) = self.ended.get(outcome as usize) {
            ended.took(time);
        }
    }
}

/// Calls of one tool.
#[derive(Debug)]
pub struct ToolMeter {
    /// It did what it was asked.
    pub ok: Counter,
    /// It failed.
    pub failed: Counter,
    /// It was refused, or never ran.
    pub refused: Counter,
    /// It took too long.
    pub timed_out: Counter,
    /// How long those that ran took.
    pub seconds: Histogram,
}

impl Default for ToolMeter {
    fn default() -> Self {
        let [ok, failed, refused, timed_out] = std::array::from_fn(|_| Counter::default());
        Self { ok, failed, refused, timed_out, seconds: Histogram::new(&SLOW) }
    }
}

/// Requests to one model.
#[derive(Debug)]
pub struct ModelMeter {
    /// Replies that came whole.
    pub replied: Counter,
    /// Requests that failed, by kind.
    pub failed: Family<Counter>,
    /// Tokens that were sent.
    pub input_tokens: Counter,
    /// Tokens that came.
    pub output_tokens: Counter,
    /// How long requests took.
    pub seconds: Histogram,
    /// How long the first word took.
    pub first: Histogram,
}

impl Default for ModelMeter {
    fn default() -> Self {
        let [replied, input_tokens, output_tokens] = std::array::from_fn(|_| Counter::default());
        let [seconds, first] = std::array::from_fn(|_| Histogram::new(&SLOW));
        Self { replied, failed: Family::new(16), input_tokens, output_tokens, seconds, first }
    }
}

/// Questions that somebody decided.
#[derive(Debug, Default)]
pub struct AnswerMeter {
    /// With yes.
    pub allowed: Counter,
    /// With no.
    pub denied: Counter,
}

impl Meters {
    /// Writes all of it.
    pub fn write(&self, page: &mut Page) {
        self.write_requests(page);
        self.write_turns(page);
        self.write_tools(page);
        self.write_models(page);
        page.family(
            "simse_permission_questions_total",
            Kind::Counter,
            "Questions about a tool call that were put to clients.",
        );
        page.sample(&[], self.asked.get());
        page.family("simse_permission_answers_total", Kind::Counter, "How such questions ended, and who decided.");
        for (by, answers) in self.answered.list() {
            for (allowed, counter) in [("true", &answers.allowed), ("false", &answers.denied)] {
                page.sample(&[("by", &by), ("allowed", allowed)], counter.get());
            }
        }
    }

    fn write_requests(&self, page: &mut Page) {
        let routes = self.routes.list();
        page.family("simse_http_requests_total", Kind::Counter, "Requests that were answered.");
        for (route, meter) in &routes {
            for (method, statuses) in METHODS.iter().zip(&meter.statuses) {
                for (status, counter) in STATUSES.iter().chain([&0]).zip(statuses).filter(|(_, c)| c.get() > 0) {
                    let labels = [("route", &**route), ("method", method), ("status", &status.to_string())];
                    page.sample(&labels, counter.get());
                }
            }
        }
        page.family(
            "simse_http_request_duration_seconds",
            Kind::Histogram,
            "Time from a request's head to the head of its answer.",
        );
        for (route, meter) in &routes {
            page.histogram(&[("route", route)], &meter.seconds);
        }
        page.family("simse_http_sent_bytes_total", Kind::Counter, "Bytes of the bodies of answers.");
        page.sample(&[], self.sent_bytes.get());
        page.family("simse_event_streams", Kind::Gauge, "Event streams (SSE) that are open.");
        page.sample(&[], self.streams.get());
        page.family("simse_websockets", Kind::Gauge, "WebSockets that are open.");
        page.sample(&[], self.sockets.get());
    }

    fn write_turns(&self, page: &mut Page) {
        page.family("simse_turns_started_total", Kind::Counter, "Turns that began.");
        page.sample(&[], self.turns.started.get());
        page.family("simse_turns_ended_total", Kind::Counter, "Turns that ended, by how.");
        for (outcome, ended) in Outcome::ALL.into_iter().zip(&self.turns.ended) {
            page.sample(&[("outcome", outcome.word())], ended.count());
        }
        page.family(
            "simse_turn_duration_seconds",
            Kind::Histogram,
            "Time from a turn's beginning to its end, pauses and questions included.",
        );
        for (outcome, ended) in Outcome::ALL.into_iter().zip(&self.turns.ended) {
            page.histogram(&[("outcome", outcome.word())], ended);
        }
    }

    fn write_tools(&self, page: &mut Page) {
        let tools = self.tools.list();
        page.family("simse_tool_calls_total", Kind::Counter, "Tool calls that ended, by how.");
        for (tool, meter) in &tools {
            let outcomes = [
                ("ok", &meter.ok),
                ("failed", &meter.failed),
                ("refused", &meter.refused),
                ("timeout", &meter.timed_out),
            ];
            for (outcome, counter) in outcomes {
                page.sample(&[("tool", tool), ("outcome", outcome)], counter.get());
            }
        }
        page.family("simse_tool_duration_seconds", Kind::Histogram, "Run time of tool calls that ran.");
        for (tool, meter) in &tools {
            page.histogram(&[("tool", tool)], &meter.seconds);
        }
    }

    fn write_models(&self, page: &mut Page) {
        let models = self.models.list();
        page.family("simse_model_requests_total", Kind::Counter, "Requests to models that ended, by how.");
        for (model, meter) in &models {
            page.sample(&[("model", model), ("outcome", "ok")], meter.replied.get());
            for (kind, counter) in meter.failed.list() {
                page.sample(&[("model", model), ("outcome", &kind)], counter.get());
            }
        }
        page.family("simse_model_tokens_total", Kind::Counter, "Tokens, as far as providers tell.");
        for (model, meter) in &models {
            page.sample(&[("model", model), ("direction", "input")], meter.input_tokens.get());
            page.sample(&[("model", model), ("direction", "output")], meter.output_tokens.get());
        }
        page.family("simse_model_duration_seconds", Kind::Histogram, "Time that requests to models took.");
        for (model, meter) in &models {
            page.histogram(&[("model", model)], &meter.seconds);
        }
        page.family(
            "simse_model_first_delta_seconds",
            Kind::Histogram,
            "Time from a request to a model to the first piece of its reply.",
        );
        for (model, meter) in &models {
            page.histogram(&[("model", model)], &meter.first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_counted_somewhere() {
        assert!(STATUSES.is_sorted());
        let meters = Meters::default();
        let route = meters.routes.of("/sessions/{sessionId}");
        for (method, status) in [("GET", 200), ("GET", 200), ("BREW", 418), ("POST", 504)] {
            route.answered(method, status, Duration::from_micros(150));
        }
        let mut page = Page::default();
        meters.write(&mut page);
        let text = page.into_text();
        for (method, status, count) in [("GET", 200, 2), (super::super::OTHER, 0, 1), ("POST", 504, 1)] {
            let line =
                format!("{{route=\"/sessions/{{sessionId}}\",method=\"{method}\",status=\"{status}\"}} {count}\n");
            assert!(text.contains(&format!("simse_http_requests_total{line}")), "{line}\n{text}");
        }
        assert!(text.contains("simse_http_request_duration_seconds_count{route=\"/sessions/{sessionId}\"} 4\n"));
    }
}
