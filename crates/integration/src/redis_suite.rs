//! Redis's own test suite, in Tcl, run against our server and against Redis.
//!
//! It owns the list of units and the comparison; `cargo xtask redis-suite` calls it. It changes no
//! test: the suite can be run against a server that is there already (`--host`, `--port`).

pub mod compared;
pub mod known;
pub mod run;
pub mod source;

use crate::suites::{Results, TestOutcome, TestResult};

/// Files of tests, as the suite names them.
pub const UNITS: &[&str] = &[
    "type/string",
    "type/incr",
    "type/hash",
    "type/set",
    "type/zset",
    "type/list",
    "type/list-2",
    "type/list-3",
    "sort",
    "bitops",
    "bitfield",
    "expire",
    "keyspace",
    "multi",
    "pubsub",
    "slowlog",
    "scan",
    "info-command",
    "other",
    "protocol",
    "quit",
];

/// Tests with these tags need what a Redis has inside of it, or hours, or 100 MB in one value.
/// `-needs:repl` and its like leave tests out, and the suite does not report them.
const TAGS: &str = "-needs:repl -needs:debug -needs:config-maxmemory -needs:save -needs:pfdebug \
    -needs:latency -large-memory";
/// Units whose tests all take long, and no hours.
const SLOW_UNITS: &[&str] = &["type/list-2"];

/// The tags that are left out of a unit.
pub fn tags(unit: &str) -> String {
    let slow = if SLOW_UNITS.contains(&unit) { "" } else { " -slow" };
    format!("{TAGS}{slow}")
}

/// What a unit's output says became of each test.
pub fn read(output: &str) -> Results {
    let mut results = Results::new();
    let mut last = None;
    for line in output.lines() {
        let line = plain(line);
        let Some((outcome, name)) = result(&line) else {
            // The line behind a failure says why.
            if let Some(message) =
                last.take().and_then(|name: String| results.get_mut(&name)).map(|one| &mut one.message)
                && message.is_empty()
            {
                *message = line.trim().to_owned();
            }
            continue;
        };
        last = (outcome == TestOutcome::Failed).then(|| name.clone());
        let verdict = TestResult { outcome, message: String::new() };
        match results.get(&name) {
            // Names occur more than once: the worse counts.
            Some(before) if before.outcome >= outcome => {}
            _ => _ = results.insert(name, verdict),
        }
    }
    results
}

/// `[ok]: NAME (5 ms)`, `[err]: NAME in tests/unit/x.tcl`, `[skip]: NAME`, `[ignore]: ...`.
fn result(line: &str) -> Option<(TestOutcome, String)> {
    let (word, rest) = line.strip_prefix('[')?.split_once("]: ")?;
    let end = |mark: &str| rest.rfind(mark).map_or(rest, |end| &rest[..end]);
    Some(match word {
        "ok" => (TestOutcome::Passed, end(" (").to_owned()),
        "err" => (TestOutcome::Failed, end(" in tests/").to_owned()),
        "exception" => (TestOutcome::Failed, "the unit broke off".to_owned()),
        "skip" => (TestOutcome::Skipped, rest.to_owned()),
        _ => return None,
    })
}

/// A line without the escape sequences of its colours.
fn plain(line: &str) -> String {
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_with_the_line_behind_a_failure() {
        let output = "[ready]: 123\n\u{1b}[1;37;49mTesting unit/x\u{1b}[0m\n[\u{1b}[0;32;49mok\u{1b}[0m]: SET (a) and GET (5 ms)\n\
            [\u{1b}[0;31;49merr\u{1b}[0m]: LCS in basic in tests/unit/type/string.tcl\nERR unknown\nmore\n\
            [\u{1b}[0;33;49mskip\u{1b}[0m]: slow one\n[ok]: twice (1 ms)\n[err]: twice in tests/unit/a.tcl\n[ok]: twice (0 ms)\n\
            [exception]: Executing test client: no\n";
        let read = read(output);
        let seen: Vec<_> =
            read.iter().map(|(name, one)| (name.as_str(), one.outcome.name(), one.message.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("LCS in basic", "failed", "ERR unknown"),
                ("SET (a) and GET", "passed", ""),
                ("slow one", "skipped", ""),
                ("the unit broke off", "failed", ""),
                ("twice", "failed", ""),
            ]
        );
    }
}
