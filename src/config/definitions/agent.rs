//! One agent's file. Keys that nobody knows are tolerated; what a known key says has to hold.

use std::path::Path;

use serde_json::{Map, Value};

use super::fields::{Fields, list, unfit};
use super::frontmatter::{Parts, Unfit, parts};
use crate::base::limit;
use crate::protocol::{
    ANY_TOOL, AgentDefinition, AgentGate, DefinitionSource, InteractionMode, PermissionConfig, PermissionPolicy,
    PermissionRule, Reasoning,
};

/// What a model or a level of thinking is called that is that of whoever uses the agent.
const INHERITED: &str = "inherit";

/// What the head of an agent's file says, and the text behind it.
///
/// # Errors
/// What is wrong with it, in words that name the field.
pub fn parse_agent(text: &str, path: &Path, source: DefinitionSource) -> Result<AgentDefinition, String> {
    let found = parts(text).map_err(|unfit| match unfit {
        Unfit::Headless => "expected frontmatter: a first line `---`".to_owned(),
        Unfit::Unreadable(why) => why,
    })?;
    agent(&found, path, source)
}

/// The same of a file that is taken apart already.
pub(super) fn agent(found: &Parts<'_>, path: &Path, source: DefinitionSource) -> Result<AgentDefinition, String> {
    let fields = Fields(&found.fields);
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let all = |names: Option<Vec<String>>| names.filter(|names| !names.iter().any(|name| name == ANY_TOOL));
    let inherited = |text: Option<String>| text.filter(|text| text != INHERITED);
    let (gates, delegate_targets) = policy(&fields)?;
    Ok(AgentDefinition {
        name: fields.name(stem)?,
        description: fields.description()?,
        kind: word(&fields, "kind", "`main` or `subagent`")?.unwrap_or_default(),
        mode: word::<InteractionMode>(&fields, "mode", "`chat` or `auto`")?,
        model: inherited(fields.text(&["model"])?),
        reasoning: inherited(fields.text(&["reasoning"])?).map(|level| reasoning(&level)).transpose()?,
        tools: all(fields.names(&["tools"])?),
        gates,
        delegate_targets,
        permissions: fields.value(&["permissions"]).map(|(_, value)| permissions(value)).transpose()?,
        max_iterations: fields.number(&["max_iters", "max_iterations"], (1, limit::AGENT_ITERATIONS_MAX))?,
        skills: all(fields.names(&["skills"])?),
        prompt: found.body.to_owned(),
        source,
        path: (source != DefinitionSource::BuiltIn).then(|| path.to_owned()),
    })
}

/// A word of a few.
fn word<T: serde::de::DeserializeOwned>(
    fields: &Fields<'_>,
    name: &'static str,
    expected: &str,
) -> Result<Option<T>, String> {
    let Some(text) = fields.text(&[name])? else { return Ok(None) };
    let value = Value::from(text);
    serde_json::from_value(value.clone()).map(Some).map_err(|_| unfit(name, expected, &value))
}

fn reasoning(level: &str) -> Result<Reasoning, String> {
    let expected = "`inherit`, `auto`, `none`, `minimal`, `low`, `medium`, `high` or `xhigh`";
    serde_json::from_value(level.into()).map_err(|_| unfit("reasoning", expected, &level.into()))
}

type Gates = (Option<Vec<AgentGate>>, Option<Vec<String>>);

/// The gates: a list, or an object with the list and the agents that may be delegated to.
fn policy(fields: &Fields<'_>) -> Result<Gates, String> {
    let Some((name, value)) = fields.value(&["policy"]) else { return Ok((None, None)) };
    match value {
        Value::Object(policy) => {
            let within = Fields(policy);
            // An object without the list says nothing of the gates.
            let allow = within.value(&["allow"]).map(|(_, value)| gates("policy.allow", value)).transpose()?;
            let targets = within.value(&["delegate_targets", "delegateTargets"]);
            let targets = targets.map(|(_, value)| list("policy.delegate_targets", value)).transpose()?;
            Ok((allow, targets.filter(|names| !names.iter().any(|name| name == ANY_TOOL))))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Ok((Some(gates(name, value)?), None))
        }
    }
}

