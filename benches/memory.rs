//! `cargo bench --bench memory`: a search in long-term memory with 100,000 texts, and what finds the same things otherwise.
//!
//! Texts of 8 to 40 words with the frequencies of Zipf's law over 50,000 words, and vectors of 384 numbers around 2,000
//! centres, both the same on every run. Questions are five words of a text, and a vector near its own. Four ways: ours
//! (`RecallStore::find`), SQLite's FTS5 alone (`ORDER BY rank LIMIT 10`), all vectors one after the other in Rust, and
//! those vectors written to a file for `benches/memory-scan.mjs`, which does the same in JavaScript.
//!
//! Environment: `TEXTS` (100000), `QUESTIONS` (500), `VECTORS_FILE` (where vectors and questions are written; none: not).

#![allow(clippy::print_stdout, reason = "figures are what it is for")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of texts"
)]

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::Map;
use simse::store::recall::{NewEntry, RecallStore, Sought};

type Done<T> = Result<T, Box<dyn Error>>;

const DIMENSIONS: usize = 384;
const WORDS: usize = 50_000;
const CENTRES: usize = 2_000;
const RESULTS: usize = 10;

/// Numbers that are the same on every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About the normal distribution.
    fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.share()).sum::<f64>() - 6.0) as f32
    }

    fn around(&mut self, centre: &[f32], spread: f32) -> Vec<f32> {
        centre.iter().map(|x| x + spread * self.normal()).collect()
    }
}

struct Corpus {
    texts: Vec<String>,
    vectors: Vec<Vec<f32>>,
    questions: Vec<(String, Vec<f32>)>,
}

fn corpus(texts: usize, questions: usize) -> Corpus {
    let mut dice = Dice(0x5EED);
    let syllables: Vec<String> =
        "bcdfghklmnprst".chars().flat_map(|a| "aeiou".chars().map(move |b| format!("{a}{b}"))).collect();
    let word = |n: usize| {
        let mut rest = n + 70;
        let mut word = String::new();
        while rest > 0 {
            word.push_str(&syllables[rest % syllables.len()]);
            rest /= syllables.len();
        }
        word
    };
    let words: Vec<String> = (0..WORDS).map(word).collect();
    let mut sums = Vec::with_capacity(WORDS);
    let mut sum = 0.0;
    for n in 0..WORDS {
        sum += 1.0 / (n as f64 + 3.0);
        sums.push(sum);
    }
    let centres: Vec<Vec<f32>> = (0..CENTRES).map(|_| (0..DIMENSIONS).map(|_| dice.normal()).collect()).collect();
    let mut made = Corpus { texts: Vec::new(), vectors: Vec::new(), questions: Vec::new() };
    for n in 0..texts {
        let length = 8 + dice.below(33);
        let text: Vec<&str> = (0..length)
            .map(|_| {
                let at = dice.share() * sum;
                words[sums.partition_point(|sum| *sum < at).min(WORDS - 1)].as_str()
            })
            .collect();
        // No text is there twice.
        made.texts.push(format!("{} note{n}", text.join(" ")));
        let centre = &centres[dice.below(CENTRES)];
        made.vectors.push(dice.around(centre, 0.8));
    }
    for _ in 0..questions {
        let at = dice.below(texts);
        let words: Vec<&str> = made.texts[at].split(' ').filter(|word| !word.starts_with("note")).collect();
        let asked: Vec<&str> = (0..5).map(|_| words[dice.below(words.len())]).collect();
        let vector = dice.around(&made.vectors[at], 0.3);
        made.questions.push((asked.join(" "), vector));
    }
    made
}

fn told(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!("{what}: p50 {:.2} ms, p99 {:.2} ms, at most {:.2} ms", at(0.5), at(0.99), at(1.0));
}

fn ms(from: Instant) -> f64 {
    from.elapsed().as_secs_f64() * 1000.0
}

fn times<T>(
    questions: &[(String, Vec<f32>)],
    mut ask: impl FnMut(&(String, Vec<f32>)) -> Done<T>,
) -> Done<(Vec<f64>, Vec<T>)> {
    let mut times = Vec::new();
    let mut answers = Vec::new();
    for question in questions {
        let started = Instant::now();
        answers.push(ask(question)?);
        times.push(ms(started));
    }
    Ok((times, answers))
}

fn fts5(texts: &[String]) -> Done<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch(
        "CREATE VIRTUAL TABLE word USING fts5(body, content='', tokenize='porter unicode61 remove_diacritics 2')",
    )?;
    let transaction = connection.transaction()?;
    for (n, text) in texts.iter().enumerate() {
        transaction.prepare_cached("INSERT INTO word (rowid, body) VALUES (?, ?)")?.execute((n + 1, text))?;
    }
    transaction.commit()?;
    Ok(connection)
}

