//! Repositories that try to lead the git tools elsewhere, to another repository's settings or to programs; and those whose parts
//! lie elsewhere for good reasons.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::confine::Sandbox;
use super::git_common::GitOptions;
use super::git_common::testing::Repository;
use super::git_tools;
use crate::base::sandbox::{Mode, support};
use crate::base::workspace::Workspace;

/// Calls that look.
fn looks() -> Vec<(&'static str, Value)> {
    vec![
        ("git_status", json!({})),
        ("git_diff", json!({})),
        ("git_diff", json!({"staged": true})),
        ("git_log", json!({})),
        ("git_show", json!({})),
        ("git_blame", json!({"path": "a"})),
        ("git_branch", json!({})),
        ("git_stash", json!({"action": "list"})),
        ("git_worktree", json!({})),
    ]
}

/// The sandboxes that can be tried here.
fn sandboxes() -> Vec<Sandbox> {
    let missing = support().missing();
    if !missing.is_empty() {
        eprintln!("not tested in a sandbox, because {}", missing.join("; "));
        return vec![Sandbox::default()];
    }
    vec![Sandbox::default(), Sandbox { mode: Mode::WorkspaceWrite, ..Sandbox::default() }]
}

impl Repository {
    fn top(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    /// A tool's answer when it works in `directory` of the repository.
    async fn says(
        &self,
        sandbox: &Sandbox,
        directory: &Path,
        (name, arguments): (&str, Value),
    ) -> Result<String, String> {
        let workspace = Arc::new(Workspace::new(&self.top().join(directory), &[]).unwrap());
        let tools = git_tools(&workspace, &GitOptions { sandbox: sandbox.clone() });
        let tool = tools.into_iter().find(|tool| tool.definition().name == name).unwrap();
        self.call(tool.as_ref(), arguments).await
    }

    /// A program that tells that it ran; `sung` says so.
    fn spy(&self) -> String {
        let (spy, canary) = (self.top().join(".git/spy"), self.top().join(".git/canary"));
        fs::write(&spy, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\n", canary.display())).unwrap();
        fs::set_permissions(&spy, fs::Permissions::from_mode(0o755)).unwrap();
        spy.to_str().unwrap().to_owned()
    }

    /// What ran since the last time.
    fn sung(&self) -> Option<String> {
        let canary = self.top().join(".git/canary");
        let heard = fs::read_to_string(&canary).ok();
        let _none = fs::remove_file(canary);
        heard
    }

    /// Real git, whatever comes of it.
    fn try_git(&self, arguments: &[&str]) {
        let _output = Command::new("git").args(arguments).current_dir(self.directory.path()).output().unwrap();
    }

    /// Makes `a` look changed without being so: git has to look into it, through the filters.
    fn touch(&self, path: &str) {
        let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = fs::File::options().write(true).open(self.directory.path().join(path)).unwrap();
        file.set_modified(past).unwrap();
    }
}

/// A repository, and beside it one that is the same but for its settings: those run the spy.
fn with_evil_twin() -> (Repository, PathBuf) {
    let repository = Repository::new();
    let spy = repository.spy();
    let twin = repository.top().join("twin");
    let copied = Command::new("cp").arg("-a").arg(repository.top().join(".git")).arg(&twin).status().unwrap();
    assert!(copied.success());
    fs::write(twin.join("info/attributes"), "* filter=evil diff=evil\n").unwrap();
    for hook in ["post-index-change", "reference-transaction", "pre-commit"] {
        symlink(&spy, twin.join("hooks").join(hook)).unwrap();
    }
    let config = twin.join("config").to_str().unwrap().to_owned();
    for key in ["filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.fsmonitor", "diff.external"] {
        repository.git(&["config", "--file", &config, key, &spy]);
    }
    repository.write(".git/info/exclude", "twin\n");
    (repository, twin)
}

#[tokio::test]
async fn a_planted_commondir_leads_no_tool_elsewhere() {
    let (repository, twin) = with_evil_twin();
    let planted = repository.top().join(".git/commondir");
    fs::write(&planted, format!("{}\n", twin.display())).unwrap();
    let calls = looks().into_iter().chain([
        ("git_add", json!({})),
        ("git_commit", json!({"message": "m"})),
        ("git_branch", json!({"name": "x", "create": true})),
        ("git_stash", json!({})),
    ]);
    for (name, arguments) in calls {
        repository.touch("a");
        let said = repository.says(&Sandbox::default(), Path::new(""), (name, arguments)).await.unwrap_err();
        assert!(said.contains(".git/commondir leads git to another repository"), "{name}: {said}");
    }
    assert_eq!(repository.sung(), None);
    // The trap works: git by itself goes there.
    repository.touch("a");
    repository.try_git(&["status"]);
    assert!(repository.sung().is_some());
}

#[tokio::test]
async fn a_commondir_that_comes_and_goes_leads_no_look_elsewhere() {
    let (repository, twin) = with_evil_twin();
    let (planted, made) = (repository.top().join(".git/commondir"), repository.top().join(".git/made"));
    let enough = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&enough);
    let plants = std::thread::spawn(move || {
        while !done.load(Ordering::Acquire) {
            fs::write(&made, format!("{}\n", twin.display())).unwrap();
            fs::rename(&made, &planted).unwrap();
            std::thread::yield_now();
            fs::remove_file(&planted).unwrap();
            // As long away as there: so that git often finds it where we did not.
            std::thread::yield_now();
        }
    });
    for _ in 0..8 {
        for call in [("git_status", json!({})), ("git_diff", json!({})), ("git_log", json!({}))] {
            repository.touch("a");
            // It may be refused, or find no branch in between.
            let _said = repository.says(&Sandbox::default(), Path::new(""), call).await;
        }
    }
    enough.store(true, Ordering::Release);
    plants.join().unwrap();
    assert_eq!(repository.sung(), None);
}

#[tokio::test]
async fn in_the_sandbox_it_is_taken_away_and_the_tool_goes_on() {
    let Some(sandbox) = sandboxes().into_iter().nth(1) else { return };
    let (repository, twin) = with_evil_twin();
    repository.write("a", "two\n");
    repository.says(&sandbox, Path::new(""), ("git_add", json!({}))).await.unwrap();
    let planted = repository.top().join(".git/commondir");
    for call in [("git_status", json!({})), ("git_commit", json!({"message": "second"}))] {
        fs::write(&planted, format!("{}\n", twin.display())).unwrap();
        repository.says(&sandbox, Path::new(""), call).await.unwrap();
        assert!(!planted.exists());
    }
    assert_eq!(repository.sung(), None);
    assert_eq!(repository.git(&["log", "--format=%s"]), "second\nfirst\n");
}

#[tokio::test]
async fn repositories_whose_parts_lie_elsewhere_are_worked_on() {
    for sandbox in sandboxes() {
        let (repository, other) = (Repository::new(), Repository::new());
        let source = other.top().to_str().unwrap().to_owned();
        repository.git(&["worktree", "add", "-q", "trees/x"]);
        repository.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &source, "module"]);
        repository.git(&["commit", "-qm", "module"]);
        for (key, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
            repository.git(&["-C", "module", "config", key, value]);
        }
        for directory in ["trees/x", "module", ""] {
            let at = Path::new(directory);
            let file = repository.top().join(at).join("new");
            fs::write(&file, "1\n").unwrap();
            for (name, arguments) in looks() {
                let said = repository.says(&sandbox, at, (name, arguments.clone())).await;
                assert!(said.is_ok(), "{directory}: {name} {arguments}: {said:?}");
            }
            let branch = format!("made{}", directory.len());
            let calls = [
                ("git_add", json!({"path": "new"})),
                ("git_commit", json!({"message": "by a tool"})),
                ("git_branch", json!({"name": branch, "create": true})),
            ];
            for (name, arguments) in calls {
                let said = repository.says(&sandbox, at, (name, arguments.clone())).await;
                assert!(said.is_ok(), "{directory}: {name} {arguments}: {said:?}");
            }
            fs::write(&file, "2\n").unwrap();
            for arguments in [json!({}), json!({"action": "pop"})] {
                let said = repository.says(&sandbox, at, ("git_stash", arguments.clone())).await;
                assert!(said.is_ok(), "{directory}: {arguments}: {said:?}");
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), "2\n");
        }
        // What a worktree commits lies in the repository that it shares.
        assert_eq!(repository.git(&["log", "-1", "--format=%s", "made7"]), "by a tool\n");
        assert_eq!(repository.git(&["-C", "module", "log", "-1", "--format=%s", "made6"]), "by a tool\n");
        assert_eq!(repository.git(&["fsck", "--no-dangling"]), "");
    }
}

