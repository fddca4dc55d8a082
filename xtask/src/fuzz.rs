//! `cargo xtask fuzz`: builds the fuzzers of `fuzz/` with coverage and AddressSanitizer, and runs
//! them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::toolchain;

const USAGE: &str = "\
usage: cargo xtask fuzz [PARSER ...] [--seconds S]       run the fuzzers of these parsers (all), S seconds each (60)
       cargo xtask fuzz PARSER FILE ...                  run these inputs only, and show what they do";

/// What cargo-fuzz passes to rustc, too: libFuzzer's counters and comparisons, and
/// AddressSanitizer.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
    "-Zsanitizer=address",
];

/// An input that takes longer hangs; one that needs more memory, in all or at once, trusts a
/// length.
const LIMITS: &[&str] =
    &["-max_len=8192", "-len_control=30", "-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=128"];

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    targets: Vec<String>,
    seconds: u64,
    /// Inputs to be run again.
    inputs: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let known = targets(&root.join("fuzz/fuzz_targets"))?;
    let request = parse(arguments, &known)?;
    if let Some(missing) = toolchain::missing().or_else(no_compiler) {
        println!("skipped: the fuzzers need {missing}");
        return Ok(());
    }
    let fuzzers = Fuzzers { root, folder: toolchain::target_directory(root).join("fuzz") };
    fuzzers.build(&request.targets)?;
    match request.inputs.is_empty() {
        true => fuzzers.run(&request),
        false => fuzzers.replay(&request),
    }
}

/// Names of all fuzzers, in order.
fn targets(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned));
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn parse(arguments: &[String], known: &[String]) -> Result<Request, String> {
    let mut request = Request { targets: Vec::new(), seconds: 60, inputs: Vec::new() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => {
                let seconds = arguments.next().and_then(|seconds| seconds.parse().ok()).filter(|seconds| *seconds > 0);
                request.seconds = seconds.ok_or_else(|| format!("--seconds wants a number\n\n{USAGE}"))?;
            }
            name if known.iter().any(|known| known == name) => request.targets.push(name.to_owned()),
            file if request.targets.len() == 1 && Path::new(file).is_file() => request.inputs.push(file.into()),
            other => return Err(format!("`{other}` is no parser of {} and no file\n\n{USAGE}", known.join(", "))),
        }
    }
    if request.targets.is_empty() {
        request.targets = known.to_vec();
    }
    Ok(request)
}

fn no_compiler() -> Option<String> {
    let found = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    (!found.is_ok_and(|status| status.success())).then(|| "a C++ compiler, for libFuzzer".to_owned())
}

struct Fuzzers<'a> {
    root: &'a Path,
    /// Programs, found inputs, logs and findings.
    folder: PathBuf,
}

impl Fuzzers<'_> {
    fn build(&self, targets: &[String]) -> Result<(), String> {
        let mut cargo = toolchain::cargo(&self.root.join("fuzz"), FLAGS);
        cargo.args(["build", "--release", "--quiet", "--target-dir"]).arg(&self.folder);
        targets.iter().for_each(|target| _ = cargo.args(["--bin", target]));
        let status = cargo.status().map_err(|error| format!("cannot start cargo: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the fuzzers cannot be built ({status})")) }
    }

    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.folder.join(toolchain::TARGET).join("release").join(target));
        // Freed memory is kept from reuse for a while, to find its users; a little of it will do.
        program.env("ASAN_OPTIONS", "quarantine_size_mb=32").env("RUST_BACKTRACE", "1");
        program
    }

    fn replay(&self, request: &Request) -> Result<(), String> {
        let mut program = self.program(&request.targets[0]);
        let status = program.args(LIMITS).args(&request.inputs).status();
        match status.map_err(|error| format!("cannot start the fuzzer: {error}"))?.success() {
            true => Ok(()),
            false => Err("the input still fails".to_owned()),
        }
    }

    /// Runs all, as many at a time as there are cores.
    fn run(&self, request: &Request) -> Result<(), String> {
        let at_a_time = std::thread::available_parallelism().map_or(1, usize::from).min(request.targets.len());
        println!("{} parsers, {} s each, {at_a_time} at a time\n", request.targets.len(), request.seconds);
        println!("{}", Row::HEAD);
        let (next, failures) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..at_a_time {
                scope.spawn(|| {
                    while let Some(target) = request.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let said = self.fuzz(target, request.seconds).unwrap_or_else(|error| {
                            failures.fetch_add(1, Ordering::Relaxed);
                            format!("{target}: {error}")
                        });
                        println!("{said}");
                    }
                });
            }
        });
        match failures.into_inner() {
            0 => Ok(()),
            failures => Err(format!("{failures} of {} parsers have a finding", request.targets.len())),
        }
    }

    /// One fuzzer, for a while: its row of the table, or what it found.
    fn fuzz(&self, target: &str, seconds: u64) -> Result<String, String> {
        let [corpus, findings, logs] = ["corpus", "findings", "logs"].map(|name| self.folder.join(name));
        let (corpus, findings, log) = (corpus.join(target), findings.join(target), logs.join(format!("{target}.log")));
        let broken = |error: std::io::Error| format!("cannot be run: {error}");
        for folder in [&corpus, &findings, &logs] {
            fs::create_dir_all(folder).map_err(broken)?;
        }
        let mut program = self.program(target);
        let dictionary = self.root.join("fuzz/dictionaries").join(target);
        if dictionary.is_file() {
            program.arg(format!("-dict={}", dictionary.display()));
        }
        program.args(LIMITS).args([format!("-max_total_time={seconds}"), "-print_final_stats=1".into()]);
        // The first folder takes the inputs that reach something new; the second has those that are
        // committed.
        program.arg(format!("-artifact_prefix={}/", findings.display())).args([&corpus]);
        program.arg(self.root.join("fuzz/corpus").join(target));
        let status =
            program.stdout(Stdio::null()).stderr(File::create(&log).map_err(broken)?).status().map_err(broken)?;
        let text = String::from_utf8_lossy(&fs::read(&log).map_err(broken)?).into_owned();
        let row = Row::read(target, &text);
        match status.success() {
            true => Ok(row.to_string()),
            false => Err(finding(target, &text, &log)),
        }
    }
}

