//! A directory is exchanged for a link between the judgement of a call and its run: the run is held to where the paths led.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::fs_common::testing::{call_in, context, preview_in, workspace};
use super::*;
use crate::tool::{JudgedPaths, Subject, ToolContext, ToolError};

#[test]
fn a_run_is_held_to_where_its_paths_led() {
    let patch = |body: &str| json!({ "patch": format!("*** Begin Patch\n{body}\n*** End Patch") });
    let write = json!({"path": "pub/f", "content": "mine"});
    let table = [
        ("fs_read", json!({"path": "pub/f"})),
        ("fs_stat", json!({"path": "pub/f"})),
        ("fs_list", json!({"path": "pub"})),
        ("fs_glob", json!({"pattern": "pub/*"})),
        ("fs_grep", json!({"pattern": ".", "path": "pub/f"})),
        ("view_image", json!({"path": "pub/f"})),
        ("fs_write", write.clone()),
        ("fs_write", json!({"path": "pub/new/deep", "content": "mine"})),
        ("fs_edit", json!({"path": "pub/f", "old_string": "secret", "new_string": "mine"})),
        ("fs_multi_edit", json!({"path": "pub/f", "edits": [{"old_string": "secret", "new_string": "mine"}]})),
        ("fs_delete", json!({"path": "pub/f"})),
        ("fs_delete", json!({"path": "pub/d", "recursive": true})),
        ("fs_move", json!({"source": "pub/f", "destination": "y"})),
        ("fs_move", json!({"source": "x", "destination": "pub/y"})),
        ("apply_patch", patch("*** Add File: pub/new\n+mine")),
        ("apply_patch", patch("*** Update File: pub/f\n@@\n-secret\n+mine")),
        ("apply_patch", patch("*** Delete File: pub/f")),
        ("apply_patch", patch("*** Update File: pub/f\n*** Move to: y")),
        ("apply_patch", patch("*** Update File: x\n*** Move to: pub/y")),
    ];
    for (name, arguments) in table {
        let (home, workspace) =
            workspace(&[("pub/f", "open\n"), ("pub/d/x", ""), ("sec/f", "secret\n"), ("sec/d/x", ""), ("x", "open\n")]);
        let tools = filesystem_tools(&workspace);
        let tool = tools.iter().find(|tool| tool.definition().name == name).expect("there is such a tool");
        let Value::Object(given) = arguments.clone() else { panic!("an object") };
        let context = ToolContext { judged: JudgedPaths::of(&tool.subject(&given)), ..context() };
        fs::rename(home.path().join("pub"), home.path().join("away")).unwrap();
        symlink("sec", home.path().join("pub")).unwrap();
        let shown = preview_in(tool.as_ref(), arguments.clone(), &context).unwrap_or_default();
        assert!(!shown.to_string().contains("secret"), "{name}: {shown}");
        let said = call_in(tool.as_ref(), arguments.clone(), &context).expect_err(name);
        assert!(matches!(said, ToolError::Conflict(_)), "{name} {arguments}: {said}");
        assert!(said.to_string().contains("does not lead any more to where it led"), "{name}: {said}");
        assert_eq!(fs::read_to_string(home.path().join("sec/f")).unwrap(), "secret\n", "{name} {arguments}");
        assert_eq!(fs::read_dir(home.path().join("sec")).unwrap().count(), 2, "{name} {arguments}");
        assert!(home.path().join("sec/d/x").exists() && home.path().join("x").exists(), "{name} {arguments}");
        // Judged anew, it is found where it is.
        let context = ToolContext { judged: JudgedPaths::of(&tool.subject(&given)), ..context };
        let said = call_in(tool.as_ref(), arguments.clone(), &context);
        assert!(!matches!(said, Err(ToolError::Conflict(_))), "{name} {arguments}: {said:?}");
        assert!(name == "view_image" || said.is_ok(), "{name} {arguments}: {said:?}");
    }
}

#[test]
fn a_link_that_a_patch_deletes_is_not_followed_by_what_comes_after() {
    let (home, workspace) = workspace(&[("sec/f", "secret\n")]);
    symlink("sec/f", home.path().join("link")).unwrap();
    let tool = ApplyPatch::with_records(workspace, home.path().join("records"));
    let patch = "*** Begin Patch\n*** Delete File: link\n*** Update File: link\n@@\n-secret\n+mine\n*** End Patch";
    let Value::Object(given) = json!({ "patch": patch }) else { panic!("an object") };
    let Subject::Paths(paths) = tool.subject(&given) else { panic!("paths") };
    let real = home.path().canonicalize().unwrap();
    let judged: Vec<_> = paths.into_iter().filter_map(|path| path.resolved).collect();
    assert_eq!(judged, [real.join("link"), real.join("sec/f")]);
}
