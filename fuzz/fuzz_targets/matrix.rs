//! Region and volume of engine `matrix`, damaged, forged, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_matrix::fuzzing::matrix(input));
