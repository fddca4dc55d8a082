//! A store's `store.toml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv::fuzzing::manifest(input));
