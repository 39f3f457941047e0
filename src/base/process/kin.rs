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
use super::sweep::{kill_marked, running_since, signal_marked};

/// The variable that says whose a program is: `FAMILY.MEMBER`.
const KIN: &str = "SIMSE_KIN";
/// Characters of a family's name.
const NAME_LEN: usize = 32;

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

    /// What another process has to know to end what this one left running, should this one be killed: the family's name, and
    /// who holds it.
    pub fn record(&self) -> String {
        let own = std::process::id();
        let since = i32::try_from(own).ok().and_then(running_since).unwrap_or_default();
        format!("{} {own} {since}\n", self.name)
    }

    /// Ends what the family of a record left running, when the process that held it is gone; how many programs were asked
    /// to end. Blocking.
    ///
    /// What is no record ends nothing.
    pub fn end_forsaken(record: &str) -> usize {
        let words: Vec<&str> = record.split_ascii_whitespace().collect();
        let [name, holder, since] = words[..] else { return 0 };
        let (Ok(holder), Ok(since)) = (holder.parse::<i32>(), since.parse::<u64>()) else { return 0 };
        let is_name = name.len() == NAME_LEN && name.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_name || running_since(holder) == Some(since) {
            return 0;
        }
        let front = format!("{KIN}={name}.");
        end_marked(&|entry| entry.starts_with(front.as_bytes()))
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
        used.then_some(move || {
            end_marked(&|entry| entry.starts_with(front.as_bytes()));
        })
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

/// Asks them to end, and kills what is left after a moment; how many were asked.
fn end_marked(marked: &dyn Fn(&[u8]) -> bool) -> usize {
    let found = signal_marked(Signal::TERM, marked);
    if found > 0 {
        std::thread::sleep(TERM_GRACE);
        kill_marked(marked);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn starts(family: &Arc<Family>) -> Child {
        let (name, value) = family.kin("s").mark();
        Command::new("sleep")
            .arg("600")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env(name, value)
            .spawn()
            .expect("sleep starts")
    }

    #[test]
    fn what_a_killed_process_left_running_is_ended_and_nothing_else() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let (family, other) = (Arc::new(Family::default()), Arc::new(Family::default()));
        let (mut ours, mut theirs) = (starts(&family), starts(&other));
        let record = family.record();
        assert_eq!(Family::end_forsaken(&record), 0, "its holder lives: this process");
        let [name, holder, since] = record.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{record}") };
        let before = since.parse::<u64>().unwrap() - 1;
        let bad = [
            String::new(),
            name.into(),
            format!("{name} x 1"),
            format!(" {holder} {before}"),
            format!("a {holder} {before}"),
        ];
        for bad in bad {
            assert_eq!(Family::end_forsaken(&bad), 0, "{bad}");
        }
        assert!(ours.try_wait().unwrap().is_none() && theirs.try_wait().unwrap().is_none());
        // Another process had that number.
        assert_eq!(Family::end_forsaken(&format!("{name} {holder} {before}\n")), 1);
        assert!(!ours.wait().unwrap().success());
        assert!(theirs.try_wait().unwrap().is_none(), "another's goes on");
        theirs.kill().unwrap();
        // Nothing but its exit code is left of it.
        let gone = i32::try_from(theirs.id()).unwrap();
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_raw(gone).unwrap()),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .unwrap();
        assert_eq!(running_since(gone), None);
        theirs.wait().unwrap();
    }
}
