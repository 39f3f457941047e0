//! Runs the property `settings` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::settings::holds(data));
