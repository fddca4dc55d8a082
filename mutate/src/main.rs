//! `cargo xtask mutate`: draws mutations that nobody planned, and sees which the tests and the
//! simulator catch.
//!
//! All of them are built at once, each behind a switch, in a copy of the tree. A run with none of
//! them on says which test or world meets which mutation; then each is tried by those that meet it,
//! the quickest first.

#![forbid(unsafe_code)]

mod places;
mod tree;
mod trial;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tree::Mutation;
use trial::{Baseline, Fate, Look};

const USAGE: &str = "\
usage: cargo xtask mutate [OPTIONS]

  --each N           mutations of each crate (20)
  --seed N           draws others (1)
  --crates A,B       these only, by their folders under crates/
  --minutes M        tries no more after that; what was not tried is told (120)
  --write FILE       the table, as Markdown

Works on the last commit, in target/mutate, with a build of its own. `--of COMMIT`, as the first
words, takes another commit. Tests and worlds that fail there without any mutation do not look; they
are told.";

/// Crates whose mutations are drawn: what keeps people's data, and what they talk to.
const CRATES: [&str; 13] = [
    "index",
    "engine",
    "device",
    "pmem",
    "slab",
    "hash",
    "matrix",
    "tier",
    "runtime",
    "stratakv",
    "protocol",
    "structures",
    "server",
];

