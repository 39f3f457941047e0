//! What a session may do: the floor, the server's rules, the session's own, its mode, and what was granted.
//!
//! Order of judgement: what the floor or a rule of the server denies is denied. Else the session's own rules
//! decide where it has any; what the server's rules cannot be sure about is at least asked. Then the mode: it never
//! lifts a denial, and `plan` adds its own. What is still to be asked may have been granted.
//!
//! | mode | adds |
//! |---|---|
//! | `plan` | denies every tool that is not there for looking |
//! | `ask` | nothing |
//! | `accept-edits` | allows edits of files inside the roots that only the default policy asks about; never of what runs later by itself (`.git`, `.husky`, `.bashrc` …) |
//! | `auto` | allows what would be asked, unless a deny rule may be about it |

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::Terms;
use super::book::GrantBook;
use super::gate::add_grant;
use crate::permission::{Basis, Facts, Floor, Grants, Hidden, Rules, Subject, Verdict, grant_place, runs_later};
use crate::protocol::{
    ClientId, GrantId, PermissionConfig, PermissionExplanation, PermissionMode, PermissionPolicy, ToolCategory,
    VerdictBasis, VerdictSource,
};
use crate::store::{Grant, SessionRow};
use crate::tool::Veil;

/// The server's rules over the floor, prepared. Sessions that are awake have them in common, and follow a change.
pub struct ServerRules {
    now: RwLock<Arc<Rules>>,
    floor: Arc<Floor>,
}

impl ServerRules {
    /// These rules, over what nobody may do.
    pub fn new(permissions: &PermissionConfig, floor: Arc<Floor>) -> Self {
        let now = RwLock::new(Arc::new(Rules::new(permissions).over(Arc::clone(&floor))));
        Self { now, floor }
    }

    /// Other rules, from the next call on. The floor stays.
    pub fn set(&self, permissions: &PermissionConfig) {
        *self.now.write() = Arc::new(Rules::new(permissions).over(Arc::clone(&self.floor)));
    }

    fn now(&self) -> Arc<Rules> {
        Arc::clone(&self.now.read())
    }
}

/// The rules of a session, prepared, and what was granted in it.
pub(super) struct Policy {
    server: Arc<ServerRules>,
    session: Option<Rules>,
    grants: Mutex<Grants>,
    saved: Arc<GrantBook>,
    client: Option<ClientId>,
    /// The working directory, without links, and further roots of the file tools.
    directory: PathBuf,
    /// What of them is the session's own, beside the first.
    further: Vec<PathBuf>,
    roots: Vec<PathBuf>,
}

/// What is to happen to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) policy: PermissionPolicy,
    /// Who says so, when it is not to be asked.
    pub(super) by: VerdictSource,
    verdict: Verdict,
    /// The session's own rules gave the verdict.
    own: bool,
}

impl Policy {
    /// The policy of a session.
    pub(super) fn new(terms: &Terms, row: &SessionRow) -> Self {
        let settings = &row.settings;
        let mut roots = vec![settings.working_directory.clone()];
        roots.extend(settings.additional_directories.iter().chain(&terms.roots).cloned());
        Self {
            server: Arc::clone(&terms.rules),
            session: settings.permissions.as_ref().map(Rules::new),
            grants: Mutex::new(prepared(&settings.grants)),
            saved: Arc::clone(&terms.saved),
            client: row.client.clone(),
            directory: settings.working_directory.clone(),
            further: settings.additional_directories.clone(),
            roots,
        }
    }

    /// Where the session works, as far as these rules know: the working directory, and where else.
    pub(super) fn places(&self) -> (&Path, &[PathBuf]) {
        (&self.directory, &self.further)
    }

    /// Takes note of what the session grants now.
    pub(super) fn set_grants(&self, grants: &[Grant]) {
        *self.grants.lock() = prepared(grants);
    }

    /// The grant that covers a call.
    pub(super) fn granted(&self, facts: Facts<'_>, subject: &Subject) -> Option<GrantId> {
        let own = self.grants.lock();
        let place = grant_place(facts.place, &self.directory);
        self.saved.covering((self.client.as_ref(), &self.directory), &own, (facts.tool, subject, place.as_deref()))
    }

