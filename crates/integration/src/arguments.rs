//! What the harnesses' options have in common.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "for programs at a terminal")]

use std::process::ExitCode;

/// A harness's `main`: prints `usage` if `--help` is among the words behind the program's name, and
/// otherwise calls `run` with them. An error is told on stderr behind `name`, and is the exit code.
pub fn answer(name: &str, usage: &str, run: impl FnOnce(&[String]) -> Result<(), String>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help") {
        print!("{usage}");
        return ExitCode::SUCCESS;
    }
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Each of the words between commas, by name.
///
/// # Errors
/// There is none of such a name.
pub fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<Vec<T>, String> {
    let one = |word| all.iter().copied().find(|one| name(*one) == word).ok_or_else(|| format!("there is no `{word}`"));
    text.split(',').map(one).collect()
}
