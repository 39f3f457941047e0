//! The scripted model drives the main job: the true file tools, a true repository, a true test runner.

use std::path::Path;
use std::sync::Arc;

use simse::agent::{Ended, run_turn};
use simse::base::workspace::Workspace;
use simse::cli::example_repository;
use simse::host::{BashOptions, GitOptions, bash_tool, git_tools};
use simse::provider::demo;
use simse::tool::Tool;
use tokio_util::sync::CancellationToken;

use crate::support::turns::{Log, turn, user};

fn git(directory: &Path, command: &str) -> String {
    let output = std::process::Command::new("git").args(command.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn tools(directory: &Path) -> Vec<Arc<dyn Tool>> {
    let workspace = Arc::new(Workspace::new(directory, &[]).unwrap());
    let mut tools = git_tools(&workspace, &GitOptions::default());
    tools.push(bash_tool(&workspace, BashOptions::default()));
    tools
}

async fn job(directory: &Path) -> (Ended, String) {
    let log = Arc::new(Log::default());
    let mut input = turn(demo(), &log, directory, tools(directory));
    input.messages = vec![user(example_repository::PROMPT)].into();
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
    assert_eq!(git(directory.path(), "status --porcelain"), "");
    assert_eq!(git(directory.path(), "log --oneline").lines().count(), 2);
    let change = git(directory.path(), "diff HEAD~1 --shortstat");
    assert_eq!(change.trim(), "1 file changed, 1 insertion(+), 1 deletion(-)");
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
