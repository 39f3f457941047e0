//! Edits of real sources, quoted as badly as models quote: nearly all find their place, and none a wrong one.

use super::support::edit_corpus::{Fate, cases, percent, tally};

/// Edits of the sample. The whole of it is `cargo run --release --example edit-corpus`.
const CASES: usize = 160;

#[test]
fn blurred_edits_find_their_place_or_none() {
    let cases = cases(CASES);
    assert!(cases.len() >= CASES / 4, "{} edits", cases.len());
    let mut wrong = Vec::new();
    let tally = tally(&cases, |case, blur| wrong.push(format!("{} under {}", case.name, blur.name())));
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    for (blur, fates) in &tally {
        let right = percent(fates, Fate::Right);
        assert!(right >= blur.least_right(), "{}: {right:.1} % right, {fates:?}", blur.name());
    }
}
