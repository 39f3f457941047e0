//! How one server is kept: started, listed, looked after, put to rest, ended, started again.
//!
//! Only [`Link::supervise`] changes the status.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Down, Link, Status, Used};
use crate::base::limit;
use crate::config::McpTransport;
use crate::mcp::News;
use crate::mcp::connection::{Connection, Tending};
use crate::mcp::listing::{Listed, list_tools};
use crate::mcp::resource::resource_tools;
use crate::mcp::tool::McpTool;
use crate::tool::Tool;

/// How one run of the server ended.
enum Life {
    Stopped,
    Rested,
    NeverBegan(String),
    Ended { reason: String, after: Duration },
}

impl Link {
    /// Keeps the server until `stop`.
    pub(in crate::mcp) async fn supervise(self: Arc<Self>, stop: CancellationToken) {
        let (mut starts, mut failures) = (0, 0);
        loop {
            starts += 1;
            self.status.send_replace(Status::Connecting);
            let reason = match self.live(&stop).await {
                Life::Stopped => break,
                Life::Rested => {
                    failures = 0;
                    let is_wanted = tokio::select! {
                        () = stop.cancelled() => false,
                        () = self.demand.notified() => true,
                    };
                    if is_wanted {
                        continue;
                    }
                    break;
                }
                Life::NeverBegan(reason) => {
                    let reason = self.told(reason);
                    failures += 1;
                    tracing::warn!(server = self.name(), reason, "an MCP server could not be started");
                    reason
                }
                Life::Ended { reason, after } => {
                    let reason = self.told(reason);
                    failures = if after >= Duration::from_millis(limit::MCP_STABLE_MS) { 1 } else { failures + 1 };
                    tracing::warn!(server = self.name(), reason, "an MCP server ended");
                    reason
                }
            };
            // Who asked for this start has its answer.
            let _ = self.demand.notified().now_or_never();
            let retry_at = Instant::now() + pause(failures);
            if failures > 1 {
                self.is_new.store(false, Ordering::Release);
            }
            self.status.send_replace(Status::Down(Arc::new(Down { reason, retry_at, starts })));
            let next = async {
                self.demand.notified().await;
                sleep_until(retry_at).await;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = next => {}
            }
        }
        self.has_resources.store(false, Ordering::Release);
        self.list(Vec::new());
        self.is_new.store(false, Ordering::Release);
        self.status.send_replace(Status::Closed);
    }

