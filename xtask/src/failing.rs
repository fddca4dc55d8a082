//! `cargo xtask failing`: shows that tests fail without what they are for.
//!
//! A list names tests. Each is taken to the commit before its mend and run there; or, where it asks
//! an interface that is newer, the mend is undone in the files of today. A test that passes all the
//! same tests nothing. `bench-gate` is tried in the same way: on trees that were made slower.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, hide_caller};
use crate::toolchain::target_directory;

const USAGE: &str = "\
usage: cargo xtask failing LIST [--only TEXT] [--write FILE]

  LIST          tests, the commits before and with their mends, and what to take away from under them: see docs/decisions/0048-seen-failing.toml
  --only TEXT   those whose kind or filter has this text
  --write FILE  the table, as Markdown

Works in target/failing, with builds of its own: half an hour for all, the first time.";

/// The target that is no test: the command that counts.
const COUNTS: &str = "bench-gate";

/// What a file lists.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    /// The commit before the mends.
    before: String,
    /// The commit that has the tests as they came with the mends: later ones ask for what the old
    /// commit does not have.
    tests: String,
    entries: Vec<Entry>,
}

/// One test, or several with one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Of finding.
    kind: String,
    /// `NAME` of `tests/NAME`, or `lib:PACKAGE`, or `bench-gate`.
    target: String,
    /// Of `bench-gate`: how its finding begins, `PATH: more COUNT`.
    filter: String,
    /// Files that have the test, to be taken to the old commit. None: the mend is undone instead.
    files: Vec<String>,
    /// Of `tests/main/main.rs`: those that are kept.
    modules: Vec<String>,
    /// What those files say otherwise there.
    adapt: Vec<[String; 2]>,
    undo: Vec<Undo>,
}

/// A piece of a file as it was before the mend.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Undo {
    file: String,
    find: String,
    put: String,
}

/// How the tests of an entry ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ended {
    failed: Vec<String>,
    passed: Vec<String>,
    /// Why none ran.
    why: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// What passes without its mend, or could not be tried.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let [list, options @ ..] = arguments else { return Err(USAGE.into()) };
    let (mut only, mut write) = (None, None);
    for pair in options.chunks(2) {
        match pair {
            [option, text] if option == "--only" => only = Some(text.clone()),
            [option, file] if option == "--write" => write = Some(PathBuf::from(file)),
            _ => return Err(USAGE.into()),
        }
    }
    let text = fs::read_to_string(root.join(list)).map_err(|error| format!("cannot read {list}: {error}"))?;
    let List { before, tests, mut entries } = parse(&text)?;
    let is_wanted =
        |entry: &Entry| only.as_ref().is_none_or(|text| entry.kind.contains(text) || entry.filter.contains(text));
    entries.retain(is_wanted);
    let trees = target_directory(root).join("failing");
    let (before, today) =
        (checkout(root, &trees.join("before"), &before)?, checkout(root, &trees.join("today"), "HEAD")?);
    let mut ended = Vec::new();
    for entry in &entries {
        println!("== {}: {} {}", entry.kind, entry.target, entry.filter);
        let folder = if entry.undo.is_empty() { &before } else { &today };
        let one = try_one(root, folder, &tests, entry)?;
        println!(
            "   {} failed, {} passed{}",
            one.failed.len(),
            one.passed.len(),
            one.why.as_deref().unwrap_or_default()
        );
        ended.push(one);
    }
    if let Some(file) = write {
        fs::write(root.join(&file), table(&entries, &ended))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let wrong = entries.iter().zip(&ended).filter(|(_, ended)| ended.failed.is_empty());
    let wrong: Vec<String> =
        wrong.map(|(entry, ended)| format!("{} {}: {ended:?}", entry.target, entry.filter)).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "seen failing: {} of {}; not:\n{}",
            entries.len() - wrong.len(),
            entries.len(),
            wrong.join("\n")
        )),
    }
}

