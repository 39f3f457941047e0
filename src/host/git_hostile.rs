//! What a repository's own configuration would have git run, and how that is kept from happening.
//!
//! A repository is somebody else's: its `.git/config` and hooks may name programs. Looking at it runs none of them. Most
//! are switched off by options that are the same every time; filters have names of the repository's own choice, so that they are
//! read first (reading configuration runs nothing) and then overridden by name. What the user has configured for himself (global, system)
//! stays as it is. Changing commands keep hooks and filters, because a commit without them would be another commit: there the
//! person who is asked is told which they are. None goes into submodules by itself: what is in those has its own configuration.
//!
//! Invariant: a command that only looks starts no program but git.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

/// Options of every command that only looks: nothing of the repository's runs, and its taste does not change the text.
pub(super) const LOOKING: [&str; 29] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "diff.submodule=short",
    "-c",
    "status.submoduleSummary=false",
    "-c",
    "diff.ignoreSubmodules=dirty",
    "-c",
    "format.pretty=medium",
    "-c",
    "log.date=default",
    "-c",
    "log.showRoot=true",
    "-c",
    "diff.noprefix=false",
    "-c",
    "diff.mnemonicPrefix=false",
    "-c",
    "diff.srcPrefix=a/",
    "-c",
    "diff.dstPrefix=b/",
    "-c",
    "diff.relative=false",
    "-c",
    "diff.suppressBlankEmpty=false",
    "-c",
    "diff.orderFile=/dev/null",
    "--no-optional-locks",
];

/// Variables of every command that only looks: nothing is fetched, whatever a repository says of its origin.
pub(super) const LOOKING_VARIABLES: [(&str, &str); 3] =
    [("GIT_NO_LAZY_FETCH", "1"), ("GIT_ALLOW_PROTOCOL", "none"), ("GIT_EXTERNAL_DIFF", "")];

/// How the configuration is read: names with where they come from.
pub(super) const LIST: [&str; 5] = ["config", "--list", "-z", "--show-scope", "--name-only"];

/// How keys end (or are) whose value git runs, in lower case.
const PROGRAMS: [&str; 15] = [
    ".clean",
    ".smudge",
    ".process",
    ".textconv",
    ".command",
    ".driver",
    ".program",
    ".helper",
    ".uploadpack",
    ".receivepack",
    "core.fsmonitor",
    "core.sshcommand",
    "core.hookspath",
    "diff.external",
    "gpg.ssh.defaultkeycommand",
];

/// Keys by which a repository names files that git reads, wherever they lie, and what says that there is none: a device has no
/// end. (`blame.ignoreRevsFile`, whose lines end up in messages, has an option instead.)
const FILES: [(&str, &str); 3] =
    [("core.attributesfile", "/dev/null"), ("core.excludesfile", "/dev/null"), ("mailmap.file", "/dev/null")];

/// The key by which a repository puts its working tree elsewhere.
pub(super) const WORKTREE: &str = "core.worktree";

/// The keys that the repository itself sets, of what [`LIST`] says: pairs of scope and name.
pub(super) fn own_keys(listed: &str) -> Vec<&str> {
    let mut fields = listed.split('\0');
    let mut keys = Vec::new();
    while let (Some(scope), Some(key)) = (fields.next(), fields.next()) {
        if matches!(scope, "local" | "worktree") {
            keys.push(key);
        }
    }
    keys
}

/// Ways to another repository that run a program which the repository names, and are no part of what a command means: how a key
/// begins and ends, and what overrides it. (`core.sshCommand` is overridden by a variable.)
const WAYS: [(&str, &str, (&str, &str)); 2] = [
    ("protocol.", ".allow", ("protocol.ext.allow", "never")),
    ("core.alternaterefscommand", "", ("core.alternateRefsCommand", ":")),
];

/// Variables that override the repository's ways to others, for a command that changes something.
pub(super) fn way_overrides(keys: &[&str]) -> BTreeMap<String, String> {
    let named =
        |(begin, end, _): &&(&str, &str, _)| keys.iter().any(|key| key.starts_with(begin) && key.ends_with(end));
    let mut variables = numbered(WAYS.iter().filter(named).map(|(_, _, (key, value))| ((*key).to_owned(), *value)));
    if keys.contains(&"core.gitproxy") {
        variables.insert("GIT_PROXY_COMMAND".to_owned(), String::new());
    }
    variables
}

