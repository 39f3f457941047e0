//! A directory of a call's path is exchanged for a link while somebody is asked about the call: the call is not run where
//! nobody judged it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use simse::agent::{Asker, CallEnvironment, CallOutcome, RulesGate, run_call};
use simse::base::BoxFuture;
use simse::base::workspace::Workspace;
use simse::host::{ApplyPatch, BashOptions, bash_tool, filesystem_tools};
use simse::permission::Rules;
use simse::protocol::{ErrorCode, PermissionConfig, ToolCallRequest};
use simse::tool::Registry;
use tokio_util::sync::CancellationToken;

/// Says yes, after it has put a link to `to` where `pub` was.
struct Swaps {
    home: PathBuf,
    to: Option<&'static str>,
}

impl Asker for Swaps {
    fn ask<'a>(
        &'a self,
        _: &'a ToolCallRequest,
        _: Option<&'a Value>,
        _: &'a CancellationToken,
    ) -> BoxFuture<'a, bool> {
        if let Some(to) = self.to {
            fs::rename(self.home.join("pub"), self.home.join("away")).expect("pub is there");
            symlink(to, self.home.join("pub")).expect("pub is free");
        }
        Box::pin(std::future::ready(true))
    }
}

struct Place {
    home: tempfile::TempDir,
    environment: CallEnvironment,
}

impl Place {
    /// `pub` and `sec` with the same names in them; what is in `sec` is denied, and all else asked.
    fn new(to: Option<&'static str>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        for (path, text) in [("pub/f", "open\n"), ("sec/f", "secret\n"), ("x", "open\n"), (".git/hooks/f", "secret\n")]
        {
            fs::create_dir_all(real.join(path).parent().unwrap()).unwrap();
            fs::write(real.join(path), text).unwrap();
        }
        let config: PermissionConfig = serde_json::from_value(json!({
            "defaultPolicy": "ask",
            "rules": [{"tool": "*", "pattern": "sec/*", "policy": "deny"}],
        }))
        .unwrap();
        let workspace = Arc::new(Workspace::new(&real, &[]).unwrap());
        let registry = Arc::new(Registry::default());
        registry.extend(filesystem_tools(&workspace));
        registry.extend([bash_tool(&workspace, BashOptions::default())]);
        let records = home.path().join("away-records");
        registry.register(Arc::new(ApplyPatch::with_records(Arc::clone(&workspace), records))).unwrap();
        let gate = RulesGate::new(Rules::new(&config), &real).asking(Arc::new(Swaps { home: real, to }));
        Self { home, environment: CallEnvironment::new(registry, Arc::new(gate)) }
    }

    async fn call(&self, name: &str, arguments: &Value) -> CallOutcome {
        let Value::Object(arguments) = arguments.clone() else { panic!("an object") };
        let request = ToolCallRequest { id: "1".into(), name: name.into(), arguments };
        run_call(&self.environment, request, &CancellationToken::new()).await
    }

    fn hidden(&self) -> Vec<(String, String)> {
        let list = |directory: &str| {
            let all = fs::read_dir(self.home.path().join(directory)).unwrap().flatten();
            all.map(|entry| entry.path())
                .map(|path| (name(&path), fs::read_to_string(path).unwrap()))
                .collect::<Vec<_>>()
        };
        [list("sec"), list(".git/hooks")].concat()
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn calls() -> Vec<(&'static str, Value)> {
    let patch = |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}\n*** End Patch") });
    let typed = "apply_patch <<'E'\n*** Begin Patch\n*** Add File: pub/new\n+mine\n*** End Patch\nE\n";
    vec![
        ("fs_read", json!({"path": "pub/f"})),
        ("fs_stat", json!({"path": "pub/f"})),
        ("fs_list", json!({"path": "pub"})),
        ("fs_glob", json!({"pattern": "pub/*"})),
        ("fs_grep", json!({"pattern": ".", "path": "pub/f"})),
        ("fs_grep", json!({"pattern": ".", "path": "pub"})),
        ("fs_write", json!({"path": "pub/f", "content": "mine"})),
        ("fs_write", json!({"path": "pub/new/deep", "content": "mine"})),
        ("fs_edit", json!({"path": "pub/f", "old_string": "e", "new_string": "3"})),
        (
            "fs_multi_edit",
            json!({"path": "pub/f", "edits": [{"old_string": "e", "new_string": "3", "replace_all": true}]}),
        ),
        ("fs_delete", json!({"path": "pub/f"})),
        ("fs_move", json!({"source": "pub/f", "destination": "y"})),
        ("fs_move", json!({"source": "x", "destination": "pub/y"})),
        ("apply_patch", patch("*** Add File: pub/new\n+mine")),
        ("apply_patch", patch("*** Update File: pub/f\n+mine")),
        ("apply_patch", patch("*** Delete File: pub/f")),
        ("apply_patch", patch("*** Update File: pub/f\n*** Move to: y")),
        ("apply_patch", patch("*** Update File: x\n*** Move to: pub/y")),
        ("bash", json!({ "command": typed })),
        ("bash", json!({"command": "cat f; echo mine > f", "cwd": "pub"})),
    ]
}

#[tokio::test]
async fn a_link_that_comes_while_the_question_is_open_leads_nowhere() {
    for to in ["sec", ".git/hooks"] {
        for (name, arguments) in calls() {
            let place = Place::new(Some(to));
            let before = place.hidden();
            let outcome = place.call(name, &arguments).await;
            let said = &outcome.result.output;
            assert!(outcome.result.is_error, "{name} {arguments}: {said}");
            assert_eq!(outcome.failure.map(|failure| failure.code), Some(ErrorCode::Conflict), "{name}: {said}");
            assert!(said.contains("changed while the question about it was open"), "{name}: {said}");
            assert!(!said.contains("secret"), "{name}: {said}");
            assert_eq!(place.hidden(), before, "{name} {arguments}");
            assert_eq!(fs::read_to_string(place.home.path().join("x")).unwrap(), "open\n", "{name} {arguments}");
        }
    }
}

#[tokio::test]
async fn without_a_swap_the_same_calls_run() {
    for (name, arguments) in calls() {
        let place = Place::new(None);
        let outcome = place.call(name, &arguments).await;
        assert!(!outcome.result.is_error, "{name} {arguments}: {}", outcome.result.output);
    }
}
