//! Runs the examples: each prints exactly what stands behind `// Prints:` at its end.
//!
//! `cargo test` builds the examples before it runs this; alone it is `cargo test --examples --test examples`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the examples: beside the folder of this very program.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this program knows its file");
    own.ancestors().nth(2).expect("it lies in target/PROFILE/deps").join("examples")
}

/// What an example says that it prints.
fn promised(source: &str) -> String {
    let (_, comment) = source.split_once("\n// Prints:\n").expect("an example ends with what it prints");
    comment
        .lines()
        .map(|line| line.strip_prefix("//").map_or("", |rest| rest.strip_prefix(' ').unwrap_or(rest)).to_owned() + "\n")
        .collect()
}

#[test]
fn examples_print_what_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the examples are there")
        .map(|entry| entry.expect("a folder can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let source = std::fs::read_to_string(folder.join(&name).with_extension("rs")).expect("it was just listed");
        let program = built().join(&name);
        let output = Command::new(&program).output();
        let output =
            output.unwrap_or_else(|cause| panic!("{}: {cause}; cargo test --examples builds it", program.display()));
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), promised(&source), "{name}");
    }
}
