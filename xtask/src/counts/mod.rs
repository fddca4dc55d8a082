//! `cargo xtask bench-gate`: what an operation of each path takes, beside the figures in the
//! repository. Counts are the same on a busy machine, so the gate can refuse what time cannot show.

mod client;
mod figures;
mod ledger;
mod paths;
pub mod valgrind;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use self::figures::{Count, Figures, Leeway};
use self::ledger::Ledger;
use self::paths::{CountedPath, PATHS, Programs};
use crate::cargo::{cargo, succeed};
use crate::serving::with_directory_in;
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask bench-gate [--only WORD] [--of DIR] [--accept REASON | --spread N]
       cargo xtask bench-gate --release VERSION

  --only WORD        paths whose name has this word
  --of DIR           counts another checkout, against the figures of this one
  --accept REASON    takes counts over that are not those of xtask/counts.toml, and notes why
  --release VERSION  begins the accounts of the next release: what was accepted is forgotten
  --spread N         counts each path N times and tells how far the counts lie apart

Counts instructions, system calls, allocations and copied bytes of an operation by valgrind's callgrind and DHAT.";

/// The figures, in the repository.
const FILE: &str = "xtask/counts.toml";
/// A path that seems to have changed is counted so often in all.
const TRIES: usize = 3;
/// With other tools, or on another kind of processor, so many times as much is let pass.
const OTHER_TOOLS: f64 = 3.0;
/// Features of processors by which the C library and others choose their code.
const FEATURES: [&str; 6] = ["avx2", "bmi2", "erms", "fsrm", "sse4_2", "pclmulqdq"];
/// Paths that are counted at the same time.
const WORKERS: usize = 2;

#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    only: String,
    of: Option<PathBuf>,
    accept: Option<String>,
    release: Option<String>,
    spread: usize,
}

/// Runs the command.
///
/// # Errors
/// A path takes more or less than the repository says, or cannot be counted.
pub fn run(root: &Path, rest: &[String]) -> Result<(), String> {
    if rest.iter().any(|word| word == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    let request = parse(rest)?;
    let file = root.join(FILE);
    let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let mut ledger = Ledger::parse(&text).map_err(|error| format!("{FILE}: {error}"))?;
    let write =
        |ledger: &Ledger| fs::write(&file, ledger.text()).map_err(|error| format!("cannot write {FILE}: {error}"));
    if let Some(release) = &request.release {
        ledger.begin_release(release);
        return write(&ledger);
    }
    if is_missing("valgrind") && request.accept.is_none() {
        let hint = "valgrind is not installed (Debian: apt-get install valgrind)";
        if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
            return Err(hint.into());
        }
        println!("skipped: {hint}");
        return Ok(());
    }
    let tools = tools(root)?;
    let chosen: Vec<&CountedPath> = PATHS.iter().filter(|path| path.name.contains(&request.only)).collect();
    if chosen.is_empty() {
        return Err(format!("no path has `{}` in its name", request.only));
    }
    let programs = build(request.of.as_deref().unwrap_or(root), &chosen)?;
    if request.spread > 0 {
        return with_directory_in(&ground(), "bench-gate", |directory| {
            spread(&chosen, &programs, directory, request.spread)
        });
    }
    let other_tools = ledger.other_tools(&tools);
    // Figures that are taken over are judged as those who count with these tools will.
    let times = if request.accept.is_some() { 1.0 } else { times(&other_tools) };
    let counted = with_directory_in(&ground(), "bench-gate", |directory| {
        side_by_side(&chosen, directory, |path, directory| {
            let base = ledger.paths.get(path.name).map(|base| (base, path.leeway(times)));
            let once = || count_once(path, &programs, directory);
            if request.accept.is_some() { count_for_file(base, once) } else { count(base, once) }
        })
    })?;
    println!("{}", table(&chosen, &counted, &ledger));
    if let Some(reason) = &request.accept {
        for (path, figures) in chosen.iter().zip(&counted) {
            ledger.accept(path.name, figures, path.leeway(1.0), reason)?;
        }
        ledger.paths.retain(|name, _| PATHS.iter().any(|path| path.name == name));
        // What was not counted is still by the tools that the file names.
        if request.only.is_empty() {
            ledger.tools = tools;
        }
        return write(&ledger);
    }
    judge(&chosen, &counted, &ledger, &other_tools)
}

