//! A provider of models as it is configured: where it is, which wire it speaks, what is known of its models.
//!
//! Of providers that many use, the address, the wire and the variable of the key are known here: a name and a key are enough.
//!
//! Invariant: whoever holds a [`Provider`] holds one that can be tried: its name fits into a model's id, it has an address and a
//! wire, and its headers can be sent. Values are not repeated in errors: they may be secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Address;
use crate::base::{http, limit};

/// The wire that a model is spoken to over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Api {
    /// OpenAI's Chat Completions, which most others speak too.
    #[serde(rename = "openai-chat")]
    Chat,
    /// OpenAI's Responses.
    #[serde(rename = "openai-responses")]
    Responses,
    /// Anthropic's Messages.
    #[serde(rename = "anthropic-messages")]
    Messages,
    /// Google's generateContent.
    #[serde(rename = "gemini")]
    Gemini,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Responses, Self::Messages, Self::Gemini];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "openai-chat",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic-messages",
            Self::Gemini => "gemini",
        }
    }

    /// The wire of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }
}

/// A provider that is known by its name.
#[derive(Debug, Clone, Copy)]
pub struct KnownProvider {
    /// Its name.
    pub name: &'static str,
    /// Its wire.
    pub api: Api,
    /// Its address.
    pub base_url: &'static str,
    /// The variables that its key may stand in. Empty: it wants none.
    pub key_variables: &'static [&'static str],
    /// The variable that another address may stand in.
    pub address_variable: Option<&'static str>,
    /// The model that is meant when none is named.
    pub model: Option<&'static str>,
}

const fn known(name: &'static str, base_url: &'static str, key_variables: &'static [&'static str]) -> KnownProvider {
    KnownProvider { name, api: Api::Chat, base_url, key_variables, address_variable: None, model: None }
}

/// Providers that a name is enough of, as their makers document them. `openai` has settings of its own, too.
pub const KNOWN_PROVIDERS: &[KnownProvider] = &[
    KnownProvider {
        api: Api::Messages,
        address_variable: Some("ANTHROPIC_BASE_URL"),
        model: Some("claude-sonnet-5"),
        ..known("anthropic", "https://api.anthropic.com", &["ANTHROPIC_API_KEY"])
    },
    KnownProvider {
        api: Api::Gemini,
        address_variable: Some("GOOGLE_GEMINI_BASE_URL"),
        model: Some("gemini-3.8-flash"),
        ..known("gemini", "https://generativelanguage.googleapis.com", &["GEMINI_API_KEY", "GOOGLE_API_KEY"])
    },
    known("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"]),
    known("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"]),
    known("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"]),
    known("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"]),
    known("xai", "https://api.x.ai/v1", &["XAI_API_KEY"]),
    known("moonshot", "https://api.moonshot.ai/v1", &["MOONSHOT_API_KEY"]),
    known("zai", "https://api.z.ai/api/paas/v4", &["ZAI_API_KEY"]),
    known("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_API_KEY"]),
    known("together", "https://api.together.xyz/v1", &["TOGETHER_API_KEY"]),
    known("fireworks", "https://api.fireworks.ai/inference/v1", &["FIREWORKS_API_KEY"]),
    known("ollama", "http://127.0.0.1:11434/v1", &[]),
    known("llamacpp", "http://127.0.0.1:8080/v1", &[]),
    known("lmstudio", "http://127.0.0.1:1234/v1", &[]),
    known("vllm", "http://127.0.0.1:8000/v1", &[]),
];

/// The provider of that name, where it is one that is known.
pub fn known_provider(name: &str) -> Option<&'static KnownProvider> {
    KNOWN_PROVIDERS.iter().find(|known| known.name == name)
}

/// A provider.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Entry")]
pub struct Provider {
    /// Its name: its models are called `<name>/<model>`.
    pub name: String,
    /// The wire of its models.
    pub api: Api,
    /// Its address.
    pub base_url: Address,
    /// Its key.
    pub api_key: Option<SecretString>,
    /// The file that its key stands in; read anew when the key is refused.
    pub api_key_file: Option<PathBuf>,
    /// Sent with each request.
    pub headers: BTreeMap<String, String>,
    /// Requests side by side, of all sessions together. None: as many as there are.
    pub concurrency: Option<usize>,
    /// Requests begun in a minute, of all sessions together. None: as many as there are.
    pub requests_per_minute: Option<u32>,
    /// Members that go into each request's body.
    pub body: Map<String, Value>,
    /// What is known of its models. Others can be named all the same.
    pub models: Vec<ProviderModel>,
}

