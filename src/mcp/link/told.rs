//! What a server was told that it forgets with its connection, and what it is listened to for.
//!
//! An older server is told levels and subscriptions, and told again when it was started anew. In the newest revision a level goes with each request, and one
//! request that stays open names all that is to be told (`subscriptions/listen`): it is made anew when it breaks or when something else is wanted.

#![allow(deprecated, reason = "servers log, and the newest revision still lets them")]

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, LoggingLevel, RequestMetaObject, ServerCapabilities, ServerNotification, SubscriptionFilter,
};
use rmcp::service::Subscription;
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Link;
use super::life::pause;
use crate::base::limit;
use crate::mcp::News;
use crate::mcp::explain::request_failed;
use crate::mcp::greeting::is_newest;
use crate::mcp::order::own_level;

/// How long a subscription waits for the server's word that it stands.
const HEARD_WAIT: Duration = Duration::from_secs(10);

/// What a server was told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    level: Option<Value>,
    uris: BTreeSet<String>,
}

/// What a server was asked to tell of, and what of it it tells.
#[derive(Debug)]
pub(super) struct Heard {
    wanted: BTreeSet<String>,
    /// An error: why it tells of nothing.
    accepted: Result<BTreeSet<String>, String>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { wanted: BTreeSet::new(), accepted: Ok(BTreeSet::new()) }
    }
}

/// How listening ended.
enum Ended {
    /// Something else is wanted now.
    Changed,
    /// By itself.
    Broken,
}

impl Link {
    /// What it was told and has to be told again when it was started anew.
    pub(in crate::mcp) fn remember(&self, method: &str, params: &Map<String, Value>) {
        let uri = || params.get("uri").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.told_of.send_if_modified(|told| match method {
            "resources/subscribe" if told.uris.len() < limit::MCP_SUBSCRIPTIONS_MAX => told.uris.insert(uri()),
            "resources/unsubscribe" => told.uris.remove(&uri()),
            "logging/setLevel" => {
                told.level = params.get("level").cloned();
                false
            }
            _ => false,
        });
    }

    /// Tells a new connection what the one before it was told. What fails is left out: a server may have forgotten a resource.
    pub(super) async fn remind(&self, peer: &Peer<RoleClient>, offers: &ServerCapabilities) {
        if is_newest(peer) {
            return;
        }
        let Told { level, uris } = self.told_of.borrow().clone();
        let own = || serde_json::to_value(own_level()).unwrap_or_default();
        let mut requests = Vec::new();
        if offers.logging.is_some() {
            requests.push(json!({ "method": "logging/setLevel", "params": { "level": level.unwrap_or_else(own) } }));
        }
        requests.extend(uris.iter().map(|uri| json!({ "method": "resources/subscribe", "params": { "uri": uri } })));
        for request in requests {
            let Ok(request) = serde_json::from_value::<ClientRequest>(request) else { continue };
            if let Err(error) = peer.send_request(request).await {
                let why = self.told(request_failed(&error, None));
                tracing::debug!(server = self.name(), why, "an MCP server was not told again what it had been told");
            }
        }
    }

    /// What goes with a request beside what it says itself: from which level on its log is wanted.
    pub(in crate::mcp) fn said_with(&self, peer: &Peer<RoleClient>) -> Option<RequestMetaObject> {
        if !is_newest(peer) || peer.peer_info().is_none_or(|info| info.capabilities.logging.is_none()) {
            return None;
        }
        let level = self.told_of.borrow().level.clone();
        let level = level.and_then(|level| serde_json::from_value::<LoggingLevel>(level).ok());
        let mut meta = RequestMetaObject::new();
        meta.set_log_level(level.unwrap_or_else(own_level));
        Some(meta)
    }

    /// What an older server is told with a request of its own, in the newest revision. None: it is a request there as well.
    pub(in crate::mcp) async fn tell_newest(
        &self,
        peer: &Peer<RoleClient>,
        (method, params): (&str, &Map<String, Value>),
    ) -> Option<Result<(), String>> {
        if !is_newest(peer) || !matches!(method, "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel") {
            return None;
        }
        let offers = peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        if method == "logging/setLevel" && offers.logging.is_none() {
            return Some(Err(self.sentence("has no log to tell of")));
        }
        let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
        if method == "resources/subscribe" && !tells_of_resources(&offers) {
            return Some(Err(self.sentence("does not tell when a resource is another")));
        }
        self.remember(method, params);
        if method != "resources/subscribe" {
            return Some(Ok(()));
        }
        let mut heard = self.heard.subscribe();
        let known = heard.wait_for(|heard| heard.wanted.contains(uri));
        let accepted = match timeout(HEARD_WAIT, known).await {
            Ok(Ok(heard)) => match &heard.accepted {
                Ok(uris) if uris.contains(uri) => Ok(()),
                Ok(_) => Err(self.sentence(&format!("does not tell when the resource {uri} is another"))),
                Err(why) => Err(self.sentence(&format!("cannot be listened to: {why}"))),
            },
            Ok(Err(_)) | Err(_) => Err(self.sentence("did not say in time that it tells of the resource")),
        };
        if accepted.is_err() {
            self.remember("resources/unsubscribe", params);
        }
        Some(accepted)
    }

