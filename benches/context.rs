//! What the context of a turn costs: pruning a conversation of 5,000 messages, counting tokens, finding instruction files.
//!
//! `cargo bench --bench context` prints medians. The repository for the last has 50,000 files in 2,500 directories; the working directory lies
//! five deep in it.

#![allow(clippy::print_stdout, reason = "figures are what it is for")]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use simse::context::tokens::count;
use simse::context::{Entry, PruneOptions, prune_plan};
use simse::model::Messages;
use simse::prompt::{Found, directories_up};
use simse::protocol::{Message, Part};

const MESSAGES: usize = 5_000;
const TURNS: usize = 400;
const DIRECTORIES: usize = 2_500;
const FILES: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    pruning();
    counting()?;
    instructions()
}

fn row(name: &str, mut took_us: Vec<f64>) {
    took_us.sort_by(f64::total_cmp);
    let (median, worst) = (took_us[took_us.len() / 2], took_us[took_us.len() - 1]);
    println!("{name:<60} {median:>10.2} µs  (worst {worst:.2})");
}

fn timed<T>(run: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let value = run();
    (begin.elapsed().as_secs_f64() * 1e6, value)
}

/// A turn is a prompt, some calls with their outputs, and an answer.
fn message(at: usize) -> Message {
    let text = |units: usize| format!("{at} {}", "some words of an output, ".repeat(units / 24));
    match at % 8 {
        0 => Message::User(vec![Part::Text { text: format!("go on with {at}") }]),
        place if place % 2 == 1 => Message::assistant(text(200), Vec::new()),
        _ => Message::ToolResult {
            call_id: at.to_string(),
            name: "bash".into(),
            output: text(300 + at * 37 % 4_000),
            is_error: false,
            parts: Vec::new(),
        },
    }
}

fn pruning() {
    let mut messages = Messages::from((0..MESSAGES).map(message).collect::<Vec<_>>());
    let (first, pruned) = timed(|| messages.prune());
    println!("the first look at {MESSAGES} messages: {first:.0} µs, {pruned} outputs go");
    let (mut grown, mut gone) = (Vec::new(), 0);
    for turn in 0..TURNS {
        for n in 0..4 {
            messages.push(message(MESSAGES + 4 * turn + n));
        }
        let (took, pruned) = timed(|| black_box(messages.prune()));
        grown.push(took);
        gone += pruned;
    }
    row(&format!("a turn's pruning, 4 new messages behind {MESSAGES} ({gone} went)"), grown);
    let whole = (0..TURNS / 20).map(|_| {
        let look = || {
            let entries: Vec<Entry<'_>> = messages.iter().map(entry).collect();
            prune_plan(&entries, &PruneOptions::default()).len()
        };
        timed(|| black_box(look())).0
    });
    row("the plain rule over the whole conversation", whole.collect());
}

fn entry(message: &Message) -> Entry<'_> {
    match message {
        Message::User(_) => Entry::User("go on"),
        Message::Assistant { text, .. } => Entry::Other(text),
        Message::ToolResult { name, output, .. } => Entry::Output { tool: name, text: output },
    }
}

fn counting() -> Result<(), Box<dyn Error>> {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol/event.rs"))?;
    let text: String = source.chars().cycle().take(1_000_000).collect();
    for model in ["openai/gpt-5", "openai/gpt-4", "ollama/qwen3"] {
        let (load, _) = timed(|| count(model, "hello"));
        let took = (0..9).map(|_| timed(|| black_box(count(model, &text))).0).collect();
        row(&format!("tokens of 1 MB for {model} (unpacked in {:.0} ms)", load / 1e3), took);
    }
    Ok(())
}

fn instructions() -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    let top = home.path().canonicalize()?;
    fs::create_dir(top.join(".git"))?;
    for n in 0..DIRECTORIES {
        let directory = top.join(format!("a{}/b{}/c{}", n / 250, n / 25 % 10, n % 25));
        fs::create_dir_all(&directory)?;
        for file in 0..FILES {
            fs::write(directory.join(format!("{file}.rs")), "fn main() {}\n")?;
        }
    }
    fs::write(top.join("AGENTS.md"), "Use tabs.\n@docs.md\n")?;
    fs::write(top.join("docs.md"), "Long lines are fine.\n")?;
    fs::write(top.join("a3/b4/AGENTS.md"), "Deeper.\n")?;
    let deep = top.join("a3/b4/c7");
    let patterns = ["CLAUDE.md", "AGENTS.md", ".simse/instructions.md"].map(str::to_owned);
    let look = || {
        let directories = directories_up(&deep, None);
        Found::within(&directories[0], &directories, &patterns)
    };
    row("instruction files of 50,000 files, found", (0..400).map(|_| timed(|| black_box(look())).0).collect());
    let found = look();
    assert_eq!(found.files.len(), 2, "{found:?}");
    let again =
        (0..400).map(|_| timed(|| black_box(directories_up(&deep, None).len() + usize::from(found.is_current()))).0);
    row("the same at the next turn, when nothing has changed", again.collect());
    Ok(())
}
