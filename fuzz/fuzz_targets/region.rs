//! A region of persistent memory, damaged, forged, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_hash::fuzzing::region(input));
