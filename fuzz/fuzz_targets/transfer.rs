//! Runs the property `transfer` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::session::transfer::inside::holds(data));
