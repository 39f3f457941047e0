//! Tools and arguments under the names that models give them.

use serde_json::{Map, Value};

use crate::base::glob;

use super::validate::{is_known_type, is_schema};
use super::{Arguments, Tool};

/// What models call tools like ours (what they write, our name). A tool that is registered under such a name comes first.
const TOOL_NAMES: [(&str, &str); 25] = [
    ("Read", "fs_read"),
    ("read", "fs_read"),
    ("read_file", "fs_read"),
    ("Write", "fs_write"),
    ("write", "fs_write"),
    ("write_file", "fs_write"),
    ("Edit", "fs_edit"),
    ("edit", "fs_edit"),
    ("edit_file", "fs_edit"),
    ("MultiEdit", "fs_multi_edit"),
    ("multi_edit", "fs_multi_edit"),
    ("Patch", "apply_patch"),
    ("ApplyPatch", "apply_patch"),
    ("Glob", "fs_glob"),
    ("glob", "fs_glob"),
    ("Grep", "fs_grep"),
    ("grep", "fs_grep"),
    ("grep_files", "fs_grep"),
    ("LS", "fs_list"),
    ("List", "fs_list"),
    ("list_dir", "fs_list"),
    ("ViewImage", "view_image"),
    ("Bash", "bash"),
    ("ExecCommand", "exec_command"),
    ("WriteStdin", "write_stdin"),
];

/// Our name of a tool that models call so. None: they call none of ours so.
pub fn proper_name(asked: &str) -> Option<&'static str> {
    TOOL_NAMES.iter().find(|(alias, _)| *alias == asked).map(|(_, name)| *name)
}

/// Whether an entry of a list of tools means the tool of that name: its own name, one that models call it by, or a pattern.
pub fn means(entry: &str, name: &str) -> bool {
    entry == name || proper_name(entry) == Some(name) || (entry.contains('*') && glob::matches(entry, name))
}

/// Takes out each optional argument that is null, for definitions in the simple form: to a program it is left out.
fn drop_left_out(parameters: &Map<String, Value>, arguments: &mut Arguments) {
    if !arguments.values().any(Value::is_null) || is_schema(parameters) {
        return;
    }
    arguments.retain(|name, value| {
        let Some(parameter) = parameters.get(name).filter(|_| value.is_null()) else { return true };
        let takes_null = parameter.get("type").is_none_or(|kind| kind == "null" || !is_known_type(kind));
        parameter.get("required") == Some(&Value::Bool(true)) || takes_null
    });
}

/// The arguments of a call under the names of its tool's definition; what is optional and null is left out.
///
/// A name that the definition has, or one whose proper name is given too, stays as it is: nothing is written over.
pub fn canonical(tool: &dyn Tool, mut arguments: Arguments) -> Arguments {
    let parameters = &tool.definition().parameters;
    for (alias, name) in tool.aliases() {
        if parameters.contains_key(*alias) || arguments.contains_key(*name) {
            continue;
        }
        if let Some(value) = arguments.remove(*alias) {
            arguments.insert((*name).to_owned(), value);
        }
    }
    if !tool.checks_arguments() {
        drop_left_out(parameters, &mut arguments);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::*;
    use crate::base::BoxFuture;
    use crate::protocol::ToolDefinition;
    use crate::tool::{ToolContext, ToolError, ToolOutput};

    struct Named;

    static DEFINITION: LazyLock<ToolDefinition> = LazyLock::new(|| {
        let parameters = json!({"path": {"type": "string"}, "from": {"type": "string"}});
        serde_json::from_value(json!({"name": "named", "description": "", "parameters": parameters})).unwrap()
    });

    impl Tool for Named {
        fn definition(&self) -> &ToolDefinition {
            &DEFINITION
        }

        fn aliases(&self) -> &'static [(&'static str, &'static str)] {
            &[("file", "path"), ("filepath", "path"), ("from", "old")]
        }

        fn run<'a>(&'a self, _: Arguments, _: &'a ToolContext) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
            Box::pin(std::future::ready(Ok(ToolOutput::default())))
        }
    }

    #[test]
    fn an_optional_argument_that_is_null_is_left_out() {
        #[rustfmt::skip]
        let table = [
            (json!({"a": {"type": "string"}}), json!({}), "in the simple form"),
            (json!({"a": {"type": "string", "required": true}}), json!({"a": null}), "a required one is refused later"),
            (json!({"a": {"type": "any"}}), json!({"a": null}), "a type of the caller's own"),
            (json!({"a": {"type": "null"}}), json!({"a": null}), "null itself"),
            (json!({"b": {"type": "string"}}), json!({"a": null}), "not named"),
            (json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}), json!({"a": null}), "a schema"),
        ];
        for (parameters, want, what) in table {
            let Value::Object(parameters) = parameters else { panic!("an object") };
            let mut arguments = Map::from_iter([("a".to_owned(), Value::Null)]);
            drop_left_out(&parameters, &mut arguments);
            assert_eq!(Value::Object(arguments), want, "{what}");
        }
    }

    #[test]
    fn an_entry_of_a_list_means_a_tool_by_its_name_its_other_names_or_a_pattern() {
        let table = [
            ("fs_read", "fs_read", true),
            ("Read", "fs_read", true),
            ("git_*", "git_log", true),
            ("*", "bash", true),
            ("read", "fs_write", false),
            ("fs", "fs_read", false),
            ("git_*", "github", false),
        ];
        for (entry, name, want) in table {
            assert_eq!(means(entry, name), want, "{entry} {name}");
        }
    }

    #[test]
    fn other_names_become_the_proper_ones() {
        let table = [
            (json!({"file": "a"}), json!({"path": "a"})),
            (json!({"filepath": "a", "x": 1}), json!({"x": 1, "path": "a"})),
            (json!({"path": "a", "file": "b"}), json!({"path": "a", "file": "b"})),
            (json!({"file": "a", "filepath": "b"}), json!({"filepath": "b", "path": "a"})),
            (json!({"from": "a"}), json!({"from": "a"})),
        ];
        for (given, want) in table {
            let Value::Object(arguments) = given else { panic!("an object") };
            assert_eq!(Value::Object(canonical(&Named, arguments)), want);
        }
    }
}
