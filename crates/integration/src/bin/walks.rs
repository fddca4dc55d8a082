//! `cargo xtask walks`: what deleted neighbours cost scans, queues and openings.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::path::PathBuf;
use std::process::ExitCode;

use stratakv_integration::arguments::{answer, named};
use stratakv_integration::walks::{Plan, Subject, markdown, run};

const USAGE: &str = "\
usage: cargo xtask walks [--short] [--engines in_place,packed,matrix,hash] [--data DIR] [--write FILE]

On a new store of each engine: 200,000 keys are deleted one by one and scans go past them, both ways; 20,000 elements go
through a list; 8,000 collections are made and dropped, and the store is opened again. Writes a Markdown table. Fails if a
scan or a pop visits more than 40 records for each that it returns, where the engine counts them. --short: a tenth of it.
";

fn main() -> ExitCode {
    answer("walks", USAGE, |words| arguments(words).and_then(|(plan, write)| walk(&plan, write)))
}

fn arguments(words: &[String]) -> Result<(Plan, Option<PathBuf>), String> {
    let (mut plan, mut write) = (Plan::default(), None);
    if words.iter().any(|word| word == "--short") {
        plan.shorten();
    }
    let rest: Vec<&String> = words.iter().filter(|word| *word != "--short").collect();
    for pair in rest.chunks(2) {
        let [word, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair[0])) };
        match word.as_str() {
            "--engines" => {
                plan.subjects =
                    named(value, &Subject::ALL, Subject::name).map_err(|why| format!("--engines: {why}"))?;
            }
            "--data" => plan.place = value.into(),
            "--write" => write = Some(value.into()),
            _ => return Err(format!("unknown option `{word}`\n\n{USAGE}")),
        }
    }
    Ok((plan, write))
}

fn walk(plan: &Plan, write: Option<PathBuf>) -> Result<(), String> {
    let mut beyond = Vec::new();
    let all = run(plan, &mut |measured| {
        eprintln!("{}: done", measured.subject.name());
        if !measured.holds() {
            beyond.push(measured.subject.name());
        }
    })?;
    // Only if it is empty: it may be somebody's.
    let _ = std::fs::remove_dir(&plan.place);
    let text = markdown(plan, &all);
    println!("{text}");
    if let Some(file) = write {
        std::fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    match beyond.is_empty() {
        true => Ok(()),
        false => Err(format!("more records are visited than should be: {}", beyond.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_told_apart() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (plan, write) = arguments(&words("--short --engines hash,packed --write x")).expect("good");
        assert_eq!((plan.subjects, plan.deleted), (vec![Subject::Hash, Subject::Packed], 20_000));
        assert_eq!(write, Some("x".into()));
        for bad in ["--engines", "--engines tier", "--what 1"] {
            assert!(arguments(&words(bad)).is_err(), "{bad}");
        }
    }
}
