//! What a start would refuse in the settings, all of it at once: in the file, in the variables, and in what they say together.
//! Nothing is made or started. What is sound makes a [`Launch`], so that others can say what they would refuse in that.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;

use super::faults::{Looked, look_at, text_of};
use super::names::setting_of;
use super::options::Options;
use super::origin::{Origin, origins, others};
use super::resolve::{Surroundings, database, launch_of, missing_directories, problems, tls, within};
use super::{ConfigError, Launch, telemetry};

/// A start that does not happen.
#[derive(Debug, Default)]
pub struct Rehearsal {
    /// The file that would be read.
    pub file: Option<PathBuf>,
    /// What it would start with, as far as that is sound. None: too little is.
    pub launch: Option<Launch>,
    lines: BTreeMap<String, usize>,
    /// Where the settings of `launch` come from that stand in the file.
    in_file: Vec<&'static str>,
    faults: Vec<(usize, String)>,
}

impl Rehearsal {
    /// That of this process. `file`: what was named in the place of the usual one. Blocks for as long as a disk takes.
    pub fn of_this_process(file: Option<PathBuf>) -> Self {
        let mut rehearsal = Self { file: file.clone(), ..Self::default() };
        let directory = match std::env::current_dir() {
            Ok(directory) => directory,
            Err(cause) => {
                rehearsal.say(0, format!("current directory: expected one that exists and can be read; {cause}"));
                return rehearsal;
            }
        };
        match file.map_or_else(Launch::config_path, |named| Ok(Some(named))) {
            Ok(path) => rehearsal.file = path,
            Err(error) => rehearsal.say(0, error.to_string()),
        }
        let from = Surroundings { lookup: &|name| std::env::var_os(name), directory, defaults: Options::default() };
        rehearsal.look(&from);
        rehearsal
    }

    /// All that would be refused, one line each: those of the file first, in its order.
    pub fn faults(&self) -> Vec<String> {
        let mut sorted: Vec<&(usize, String)> = self.faults.iter().collect();
        sorted.sort_by_key(|(line, _)| if *line == 0 { usize::MAX } else { *line });
        sorted.dedup();
        sorted.into_iter().map(|(_, said)| said.clone()).collect()
    }

    /// Adds what somebody else would refuse. `setting`: whose fault it is, as the file has it; its line is told where it stands there.
    pub fn refuse(&mut self, setting: Option<&str>, problem: &str) {
        let there = setting.filter(|name| self.in_file.contains(name));
        let line = there.and_then(|name| self.lines.get(name)).copied().unwrap_or(0);
        match (&self.file, line) {
            (Some(file), line) if line > 0 => self.say(line, format!("{}:{line}: {problem}", file.display())),
            _ => self.say(0, problem.to_owned()),
        }
    }

    fn say(&mut self, line: usize, problem: String) {
        if !self.faults.iter().any(|(_, said)| *said == problem) {
            self.faults.push((line, problem));
        }
    }

    fn look(&mut self, from: &Surroundings) {
        let wrong = Options::faults_of_variables(from.lookup);
        let named: Vec<String> = wrong.iter().filter_map(place_of).collect();
        for fault in wrong {
            self.say(0, fault.to_string());
        }
        let sound = |name: &str| -> Option<OsString> {
            if named.iter().any(|wrong| wrong == name) { None } else { (from.lookup)(name) }
        };
        let variables = Options::from_variables(&sound).unwrap_or_default();
        let path = self.file.as_ref().map(|path| from.directory.join(path));
        let said = path.as_deref().and_then(|path| self.read(path)).unwrap_or_default();
        let others = others(from);
        let origins = origins([&Options::default(), &variables, &said, &from.defaults, &others]);
        self.in_file = origins.iter().filter(|(_, origin)| *origin == Origin::File).map(|(name, _)| *name).collect();
        let mut all = variables.over(said).over(others);
        let mut refused = problems(&all);
        refused.extend(missing_directories(&all, from));
        refused.extend(tls(&all, from).err());
        refused.extend(database(&all, from).err());
        refused.extend(telemetry::collector(&all).err());
        for error in refused {
            let setting = place_of(&error).and_then(|place| setting_of(&place).map(str::to_owned));
            self.refuse(setting.as_deref(), &error.to_string());
            // The rest is looked at without it.
            let without = match setting.as_deref() {
                Some("tls_cert" | "tls_key") => vec!["tls_cert", "tls_key"],
                Some("node_url" | "node_labels") => vec!["node_url", "node_labels"],
                other => other.into_iter().collect(),
            };
            all.restore(&Options::default(), &without);
        }
        match launch_of(all, (path, origins), from) {
            Ok(launch) => self.launch = Some(launch),
            Err(error) => self.refuse(None, &error.to_string()),
        }
    }

    /// What the file says, without that with which something is wrong.
    fn read(&mut self, path: &Path) -> Option<Options> {
        let refused = |problem: String| ConfigError::File { path: path.to_owned(), problem }.to_string();
        let text = text_of(path).map_err(|cause| self.say(0, refused(cause.to_string()))).ok()?;
        let Looked { faults, bad, lines } = look_at(&text);
        self.lines = lines;
        for fault in faults {
            let shown = self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
            self.say(fault.line, format!("{shown}:{}: {}", fault.line, fault.problem));
        }
        let mut table: toml::Table = toml::from_str(&text).ok()?;
        table.retain(|name, _| !bad.iter().any(|wrong| wrong == name));
        match Options::deserialize(table) {
            Ok(said) => Some(within(said, path.parent().unwrap_or(Path::new("/")))),
            Err(cause) => {
                self.say(0, refused(cause.message().to_owned()));
                None
            }
        }
    }
}

fn place_of(error: &ConfigError) -> Option<String> {
    match error {
        ConfigError::Value { place, .. } => Some(place.clone()),
        ConfigError::File { .. } | ConfigError::NoHome => None,
    }
}
