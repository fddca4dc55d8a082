//! Fields of little-endian records, and encoded keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_base::fuzzing::codec(input));
