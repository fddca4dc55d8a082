//! The own test suites of memcache clients, run against our server and against memcached.
//!
//! It owns the list of suites and the comparison; `cargo xtask suites` calls it. It changes no
//! test: in a copy of a suite the default port alone becomes that of the server under test.

pub mod fetch;
pub mod known;
pub mod page;
pub mod report;
pub mod run;
pub mod server;

use std::collections::BTreeMap;

/// What became of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestOutcome {
    /// It passed.
    Passed,
    /// The suite skipped it.
    Skipped,
    /// It failed, or broke off with an error.
    Failed,
    /// The suite did not reach it.
    Missing,
}

impl TestOutcome {
    /// The word for it in tables.
    pub fn name(self) -> &'static str {
        match self {
            TestOutcome::Passed => "passed",
            TestOutcome::Skipped => "skipped",
            TestOutcome::Failed => "failed",
            TestOutcome::Missing => "did not run",
        }
    }
}

/// One test's outcome, and the first line of its message if it failed or was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestResult {
    /// What became of it.
    pub outcome: TestOutcome,
    /// The first line of its message.
    pub message: String,
}

/// The tests of one run, by name.
pub type Results = BTreeMap<String, TestResult>;

/// How a suite's tests are started, and in which form they report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// pytest with these arguments; it writes JUnit XML.
    Pytest(&'static [&'static str]),
    /// `go test -v`.
    Go,
    /// node-tap; it writes TAP.
    Tap,
    /// minitest with every `test/test_*.rb`, and gems from this Gemfile; it writes JUnit XML.
    Minitest(&'static str),
    /// Maven with this project file; Surefire writes JUnit XML, a file for each class.
    Maven(&'static str),
}

/// The own test suite of a client.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// The client.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its language.
    pub language: &'static str,
    /// How it is run.
    pub runner: Runner,
    /// Files of it in which the default port 11211 becomes that of the server.
    pub ported: &'static [&'static str],
    /// What a reader of its figures should know.
    pub note: &'static str,
    /// Why its tests come from a checkout; `None` if its package holds them.
    pub unpublished: Option<&'static str>,
}

/// memcached's default port, which some suites take for granted.
pub const DEFAULT_PORT: &str = "11211";

/// What dalli's tests need, all of it Debian's: ruby-dalli, ruby-minitest, ruby-rack,
/// ruby-connection-pool.
const DALLI_GEMS: &str = r#"gem "dalli", "3.0.6"
gem "minitest"
gem "rack"
gem "connection_pool"
"#;

/// Every suite, in the order of the table.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "pymemcache",
        version: "4.0.0",
        language: "Python",
        runner: Runner::Pytest(&["pymemcache/test", "--server", "127.0.0.1", "--count", "200", "--port"]),
        ported: &[],
        note: "All of it: unit tests, integration tests, and its benchmarks with 200 rounds each.",
        unpublished: None,
    },
    Suite {
        name: "pylibmc",
        version: "1.6.3",
        language: "Python, C (libmemcached)",
        runner: Runner::Pytest(&["tests", "--import-mode=importlib"]),
        ported: &["tests/__init__.py", "pylibmc/autoconf.py"],
        note: "",
        unpublished: None,
    },
    Suite {
        name: "gomemcache",
        version: "v0.0.0-20260422231931-4d751bb6e37c",
        language: "Go",
        runner: Runner::Go,
        ported: &["memcache/memcache_test.go"],
        note: "`TestUnixSocket` and `TestTLS` start `memcached` themselves. The harness puts a program of that name \
               first in `PATH`: it starts the server under test, with a store of its own.",
        unpublished: None,
    },
    Suite {
        name: "memjs",
        version: "1.3.2",
        language: "JavaScript",
        runner: Runner::Tap,
        ported: &[],
        note: "No test of it opens a connection: each has a dummy server in its own process. Its figures say \
               nothing about a server.",
        unpublished: None,
    },
    Suite {
        name: "spymemcached",
        version: "2.12.3",
        language: "Java",
        runner: Runner::Maven(include_str!("suites/spymemcached.xml")),
        ported: &[
            "src/test/java/net/spy/memcached/FailingServerTest.java",
            "src/test/java/net/spy/memcached/MemcachedClientConstructorTest.java",
            "src/test/java/net/spy/memcached/TestConfig.java",
        ],
        note: "The released jar with tests of the public repository that talk to a server: those of versions 2.8 \
               and 2.9, and `FailingServerTest` of an older one. Left out: tests without a server, tests of other \
               servers than memcached, and those over IPv6, as servers listen on 127.0.0.1 here.",
        unpublished: Some("Its jars of classes and of sources hold no tests, and there is none of test sources."),
    },
    Suite {
        name: "dalli",
        version: "3.0.6",
        language: "Ruby",
        runner: Runner::Minitest(DALLI_GEMS),
        ported: &[],
        note: "The distribution's gem with tests of the public repository that talk to a server: those of the \
               versions just before 3.0.6, and `test_failover.rb` of 2.7. They start `memcached` themselves, as \
               gomemcache's do. Left out: tests without a server. Its tests of SASL are switched off in this version.",
        unpublished: Some("The distribution's package holds no tests, so its source package is asked for."),
    },
];

