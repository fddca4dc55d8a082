//! A whole volume of engine `tier`, damaged, forged, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_tier::fuzzing::cache(input));