fn gates(name: &str, value: &Value) -> Result<Vec<AgentGate>, String> {
    let mut open = Vec::new();
    for text in list(name, value)? {
        if text == ANY_TOOL {
            return Ok(AgentGate::ALL.to_vec());
        }
        let gate = AgentGate::ALL.into_iter().find(|gate| gate.name().eq_ignore_ascii_case(&text));
        let gate = gate.ok_or_else(|| unfit(name, "some of `Patch`, `Finalize`, `Delegate`", &text.into()))?;
        if !open.contains(&gate) {
            open.push(gate);
        }
    }
    Ok(open)
}

/// Rules: a list of them, or an object with them and what happens when none matches. The names of members are those of the
/// wire, or the same with `_`.
fn permissions(value: &Value) -> Result<PermissionConfig, String> {
    let (default_policy, rules) = match value {
        Value::Array(rules) => (PermissionPolicy::Allow, rules.as_slice()),
        Value::Object(config) => {
            let within = Fields(config);
            let default = within.value(&["default_policy", "defaultPolicy"]);
            let default = default.map(|(_, value)| {
                serde_json::from_value(value.clone())
                    .map_err(|_| unfit("permissions.default_policy", "`allow`, `ask` or `deny`", value))
            });
            let rules = match within.value(&["rules"]) {
                Some((_, Value::Array(rules))) => rules.as_slice(),
                Some((_, other)) => return Err(unfit("permissions.rules", "a list of rules", other)),
                None => &[],
            };
            (default.transpose()?.unwrap_or(PermissionPolicy::Allow), rules)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(unfit("permissions", "a list of rules, or an object with `rules`", value));
        }
    };
    let rules: Vec<PermissionRule> =
        rules.iter().enumerate().map(|(at, rule)| permission_rule(at, rule)).collect::<Result<_, _>>()?;
    if let Some((at, member, expected)) = PermissionRule::fault(&rules) {
        return Err(format!("`permissions[{at}].{member}`: expected {expected}"));
    }
    Ok(PermissionConfig { default_policy, rules })
}

fn permission_rule(at: usize, rule: &Value) -> Result<PermissionRule, String> {
    serde_path_to_error::deserialize(rule).map_err(|error| match error.path().to_string() {
        path if path == "." => format!("`permissions[{at}]`: {}", error.inner()),
        path => format!("`permissions[{at}].{path}`: {}", error.inner()),
    })
}

/// The agents that are part of this program.
pub(super) fn built_in() -> Vec<(&'static str, &'static str)> {
    vec![
        ("build", include_str!("text/build.md")),
        ("plan", include_str!("text/plan.md")),
        ("explore", include_str!("text/explore.md")),
    ]
}

