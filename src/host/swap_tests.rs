//! Directories are exchanged for links that lead out while the file tools work: nothing outside is read, made, changed
//! or taken away.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::fs_common::testing::{call_in, context};
use super::*;
use crate::base::beneath::{Way, way};
use crate::base::workspace::StaleCheck;

/// What a tool does again and again.
struct Work {
    tool: Arc<dyn Tool>,
    arguments: fn(u64) -> Value,
}

fn works(workspace: &Arc<Workspace>, records: &Path) -> Vec<Work> {
    let shared = || Arc::clone(workspace);
    let patch = ApplyPatch::with_records(shared(), records.to_owned());
    fn add(n: u64) -> Value {
        let n = n % 199;
        json!({ "patch": format!("*** Begin Patch\n*** Add File: dir/p{n}/x\n+inside\n*** Update File: dir/deep/b\n@@\n-inside\n+inside\n+{n}\n*** End Patch") })
    }
    let table: Vec<(Arc<dyn Tool>, fn(u64) -> Value)> = vec![
        (Arc::new(FsRead::new(shared())), |_| json!({"path": "dir/a"})),
        (Arc::new(FsStat::new(shared())), |_| json!({"path": "dir/deep/b"})),
        (Arc::new(FsList::new(shared())), |_| json!({"path": "dir", "depth": 2, "sizes": true})),
        (Arc::new(FsGrep::new(shared())), |_| json!({"pattern": "outside", "path": "dir"})),
        (Arc::new(FsGrep::new(shared())), |_| json!({"pattern": "outside", "path": "dir/a"})),
        (Arc::new(FsGlob::new(shared())), |_| json!({"pattern": "dir/**/*"})),
        (Arc::new(FsWrite::new(shared())), |n| json!({"path": "dir/a", "content": format!("inside {n}")})),
        (
            Arc::new(FsWrite::new(shared())),
            |n| json!({"path": format!("dir/new{}/x", n % 7), "content": format!("inside {n}")}),
        ),
        (
            Arc::new(FsEdit::new(shared())),
            |n| json!({"path": "dir/deep/b", "old_string": "inside", "new_string": format!("inside {n}")}),
        ),
        (Arc::new(FsMove::new(shared())), |_| json!({"source": "dir/c", "destination": "dir/deep/c"})),
        (Arc::new(FsMove::new(shared())), |_| json!({"source": "dir/deep/c", "destination": "dir/c"})),
        (Arc::new(FsDelete::new(shared())), |n| json!({"path": format!("dir/new{}", n % 7), "recursive": true})),
        (Arc::new(FsDelete::new(shared())), |_| json!({"path": "dir/deep/only_outside"})),
        (Arc::new(patch), add),
    ];
    table.into_iter().map(|(tool, arguments)| Work { tool, arguments }).collect()
}

/// Everything below a directory, with its content.
fn state(directory: &Path) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            let text = if path.is_dir() { String::new() } else { fs::read_to_string(&path).unwrap() };
            if path.is_dir() {
                todo.push(path.clone());
            }
            out.push((path.display().to_string(), text));
        }
    }
    out.sort();
    out
}

/// The swaps that were made, and what a tool answered that it could only know from outside.
fn swapped(way: Way, swaps_min: u64) -> (usize, Vec<usize>) {
    // In memory where that can be: a disk would be waited for at every write.
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let home = home.path().canonicalize().unwrap();
    fs::create_dir_all(home.join("wd/dir/deep")).unwrap();
    fs::create_dir_all(home.join("out/deep")).unwrap();
    for (path, text) in [
        ("wd/dir/a", "inside"),
        ("wd/dir/c", "inside"),
        ("wd/dir/deep/b", "inside\n"),
        ("out/a", "outside\n"),
        ("out/c", "outside\n"),
        ("out/only_outside", "outside\n"),
        ("out/deep/b", "outside\ninside\n"),
        ("out/deep/only_outside", "outside\n"),
    ] {
        fs::write(home.join(path), text).unwrap();
    }
    let outside = state(&home.join("out"));
    let workspace = Workspace::new(&home.join("wd"), &[]).unwrap().with_stale_check(StaleCheck::Off).by(way);
    let works = works(&Arc::new(workspace), &home.join("records"));
    let (done, swaps, leaks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(0));
    let succeeded: Vec<AtomicUsize> = works.iter().map(|_| AtomicUsize::new(0)).collect();
    let (dir, away, out) = (home.join("wd/dir"), home.join("wd/away"), home.join("out"));
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Somebody may make the directory anew while it is away.
                if fs::rename(&dir, &away).is_err() || symlink(&out, &dir).is_err() {
                    let _made_by_a_tool = fs::remove_dir_all(&dir);
                    let _is_there_again = fs::rename(&away, &dir);
                    continue;
                }
                std::hint::spin_loop();
                let _link = fs::remove_file(&dir);
                while fs::rename(&away, &dir).is_err() && away.exists() {
                    // A tool may be writing into it at this moment: tried again.
                    let _made_by_a_tool = (fs::remove_dir_all(&dir), fs::remove_file(&dir));
                }
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let context = context();
        for n in 0.. {
            assert!(!swapper.is_finished(), "somebody goes on swapping");
            for (work, count) in works.iter().zip(&succeeded) {
                let answer = call_in(work.tool.as_ref(), (work.arguments)(n), &context);
                count.fetch_add(usize::from(answer.is_ok()), Ordering::Relaxed);
                let text = answer.unwrap_or_else(|error| error.to_string());
                let tells = text.contains("only_outside") && !text.contains("\"dir/deep/only_outside\"")
                    || text.contains("outside\n")
                    || text.contains(": outside")
                    || text.contains("\toutside");
                leaks.fetch_add(usize::from(tells), Ordering::Relaxed);
            }
            let each = succeeded.iter().take(12).all(|count| count.load(Ordering::Relaxed) > 0);
            let made = swaps.load(Ordering::Relaxed);
            if made >= swaps_min && (each || made >= 10 * swaps_min) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(state(&home.join("out")), outside, "nothing outside was made, changed or taken away");
    (leaks.into_inner(), succeeded.into_iter().map(AtomicUsize::into_inner).collect())
}

#[test]
fn ten_thousand_swaps_lead_nowhere_when_the_kernel_resolves() {
    let (leaks, succeeded) = swapped(way(), 10_000);
    assert_eq!(leaks, 0, "nothing outside was read: {succeeded:?}");
}

#[test]
fn ten_thousand_swaps_lead_nowhere_when_each_name_is_opened() {
    let (leaks, succeeded) = swapped(Way::Names, 10_000);
    assert_eq!(leaks, 0, "nothing outside was read: {succeeded:?}");
}
