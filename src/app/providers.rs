//! The models that the settings give: the OpenAI-compatible endpoint, further providers, those of a recording, agents, and those
//! that are found on this machine.

use std::sync::Arc;
use std::time::Duration;

use super::OpenError;
use crate::base::panics::broken;
use crate::base::{http, limit};
use crate::config::{Api, Names, OpenAiApi, Provider, ProviderModel, Setting, Settings, TapeSettings, known_provider};
use crate::model::{Model, ModelFacts, Models, Prices};
use crate::provider::{
    self, DEMO_MODEL_ID, GateOptions, HttpModelOptions, Key, OpenAiOptions, Place, Reach, Tape, TapeError,
};

/// What is asked of an OpenAI-compatible endpoint when no model is named.
const OPENAI_MODEL_DEFAULT: &str = "gpt-5.2";
/// The provider that has settings of its own.
const OPENAI: &str = "openai";
/// Where nobody is: the address of models whose answers come from a recording.
const NOWHERE: &str = "http://recording.invalid/v1";

/// Opens what answers are recorded in, or come from. None: neither.
///
/// # Errors
/// [`OpenError::Setting`] that says why.
pub(super) async fn tape(settings: &Settings) -> Result<Option<Arc<Tape>>, OpenError> {
    let wanted = settings.tape.clone();
    let (setting, open): (Setting, Box<dyn FnOnce() -> Result<Tape, TapeError> + Send>) = match wanted {
        TapeSettings::Off => return Ok(None),
        TapeSettings::Record(path) => (Setting::RecordModels, Box::new(move || Tape::record(&path))),
        TapeSettings::Replay(path, speed) => (Setting::ReplayModels, Box::new(move || Tape::play(&path, speed))),
    };
    let field = settings.names.of(setting);
    let opened = tokio::task::spawn_blocking(open)
        .await
        .map_err(|error| OpenError::Setting { field: field.clone(), expected: broken(error) })?;
    let opened = opened
        .map_err(|error| OpenError::Setting { field, expected: format!("a recording that can be used; {error}") })?;
    Ok(Some(Arc::new(opened)))
}

/// The models that the settings give, and which one new sessions get.
///
/// What drives our own loop comes first; without it the first agent is the default.
///
/// # Errors
/// [`OpenError::Setting`]: the default model, a fallback or a provider is none that can be had.
pub(super) fn models(
    settings: &Settings,
    extras: Vec<Arc<dyn Model>>,
    agents: &[Arc<dyn Model>],
    tape: Option<&Arc<Tape>>,
) -> Result<Models, OpenError> {
    check_names(settings)?;
    let sources = Arc::new(Sources::of(settings, tape));
    let mut entries = extras;
    entries.extend(sources.listed(settings.model.as_deref()));
    entries.extend(agents.iter().cloned());
    let first = entries.first().map(|model| model.id().to_owned());
    entries.push(provider::demo());
    let default_id = settings.model.clone().or(first).unwrap_or_else(|| DEMO_MODEL_ID.to_owned());
    let models = Models::new(entries, default_id.clone());
    let models = models.with_open(Arc::new(move |id| sources.open(id)));
    let known = |id: &str| models.get(id).is_some();
    let refused = |setting, id: &str| {
        let listed = models.list();
        let known: Vec<&str> = listed.iter().map(|model| model.id()).collect();
        let expected = format!(
            "a model that is configured ({}), got `{id}`; `openai/NAME` needs OPENAI_API_KEY or OPENAI_BASE_URL",
            known.join(", ")
        );
        Err(OpenError::Setting { field: settings.names.of(setting), expected })
    };
    if !known(&default_id) {
        return refused(Setting::Model, &default_id);
    }
    let mut fallbacks: Vec<Arc<dyn Model>> = Vec::new();
    for id in &settings.model_fallbacks {
        // Each is asked once.
        if fallbacks.iter().any(|model| model.id() == id) {
            let expected = format!("models that are listed once, got `{id}` twice");
            return Err(OpenError::Setting { field: settings.names.of(Setting::ModelFallbacks), expected });
        }
        match models.get(id) {
            Some(model) if !model.is_agent() => fallbacks.push(model),
            Some(_) | None => return refused(Setting::ModelFallbacks, id),
        }
    }
    let of_its_own = |setting, id: Option<&str>| match id {
        None => Ok(None),
        Some(id) => match models.get(id) {
            Some(model) if !model.is_agent() => Ok(Some(model)),
            Some(_) | None => refused(setting, id).map(|_| None),
        },
    };
    let small = of_its_own(Setting::SmallModel, settings.small_model.as_deref())?;
    let summing = of_its_own(Setting::CompactionModel, settings.compaction_model.as_deref())?;
    Ok(models.with_fallbacks(fallbacks).with_small(small).with_summing(summing))
}

