//! Writes what came of the suites as a page of Markdown.

use std::collections::BTreeMap;

use super::known::Known;
use super::server::Kind;
use super::{Results, Suite, TestOutcome, base, differences};
use crate::differ::peer::VERSION;

/// Longest line of text.
const LINE_CHARS_MAX: usize = 100;

const HEAD: &str = "\
# Test suites of memcache clients

This page shows how the own tests of memcache clients come out with each engine, and with memcached
beside them. `cargo xtask suites --write docs/suites.md` fetches the suites, runs them and writes
it. The packages of some clients hold no tests: with `--sources DIR` they are taken from `DIR/NAME`,
a checkout of the client's repository.

- **The control is memcached.** Every test is compared with what it did there, not with a count.
- **No test is changed.** In a copy of each suite the default port becomes that of the server.
- **The control has a second run** if a test failed with it, as some count seconds. Ours has one.
- **A difference needs a reason** in `crates/integration/src/suites/known.txt`. One without a reason
  fails the run, and so does a reason without a difference.
";

/// One suite's runs, or why there is none.
#[derive(Debug)]
pub struct Ran {
    /// The suite.
    pub suite: &'static Suite,
    /// Its results by server, or why it could not be had.
    pub results: Result<Vec<(Kind, Results)>, String>,
}

/// Tests that differ in the same way from memcached.
#[derive(Debug)]
pub struct Group {
    /// The client.
    pub suite: &'static str,
    /// The test, without parameters.
    pub test: String,
    /// How it came out with memcached.
    pub theirs: TestOutcome,
    /// How it came out with ours.
    pub ours: TestOutcome,
    /// The servers of ours that differ.
    pub servers: Vec<&'static str>,
    /// How many of its variants differ, with one server.
    pub variants: usize,
    /// What a failing one said.
    pub message: String,
    /// Why, where it is known.
    pub reason: Option<String>,
}

/// The differences of one suite from its control, those of a test together.
pub fn groups(suite: &Suite, results: &[(Kind, Results)], known: &[Known]) -> Vec<Group> {
    let control = results.iter().find(|(kind, _)| *kind == Kind::Memcached);
    let Some((_, theirs)) = control else { return Vec::new() };
    let mut groups: Vec<Group> = Vec::new();
    for (kind, ours) in results.iter().filter(|(kind, _)| *kind != Kind::Memcached) {
        let mut of_test = BTreeMap::<_, (usize, String)>::new();
        for one in differences(theirs, ours) {
            let key = (base(&one.test).to_owned(), one.theirs, one.ours);
            of_test.entry(key).or_insert_with(|| (0, one.message)).0 += 1;
        }
        for ((test, theirs, ours), (variants, message)) in of_test {
            let why = known.iter().find(|known| known.explains(suite.name, *kind, &test));
            let reason = why.map(|known| known.reason.clone());
            let same = |group: &&mut Group| {
                (&group.test, group.theirs, group.ours, group.variants, &group.reason)
                    == (&test, theirs, ours, variants, &reason)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.servers.push(kind.name()),
                None => groups.push(Group {
                    suite: suite.name,
                    test,
                    theirs,
                    ours,
                    servers: vec![kind.name()],
                    variants,
                    message,
                    reason,
                }),
            }
        }
    }
    groups
}

/// The page.
pub fn page(all: &[Ran], groups: &[Group], servers: &[Kind]) -> String {
    let mut page = String::from(HEAD);
    page.push_str(&format!("\n## Results\nTests passed / failed / skipped.\n\n{}", table(all, servers)));
    let notes = all.iter().filter(|ran| !ran.suite.note.is_empty() && ran.results.is_ok());
    notes.for_each(|ran| page.push_str(&wrapped(&format!("\n`{}`: {}\n", ran.suite.name, ran.suite.note), "")));
    page.push_str(&format!("\n## Differences from memcached\n{}", differing(groups)));
    page.push_str(&format!("\n## Failing with memcached too\n{}", failing(all)));
    let missing: Vec<String> = all.iter().filter_map(not_run).collect();
    if !missing.is_empty() {
        page.push_str(&format!("\n## Not run\n{}", missing.concat()));
    }
    page
}

fn not_run(ran: &Ran) -> Option<String> {
    let why = ran.results.as_ref().err()?;
    let Suite { name, version, note, unpublished, .. } = ran.suite;
    Some(wrapped(&format!("- `{name}` {version}: {} Here {why}.\n", unpublished.unwrap_or(note)), "  "))
}

/// Lines of Markdown, none of them long but for one word; those that follow from one are indented.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut chars) = (String::new(), 0);
    for word in text.split_inclusive([' ', '\n']) {
        if chars + word.trim_end().chars().count() > LINE_CHARS_MAX {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            lines.push_str(indent);
            chars = indent.len();
        }
        lines.push_str(word);
        chars = if word.ends_with('\n') { 0 } else { chars + word.chars().count() };
    }
    lines
}