/// A repository that a program made and put into the index of the one above, with everything in it that git would run.
fn with_planted_submodule() -> Repository {
    let repository = Repository::new();
    let spy = repository.spy();
    repository.git(&["init", "-q", "-b", "main", "sub"]);
    repository.write("sub/f", "x\n");
    for (key, value) in [("user.name", "T"), ("user.email", "t@example.org")] {
        repository.git(&["-C", "sub", "config", key, value]);
    }
    repository.git(&["-C", "sub", "add", "f"]);
    repository.git(&["-C", "sub", "commit", "-qm", "sub"]);
    let id = repository.git(&["-C", "sub", "rev-parse", "HEAD"]).trim().to_owned();
    repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},sub")]);
    repository.write(".gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n");
    repository.git(&["add", ".gitmodules"]);
    repository.git(&["commit", "-qm", "second"]);
    for key in ["filter.evil.clean", "core.fsmonitor", "diff.external", "core.sshCommand", "remote.origin.uploadpack"] {
        repository.git(&["-C", "sub", "config", key, &spy]);
    }
    repository.write("sub/.git/info/attributes", "* filter=evil\n");
    for hook in ["post-index-change", "reference-transaction", "post-checkout", "post-merge"] {
        symlink(&spy, repository.top().join("sub/.git/hooks").join(hook)).unwrap();
    }
    for (key, value) in [("submodule.sub.ignore", "none"), ("submodule.sub.active", "true"), ("diff.submodule", "diff")]
    {
        repository.git(&["config", key, value]);
    }
    repository
}

