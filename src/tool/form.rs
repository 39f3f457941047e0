//! A form: what a tool server or an agent wants a person to fill in, as questions to the clients of the session.
//!
//! Its fields are flat: texts, numbers, yes or no, and choices. Each is one question, in order, and the answers together are one
//! object that fits the schema. Fails closed: what a person will not answer, or nobody answers in time, leaves nothing filled in.

use serde_json::{Map, Number, Value};

use super::validate::Checker;
use super::{BadArguments, Line};
use crate::base::text::head;
use crate::protocol::{ApiError, ClientQuestion, ClientReply, FormReply, VerdictSource};

/// Fields of one form, at most.
const FIELDS_MAX: usize = 32;
/// How often one field is asked for: an answer that is no number may be a slip.
const TRIES_MAX: usize = 3;
/// Bytes of an answer that are repeated when it does not fit.
const SHOWN_BYTES_MAX: usize = 60;

/// A form that can be put to clients.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// Who asks, and for what.
    message: String,
    /// The whole schema, of an object.
    schema: Map<String, Value>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    /// What is shown of it: its title, what it is for, what fits.
    words: String,
    kind: Kind,
    required: bool,
    default: Option<Value>,
}

/// How a field is asked for.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    Number {
        whole: bool,
    },
    YesNo,
    /// One of these: what is shown, and what it stands for.
    One(Vec<(String, String)>),
    /// Some of these.
    Some(Vec<(String, String)>),
}

/// What came of one field.
enum Answer {
    Value(Value),
    LeftOut,
    Misfit(String),
}

impl Form {
    /// A form that `who` asks for: a message and the JSON Schema of an object with flat members.
    ///
    /// # Errors
    /// Why it cannot be put to anybody, as a sentence.
    pub fn read(who: &str, message: &str, schema: &Value) -> Result<Self, String> {
        let Some(schema) = schema.as_object() else { return Err("the schema: expected an object".to_owned()) };
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        if properties.len() > FIELDS_MAX {
            return Err(format!("expected at most {FIELDS_MAX} properties, got {}", properties.len()));
        }
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let fields: Result<Vec<_>, String> = properties
            .iter()
            .map(|(name, property)| Field::read(name, property, required.contains(&name.as_str())))
            .collect();
        let form = Self { message: format!("{who} asks: {message}"), schema: schema.clone(), fields: fields? };
        for question in form.questions() {
            question.check_itself().map_err(|error| error.to_string())?;
        }
        Ok(form)
    }

    /// Its questions, as they are put when every answer fits.
    fn questions(&self) -> Vec<ClientQuestion> {
        if self.fields.is_empty() {
            return vec![ClientQuestion::Confirm { title: self.message.clone(), message: None }];
        }
        let of = |(at, field): (usize, &Field)| field.question(self.title(at, field, None));
        self.fields.iter().enumerate().map(of).collect()
    }

    fn title(&self, at: usize, field: &Field, problem: Option<&str>) -> String {
        let place =
            if self.fields.len() > 1 { format!(" ({} of {})", at + 1, self.fields.len()) } else { String::new() };
        let problem = problem.map(|problem| format!("{problem}\n")).unwrap_or_default();
        format!("{problem}{}\n{}{place}", self.message, field.words)
    }

    /// Puts it to the clients at the other end of `line`, question by question.
    pub async fn put(&self, line: &Line) -> FormReply {
        match self.fill(line).await {
            Ok(content) => FormReply::Filled(content),
            Err(reply) => reply,
        }
    }

    async fn fill(&self, line: &Line) -> Result<Map<String, Value>, FormReply> {
        let mut content = Map::new();
        if self.fields.is_empty() {
            let question = ClientQuestion::Confirm { title: self.message.clone(), message: None };
            return match asked(line, question).await? {
                Value::Bool(true) => Ok(content),
                _ => Err(FormReply::Declined("a client said no".to_owned())),
            };
        }
        for (at, field) in self.fields.iter().enumerate() {
            if let Some(value) = self.fill_field(line, at, field).await? {
                content.insert(field.name.clone(), value);
            }
        }
        // Words beside the properties, such as `minProperties`, are held against the whole.
        match Checker::new(&self.schema).check(
            &Value::Object(self.schema.clone()),
            &Value::Object(content.clone()),
            "",
            0,
        ) {
            Ok(()) => Ok(content),
            Err(BadArguments(problem)) => Err(FormReply::Cancelled(format!("the answers do not fit: {problem}"))),
        }
    }

