//! The gate of a program that uses the tools alone: rules decide, and somebody in the program answers what they ask.
//!
//! Sessions have a gate of their own, with grants, modes and clients; this one knows rules only. Fails closed: what is asked
//! while nobody is there to answer is a no.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Asker, Gate, GateQuestion};
use crate::base::BoxFuture;
use crate::permission::{Facts, Rules};
use crate::protocol::{PermissionPolicy, PermissionVerdict, VerdictSource};

/// Decides by rules, and asks where they say so.
#[derive(Clone)]
pub struct RulesGate {
    rules: Rules,
    working_directory: PathBuf,
    asker: Option<Arc<dyn Asker>>,
}

impl std::fmt::Debug for RulesGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesGate").field("rules", &self.rules).field("asks", &self.asker.is_some()).finish()
    }
}

impl RulesGate {
    /// A gate that asks nobody. Relative patterns of paths are relative to `working_directory`, which is without links (see
    /// [`Workspace::working_directory`](crate::base::workspace::Workspace::working_directory)).
    pub fn new(rules: Rules, working_directory: &Path) -> Self {
        Self { rules, working_directory: working_directory.to_owned(), asker: None }
    }

    /// The same with somebody who answers what the rules ask.
    #[must_use]
    pub fn asking(self, asker: Arc<dyn Asker>) -> Self {
        Self { asker: Some(asker), ..self }
    }
}

impl Gate for RulesGate {
    fn check<'a>(
        &'a self,
        question: GateQuestion<'a>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PermissionVerdict> {
        Box::pin(async move {
            let request = question.request;
            let facts = Facts::new(&request.name, question.definition, Some(&self.working_directory))
                .like(question.like)
                .at(question.place);
            let policy = self.rules.decide(facts, question.subject).policy;
            let verdict = |allowed, by, reason| PermissionVerdict { allowed, by, reason };
            match policy {
                PermissionPolicy::Allow if !question.insists => verdict(true, VerdictSource::Policy, String::new()),
                PermissionPolicy::Deny => {
                    let told = self.rules.explain(facts, question.subject).describe(&self.rules);
                    verdict(false, VerdictSource::Policy, told.reason)
                }
                PermissionPolicy::Allow | PermissionPolicy::Ask if question.unfit => {
                    verdict(true, VerdictSource::Policy, String::new())
                }
                PermissionPolicy::Allow | PermissionPolicy::Ask => match &self.asker {
                    Some(asker) => {
                        let preview = question.preview.compute(&request.arguments).await;
                        let allowed = asker.ask(request, preview.as_ref(), cancel).await;
                        verdict(allowed, VerdictSource::Program, String::new())
                    }
                    None => verdict(false, VerdictSource::NoClient, "nobody is there who could be asked".to_owned()),
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Subject;
    use crate::protocol::{PermissionConfig, PermissionRule, ToolCallRequest};
    use crate::tool::Arguments;

    struct Says(bool);

    impl Asker for Says {
        fn ask<'a>(
            &'a self,
            _: &'a ToolCallRequest,
            preview: Option<&'a serde_json::Value>,
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, bool> {
            assert_eq!(preview, Some(&serde_json::json!("what it does")));
            Box::pin(std::future::ready(self.0))
        }
    }

    #[derive(Debug)]
    struct Shown;

    impl crate::agent::Preview for Shown {
        fn compute<'a>(&'a self, _: &'a Arguments) -> BoxFuture<'a, Option<serde_json::Value>> {
            Box::pin(std::future::ready(Some("what it does".into())))
        }
    }

    #[tokio::test]
    async fn rules_decide_and_only_what_they_ask_is_asked() {
        use VerdictSource::{NoClient, Policy, Program};
        let rule = |pattern: &str, policy| PermissionRule {
            tool: "bash".into(),
            pattern: Some(pattern.into()),
            policy,
            category: None,
            annotations: None,
        };
        let rules = vec![rule("ls *", PermissionPolicy::Allow), rule("rm *", PermissionPolicy::Deny)];
        let rules = Rules::new(&PermissionConfig { default_policy: PermissionPolicy::Ask, rules });
        let alone = RulesGate::new(rules, Path::new("/w"));
        let gates = [alone.clone(), alone.clone().asking(Arc::new(Says(true))), alone.asking(Arc::new(Says(false)))];
        #[rustfmt::skip]
        let table = [
            ("ls",         false, false, [(true, Policy), (true, Policy), (true, Policy)]),
            ("ls",         true,  false, [(false, NoClient), (true, Program), (false, Program)]),
            ("make",       false, false, [(false, NoClient), (true, Program), (false, Program)]),
            ("ls && rm x", true,  false, [(false, Policy), (false, Policy), (false, Policy)]),
            // Nobody is asked about a call that cannot run.
            ("make",       true,  true,  [(true, Policy), (true, Policy), (true, Policy)]),
            ("rm x",       false, true,  [(false, Policy), (false, Policy), (false, Policy)]),
        ];
        for (command, insists, unfit, want) in table {
            for (gate, (allowed, by)) in gates.iter().zip(want) {
                let request = ToolCallRequest { id: "1".into(), name: "bash".into(), arguments: Arguments::new() };
                let subject = Subject::Command(command.into());
                let question = GateQuestion {
                    request: &request,
                    like: &[],
                    definition: None,
                    subject: &subject,
                    place: None,
                    insists,
                    unfit,
                    asked: false,
                    preview: &Shown,
                };
                let got = gate.check(question, &CancellationToken::new()).await;
                assert_eq!((got.allowed, got.by), (allowed, by), "{command}: {got:?}");
                assert_eq!(got.reason.contains("denies `rm x`"), command.contains("rm"), "{got:?}");
            }
        }
    }
}
