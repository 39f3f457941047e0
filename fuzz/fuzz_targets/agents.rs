//! Runs the property `agents` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::provider::acp::inside::holds(data));
