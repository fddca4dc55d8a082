//! A shard's file of a backup, as a restore reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| stratakv::fuzzing::backup(input));
