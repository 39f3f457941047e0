//! Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends the process at once.
//!
//! SIGHUP keeps what it was set to: a handler here would undo what `nohup` did.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Fires at the first signal. From then on another signal ends the process.
///
/// # Errors
/// When the system takes no handlers.
pub(super) fn stop_requested() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let requested = CancellationToken::new();
    let fire = requested.clone();
    tokio::spawn(async move {
        next(&mut terminate, &mut interrupt).await;
        fire.cancel();
        let second = next(&mut terminate, &mut interrupt).await;
        std::process::exit(128 + second);
    });
    Ok(requested)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> i32 {
    tokio::select! {
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
    }
}