    /// Asks for one field until an answer fits. None: it is left out.
    async fn fill_field(&self, line: &Line, at: usize, field: &Field) -> Result<Option<Value>, FormReply> {
        let mut problem = None;
        for _ in 0..TRIES_MAX {
            let given = asked(line, field.question(self.title(at, field, problem.as_deref()))).await?;
            match field.answer(&self.schema, given) {
                Answer::Value(value) => return Ok(Some(value)),
                Answer::LeftOut => return Ok(None),
                Answer::Misfit(why) => problem = Some(why),
            }
        }
        Err(FormReply::Cancelled(problem.unwrap_or_default()))
    }
}

/// One question. An error: there is no answer, and will be none.
async fn asked(line: &Line, question: ClientQuestion) -> Result<Value, FormReply> {
    match line.ask(question, None).await {
        Ok(ClientReply::Value(value)) => Ok(value),
        // Only a person can decline; everything else is that nobody did anything.
        Ok(ClientReply::Cancelled { by: VerdictSource::Client, reason }) => Err(FormReply::Declined(reason)),
        Ok(ClientReply::Cancelled { reason, .. }) => Err(FormReply::Cancelled(reason)),
        Err(ApiError(body)) => Err(FormReply::Cancelled(body.message)),
    }
}

impl Field {
    fn read(name: &str, property: &Value, required: bool) -> Result<Self, String> {
        let text = |key: &str| property[key].as_str().map(str::trim).filter(|text| !text.is_empty());
        let kind = match property["type"].as_str() {
            Some("string") => single(property).map_or(Kind::Text, Kind::One),
            Some("number") => Kind::Number { whole: false },
            Some("integer") => Kind::Number { whole: true },
            Some("boolean") => Kind::YesNo,
            Some("array") => Kind::Some(single(&property["items"]).unwrap_or_default()),
            _ => return Err(format!("`{name}`: expected a string, a number, a boolean or a choice of strings")),
        };
        let mut words = text("title").unwrap_or(name).to_owned();
        if let Some(description) = text("description") {
            words = format!("{words}: {description}");
        }
        if let Kind::One(options) | Kind::Some(options) = &kind
            && (1..options.len()).any(|at| options[..at].iter().any(|(shown, _)| *shown == options[at].0))
        {
            return Err(format!("`{name}`: expected each option once"));
        }
        let default = property.get("default").filter(|value| !value.is_null()).cloned();
        Ok(Self { name: name.to_owned(), words, kind, required, default })
    }

    fn question(&self, title: String) -> ClientQuestion {
        match &self.kind {
            Kind::YesNo => ClientQuestion::Confirm { title, message: None },
            Kind::Text | Kind::Number { .. } => ClientQuestion::Input { title, placeholder: self.placeholder() },
            Kind::One(options) => {
                let mut options: Vec<String> = options.iter().map(|(shown, _)| shown.clone()).collect();
                options.extend(self.none_of(&options));
                ClientQuestion::Select { title, options, several: false }
            }
            Kind::Some(options) => {
                let options = options.iter().map(|(shown, _)| shown.clone()).collect();
                ClientQuestion::Select { title, options, several: true }
            }
        }
    }

    /// What is shown where nothing is typed yet: what leaving it empty means.
    fn placeholder(&self) -> Option<String> {
        match &self.default {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => (!self.required).then(|| "(may be left empty)".to_owned()),
        }
    }

    /// The option that leaves a choice out, where it can be left out.
    fn none_of(&self, options: &[String]) -> Option<String> {
        let names = ["(none)", "(leave it out)", "(no choice)"];
        let free = names.into_iter().find(|name| options.iter().all(|option| option != name))?;
        (!self.required).then(|| free.to_owned())
    }

