//! Redis's files, as `stratakv import` reads them.
#![no_main]

// The program has no library to take them from.
#[path = "../../crates/cli/src/import/rdb/mod.rs"]
#[expect(dead_code, reason = "the program imports what is read")]
mod rdb;
#[path = "../../crates/cli/src/import/record.rs"]
mod record;

libfuzzer_sys::fuzz_target!(|input: &[u8]| rdb::holds_for_any_file(input));
