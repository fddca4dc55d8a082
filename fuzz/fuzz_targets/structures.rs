//! Values of hashes, lists, sets and sorted sets.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_structures::fuzzing::structures(input));
