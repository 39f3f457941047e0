//! Skills and slash commands: listed, told of, loaded, narrowing, and filled in.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use simse::app::App;

use crate::support::house::{Does, House};
use crate::support::model_server::{Answer, ModelServer, queue};
use crate::support::sessions::{open, provider, session, turn};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A project with two skills and a command.
fn project(work: &Path) {
    let at = |path: &str| work.join(path);
    write(
        &at(".simse/skills/pdf/SKILL.md"),
        "---\ndescription: Reads PDFs\nallowed-tools: Read\n---\nRead the PDF $1.",
    );
    write(&at(".simse/skills/pdf/forms.md"), "About forms.");
    write(
        &at(".claude/skills/deploy/SKILL.md"),
        "---\ndescription: Ships it\ndisable-model-invocation: true\n---\nShip $ARGUMENTS.",
    );
    write(&at(".simse/skills/bad/SKILL.md"), "---\nname: bad\n---\nNo description.");
    write(
        &at(".simse/commands/fix.md"),
        "---\ndescription: Fixes it\nargument-hint: FILE\n---\nFix $1 and say $ARGUMENTS.",
    );
}

fn names(list: &Value, of: &str) -> Vec<String> {
    list[of].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn skills_and_commands_are_listed_for_a_directory_and_for_a_session() {
    let house = House::open().await;
    let work = house.work.path();
    project(work);
    write(&work.join(".simse/agents/few.md"), "---\nname: few\nskills: [deploy]\n---\n");
    let skills = house.call("GET", "/skills", None).await.json();
    assert_eq!(names(&skills, "skills"), ["pdf", "deploy"]);
    assert_eq!(
        (&skills["skills"][0]["allowedTools"], &skills["skills"][1]["modelInvocable"]),
        (&json!(["Read"]), &json!(false))
    );
    assert!(skills["faults"][0]["reason"].as_str().is_some_and(|reason| reason.contains("`description`")), "{skills}");
    let commands = house.call("GET", "/commands", None).await.json();
    assert_eq!(names(&commands, "commands"), ["fix", "pdf", "deploy"]);
    assert_eq!(
        (&commands["commands"][0]["argumentHint"], &commands["commands"][1]["kind"]),
        (&json!("FILE"), &json!("skill"))
    );
    let id = house.session(json!({"agent": "few"})).await;
    let own = house.call("GET", &format!("/skills?sessionId={id}"), None).await.json();
    assert_eq!(names(&own, "skills"), ["deploy"]);
    for (query, status) in [("sessionId=none", 404), ("workingDirectory=/no/such", 400), ("strange=1", 400)] {
        assert_eq!(house.call("GET", &format!("/skills?{query}"), None).await.status, status, "{query}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_skill_narrows_the_tools_until_the_turn_ends() {
    let house = House::open().await;
    project(house.work.path());
    let id = house.session(json!({"model": "test/puppet", "permissionMode": "auto"})).await;
    house.round(&[Does::Calls("skill", json!({"name": "pdf", "arguments": "a.pdf"}))]);
    house.round(&[
        Does::Calls("bash", json!({"command": "echo one"})),
        Does::Calls("skill", json!({"name": "pdf", "file": "forms.md"})),
    ]);
    house.prompt(&id, "go").await;
    house.round(&[Does::Calls("bash", json!({"command": "echo two"}))]);
    house.prompt(&id, "go").await;
    let history = house.call("GET", &format!("/sessions/{id}/history"), None).await.json();
    let outputs: Vec<&str> =
        history["items"].as_array().unwrap().iter().filter_map(|item| item["output"].as_str()).collect();
    assert!(outputs[0].starts_with("Read the PDF a.pdf.") && outputs[0].contains("forms.md"), "{outputs:?}");
    assert!(outputs[1].contains("the skill `pdf` is in use, which allows only Read"), "{outputs:?}");
    assert_eq!(outputs[2], "About forms.");
    assert!(outputs[3].contains("two"), "{outputs:?}");
    house.close().await;
}

#[tokio::test]
async fn patterns_of_a_skills_tools_are_held_against_each_call() {
    let house = House::open().await;
    let work = house.work.path();
    write(
        &work.join(".claude/skills/release/SKILL.md"),
        "---\ndescription: Ships\nallowed-tools: Bash(echo one:*), Write(docs/**)\n---\nShip.",
    );
    let id = house.session(json!({"model": "test/puppet", "permissionMode": "auto"})).await;
    house.round(&[Does::Calls("skill", json!({"name": "release"}))]);
    house.round(&[
        Does::Calls("bash", json!({"command": "echo one two"})),
        Does::Calls("bash", json!({"command": "echo one && echo three"})),
        Does::Calls("fs_write", json!({"path": "docs/a.md", "content": "a\n"})),
        Does::Calls("fs_write", json!({"path": "a.md", "content": "a\n"})),
        Does::Calls("fs_read", json!({"path": "docs/a.md"})),
    ]);
    house.prompt(&id, "go").await;
    let history = house.call("GET", &format!("/sessions/{id}/history"), None).await.json();
    let outputs: Vec<&str> =
        history["items"].as_array().unwrap().iter().filter_map(|item| item["output"].as_str()).collect();
    let refused = "the skill `release` is in use, which allows only Bash(echo one:*), Write(docs/**)";
    assert!(outputs[1].contains("one two"), "{outputs:?}");
    assert!(outputs[2].contains(refused) && !outputs[2].contains("three\n"), "{outputs:?}");
    assert!(outputs[3].starts_with("Wrote"), "{outputs:?}");
    assert!(outputs[4].contains(refused) && outputs[5].contains(refused), "{outputs:?}");
    assert!(work.join("docs/a.md").exists() && !work.join("a.md").exists());
    house.close().await;
}

async fn with_model(server: &ModelServer, directory: &Path) -> std::sync::Arc<App> {
    open(directory, |settings| {
        let entry = json!({ "name": "p", "api": "openai-chat", "apiKey": "k", "baseUrl": server.base_url() });
        settings.providers = vec![provider(entry)];
        settings.model = Some("p/m".into());
    })
    .await
}

#[tokio::test]
async fn the_model_is_told_of_skills_and_a_prompt_becomes_what_its_command_says() {
    let directory = tempfile::tempdir().unwrap();
    project(directory.path());
    let answers = (0..5).map(|_| Answer::text(&["done"]));
    let server = ModelServer::start(queue(answers)).await;
    let app = with_model(&server, directory.path()).await;
    let id = session(&app, json!({})).await;
    let table = [
        ("/fix a.rs now", "Fix a.rs and say a.rs now."),
        ("/pdf x.pdf", "Read the PDF x.pdf.\n\n(The skill `pdf`; its folder is "),
        ("/deploy all", "Ship all."),
        ("/nobody knows", "/nobody knows"),
        ("/usr/bin is full", "/usr/bin is full"),
    ];
    for (prompt, want) in table {
        turn(&app, &id, json!({"prompt": prompt})).await;
        let sent = server.requests().last().unwrap().json();
        let said = sent["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
        let want = json!(want).to_string();
        assert!(said.contains(want.trim_matches('"')), "{prompt}: {said}");
    }
    let sent = server.requests()[0].json();
    let system = sent["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.contains("\n- pdf: Reads PDFs") && !system.contains("deploy") && !system.contains("Read the PDF"),
        "{system}"
    );
    let tools = sent["tools"].to_string();
    assert!(tools.contains("\"skill\""), "{tools}");
    // Without skills there is no such tool, and no word of them.
    let bare = tempfile::tempdir().unwrap();
    let server = ModelServer::start(queue([Answer::text(&["done"])])).await;
    let app = with_model(&server, bare.path()).await;
    let id = session(&app, json!({})).await;
    turn(&app, &id, json!({"prompt": "hello"})).await;
    let sent = server.requests()[0].json().to_string();
    assert!(!sent.contains("\"skill\"") && !sent.contains("Skills: "), "{sent}");
}
