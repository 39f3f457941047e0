//! The small git repository that the main job works on: a few files, a real test runner, one failing test.
//!
//! Its files stand in `example/`. The fault is one wrong operator in `subtotal` (`src/cart.js`), which
//! the failing test names. The repository has an identity of its own and no hooks, signing or templates
//! from outside, so that it is the same on every machine and nobody's configuration is touched.

use std::path::{Path, PathBuf};

use super::program;

/// The files: path in the repository, content.
const FILES: &[(&str, &str)] = &[
    (".gitignore", include_str!("example/gitignore")),
    ("README.md", include_str!("example/README.md")),
    ("package.json", include_str!("example/package.json")),
    ("src/cart.js", include_str!("example/src/cart.js")),
    ("src/discount.js", include_str!("example/src/discount.js")),
    ("src/receipt.js", include_str!("example/src/receipt.js")),
    ("test/cart.test.js", include_str!("example/test/cart.test.js")),
    ("test/discount.test.js", include_str!("example/test/discount.test.js")),
    ("test/receipt.test.js", include_str!("example/test/receipt.test.js")),
];

/// What makes it a repository, one git command a line. Local settings win over those of the user.
const GIT_STEPS: &[&[&str]] = &[
    &["init", "--quiet", "--initial-branch=main", "--template="],
    &["config", "user.name", "Example Author"],
    &["config", "user.email", "author@example.invalid"],
    &["config", "commit.gpgsign", "false"],
    &["config", "core.autocrlf", "false"],
    &["config", "core.hooksPath", "/dev/null"],
    &["add", "--all"],
    &["commit", "--quiet", "--message", "Add the sums of the shop"],
];

/// What the agent is asked to do in it.
pub const PROMPT: &str = "A test of this repository fails. Find out why, correct the code (not the test), \
    run the tests again until they pass, and commit the change with a short message.";

/// The command that runs its tests.
pub const TEST_COMMAND: &[&str] = &["node", "--test"];

/// The repository could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExampleError {
    /// A file could not be written.
    #[error("cannot write {path}: {cause}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// git is missing, or said no.
    #[error("`git {command}` failed: {problem}")]
    Git {
        /// The command without `git`.
        command: String,
        /// What it said.
        problem: String,
    },
}

/// Writes the files into `directory` (made when it is not there) and makes them a repository with one commit.
///
/// # Errors
/// [`ExampleError`] that names the file or the command.
pub async fn create(directory: &Path) -> Result<(), ExampleError> {
    for (path, content) in FILES {
        write(directory.join(path), content).await?;
    }
    for step in GIT_STEPS {
        git(directory, step).await?;
    }
    Ok(())
}

async fn write(path: PathBuf, content: &str) -> Result<(), ExampleError> {
    let made = match path.parent() {
        Some(parent) => tokio::fs::create_dir_all(parent).await,
        None => Ok(()),
    };
    let written = match made {
        Ok(()) => tokio::fs::write(&path, content).await,
        Err(cause) => Err(cause),
    };
    written.map_err(|cause| ExampleError::Write { path, cause })
}

async fn git(directory: &Path, arguments: &[&str]) -> Result<(), ExampleError> {
    let failed = |problem: String| ExampleError::Git { command: arguments.join(" "), problem };
    let ran = program::run(directory, "git", arguments).await.map_err(|cause| failed(cause.to_string()))?;
    if ran.succeeded { Ok(()) } else { Err(failed(ran.output.trim().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(directory: &Path, command: &[&str]) -> (bool, String) {
        let (name, arguments) = command.split_first().unwrap();
        let ran = program::run(directory, name, arguments).await.unwrap();
        (ran.succeeded, ran.output)
    }

    #[tokio::test]
    async fn exactly_one_test_fails_and_names_the_function() {
        let directory = tempfile::tempdir().unwrap();
        create(directory.path()).await.unwrap();
        let (passed, output) = run(directory.path(), TEST_COMMAND).await;
        assert!(!passed, "{output}");
        assert!(output.contains("# fail 1"), "{output}");
        assert!(output.contains("not ok 1 - subtotal") || output.contains("not ok 2 - subtotal"), "{output}");
        let (clean, status) = run(directory.path(), &["git", "status", "--porcelain"]).await;
        assert!(clean && status.is_empty(), "{status}");
    }

    #[tokio::test]
    async fn the_right_operator_makes_all_pass() {
        let directory = tempfile::tempdir().unwrap();
        create(directory.path()).await.unwrap();
        let cart = directory.path().join("src/cart.js");
        let fixed = std::fs::read_to_string(&cart).unwrap().replace("priceCents + line", "priceCents * line");
        std::fs::write(&cart, fixed).unwrap();
        let (passed, output) = run(directory.path(), TEST_COMMAND).await;
        assert!(passed, "{output}");
    }
}
