//! A whole volume, damaged, forged, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_slab::fuzzing::volume(input));