    /// One run: start, tools, end.
    async fn live(self: &Arc<Self>, stop: &CancellationToken) -> Life {
        let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
        self.calls.begin_anew();
        let opening = timeout(most, Connection::open(&self.spec, &self.answers, &self.greets));
        let opened = tokio::select! {
            biased;
            () = stop.cancelled() => return Life::Stopped,
            opened = opening => opened,
        };
        let (mut connection, listed) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(reason)) => return Life::NeverBegan(reason),
            Err(_) => return Life::NeverBegan(format!("it did not get ready within {} s", most.as_secs())),
        };
        let began = Instant::now();
        tracing::info!(server = self.name(), tools = listed.len(), "an MCP server is connected");
        let offers = connection.offers();
        self.has_resources.store(offers.resources.is_some(), Ordering::Release);
        self.list(listed);
        let peer = connection.peer().clone();
        let reminding = async { self.remind(&peer, &offers).await };
        tokio::pin!(reminding);
        self.is_new.store(false, Ordering::Release);
        self.in_doubt.store(false, Ordering::Release);
        self.status.send_replace(Status::Ready(connection.peer().clone()));
        self.used.send_modify(|used| used.since = Instant::now());
        let tending = connection.tending();
        let gone = tokio::select! {
            biased;
            () = stop.cancelled() => {
                connection.close(None).await;
                return Life::Stopped;
            }
            () = connection.ended() => None,
            () = async { (&mut reminding).await; std::future::pending().await } => None,
            reason = self.tend(tending) => Some(reason),
            () = self.rests() => {
                connection.close(None).await;
                tracing::info!(server = self.name(), "an MCP server rests until it is needed");
                return Life::Rested;
            }
        };
        Life::Ended { reason: connection.close(gone).await, after: began.elapsed() }
    }

    /// Waits until nobody has asked a program anything for as long as it may idle, and says that it rests. Whoever asks
    /// from then on sees that; whoever asked before keeps it.
    async fn rests(&self) {
        let idle = match self.spec.transport {
            McpTransport::Stdio { .. } => self.place.idle,
            // There is nothing of it in our memory that would be worth a session lost.
            McpTransport::Http { .. } => None,
        };
        let Some(idle) = idle else { return std::future::pending().await };
        let mut changes = self.used.subscribe();
        loop {
            let Used { requests, since } = *changes.borrow_and_update();
            if requests == 0 {
                // The sender lives as long as `self`.
                tokio::select! {
                    () = sleep_until(since + idle) => {}
                    _ = changes.changed() => continue,
                }
            } else {
                let _ = changes.changed().await;
                continue;
            }
            let mut now_rests = false;
            self.used.send_if_modified(|used| {
                now_rests = used.requests == 0 && used.since + idle <= Instant::now();
                if now_rests {
                    // What was demanded earlier has been had.
                    let _ = self.demand.notified().now_or_never();
                    self.status.send_replace(Status::Resting);
                }
                false
            });
            if now_rests {
                return;
            }
        }
    }

    /// Lists again what has changed. Ends with a reason when the server no longer answers.
    async fn tend(self: &Arc<Self>, tending: Tending) -> String {
        let mut roots = self.place.roots.subscribe();
        let listening = self.listen(tending.peer(), || tending.tell_tools_changed());
        tokio::pin!(listening);
        loop {
            tokio::select! {
                () = &mut listening => {}
                Ok(()) = roots.changed() => tending.roots_changed().await,
                () = tending.tools_changed() => {
                    let most = Duration::from_millis(limit::MCP_CONNECT_TIMEOUT_MS);
                    match timeout(most, list_tools(tending.peer(), self.name())).await {
                        Ok(Ok(listed)) => {
                            self.list(listed);
                            self.place.tell(self.name(), News::ToolsChanged);
                        }
                        Ok(Err(reason)) => self.keep_old_list(&reason.to_string()),
                        Err(_) => self.keep_old_list("it did not answer in time"),
                    }
                }
                () = self.doubt.notified() => {
                    let most = Duration::from_millis(limit::MCP_PING_TIMEOUT_MS);
                    match timeout(most, tending.ping()).await {
                        Ok(Ok(())) => self.no_doubt(),
                        Ok(Err(reason)) => return reason,
                        Err(_) => return "it no longer answers".to_owned(),
                    }
                }
            }
        }
    }

    fn keep_old_list(&self, reason: &str) {
        let reason = self.secrets.hide(reason);
        tracing::warn!(server = self.name(), %reason, "an MCP server did not list its tools again; the old list stays");
    }

    fn list(self: &Arc<Self>, listed: Vec<Listed>) {
        let tools = listed.into_iter().map(|mut one| {
            one.definition.description = self.told(one.definition.description);
            let parameters = std::mem::take(&mut one.definition.parameters);
            one.definition.parameters = parameters.into_iter().map(|(word, v)| (word, self.told_in_texts(v))).collect();
            Arc::new(McpTool::new(one, Arc::clone(self))) as Arc<dyn Tool>
        });
        let mut tools: Vec<Arc<dyn Tool>> = tools.collect();
        if self.has_resources.load(Ordering::Acquire) {
            resource_tools(self, &mut tools);
        }
        *self.tools.lock() = tools.into();
    }
}

/// The pause after that many failures in a row.
pub(super) fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let ms = limit::MCP_RETRY_MS.saturating_mul(1 << doublings).min(limit::MCP_RETRY_MS_MAX);
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_up_to_a_limit() {
        let seconds: Vec<u128> = [1, 2, 3, 8, 9, u32::MAX].map(|failures| pause(failures).as_millis()).into();
        assert_eq!(seconds, [500, 1_000, 2_000, 60_000, 60_000, 60_000]);
    }
}
