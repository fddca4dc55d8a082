//! Small pages: records, free slots, damaged records.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::page(input));
