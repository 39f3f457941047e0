//! What a fuzzer once broke, and what it begins with, held against a property without a fuzzer; random bytes too.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Random inputs of one property.
const CASES: u32 = 200;

/// Holds every committed input of the target `name`, and random bytes behind each of its first letters.
pub fn replay(name: &str, letters: &[u8], holds: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = std::fs::read_dir(&corpus).unwrap_or_else(|cause| panic!("{}: {cause}", corpus.display()));
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for letter in letters {
        let has = files.iter().any(|file| std::fs::read(file).unwrap().first() == Some(letter));
        assert!(has, "{name}: no input begins with {}", char::from(*letter));
    }
    for file in files {
        println!("{}", file.display());
        holds(&std::fs::read(&file).unwrap());
    }
    let letter = proptest::sample::select(letters.to_vec());
    let byte = prop_oneof![any::<u8>(), 32..127_u8, proptest::sample::select(b"{}[]\",:\r\n0 ".to_vec())];
    let inputs = (letter, proptest::collection::vec(byte, 0..200));
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(CASES) });
    let held = runner.run(&inputs, |(letter, mut bytes)| {
        bytes.insert(0, letter);
        holds(&bytes);
        Ok(())
    });
    held.unwrap();
}