/// What git prints of a question to it in a folder.
fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(folder).args(arguments).output();
    let output = output.map_err(|error| format!("cannot start git: {error}"))?;
    let asked = arguments.join(" ");
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| format!("git {asked}: {error}")),
        false => Err(format!("git {asked}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A checkout of a commit, as it was committed.
///
/// # Errors
/// What git says.
pub fn checkout(root: &Path, folder: &Path, commit: &str) -> Result<PathBuf, String> {
    let commit = git(root, &["rev-parse", commit])?;
    let commit = commit.trim();
    if !folder.join(".git").exists() {
        fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--force", "--detach", &folder.display().to_string(), commit])?;
    }
    git(folder, &["checkout", "--quiet", "--force", "--detach", commit])?;
    git(folder, &["clean", "--quiet", "--force", "-d"])?;
    Ok(folder.to_path_buf())
}

/// Prepares the tree, runs the tests of an entry, and leaves the tree as it was.
fn try_one(root: &Path, folder: &Path, tests: &str, entry: &Entry) -> Result<Ended, String> {
    let mut changed: Vec<(PathBuf, Option<Vec<u8>>)> = Vec::new();
    let mut change = |file: &str, bytes: Vec<u8>| {
        let path = folder.join(file);
        changed.push((path.clone(), fs::read(&path).ok()));
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, bytes))
            .map_err(|error| format!("cannot write {file}: {error}"))
    };
    for file in &entry.files {
        let text = git(root, &["show", &format!("{tests}:{file}")])?;
        let text = entry.adapt.iter().fold(text, |text, [find, put]| text.replace(find, put));
        let is_main = file.ends_with("tests/main/main.rs");
        change(file, if is_main { only_modules(&text, &entry.modules) } else { text }.into_bytes())?;
    }
    for Undo { file, find, put } in &entry.undo {
        let text = fs::read_to_string(folder.join(file)).map_err(|error| format!("cannot read {file}: {error}"))?;
        if !text.contains(find.as_str()) {
            return Err(format!("{file} has no such text any more:\n{find}"));
        }
        change(file, text.replace(find.as_str(), put).into_bytes())?;
    }
    let ended = if entry.target == COUNTS { count(root, folder, entry) } else { test(folder, entry) };
    for (path, bytes) in changed.into_iter().rev() {
        let outcome = bytes.map_or_else(|| fs::remove_file(&path), |bytes| fs::write(&path, bytes));
        outcome.map_err(|error| format!("cannot restore {}: {error}", path.display()))?;
    }
    ended
}

