//! How the server is: the store, the model, what commands are held to, and the tool servers.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::App;
use crate::base::beneath::{Way, way};
use crate::base::sandbox::{self, Mode};
use crate::base::{clock, limit};
use crate::config::SandboxSettings;
use crate::protocol::{Health, LimitView};

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
        match self.settings.sandbox.mode {
            Mode::Off => Vec::new(),
            // The first time, programs are started to try it out.
            Mode::ReadOnly | Mode::WorkspaceWrite => {
                let tried = tokio::task::spawn_blocking(|| sandbox::support().missing()).await;
                tried.unwrap_or_else(|_| vec!["it could not be tried out"])
            }
        }
    }

    async fn sandbox_check(&self) -> serde_json::Value {
        let SandboxSettings { mode, network, .. } = &self.settings.sandbox;
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

    /// How it is. `unhealthy` when the store does not work; a model that cannot be used is only said.
    pub async fn health(&self) -> Health {
        let store = match self.store.check().await {
            Ok(()) => json!({ "status": "ok" }),
            Err(error) => json!({ "status": "unhealthy", "reason": error.to_string() }),
        };
        let id = self.models.default_id();
        let reason = self.models.get(id).and_then(|model| model.available().err());
        let model = match reason {
            None => json!({ "status": "ok", "id": id }),
            Some(error) => json!({ "status": "unavailable", "id": id, "reason": error.to_string() }),
        };
        let sandbox = self.sandbox_check().await;
        let status = if store["status"] == "ok" { "ok" } else { "unhealthy" };
        let mut checks = serde_json::Map::new();
        checks.insert("store".into(), store);
        checks.insert("model".into(), model);
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
        let mut limits = vec![LimitView::new("sessions", kept, self.settings.limits.sessions_max)];
        limits.extend(self.commands.limits());
        limits.extend(self.sessions.limits());
        let listeners = self.store.bell().listeners();
        limits.push(LimitView::new("streamsOverAllSessions", listeners, limit::LIFECYCLE_STREAMS_MAX));
        limits
    }

    /// How the tool servers are; None where none is configured. One that is down makes nothing unhealthy.
    fn tool_servers(&self) -> Option<serde_json::Value> {
        let states = self.wardrobe.servers().states();
        let all = states.iter().all(|(_, state)| state == "connected");
        let status = if all { "ok" } else { "degraded" };
        let servers: serde_json::Map<_, _> = states.into_iter().map(|(name, state)| (name, state.into())).collect();
        (!servers.is_empty()).then(|| json!({ "status": status, "servers": servers }))
    }
}
