//! What becomes of real edits that are quoted badly, as a table: `cargo run --release --example edit-corpus [-- CASES]`.

#[path = "it/support/edit_corpus.rs"]
mod edit_corpus;

use std::io::Write;

use edit_corpus::{Blur, Fate, cases, percent, tally};

fn main() -> std::io::Result<()> {
    let most = std::env::args().nth(1).map_or(Ok(4_000), |text| text.parse::<usize>());
    let most = most.map_err(|_| std::io::Error::other("expected a number of edits"))?;
    let mut out = std::io::stdout().lock();
    let cases = cases(most);
    writeln!(out, "{} edits\n", cases.len())?;
    let mut wrong = Vec::new();
    let tally = tally(&cases, |case, blur| wrong.push(format!("{}: {}", blur.name(), case.name)));
    writeln!(out, "| blur | edits | right | refused | wrong |\n|---|---|---|---|---|")?;
    for blur in Blur::ALL {
        let Some(fates) = tally.get(&blur) else { continue };
        let share = |fate| percent(fates, fate);
        let all: usize = fates.values().sum();
        let (right, refused, wrong) = (share(Fate::Right), share(Fate::Refused), fates.get(&Fate::Wrong).unwrap_or(&0));
        let short = if right < blur.least_right() { " (too few)" } else { "" };
        writeln!(out, "| {} | {all} | {right:.1} %{short} | {refused:.1} % | {wrong} |", blur.name())?;
    }
    for line in wrong {
        writeln!(out, "wrong: {line}")?;
    }
    Ok(())
}