/// `main.rs` of a folder of tests with these modules alone.
fn only_modules(text: &str, modules: &[String]) -> String {
    let kept = |line: &&str| {
        line.strip_prefix("mod ").is_none_or(|rest| modules.iter().any(|name| rest == format!("{name};")))
    };
    text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

/// Counts what an operation takes in the tree, beside the figures of this one.
fn count(root: &Path, folder: &Path, entry: &Entry) -> Result<Ended, String> {
    let path = entry.filter.split(':').next().unwrap_or_default();
    let program = std::env::current_exe().map_err(|error| format!("no path of xtask: {error}"))?;
    let mut command = Command::new(program);
    hide_caller(command.current_dir(root).args([COUNTS, "--only", path, "--of"]).arg(folder));
    // Without valgrind nothing is counted, and nothing is seen failing.
    let output = command.env("CI", "true").env_remove("CARGO_TARGET_DIR").output();
    let output = output.map_err(|error| format!("cannot start {COUNTS}: {error}"))?;
    Ok(departures(&String::from_utf8_lossy(&output.stderr), &entry.filter, output.status.success()))
}

/// What the lines of `bench-gate` say.
fn departures(said: &str, expected: &str, has_passed: bool) -> Ended {
    let found = said.lines().map(str::trim).filter(|line| line.starts_with(expected));
    let failed: Vec<String> = found.map(str::to_owned).collect();
    match (failed.is_empty(), has_passed) {
        (false, _) => Ended { failed, ..Ended::default() },
        (true, true) => Ended { passed: vec![expected.to_owned()], ..Ended::default() },
        (true, false) => {
            let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it ended");
            Ended { why: Some(format!(": {why}")), ..Ended::default() }
        }
    }
}

fn test(folder: &Path, entry: &Entry) -> Result<Ended, String> {
    let mut command = cargo(folder);
    // One each: cargo takes a crate of the one tree for that of the other.
    command.env("CARGO_TARGET_DIR", folder.join("target")).env("CARGO_INCREMENTAL", "0").arg("test");
    match entry.target.strip_prefix("lib:") {
        Some(package) => command.args(["--package", package, "--lib"]),
        None => command.args(["--workspace", "--test", &entry.target]),
    };
    command.args(["--", &entry.filter, "--test-threads=2"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().map_err(|error| format!("cannot start cargo: {error}"))?;
    let mut ended = outcomes(&String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    if ended.failed.is_empty() && !output.status.success() {
        let why = said.lines().find(|line| line.starts_with("error") || line.contains("signal")).unwrap_or("it ended");
        ended.why = Some(format!(": {why}"));
        // Killed, or ended, in the middle of a test: that is a failure, unless nothing was built.
        if !said.contains("could not compile") {
            ended.failed.push(format!("{} ({why})", entry.filter));
        }
    }
    Ok(ended)
}

/// What the lines of the test harness say.
fn outcomes(text: &str) -> Ended {
    let mut ended = Ended::default();
    for line in text.lines() {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            continue;
        };
        match outcome {
            "ok" => ended.passed.push(name.to_owned()),
            "FAILED" => ended.failed.push(name.to_owned()),
            _ => {}
        }
    }
    ended
}

fn table(entries: &[Entry], ended: &[Ended]) -> String {
    let mut text = String::from("| kind | tests | without the mend | seen failing |\n|---|---|---|---|\n");
    for (entry, ended) in entries.iter().zip(ended) {
        let how = if entry.undo.is_empty() { "the commit before" } else { "undone" };
        let names: Vec<String> = ended.failed.iter().map(|name| format!("`{name}`")).collect();
        let seen =
            if names.is_empty() { format!("no{}", ended.why.as_deref().unwrap_or_default()) } else { names.join(", ") };
        let _ = writeln!(text, "| {} | `{}` `{}` | {how} | {seen} |", entry.kind, entry.target, entry.filter);
    }
    text
}

fn parse(text: &str) -> Result<List, String> {
    let list: toml::Table = text.parse().map_err(|error| format!("the list cannot be read: {error}"))?;
    let commit = |name: &str| list.get(name).and_then(toml::Value::as_str).map(str::to_owned);
    let before = commit("before").ok_or("the list does not say `before`, a commit")?;
    let words = |table: &toml::Table, name: &str| -> Vec<String> {
        let all = table.get(name).and_then(toml::Value::as_array);
        all.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    let tables = |table: &toml::Table, name: &str| -> Vec<toml::Table> {
        let all = table.get(name).and_then(toml::Value::as_array);
        all.into_iter().flatten().filter_map(|one| one.as_table().cloned()).collect()
    };
    let word = |table: &toml::Table, name: &str| {
        let word = table.get(name).and_then(toml::Value::as_str).map(str::to_owned);
        word.ok_or_else(|| format!("a test of the list has no `{name}`: {table:?}"))
    };
    let entry = |table: &toml::Table| {
        let undo =
            |one: &toml::Table| Ok(Undo { file: word(one, "file")?, find: word(one, "find")?, put: word(one, "put")? });
        let undo: Result<Vec<Undo>, String> = tables(table, "undo").iter().map(undo).collect();
        let adapt = tables(table, "adapt");
        let adapt: Result<Vec<_>, String> =
            adapt.iter().map(|one| Ok([word(one, "find")?, word(one, "put")?])).collect();
        Ok(Entry {
            kind: word(table, "kind")?,
            target: word(table, "target")?,
            filter: word(table, "filter")?,
            files: words(table, "files"),
            modules: words(table, "modules"),
            adapt: adapt?,
            undo: undo?,
        })
    };
    let entries: Result<Vec<Entry>, String> = tables(&list, "test").iter().map(entry).collect();
    Ok(List { before, tests: commit("tests").unwrap_or_else(|| "HEAD".into()), entries: entries? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text = "before = \"abc\"\n[[test]]\nkind = \"k\"\ntarget = \"main\"\nfilter = \"f\"\nfiles = [\"a\"]\nmodules = [\"m\"]\n\
                    [[test]]\nkind = \"l\"\ntarget = \"lib:p\"\nfilter = \"g\"\nundo = [{ file = \"b\", find = \"x\", put = \"y\" }]\n";
        let List { before, tests, entries } = parse(text).expect("it is a list");
        assert_eq!((before.as_str(), tests.as_str(), entries.len()), ("abc", "HEAD", 2));
        assert_eq!(parse(&format!("tests = \"def\"\n{text}")).expect("it is a list").tests, "def");
        assert_eq!((entries[0].files.len(), entries[0].modules.len(), entries[1].undo.len()), (1, 1, 1));
        assert!(parse("before = \"abc\"\n[[test]]\nkind = \"k\"\n").is_err() && parse("").is_err());
    }

    #[test]
    fn lines_of_the_harness_are_read() {
        let ended = outcomes(
            "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d - should panic ... ok\ntest e ... ignored\n",
        );
        assert_eq!((ended.failed, ended.passed.len()), (vec!["c".to_owned()], 2));
    }

    #[test]
    fn findings_of_counts_are_read() {
        let said = "error: 1 counts are not those of xtask/counts.toml:\n  hash get: more allocations: 4, not 3 (within 0.16)\nmake it cheaper\n";
        let ended = departures(said, "hash get: more allocations", false);
        assert_eq!(ended.failed, ["hash get: more allocations: 4, not 3 (within 0.16)"]);
        let other = departures(said, "hash get: more instructions", false);
        assert!(other.failed.is_empty() && other.why.is_some_and(|why| why.contains("make it cheaper")));
        assert_eq!(departures("", "hash get: more allocations", true).passed.len(), 1);
    }

    #[test]
    fn only_the_modules_that_are_named_stay() {
        let text = "//! All.\n\nmod a;\nmod bc;\nuse x;\n";
        assert_eq!(only_modules(text, &["bc".into()]), "//! All.\n\nmod bc;\nuse x;\n");
    }

    /// What is undone is still there to be undone.
    #[test]
    fn every_list_fits_the_files_of_today() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in the repository");
        let folder = fs::read_dir(root.join("docs/decisions")).expect("there are decisions");
        for path in folder
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        {
            let list = parse(&fs::read_to_string(&path).expect("it can be read")).expect("it is a list");
            for entry in list.entries {
                let read = |file: &String| {
                    fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
                };
                entry
                    .undo
                    .iter()
                    .for_each(|undo| assert!(read(&undo.file).contains(&undo.find), "{}: {}", undo.file, undo.find));
            }
        }
    }
}
