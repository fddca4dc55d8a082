//! Requests of RESP.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_protocol::resp::fuzzing::resp(input));
