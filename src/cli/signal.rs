//! Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends the process at once.
//!
//! SIGHUP asks for the configuration to be read again, where no terminal is behind it and `nohup` has not switched it off:
//! else it keeps what it was set to.

use std::io::IsTerminal as _;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Signals that may wait for who decides.
const SIGNALS_MAX: usize = 3;

/// Fires at the first signal. From then on another signal ends the process. Signals have a thread of their own, so that
/// nothing else that waits keeps them waiting.
///
/// What is written past the largest size of a file (`ulimit -f`) is refused from now on, as by a full disk, and does not end the
/// process.
///
/// # Errors
/// When the system takes no handlers.
pub(super) fn stop_requested() -> std::io::Result<CancellationToken> {
    let requested = CancellationToken::new();
    let fire = requested.clone();
    let (told, taken) = std::sync::mpsc::sync_channel(1);
    let watch = move || {
        let watched = || -> std::io::Result<_> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            let entered = runtime.enter();
            let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(too_large())?);
            drop(entered);
            Ok((runtime, signals))
        };
        let (runtime, (mut terminate, mut interrupt, _too_large)) = match watched() {
            Ok(watched) => watched,
            // Who asked waits for it.
            Err(error) => return drop(told.send(Err(error))),
        };
        let _ = told.send(Ok(()));
        runtime.block_on(async {
            next(&mut terminate, &mut interrupt).await;
            fire.cancel();
            let second = next(&mut terminate, &mut interrupt).await;
            std::process::exit(128 + second);
        });
    };
    std::thread::Builder::new().name("simse-signals".into()).spawn(watch)?;
    taken.recv().map_err(std::io::Error::other)??;
    super::screen::end_with(&requested);
    Ok(requested)
}

/// Each Ctrl-C, SIGTERM and end of the terminal, by its number, for who decides from one to the next what it means. Where nobody takes
/// them the process ends.
///
/// # Errors
/// When the system takes no handlers.
pub(super) fn each() -> std::io::Result<mpsc::Receiver<i32>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), too_large()];
    let [interrupt, terminate, hangup, too_large] = kinds.map(signal);
    let (mut interrupt, mut terminate, mut hangup, too_large) = (interrupt?, terminate?, hangup?, too_large?);
    let (told, taken) = mpsc::channel(SIGNALS_MAX);
    tokio::spawn(async move {
        let _held = too_large;
        loop {
            let kind = tokio::select! {
                _ = interrupt.recv() => SignalKind::interrupt(),
                _ = terminate.recv() => SignalKind::terminate(),
                _ = hangup.recv() => SignalKind::hangup(),
            };
            if told.try_send(kind.as_raw_value()).is_err() {
                std::process::exit(128 + kind.as_raw_value());
            }
        }
    });
    Ok(taken)
}

/// A file would become larger than the process may make one. Who has a handler gets the error of the write instead of his end.
fn too_large() -> SignalKind {
    SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())
}

/// Whether SIGHUP is ours to take: nobody had it ignored, and it does not tell that the terminal has gone.
pub(super) fn hangup_is_ours() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    !std::io::stdin().is_terminal() && !ignores_hangup(&status)
}

/// Whether a process with this status ignores SIGHUP: the first bit of a mask in hexadecimal.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> i32 {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_did_is_seen() {
        let status = |mask: &str| format!("Name:\tsimse\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        assert!(ignores_hangup(&status("0000000000001001")) && !ignores_hangup(&status("0000000000001000")));
        assert!(ignores_hangup(""), "who cannot know leaves it alone");
    }
}