/// What is known of a model. What is not said is taken from the catalogue.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderModel {
    /// Its name on the wire.
    pub name: String,
    /// Its wire, where it is not that of the others.
    pub api: Option<Api>,
    /// Its name for people.
    pub label: Option<String>,
    /// Tokens of its window.
    pub context_tokens: Option<u64>,
    /// Tokens of one reply, at most.
    pub output_tokens: Option<u64>,
    /// Whether it can be shown images.
    pub images: Option<bool>,
    /// Whether it can think before it answers.
    pub reasoning: Option<bool>,
    /// What its tokens cost.
    pub prices: Option<ProviderPrices>,
    /// Members that go into each request's body, over those of its provider.
    #[serde(default)]
    pub body: Map<String, Value>,
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderPrices {
    /// Sent.
    pub input: f64,
    /// Received.
    pub output: f64,
    /// Sent, and found in the provider's cache.
    pub cache_read: Option<f64>,
    /// Sent, and put into the provider's cache.
    pub cache_write: Option<f64>,
}

/// As it is written down.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    api: Option<Api>,
    base_url: Option<Address>,
    api_key: Option<SecretString>,
    api_key_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    concurrency: Option<usize>,
    requests_per_minute: Option<u32>,
    #[serde(default)]
    body: Map<String, Value>,
    #[serde(default)]
    models: Vec<ProviderModel>,
}

/// An entry that is no provider; names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the provider `{provider}`: expected {expected}")]
pub struct BadProvider {
    /// The provider's name, as far as it has one.
    pub provider: String,
    /// The field.
    pub field: &'static str,
    /// What was expected.
    pub expected: String,
}

/// First parts of models' ids that are something else.
const TAKEN: [&str; 4] = ["acp", "demo", "js", "simse"];
/// Headers that requests set themselves.
const OWN_HEADERS: [&str; 7] =
    ["accept", "connection", "content-length", "content-type", "host", "traceparent", "transfer-encoding"];
/// Members of a request's body that are ours.
const OWN_MEMBERS: [&str; 9] =
    ["contents", "input", "instructions", "messages", "model", "stream", "system", "systemInstruction", "tools"];

impl Entry {
    /// Everything that is wrong with it: the field, and what was expected there.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let known = known_provider(&self.name);
        let names = format!(
            "1 to {} letters, digits, `.`, `_` or `-`, and none of {}",
            limit::ACP_SERVER_NAME_CHARS_MAX,
            TAKEN.join(", ")
        );
        let address = match &self.base_url {
            Some(url) => http::check_url(url.expose()).map_err(|error| error.to_string()),
            None if known.is_some() || self.name == "openai" => Ok(()),
            None => Err("an address, because this name is not a known provider's".to_owned()),
        };
        let api = self.api.is_some() || known.is_some() || self.name == "openai";
        let bad_headers: Vec<&String> = self.headers.keys().filter(|name| !is_header(name)).collect();
        let prices = self.models.iter().filter_map(|model| model.prices.as_ref()).all(ProviderPrices::hold);
        let own = |body: &Map<String, Value>| body.keys().any(|name| OWN_MEMBERS.contains(&name.as_str()));
        let twice =
            self.models.iter().enumerate().any(|(at, one)| self.models[..at].iter().any(|m| m.name == one.name));
        let apis =
            "openai-chat, openai-responses, anthropic-messages or gemini, because this name is not a known provider's";
        #[rustfmt::skip]
        let rules = [
            ("name", is_name(&self.name), names.as_str()),
            ("api", api, apis),
            ("apiKey", self.api_key.is_none() || self.api_key_file.is_none(), "nothing, because `apiKeyFile` is there"),
            ("headers", bad_headers.is_empty(), "names and values that a header can have, and none that requests set themselves"),
            ("concurrency", self.concurrency.is_none_or(|n| (1..=limit::PROVIDER_CONCURRENCY_MAX).contains(&n)), "a whole number from 1 to 1000000"),
            ("requestsPerMinute", self.requests_per_minute.is_none_or(|n| (1..=limit::PROVIDER_PER_MINUTE_MAX).contains(&n)), "a whole number from 1 to 1000000"),
            ("body", !own(&self.body) && !self.models.iter().any(|m| own(&m.body)), "none of the members that each request has by itself"),
            ("models", !self.models.iter().any(|model| model.name.is_empty()), "models with a `name`"),
            ("models", !twice, "each model once"),
            ("models", prices, "prices that are numbers from 0"),
        ];
        let broken = rules.into_iter().filter(|(_, holds, _)| !holds);
        let broken = broken.map(|(field, _, expected)| (field, expected.to_owned()));
        let address = address
            .err()
            .map(|expected| ("baseUrl", expected.strip_prefix("expected ").map_or(expected.clone(), str::to_owned)));
        broken.chain(address).collect()
    }
}