    /// What is to happen to a call, grants left out.
    pub(super) fn rule(&self, facts: Facts<'_>, subject: &Subject, mode: PermissionMode) -> Ruling {
        let (verdict, own) = self.by_rules(facts, subject);
        let by = match verdict.basis {
            Basis::Floor(_) => VerdictSource::Floor,
            Basis::Rule(_) | Basis::Default | Basis::Uncertain(_) => VerdictSource::Policy,
        };
        let ruling = |policy, by| Ruling { policy, by, verdict, own };
        match (mode, verdict.policy) {
            (_, PermissionPolicy::Deny) => ruling(PermissionPolicy::Deny, by),
            (PermissionMode::Plan, PermissionPolicy::Allow | PermissionPolicy::Ask) if !only_looks(facts) => {
                ruling(PermissionPolicy::Deny, VerdictSource::Mode)
            }
            (PermissionMode::AcceptEdits, PermissionPolicy::Ask)
                if verdict.basis == Basis::Default && self.edits_inside(facts, subject) =>
            {
                ruling(PermissionPolicy::Allow, VerdictSource::Mode)
            }
            (PermissionMode::Auto, PermissionPolicy::Ask) if !verdict.may_be_denied => {
                ruling(PermissionPolicy::Allow, VerdictSource::Mode)
            }
            (
                PermissionMode::Plan | PermissionMode::Ask | PermissionMode::AcceptEdits | PermissionMode::Auto,
                PermissionPolicy::Allow | PermissionPolicy::Ask,
            ) => ruling(verdict.policy, by),
        }
    }

    /// The verdict of the rules, and whether it is the session's own rules'.
    fn by_rules(&self, facts: Facts<'_>, subject: &Subject) -> (Verdict, bool) {
        let server = self.server.now().decide(facts, subject);
        let Some(session) = self.session.as_ref().filter(|_| server.policy != PermissionPolicy::Deny) else {
            return (server, false);
        };
        let own = session.decide(facts, subject);
        let may_be_denied = server.may_be_denied || own.may_be_denied;
        let unsure = matches!(server.basis, Basis::Uncertain(_));
        match own.policy {
            PermissionPolicy::Allow if unsure => (server, false),
            PermissionPolicy::Allow | PermissionPolicy::Ask => (Verdict { may_be_denied, ..own }, true),
            PermissionPolicy::Deny => (own, true),
        }
    }

    /// What a search by this tool passes over: what is denied, and what would have to be asked about.
    pub(super) fn veil(&self, facts: Facts<'_>, mode: PermissionMode) -> Option<Veil> {
        let asks = mode != PermissionMode::Auto;
        let server = self.server.now().hidden(facts, asks && self.session.is_none());
        let session = self.session.as_ref().and_then(|rules| rules.hidden(facts, asks));
        let all: Vec<Hidden> = server.into_iter().chain(session).collect();
        (!all.is_empty()).then(|| Veil::new(move |path| all.iter().any(|hidden| hidden.names(path))))
    }

    fn edits_inside(&self, facts: Facts<'_>, subject: &Subject) -> bool {
        let Subject::Paths(paths) = subject else { return false };
        let inside = |path: &Path| {
            let climbs = |rest: &Path| rest.components().any(|c| c == Component::ParentDir);
            self.roots.iter().any(|root| path.strip_prefix(root).is_ok_and(|rest| !climbs(rest) && !runs_later(rest)))
        };
        // What git changes may run hooks and filters of the repository.
        facts.category == Some(ToolCategory::Edit)
            && !facts.tool.starts_with("git_")
            && !paths.is_empty()
            && paths.iter().all(|path| path.resolved.as_deref().is_some_and(inside))
    }

    /// Why a call is not allowed, in words.
    pub(super) fn reason(&self, facts: Facts<'_>, subject: &Subject, mode: PermissionMode) -> String {
        self.explain(facts, subject, mode).reason
    }

    /// What would happen to a call, and why. Nobody is asked.
    pub(super) fn explain(&self, facts: Facts<'_>, subject: &Subject, mode: PermissionMode) -> PermissionExplanation {
        let ruling = self.rule(facts, subject, mode);
        let own = self.session.as_ref().filter(|_| ruling.own);
        let server = self.server.now();
        let rules = own.unwrap_or(&server);
        let mut told = rules.explain(facts, subject).describe(rules);
        if own.is_some() {
            told.reason = format!("by the session's own rules: {}", told.reason);
        }
        told.mode = Some(mode);
        if ruling.by == VerdictSource::Mode {
            told.decision = ruling.policy;
            told.source = VerdictBasis::Mode;
            told.rule = None;
            told.reason = words_of(mode, &told.reason);
        } else if ruling.policy == PermissionPolicy::Ask
            && let Some(grant) = self.granted(facts, subject)
        {
            told.decision = PermissionPolicy::Allow;
            told.source = VerdictBasis::Grant;
            told.reason = format!("grant {grant} allows what would be asked: {}", told.reason);
            told.grant = Some(grant);
        }
        told
    }
}

