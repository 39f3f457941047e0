//! How small and how large each whole number among the settings may be: one list for flags, variables, the file and its schema, a
//! reload, and the members of a configuration in JavaScript.
//!
//! Invariant: what lies within can be used. No number of connections is more than a semaphore counts, and no wait longer than a timer runs.

use std::fmt;

use crate::base::limit;

/// What a whole number may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The setting.
    pub name: &'static str,
    /// Its path in a configuration in JavaScript. None: it is not set there.
    pub member: Option<&'static str>,
    /// Its smallest value.
    pub least: u64,
    /// Its largest value.
    pub most: u64,
}

const fn of(name: &'static str, member: &'static str, least: u64, most: u64) -> Bounds {
    Bounds { name, member: Some(member), least, most }
}

const fn alone(name: &'static str, least: u64, most: u64) -> Bounds {
    Bounds { name, member: None, least, most }
}

/// More of what is held in memory than any machine has room for.
const MANY: u64 = 1_000_000;
const MS: u64 = limit::SET_MS_MAX;

/// All of them.
pub const BOUNDS: [Bounds; 31] = [
    of("port", "port", 0, u16::MAX as u64),
    of("memory_max_results", "memory.maxResults", 1, limit::MEMORY_RESULTS_MAX as u64),
    of("memory_entries_max", "memory.maxEntries", 1, limit::MEMORY_ENTRIES_MAX as u64),
    of("memory_forget_after_days", "memory.forgetAfterDays", 1, limit::MEMORY_DAYS_MAX),
    of("model_idle_timeout_ms", "limits.modelIdleTimeoutMs", 1, MS),
    of("permission_timeout_ms", "limits.permissionTimeoutMs", 1, MS),
    of("client_grace_ms", "limits.clientGraceMs", 0, MS),
    // Above it the command's own time would be over first.
    of("interrupt_grace_ms", "limits.interruptGraceMs", 0, limit::INTERRUPT_GRACE_MS_MAX),
    of("session_idle_ms", "limits.sessionIdleMs", 0, MS),
    of("agent_idle_ms", "limits.agentIdleMs", 0, MS),
    of("shutdown_grace_ms", "limits.shutdownGraceMs", 0, MS),
    of("max_iterations", "limits.maxIterations", 1, MANY),
    of("compact_percent", "limits.compactPercent", 0, 95),
    of("queued_prompts_max", "limits.queuedPrompts", 0, MANY),
    // What waits in all sessions together has no more room than that.
    of("queued_bytes_max", "limits.queuedBytes", 0, limit::QUEUED_MEMORY_BYTES_MAX as u64),
    of("turns_max", "limits.turns", 1, MANY),
    of("subagents_running_max", "limits.subagentsRunning", 1, MANY),
    of("subagents_max", "limits.subagents", 1, MANY),
    of("subagent_depth", "limits.subagentDepth", 0, limit::SUBAGENT_DEPTH_MAX as u64),
    of("sessions_max", "limits.sessions", 1, 1_000 * MANY),
    of("streams_per_session_max", "limits.streamsPerSession", 1, MANY),
    of("snapshot_bytes_max", "limits.snapshotBytes", 0, 1 << 50),
    of("mcp_told_bytes_max", "limits.mcpToldBytes", 0, 1 << 30),
    of("commands_per_minute", "limits.commandsPerMinute", 0, 1_000 * MANY),
    of("budget_window_ms", "limits.budgetWindowMs", 1, MS),
    of("connections_max", "limits.connections", 1, MANY),
    // All that is not whole yet has no more room than that.
    of("body_bytes_max", "limits.bodyBytes", 1, limit::UNFINISHED_BYTES_MAX as u64),
    alone("head_timeout_ms", 1, MS),
    alone("body_timeout_ms", 1, MS),
    alone("write_timeout_ms", 1, MS),
    of("heartbeat_ms", "limits.heartbeatMs", 1, MS),
];

impl Bounds {
    /// Those of a setting. None: it is no whole number.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        BOUNDS.iter().find(|bounds| bounds.name == name)
    }

    /// Whether a number lies within.
    pub(super) fn hold(&self, number: u64) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limits, Options, faults_of, schema};

    #[test]
    fn every_whole_number_has_bounds_that_can_be_used() {
        let whole = Options::schemas();
        let whole = whole.iter().filter(|(_, schema)| schema["type"] == "integer").map(|(name, _)| name.as_str());
        let mut whole: Vec<&str> = whole.collect();
        let mut bounded = BOUNDS.map(|bounds| bounds.name);
        whole.sort_unstable();
        bounded.sort_unstable();
        assert_eq!(whole, bounded);
        for bounds in BOUNDS {
            let Bounds { name, least, most, .. } = bounds;
            assert!(least <= most, "{name}");
            assert!(most < (1 << 53), "{name}: JavaScript knows it exactly");
            let property = &schema()["properties"][name];
            assert_eq!(
                (property["minimum"].as_u64(), property["maximum"].as_u64()),
                (Some(least), Some(most)),
                "{name}"
            );
            let wait = std::time::Duration::from_millis(most);
            assert!(!name.ends_with("_ms") || tokio::time::Instant::now().checked_add(wait).is_some(), "{name}");
        }
        let connections = Bounds::of("connections_max").unwrap();
        assert!(connections.most <= tokio::sync::Semaphore::MAX_PERMITS as u64);
    }

    #[test]
    fn what_is_the_default_lies_within() {
        let limits = Limits::default();
        #[rustfmt::skip]
        let table = [
            ("queued_prompts_max", limits.queued_prompts_max as u64), ("queued_bytes_max", limits.queued_bytes_max as u64), ("turns_max", limits.turns_max as u64), ("subagents_running_max", limits.subagents_running_max as u64), ("subagents_max", limits.subagents_max as u64), ("subagent_depth", limits.subagent_depth as u64), ("sessions_max", limits.sessions_max),
            ("streams_per_session_max", limits.streams_per_session_max as u64), ("snapshot_bytes_max", limits.snapshot_bytes_max),
            ("commands_per_minute", limits.commands_per_minute.into()), ("mcp_told_bytes_max", limits.mcp_told_bytes_max as u64), ("max_iterations", limits.max_iterations.into()), ("compact_percent", limits.compact_percent.into()),
            ("interrupt_grace_ms", limits.interrupt_grace_ms), ("agent_idle_ms", limits.agent_idle_ms),
            ("connections_max", limit::CONNECTIONS_MAX as u64), ("body_bytes_max", limit::BODY_BYTES_MAX as u64),
        ];
        for (name, default) in table {
            assert!(Bounds::of(name).is_some_and(|bounds| bounds.hold(default)), "{name}");
        }
    }

    #[test]
    fn the_file_and_all_other_places_have_the_same() {
        for bounds in BOUNDS {
            let Bounds { name, least, most, .. } = bounds;
            let told = |number: u64| faults_of(&format!("{name} = {number}")).iter().map(ToString::to_string).collect();
            let none: Vec<String> = Vec::new();
            assert_eq!((told(least), told(most)), (none.clone(), none), "{name}");
            assert_eq!(told(most + 1), [format!("line 1: `{name}`: expected {bounds}; got {}", most + 1)]);
            let mut below: Vec<String> = Vec::new();
            if let Some(less) = least.checked_sub(1) {
                below = told(less);
                assert_eq!(below, [format!("line 1: `{name}`: expected {bounds}; got {less}")]);
            }
            assert_eq!(below.is_empty(), least == 0, "{name}");
        }
    }
}