impl ProviderPrices {
    fn hold(&self) -> bool {
        let all = [Some(self.input), Some(self.output), self.cache_read, self.cache_write];
        all.into_iter().flatten().all(|price| price.is_finite() && price >= 0.0)
    }
}

fn is_name(name: &str) -> bool {
    (1..=limit::ACP_SERVER_NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !TAKEN.contains(&name)
}

fn is_header(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&b);
    !name.is_empty() && name.bytes().all(token) && !OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str())
}

impl TryFrom<Entry> for Provider {
    type Error = BadProvider;

    fn try_from(entry: Entry) -> Result<Self, BadProvider> {
        let refused = |(field, expected): (&'static str, String)| BadProvider {
            provider: entry.name.chars().take(limit::ACP_SERVER_NAME_CHARS_MAX).collect(),
            field,
            expected,
        };
        if let Some(fault) = entry.faults().into_iter().next() {
            return Err(refused(fault));
        }
        let known = known_provider(&entry.name);
        let api = entry.api.or(known.map(|known| known.api)).unwrap_or(Api::Chat);
        let address = entry.base_url.clone().or_else(|| known.map(|known| known.base_url.to_owned().into()));
        let base_url = address.unwrap_or_else(|| OPENAI_BASE_URL.to_owned().into());
        Ok(Self {
            name: entry.name,
            api,
            base_url,
            api_key: entry.api_key,
            api_key_file: entry.api_key_file,
            headers: entry.headers,
            concurrency: entry.concurrency,
            requests_per_minute: entry.requests_per_minute,
            body: entry.body,
            models: entry.models,
        })
    }
}

/// OpenAI's own endpoint.
const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

impl Provider {
    /// A provider that is known, as its variables have it. None: it has no key there, or wants none.
    fn of_variables(known: &KnownProvider, lookup: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let key = known.key_variables.iter().find_map(|name| lookup(name))?;
        let address = known.address_variable.and_then(lookup);
        let address = address.filter(|url| http::check_url(url).is_ok());
        Some(Self {
            name: known.name.to_owned(),
            api: known.api,
            base_url: address.unwrap_or_else(|| known.base_url.to_owned()).into(),
            api_key: Some(key.into()),
            api_key_file: None,
            headers: BTreeMap::new(),
            concurrency: None,
            requests_per_minute: None,
            body: Map::new(),
            models: Vec::new(),
        })
    }

    /// Takes a relative path of its key as relative to `base`.
    pub(super) fn start_within(&mut self, base: &Path) {
        if let Some(file) = &mut self.api_key_file {
            *file = base.join(&file);
        }
    }

    /// Whether it wants a key and has none; the words say how it can be given one.
    pub fn wants_key(&self) -> Option<String> {
        let variables = known_provider(&self.name).map_or(&[][..], |known| known.key_variables);
        (!variables.is_empty())
            .then(|| format!("no API key: set {}, or `apiKey` of the provider `{}`", variables.join(" or "), self.name))
    }
}

/// Adds what variables say: keys of the providers that are there without one, and providers that are not there.
pub(super) fn add_variables(providers: &mut Vec<Provider>, lookup: &dyn Fn(&str) -> Option<String>) {
    for known in KNOWN_PROVIDERS {
        let Some(found) = Provider::of_variables(known, lookup) else { continue };
        match providers.iter_mut().find(|provider| provider.name == known.name) {
            None => providers.push(found),
            Some(there) if there.api_key.is_none() && there.api_key_file.is_none() => there.api_key = found.api_key,
            Some(_) => {}
        }
    }
}