    /// Listens to a server of the newest revision, for as long as it is polled.
    pub(super) async fn listen(&self, peer: &Peer<RoleClient>, tools_changed: impl Fn()) {
        if !is_newest(peer) {
            return std::future::pending().await;
        }
        let offers = peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
        let mut told = self.told_of.subscribe();
        let (mut failures, mut missed) = (0, false);
        loop {
            let uris = told.borrow_and_update().uris.clone();
            let filter = filter(&offers, &uris);
            if filter == SubscriptionFilter::new() {
                self.heard.send_replace(Heard { wanted: uris, ..Heard::default() });
                // The sender lives as long as `self`.
                let _ = told.changed().await;
                continue;
            }
            let subscription = match peer.listen(filter).await {
                Ok(subscription) => subscription,
                Err(error) => {
                    let why = self.told(request_failed(&error, None));
                    tracing::debug!(server = self.name(), why, "an MCP server cannot be listened to");
                    self.heard.send_replace(Heard { wanted: uris, accepted: Err(why) });
                    failures += 1;
                    let refused = matches!(error, ServiceError::McpError(_));
                    tokio::select! {
                        _ = told.changed() => {}
                        // Who does not want to be listened to is not asked again and again.
                        () = sleep(pause(failures)), if !refused => {}
                    }
                    continue;
                }
            };
            let accepted = subscription.acknowledged().resource_subscriptions.clone().unwrap_or_default();
            self.heard.send_replace(Heard { wanted: uris, accepted: Ok(accepted.into_iter().collect()) });
            if std::mem::take(&mut missed) {
                // What was told while nobody listened, nobody knows.
                self.hear(ServerNotification::ToolListChangedNotification(Default::default()), &tools_changed);
            }
            let began = tokio::time::Instant::now();
            match self.hear_all(subscription, (&mut told, &tools_changed)).await {
                Ended::Changed => failures = 0,
                Ended::Broken => {
                    missed = true;
                    failures =
                        if began.elapsed() >= Duration::from_millis(limit::MCP_STABLE_MS) { 1 } else { failures + 1 };
                    sleep(pause(failures)).await;
                }
            }
        }
    }

    async fn hear_all(
        &self,
        mut subscription: Subscription,
        (told, tools_changed): (&mut watch::Receiver<Told>, &impl Fn()),
    ) -> Ended {
        loop {
            tokio::select! {
                news = subscription.next() => match news {
                    Ok(Some(news)) => self.hear(news, tools_changed),
                    Ok(None) | Err(_) => return Ended::Broken,
                },
                _ = told.changed() => {
                    let _ = subscription.cancel().await;
                    return Ended::Changed;
                }
            }
        }
    }

    fn hear(&self, news: ServerNotification, tools_changed: &impl Fn()) {
        let news = match news {
            ServerNotification::ToolListChangedNotification(_) => return tools_changed(),
            ServerNotification::ResourceListChangedNotification(_) => News::ResourcesChanged,
            ServerNotification::PromptListChangedNotification(_) => News::PromptsChanged,
            ServerNotification::ResourceUpdatedNotification(updated) => {
                News::ResourceUpdated { uri: updated.params.uri }
            }
            _ => return,
        };
        self.place.tell(self.name(), news);
    }
}

fn tells_of_resources(offers: &ServerCapabilities) -> bool {
    offers.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true))
}

/// What it is to tell of: what it offers, and what is wanted of it.
fn filter(offers: &ServerCapabilities, uris: &BTreeSet<String>) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::new();
    let offered = |changes: Option<bool>| (changes == Some(true)).then_some(true);
    filter.tools_list_changed = offered(offers.tools.as_ref().and_then(|tools| tools.list_changed));
    filter.prompts_list_changed = offered(offers.prompts.as_ref().and_then(|prompts| prompts.list_changed));
    filter.resources_list_changed = offered(offers.resources.as_ref().and_then(|resources| resources.list_changed));
    if tells_of_resources(offers) && !uris.is_empty() {
        filter.resource_subscriptions = Some(uris.iter().cloned().collect());
    }
    filter
}
