//! Shares and marks of batches, found when a shard is opened.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::share(input));