#[tokio::test]
async fn looking_does_not_go_into_a_planted_submodule() {
    let repository = with_planted_submodule();
    for sandbox in sandboxes() {
        for (name, arguments) in looks() {
            repository.touch("sub/f");
            let said = repository.says(&sandbox, Path::new(""), (name, arguments.clone())).await;
            assert!(said.is_ok(), "{name} {arguments}: {said:?}");
            assert_eq!(repository.sung(), None, "{name} {arguments}");
        }
    }
    // The trap works: git by itself goes there.
    repository.touch("sub/f");
    repository.git(&["status"]);
    assert!(repository.sung().is_some());
}

#[tokio::test]
async fn pulling_does_not_go_into_submodules() {
    let (repository, upstream) = (with_planted_submodule(), tempfile::tempdir().unwrap());
    let bare = upstream.path().to_str().unwrap();
    repository.git(&["init", "-q", "--bare", "-b", "main", bare]);
    repository.git(&["remote", "add", "origin", bare]);
    repository.git(&["push", "-q", "-u", "origin", "main"]);
    for (key, value) in [("remote.origin.url", bare), ("protocol.file.allow", "always")] {
        repository.git(&["-C", "sub", "config", key, value]);
    }
    for (key, value) in [
        ("fetch.recurseSubmodules", "true"),
        ("submodule.recurse", "true"),
        ("submodule.sub.fetchRecurseSubmodules", "true"),
        ("push.recurseSubmodules", "on-demand"),
    ] {
        repository.git(&["config", key, value]);
    }
    let _before = repository.sung();
    for call in [("git_pull", json!({})), ("git_push", json!({})), ("git_branch", json!({"name": "y", "create": true}))]
    {
        let said = repository.says(&Sandbox::default(), Path::new(""), call.clone()).await;
        assert!(said.is_ok(), "{call:?}: {said:?}");
        assert_eq!(repository.sung(), None, "{call:?}");
    }
    // The trap works.
    repository.git(&["switch", "-q", "--no-recurse-submodules", "main"]);
    repository.try_git(&["pull", "-q"]);
    assert!(repository.sung().is_some());
}