/// Variables that override the repository's filters, none of which runs or is missed, and the files that it names.
pub(super) fn overrides(keys: &[&str]) -> BTreeMap<String, String> {
    let drivers: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(key.strip_prefix("filter.")?.rsplit_once('.')?.0)).collect();
    let filters = drivers.iter().flat_map(|driver| {
        [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            .map(|(what, value)| (format!("filter.{driver}.{what}"), value))
    });
    let files = FILES.iter().filter(|(file, _)| keys.contains(file)).map(|(file, none)| ((*file).to_owned(), *none));
    numbered(filters.chain(files))
}

/// Settings as variables.
fn numbered<'a>(settings: impl Iterator<Item = (String, &'a str)>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut count = 0;
    for (key, value) in settings {
        variables.insert(format!("GIT_CONFIG_KEY_{count}"), key);
        variables.insert(format!("GIT_CONFIG_VALUE_{count}"), value.to_owned());
        count += 1;
    }
    if count > 0 {
        variables.insert("GIT_CONFIG_COUNT".to_owned(), count.to_string());
    }
    variables
}

/// What a changing command may start, for the person who is asked. None: nothing of the repository's own.
pub(super) fn programs(keys: &[&str], git_directory: &Path) -> Option<Value> {
    let named = |key: &&&str| PROGRAMS.iter().any(|end| key.to_ascii_lowercase().ends_with(end));
    let configured: Vec<&str> = keys.iter().filter(named).take(SHOWN_MAX).copied().collect();
    let mut hooks: Vec<String> = std::fs::read_dir(git_directory.join("hooks"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| std::fs::metadata(entry.path()).is_ok_and(|facts| is_program(&facts)))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.ends_with(".sample"))
        .take(SHOWN_MAX)
        .collect();
    hooks.sort();
    (!configured.is_empty() || !hooks.is_empty())
        .then(|| json!({ "runsProgramsOfTheRepository": { "hooks": hooks, "configuration": configured } }))
}

/// Names of one kind that are shown.
const SHOWN_MAX: usize = 50;

