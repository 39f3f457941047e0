//! Default limits of clients that speak a protocol of others: ACP and MCP. A part of `base/limit`, whose names they share.

/// Requests of one ACP client that are under way at once.
pub const ACP_REQUESTS_MAX: usize = 256;
/// ACP clients over HTTP, at most.
pub const ACP_CONNECTIONS_MAX: usize = 1_000;
/// Streams of one of them: its own, and one for each session.
pub const ACP_STREAMS_MAX: usize = 512;
/// Longest time in which such a client may take nothing of what waits for it, where that is as much as may wait.
pub const ACP_STALL_MS: u64 = 60_000;
/// After so long without a stream that is read and a message, such a client is no longer expected.
pub const ACP_DESERTED_MS: u64 = 120_000;
/// Sessions of MCP clients that are open at once.
pub const MCP_SESSIONS_MAX: usize = 1_000;
/// How long one may be left alone before it can go for a new one.
pub const MCP_IDLE_MS: u64 = 3_600_000;
/// Requests of one MCP client that are worked on at once.
pub const MCP_REQUESTS_MAX: usize = 64;
/// Messages of one list of an MCP client.
pub const MCP_BATCH_MAX: usize = 100;
/// Bytes of one stream to an MCP client that wait to be taken.
pub const MCP_WAITING_BYTES_MAX: usize = 16 << 20;
/// Waiting bytes of one stream from which on what is only a hint (progress, log lines) is left out.
pub const MCP_HINT_BYTES_MAX: usize = 1 << 20;
/// Bytes of one stream that were taken and are kept, for a client whose line broke.
pub const MCP_REPLAY_BYTES_MAX: usize = 1 << 20;
/// Streams of one MCP client that have ended and are kept for the same.
pub const MCP_ENDED_STREAMS_MAX: usize = 16;
/// Resources to which one MCP client is subscribed.
pub const MCP_CLIENT_SUBSCRIPTIONS_MAX: usize = 256;
/// How long an answer may take before it becomes a stream.
pub const MCP_STREAM_AFTER_MS: u64 = 500;
/// How long an MCP client is to wait before it reads a stream again whose line broke.
pub const MCP_COME_BACK_MS: u64 = 1_000;
/// Time between two looks at what an MCP client is told by itself: tools that came or went, sessions that changed.
pub const MCP_LOOK_MS: u64 = 1_000;
/// Longest wait of one `session_wait`.
pub const MCP_WAIT_MS_MAX: u64 = 3_600_000;
/// A preview or a text in a question to an MCP client, in bytes.
pub const MCP_QUESTION_BYTES_MAX: usize = 8 << 10;
/// How long a server is waited for to which an MCP client wants to be led on (`simse mcp --attach`).
pub const MCP_ATTACH_WAIT_MS: u64 = 10_000;
/// How long one is waited for that was there and is gone.
pub const MCP_ATTACH_AGAIN_MS: u64 = 60_000;
/// Longest pause between two looks for it.
pub const MCP_ATTACH_PAUSE_MS_MAX: u64 = 10_000;
/// Tokens of one session.
pub const SESSION_TOKENS_MAX: usize = 64;
/// Tokens of all sessions of a server.
pub const SESSION_TOKENS_OF_ALL_MAX: usize = 4_096;
/// Longest time that a session's token may be asked to count, in milliseconds: ten years.
pub const SESSION_TOKEN_MS_MAX: u64 = 315_360_000_000;
