//! Agents that are known: what starts each, and what it is better not offered.
//!
//! A profile only fills in what an entry leaves out. It says nothing about what an agent may do: no mode of theirs is
//! guessed at (docs/adr/0081-profiles-of-agents.md).

use crate::base::limit;

/// A known agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcpProfile {
    /// What an entry calls it.
    pub name: &'static str,
    /// Its program.
    pub command: &'static str,
    /// The arguments with which that speaks the protocol.
    pub args: &'static [&'static str],
    /// Whether it is offered that we read and write files for it.
    pub files: bool,
    /// Whether it is offered that we run commands for it.
    pub terminals: bool,
    /// How long its program may take to end by itself once its input has ended.
    pub exit_grace_ms: u64,
    /// What brings the program, for who looks for it.
    pub package: &'static str,
}

const USUAL: AcpProfile = AcpProfile {
    name: "",
    command: "",
    args: &[],
    files: true,
    terminals: true,
    exit_grace_ms: limit::ACP_EXIT_GRACE_MS,
    package: "",
};

/// All of them.
pub const ACP_PROFILES: [AcpProfile; 8] = [
    AcpProfile {
        name: "claude",
        command: "claude-agent-acp",
        package: "npm: @agentclientprotocol/claude-agent-acp, which needs Node 22",
        ..USUAL
    },
    AcpProfile {
        name: "codex",
        command: "codex-acp",
        // It needs two seconds to write down what it has.
        exit_grace_ms: 2 * limit::ACP_EXIT_GRACE_MS,
        package: "npm: @agentclientprotocol/codex-acp",
        ..USUAL
    },
    AcpProfile {
        name: "gemini",
        command: "gemini",
        args: &["--acp"],
        // It cannot make a new file through its client: it does not know the answer that there is none.
        files: false,
        terminals: false,
        exit_grace_ms: limit::ACP_EXIT_GRACE_MS,
        package: "npm: @google/gemini-cli",
    },
    AcpProfile { name: "opencode", command: "opencode", args: &["acp"], package: "npm: opencode-ai", ..USUAL },
    AcpProfile {
        name: "qwen",
        command: "qwen",
        args: &["--acp"],
        package: "npm: @qwen-code/qwen-code, which needs Node 22",
        ..USUAL
    },
    AcpProfile {
        name: "pi",
        command: "pi-acp",
        package: "npm: pi-acp and @earendil-works/pi-coding-agent, which need Node 22",
        ..USUAL
    },
    AcpProfile {
        name: "goose",
        command: "goose",
        args: &["acp"],
        package: "npm: @aaif/goose-binary-linux-x64 (other systems: -darwin-arm64 and so on)",
        ..USUAL
    },
    AcpProfile {
        name: "kimi",
        command: "kimi",
        args: &["acp"],
        package: "npm: @moonshot-ai/kimi-code, which needs Node 22",
        ..USUAL
    },
];

impl AcpProfile {
    /// The one of that name.
    pub fn of(name: &str) -> Option<Self> {
        ACP_PROFILES.into_iter().find(|profile| profile.name == name)
    }

    /// The one whose program that is.
    pub fn of_command(command: &str) -> Option<Self> {
        ACP_PROFILES.into_iter().find(|profile| profile.command == command)
    }
}