/// No two providers have one name.
fn check_names(settings: &Settings) -> Result<(), OpenError> {
    let providers = &settings.providers;
    for (at, provider) in providers.iter().enumerate() {
        if providers[..at].iter().any(|earlier| earlier.name == provider.name) {
            let field = match settings.names {
                Names::Flags => format!("providers[{at}].name"),
                Names::Members => format!("providers.{at}.name"),
            };
            let expected = format!("a name of its own, got `{}` once more", provider.name);
            return Err(OpenError::Setting { field, expected });
        }
    }
    Ok(())
}

/// Where models come from.
struct Sources {
    providers: Vec<Source>,
    /// Whether a provider on this machine can be named that is not configured.
    local: bool,
    idle_timeout: Duration,
}

/// One provider.
struct Source {
    place: Arc<Place>,
    api: Api,
    /// What the settings know of its models.
    models: Vec<ProviderModel>,
    /// Members of each request's body.
    body: serde_json::Map<String, serde_json::Value>,
    /// Whether its models can be shown images, where that is said of all of them.
    images: Option<bool>,
    /// The model that is meant when none is named.
    first: Option<String>,
    /// The only models that there are, with their wires: those of a recording.
    only: Option<Vec<(String, Api)>>,
}

impl Sources {
    fn of(settings: &Settings, tape: Option<&Arc<Tape>>) -> Self {
        let idle_timeout = Duration::from_millis(settings.limits.model_idle_timeout_ms);
        if let Some(tape) = tape.filter(|tape| tape.plays()) {
            return Self { providers: recorded(tape, idle_timeout), local: false, idle_timeout };
        }
        let openai = &settings.openai;
        let named = settings.providers.iter().any(|provider| provider.name == OPENAI);
        let mut providers = Vec::new();
        if (openai.base_url.is_some() || openai.api_key.is_some()) && !named {
            providers.push(openai_source(settings, tape.cloned()));
        }
        let given = settings.providers.iter();
        providers.extend(given.map(|provider| source(provider, (idle_timeout, tape.cloned()))));
        Self { providers, local: settings.find_local_models, idle_timeout }
    }

    /// The models that are listed: those that are known, and of each provider the one that is meant when none is named.
    fn listed(&self, wanted: Option<&str>) -> Vec<Arc<dyn Model>> {
        self.providers.iter().flat_map(|source| source.listed(wanted)).collect()
    }

    /// A model that is not listed.
    fn open(&self, id: &str) -> Option<Arc<dyn Model>> {
        let (provider, name) = id.split_once('/').filter(|(_, name)| !name.is_empty())?;
        match self.providers.iter().find(|source| source.place.provider == provider) {
            Some(source) => source.open(name),
            None if self.local && LOCAL.iter().any(|local| local.name == provider) => {
                local_source(provider, self.idle_timeout)?.open(name)
            }
            None => None,
        }
    }
}

