//! The routes of what markdown files define, and of plans, which are texts too.

use super::{GET, POST, Row, row};
use crate::app::Accepted;
use crate::protocol::{CommandList, PlanDecision, SkillList};
use crate::server::openapi::{Operation, id, operation, query};
use crate::server::routes;

/// Their routes.
pub(super) fn rows() -> Vec<Row> {
    let skills = listed(
        operation(
            "skills",
            "The skills that sessions have: texts that say how to do something, loaded when they are used.",
        )
        .gives::<SkillList>(200, "The skills.")
        .refuses(&[404]),
    );
    let commands = listed(
        operation("slashCommands", "What a prompt may begin with, as `/name`: commands of markdown files, and skills.")
            .gives::<CommandList>(200, "The commands.")
            .refuses(&[404]),
    );
    let decide =
        operation("sessions.decidePlan", "Approves, edits or rejects the plan that a session in plan mode answered with.")
            .more("It is a prompt: approved or edited, the session leaves its plan mode and the next turn carries the plan out; rejected, it stays and plans anew.")
            .full_body(|schemas| schemas.incoming::<PlanDecision>())
            .example(serde_json::json!({ "decision": "approve" }))
            .gives::<Accepted>(202, "The turn that goes on from there.")
            .refuses(&[409, 429]);
    vec![
        row(POST, "/sessions/{sessionId}/plan", routes::decide_plan, decide),
        row(GET, "/skills", routes::skills, skills),
        row(GET, "/commands", routes::slash_commands, commands),
    ]
}

/// A list that is another one in another directory.
fn listed(operation: Operation) -> Operation {
    let directory = serde_json::json!({ "type": "string" });
    operation
        .takes(id("sessionId", "SessionId", "As this session has them: where it works, and what its agent is told of."))
        .takes(query(
            "workingDirectory",
            "As a session that works there has them. Default: the server's own directory.",
            directory,
        ))
}