/// What the arguments ask for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    each: usize,
    seed: u64,
    crates: Vec<String>,
    minutes: u64,
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let folder = words.next().map(PathBuf::from);
    let arguments: Vec<String> = words.collect();
    let outcome = folder.ok_or_else(|| USAGE.to_owned()).and_then(|folder| run(&folder, &arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mutate: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command in a folder that has two checkouts of one commit: `originals`, and `tree`,
/// which is changed.
fn run(folder: &Path, arguments: &[String]) -> Result<(), String> {
    if arguments.first().is_some_and(|word| word == "--help") {
        print!("{USAGE}");
        return Ok(());
    }
    let request = parse(arguments)?;
    let end = Instant::now() + Duration::from_secs(60 * request.minutes);
    let (originals, copy) = (folder.join("originals"), folder.join("tree"));
    let drawn = tree::draw(&originals, &request.crates, request.each, request.seed)?;
    let places: Vec<usize> =
        request.crates.iter().map(|name| tree::count(&originals, name)).collect::<Result<_, _>>()?;
    println!("== {} mutations drawn of {} places", drawn.len(), places.iter().sum::<usize>());
    let (built, looks) = build(&originals, &copy, &drawn, &request.crates)?;
    let (looks, left_out) = baselines(looks, folder)?;
    let fates = try_all(&built, &looks, folder, end)?;
    let table = table(&request, &places, drawn.len(), &fates) + &left_out;
    print!("{table}");
    if let Some(file) = request.write {
        fs::write(&file, &table).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Builds the mutations; those that the compiler refuses are left out.
fn build(
    originals: &Path,
    copy: &Path,
    drawn: &[Mutation],
    crates: &[String],
) -> Result<(Vec<Mutation>, Vec<(String, Look)>), String> {
    let target = copy.with_file_name("target");
    let mut built = drawn.to_vec();
    for _ in 0..12 {
        tree::write(originals, copy, drawn, &built)?;
        let refused = trial::check(copy, &target)?;
        if refused.is_empty() {
            println!("== {} of them can be built", built.len());
            let looks = trial::build(copy, &target, crates)?;
            return Ok((built, looks));
        }
        let before = built.len();
        built.retain(|mutation| {
            let lines = refused.get(&mutation.file);
            let long = mutation.place.put.matches('\n').count();
            let own = mutation.place.line..=mutation.place.line + long;
            !lines.is_some_and(|lines| lines.iter().any(|line| own.contains(line)))
        });
        println!("   {} cannot be built", before - built.len());
        if built.len() == before {
            return Err(format!("the mutated tree cannot be built: {refused:?}"));
        }
    }
    Err("the mutated tree cannot be built after twelve rounds".into())
}

/// What a look takes and meets, and whose mutations it may catch.
type Measured = (String, Look, Baseline);

/// What each look takes and meets, and lines for the page. A look that fails with no mutation on is
/// left out and told: an older commit may not have that world.
fn baselines(looks: Vec<(String, Look)>, folder: &Path) -> Result<(Vec<Measured>, String), String> {
    let mut measured: Vec<Measured> = Vec::new();
    let mut failed: BTreeMap<String, String> = BTreeMap::new();
    for (package, look) in looks {
        let known = measured.iter().find(|(_, known, _)| known.name == look.name && known.program == look.program);
        if let Some((_, _, baseline)) = known {
            measured.push((package, look, baseline.clone()));
            continue;
        }
        // The worlds of several crates are the same runs.
        let key = if look.is_simulator { look.name.clone() } else { format!("{} of `{package}`", look.name) };
        if failed.contains_key(&key) {
            continue;
        }
        match trial::baseline(&look, folder) {
            Ok(baseline) => {
                println!(
                    "   {package}, {}: {:.1} s, meets {}",
                    look.name,
                    baseline.took.as_secs_f64(),
                    baseline.met.len()
                );
                measured.push((package, look, baseline));
            }
            Err(why) => {
                println!("   {key} is left out: {why}");
                failed.insert(key, last_line(&why));
            }
        }
    }
    if measured.is_empty() {
        return Err("no test and no world of the simulator could be run".into());
    }
    Ok((measured, left_out(&failed)))
}

/// What did not look, for the page.
fn left_out(failed: &BTreeMap<String, String>) -> String {
    failed.iter().fold(String::new(), |text, (look, why)| text + &format!("- did not look: {look}: {why}\n"))
}

fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

/// One of each crate in turn, so that an end by the clock is fair to all.
fn try_all(
    built: &[Mutation],
    looks: &[Measured],
    folder: &Path,
    end: Instant,
) -> Result<Vec<(Mutation, Fate)>, String> {
    let mut order: Vec<(usize, &Mutation)> = Vec::new();
    for mutation in built {
        let before = built.iter().take_while(|other| other.number != mutation.number);
        order.push((before.filter(|other| other.package == mutation.package).count(), mutation));
    }
    order.sort_by_key(|(turn, mutation)| (*turn, mutation.number));
    let mut fates = Vec::new();
    for (_, mutation) in order {
        let own = looks.iter().filter(|(package, _, _)| *package == mutation.package);
        let own: Vec<(Look, Baseline)> = own.map(|(_, look, baseline)| (look.clone(), baseline.clone())).collect();
        let fate = if Instant::now() > end { Fate::NotTried } else { trial::try_one(mutation, &own, folder, end)? };
        println!("   {}: {fate:?}", told(mutation));
        fates.push((mutation.clone(), fate));
    }
    Ok(fates)
}

fn told(mutation: &Mutation) -> String {
    let Mutation { file, place, .. } = mutation;
    format!("{file}:{} `{}`: {}", place.line, place.function, place.operator)
}

fn table(request: &Request, places: &[usize], drawn: usize, fates: &[(Mutation, Fate)]) -> String {
    let mut text = String::from(
        "| crate | places | tried | caught by tests | by the simulator | survived | never met | caught |\n|---|---|---|---|---|---|---|---|\n",
    );
    let line = |text: &mut String, name: &str, places: usize, fates: &[&Fate]| {
        let count = |is: &dyn Fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
        let tried = count(&|fate| *fate != Fate::NotTried);
        let tests = count(&|fate| matches!(fate, Fate::Caught(_, false)));
        let simulator = count(&|fate| matches!(fate, Fate::Caught(_, true)));
        let (survived, never) = (count(&|fate| *fate == Fate::Survived), count(&|fate| *fate == Fate::NeverMet));
        let share = (100 * (tests + simulator)).checked_div(tried).unwrap_or(0);
        let _ = writeln!(
            text,
            "| {name} | {places} | {tried} | {tests} | {simulator} | {survived} | {never} | {share} % |"
        );
    };
    for (name, places) in request.crates.iter().zip(places) {
        let own: Vec<&Fate> =
            fates.iter().filter(|(mutation, _)| mutation.package == *name).map(|(_, fate)| fate).collect();
        line(&mut text, &format!("`{name}`"), *places, &own);
    }
    let all: Vec<&Fate> = fates.iter().map(|(_, fate)| fate).collect();
    line(&mut text, "all", places.iter().sum(), &all);
    let not_tried = all.iter().filter(|fate| ***fate == Fate::NotTried).count();
    let _ = writeln!(
        text,
        "\nSeed {}: {drawn} drawn, {} refused by the compiler, {not_tried} not tried for want of time.\n",
        request.seed,
        drawn - fates.len()
    );
    let open = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Survived | Fate::NeverMet));
    for (mutation, fate) in open {
        let what = if *fate == Fate::Survived { "survived" } else { "never met" };
        let _ = writeln!(text, "- {what}: {}", told(mutation));
    }
    text
}

fn parse(arguments: &[String]) -> Result<Request, String> {
    let crates = CRATES.iter().map(|name| (*name).to_owned()).collect();
    let mut request = Request { each: 20, seed: 1, crates, minutes: 120, write: None };
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} wants a value\n\n{USAGE}", pair.join(" "))) };
        let number = || value.parse::<u64>().map_err(|_| format!("{option} wants a number, not `{value}`\n\n{USAGE}"));
        match option.as_str() {
            "--each" => request.each = number()?.clamp(1, 500) as usize,
            "--seed" => request.seed = number()?,
            "--minutes" => request.minutes = number()?.max(1),
            "--write" => request.write = Some(value.into()),
            "--crates" => {
                request.crates = value.split(',').map(str::to_owned).collect();
                if let Some(unknown) = request.crates.iter().find(|name| !CRATES.contains(&name.as_str())) {
                    return Err(format!(
                        "no mutations are drawn of `{unknown}`; known: {}\n\n{USAGE}",
                        CRATES.join(", ")
                    ));
                }
            }
            _ => return Err(format!("unknown option `{option} {value}`\n\n{USAGE}")),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_or_refused() {
        let asked = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let request = asked(&["--each", "3", "--crates", "slab,tier", "--seed", "9"]).expect("they are right");
        assert_eq!((request.each, request.seed, request.crates.join(" ")), (3, 9, "slab tier".to_owned()));
        assert!(asked(&["--each"]).is_err() && asked(&["--crates", "sim"]).is_err() && asked(&["--all", "1"]).is_err());
    }

    #[test]
    fn looks_that_fail_without_a_mutation_are_told_and_the_others_stay() {
        let folder = std::env::temp_dir().join(format!("mutate-looks-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let look = |name: &str, script: &str| {
            let look = Look {
                name: name.into(),
                program: "sh".into(),
                arguments: vec!["-c".into(), script.into()],
                folder: folder.clone(),
                is_simulator: true,
            };
            ("slab".to_owned(), look)
        };
        let looks =
            vec![look("sim new", "echo sim: no such world >&2; exit 1"), look("sim old", "echo 7 >$MUTATIONS_MET")];
        let (measured, left_out) = baselines(looks, &folder).expect("one of them can be run");
        let _ = fs::remove_dir_all(&folder);
        assert_eq!(measured.len(), 1);
        assert_eq!((measured[0].1.name.as_str(), measured[0].2.met.iter().next()), ("sim old", Some(&7)));
        assert_eq!(left_out, "- did not look: sim new: exit status: 1 with no mutation on: sim: no such world\n");
    }

    #[test]
    fn the_table_counts_each_mutation_once() {
        let request = parse(&["--crates".to_owned(), "slab".to_owned()]).expect("it is right");
        let place = places::places("fn f() { a.b(); }").expect("it is Rust").remove(0);
        let mutation = |number| Mutation { number, package: "slab".into(), file: "f.rs".into(), place: place.clone() };
        let caught = |is_simulator| Fate::Caught("x".into(), is_simulator);
        let fates = [caught(true), caught(false), Fate::Survived, Fate::NeverMet, Fate::NotTried];
        let fates: Vec<(Mutation, Fate)> = (1..).map(mutation).zip(fates).collect();
        let table = table(&request, &[40], 6, &fates);
        assert!(table.contains("| `slab` | 40 | 4 | 1 | 1 | 1 | 1 | 50 % |"), "{table}");
        assert!(
            table.contains("6 drawn, 1 refused by the compiler, 1 not tried")
                && table.contains("- survived: f.rs:1 `f`")
        );
    }
}
