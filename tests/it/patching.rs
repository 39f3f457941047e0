//! Real diffs, made by git: `git apply` and `apply_patch` make the same of them.
//!
//! The diffs are between versions of real files, with moves, new and deleted files, modes, odd names, carriage returns and
//! files without a line feed at their end; and again on trees that have changed in between, so that nothing is where the
//! line numbers say.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use simse::base::workspace::Workspace;
use simse::host::ApplyPatch;
use simse::tool::{Tool, ToolContext};
use tokio_util::sync::CancellationToken;

use super::support::edit_corpus::pairs_of_texts;

/// Pairs of texts that the trees are made from.
const PAIRS: usize = 40;

fn git(folder: &Path, arguments: &[&str]) -> (bool, Vec<u8>) {
    let mut command = Command::new("git");
    command.current_dir(folder).args(["-c", "core.autocrlf=false", "-c", "user.name=t", "-c", "user.email=t@t"]);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = command.args(arguments).output().expect("git runs");
    (output.status.success(), output.stdout)
}

type Tree = BTreeMap<String, (Vec<u8>, bool)>;

fn write(folder: &Path, tree: &Tree) {
    for (path, (bytes, executable)) in tree {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(if *executable { 0o755 } else { 0o644 })).unwrap();
    }
}

fn read(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.ends_with(".git") {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let executable = fs::metadata(&path).unwrap().permissions().mode() & 0o100 != 0;
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            tree.insert(name, (fs::read(&path).unwrap(), executable));
        }
    }
    tree
}

/// What git says is the difference between two trees.
fn diff(old: &Tree, new: &Tree, options: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    assert!(git(home.path(), &["init", "-q"]).0);
    write(home.path(), old);
    assert!(git(home.path(), &["add", "-A"]).0 && git(home.path(), &["commit", "-qm", "old", "--allow-empty"]).0);
    for top in old.keys().filter_map(|path| path.split('/').next()) {
        let top = home.path().join(top);
        if top.is_dir() { fs::remove_dir_all(top).unwrap() } else { drop(fs::remove_file(top)) }
    }
    write(home.path(), new);
    assert!(git(home.path(), &["add", "-A"]).0);
    let (_, bytes) = git(home.path(), &[&["diff", "--cached", "--no-ext-diff"], options].concat());
    String::from_utf8(bytes).unwrap()
}

/// The tree after `git apply`. None: git refuses.
fn by_git(tree: &Tree, diff: &str) -> Option<Tree> {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("tree");
    fs::create_dir(&place).unwrap();
    write(&place, tree);
    fs::write(home.path().join("diff"), diff).unwrap();
    let (done, _) = git(&place, &["apply", "--whitespace=nowarn", "../diff"]);
    done.then(|| read(&place))
}

