//! What is repeated of a panic.
//!
//! Its words may hold what was being worked on, a secret among it. Only those are repeated that stand in the source as they are;
//! where it was says the rest.
//!
//! Invariant: nothing that a panic's words were made of while the program ran is in what is given here.

use std::any::Any;

use tokio::task::JoinError;

/// In the place of words that are not repeated.
const UNTOLD: &str = "in words that are not repeated";

/// The words of a panic.
pub fn words(panic: &(dyn Any + Send)) -> &'static str {
    panic.downcast_ref::<&'static str>().copied().unwrap_or(UNTOLD)
}

/// Why work has no end.
pub fn broken(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => format!("it panicked: {}", words(panic.as_ref())),
        Err(_) => "it was broken off".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_words_of_the_source_are_repeated() {
        let secret = std::hint::black_box("s3cret".to_owned());
        let made = tokio::spawn(async move { panic!("bad key {secret}") }).await;
        assert_eq!(made.map_err(broken).unwrap_err(), "it panicked: in words that are not repeated");
        let plain = tokio::spawn(async { panic!("as it stands here") }).await;
        assert_eq!(plain.map_err(broken).unwrap_err(), "it panicked: as it stands here");
        let other = tokio::spawn(async { std::panic::panic_any(7) }).await;
        assert_eq!(other.map_err(broken).unwrap_err(), "it panicked: in words that are not repeated");
        let task = tokio::spawn(std::future::pending::<()>());
        task.abort();
        assert_eq!(task.await.map_err(broken).unwrap_err(), "it was broken off");
    }
}
