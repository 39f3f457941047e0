//! What the application counts, as one page.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::App;
use crate::base::clock;
use crate::base::metrics::meters::Meters;
use crate::base::metrics::{Kind, Page};
use crate::base::trace::Tracer;

impl App {
    /// What is counted of requests, turns, tools and models.
    pub fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// Who tells the collector of traces, if there is one.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Writes what is counted here: sessions and turns as they are now, and all that was counted since the start.
    pub fn write_metrics(&self, page: &mut Page) {
        page.family("simse_build_info", Kind::Gauge, "Always 1; says which version runs.");
        page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.family("simse_start_time_seconds", Kind::Gauge, "When the server was opened, in seconds since 1970.");
        #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
        page.sample(&[], self.opened_at_ms as f64 / 1e3);
        if let Some(ahead_ms) = clock::machine_ahead_ms() {
            let help = "By how much the machine's clock is ahead of the database's, by which the server goes.";
            page.family("simse_machine_clock_ahead_seconds", Kind::Gauge, help);
            #[allow(clippy::cast_precision_loss, reason = "a metric is a float")]
            page.sample(&[], ahead_ms as f64 / 1e3);
        }
        let now = self.sessions.now();
        let kept = self.session_count.load(Ordering::Acquire);
        page.family("simse_sessions", Kind::Gauge, "Sessions that are kept, by whether they are in memory.");
        page.sample(&[("state", "awake")], now.awake);
        page.sample(&[("state", "asleep")], kept.saturating_sub(now.awake));
        page.family("simse_turns", Kind::Gauge, "Turns that are not over, by where they are.");
        let states =
            [("running", now.running), ("waiting", now.waiting), ("paused", now.paused), ("queued", now.queued)];
        for (state, count) in states {
            page.sample(&[("state", state)], count);
        }
        if let Some(company) = self.sessions.company() {
            page.family(
                "simse_nodes",
                Kind::Gauge,
                "Servers that share the store and are there, by whether they take sessions.",
            );
            page.sample(&[("state", "active")], company.active);
            page.sample(&[("state", "draining")], company.draining);
            let help = "Trees of sessions that this server has taken over since its start.";
            page.family("simse_sessions_taken_total", Kind::Counter, help);
            page.sample(&[], company.taken);
        }
        self.meters.write(page);
        if let Some(commits) = self.store.meter() {
            commits.write(page);
        }
    }
}