    /// What an answer to the question means, held against the schema.
    fn answer(&self, schema: &Map<String, Value>, given: Value) -> Answer {
        let value = match (&self.kind, given) {
            (Kind::Text | Kind::Number { .. }, Value::String(text)) if text.trim().is_empty() => {
                match (&self.default, self.required, &self.kind) {
                    (Some(default), _, _) => default.clone(),
                    (None, false, _) => return Answer::LeftOut,
                    (None, true, Kind::Text) => Value::String(text),
                    (None, true, _) => return Answer::Misfit("An answer is needed.".to_owned()),
                }
            }
            (Kind::Number { whole }, Value::String(text)) => match number(&text, *whole) {
                Some(number) => Value::Number(number),
                None => {
                    let kind = if *whole { "a whole number" } else { "a number" };
                    return Answer::Misfit(format!("Expected {kind}, got `{}`.", head(&text, SHOWN_BYTES_MAX)));
                }
            },
            (Kind::One(options), Value::String(shown)) => match meant(options, &shown) {
                Some(value) => value,
                // The option of none: the actor lets only options through.
                None => return Answer::LeftOut,
            },
            (Kind::Some(options), Value::Array(chosen)) => {
                let chosen = chosen.iter().filter_map(Value::as_str);
                chosen.filter_map(|shown| meant(options, shown)).collect()
            }
            (_, given) => given,
        };
        if let (Kind::Some(_), Value::Array(chosen), false) = (&self.kind, &value, self.required)
            && chosen.is_empty()
        {
            return Answer::LeftOut;
        }
        let property = &schema["properties"][&self.name];
        if let Err(BadArguments(problem)) = Checker::new(schema).check(property, &value, &self.name, 0) {
            return Answer::Misfit(format!("That does not fit: {problem}."));
        }
        match (property["format"].as_str(), &value) {
            (Some(format), Value::String(text)) if !is_of(format, text) => {
                Answer::Misfit(format!("Expected {}, got `{}`.", described(format), head(text, SHOWN_BYTES_MAX)))
            }
            _ => Answer::Value(value),
        }
    }
}

/// The options of a choice: what is shown, and what it stands for. None: it is no choice.
fn single(property: &Value) -> Option<Vec<(String, String)>> {
    let titled = ["oneOf", "anyOf"].iter().find_map(|word| property[word].as_array());
    if let Some(options) = titled {
        let pair = |option: &Value| {
            let value = option["const"].as_str()?.to_owned();
            Some((option["title"].as_str().unwrap_or(&value).to_owned(), value))
        };
        return Some(options.iter().filter_map(pair).collect());
    }
    let values = property["enum"].as_array()?;
    let named = |at: usize, value: &str| property["enumNames"][at].as_str().unwrap_or(value).to_owned();
    let pair = |(at, value): (usize, &Value)| value.as_str().map(|value| (named(at, value), value.to_owned()));
    Some(values.iter().enumerate().filter_map(pair).collect())
}

fn meant(options: &[(String, String)], shown: &str) -> Option<Value> {
    options.iter().find(|(option, _)| option == shown).map(|(_, value)| Value::String(value.clone()))
}

fn number(text: &str, whole: bool) -> Option<Number> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    if whole { None } else { Number::from_f64(number) }
}

fn described(format: &str) -> &'static str {
    match format {
        "email" => "an address such as `ann@example.org`",
        "uri" => "an address such as `https://example.org`",
        "date" => "a day such as `2026-01-31`",
        _ => "a time such as `2026-01-31T12:00:00Z`",
    }
}

