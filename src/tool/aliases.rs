//! Arguments under the names that models give them.

use super::{Arguments, Tool};

/// The arguments of a call under the names of its tool's definition.
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
    arguments
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::{Value, json};

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
