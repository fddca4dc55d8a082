//! Pages of a table of engine `matrix`, behind checksums that match.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_matrix::table::fuzzing::table(input));
