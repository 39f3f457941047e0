//! Runs the property `wire` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::server::inside::holds(data));
