//! The tools by which a model remembers: `memory_search`, `memory_add`, `memory_delete`.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde_json::{Value, json};

use super::{Found, MemoryError, MemoryManager, Wanted, entry_about};
use crate::base::{BoxFuture, limit};
use crate::protocol::{EventBody, ToolAnnotations, ToolCategory, ToolDefinition};
use crate::store::recall::KeptEntry;
use crate::tool::{Arguments, Tool, ToolContext, ToolError, ToolOutput};

/// The tools of a project's memory, in the order in which they are told.
pub fn memory_tools(manager: &MemoryManager) -> Vec<Arc<dyn Tool>> {
    let tool = |what| Arc::new(MemoryTool { manager: manager.clone(), what }) as Arc<dyn Tool>;
    vec![tool(What::Search), tool(What::Add), tool(What::Delete)]
}

#[derive(Debug, Clone, Copy)]
enum What {
    Search,
    Add,
    Delete,
}

struct MemoryTool {
    manager: MemoryManager,
    what: What,
}

fn definition(name: &str, description: &str, annotations: ToolAnnotations, parameters: Value) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        category: Some(ToolCategory::Memory),
        annotations: Some(annotations),
        timeout_ms: None,
        max_output_chars: None,
    }
}

static SEARCH: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let description =
        "Searches the long-term memory of this project: what earlier sessions have noted. Best answers first.";
    let parameters = json!({
        "query": {"type": "string", "description": "What is looked for, in words", "required": true},
        "maxResults": {"type": "number", "description": "How many answers at most, 1 to 100"},
    });
    definition("memory_search", description, annotations, parameters)
});

static ADD: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let description = "Notes something in the long-term memory of this project, for later sessions: a decision, a \
        convention, how something is done here. One fact, in words that stand for themselves; never a secret.";
    let parameters = json!({
        "text": {"type": "string", "description": "What to remember", "required": true},
        "topic": {"type": "string", "description": "What it is about, in one or two words"},
    });
    definition("memory_add", description, ToolAnnotations::default(), parameters)
});

static DELETE: LazyLock<ToolDefinition> = LazyLock::new(|| {
    let annotations = ToolAnnotations { destructive: Some(true), ..ToolAnnotations::default() };
    let description = "Takes a note out of the long-term memory of this project, when it is wrong or out of date.";
    let parameters = json!({
        "id": {"type": "string", "description": "The note's id, as memory_search gives it", "required": true},
    });
    definition("memory_delete", description, annotations, parameters)
});

impl Tool for MemoryTool {
    fn definition(&self) -> &ToolDefinition {
        match self.what {
            What::Search => &SEARCH,
            What::Add => &ADD,
            What::Delete => &DELETE,
        }
    }

    fn run<'a>(
        &'a self,
        arguments: Arguments,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let done = match self.what {
                What::Search => self.search(&arguments, context).await,
                What::Add => self.add(&arguments, context).await,
                What::Delete => self.delete(&arguments, context).await,
            };
            done.map(ToolOutput::from)
        })
    }
}

impl From<MemoryError> for ToolError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Refused { .. } => Self::BadArguments(error.to_string()),
            MemoryError::Recall(_) => Self::failed(error.to_string()),
            MemoryError::Aborted => Self::Aborted,
        }
    }
}

/// A text argument; the definition has made sure that a required one is there.
fn text<'a>(arguments: &'a Arguments, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn results(arguments: &Arguments) -> Result<Option<usize>, ToolError> {
    let Some(given) = arguments.get("maxResults").filter(|given| !given.is_null()) else { return Ok(None) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
    let whole = given.as_f64().filter(|n| n.fract() == 0.0 && (1.0..=100.0).contains(n)).map(|n| n as usize);
    let expected =
        || format!("`maxResults`: expected a whole number from 1 to {}, got {given}", limit::MEMORY_RESULTS_MAX);
    whole.map(Some).ok_or_else(|| ToolError::BadArguments(expected()))
}

impl MemoryTool {
    async fn search(&self, arguments: &Arguments, context: &ToolContext) -> Result<String, ToolError> {
        let query = text(arguments, "query");
        let started = Instant::now();
        let wanted = Wanted { results: results(arguments)?, threshold: None };
        let found = self.manager.search(query, wanted, &context.cancel).await?;
        context.events.publish(EventBody::MemorySearch {
            query: query.to_owned(),
            result_count: found.answers.len() as u64,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            degraded: found.degraded.clone(),
        });
        Ok(told(&found))
    }

    async fn add(&self, arguments: &Arguments, context: &ToolContext) -> Result<String, ToolError> {
        let topic = arguments.get("topic").and_then(Value::as_str);
        let entry = entry_about(text(arguments, "text"), topic);
        let content_length = entry.text.trim().encode_utf16().count() as u64;
        let kept = self.manager.add(vec![entry], &context.cancel).await?;
        let added = kept.added.first().ok_or_else(|| ToolError::failed("nothing was remembered"))?;
        if !added.new {
            return Ok(format!("Known already: {}", added.id));
        }
        context.events.publish(EventBody::MemoryAdd { id: added.id.clone(), content_length });
        let alike = self.manager.alike(added.key, text(arguments, "text")).await?;
        Ok(remembered(&added.id, &alike, kept.forgotten))
    }

    async fn delete(&self, arguments: &Arguments, context: &ToolContext) -> Result<String, ToolError> {
        let id = text(arguments, "id");
        if !self.manager.delete(id).await? {
            return Err(ToolError::failed(format!("no note with the id \"{id}\" in the memory of this project")));
        }
        context.events.publish(EventBody::MemoryDelete { id: id.to_owned() });
        Ok(format!("Forgotten: {id}"))
    }
}

/// What came of noting something, as the model reads it.
fn remembered(id: &str, alike: &[KeptEntry], forgotten: usize) -> String {
    let mut said = format!("Remembered: {id}");
    if !alike.is_empty() {
        said.push_str("\n\nMuch like it was noted before; delete what is out of date:");
    }
    for other in alike {
        // Writing into a String cannot fail.
        let _ = write!(said, "\n- (id: {}) {}", other.id, other.text.replace('\n', "\n  "));
    }
    if forgotten > 0 {
        let _ = write!(said, "\n\n({forgotten} of the notes that were of least use were forgotten to make room.)");
    }
    said
}

/// Answers as the model reads them.
fn told(found: &Found) -> String {
    let mut said = String::new();
    for (number, answer) in (1..).zip(&found.answers) {
        let topic = answer.entry.metadata.get("topic").and_then(Value::as_str);
        let topic = topic.map(|topic| format!("[{topic}] ")).unwrap_or_default();
        let (id, text) = (&answer.entry.id, answer.entry.text.replace('\n', "\n   "));
        // Writing into a String cannot fail.
        let _ = write!(said, "{number}. {topic}(score: {:.2}, id: {id})\n   {text}\n\n", answer.score);
    }
    if found.answers.is_empty() {
        said.push_str("Nothing is remembered about that.");
    }
    if let Some(reason) = &found.degraded {
        said.push_str(&format!("\n\n(Note: {reason})"));
    }
    said.trim().to_owned()
}
