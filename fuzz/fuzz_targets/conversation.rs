//! A connection of the server, with its store in a map.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_server::fuzzing::conversation(input));
