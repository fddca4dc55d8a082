//! Lines of JSON, as `stratakv load` reads them.
#![no_main]

// The program has no library to take it from.
#[path = "../../crates/cli/src/json_line.rs"]
#[expect(dead_code, reason = "the program writes lines from records")]
mod json_line;

libfuzzer_sys::fuzz_target!(|input: &[u8]| json_line::holds_for_any_line(input));
