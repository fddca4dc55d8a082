//! Reads what test runners write: JUnit XML, `go test -v`, TAP.

use super::{Results, TestOutcome, TestResult};

/// The tests in JUnit XML, as pytest and Surefire write it. Angle brackets inside texts are escaped
/// there.
pub fn junit(xml: &str) -> Results {
    let mut results = Results::new();
    for part in xml.split("<testcase ").skip(1) {
        let Some(end) = part.find('>') else { continue };
        let (head, body) = part.split_at(end);
        let body = if head.ends_with('/') { "" } else { body.split("</testcase>").next().unwrap_or("") };
        let name = match attribute(head, "classname").as_deref() {
            None | Some("") => attribute(head, "name").unwrap_or_default(),
            Some(class) => format!("{class}.{}", attribute(head, "name").unwrap_or_default()),
        };
        add(&mut results, name, junit_verdict(body));
    }
    results
}

fn junit_verdict(body: &str) -> TestResult {
    let tags = [("<failure", TestOutcome::Failed), ("<error", TestOutcome::Failed), ("<skipped", TestOutcome::Skipped)];
    for (tag, outcome) in tags {
        if let Some((_, rest)) = body.split_once(tag) {
            let head = rest.split('>').next().unwrap_or("");
            // An assertion without words has its class only.
            let message = attribute(head, "message").or_else(|| attribute(head, "type"));
            return TestResult { outcome, message: first_line(&message.unwrap_or_default()) };
        }
    }
    TestResult { outcome: TestOutcome::Passed, message: String::new() }
}

/// The value of an attribute in the head of a tag.
fn attribute(head: &str, name: &str) -> Option<String> {
    let start = format!("{name}=\"");
    let at = head.match_indices(&start).find(|(at, _)| *at == 0 || head[..*at].ends_with(' '))?.0;
    let value = head[at + start.len()..].split('"').next()?;
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#10;", "\n"), ("&amp;", "&")];
    Some(pairs.iter().fold(value.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain)))
}

/// The tests and subtests in what `go test -v` prints.
pub fn go(text: &str) -> Results {
    let mut results = Results::new();
    // Lines of a test stand before its result; of tests that run at once they are told apart by the
    // last `=== NAME`.
    let (mut current, mut said) = (String::new(), std::collections::BTreeMap::<String, String>::new());
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("=== ") {
            current = rest.split_whitespace().nth(1).unwrap_or("").to_owned();
        } else if let Some((outcome, name)) = go_result(trimmed) {
            let message = if outcome == TestOutcome::Passed { None } else { said.get(&name).cloned() };
            add(&mut results, name, TestResult { outcome, message: message.unwrap_or_default() });
        } else if line.starts_with("    ") {
            // `    file_test.go:84: message`: the last one is why it failed.
            let message = trimmed.split_once(": ").map_or(trimmed, |(_, message)| message);
            said.insert(current.clone(), first_line(message));
        }
    }
    results
}

fn go_result(line: &str) -> Option<(TestOutcome, String)> {
    let (word, rest) = line.strip_prefix("--- ")?.split_once(": ")?;
    let outcome = match word {
        "PASS" => TestOutcome::Passed,
        "FAIL" => TestOutcome::Failed,
        "SKIP" => TestOutcome::Skipped,
        _ => return None,
    };
    Some((outcome, rest.rsplit_once(" (").map_or(rest, |(name, _)| name).to_owned()))
}

/// The tests in the TAP of node-tap: files are subtests, and the tests in them are theirs.
pub fn tap(text: &str) -> Results {
    const FILE: &str = "    ";
    let (mut results, mut file, mut why) = (Results::new(), String::new(), String::new());
    for line in text.lines() {
        let Some(inner) = line.strip_prefix(FILE) else { continue };
        if let Some(name) = inner.strip_prefix("# Subtest: ") {
            file = name.rsplit('/').next().unwrap_or(name).to_owned();
        } else if let Some((passed, name)) = tap_result(inner) {
            let outcome = match () {
                () if inner.contains("# SKIP") || inner.contains("# TODO") => TestOutcome::Skipped,
                () if passed => TestOutcome::Passed,
                () => TestOutcome::Failed,
            };
            let message = if outcome == TestOutcome::Failed { std::mem::take(&mut why) } else { String::new() };
            add(&mut results, format!("{file}: {name}"), TestResult { outcome, message });
        } else if let Some((false, name)) = tap_result(inner.trim_start()) {
            // Names of assertions begin with their number.
            why = first_line(name.split_once(' ').map_or(&name, |(_, text)| text));
        }
    }
    results
}