/// Whether a file's head is that of something else than an agent: in folders that are not ours alone.
pub(super) fn is_another(fields: &Map<String, Value>) -> bool {
    !fields.contains_key("name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::AgentKind;

    fn parsed(head: &str) -> Result<AgentDefinition, String> {
        parse_agent(&format!("---\n{head}\n---\n\nYou are it.\n"), Path::new("/p/it.md"), DefinitionSource::Project)
    }

    #[test]
    fn every_field_is_read() {
        let agent = parsed(
            "name: coder\ndescription: Writes code\nmodel: openai/gpt-5\nreasoning: high\ntools: [Read, Bash]\n\
             policy: {allow: [Patch, delegate], delegate_targets: [search]}\nkind: subagent\nmode: auto\nmax_iters: 12\n\
             skills: a, b\nwork_globs: ['**']\npersonality: kind\n\
             permissions:\n  - {tool: bash, pattern: 'rm *', policy: deny}",
        );
        let agent = agent.expect("an agent");
        let rule = PermissionRule {
            tool: "bash".into(),
            pattern: Some("rm *".into()),
            policy: PermissionPolicy::Deny,
            category: None,
            annotations: None,
        };
        let want = AgentDefinition {
            name: "coder".into(),
            description: "Writes code".into(),
            kind: AgentKind::Subagent,
            mode: Some(InteractionMode::Auto),
            model: Some("openai/gpt-5".into()),
            reasoning: Some(Reasoning::High),
            tools: Some(vec!["Read".into(), "Bash".into()]),
            gates: Some(vec![AgentGate::Patch, AgentGate::Delegate]),
            delegate_targets: Some(vec!["search".into()]),
            permissions: Some(PermissionConfig { default_policy: PermissionPolicy::Allow, rules: vec![rule] }),
            max_iterations: Some(12),
            skills: Some(vec!["a".into(), "b".into()]),
            prompt: "You are it.".into(),
            source: DefinitionSource::Project,
            path: Some("/p/it.md".into()),
        };
        assert_eq!(agent, want);
    }

    #[test]
    fn what_is_left_out_restricts_nothing() {
        let agent =
            parsed("description: x\nmodel: inherit\nreasoning: inherit\ntools: ['*']\nskills: '*'").expect("an agent");
        assert_eq!((agent.name.as_str(), agent.kind, agent.mode), ("it", AgentKind::Main, None));
        assert_eq!((agent.model, agent.reasoning, agent.tools, agent.skills), (None, None, None, None));
        assert_eq!((agent.gates, agent.delegate_targets, agent.permissions), (None, None, None));
        let shut = parsed("policy: []").expect("an agent");
        assert_eq!(shut.gates, Some(Vec::new()));
        let targets = parsed("policy:\n  delegate_targets: [a]").expect("an agent");
        assert_eq!((targets.gates, targets.delegate_targets), (None, Some(vec!["a".into()])));
    }

    #[test]
    fn what_does_not_hold_is_refused_by_name() {
        #[rustfmt::skip]
        let table = [
            ("name: a b", "`name`: expected 1 to 64 letters"),
            ("kind: other", "`kind`: expected `main` or `subagent`, got \"other\""),
            ("mode: fast", "`mode`: expected `chat` or `auto`"),
            ("reasoning: much", "`reasoning`: expected `inherit`"),
            ("tools: 7", "`tools`: expected a list of names, got 7"),
            ("tools: [[a]]", "`tools`: expected a list of names"),
            ("policy: [Patch, Fly]", "`policy`: expected some of `Patch`, `Finalize`, `Delegate`, got \"Fly\""),
            ("policy: {allow: [Fly]}", "`policy.allow`: expected some of"),
            ("policy: {delegate_targets: {}}", "`policy.delegate_targets`: expected a list of names"),
            ("max_iters: 0", "`max_iters`: expected a whole number from 1 to 1000, got 0"),
            ("max_iters: 1001", "from 1 to 1000, got 1001"),
            ("max_iters: many", "`max_iters`: expected a whole number"),
            ("permissions: all", "`permissions`: expected a list of rules"),
            ("permissions: [{tool: bash}]", "`permissions[0]`: missing field `policy`"),
            ("permissions: [{tool: bash, policy: maybe}]", "`permissions[0].policy`: unknown variant"),
            ("permissions: {default_policy: maybe}", "`permissions.default_policy`: expected"),
            ("permissions: {rules: x}", "`permissions.rules`: expected a list of rules"),
            ("permissions: [{tool: a, pattern: '', policy: deny}]", "`permissions[0].pattern`: expected"),
        ];
        for (head, want) in table {
            let why = parsed(head).expect_err(head);
            assert!(why.contains(want), "{head}: {why}");
        }
        let headless = parse_agent("You are it.", Path::new("/p/it.md"), DefinitionSource::User);
        assert_eq!(headless, Err("expected frontmatter: a first line `---`".to_owned()));
    }

    #[test]
    fn the_built_in_ones_are_agents() {
        for (name, text) in built_in() {
            let agent = parse_agent(text, Path::new(&format!("{name}.md")), DefinitionSource::BuiltIn).expect(name);
            assert_eq!((agent.name.as_str(), agent.path.is_none()), (name, true));
            assert!(!agent.description.is_empty(), "{name}");
        }
    }
}
