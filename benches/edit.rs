//! How long the edit chain takes, in memory: an exact place in a megabyte, and blocks between anchors in 20,000 lines.
//!
//! `cargo bench --bench edit` prints the median of each row in milliseconds. `benches/tools/edit.mjs` makes the same texts and
//! holds the same rows against plain JavaScript.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::hint::black_box;
use std::time::Instant;

use simse::edit::fuzzy_match;

const ROUNDS: usize = 15;
const LINES: usize = 20_000;
const WORDS: [&str; 24] = [
    "let", "total", "=", "value", "+", "count", "if", "index", "return", "self", "name", "match", "result", "for",
    "item", "in", "list", ".push(", ")", "{", "}", "&mut", "Some(", "None",
];

fn main() {
    let text = join(&blocks(20, 7));
    let place = text.len() / 2 + text[text.len() / 2..].find('\n').unwrap_or(0);
    let megabyte = format!("{}\nthe_only_place\n{}{text}", &text[..place], &text[place + 1..]);
    row(&format!("exact, {} kB", megabyte.len() / 1000), &megabyte, "the_only_place");
    row("a miss without anchors", &text, "nothing here\nis in the text\n");
    for height in [5, 20, 50, 200, 1_000] {
        let blocks = blocks(height, 7);
        let text = join(&blocks);
        let other = &self::blocks(height, 99)[0];
        row(
            &format!("{} blocks of {height} lines, none near", blocks.len()),
            &text,
            &join(std::slice::from_ref(other)),
        );
        let mut near = blocks[blocks.len() * 3 / 4].clone();
        near[1].push('x');
        near[height / 2] = near[height / 2].replace('e', "E");
        row(&format!("{} blocks of {height} lines, one near", blocks.len()), &text, &join(&[near]));
    }
}

fn row(name: &str, text: &str, old: &str) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            black_box(fuzzy_match(black_box(text), black_box(old), "new"));
            begin.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let found = fuzzy_match(text, old, "new").map_or("none", |found| found.strategy.name());
    println!(
        "{name:<45} {:>8.2} ms  (best {:.2}, worst {:.2})  {found}",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1]
    );
}

/// 20,000 lines of code-like blocks, all of which begin and end alike.
fn blocks(height: usize, seed: u32) -> Vec<Vec<String>> {
    let mut roll = dice(seed);
    let mut line = || {
        let words: Vec<&str> = (0..4 + roll(6)).map(|_| WORDS[roll(24) as usize]).collect();
        format!("    {};", words.join(" "))
    };
    let block = |_| {
        let inner = (2..height).map(|_| line());
        let begin = std::iter::once("it('works', () => {".to_owned());
        begin.chain(inner).chain(std::iter::once("})".to_owned())).collect()
    };
    (0..LINES / height).map(block).collect()
}

/// Whole numbers below `n`, the same ones each time, here and in edit.mjs.
fn dice(seed: u32) -> impl FnMut(u32) -> u32 {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    move |n| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % n
    }
}

fn join(blocks: &[Vec<String>]) -> String {
    blocks.iter().flatten().map(|line| format!("{line}\n")).collect()
}