/// The tree after our tool. The error, when it refuses; then nothing may have changed.
fn by_us(tree: &Tree, diff: &str) -> Result<Tree, String> {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("tree");
    fs::create_dir(&place).unwrap();
    write(&place, tree);
    let workspace = Arc::new(Workspace::new(&place, &[]).unwrap());
    let tool = ApplyPatch::with_records(workspace, home.path().join("records"));
    let context = ToolContext {
        call_id: "c".into(),
        session: None,
        cancel: CancellationToken::new(),
        scope: Arc::default(),
        events: Default::default(),
        veil: None,
        previewed: Default::default(),
        judged: Default::default(),
        clients: Default::default(),
    };
    let Value::Object(arguments) = json!({ "patch": diff }) else { panic!("an object") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(tool.run(arguments, &context));
    let after = read(&place);
    match done {
        Ok(_) => Ok(after),
        Err(error) => {
            assert!(after == *tree, "a refused patch changed something");
            Err(error.to_string())
        }
    }
}

/// A tree before and after: each pair of texts in another way.
fn trees() -> (Tree, Tree) {
    let (mut old, mut new) = (Tree::new(), Tree::new());
    let plain = |text: &str| (text.as_bytes().to_vec(), false);
    for (n, (before, after)) in pairs_of_texts(PAIRS).into_iter().enumerate() {
        let name = format!("dir{}/file {n}.txt", n % 5);
        match n % 8 {
            0 => {
                new.insert(name, plain(&after));
            }
            1 => {
                old.insert(name, plain(&before));
            }
            2 => {
                old.insert(name.clone(), plain(&before));
                new.insert(format!("moved/ä \"{n}\"\t.txt"), plain(&after));
            }
            3 => {
                old.insert(name.clone(), plain(&before.replace('\n', "\r\n")));
                new.insert(name, plain(&after.replace('\n', "\r\n")));
            }
            4 => {
                old.insert(name.clone(), plain(before.trim_end_matches('\n')));
                new.insert(name, plain(&after));
            }
            5 => {
                old.insert(name.clone(), plain(&before));
                new.insert(name, (after.trim_end_matches('\n').as_bytes().to_vec(), true));
            }
            _ => {
                old.insert(name.clone(), plain(&before));
                new.insert(name, plain(&after));
            }
        }
    }
    // A file that becomes a directory, and a directory that becomes a file.
    let long: String = (0..20).map(|n| format!("line {n}\n")).collect();
    old.insert("turn/a".into(), plain("alpha\n"));
    new.insert("turn/a/b".into(), plain("beta\n"));
    new.insert("turn/a/c/d".into(), plain("gamma\n"));
    old.insert("back/x/y".into(), plain(&long));
    old.insert("back/x/z/w".into(), plain("delta\n"));
    new.insert("back/x".into(), plain(&format!("{long}more\n")));
    old.insert("empty".into(), plain(""));
    new.insert("empty too".into(), plain(""));
    (old, new)
}

#[test]
fn git_apply_and_we_agree() {
    let (old, new) = trees();
    for options in
        [&["-M"][..], &["--no-renames"], &["-C", "-C"], &["-U1"], &["-U10", "--patience"], &["--minimal", "-U0"]]
    {
        let text = diff(&old, &new, options);
        let git = by_git(&old, &text);
        let ours = by_us(&old, &text);
        match (options.contains(&"-U0"), git, ours) {
            // Without context a hunk's place is its number alone: both want to be told that this is meant.
            (true, None, Err(_)) => {}
            (_, Some(git), Ok(ours)) => {
                assert!(git == new, "{options:?}");
                assert!(ours == new, "{options:?}: {:?}", differing(&ours, &new));
            }
            (_, git, ours) => panic!("{options:?}: git {}, we {:?}", git.is_some(), ours.map(drop)),
        }
        let back = diff(&new, &old, options);
        if !options.contains(&"-U0") {
            assert!(by_us(&new, &back).as_ref() == Ok(&old), "{options:?} back: {:?}", by_us(&new, &back).map(drop));
        }
    }
}

fn differing(a: &Tree, b: &Tree) -> Vec<String> {
    let names = a.keys().chain(b.keys());
    names.filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// On a tree that has moved on: where both apply a file's diff, they make the same of it, and we refuse no more than few of
/// those that git applies (it takes the nearest of several places, we only one that is clearly the nearest).
#[test]
fn we_agree_on_files_that_have_moved_on() {
    let (mut both, mut refused) = (0, Vec::new());
    for (n, (before, after)) in pairs_of_texts(PAIRS / 2).into_iter().enumerate() {
        let tree = |text: &str| Tree::from([("f".to_owned(), (text.as_bytes().to_vec(), false))]);
        let text = diff(&tree(&before), &tree(&after), &[]);
        let lines: Vec<&str> = before.split_inclusive('\n').collect();
        let at = lines.len() / 2;
        let more = "// something that was not there\n".repeat(1 + n % 7);
        let drifted = [
            format!("{more}{before}"),
            format!("{}{more}{}", lines[..at].concat(), lines[at..].concat()),
            lines[n % at.max(1)..].concat(),
            format!("{before}{before}"),
        ];
        for drifted in drifted {
            let drifted = tree(&drifted);
            match (by_git(&drifted, &text), by_us(&drifted, &text)) {
                (Some(git), Ok(ours)) => {
                    assert!(git == ours, "pair {n}\n{text}");
                    both += 1;
                }
                (Some(_), Err(error)) => refused.push(error),
                (None, _) => {}
            }
        }
    }
    assert!(both >= 15 && refused.len() * 5 <= both, "{both} agreed, {} refused: {refused:#?}", refused.len());
}