fn table(all: &[Ran], servers: &[Kind]) -> String {
    let titles = servers.iter().map(|kind| match kind {
        Kind::Memcached => format!(" memcached {VERSION} |"),
        Kind::Packed => " `slab`, placement `packed` |".to_owned(),
        Kind::Ours(engine) => format!(" `{}` |", engine.name()),
    });
    let mut table = format!("| client | language |{}\n|---|---|", titles.collect::<String>());
    table.push_str(&"--:|".repeat(servers.len()));
    table.push('\n');
    for ran in all {
        let cell = |kind: &Kind| {
            let of_kind = ran.results.as_ref().ok()?.iter().find(|(one, _)| one == kind);
            of_kind.map(|(_, results)| counts(results).map(|count| count.to_string()).join(" / "))
        };
        let cells = servers.iter().map(|kind| format!(" {} |", cell(kind).unwrap_or_else(|| "–".to_owned())));
        let (name, version) = (ran.suite.name, ran.suite.version);
        let row = cells.collect::<String>();
        table.push_str(&format!("| {name} {version} | {} |{row}\n", ran.suite.language));
    }
    table
}

/// How many tests passed, failed and were skipped.
pub fn counts(results: &Results) -> [usize; 3] {
    let count = |outcome| results.values().filter(|verdict| verdict.outcome == outcome).count();
    [TestOutcome::Passed, TestOutcome::Failed, TestOutcome::Skipped].map(count)
}

fn differing(groups: &[Group]) -> String {
    if groups.is_empty() {
        return "None.\n".to_owned();
    }
    let mut table =
        "\n| client | test | variants | with memcached | with ours | engines | why |\n|---|---|--:|---|---|---|---|\n"
            .to_owned();
    for group in groups {
        let Group { suite, test, theirs, ours, servers, variants, .. } = group;
        let why = group.reason.as_deref().unwrap_or("**not known**");
        let (theirs, ours, servers) = (theirs.name(), ours.name(), servers.join(", "));
        table.push_str(&format!("| {suite} | `{test}` | {variants} | {theirs} | {ours} | {servers} | {why} |\n"));
    }
    table
}

/// Tests of a suite that fail on every server: its own defects, or what the machine lacks.
fn failing(all: &[Ran]) -> String {
    let mut rows = BTreeMap::<(&str, &str), (usize, &str)>::new();
    for ran in all {
        let control = ran.results.iter().flatten().find(|(kind, _)| *kind == Kind::Memcached);
        for (test, verdict) in control.iter().flat_map(|(_, results)| results) {
            if verdict.outcome == TestOutcome::Failed {
                rows.entry((ran.suite.name, base(test))).or_insert((0, &verdict.message)).0 += 1;
            }
        }
    }
    if rows.is_empty() {
        return "None.\n".to_owned();
    }
    let mut table = "\n| client | test | variants | message |\n|---|---|--:|---|\n".to_owned();
    for ((suite, test), (variants, message)) in rows {
        let message = message.replace('`', "'").replace('|', "\\|");
        table.push_str(&format!("| {suite} | `{test}` | {variants} | `{message}` |\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::suites::{SUITES, TestResult};

    fn results(tests: &[(&str, TestOutcome)]) -> Results {
        let verdict = |outcome| TestResult { outcome, message: "because".to_owned() };
        tests.iter().map(|(name, outcome)| ((*name).to_owned(), verdict(*outcome))).collect()
    }

    fn known(reason: &str) -> Known {
        let (suite, servers) = (SUITES[0].name.to_owned(), vec!["slab".to_owned()]);
        Known { suite, servers, test: "t".to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn variants_and_engines_with_the_same_reason_are_one_row() {
        let theirs =
            results(&[("t[a]", TestOutcome::Passed), ("t[b]", TestOutcome::Passed), ("u", TestOutcome::Failed)]);
        let ours = results(&[("t[a]", TestOutcome::Failed), ("t[b]", TestOutcome::Failed), ("u", TestOutcome::Failed)]);
        let runs = [(Kind::Memcached, theirs), (Kind::Ours(Engine::Slab), ours.clone()), (Kind::Packed, ours)];
        let found = groups(&SUITES[0], &runs, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].variants, &found[0].servers[..]), (2, &["slab", "packed"][..]));
        let found = groups(&SUITES[0], &runs, &[known("meant")]);
        let reasons: Vec<_> = found.iter().map(|group| group.reason.as_deref()).collect();
        assert_eq!(reasons, [Some("meant"), None], "packed is not in the list");
    }

    #[test]
    fn a_suite_that_was_not_had_is_said_to_be_missing() {
        let runs = vec![(Kind::Memcached, results(&[("u", TestOutcome::Failed), ("v", TestOutcome::Passed)]))];
        let all = [
            Ran { suite: &SUITES[0], results: Ok(runs) },
            Ran { suite: &SUITES[1], results: Err("`pip` fails".to_owned()) },
            Ran { suite: crate::suites::named("dalli").unwrap(), results: Err("`apt-get` fails".to_owned()) },
        ];
        let page = page(&all, &[], &[Kind::Memcached]);
        assert!(page.contains("| 1 / 1 / 0 |") && page.contains("| – |"), "{page}");
        assert!(page.contains("`u` | 1 | `because`") && page.contains("Here `pip` fails."), "{page}");
        let dalli = "- `dalli` 3.0.6: The distribution's package holds no tests";
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(dalli) && words.contains("Here `apt-get` fails."), "{page}");
    }
}
