//! What a route says of itself: its row in the route table, without the handler.

use axum::http::Method;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::schemas::Schemas;
use crate::base::limit;

/// A schema that is known once all are.
pub(crate) type Shape = fn(&mut Schemas) -> Value;

/// What a route takes and gives.
pub(crate) struct Operation {
    /// Its name, such as `sessions.create`.
    pub(super) id: &'static str,
    /// What it does, in a sentence.
    pub(super) summary: &'static str,
    /// More about it.
    pub(super) description: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Shape>,
    /// Whether an empty body will do.
    pub(super) body_required: bool,
    pub(super) example: Option<Value>,
    pub(super) answers: Vec<Reply>,
    /// Statuses of errors beside those that any request may come to.
    pub(super) errors: Vec<u16>,
    /// Whether it needs no token.
    pub(super) open: bool,
    /// Whether it is a door to something else than requests and answers.
    pub(super) door: bool,
    /// Whether what passes there is ours to describe.
    pub(super) messages: bool,
}

/// A parameter of the query or the head.
#[derive(Clone)]
pub(crate) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Value,
    /// Whether several values stand in one, with commas between.
    pub(super) list: bool,
}

/// An answer that is no error.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) description: &'static str,
    /// Media types, and what they hold.
    pub(super) content: Vec<(&'static str, Shape)>,
    pub(super) headers: Vec<&'static str>,
}

/// A row's words.
pub(crate) fn operation(id: &'static str, summary: &'static str) -> Operation {
    Operation {
        id,
        summary,
        description: "",
        parameters: Vec::new(),
        body: None,
        body_required: false,
        example: None,
        answers: Vec::new(),
        errors: Vec::new(),
        open: false,
        door: false,
        messages: false,
    }
}

impl Operation {
    /// More about it.
    pub(crate) fn more(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// A parameter that may be given.
    pub(crate) fn takes(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// A body that may be left out: `{}` then.
    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(|schemas| schemas.incoming::<T>()), ..self }
    }

    /// A body that something has to stand in.
    pub(crate) fn full_body(self, shape: Shape) -> Self {
        Self { body: Some(shape), body_required: true, ..self }
    }

    /// A body as it may be.
    pub(crate) fn example(self, body: Value) -> Self {
        Self { example: Some(body), ..self }
    }