#[tokio::test]
async fn no_remote_is_a_program() {
    let repository = Repository::new();
    let spy = repository.spy();
    #[rustfmt::skip]
    let settings = [
        ("protocol.ext.allow", "always"), ("remote.direct.url", "ext::sh -c SPY% x"), ("remote.named.vcs", "ext"), ("remote.named.url", "sh -c SPY% x"),
        ("url.ext::sh -c SPY% .insteadOf", "http://x/"), ("remote.renamed.url", "http://x/y"), ("core.gitProxy", "SPY"),
        ("remote.old.url", "git://127.0.0.1:1/x"), ("core.sshCommand", "SPY"), ("remote.far.url", "ssh://-oProxyCommand=SPY/x"),
        ("remote.ssh.url", "ssh://127.0.0.1:1/x"),
    ];
    for (key, value) in settings {
        repository.git(&["config", &key.replace("SPY", &spy), &value.replace("SPY", &spy)]);
    }
    for remote in ["direct", "named", "renamed", "old", "far", "ssh"] {
        for (name, arguments) in [
            ("git_pull", json!({"remote": remote, "branch": "main"})),
            ("git_push", json!({"remote": remote, "branch": "main"})),
        ] {
            let said = repository.says(&Sandbox::default(), Path::new(""), (name, arguments)).await.unwrap_err();
            assert_eq!(repository.sung(), None, "{name} {remote}: {said}");
        }
    }
    // The traps work.
    for remote in ["direct", "named", "renamed", "old", "ssh"] {
        repository.try_git(&["fetch", "-q", remote]);
        assert!(repository.sung().is_some(), "{remote}");
    }
}

/// What is done to a repository, given its top and another's.
type Setup = fn(&Path, &Path);