/// The suite with this name.
pub fn named(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

/// A test that came out otherwise than with memcached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The test.
    pub test: String,
    /// With memcached.
    pub theirs: TestOutcome,
    /// With ours.
    pub ours: TestOutcome,
    /// What ours was told, or else what memcached was.
    pub message: String,
}

/// Every test that came out otherwise than with memcached, in the order of their names.
pub fn differences(theirs: &Results, ours: &Results) -> Vec<Difference> {
    let missing = TestResult { outcome: TestOutcome::Missing, message: String::new() };
    let names: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let pairs = names.into_iter().map(|name| {
        let (their, our) = (theirs.get(name).unwrap_or(&missing), ours.get(name).unwrap_or(&missing));
        (name, their, our)
    });
    let other = pairs.filter(|(_, their, our)| their.outcome != our.outcome);
    let described = other.map(|(name, their, our)| Difference {
        test: name.clone(),
        theirs: their.outcome,
        ours: our.outcome,
        message: if our.message.is_empty() { their.message.clone() } else { our.message.clone() },
    });
    described.collect()
}

/// A test's name without its parameters: `test_misc` of `test_misc[prefix]`, and Go's test of a
/// subtest.
pub fn base(test: &str) -> &str {
    let end = test.find(['[', '/']).unwrap_or(test.len());
    &test[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(outcome: TestOutcome) -> TestResult {
        TestResult { outcome, message: outcome.name().to_owned() }
    }

    #[test]
    fn a_test_that_one_side_lacks_is_a_difference() {
        let theirs = Results::from([
            ("a".to_owned(), verdict(TestOutcome::Passed)),
            ("b".to_owned(), verdict(TestOutcome::Failed)),
        ]);
        let ours = Results::from([
            ("b".to_owned(), verdict(TestOutcome::Failed)),
            ("c".to_owned(), verdict(TestOutcome::Passed)),
        ]);
        let found = differences(&theirs, &ours);
        let seen: Vec<_> = found.iter().map(|one| (one.test.as_str(), one.theirs, one.ours)).collect();
        assert_eq!(
            seen,
            [("a", TestOutcome::Passed, TestOutcome::Missing), ("c", TestOutcome::Missing, TestOutcome::Passed)],
            "b fails on both sides"
        );
    }

    #[test]
    fn parameters_are_no_part_of_a_base_name() {
        assert_eq!(base("t.test_misc[Client-]"), "t.test_misc");
        assert_eq!(base("TestScan/blank"), "TestScan");
        assert_eq!(base("TestTLS"), "TestTLS");
    }
}
