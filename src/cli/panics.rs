//! Panics go to the log, as lines like all others: where one was, and no words that may hold a secret.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

use crate::base::panics;

/// Has the log tell of panics from now on.
pub(super) fn watch() {
    std::panic::set_hook(Box::new(|panic| {
        let (place, words) = told(panic);
        let thread = std::thread::current();
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(thread = thread.name().unwrap_or_default(), place, words, backtrace, "a panic");
    }));
}

/// Where it was, and what is repeated of its words.
fn told(panic: &PanicHookInfo<'_>) -> (String, &'static str) {
    (panic.location().map(ToString::to_string).unwrap_or_default(), panics::words(panic.payload()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// Panics of other tests may come by meanwhile.
    #[test]
    fn it_is_said_where_and_nothing_that_may_be_secret() {
        let kept = Arc::<Mutex<Vec<(String, &str)>>>::default();
        let into = Arc::clone(&kept);
        let secret = std::hint::black_box("s3cret".to_owned());
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| into.lock().push(told(panic))));
        let caught = std::panic::catch_unwind(move || panic!("the key {secret} is wrong"));
        std::panic::set_hook(before);
        assert!(caught.is_err());
        let kept = kept.lock();
        let own = kept.iter().find(|(place, _)| place.starts_with("src/cli/panics.rs:"));
        assert_eq!(own.map(|(_, words)| *words), Some("in words that are not repeated"), "{kept:?}");
    }
}