/// Whether a text is of one of the formats that a form may ask for. Of another one, nobody here knows.
fn is_of(format: &str, text: &str) -> bool {
    match format {
        "email" => text.split_once('@').is_some_and(|(name, host)| {
            !name.is_empty()
                && host.contains('.')
                && !host.starts_with('.')
                && !host.ends_with('.')
                && !text.contains(char::is_whitespace)
                && !host.contains('@')
        }),
        "uri" => text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                && !rest.is_empty()
                && !text.contains(char::is_whitespace)
        }),
        "date" => is_date(text),
        "date-time" => text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time)),
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let number = |part: &str, digits: usize| {
        (part.len() == digits && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u32>().unwrap_or(0))
    };
    let (Some(year), Some(month), Some(day)) = (number(year, 4), number(month, 2), number(day, 2)) else {
        return false;
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// `12:00:00`, with a fraction or not, and where on the earth that is.
fn is_time(text: &str) -> bool {
    let Some(zone) = text.find(['Z', 'z', '+', '-']) else { return false };
    let (clock, zone) = text.split_at(zone);
    let two = |part: &str, below: u32| part.len() == 2 && part.parse::<u32>().is_ok_and(|number| number < below);
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    let clock_fits = matches!(parts[..], [h, m, s] if two(h, 24) && two(m, 60) && two(s, 61));
    let fraction_fits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let zone_fits = matches!(zone, "Z" | "z")
        || zone[1..].split_once(':').is_some_and(|(hours, minutes)| two(hours, 24) && two(minutes, 60));
    clock_fits && fraction_fits && zone_fits
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::base::BoxFuture;
    use crate::hook::{Asked, Clients, Notice};

    /// Clients that answer from a list, and remember what they were asked.
    #[derive(Default)]
    struct Scripted {
        answers: Mutex<Vec<ClientReply>>,
        asked: Mutex<Vec<ClientQuestion>>,
    }

    impl Clients for Scripted {
        fn ask(&self, asked: Asked) -> BoxFuture<'_, ClientReply> {
            Box::pin(async move {
                let reply = self.answers.lock().remove(0);
                if let ClientReply::Value(value) = &reply {
                    asked.question.check(value).expect("an answer that a session lets through");
                }
                self.asked.lock().push(asked.question);
                reply
            })
        }

        fn notify(&self, _: Notice) {}
        fn show(&self, _: Option<String>, _: crate::protocol::Display) {}
    }

    async fn put(schema: Value, answers: Vec<ClientReply>) -> (FormReply, Vec<ClientQuestion>) {
        let clients = Arc::new(Scripted { answers: Mutex::new(answers), asked: Mutex::default() });
        let line = Line::new(clients.clone() as Arc<dyn Clients>, CancellationToken::new());
        let reply = Form::read("The tool server `s`", "Well?", &schema).expect("a form").put(&line).await;
        assert!(clients.answers.lock().is_empty(), "all are asked for");
        let asked = std::mem::take(&mut *clients.asked.lock());
        (reply, asked)
    }

    fn one(property: Value, required: bool) -> Value {
        json!({ "type": "object", "properties": { "x": property }, "required": if required { vec!["x"] } else { vec![] } })
    }

    #[tokio::test]
    async fn each_kind_of_field_is_a_question_and_its_answer_a_value() {
        let choice = json!({ "type": "string", "oneOf": [{ "const": "a", "title": "The A" }, { "const": "b", "title": "The B" }] });
        let legacy = json!({ "type": "string", "enum": ["a", "b"], "enumNames": ["The A", "The B"] });
        let some = json!({ "type": "array", "minItems": 1, "items": { "anyOf": [{ "const": "a", "title": "The A" }, { "const": "b", "title": "The B" }] } });
        let port = json!({ "type": "integer", "minimum": 1, "maximum": 9 });
        #[rustfmt::skip]
        let table = [
            // Property, required, kind of question, answers, what is filled in (null: left out).
            (json!({ "type": "boolean" }), true, "confirm", vec![json!(false)], json!(false)),
            (json!({ "type": "string" }), true, "input", vec![json!(" a b ")], json!(" a b ")),
            (json!({ "type": "string" }), false, "input", vec![json!("")], json!(null)),
            (json!({ "type": "string", "default": "d" }), false, "input", vec![json!("")], json!("d")),
            (json!({ "type": "string", "minLength": 2 }), true, "input", vec![json!("a"), json!("ab")], json!("ab")),
            (json!({ "type": "string", "pattern": "^a" }), true, "input", vec![json!("b"), json!("ab")], json!("ab")),
            (json!({ "type": "string", "format": "email" }), true, "input", vec![json!("ann"), json!("ann@example.org")], json!("ann@example.org")),
            (json!({ "type": "number" }), true, "input", vec![json!("much"), json!(" 1.5 ")], json!(1.5)),
            (json!({ "type": "number" }), true, "input", vec![json!(""), json!("-3")], json!(-3)),
            (port.clone(), true, "input", vec![json!("1.5"), json!("10"), json!("9")], json!(9)),
            (port, false, "input", vec![json!(" ")], json!(null)),
            (choice.clone(), true, "select", vec![json!("The B")], json!("b")),
            (choice, false, "select", vec![json!("(none)")], json!(null)),
            (legacy, true, "select", vec![json!("The A")], json!("a")),
            (json!({ "type": "string", "enum": ["a", "(none)"] }), false, "select", vec![json!("(leave it out)")], json!(null)),
            (some.clone(), true, "select", vec![json!([]), json!(["The B", "The A"])], json!(["b", "a"])),
            (some, false, "select", vec![json!([])], json!(null)),
            (json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] } }), true, "select", vec![json!(["a"])], json!(["a"])),
        ];
        for (property, required, kind, answers, want) in table {
            let replies = answers.iter().cloned().map(ClientReply::Value).collect();
            let (reply, asked) = put(one(property.clone(), required), replies).await;
            let content = if want.is_null() { json!({}) } else { json!({ "x": want }) };
            assert_eq!(reply, FormReply::Filled(content.as_object().expect("an object").clone()), "{property}");
            assert!(asked.iter().all(|question| question.kind() == kind), "{property}: {asked:?}");
            let wrong = asked.iter().skip(1).all(|question| !question.title().starts_with("The tool server"));
            assert!(wrong, "what did not fit is said: {asked:?}");
        }
    }

    #[tokio::test]
    async fn fields_are_asked_for_in_order_and_one_refusal_ends_it() {
        let schema = json!({ "type": "object", "required": ["b"], "properties": {
            "b": { "type": "string", "title": "Branch", "description": "where to" }, "a": { "type": "boolean" } } });
        let value = |value: Value| ClientReply::Value(value);
        let by = |by| ClientReply::Cancelled { by, reason: "r".into() };
        let (reply, asked) = put(schema.clone(), vec![value(json!("main")), value(json!(true))]).await;
        let FormReply::Filled(content) = reply else { panic!("{reply:?}") };
        assert_eq!(Value::Object(content), json!({ "b": "main", "a": true }));
        let titles: Vec<&str> = asked.iter().map(ClientQuestion::title).collect();
        let message = "The tool server `s` asks: Well?";
        assert_eq!(titles, [format!("{message}\nBranch: where to (1 of 2)"), format!("{message}\na (2 of 2)")]);

        let no = FormReply::Declined("r".into());
        assert_eq!(put(schema.clone(), vec![by(VerdictSource::Client)]).await.0, no);
        assert_eq!(put(schema.clone(), vec![value(json!("main")), by(VerdictSource::Client)]).await.0, no);
        for source in [VerdictSource::Timeout, VerdictSource::NoClient, VerdictSource::Abort] {
            assert_eq!(put(schema.clone(), vec![by(source)]).await.0, FormReply::Cancelled("r".into()));
        }
        let nothing = json!({ "type": "object", "properties": {} });
        assert_eq!(put(nothing.clone(), vec![value(json!(true))]).await.0, FormReply::Filled(Map::new()));
        assert!(matches!(put(nothing, vec![value(json!(false))]).await.0, FormReply::Declined(_)));
        let misfits = vec![value(json!("x")); TRIES_MAX];
        assert!(matches!(put(one(json!({ "type": "number" }), true), misfits).await.0, FormReply::Cancelled(_)));
        let alone = Form::read("w", "m", &schema).expect("a form").put(&Line::default()).await;
        assert!(matches!(alone, FormReply::Cancelled(_)), "outside a session: {alone:?}");
    }

    #[test]
    fn what_nobody_can_be_asked_says_why() {
        let many: Map<String, Value> =
            (0..=FIELDS_MAX).map(|n| (n.to_string(), json!({ "type": "boolean" }))).collect();
        #[rustfmt::skip]
        let table = [
            (json!(null), "the schema: expected an object"),
            (one(json!({ "type": "object" }), true), "`x`: expected a string"),
            (one(json!({ "anyOf": [] }), true), "`x`: expected a string"),
            (one(json!({ "type": "array" }), true), "options"),
            (one(json!({ "type": "array", "items": { "type": "string" } }), true), "options"),
            (one(json!({ "type": "string", "enum": [] }), true), "options"),
            (one(json!({ "type": "string", "enum": ["a", "a"] }), true), "each option once"),
            (one(json!({ "type": "string", "title": "t".repeat(20_000) }), true), "title"),
            (json!({ "type": "object", "properties": many }), "at most 32 properties, got 33"),
        ];
        for (schema, want) in table {
            let problem = Form::read("w", "m", &schema).expect_err(&schema.to_string());
            assert!(problem.contains(want), "{problem}");
        }
    }

    #[test]
    fn formats() {
        #[rustfmt::skip]
        let table = [
            ("email", "a@b.c", true), ("email", "a@b", false), ("email", "a b@c.d", false), ("email", "@b.c", false), ("email", "a@b@c.d", false),
            ("uri", "https://x", true), ("uri", "mailto:a", true), ("uri", "x", false), ("uri", "1:x", false), ("uri", "a: b", false),
            ("date", "2024-02-29", true), ("date", "2023-02-29", false), ("date", "2023-13-01", false), ("date", "2023-1-01", false), ("date", "1900-02-29", false),
            ("date-time", "2026-01-31T12:00:00Z", true), ("date-time", "2026-01-31t12:00:00.25+01:30", true),
            ("date-time", "2026-01-31", false), ("date-time", "2026-01-31T24:00:00Z", false), ("date-time", "2026-01-31T12:00:00", false),
            ("date-time", "2026-01-31T12:00:00.Z", false), ("other", "anything", true),
        ];
        for (format, text, fits) in table {
            assert_eq!(is_of(format, text), fits, "{format} {text}");
        }
    }
}