    /// An answer in JSON.
    pub(crate) fn gives<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.answers_with(status, description, "application/json", |schemas| schemas.outgoing::<T>())
    }

    /// An answer of any kind; a second one of the same status is the same in another form.
    pub(crate) fn answers_with(
        mut self,
        status: u16,
        description: &'static str,
        media: &'static str,
        shape: Shape,
    ) -> Self {
        match self.answers.iter_mut().find(|reply| reply.status == status) {
            Some(reply) => reply.content.push((media, shape)),
            None => {
                self.answers.push(Reply { status, description, content: vec![(media, shape)], headers: Vec::new() })
            }
        }
        self
    }

    /// An answer without a body.
    pub(crate) fn switches(mut self, status: u16, description: &'static str) -> Self {
        self.answers.push(Reply { status, description, content: Vec::new(), headers: Vec::new() });
        self
    }

    /// Headers of its answers.
    pub(crate) fn headers(mut self, names: &[&'static str]) -> Self {
        for reply in &mut self.answers {
            reply.headers.extend(names);
        }
        self
    }

    /// Errors beside those that any request may come to.
    pub(crate) fn refuses(mut self, statuses: &[u16]) -> Self {
        self.errors.extend(statuses);
        self
    }

    /// A command: it may have a key, and is held to what the pipeline of commands asks.
    pub(crate) fn command(self) -> Self {
        self.takes(idempotency_key()).headers(&["Idempotency-Replayed"]).refuses(&[409, 504])
    }

    /// A command about a session, which may be held to a version.
    pub(crate) fn versioned(self) -> Self {
        self.takes(if_match("The version that the session must have, such as `\"3\"`; else nothing is done. `*`: any."))
            .command()
            .headers(&["ETag"])
    }

    /// It needs no token.
    pub(crate) fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// It is a door to something else than requests and answers, with our own messages.
    pub(crate) fn door(self) -> Self {
        Self { door: true, messages: true, ..self }
    }

    /// It is a door to a protocol that has schemas of its own.
    pub(crate) fn foreign_door(self) -> Self {
        Self { door: true, ..self }
    }

    /// As the document says it, but for what the path itself says.
    pub(super) fn written(&self, (method, path): (&Method, &str), schemas: &mut Schemas) -> Value {
        let mut written = json!({ "operationId": self.id, "summary": self.summary, "tags": [tag(self.id)] });
        if !self.description.is_empty() {
            written["description"] = self.description.into();
        }
        if self.open {
            written["security"] = json!([{ "bearer": [] }, {}]);
        }
        if self.door {
            written["x-simse-door"] = true.into();
        }
        let parameters: Vec<Value> = self.parameters.iter().map(Parameter::written).collect();
        let shared = json!({ "$ref": "#/components/parameters/ClientId" });
        written["parameters"] = parameters.into_iter().chain([shared]).collect();
        if let Some(body) = self.body {
            let schema = body(schemas);
            let mut media = json!({ "schema": schema });
            if let Some(example) = &self.example {
                media["example"] = example.clone();
            }
            written["requestBody"] =
                json!({ "required": self.body_required, "content": { "application/json": media } });
        }
        let mut responses = serde_json::Map::new();
        for reply in &self.answers {
            responses.insert(reply.status.to_string(), reply.written(schemas));
        }
        for status in self.statuses(method, path) {
            let name = format!("#/components/responses/{}", super::errors::name(status));
            responses.insert(status.to_string(), json!({ "$ref": name }));
        }
        written["responses"] = Value::Object(responses);
        written
    }

    /// The errors that it may come to.
    fn statuses(&self, method: &Method, path: &str) -> Vec<u16> {
        // A `Content-Length` that is too large is refused of every request.
        let mut all = vec![400, 401, 403, 413, 414, 429, 431, 500, 503];
        if path.contains('{') {
            all.push(404);
        }
        if self.body.is_some() || method == Method::POST {
            all.extend([408, 415]);
        }
        all.extend(&self.errors);
        all.retain(|status| self.answers.iter().all(|reply| reply.status != *status));
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Parameter {
    fn written(&self) -> Value {
        let Self { name, place, description, schema, list } = self;
        let mut written = json!({ "name": name, "in": place, "description": description, "schema": schema });
        if *list {
            written["style"] = "form".into();
            written["explode"] = false.into();
        }
        written
    }
}

impl Reply {
    fn written(&self, schemas: &mut Schemas) -> Value {
        let mut written = json!({ "description": self.description });
        let headers = ["X-Request-Id"].into_iter().chain(self.headers.iter().copied());
        let reference = |name: &str| json!({ "$ref": format!("#/components/headers/{name}") });
        written["headers"] = headers.map(|name| (name.to_owned(), reference(name))).collect();
        if !self.content.is_empty() {
            let content =
                self.content.iter().map(|(media, shape)| ((*media).to_owned(), json!({ "schema": shape(schemas) })));
            written["content"] = content.collect();
        }
        written
    }
}

/// The first word of a name.
fn tag(id: &str) -> &str {
    id.split_once('.').map_or("server", |(group, _)| group)
}

/// A parameter of the query.
pub(crate) fn query(name: &'static str, description: &'static str, schema: Value) -> Parameter {
    Parameter { name, place: "query", description, schema, list: false }
}

/// `limit`: the entries of a page.
pub(crate) fn limit() -> Parameter {
    query("limit", "At most so many entries.", page_limit())
}

/// What `limit` may be.
pub(crate) fn page_limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": limit::PAGE_ITEMS_MAX, "default": limit::PAGE_ITEMS })
}

/// `cursor`: where a page begins, which is the name of the last entry before it.
pub(crate) fn cursor(of: &str) -> Parameter {
    id("cursor", of, "The `nextCursor` of the page before. Default: the first page.")
}

/// A parameter that is `true` or `false`.
pub(crate) fn flag(name: &'static str, description: &'static str) -> Parameter {
    query(name, description, json!({ "type": "boolean", "default": false }))
}

/// A number of an event.
pub(crate) fn position(name: &'static str, description: &'static str) -> Parameter {
    query(name, description, json!({ "type": "integer", "format": "uint64", "minimum": 0 }))
}

/// A place in the stream over all sessions, or its end.
pub(crate) fn newest_or_position() -> Value {
    let number = json!({ "type": "integer", "format": "uint64", "minimum": 0 });
    json!({ "anyOf": [number, { "type": "string", "const": "newest" }] })
}

/// `types`: some types of a session's events.
pub(crate) fn types(description: &'static str) -> Parameter {
    some_of("EventType", description)
}

/// `types`: some types of the events over all sessions.
pub(crate) fn lifecycle_types() -> Parameter {
    some_of("LifecycleType", "Only events of these types.")
}

fn some_of(kinds: &str, description: &'static str) -> Parameter {
    let schema = json!({ "type": "array", "items": super::schemas::reference(kinds), "minItems": 1 });
    Parameter { list: true, ..query("types", description, schema) }
}

/// An id.
pub(crate) fn id(name: &'static str, of: &str, description: &'static str) -> Parameter {
    query(name, description, super::schemas::reference(of))
}

/// `Last-Event-ID`: where a stream goes on.
pub(crate) fn last_event_id() -> Parameter {
    let schema = json!({ "type": "string", "pattern": "^[0-9]{1,19}$" });
    let description = "The number of the last event that was seen: the stream goes on behind it. Goes before `after`.";
    Parameter { place: "header", ..query("Last-Event-ID", description, schema) }
}

/// `Acp-Connection-Id` and `Acp-Session-Id`: whom a message or a stream belongs to.
pub(crate) fn acp_names() -> [Parameter; 2] {
    let connection = "The connection: what the answer to `initialize` has in this header.";
    let session = "The session that the message or the stream belongs to, where it belongs to one.";
    [("Acp-Connection-Id", connection), ("Acp-Session-Id", session)].map(|(name, description)| Parameter {
        place: "header",
        ..query(name, description, json!({ "type": "string", "pattern": "^[!-~]{1,1024}$" }))
    })
}

fn idempotency_key() -> Parameter {
    let schema = json!({ "type": "string", "pattern": format!("^[!-~]([ -~]{{0,{}}}[!-~])?$", limit::COMMAND_ID_BYTES_MAX - 2) });
    let description = "What is sent again under the same key is done once, and answered alike. The same key with other content is a conflict.";
    Parameter { place: "header", ..query("Idempotency-Key", description, schema) }
}

/// `If-Match`: the version that what is changed must have.
pub(crate) fn if_match(description: &'static str) -> Parameter {
    let schema = json!({ "type": "string", "pattern": "^(\\*|(W/)?([0-9]{1,19}|\"[0-9]{1,19}\"))$" });
    Parameter { place: "header", ..query("If-Match", description, schema) }
}