fn parse(rest: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words.next().filter(|value| !value.trim().is_empty()).ok_or(format!("`{word}` needs a value\n\n{USAGE}"))
        };
        match word.as_str() {
            "--only" => request.only.clone_from(value()?),
            "--of" => request.of = Some(PathBuf::from(value()?)),
            "--accept" => request.accept = Some(value()?.clone()),
            "--release" => request.release = Some(value()?.clone()),
            "--spread" => request.spread = value()?.parse().map_err(|_| USAGE.to_owned())?,
            _ => return Err(format!("`{word}` is not understood\n\n{USAGE}")),
        }
    }
    match (&request.of, &request.accept) {
        (Some(_), Some(_)) => Err("figures are taken over from this checkout only: leave `--of` out".into()),
        _ => Ok(request),
    }
}

fn is_missing(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_err()
}

/// What counts depend on, beside the sources.
fn tools(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut tools = BTreeMap::new();
    for (name, program) in [("rustc", "rustc"), ("valgrind", "valgrind"), ("libc", "ldd")] {
        let output = Command::new(program).current_dir(root).arg("--version").output();
        let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        tools.insert(name.to_owned(), text.lines().next().unwrap_or_default().trim().to_owned());
    }
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    tools.insert("processor".to_owned(), processor(&about));
    Ok(tools)
}

/// What of a processor makes programs run other code.
fn processor(about: &str) -> String {
    let flags = about.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |feature: &&str| flags.split_ascii_whitespace().any(|flag| flag == *feature);
    let features: Vec<&str> = FEATURES.into_iter().filter(has).collect();
    format!("{} {}", std::env::consts::ARCH, features.join(" "))
}

/// Where stores lie: in memory if they can, so that no flush waits for a disk that others use.
fn ground() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// The released programs, but for link-time optimisation, which takes minutes, and for what reads
/// the auxiliary vector: under valgrind it is libc's. Both packages are named always, since what is
/// built together shares its features; of the server the program is built only if it runs.
fn build(tree: &Path, chosen: &[&CountedPath]) -> Result<Programs, String> {
    let target = target_directory(tree).join("counts");
    let mut command = cargo(tree);
    command.args(["build", "--quiet", "--profile", "counts", "--features", "rustix/use-libc-auxv"]);
    command.args(["--package", "stratakv-cli", "--package", "stratakv-bench", "--bin", "operations"]);
    if chosen.iter().any(|path| path.has_server()) {
        command.args(["--bin", "stratakv"]);
    }
    succeed("build", command.arg("--target-dir").arg(&target))?;
    let built = target.join("counts");
    Ok(Programs { stratakv: built.join("stratakv"), operations: built.join("operations") })
}

/// Counts a path; again where it departs from its figures, which a busy machine can make it do.
fn count(
    base: Option<(&Figures, Leeway)>,
    mut once: impl FnMut() -> Result<Figures, String>,
) -> Result<Figures, String> {
    let mut counted = once()?;
    let Some((base, leeway)) = base else { return Ok(counted) };
    for _ in 1..TRIES {
        if counted.departures(base, leeway).is_empty() {
            break;
        }
        counted = counted.nearer(once()?, base);
    }
    Ok(counted)
}

/// Counts a path for the file: what is new, or departs, is counted several times, and the middle
/// one is taken over. The one nearest to the old figure would be wrong always to the same side.
fn count_for_file(
    base: Option<(&Figures, Leeway)>,
    mut once: impl FnMut() -> Result<Figures, String>,
) -> Result<Figures, String> {
    let first = once()?;
    if base.is_some_and(|(base, leeway)| first.departures(base, leeway).is_empty()) {
        return Ok(first);
    }
    let more = (1..TRIES).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
    Ok(Figures::middle(&[&[first][..], &more].concat()))
}

