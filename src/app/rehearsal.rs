//! What [`App::open`] would refuse in settings, all of it at once. Opens no store and starts nothing.

use std::sync::Arc;

use super::wiring::{self, Wardrobe};
use super::{App, OpenError, agents, providers, roots};
use crate::config::Settings;
use crate::hook::NoHooks;
use crate::provider::Errands;

impl App {
    /// All that would be refused in these settings, each once. Looks at directories, and blocks for as long as a disk takes.
    pub fn faults(settings: &Settings) -> Vec<OpenError> {
        let mut faults: Vec<OpenError> = roots::roots(settings).err().into_iter().collect();
        faults.extend(wiring::database_fault(settings));
        faults.extend(wiring::embedder_fault(settings));
        match agents::configured(settings, None) {
            Err(error) => faults.push(error),
            Ok(agents) => {
                match providers::models(settings, Vec::new(), &agents::beside(&agents, &Errands::default()), None) {
                    Err(error) => faults.push(error),
                    Ok(models) if faults.is_empty() => {
                        let given = (Arc::new(NoHooks) as _, None);
                        faults.extend(Wardrobe::new(settings, models, given, None).err());
                    }
                    Ok(_) => {}
                }
            }
        }
        faults
    }
}