/// `ok 3 - Name # time=1ms`: whether it passed, and `3 Name`, as names occur twice.
fn tap_result(line: &str) -> Option<(bool, String)> {
    let (passed, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let (number, name) = rest.split_once(" - ")?;
    number.parse::<u32>().ok()?;
    Some((passed, format!("{number} {}", name.split(" # ").next().unwrap_or(name).trim_end())))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("").trim().to_owned()
}

/// A test that reports twice (its body and its end) has the worse outcome.
fn add(results: &mut Results, name: String, verdict: TestResult) {
    match results.get(&name) {
        Some(before) if before.outcome >= verdict.outcome => {}
        _ => _ = results.insert(name, verdict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(results: &Results) -> Vec<(&str, &str, &str)> {
        results.iter().map(|(name, one)| (name.as_str(), one.outcome.name(), one.message.as_str())).collect()
    }

    #[test]
    fn junit_of_pytest_is_read() {
        let xml = r#"<testsuites><testsuite name="pytest"><testcase classname="t.A" name="one[a-&lt;b&gt;]" time="0.1" />
            <testcase classname="t.A" name="two" time="0.1"><failure message="E: no &quot;x&quot;&#10;more">text &lt;skipped</failure></testcase>
            <testcase classname="" name="three" time="0.1"><skipped type="pytest.skip" message="why">w</skipped></testcase>
            <testcase classname="t.A" name="four" time="0.1"><system-out>&lt;failure</system-out></testcase>
            <testcase classname="t.A" name="four" time="0.1"><error message="at its end">x</error></testcase></testsuite>"#;
        assert_eq!(
            outcomes(&junit(xml)),
            [
                ("t.A.four", "failed", "at its end"),
                ("t.A.one[a-<b>]", "passed", ""),
                ("t.A.two", "failed", "E: no \"x\""),
                ("three", "skipped", "why"),
            ]
        );
    }

    #[test]
    fn junit_of_surefire_and_of_the_script_for_minitest_is_read() {
        let xml = r#"<testsuite name="n.A" tests="3" errors="1" skipped="0" failures="1"><properties><property name="x" value="&lt;testcase "/></properties>
  <testcase name="testOne" classname="n.A" time="0.01"/>
  <testcase name="testTwo" classname="n.A" time="0.02">
    <failure type="junit.framework.AssertionFailedError"><![CDATA[junit.framework.AssertionFailedError
	at n.A.testTwo(A.java:1)]]></failure>
  </testcase>
  <testcase name="testThree" classname="n.A" time="0">
    <error message="Timed out: &quot;&lt;k&gt;&quot;&#10;more" type="n.Timeout"><![CDATA[n.Timeout]]></error>
  </testcase>
</testsuite>
<testcase classname="Dalli::using a live server" name="test_0001_support get/set" />
<testcase classname="Dalli" name="test_0002_allows &quot;Not found&quot;"><failure message="Expected: &lt;1&gt;
  Actual: 2"></failure></testcase>
"#;
        assert_eq!(
            outcomes(&junit(xml)),
            [
                ("Dalli.test_0002_allows \"Not found\"", "failed", "Expected: <1>"),
                ("Dalli::using a live server.test_0001_support get/set", "passed", ""),
                ("n.A.testOne", "passed", ""),
                ("n.A.testThree", "failed", "Timed out: \"<k>\""),
                ("n.A.testTwo", "failed", "junit.framework.AssertionFailedError"),
            ]
        );
    }

    #[test]
    fn results_of_go_test_are_read_with_what_was_said_last() {
        let text = "=== RUN   TestA\n=== RUN   TestA/blank\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/blank (0.00s)\n\
                    === NAME  TestTLS\n    m_test.go:1: waiting\n=== NAME  TestUnix\n    m_test.go:9: no: it skips\n\
                    --- SKIP: TestUnix (1.13s)\n=== NAME  TestTLS\n    m_test.go:2: first set(foo): refused\n\
                    --- FAIL: TestTLS (1.15s)\nFAIL\n";
        assert_eq!(
            outcomes(&go(text)),
            [
                ("TestA", "passed", ""),
                ("TestA/blank", "passed", ""),
                ("TestTLS", "failed", "first set(foo): refused"),
                ("TestUnix", "skipped", "no: it skips"),
            ]
        );
    }

    #[test]
    fn tests_of_node_tap_are_told_apart_by_their_numbers() {
        let text = "TAP version 13\n    # Subtest: ./test/c_test.js\n        # Subtest: Set\n        ok 1 - should be equal\n        1..1\n    \
                    ok 1 - Set # time=5ms\n        # Subtest: Set\n        not ok 2 - too many\n          ---\n    not ok 2 - Set # time=1ms\n    \
                    ok 3 - Later # SKIP no\n    1..3\nnot ok 1 - ./test/c_test.js # time=9ms\n";
        assert_eq!(
            outcomes(&tap(text)),
            [
                ("c_test.js: 1 Set", "passed", ""),
                ("c_test.js: 2 Set", "failed", "too many"),
                ("c_test.js: 3 Later", "skipped", ""),
            ]
        );
    }
}
