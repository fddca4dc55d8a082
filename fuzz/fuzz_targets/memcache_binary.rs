//! Requests and values of memcache's binary protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv_protocol::memcache::fuzzing::memcache_binary(input));
