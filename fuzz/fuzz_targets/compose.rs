//! Runs the property `compose` on what the fuzzer thinks up.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(
    // As in the target `command`.
    init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))),
    |data: &[u8]| simse::properties::compose::holds(data)
);