fn by_fts5(connection: &Connection, query: &str) -> Done<Vec<i64>> {
    let asked: Vec<String> = query.split(' ').map(|word| format!("\"{word}\"")).collect();
    let sql = "SELECT rowid FROM word WHERE word MATCH ? ORDER BY rank LIMIT 10";
    let mut find = connection.prepare_cached(sql)?;
    let found = find.query_map([asked.join(" OR ")], |row| row.get(0))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn unit(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

/// The nearest of all, one after the other.
fn by_scan(all: &[f32], wanted: &[f32]) -> Vec<i64> {
    let mut near: Vec<(f32, i64)> = all
        .chunks_exact(DIMENSIONS)
        .zip(1..)
        .map(|(vector, key)| (vector.iter().zip(wanted).map(|(a, b)| a * b).sum::<f32>(), key))
        .collect();
    near.select_nth_unstable_by(RESULTS, |a, b| b.0.total_cmp(&a.0));
    near.truncate(RESULTS);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().map(|(_, key)| key).collect()
}

fn write(path: &str, all: &[f32], questions: &[(String, Vec<f32>)]) -> Done<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for count in [DIMENSIONS, all.len() / DIMENSIONS, questions.len()] {
        file.write_all(&(count as u32).to_le_bytes())?;
    }
    let asked = questions.iter().flat_map(|(_, vector)| unit(vector));
    for x in all.iter().copied().chain(asked) {
        file.write_all(&x.to_le_bytes())?;
    }
    Ok(file.flush()?)
}

fn given(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// A memory of these texts in a file; the key of each.
fn kept(path: &Path, texts: &[String], vectors: &[Vec<f32>]) -> Done<Vec<i64>> {
    let store = RecallStore::open(path)?;
    let mut keys = Vec::new();
    for batch in texts.chunks(1_000) {
        let entry = |text: &String| NewEntry { text: text.clone(), metadata: Map::new() };
        let added = store.add("p", &batch.iter().map(entry).collect::<Vec<_>>())?.added;
        keys.extend(added.iter().map(|one| one.key));
    }
    for batch in keys.iter().copied().zip(vectors.iter().cloned()).collect::<Vec<_>>().chunks(1_000) {
        store.put_vectors("m", batch)?;
    }
    Ok(keys)
}

fn main() -> Done<()> {
    let (texts, questions) = (given("TEXTS", 100_000), given("QUESTIONS", 500));
    let Corpus { texts, vectors, questions } = corpus(texts, questions);
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("memory.db");
    let started = Instant::now();
    let keys = kept(&path, &texts, &vectors)?;
    println!("{} texts kept in {:.1} s", texts.len(), started.elapsed().as_secs_f64());

    let store = RecallStore::open(&path)?;
    let find = |(query, vector): &(String, Vec<f32>), with: bool| {
        let vector = with.then_some(("m", vector.as_slice()));
        Ok(store.find("p", &Sought { query, vector, results: RESULTS, threshold: 0.0 })?.ranked)
    };
    let started = Instant::now();
    find(&questions[0], true)?;
    println!("the first search after a start: {:.0} ms", ms(started));
    told("words and meaning, ours", times(&questions, |question| find(question, true))?.0);
    told("words alone, ours", times(&questions, |question| find(question, false))?.0);
    let no_words = |(_, vector): &(String, Vec<f32>)| find(&("nobodyhasit".to_owned(), vector.clone()), true);
    let (meaning, found) = times(&questions, no_words)?;
    told("meaning alone, ours", meaning);

    let all: Vec<f32> = vectors.iter().flat_map(|vector| unit(vector)).collect();
    let (scan, nearest) = times(&questions, |(_, vector)| Ok(by_scan(&all, &unit(vector))))?;
    told("a scan of all vectors in Rust", scan);
    let place = |key: i64| keys.iter().position(|other| *other == key).map_or(0, |at| at as i64 + 1);
    let same = found.iter().zip(&nearest);
    let same = same.map(|(found, nearest)| found.iter().filter(|one| nearest.contains(&place(one.key))).count());
    let share = 100.0 * same.sum::<usize>() as f64 / (RESULTS * questions.len()) as f64;
    println!("of the ten nearest we find {share:.2} %");
    let alone = fts5(&texts)?;
    told("FTS5 alone", times(&questions, |(query, _)| by_fts5(&alone, query))?.0);
    if let Ok(path) = std::env::var("VECTORS_FILE") {
        write(&path, &all, &questions)?;
    }
    Ok(())
}
