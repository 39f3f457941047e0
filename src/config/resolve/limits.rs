//! Limits and waits, as they are said or as they are by default.

use crate::config::{Limits, Options};

/// Limits and waits.
pub(super) fn limits(all: &Options) -> Limits {
    let defaults = Limits::default();
    Limits {
        permission_timeout_ms: all.permission_timeout_ms.unwrap_or(defaults.permission_timeout_ms),
        client_grace_ms: all.client_grace_ms.unwrap_or(defaults.client_grace_ms),
        interrupt_grace_ms: all.interrupt_grace_ms.unwrap_or(defaults.interrupt_grace_ms),
        session_idle_ms: all.session_idle_ms.unwrap_or(defaults.session_idle_ms),
        agent_idle_ms: all.agent_idle_ms.unwrap_or(defaults.agent_idle_ms),
        model_idle_timeout_ms: all.model_idle_timeout_ms.unwrap_or(defaults.model_idle_timeout_ms),
        max_iterations: all.max_iterations.unwrap_or(defaults.max_iterations),
        compact_percent: all.compact_percent.unwrap_or(defaults.compact_percent),
        queued_prompts_max: all.queued_prompts_max.unwrap_or(defaults.queued_prompts_max),
        queued_bytes_max: all.queued_bytes_max.unwrap_or(defaults.queued_bytes_max),
        turns_max: all.turns_max.unwrap_or(defaults.turns_max),
        subagents_running_max: all.subagents_running_max.unwrap_or(defaults.subagents_running_max),
        subagents_max: all.subagents_max.unwrap_or(defaults.subagents_max),
        subagent_depth: all.subagent_depth.unwrap_or(defaults.subagent_depth),
        sessions_max: all.sessions_max.unwrap_or(defaults.sessions_max),
        streams_per_session_max: all.streams_per_session_max.unwrap_or(defaults.streams_per_session_max),
        snapshot_bytes_max: all.snapshot_bytes_max.unwrap_or(defaults.snapshot_bytes_max),
        mcp_told_bytes_max: all.mcp_told_bytes_max.unwrap_or(defaults.mcp_told_bytes_max),
        commands_per_minute: all.commands_per_minute.unwrap_or(defaults.commands_per_minute),
        session_budget: all.session_budget.unwrap_or(defaults.session_budget),
        client_budget: all.client_budget.unwrap_or(defaults.client_budget),
        budget_window_ms: all.budget_window_ms.unwrap_or(defaults.budget_window_ms),
    }
}
