//! A whole log with a checkpoint, damaged, forged, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::log(input));