/// What a fuzzer's log says about an input that failed.
fn finding(target: &str, log: &str, at: &Path) -> String {
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked at") && !line.contains("ERROR:"));
    let what: Vec<&str> = lines.by_ref().take(3).collect();
    let input = log.lines().find_map(|line| line.split_once("Test unit written to ").map(|(_, input)| input));
    let replay = match input {
        Some(input) => format!("replay:  cargo xtask fuzz {target} {input}"),
        None => "it left no input".to_owned(),
    };
    format!("FINDING\n  {}\n  {replay}\n  log:     {}", what.join("\n  "), at.display())
}

/// What a run came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    target: String,
    runs: u64,
    runs_per_second: u64,
    /// Edges of the program's control flow that were taken.
    edges: u64,
    /// Edges with how often they were taken, and comparisons: libFuzzer's measure of what is new.
    features: u64,
    inputs: u64,
}

impl Row {
    const HEAD: &str = "parser              runs    runs/s     edges  features    inputs  findings";

    /// From libFuzzer's log: the last line of progress, and the final statistics.
    fn read(target: &str, log: &str) -> Row {
        let progress = log.lines().rev().find(|line| line.contains(" cov: ")).unwrap_or_default();
        let number = |line: &str, name: &str| {
            let digits = line.split_once(name).map_or("", |(_, rest)| rest.trim_start());
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            digits[..end].parse().unwrap_or_default()
        };
        Row {
            target: target.to_owned(),
            runs: number(log, "stat::number_of_executed_units:"),
            runs_per_second: number(log, "stat::average_exec_per_sec:"),
            edges: number(progress, " cov: "),
            features: number(progress, " ft: "),
            inputs: number(progress, " corp: "),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Row { target, runs, runs_per_second, edges, features, inputs } = self;
        write!(f, "{target:<14} {runs:>9} {runs_per_second:>9} {edges:>9} {features:>9} {inputs:>9}         0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Request, String> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        parse(&arguments, &["page".to_owned(), "run".to_owned()])
    }

    #[test]
    fn arguments_name_parsers_seconds_and_inputs() {
        let all = asked(&["--seconds", "5"]).unwrap();
        assert_eq!((all.targets.len(), all.seconds), (2, 5));
        let input =
            file!().rsplit_once('/').map_or("src/fuzz.rs", |_| concat!(env!("CARGO_MANIFEST_DIR"), "/src/fuzz.rs"));
        let one = asked(&["run", input]).unwrap();
        assert_eq!((one.targets, one.inputs.len()), (vec!["run".to_owned()], 1));
        assert!(asked(&["pages"]).unwrap_err().contains("no parser of page, run"));
        assert!(asked(&["--seconds", "0"]).is_err() && asked(&[input]).is_err());
    }

    #[test]
    fn a_log_becomes_a_row_or_a_finding() {
        let log = "INFO: seed corpus\n#7\tNEW    cov: 9 ft: 9 corp: 1/1b\n#500\tDONE   cov: 31 ft: 47 corp: 12/3Kb lim: 4 exec/s: 9\n\
                   stat::number_of_executed_units: 500\nstat::average_exec_per_sec:     45\n";
        let row = Row::read("page", log);
        let expected =
            Row { target: "page".into(), runs: 500, runs_per_second: 45, edges: 31, features: 47, inputs: 12 };
        assert_eq!(row, expected);
        assert_eq!(row.to_string().len(), Row::HEAD.len());
        let log = "thread '<unnamed>' panicked at src/page.rs:3:4:\nwhy\nnote\nartifact_prefix='x/'; Test unit written to x/crash-1\n";
        let said = finding("page", log, Path::new("l"));
        assert!(said.contains("why") && said.contains("cargo xtask fuzz page x/crash-1"), "{said}");
    }

    /// A fuzzer without inputs to start from, or without its entry in the manifest, would be
    /// forgotten.
    #[test]
    fn every_fuzzer_has_a_corpus_and_is_built() {
        let root = crate::repository();
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let found = targets(&root.join("fuzz/fuzz_targets")).unwrap();
        assert!(found.len() >= 15);
        for target in found {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
            assert!(fs::read_dir(root.join("fuzz/corpus").join(&target)).unwrap().count() > 1, "{target}");
        }
    }
}
