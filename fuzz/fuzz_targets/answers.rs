//! Runs the property `answers` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::provider::openai::inside::holds(data));
