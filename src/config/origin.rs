//! Where each setting comes from, and the variables that are not ours and count all the same.

use super::options::Options;
use super::resolve::{Surroundings, text};

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An argument of the program.
    Flag,
    /// This variable.
    Variable(String),
    /// The configuration file.
    File,
    /// The program that was started, which has defaults of its own.
    Program,
}

/// What variables say that are not ours.
pub(super) fn others(from: &Surroundings) -> Options {
    Options {
        openai_base_url: text(from, "OPENAI_BASE_URL").map(Into::into),
        openai_api_key: text(from, "OPENAI_API_KEY").map(Into::into),
        otlp_endpoint: text(from, "OTEL_EXPORTER_OTLP_ENDPOINT").map(Into::into),
        otlp_headers: text(from, "OTEL_EXPORTER_OTLP_HEADERS").map(Into::into),
        otlp_service_name: text(from, "OTEL_SERVICE_NAME"),
        ..Options::default()
    }
}

/// What the variable of a setting is called that is not ours.
fn foreign(name: &str) -> String {
    match name {
        "otlp_service_name" => "OTEL_SERVICE_NAME".to_owned(),
        name if name.starts_with("otlp_") => format!("OTEL_EXPORTER_{}", name.to_ascii_uppercase()),
        name => name.to_ascii_uppercase(),
    }
}

/// Where each setting that is said comes from: flags, variables, the file, the program, and variables that are not ours.
pub(super) fn origins(layers: [&Options; 5]) -> Vec<(&'static str, Origin)> {
    let said: Vec<Vec<&str>> =
        layers.iter().map(|layer| layer.shown().into_iter().map(|(name, _)| name).collect()).collect();
    let origin = |name: &&'static str| {
        let layer = said.iter().position(|names| names.contains(name))?;
        let upper = name.to_ascii_uppercase();
        Some((
            *name,
            match layer {
                0 => Origin::Flag,
                1 => Origin::Variable(format!("SIMSE_{upper}")),
                2 => Origin::File,
                3 => Origin::Program,
                _ => Origin::Variable(foreign(name)),
            },
        ))
    };
    Options::NAMES.iter().filter_map(origin).collect()
}
