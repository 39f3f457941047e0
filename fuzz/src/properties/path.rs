//! Paths and links of any kind: what resolves lies inside the roots, is what the kernel finds there, and names no link.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use arbitrary::{Result, Unstructured};
use simse::base::workspace::{PathError, Workspace};

/// Directories of the tree, the roots among them. What lies in no root is out of bounds.
const DIRECTORIES: [&str; 7] = ["wd", "wd/a", "wd/a/b", "wd/..dots", "wd2", "beside", "outside/deep"];
const FILES: [&str; 7] = ["wd/f", "wd/a/f", "wd/a/b/f", "wd2/f", "beside/f", "outside/f", "outside/deep/f"];
/// Names that paths and links are made of.
const NAMES: [&str; 16] =
    ["a", "b", "f", "l0", "l1", "l2", "l3", "..", "..", "..", ".", "", "wd", "beside", "outside", "..dots"];
/// Where links are put, by their numbers.
const LINKS: [&str; 4] = ["wd/l0", "wd/a/l1", "wd/a/b/l2", "beside/l3"];

/// A tree that stays, and the lock on its links.
struct Tree {
    home: PathBuf,
    workspace: Workspace,
    links: Mutex<()>,
    _kept: tempfile::TempDir,
}

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let kept = tempfile::tempdir().expect("a temporary directory can be made");
    let home = kept.path().canonicalize().expect("it was just made");
    for directory in DIRECTORIES {
        fs::create_dir_all(home.join(directory)).expect("the tree can be made");
    }
    for file in FILES {
        fs::write(home.join(file), file).expect("the tree can be written");
    }
    let workspace = Workspace::new(&home.join("wd"), &[PathBuf::from("../beside")]).expect("the roots are there");
    Tree { home, workspace, links: Mutex::default(), _kept: kept }
});

/// The property of the target `path`.
pub fn holds(data: &[u8]) {
    let tree = &*TREE;
    let mut u = Unstructured::new(data);
    let _one_at_a_time = tree.links.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for link in LINKS {
        let _gone = fs::remove_file(tree.home.join(link));
    }
    let Ok((targets, paths)) = input(&mut u, tree) else { return };
    for (link, target) in LINKS.iter().zip(&targets) {
        if !target.is_empty() && !target.contains('\0') {
            symlink(target, tree.home.join(link)).expect("a link can be made");
        }
    }
    for path in &paths {
        check(tree, path, &targets);
    }
}

fn input(u: &mut Unstructured<'_>, tree: &Tree) -> Result<(Vec<String>, Vec<String>)> {
    let targets = (0..LINKS.len()).map(|_| path(u, tree)).collect::<Result<_>>()?;
    let paths = (0..u.int_in_range(1..=4)?).map(|_| path(u, tree)).collect::<Result<_>>()?;
    Ok((targets, paths))
}

/// A path of the known names, now and then with something odd in it.
fn path(u: &mut Unstructured<'_>, tree: &Tree) -> Result<String> {
    let mut names = Vec::new();
    for _ in 0..u.int_in_range(0..=7)? {
        let name = if u.ratio(1, 16)? {
            let bytes = u.int_in_range(0..=9)?;
            String::from_utf8_lossy(u.bytes(bytes.min(u.len()))?).into_owned()
        } else {
            (*u.choose(&NAMES)?).to_owned()
        };
        names.push(name);
    }
    let path = names.join("/");
    Ok(match u.int_in_range(0..=7)? {
        0 => format!("{}/wd/{path}", tree.home.display()),
        1 => format!("{}/{path}", tree.home.display()),
        2 => format!("/{path}"),
        3 => format!("{path}/"),
        _ => path,
    })
}

fn check(tree: &Tree, input: &str, links: &[String]) {
    let told = |what: &str| format!("{what}: {input:?} with links {links:?}");
    let resolved = tree.workspace.resolve(input);
    if input.contains('\0') {
        assert!(matches!(resolved, Err(PathError::Nul(_))), "{}", told("a NUL is accepted"));
        return;
    }
    let inside = |path: &Path| path.starts_with(tree.home.join("wd")) || path.starts_with(tree.home.join("beside"));
    let named = by_name(&tree.home.join("wd").join(input));
    match (&resolved, named.canonicalize()) {
        (Ok(path), Ok(real)) => assert_eq!(*path, real, "{}", told("not what the kernel finds")),
        (Err(PathError::Escapes { .. }), Ok(real)) => assert!(!inside(&real), "{}", told("refused, and it is inside")),
        (Err(other), Ok(real)) => panic!("{}: {other}, and it is {real:?}", told("refused")),
        (Ok(path), Err(_)) => no_link_before(path, &told("a link is left")),
        (Err(_), Err(_)) => {}
    }
    if let Ok(path) = &resolved {
        assert!(inside(path), "{} to {path:?}", told("outside"));
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        assert!(path.components().all(plain), "{} to {path:?}", told("not plain"));
        assert!(tree.workspace.contains(path), "{}", told("the roots do not contain it"));
    }
    if let Ok(path) = tree.workspace.resolve_entry(input) {
        assert!(inside(&path), "{} to {path:?}", told("an entry outside"));
        let parent = path.parent().unwrap_or(&path);
        no_link_before(parent, &told("a link is left before an entry"));
    }
    opened(tree, input, &told("what was opened lies outside"));
}

/// What opens was written by this file, inside the roots.
fn opened(tree: &Tree, input: &str, told: &str) {
    let Ok(mut file) = tree.workspace.open(input) else { return };
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    assert!(read.is_ok() && (text.starts_with("wd/") || text.starts_with("beside/")), "{told}: {text:?}");
}

/// As far as a path exists it names no link.
fn no_link_before(path: &Path, told: &str) {
    for part in path.ancestors() {
        match part.symlink_metadata() {
            Ok(found) => assert!(!found.is_symlink(), "{told}: {part:?}"),
            Err(error) => {
                let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::InvalidFilename];
                assert!(kinds.contains(&error.kind()), "{told}: {part:?}: {error}");
            }
        }
    }
}

/// `..` taken out by name, as `path.resolve` does.
fn by_name(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}
