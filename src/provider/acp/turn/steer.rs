//! What a user says while an agent works: told to it at once, where it takes that (`_session/steering`), else by the next
//! prompt of the same turn.
//!
//! An agent that is just done says so (`promptRequired`) instead of beginning a turn that nobody waits for.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::context::said;
use super::super::session::Opened;
use super::Talk;
use super::serve::Answered;
use crate::model::{AgentEvent, ModelEvent, Reply, Steer};
use crate::protocol::Part;

/// Messages on their way to the agent.
const UNTOLD_MAX: usize = 4;

impl Talk {
    /// Says that the agent can be told things while it works, if it can; what it is to be told comes here.
    pub(super) async fn steerable(&mut self, opened: &Opened) -> mpsc::Receiver<(Vec<Part>, Reply<bool>)> {
        let (tell, steers) = mpsc::channel(UNTOLD_MAX);
        if opened.steers {
            self.emit(ModelEvent::Agent(AgentEvent::Steerable(Steer(tell)))).await;
        }
        steers
    }

    /// Tells it. The answer comes as soon as it has said whether it takes it.
    pub(super) fn steer(&mut self, opened: &Opened, parts: Vec<Part>, reply: Reply<bool>) {
        let (connection, wait) = (opened.connection.clone(), self.agent.options.timeout);
        let params = json!({
            "sessionId": self.session,
            "prompt": said(&parts, opened.takes_images),
            "_meta": { "steering": { "idleBehavior": "promptRequired" } },
        });
        let name = self.agent.name().to_owned();
        self.answers.push(Box::pin(async move {
            let answer = connection.request::<Value>("_session/steering", &params, wait).await;
            let taken = match &answer {
                Ok(answer) => matches!(answer["outcome"].as_str(), Some("injected" | "startedNewTurn")),
                Err(_) => false,
            };
            if !taken {
                tracing::debug!(agent = name, ?answer, "an agent does not take a message now; it is prompted with it");
            }
            reply.send(taken);
            (0, Answered::Nothing)
        }));
    }
}
