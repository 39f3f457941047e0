//! Runs the property `commands` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::app::command::inside::holds(data));
