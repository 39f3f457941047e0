//! The scripted model drives the main job: the true file tools, a true repository, a true test runner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use simse::agent::{Ended, run_turn};
use simse::base::BoxFuture;
use simse::base::workspace::Workspace;
use simse::cli::example_repository;
use simse::host::bash::{Bash, BashOptions};
use simse::protocol::ToolDefinition;
use simse::provider::demo;
use simse::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};
use tokio_util::sync::CancellationToken;

use crate::support::turns::{Log, turn, user};

/// A git command as a tool.
struct Git(ToolDefinition, PathBuf, fn(&Arguments) -> Vec<String>);

impl Tool for Git {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }
    fn run<'a>(&'a self, arguments: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(git(&self.1, &(self.2)(&arguments)).into()) })
    }
}

fn git(directory: &Path, arguments: &[String]) -> String {
    let output = std::process::Command::new("git").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn tools(directory: &Path) -> Vec<Arc<dyn Tool>> {
    let definition = |name: &str| serde_json::from_value(json!({ "name": name, "description": "" })).unwrap();
    let workspace = Arc::new(Workspace::new(directory, &[]).unwrap());
    let commit: fn(&Arguments) -> Vec<String> =
        |a| vec!["commit".into(), "-m".into(), a["message"].as_str().unwrap().to_owned()];
    vec![
        Arc::new(Bash::new(workspace, BashOptions::default())),
        Arc::new(Git(definition("git_diff"), directory.to_owned(), |_| vec!["diff".into()])),
        Arc::new(Git(definition("git_commit"), directory.to_owned(), commit)),
    ]
}

async fn job(directory: &Path) -> (Ended, String) {
    let log = Arc::new(Log::default());
    let mut input = turn(demo(), &log, directory, tools(directory));
    input.messages = vec![user(example_repository::PROMPT)];
    let outcome = run_turn(input, CancellationToken::new()).await;
    (outcome.ended, outcome.final_text)
}

#[tokio::test]
async fn the_example_is_repaired_and_committed() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("Done."), "{text}");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(git(directory.path(), &words("status --porcelain")), "");
    assert_eq!(git(directory.path(), &words("log --oneline")).lines().count(), 2);
    assert_eq!(
        git(directory.path(), &words("diff HEAD~1 --shortstat")).trim(),
        "1 file changed, 1 insertion(+), 1 deletion(-)"
    );
}

#[tokio::test]
async fn an_example_that_it_cannot_repair_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    example_repository::create(directory.path()).await.unwrap();
    let cart = directory.path().join("src/cart.js");
    let source = std::fs::read_to_string(&cart).unwrap().replace("line.priceCents + line.quantity", "line.priceCents");
    std::fs::write(&cart, &source).unwrap();
    let (ended, text) = job(directory.path()).await;
    assert_eq!(ended, Ended::Completed);
    assert!(text.starts_with("I could not make it pass"), "{text}");
    assert_eq!(std::fs::read_to_string(&cart).unwrap(), source);
}
