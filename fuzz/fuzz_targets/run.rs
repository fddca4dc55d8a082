//! Large items: heads and slices.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::run(input));
