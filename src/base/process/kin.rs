//! Whose programs are: what a session leaves running (`server &`) can be ended when it goes, or its server does.
//!
//! A mark in the environment says so, as the mark of one call does; children inherit it. It outlives the call
//! and the process group. Only where `/proc` can be asked; elsewhere what was left running goes on.
//!
//! Promise: when nobody holds a family any more, what carries its mark is ended.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use super::TERM_GRACE;
use super::sweep::{kill_marked, signal_marked};

/// The variable that says whose a program is: `FAMILY.MEMBER`.
const KIN: &str = "SIMSE_KIN";

/// All that one server starts for its sessions, or one registry for its caller.
#[derive(Debug)]
pub struct Family {
    name: String,
    /// Whether anything carries the mark. Without, nobody looks.
    used: AtomicBool,
}

/// One session's part of a family.
#[derive(Debug, Clone)]
pub struct Kin {
    family: Arc<Family>,
    member: String,
}

impl Default for Family {
    /// A family of its own.
    fn default() -> Self {
        Self { name: uuid::Uuid::new_v4().simple().to_string(), used: AtomicBool::new(false) }
    }
}

impl Family {
    /// The part of a member.
    pub fn kin(self: &Arc<Self>, member: &str) -> Kin {
        Kin { family: Arc::clone(self), member: member.to_owned() }
    }

    /// Ends all that carries the family's mark.
    pub async fn end(&self) {
        if let Some(end) = self.ending() {
            // A search that panicked found nothing more to end.
            drop(tokio::task::spawn_blocking(end).await);
        }
    }

    /// The same, for the end of the process. Blocking.
    pub fn end_now(&self) {
        if let Some(end) = self.ending() {
            end();
        }
    }

    /// What ends it; None: there is nothing to end.
    fn ending(&self) -> Option<impl FnOnce() + Send + use<>> {
        let front = format!("{KIN}={}.", self.name);
        let used = self.used.swap(false, Ordering::AcqRel);
        used.then_some(move || end_marked(&|entry| entry.starts_with(front.as_bytes())))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(end) = self.ending() {
            // Without a thread to be had they go on.
            let _thread = std::thread::Builder::new().name("simse-family".into()).spawn(end);
        }
    }
}

impl Kin {
    /// What a program of this member carries in its environment.
    pub fn mark(&self) -> (OsString, OsString) {
        self.family.used.store(true, Ordering::Release);
        (KIN.into(), format!("{}.{}", self.family.name, self.member).into())
    }

    /// Ends all that carries the member's mark.
    pub async fn end(&self) {
        if !self.family.used.load(Ordering::Acquire) {
            return;
        }
        let whole = format!("{KIN}={}.{}", self.family.name, self.member);
        // A search that panicked found nothing more to end.
        drop(tokio::task::spawn_blocking(move || end_marked(&|entry| entry == whole.as_bytes())).await);
    }
}

/// Asks them to end, and kills what is left after a moment.
fn end_marked(marked: &dyn Fn(&[u8]) -> bool) {
    if signal_marked(Signal::TERM, marked) > 0 {
        std::thread::sleep(TERM_GRACE);
        kill_marked(marked);
    }
}