fn prepared(grants: &[Grant]) -> Grants {
    let mut ready = Grants::default();
    for grant in grants {
        add_grant(&mut ready, grant);
    }
    ready
}

/// Whether a tool is there for looking. A list of tasks is the session's own, and a sub-agent may do no more than it.
fn only_looks(facts: Facts<'_>) -> bool {
    let looking = [ToolCategory::Read, ToolCategory::Search, ToolCategory::Task, ToolCategory::Subagent];
    let by_category = facts.category.is_some_and(|category| looking.contains(&category));
    by_category || facts.annotations.is_some_and(|annotations| annotations.read_only == Some(true))
}

fn words_of(mode: PermissionMode, otherwise: &str) -> String {
    match mode {
        PermissionMode::Plan => {
            "the session is in plan mode: look around and say what you would do; nothing may be changed yet".to_owned()
        }
        PermissionMode::AcceptEdits => format!("the mode accept-edits allows it; otherwise {otherwise}"),
        PermissionMode::Auto => format!("the mode auto allows it; otherwise {otherwise}"),
        PermissionMode::Ask => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Limits, default_permissions};
    use crate::permission::{Floor, PathSubject};
    use crate::protocol::{
        PermissionConfig, PermissionRule, Reasoning, SessionId, SessionStatus, ToolDefinition, Usage,
    };
    use crate::store::{GrantSubject, MemoryStore, SessionSettings};

    use PermissionMode::{AcceptEdits, Ask, Auto, Plan};

    fn rule(tool: &str, pattern: &str, policy: PermissionPolicy) -> PermissionRule {
        let pattern = (!pattern.is_empty()).then(|| pattern.to_owned());
        PermissionRule { tool: tool.into(), pattern, policy, category: None, annotations: None }
    }

    async fn policy(rules: Vec<PermissionRule>, session: Option<PermissionConfig>, grants: Vec<Grant>) -> Policy {
        let mut permissions = default_permissions();
        permissions.rules.extend(rules);
        let saved = GrantBook::open(Arc::new(MemoryStore::new())).await.expect("opens");
        let terms = Terms {
            limits: Limits::default().into(),
            rules: Arc::new(ServerRules::new(&permissions, Arc::new(Floor::new(vec!["/data".into()], None)))),
            asker: None,
            saved: Arc::new(saved),
            roots: vec!["/more".into()],
            meters: Arc::default(),
            session_count: Arc::default(),
            tracer: Default::default(),
        };
        let settings = SessionSettings {
            working_directory: "/w".into(),
            additional_directories: Vec::new(),
            agent: None,
            interaction_mode: None,
            model: "m".into(),
            title: None,
            instructions: None,
            tools: None,
            without_tools: Vec::new(),
            reasoning: Reasoning::default(),
            agent_options: Default::default(),
            model_fallbacks: None,
            budget: None,
            permissions: session,
            permission_mode: Ask,
            grants,
        };
        let row = SessionRow {
            id: SessionId::generate(),
            client: None,
            status: SessionStatus::Created,
            version: 0,
            created_at: 0,
            updated_at: 0,
            message_count: 0,
            spent: Default::default(),
            usage: Usage::default(),
            settings,
            lineage: None,
            children: Vec::new(),
            shared: Default::default(),
        };
        Policy::new(&terms, &row)
    }

    fn definition(name: &str, category: &str) -> ToolDefinition {
        serde_json::from_value(serde_json::json!({ "name": name, "description": "", "category": category }))
            .expect("one")
    }

    fn call(text: &str) -> (ToolDefinition, Subject) {
        let (tool, on) = text.split_once(' ').unwrap_or((text, ""));
        let category = match tool {
            "bash" => "execute",
            "fs_read" => "read",
            "fs_grep" => "search",
            "tasks" => "task",
            "odd" => "other",
            _ => "edit",
        };
        let subject = match tool {
            "bash" => Subject::Command(on.into()),
            _ if on.is_empty() => Subject::None,
            _ => Subject::Paths(vec![PathSubject { below: false, given: on.into(), resolved: Some(on.into()) }]),
        };
        (definition(tool, category), subject)
    }

    #[tokio::test]
    async fn every_mode_has_its_answer() {
        let deny = PermissionPolicy::Deny;
        let policy = policy(
            vec![
                rule("bash", "rm *", deny),
                rule("fs_write", "*.env", PermissionPolicy::Ask),
                rule("fs_write", "*.key", deny),
            ],
            None,
            vec![],
        )
        .await;
        #[rustfmt::skip]
        let table = [
            //                        plan ask accept-edits auto
            ("fs_read /w/a",           "AAAA"), ("fs_grep /w", "AAAA"), ("fs_read /data/token", "DDDD"),
            ("fs_write /w/a",          "D?AA"), ("fs_edit /more/a", "D?AA"), ("fs_write /elsewhere/a", "D??A"), ("fs_write /w/../x", "D??A"),
            ("fs_write /w/.git/hooks/x", "D??A"), ("fs_edit /w/.husky/pre-commit", "D??A"), ("fs_write /w/sub/.vscode/tasks.json", "D??A"), ("fs_write /more/.github/workflows/ci.yml", "D??A"), ("fs_write /w/.bashrc", "D??A"), ("fs_write /w/.github/x", "D?AA"), ("fs_write /w/a.env", "D??A"), ("fs_write /w/a.key", "DDDD"), ("fs_write /data/x", "DDDD"),
            ("git_commit",             "D??A"), ("git_add /w/a", "D??A"), ("tasks", "???A"), ("odd", "D??A"),
            ("bash ls",                "D??A"), ("bash rm x", "DDDD"), ("bash ls; rm x", "DDDD"), ("bash rm -rf /", "DDDD"), ("bash sudo reboot", "DDDD"),
            ("bash $X y",              "D???"), ("bash curl x | sh", "D???"), ("bash cat /data/token", "DDDD"),
        ];
        for (text, want) in table {
            let (definition, subject) = call(text);
            let facts = Facts::new(&definition.name, Some(&definition), Some(Path::new("/w")));
            for (mode, want) in [Plan, Ask, AcceptEdits, Auto].into_iter().zip(want.chars()) {
                let ruling = policy.rule(facts, &subject, mode);
                let got = match ruling.policy {
                    PermissionPolicy::Allow => 'A',
                    PermissionPolicy::Ask => '?',
                    PermissionPolicy::Deny => 'D',
                };
                assert_eq!(got, want, "{text} in {mode:?}: {ruling:?}");
                let told = policy.explain(facts, &subject, mode);
                assert_eq!(told.decision, ruling.policy, "{text} in {mode:?}");
            }
        }
    }

    #[tokio::test]
    async fn reasons_name_the_floor_the_mode_the_rule_and_the_grant() {
        let grant = Grant {
            id: GrantId::generate(),
            created_at: 0,
            expires_at: None,
            tool: "bash".into(),
            on: GrantSubject::Command("make".into()),
        };
        let own = PermissionConfig {
            default_policy: PermissionPolicy::Ask,
            rules: vec![rule("bash", "git *", PermissionPolicy::Deny)],
        };
        let policy = policy(vec![], Some(own), vec![grant.clone()]).await;
        let explain = |text: &str, mode| {
            let (definition, subject) = call(text);
            policy.explain(Facts::new(&definition.name, Some(&definition), None), &subject, mode)
        };
        #[rustfmt::skip]
        let table = [
            ("bash rm -rf /", Auto, VerdictBasis::Floor, "`rm -rf /` is never allowed (remove-root)"),
            ("bash ls", Plan, VerdictBasis::Mode, "the session is in plan mode"),
            ("bash ls", Auto, VerdictBasis::Mode, "the mode auto allows it; otherwise by the session's own rules: no rule is about `ls`; the default is ask"),
            ("bash git log", Ask, VerdictBasis::Rule, "by the session's own rules: rule 0 (tool \"bash\", pattern \"git *\") denies `git log`"),
            ("bash make", Ask, VerdictBasis::Grant, "grant grant_"),
            ("bash make x", Ask, VerdictBasis::Default, "by the session's own rules: no rule is about `make x`"),
        ];
        for (text, mode, source, begins) in table {
            let told = explain(text, mode);
            assert_eq!(told.source, source, "{text}");
            assert!(told.reason.starts_with(begins), "{text}: {}", told.reason);
            assert_eq!(told.grant.is_some(), source == VerdictBasis::Grant, "{text}");
        }
        assert_eq!(explain("bash make", Ask).decision, PermissionPolicy::Allow);
        policy.set_grants(&[]);
        assert_eq!(explain("bash make", Ask).decision, PermissionPolicy::Ask);
    }
}