fn is_program(facts: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    facts.is_file() && facts.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::git_common::testing::Repository;
    use super::*;
    use crate::host::{GitBlame, GitBranch, GitCommit, GitDiff, GitLog, GitShow, GitStash, GitStatus, GitWorktree};
    use crate::tool::Tool;

    #[test]
    fn only_the_repositorys_own_keys_count() {
        let listed = "system\0filter.lfs.clean\0local\0filter.a.b.clean\0worktree\0filter.x.process\0global\0core.editor\0local\0core.bare\0";
        let keys = own_keys(listed);
        assert_eq!(keys, ["filter.a.b.clean", "filter.x.process", "core.bare"]);
        let variables = overrides(&keys);
        assert_eq!(variables["GIT_CONFIG_COUNT"], "8");
        assert!(variables.values().any(|v| v == "filter.a.b.smudge") && variables.values().all(|v| !v.contains("lfs")));
        assert!(overrides(&["core.bare"]).is_empty());
    }

    /// Every hook, filter and driver that there is writes a canary.
    fn hostile() -> Repository {
        use std::os::unix::fs::PermissionsExt;
        let repository = Repository::new();
        repository.write("b", "two\n");
        repository.git(&["add", "b"]);
        repository.git(&["commit", "-qm", "second"]);
        let spy = repository.directory.path().join(".git/spy");
        std::fs::write(&spy, "#!/bin/sh\necho \"$0 $*\" >> \"$(dirname \"$(readlink -f \"$0\")\")/canary\"\ncat\n")
            .unwrap();
        std::fs::set_permissions(&spy, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = spy.to_str().unwrap().to_owned();
        for hook in [
            "post-index-change",
            "pre-commit",
            "post-checkout",
            "fsmonitor-watchman",
            "reference-transaction",
            "post-merge",
            "pre-auto-gc",
            "post-rewrite",
            "prepare-commit-msg",
            "commit-msg",
            "post-commit",
        ] {
            std::os::unix::fs::symlink(&spy, repository.directory.path().join(".git/hooks").join(hook)).unwrap();
        }
        for key in [
            "core.fsmonitor",
            "core.pager",
            "core.editor",
            "core.sshCommand",
            "core.askPass",
            "diff.external",
            "filter.evil.clean",
            "filter.evil.smudge",
            "filter.e=v.i\"l.clean",
            "filter.p.process",
            "diff.evil.textconv",
            "diff.evil.command",
            "merge.evil.driver",
            "gpg.program",
            "gpg.ssh.program",
            "credential.helper",
            "pager.log",
            "pager.status",
            "pager.diff",
            "pager.show",
            "pager.blame",
            "alias.status",
            "alias.log",
            "alias.show",
            "sequence.editor",
            "interactive.diffFilter",
            "core.alternateRefsCommand",
            "uploadpack.packObjectsHook",
            "remote.origin.uploadpack",
        ] {
            repository.git(&["config", key, &run]);
        }
        for (key, value) in [
            ("filter.evil.required", "true"),
            ("log.showSignature", "true"),
            ("diff.submodule", "diff"),
            ("status.submoduleSummary", "true"),
            ("remote.origin.url", "ext::sh -c touch% canary"),
            ("remote.origin.promisor", "true"),
            ("protocol.ext.allow", "always"),
            ("blame.ignoreRevsFile", "/etc/passwd"),
            ("core.attributesFile", "/dev/zero"),
            ("diff.orderFile", "/dev/zero"),
        ] {
            repository.git(&["config", key, value]);
        }
        repository.write(
            ".git/info/attributes",
            "a filter=evil diff=evil merge=evil\nb filter=p\n.gitattributes filter=e=v.i\"l\n",
        );
        repository.write("a", "changed\n");
        repository.write("b", "changed\n");
        repository.write(".gitattributes", "* diff=evil\n");
        let _made_by_the_set_up = std::fs::remove_file(repository.directory.path().join(".git/canary"));
        repository
    }

    #[tokio::test]
    async fn looking_at_a_hostile_repository_runs_nothing_of_it() {
        let repository = hostile();
        let workspace = repository.workspace();
        let shared = || Arc::clone(&workspace);
        #[rustfmt::skip]
        let table: Vec<(Box<dyn Tool>, Value)> = vec![
            (Box::new(GitStatus::new(shared())), json!({})),
            (Box::new(GitDiff::new(shared())), json!({})), (Box::new(GitDiff::new(shared())), json!({"staged": true})), (Box::new(GitDiff::new(shared())), json!({"path": "a"})),
            (Box::new(GitLog::new(shared())), json!({})), (Box::new(GitLog::new(shared())), json!({"oneline": false})),
            (Box::new(GitShow::new(shared())), json!({})), (Box::new(GitShow::new(shared())), json!({"revision": "HEAD:a"})), (Box::new(GitShow::new(shared())), json!({"revision": "HEAD~1", "path": "a"})),
            (Box::new(GitBlame::new(shared())), json!({"path": "a"})), (Box::new(GitBlame::new(shared())), json!({"path": "a", "revision": "HEAD"})),
            (Box::new(GitBranch::new(shared())), json!({})), (Box::new(GitStash::new(shared())), json!({"action": "list"})),
            (Box::new(GitWorktree::new(shared())), json!({})),
        ];
        for (tool, arguments) in table {
            let name = tool.definition().name.clone();
            let said = repository.call(tool.as_ref(), arguments.clone()).await;
            assert!(said.is_ok(), "{name} {arguments}: {said:?}");
            for canary in [".git/canary", "canary"] {
                let heard = std::fs::read_to_string(repository.directory.path().join(canary));
                assert!(heard.is_err(), "{name} {arguments} ran {heard:?}");
            }
        }
        // The trap works: git by itself runs it. (The files without an end would keep it from getting there.)
        repository.git(&["config", "--unset", "core.attributesFile"]);
        repository.git(&["config", "--unset", "diff.orderFile"]);
        repository.git(&["status"]);
        assert!(repository.directory.path().join(".git/canary").exists());
    }

    #[tokio::test]
    async fn outside_of_a_repository_every_tool_says_so_in_git_words() {
        let plain = tempfile::tempdir().unwrap();
        std::fs::write(plain.path().join("a"), "x").unwrap();
        let workspace = Arc::new(crate::base::workspace::Workspace::new(plain.path(), &[]).unwrap());
        let context = Repository::empty().context;
        for tool in crate::host::git_tools(&workspace, &Default::default()) {
            let name = tool.definition().name.clone();
            let given = json!({"message": "m", "path": "a", "name": "x", "remote": "x", "branch": "x"});
            let known = |key: &String| tool.definition().parameters.contains_key(key);
            let Value::Object(given) = given else { panic!("an object") };
            let arguments = given.into_iter().filter(|(key, _)| known(key)).collect();
            let said = tool.run(arguments, &context).await.unwrap_err().to_string();
            assert!(said.starts_with("fatal: not a git repository"), "{name}: {said}");
            assert!(said.lines().count() <= 2, "{name}: {said}");
        }
    }

    #[tokio::test]
    async fn a_working_tree_elsewhere_is_neither_read_nor_written() {
        let repository = Repository::new();
        repository.git(&["branch", "other"]);
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("a"), "secret\n").unwrap();
        repository.git(&["config", "core.worktree", outside.path().to_str().unwrap()]);
        let shared = repository.workspace();
        let sub = repository.directory.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        let below = Arc::new(crate::base::workspace::Workspace::new(&sub, &[]).unwrap());
        for workspace in [&shared, &below] {
            let of = || Arc::clone(workspace);
            #[rustfmt::skip]
            let table: Vec<(Box<dyn Tool>, Value)> = vec![
                (Box::new(GitDiff::new(of())), json!({})), (Box::new(GitStatus::new(of())), json!({})),
                (Box::new(GitBranch::new(of())), json!({"name": "other"})), (Box::new(GitBranch::new(of())), json!({"name": "main"})),
            ];
            for (tool, arguments) in table {
                let said = repository.call(tool.as_ref(), arguments.clone()).await.unwrap();
                assert!(!said.contains("secret") && !said.contains("modified"), "{arguments}: {said}");
            }
        }
        repository.write("b", "new\n");
        repository.call(&GitCommit::new(shared), json!({"message": "b"})).await.unwrap();
        assert_eq!(repository.git(&["ls-files"]), "a\nb\n");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        // The trap works: git by itself reads there.
        assert!(repository.git(&["-c", "core.x=y", "diff"]).contains("secret"));
    }

    #[tokio::test]
    async fn what_the_repository_likes_does_not_change_the_text() {
        let repository = Repository::new();
        repository.write("a", "two\n");
        for number in 0..3 {
            repository.git(&["branch", &format!("b{number}")]);
        }
        let workspace = repository.workspace();
        let shared = || Arc::clone(&workspace);
        #[rustfmt::skip]
        let table: Vec<(Box<dyn Tool>, Value)> = vec![
            (Box::new(GitStatus::new(shared())), json!({})), (Box::new(GitDiff::new(shared())), json!({})),
            (Box::new(GitLog::new(shared())), json!({})), (Box::new(GitLog::new(shared())), json!({"oneline": false})),
            (Box::new(GitShow::new(shared())), json!({})), (Box::new(GitShow::new(shared())), json!({"stat": true})),
            (Box::new(GitBlame::new(shared())), json!({"path": "a"})), (Box::new(GitBranch::new(shared())), json!({})),
        ];
        let mut before = Vec::new();
        for (tool, arguments) in &table {
            before.push(repository.call(tool.as_ref(), arguments.clone()).await.unwrap());
        }
        for (key, value) in [
            ("format.pretty", "%B only"),
            ("log.date", "unix"),
            ("log.showRoot", "false"),
            ("diff.noprefix", "true"),
            ("diff.mnemonicPrefix", "true"),
            ("diff.suppressBlankEmpty", "true"),
            ("status.short", "true"),
            ("column.ui", "always"),
            ("column.branch", "always"),
            ("column.status", "always"),
            ("color.diff", "always"),
            ("color.status", "always"),
            ("color.branch", "always"),
            ("color.blame.highlightRecent", "red"),
        ] {
            repository.git(&["config", key, value]);
        }
        for ((tool, arguments), before) in table.iter().zip(before) {
            let name = &tool.definition().name;
            let after = repository.call(tool.as_ref(), arguments.clone()).await.unwrap();
            assert_eq!(after, before, "{name} {arguments}");
        }
    }

    #[tokio::test]
    async fn changing_commands_say_what_they_will_run() {
        let repository = hostile();
        let tool = GitBranch::new(repository.workspace());
        let Value::Object(arguments) = json!({ "name": "x" }) else { panic!("an object") };
        let told = tool.preview(&arguments, &repository.context).await.unwrap();
        let told = &told["runsProgramsOfTheRepository"];
        assert!(told["hooks"].as_array().unwrap().iter().any(|hook| hook == "post-checkout"), "{told}");
        let configured = told["configuration"].as_array().unwrap();
        assert!(
            configured.iter().any(|key| key == "filter.evil.smudge")
                && configured.iter().any(|key| key == "core.fsmonitor"),
            "{told}"
        );
        let plain = Repository::new();
        let nothing = GitBranch::new(plain.workspace()).preview(&arguments, &plain.context).await;
        assert_eq!(nothing, None);
    }

    /// A directory that the sandbox does not hold for temporary; this checkout may lie in one that is.
    fn beside_temporary() -> Option<tempfile::TempDir> {
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"];
        // Where cargo builds, wherever that is.
        let built = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
        let places = ["/var/lib", "/opt", "/srv", env!("CARGO_MANIFEST_DIR")].map(std::path::PathBuf::from);
        let outside = built.into_iter().chain(places).filter(|place| !temporary.iter().any(|t| place.starts_with(t)));
        outside.filter_map(|place| tempfile::tempdir_in(place).ok()).next()
    }

    #[tokio::test]
    async fn what_changing_commands_run_is_held_to_the_sandbox() {
        use std::os::unix::fs::PermissionsExt;

        use crate::base::sandbox::{Mode, support};
        use crate::host::{GitOptions, Sandbox, git_tools};

        let Some(outside) = beside_temporary().filter(|_| support().missing().is_empty()) else {
            eprintln!("not tested here: {}", support().missing().join("; "));
            return;
        };
        let at = |name: &str| outside.path().join(name);
        let repository = Repository::new();
        let write = |name: &str| format!("touch {}; touch .git/hooks/{name} 2>/dev/null", at(name).display());
        let script = |name: &str| format!("#!/bin/sh\n{}; echo {name} >> ran\n", write(name));
        for hook in ["pre-commit", "post-commit", "post-checkout"] {
            let path = repository.directory.path().join(".git/hooks").join(hook);
            std::fs::write(&path, script(hook)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        repository.git(&["config", "filter.f.clean", &format!("sh -c '{}; cat'", write("filter"))]);
        repository.write(".git/info/attributes", "a filter=f\n.gitignore -filter\n");
        repository.write(".gitignore", "ran\n");
        let sandbox = Sandbox { mode: Mode::WorkspaceWrite, ..Sandbox::default() };
        let call = async |sandbox: &Sandbox, name: &str, arguments: Value| {
            let tools = git_tools(&repository.workspace(), &GitOptions { sandbox: sandbox.clone() });
            let tool = tools.into_iter().find(|tool| tool.definition().name == name).unwrap();
            repository.call(tool.as_ref(), arguments).await
        };
        repository.write("a", "two\n");
        call(&sandbox, "git_commit", json!({"message": "inside"})).await.unwrap();
        call(&sandbox, "git_branch", json!({"name": "x", "create": true})).await.unwrap();
        call(&sandbox, "git_status", json!({})).await.unwrap();
        assert_eq!(repository.read("ran"), "pre-commit\npost-commit\npost-checkout\n");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "nothing is written outside");
        assert!(!repository.directory.path().join(".git/hooks/filter").exists());
        // Below the top, the repository above is worked on.
        repository.write("sub/b", "1\n");
        let below =
            Arc::new(crate::base::workspace::Workspace::new(&repository.directory.path().join("sub"), &[]).unwrap());
        let commit = GitCommit::new(below).with(GitOptions { sandbox: sandbox.clone() });
        repository.call(&commit, json!({"message": "below"})).await.unwrap();
        // Where nothing may be written, nothing is recorded, and it is said why.
        repository.write("a", "three\n");
        let read_only = Sandbox { mode: Mode::ReadOnly, ..Sandbox::default() };
        let said = call(&read_only, "git_add", json!({})).await.unwrap_err();
        assert!(said.contains("[The command ran in a sandbox (read-only): nothing can be written."), "{said}");
        let left = json!({"message": "outside", "outside_sandbox": true});
        assert!(call(&sandbox, "git_commit", left.clone()).await.unwrap_err().starts_with("`justification`: expected"));
        let mut left = left;
        left["justification"] = "the hook needs it".into();
        call(&sandbox, "git_commit", left).await.unwrap();
        assert!(at("pre-commit").exists() && at("filter").exists(), "outside they do as they like");
    }
}
