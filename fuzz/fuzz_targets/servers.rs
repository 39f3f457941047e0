//! Runs the property `servers` on what the fuzzer thinks up.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| simse::mcp::inside::holds(data));
