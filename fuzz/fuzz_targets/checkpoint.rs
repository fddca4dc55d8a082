//! Roots and chunks of a log's checkpoints.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::checkpoint(input));
