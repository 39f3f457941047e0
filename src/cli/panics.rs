//! Panics go to the log, as lines like all others: where one was, and no words that may hold a secret.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

use crate::base::panics;

/// Has the log tell of panics from now on.
pub(super) fn watch() {
    std::panic::set_hook(Box::new(tell));
}

fn tell(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let words = panics::words(panic.payload());
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread = thread.name().unwrap_or_default(), place, words, backtrace, "a panic");
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Panics of other tests meanwhile go the same way, and into another log.
    #[test]
    fn the_log_says_where_and_nothing_that_may_be_secret() {
        let kept = Kept::default();
        let into = kept.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || into.clone()).finish();
        let secret = std::hint::black_box("s3cret".to_owned());
        let before = std::panic::take_hook();
        watch();
        let caught = tracing::subscriber::with_default(log, || {
            std::panic::catch_unwind(move || panic!("the key {secret} is wrong"))
        });
        std::panic::set_hook(before);
        assert!(caught.is_err());
        let said = String::from_utf8(kept.0.lock().clone()).unwrap();
        assert!(said.contains("a panic") && said.contains("src/cli/panics.rs:"), "{said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
}
