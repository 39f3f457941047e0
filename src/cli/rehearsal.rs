//! What `simse serve` would refuse before it listens, all of it at once: the settings, the application, the door, the files.

use std::path::PathBuf;

use super::running::options;
use crate::app::{App, OpenError};
use crate::config::{Launch, Rehearsal, data_directory, setting_of};
use crate::server::{ListenError, Server};

/// Rehearses a start of this process. `file`: what was named in the place of the usual one.
pub(super) async fn rehearse(file: Option<PathBuf>) -> Rehearsal {
    let looked = tokio::task::spawn_blocking(move || {
        let mut rehearsal = Rehearsal::of_this_process(file);
        if let Some(launch) = rehearsal.launch.clone() {
            look_at_disk(&launch, &mut rehearsal);
        }
        rehearsal
    });
    let mut rehearsal = looked.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
    let Some(launch) = rehearsal.launch.clone() else { return rehearsal };
    for error in App::faults(&launch.settings) {
        let setting = match &error {
            OpenError::Setting { field, .. } => setting_of(field),
            OpenError::Store(_) => None,
        };
        rehearsal.refuse(setting, &error.to_string());
    }
    // Whether there is one is all that counts: the one that would be used is looked at as a file.
    let token = launch.listen.auth.then(|| "given".to_owned().into());
    for error in Server::faults(&options(&launch, token)).await {
        rehearsal.refuse(Some(setting_at_fault(&error, &launch)), &error.to_string());
    }
    rehearsal
}

fn look_at_disk(launch: &Launch, rehearsal: &mut Rehearsal) {
    for error in data_directory::faults(&launch.data_directory, launch.listen.auth) {
        rehearsal.refuse(Some("data_dir"), &error.to_string());
    }
    let port_file = launch.port_file.as_deref().and_then(|file| data_directory::check_place(file).err());
    if let Some(error) = port_file {
        rehearsal.refuse(Some("port_file"), &error.to_string());
    }
}

fn setting_at_fault(error: &ListenError, launch: &Launch) -> &'static str {
    match error {
        ListenError::Tls { path, .. } => {
            let key = launch.listen.tls.as_ref().is_some_and(|(_, key)| key == path);
            if key { "tls_key" } else { "tls_cert" }
        }
        ListenError::Socket { .. } => "socket",
        ListenError::PortInUse { .. } => "port",
        ListenError::NotAllowed(_) | ListenError::Io { .. } => "host",
    }
}