impl Source {
    fn listed(&self, wanted: Option<&str>) -> Vec<Arc<dyn Model>> {
        let prefix = format!("{}/", self.place.provider);
        let wanted = wanted.and_then(|id| id.strip_prefix(&prefix)).map(str::to_owned);
        let mut names: Vec<String> = wanted.into_iter().collect();
        match &self.only {
            Some(only) => names = only.iter().map(|(name, _)| name.clone()).collect(),
            None => {
                names.extend(self.models.iter().map(|model| model.name.clone()));
                names.extend(self.first.clone());
                if self.images.is_none() && self.models.is_empty() {
                    names.extend(provider::known_models(&self.place.provider).into_iter().map(str::to_owned));
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names.iter().filter_map(|name| self.open(name)).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Model>> {
        let said = self.models.iter().find(|model| model.name == name);
        let mut api = said.and_then(|model| model.api).unwrap_or(self.api);
        if let Some(only) = &self.only {
            api = only.iter().find(|(known, _)| known == name)?.1;
        }
        let id = format!("{}/{name}", self.place.provider);
        let mut facts = provider::known_facts(&id).unwrap_or_default();
        facts.images = self.images.unwrap_or(facts.images);
        let mut body = self.body.clone();
        if let Some(said) = said {
            facts = told(said, facts);
            body.extend(said.body.clone());
        }
        Some(provider::http_model(HttpModelOptions { name: name.to_owned(), api, facts, body }, &self.place))
    }
}

/// What settings say of a model, over what is known.
fn told(said: &ProviderModel, known: ModelFacts) -> ModelFacts {
    let prices = said.prices.map(|prices| Prices {
        input: prices.input,
        output: prices.output,
        cache_read: prices.cache_read,
        cache_write: prices.cache_write,
    });
    ModelFacts {
        label: said.label.clone().or(known.label),
        context_tokens: said.context_tokens.or(known.context_tokens),
        output_tokens_max: said.output_tokens.or(known.output_tokens_max),
        images: said.images.unwrap_or(known.images),
        reasoning: said.reasoning.unwrap_or(known.reasoning),
        reasoning_known: said.reasoning.is_some() || known.reasoning_known,
        prices: prices.or(known.prices),
        ..known
    }
}

fn openai_source(settings: &Settings, tape: Option<Arc<Tape>>) -> Source {
    let openai = &settings.openai;
    let mut place = openai_options(settings, OPENAI_MODEL_DEFAULT, &Reach::default()).place();
    place.tape = tape;
    let api = match openai.api {
        Some(OpenAiApi::Chat) => Api::Chat,
        Some(OpenAiApi::Responses) => Api::Responses,
        None if openai.base_url.is_none() => Api::Responses,
        None => Api::Chat,
    };
    let wanted = settings.model.as_deref().and_then(|id| id.strip_prefix("openai/"));
    let first = wanted.unwrap_or(OPENAI_MODEL_DEFAULT).to_owned();
    // What another server has under the name of one of OpenAI's models is that server's affair.
    let images = openai.images.or(openai.base_url.is_some().then_some(true));
    Source {
        place: Arc::new(place),
        api,
        models: Vec::new(),
        body: serde_json::Map::new(),
        images,
        first: Some(first),
        only: None,
    }
}

/// How the OpenAI-compatible endpoint is spoken to.
pub(super) fn openai_options(settings: &Settings, name: &str, reach: &Reach) -> OpenAiOptions {
    OpenAiOptions {
        model: name.to_owned(),
        base_url: settings.openai.base_url.as_ref().map(|given| given.expose().to_owned()),
        api_key: settings.openai.api_key.clone(),
        idle_timeout: Duration::from_millis(settings.limits.model_idle_timeout_ms),
        images: settings.openai.images.unwrap_or(true),
        reach: reach.clone(),
    }
}

fn source(provider: &Provider, (idle_timeout, tape): (Duration, Option<Arc<Tape>>)) -> Source {
    let mut place = Place::new(&provider.name, provider.base_url.expose(), idle_timeout)
        .bounded(GateOptions { concurrency_max: provider.concurrency, per_minute: provider.requests_per_minute });
    place.key = match (&provider.api_key, &provider.api_key_file) {
        (Some(key), _) => Key::Fixed(key.clone()),
        (None, Some(file)) => Key::File(file.clone()),
        (None, None) => Key::None,
    };
    place.wants_key = provider.wants_key();
    place.headers = provider.headers.clone();
    place.tape = tape;
    let known = known_provider(&provider.name).and_then(|known| known.model);
    let first = known.filter(|_| provider.models.is_empty()).map(str::to_owned);
    Source {
        place: Arc::new(place),
        api: provider.api,
        models: provider.models.clone(),
        body: provider.body.clone(),
        images: None,
        first,
        only: None,
    }
}

/// The providers of a recording.
fn recorded(tape: &Arc<Tape>, idle_timeout: Duration) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for (id, wire) in tape.models() {
        let (Some((provider, name)), Some(api)) = (id.split_once('/'), Api::named(&wire)) else {
            tracing::warn!(model = id, wire, "a recording has answers that are left out: the wire is not known");
            continue;
        };
        let entry = (name.to_owned(), api);
        if let Some(source) = sources.iter_mut().find(|source| source.place.provider == provider) {
            source.only.get_or_insert_default().push(entry);
            continue;
        }
        let mut place = Place::new(provider, NOWHERE, idle_timeout);
        place.tape = Some(Arc::clone(tape));
        sources.push(Source {
            place: Arc::new(place),
            api,
            models: Vec::new(),
            body: serde_json::Map::new(),
            images: None,
            first: None,
            only: Some(vec![entry]),
        });
    }
    sources
}

/// A server of models that may run on this machine.
struct Local {
    name: &'static str,
    /// Where its models are listed.
    list: &'static str,
    /// The names in what it lists.
    names: fn(&serde_json::Value) -> Vec<String>,
}

/// Those that are looked for.
const LOCAL: [Local; 2] = [
    Local { name: "ollama", list: "http://127.0.0.1:11434/api/tags", names: |list| texts(&list["models"], "name") },
    Local {
        name: "llamacpp",
        list: "http://127.0.0.1:8080/v1/models",
        // Many others listen there.
        names: |list| {
            let own = |model: &&serde_json::Value| model["owned_by"] == "llamacpp";
            let models = list["data"].as_array().into_iter().flatten().filter(own);
            models.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
        },
    },
];

fn texts(list: &serde_json::Value, member: &str) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|one| one[member].as_str().map(str::to_owned)).take(limit::LOCAL_MODELS_MAX).collect()
}

fn local_source(name: &str, idle_timeout: Duration) -> Option<Source> {
    let known = known_provider(name)?;
    Some(Source {
        place: Arc::new(Place::new(name, known.base_url, idle_timeout)),
        api: known.api,
        models: Vec::new(),
        body: serde_json::Map::new(),
        images: None,
        first: None,
        only: None,
    })
}

/// The models that servers on this machine have now. Waits a moment for each of them; one that is not there costs nothing.
pub(super) async fn found_locally(settings: &Settings) -> Vec<Arc<dyn Model>> {
    let idle_timeout = Duration::from_millis(settings.limits.model_idle_timeout_ms);
    let configured = |name: &str| settings.providers.iter().any(|provider| provider.name == name);
    let look = |local: &'static Local| async move {
        let wait = Duration::from_millis(limit::LOCAL_MODELS_WAIT_MS);
        let text = tokio::time::timeout(wait, http::get_text(local.list, wait)).await.ok()?.ok()?;
        let names = (local.names)(&serde_json::from_str(&text).ok()?);
        let source = local_source(local.name, idle_timeout)?;
        Some(names.iter().filter_map(|name| source.open(name)).collect::<Vec<_>>())
    };
    let all = LOCAL.iter().filter(|local| !configured(local.name)).map(look);
    futures_util::future::join_all(all).await.into_iter().flatten().flatten().collect()
}
