//! Runs the property `sse` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::properties::sse::holds(data));
