//! A Redis client in conversation with the connection of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_server::fuzzing::conversation_resp(input));