/// Ways in which a repository shows what lies in another place.
fn ways_out() -> Vec<(&'static str, Setup)> {
    fn instead(part: &Path, to: &Path) {
        if part.is_dir() {
            fs::remove_dir_all(part).unwrap();
        } else if part.exists() {
            fs::remove_file(part).unwrap();
        }
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        symlink(to, part).unwrap();
    }
    fn file(top: &Path, text: &[u8]) {
        fs::remove_dir_all(top.join(".git")).unwrap();
        fs::write(top.join(".git"), text).unwrap();
    }
    vec![
        (".git", |top, other| instead(&top.join(".git"), &other.join(".git"))),
        (".git", |top, other| file(top, format!("gitdir: {}/.git\n", other.display()).as_bytes())),
        (".git", |top, other| file(top, format!("gitdir: {}/.git\0x", other.display()).as_bytes())),
        (".git", |top, other| {
            use std::os::unix::ffi::OsStrExt;
            symlink(other, top.join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
            file(top, b"gitdir: \xff/.git\n");
        }),
        (".git/objects/info/alternates", |top, other| {
            fs::write(top.join(".git/objects/info/alternates"), format!("# x\n{}/.git/objects\n", other.display()))
                .unwrap();
        }),
        (".git/objects/info/alternates", |top, other| {
            symlink(other.join(".git"), top.join("led")).unwrap();
            fs::write(top.join(".git/objects/info/alternates"), "../../led/objects\n").unwrap();
        }),
        (".git/objects", |top, other| instead(&top.join(".git/objects"), &other.join(".git/objects"))),
        (".git/objects/ab", |top, other| instead(&top.join(".git/objects/ab"), &other.join(".git/objects"))),
        (".git/objects/pack", |top, other| instead(&top.join(".git/objects/pack"), &other.join(".git/objects/pack"))),
        (".git/refs/heads", |top, other| instead(&top.join(".git/refs/heads"), &other.join(".git/refs/heads"))),
        (".git/config", |top, other| instead(&top.join(".git/config"), &other.join("secret"))),
        (".git/packed-refs", |top, other| instead(&top.join(".git/packed-refs"), &other.join("secret"))),
        (".git/shallow", |top, other| instead(&top.join(".git/shallow"), &other.join("secret"))),
        (".git/info/attributes", |top, other| instead(&top.join(".git/info/attributes"), &other.join("secret"))),
        (".git/worktrees/x/gitdir", |top, other| instead(&top.join(".git/worktrees/x/gitdir"), &other.join("secret"))),
    ]
}

#[tokio::test]
async fn parts_that_lead_out_of_the_roots_are_followed_by_no_tool() {
    for (index, (part, setup)) in ways_out().into_iter().enumerate() {
        let (repository, other) = (Repository::new(), Repository::new());
        other.write("secret", "topsecret\n");
        other.git(&["add", "."]);
        other.git(&["commit", "-qm", "topsecret"]);
        setup(&repository.top(), &other.top());
        fs::create_dir_all(repository.top().join("sub")).unwrap();
        let calls = looks().into_iter().chain([
            ("git_show", json!({"revision": "HEAD:secret"})),
            ("git_add", json!({})),
            ("git_branch", json!({"name": "x", "create": true})),
        ]);
        let begins = format!("{} leads git out of the working directory", repository.top().join(part).display());
        for (name, arguments) in calls {
            let said = repository.says(&Sandbox::default(), Path::new(""), (name, arguments)).await.unwrap_err();
            assert!(said.starts_with(&begins) && !said.contains("topsecret"), "{index} {part}: {name}: {said}");
        }
        // From below as well.
        let said = repository.says(&Sandbox::default(), Path::new("sub"), ("git_log", json!({}))).await.unwrap_err();
        assert!(said.starts_with(&begins), "{index} {part}: {said}");
        assert_eq!(other.git(&["branch", "--format=%(refname:short)"]), "main\n");
    }
}

#[tokio::test]
async fn parts_that_lie_elsewhere_are_followed_in_the_roots_and_back() {
    // Where the other place is a root.
    for (index, (part, setup)) in ways_out().into_iter().take(6).enumerate() {
        let (repository, other) = (Repository::new(), Repository::new());
        setup(&repository.top(), &other.top());
        let workspace = Arc::new(Workspace::new(&repository.top(), &[other.top()]).unwrap());
        let tool = git_tools(&workspace, &GitOptions::default())
            .into_iter()
            .find(|tool| tool.definition().name == "git_log")
            .unwrap();
        let said = repository.call(tool.as_ref(), json!({})).await;
        assert!(said.as_ref().is_ok_and(|said| said.contains("first")), "{index} {part}: {said:?}");
    }
    // Links in itself, a directory apart that leads back, and a worktree elsewhere.
    let (repository, apart) = (Repository::new(), tempfile::tempdir().unwrap());
    let (top, apart) = (repository.top(), apart.path().canonicalize().unwrap());
    fs::remove_file(top.join(".git/HEAD")).unwrap();
    symlink("refs/heads/main", top.join(".git/HEAD")).unwrap();
    repository.write("ignored", "x\n");
    let _none = fs::remove_file(top.join(".git/info/exclude"));
    symlink("../../ignored", top.join(".git/info/exclude")).unwrap();
    let elsewhere = apart.join("tree");
    repository.git(&["worktree", "add", "-q", "-b", "t", elsewhere.to_str().unwrap()]);
    let said = repository.says(&Sandbox::default(), Path::new(""), ("git_log", json!({}))).await;
    assert!(said.is_ok(), "{said:?}");
    let said = repository.says(&Sandbox::default(), &elsewhere, ("git_log", json!({}))).await;
    assert!(said.is_ok(), "{said:?}");
    let git = apart.join("git");
    repository.git(&["init", "-q", "--separate-git-dir", git.to_str().unwrap(), "separate"]);
    let off = Sandbox::default();
    let log = || repository.says(&off, Path::new("separate"), ("git_status", json!({})));
    assert!(log().await.unwrap_err().contains("leads git out of the working directory"));
    repository.git(&["-C", "separate", "config", "core.worktree", top.join("separate").to_str().unwrap()]);
    let said = log().await;
    assert!(said.is_ok(), "{said:?}");
}

#[tokio::test]
async fn lines_of_an_included_file_are_not_told() {
    let (repository, other) = (Repository::new(), tempfile::tempdir().unwrap());
    let file = other.path().join("file");
    repository.git(&["config", "include.path", file.to_str().unwrap()]);
    for (content, begins) in [
        ("topsecret\n", "the repository's configuration, or a file"),
        ("[a]\n\"topsecret\"\n", "fatal: bad config line 2 in file"),
    ] {
        fs::write(&file, content).unwrap();
        for call in looks() {
            let said = repository.says(&Sandbox::default(), Path::new(""), call.clone()).await.unwrap_err();
            assert!(said.starts_with(begins) && !said.contains("topsecret"), "{call:?}: {said}");
        }
    }
    fs::write(&file, "[a]\nb = c\n").unwrap();
    repository.says(&Sandbox::default(), Path::new(""), ("git_log", json!({}))).await.unwrap();
}
