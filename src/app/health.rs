//! How the server is: the store, the model, what commands are held to, and the tool servers.

use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::json;

use super::App;
use crate::base::beneath::{Way, way};
use crate::base::panics::broken;
use crate::base::sandbox::{self, Mode};
use crate::base::{clock, file, limit};
use crate::config::SandboxSettings;
use crate::host::shelved;
use crate::protocol::{Health, LimitView};
use crate::provider::AcpLoad;

/// A check, and how long it took.
async fn timed(check: impl Future<Output = serde_json::Value>) -> serde_json::Value {
    let began = Instant::now();
    let mut told = check.await;
    told["durationMs"] = ((began.elapsed().as_secs_f64() * 1e6).round() / 1e3).into();
    told
}

/// How file tools stay inside their roots. Without the kernel's help it takes a system call for each name, and holds as well.
fn paths_check() -> serde_json::Value {
    match way() {
        Way::Kernel => json!({ "status": "ok", "resolvedBy": "kernel" }),
        Way::Names => {
            let reason = "the kernel has no openat2, or a filter refuses it: each name of a path is opened by itself";
            json!({ "status": "ok", "resolvedBy": "names", "reason": reason })
        }
    }
}

impl App {
    /// What of the sandbox this machine's kernel cannot do; empty when nothing, or when it is off.
    pub async fn sandbox_gaps(&self) -> Vec<&'static str> {
        match self.settings().sandbox.mode {
            Mode::Off => Vec::new(),
            // The first time, programs are started to try it out.
            Mode::ReadOnly | Mode::WorkspaceWrite => {
                let tried = tokio::task::spawn_blocking(|| sandbox::support().missing()).await;
                tried.unwrap_or_else(|_| vec!["it could not be tried out"])
            }
        }
    }

    async fn sandbox_check(&self) -> serde_json::Value {
        let settings = self.settings();
        let SandboxSettings { mode, network, .. } = &settings.sandbox;
        let gaps = self.sandbox_gaps().await;
        let status = match (mode, gaps.is_empty()) {
            (Mode::Off, _) => "off",
            (Mode::ReadOnly | Mode::WorkspaceWrite, true) => "ok",
            (Mode::ReadOnly | Mode::WorkspaceWrite, false) => "weakened",
        };
        let mut check = json!({ "status": status, "mode": mode, "network": network });
        if !gaps.is_empty() {
            check["reason"] = gaps.join("; ").into();
        }
        check
    }

    /// How much room there is where the data is. None: it is kept in memory.
    async fn disk_check(&self) -> Option<serde_json::Value> {
        let directory = self.data_directory.clone()?;
        let look = || async move { tokio::task::spawn_blocking(move || file::free_bytes(&directory)).await };
        let check = timed(async {
            match look().await {
                Ok(Ok(free)) => {
                    let status = match free {
                        free if free < limit::DISK_BYTES_MIN => "full",
                        free if free < limit::DISK_BYTES_LOW => "low",
                        _ => "ok",
                    };
                    json!({ "status": status, "freeBytes": free })
                }
                Ok(Err(cause)) => json!({ "status": "unknown", "reason": cause.to_string() }),
                Err(cause) => json!({ "status": "unknown", "reason": broken(cause) }),
            }
        });
        Some(check.await)
    }

    /// Which of the models that are listed cannot be used now. None of them makes the server unhealthy.
    fn providers_check(&self) -> serde_json::Value {
        let reasons = self.models.list().into_iter().filter_map(|model| {
            let error = model.available().err()?;
            Some((model.id().to_owned(), serde_json::Value::from(error.to_string())))
        });
        let unavailable: serde_json::Map<_, _> = reasons.collect();
        let status = if unavailable.is_empty() { "ok" } else { "degraded" };
        json!({ "status": status, "unavailable": unavailable })
    }

    /// How it is. `unhealthy` when the store does not work, its disk is full or the server ends; a model that cannot be used is only said.
    pub async fn health(&self) -> Health {
        let store = timed(async {
            match self.store.check().await {
                Ok(()) => json!({ "status": "ok" }),
                Err(error) => json!({ "status": "unhealthy", "reason": error.to_string() }),
            }
        });
        let (store, disk) = tokio::join!(store, self.disk_check());
        let id = self.models.default_id();
        let reason = self.models.get(&id).and_then(|model| model.available().err());
        let model = match reason {
            None => json!({ "status": "ok", "id": id }),
            Some(error) => json!({ "status": "unavailable", "id": id, "reason": error.to_string() }),
        };
        let sandbox = self.sandbox_check().await;
        let down = store["status"] != "ok" || disk.as_ref().is_some_and(|disk| disk["status"] == "full");
        let is_stopping = self.sessions.is_stopping();
        let status = if down || is_stopping { "unhealthy" } else { "ok" };
        let mut checks = serde_json::Map::new();
        if is_stopping {
            let reason = "it ends when what runs has come to its end";
            checks.insert("server".into(), json!({ "status": "stopping", "reason": reason }));
        }
        checks.insert("store".into(), store);
        if let Some(disk) = disk {
            checks.insert("disk".into(), disk);
        }
        checks.insert("model".into(), model);
        checks.insert("providers".into(), self.providers_check());
        checks.insert("sandbox".into(), sandbox);
        checks.insert("paths".into(), paths_check());
        if let Some(servers) = self.tool_servers() {
            checks.insert("mcpServers".into(), servers);
        }
        Health {
            status: status.into(),
            timestamp: clock::now_text(),
            version: env!("CARGO_PKG_VERSION").into(),
            checks,
            limits: None,
        }
    }

    /// What is bounded in the application, and how full it is.
    pub fn limits(&self) -> Vec<LimitView> {
        let kept = self.session_count.load(Ordering::Acquire);
        let mut limits = vec![LimitView::new("sessions", kept, self.settings().limits.sessions_max)];
        limits.extend(self.commands.limits());
        limits.extend(self.sessions.limits());
        limits.extend(self.kept_limits());
        let listeners = self.store.bell().listeners();
        let loads: Vec<_> = self.agents.iter().filter_map(|agent| agent.load()).collect();
        let most = |of: fn(&AcpLoad) -> usize| loads.iter().map(of).max().unwrap_or(0);
        limits.push(LimitView::new("agentPrograms", loads.len(), self.agents.len()));
        limits.push(LimitView::new("sessionsOfAnAgent", most(|load| load.sessions), limit::ACP_SESSIONS_MAX));
        limits.push(LimitView::new("unreadByAnAgent", most(|load| load.unread), limit::ACP_UNREAD_MAX));
        limits.push(LimitView::new(
            "unreadBytesByAnAgent",
            most(|load| load.unread_bytes),
            limit::ACP_UNREAD_BYTES_MAX,
        ));
        limits.push(LimitView::new("streamsOverAllSessions", listeners, limit::LIFECYCLE_STREAMS_MAX));
        limits
    }

    /// The same of what is kept, and of what waits to be.
    fn kept_limits(&self) -> Vec<LimitView> {
        let mut limits = Vec::new();
        limits.push(LimitView::new("keptOutcomes", self.store.outcomes_kept().count, limit::OUTCOMES_MAX));
        limits.push(LimitView::new("sessionEnds", self.store.ends_kept().count, limit::SESSION_ENDS_MAX));
        if self.store.cluster().is_some() {
            limits.push(self.ways.roads.limit());
        }
        if let Some(meter) = self.store.meter() {
            limits.push(LimitView::new("commitsWaiting", meter.waiting(), limit::COMMITS_WAITING_MAX));
        }
        if let Some(recording) = self.wardrobe.recording() {
            let (bytes, bytes_max) = recording.store().size();
            limits.push(LimitView::new("snapshotBytes", bytes, bytes_max));
            limits.push(LimitView::new("snapshotTrees", recording.trees(), limit::SNAPSHOT_TREES_MAX));
        }
        let (programs, programs_max) = self.wardrobe.servers().programs();
        limits.push(LimitView::new("mcpPrograms", programs, programs_max));
        let (owners, owners_max) = (self.wardrobe.servers().owners(), limit::MCP_SESSIONS_WITH_SERVERS_MAX);
        limits.push(LimitView::new("sessionsWithMcpServers", owners, owners_max));
        let (shelves, bytes) = shelved();
        limits.push(LimitView::new("searchShelves", shelves, limit::SEARCH_SHELVES_MAX));
        limits.push(LimitView::new("searchShelfBytes", bytes, limit::SEARCH_SHELVES_BYTES_MAX));
        limits.push(LimitView::new("toolSets", self.wardrobe.fitted(), limit::FITTED_MAX));
        if let Some(waiting) = self.tracer.waiting() {
            limits.push(LimitView::new("spansWaiting", waiting, limit::SPANS_WAITING_MAX));
        }
        limits
    }

    /// How the tool servers are; None where none is configured. One that is down makes nothing unhealthy.
    fn tool_servers(&self) -> Option<serde_json::Value> {
        let states = self.wardrobe.servers().shared().states();
        let all = states.iter().all(|(_, state)| state == "connected" || state == "resting");
        let status = if all { "ok" } else { "degraded" };
        let servers: serde_json::Map<_, _> = states.into_iter().map(|(name, state)| (name, state.into())).collect();
        (!servers.is_empty()).then(|| json!({ "status": status, "servers": servers }))
    }
}