/// Counts a path once, and tells the figures as they come.
fn count_once(path: &CountedPath, programs: &Programs, directory: &Path) -> Result<Figures, String> {
    let begun = Instant::now();
    let counted = path.count(programs, directory)?;
    let mut line = format!("{}:", path.name);
    Count::ALL.iter().for_each(|count| _ = write!(line, " {} {count},", counted.get(*count)));
    eprintln!("{line} in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(counted)
}

/// Does something for each path, for two at a time, each in a directory of its own.
fn side_by_side<T: Send>(
    chosen: &[&CountedPath],
    directory: &Path,
    work: impl Fn(&CountedPath, &Path) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicUsize::new(0);
    let worker = |number: usize| -> Result<Vec<(usize, T)>, String> {
        let own = directory.join(number.to_string());
        fs::create_dir_all(&own).map_err(|error| format!("cannot make {}: {error}", own.display()))?;
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = chosen.get(place) else { return Ok(done) };
            done.push((place, work(path, &own)?));
        }
    };
    let outcomes = thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = (0..WORKERS).map(|number| scope.spawn(move || worker(number))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ended.collect::<Result<Vec<_>, _>>()
    })?;
    let mut all: Vec<_> = outcomes.into_iter().flatten().collect();
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Every figure, and behind it how it differs from the repository's.
fn table(chosen: &[&CountedPath], counted: &[Figures], ledger: &Ledger) -> String {
    let mut text = String::from("| of an operation |");
    Count::ALL.iter().for_each(|count| _ = write!(text, " {count} |"));
    text.push_str(" runs it |\n|---|--:|--:|--:|--:|---|\n");
    for (path, figures) in chosen.iter().zip(counted) {
        _ = write!(text, "| {} |", path.name);
        for count in Count::ALL {
            let figure = figures.get(count);
            let by = ledger.paths.get(path.name).map(|base| figure - base.get(count));
            _ = match by {
                Some(by) if by.abs() >= 0.005 => write!(text, " {figure} ({by:+.2}) |"),
                _ => write!(text, " {figure} |"),
            };
        }
        _ = writeln!(text, " {} |", path.why);
    }
    text
}

/// How much more is let pass where other tools count than those of the file.
fn times(other_tools: &[String]) -> f64 {
    if other_tools.is_empty() { 1.0 } else { OTHER_TOOLS }
}

/// Refuses what departs from the figures, and says what to do.
fn judge(chosen: &[&CountedPath], counted: &[Figures], ledger: &Ledger, other_tools: &[String]) -> Result<(), String> {
    let mut findings = Vec::new();
    for (path, figures) in chosen.iter().zip(counted) {
        let Some(base) = ledger.paths.get(path.name) else {
            findings.push(format!("{}: has no figures yet", path.name));
            continue;
        };
        let leeway = path.leeway(times(other_tools));
        for count in figures.departures(base, leeway) {
            let (from, to) = (base.get(count), figures.get(count));
            let word = if to > from { "more" } else { "fewer" };
            findings.push(format!(
                "{}: {word} {count}: {to}, not {from} (within {:.2})",
                path.name,
                count.tolerance(from, leeway)
            ));
        }
    }
    let tools = match other_tools {
        [] => String::new(),
        _ => format!("\nother tools count here, which alone can do this:\n  {}", other_tools.join("\n  ")),
    };
    if findings.is_empty() {
        println!("{} paths take what {FILE} says{tools}", chosen.len());
        return Ok(());
    }
    Err(format!(
        "{} counts are not those of {FILE}:\n  {}{tools}\nmake it cheaper, or take it over: cargo xtask bench-gate --accept \"REASON\"; \
         CONTRIBUTING.md says when",
        findings.len(),
        findings.join("\n  ")
    ))
}

