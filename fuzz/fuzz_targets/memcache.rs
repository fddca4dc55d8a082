//! Lines and data blocks of the memcache protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_protocol::memcache::fuzzing::memcache(input));