/// Everything that is wrong with an entry as it is written down: the field, and what was expected there. None: its form is not even
/// that of an entry.
pub(super) fn faults_of_entry(entry: Value) -> Option<Vec<(&'static str, String)>> {
    serde_json::from_value::<Entry>(entry).ok().map(|entry| entry.faults())
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        let key = |provider: &Self| provider.api_key.as_ref().map(|key| key.expose_secret().to_owned());
        let rest = |p: &Self| {
            let named = (p.name.clone(), p.api, p.base_url.clone(), p.api_key_file.clone(), p.headers.clone());
            (named, p.concurrency, p.requests_per_minute, p.body.clone(), p.models.clone())
        };
        key(self) == key(other) && rest(self) == rest(other)
    }
}

/// The name alone: the rest may hold keys.
impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_entry_names_its_field_and_not_its_values() {
        #[rustfmt::skip]
        let table = [
            (json!({"name": "a/b", "baseUrl": "http://h", "api": "gemini"}), "`name` of the provider `a/b`: expected 1 to 64 letters"),
            (json!({"name": "acp", "baseUrl": "http://h", "api": "gemini"}), "`name` of the provider `acp`"),
            (json!({"name": "mine", "baseUrl": "http://h"}), "`api` of the provider `mine`: expected openai-chat"),
            (json!({"name": "mine", "api": "gemini"}), "`baseUrl` of the provider `mine`: expected an address"),
            (json!({"name": "mine", "api": "gemini", "baseUrl": "sk"}), "`baseUrl` of the provider `mine`: expected"),
            (json!({"name": "groq", "apiKey": "sk", "apiKeyFile": "sk"}), "`apiKey` of the provider `groq`: expected nothing"),
            (json!({"name": "groq", "headers": {"Host": "sk"}}), "`headers` of the provider `groq`"),
            (json!({"name": "groq", "concurrency": 0}), "`concurrency` of the provider `groq`: expected a whole number from 1"),
            (json!({"name": "groq", "body": {"messages": []}}), "`body` of the provider `groq`"),
            (json!({"name": "groq", "models": [{"name": "m"}, {"name": "m"}]}), "`models` of the provider `groq`: expected each model once"),
            (json!({"name": "groq", "models": [{"name": "m", "prices": {"input": -1, "output": 0}}]}), "expected prices that are numbers from 0"),
            (json!({"name": "groq", "api": "soap"}), "unknown variant `soap`"),
            (json!({"name": "groq", "key": "sk"}), "unknown field `key`"),
        ];
        for (entry, want) in table {
            let error = serde_json::from_value::<Provider>(entry.clone()).unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains("sk"), "{entry}: {error}");
        }
    }

    #[test]
    fn a_name_that_is_known_is_enough() {
        let read = |entry: Value| serde_json::from_value::<Provider>(entry).unwrap();
        let anthropic = read(json!({ "name": "anthropic" }));
        assert_eq!((anthropic.api, anthropic.base_url.expose()), (Api::Messages, "https://api.anthropic.com"));
        assert!(anthropic.wants_key().unwrap().contains("ANTHROPIC_API_KEY"));
        let ollama = read(json!({ "name": "ollama", "baseUrl": "http://10.0.0.1:11434/v1" }));
        assert_eq!((ollama.base_url.expose(), ollama.wants_key()), ("http://10.0.0.1:11434/v1", None));
        assert!(!format!("{:?}", read(json!({ "name": "groq", "apiKey": "sk" }))).contains("sk"));
    }

    #[test]
    fn variables_bring_providers_and_keys() {
        let variables = |name: &str| match name {
            "ANTHROPIC_API_KEY" => Some("sk-a".to_owned()),
            "ANTHROPIC_BASE_URL" => Some("http://127.0.0.1:9".to_owned()),
            "GROQ_API_KEY" => Some("sk-g".to_owned()),
            _ => None,
        };
        let mut providers =
            vec![serde_json::from_value::<Provider>(json!({ "name": "groq", "concurrency": 2 })).unwrap()];
        add_variables(&mut providers, &variables);
        let seen: Vec<_> = providers.iter().map(|p| (p.name.as_str(), p.base_url.expose(), p.concurrency)).collect();
        let groq = ("groq", "https://api.groq.com/openai/v1", Some(2));
        assert_eq!(seen, [groq, ("anthropic", "http://127.0.0.1:9", None)]);
        assert!(providers.iter().all(|provider| provider.api_key.is_some()));
    }
}