/// How far counts of one program lie apart.
fn spread(chosen: &[&CountedPath], programs: &Programs, directory: &Path, rounds: usize) -> Result<(), String> {
    let all = side_by_side(chosen, directory, |path, directory| {
        (0..rounds).map(|_| count_once(path, programs, directory)).collect::<Result<Vec<_>, _>>()
    })?;
    for (path, rounds) in chosen.iter().zip(&all) {
        print!("| {} |", path.name);
        for count in Count::ALL {
            let figures = || rounds.iter().map(|figures| figures.get(count));
            print!(" {} to {} |", figures().fold(f64::MAX, f64::min), figures().fold(0.0, f64::max));
        }
        println!();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn figures(instructions: f64) -> Figures {
        Figures::of(|count| if count == Count::Instructions { instructions } else { 1.0 })
    }

    #[test]
    fn options_are_read() {
        let request = parse(&words("--only hash --accept why")).unwrap();
        assert_eq!((request.only.as_str(), request.accept.as_deref()), ("hash", Some("why")));
        assert!(parse(&words("--accept")).unwrap_err().contains("needs a value"));
        assert!(parse(&["--accept".into(), " ".into()]).unwrap_err().contains("needs a value"));
        assert!(parse(&words("--of elsewhere --accept why")).is_err());
        assert!(parse(&words("--slower")).is_err());
    }

    #[test]
    fn a_path_that_takes_more_or_less_is_refused_and_named() {
        let path = &PATHS[0];
        let mut ledger = Ledger::default();
        let judge_one = |ledger: &Ledger, figures, tools: &[String]| judge(&[path], &[figures], ledger, tools);
        assert!(judge_one(&ledger, figures(100.0), &[]).unwrap_err().contains("has no figures yet"));
        ledger.paths.insert(path.name.into(), figures(100.0));
        assert_eq!(judge_one(&ledger, figures(102.0), &[]), Ok(()));
        let more = judge_one(&ledger, figures(104.0), &[]).unwrap_err();
        assert!(more.contains(&format!("{}: more instructions: 104, not 100", path.name)), "{more}");
        assert!(judge_one(&ledger, figures(96.0), &[]).unwrap_err().contains("fewer instructions"));
        let tools = ["rustc: the figures are by `1`, here is `2`".to_owned()];
        assert!(judge_one(&ledger, figures(110.0), &tools).unwrap_err().contains("other tools count here"));
        assert_eq!(judge_one(&ledger, figures(108.0), &tools), Ok(()));
    }

    /// Counts that come one after the other, and how many were asked for.
    fn counted(
        counts: &[f64],
        take: impl Fn(&mut dyn FnMut() -> Result<Figures, String>) -> Result<Figures, String>,
    ) -> (f64, usize) {
        let mut asked = 0;
        let figures = take(&mut || {
            asked += 1;
            Ok(figures(counts[asked - 1]))
        });
        (figures.unwrap().get(Count::Instructions), asked)
    }

    #[test]
    fn a_processor_is_known_by_what_programs_ask_it_for() {
        let about = "vendor_id: x\nflags\t\t: fpu sse4_2 avx avx2 bmi2\nflags\t\t: fpu\n";
        assert_eq!(processor(about), format!("{} avx2 bmi2 sse4_2", std::env::consts::ARCH));
    }

    #[test]
    fn what_departs_is_counted_again() {
        let base = figures(100.0);
        let strict = Leeway { wider: &[], times: 1.0 };
        let gate = |counts: &[f64]| counted(counts, |once| count(Some((&base, strict)), once));
        assert_eq!(gate(&[101.0, 0.0, 0.0]), (101.0, 1));
        assert_eq!(gate(&[110.0, 99.0, 0.0]), (99.0, 2));
        assert_eq!(gate(&[110.0, 108.0, 109.0]), (108.0, 3));
        let file = |counts: &[f64]| counted(counts, |once| count_for_file(Some((&base, strict)), once));
        assert_eq!(file(&[101.0, 0.0, 0.0]), (101.0, 1));
        assert_eq!(file(&[110.0, 108.0, 109.0]), (109.0, 3));
        assert_eq!(counted(&[7.0, 9.0, 8.0], |once| count_for_file(None, once)), (8.0, 3));
    }

    /// Two threads take paths from one list: each figure must stand beside its own path.
    #[test]
    fn outcomes_stand_beside_their_paths() {
        let chosen: Vec<&CountedPath> = PATHS.iter().collect();
        let directory = std::env::temp_dir().join(format!("stratakv-side-by-side-{}", std::process::id()));
        let names = side_by_side(&chosen, &directory, |path, own| {
            assert!(own.is_dir());
            Ok(path.name)
        });
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(names, Ok(PATHS.iter().map(|path| path.name).collect()));
        let failed = side_by_side(&chosen, &directory, |_, _| Err::<(), _>("broken".to_owned()));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(failed, Err("broken".into()));
    }
}
