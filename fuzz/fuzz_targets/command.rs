//! Runs the property `command` on what the fuzzer thinks up.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    // A panic inside the parser is caught by who calls it, and is no finding: the fuzzer's own hook would end all.
    init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
    |data: &[u8]| simse::properties::command::holds(data)
);
