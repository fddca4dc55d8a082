//! redis-cli in each of its modes, and redis-benchmark with all of its tests.

use std::io::{BufRead, BufReader};

use super::super::*;

/// A server with some keys, and redis-cli on it.
struct Cli {
    bench: Bench,
}

impl Cli {
    /// `None`, after saying so: redis-cli is not installed.
    fn of(engine: Engine) -> Option<Cli> {
        is_installed("redis-cli").then(|| {
            let cli = Cli { bench: Bench::of(engine) };
            let mut client = cli.bench.connect();
            for line in ["SET s 12345", "RPUSH l a b c", "HSET h f v", "SADD e a b", "ZADD z 1 a 2 b"] {
                assert!(!client.ask(line).starts_with('-'), "{line}");
            }
            cli
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/redis-cli");
        command.args(["-p", &self.bench.address().port().to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Whether it ended well, and what it said on both streams.
    fn run(&self, arguments: &[&str], input: &[u8]) -> (bool, String) {
        let mut process = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        let output = process.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    }

    /// Its first lines in a mode that has no end.
    fn first_lines(&self, arguments: &[&str], lines: usize) -> Vec<String> {
        let mut process = self.command(arguments).spawn().unwrap();
        let read = BufReader::new(process.stdout.take().unwrap()).lines();
        let read = read.take(lines).collect::<Result<Vec<_>, _>>().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        read
    }
}

#[test]
fn redis_cli_looks_at_all_keys() {
    for engine in ENGINES {
        let Some(cli) = Cli::of(engine) else { return };
        let (is_well, told) = cli.run(&["--scan"], b"");
        let mut keys: Vec<&str> = told.lines().collect();
        keys.sort_unstable();
        assert!(is_well && keys == ["e", "h", "l", "s", "z"], "{engine:?}: {told}");
        let (is_well, told) = cli.run(&["--scan", "--pattern", "[ls]", "--quoted-pattern", "[s]"], b"");
        assert!(is_well && told == "s\n", "{engine:?}: {told}");
        for (mode, unit) in [("--bigkeys", "1 lists with 3 items"), ("--memkeys", "1 lists with ")] {
            let (is_well, told) = cli.run(&[mode], b"");
            assert!(is_well && told.contains(unit) && told.contains("Sampled 5 keys"), "{engine:?}, {mode}: {told}");
        }
        let (is_well, told) = cli.run(&["--hotkeys"], b"");
        assert!(!is_well && told.contains("Error: ERR "), "{engine:?}: {told}");
    }
}

#[test]
fn redis_cli_measures() {
    let Some(cli) = Cli::of(Engine::Slab) else { return };
    let (is_well, told) = cli.run(&["--latency"], b"");
    assert!(is_well && told.split_ascii_whitespace().count() == 4, "least, most, average, samples: {told}");
    let told = cli.first_lines(&["--latency-history", "-i", "1"], 1);
    assert_eq!(told[0].split_ascii_whitespace().count(), 4, "{told:?}");
    let (is_well, told) = cli.run(&["--intrinsic-latency", "1"], b"");
    assert!(is_well && told.contains("total runs"), "{told}");
    let told = cli.first_lines(&["--stat", "-i", "0.05"], 4);
    let figures = told[3].split_ascii_whitespace().next();
    assert!(told[1].starts_with("keys") && figures.is_some_and(|keys| keys.parse::<u64>().is_ok()), "{told:?}");
}

#[test]
fn redis_cli_reads_its_input_and_prints_as_it_is_told() {
    let Some(cli) = Cli::of(Engine::Hash) else { return };
    assert_eq!(cli.run(&["-x", "set", "k"], b"a\nb"), (true, "OK\n".into()));
    assert_eq!(cli.run(&["-X", "tag", "set", "tag", "v"], b"named"), (true, "OK\n".into()));
    assert_eq!(cli.run(&["--csv", "mget", "k", "named", "none"], b""), (true, "\"a\\nb\",\"v\",NULL\n".into()));
    assert_eq!(cli.run(&["-3", "--json", "hgetall", "h"], b""), (true, "{\"f\":\"v\"}\n".into()));
    assert_eq!(cli.run(&["-3", "--no-raw", "hgetall", "h"], b""), (true, "1# \"f\" => \"v\"\n".into()));
    assert_eq!(cli.run(&["-c", "get", "s"], b""), (true, "12345\n".into()), "as a client of a cluster");
    assert_eq!(cli.run(&["-r", "2", "-i", "0.01", "incr", "n"], b""), (true, "1\n2\n".into()));
    let (is_well, told) = cli.run(&["-e", "incr", "l"], b"");
    assert!(!is_well && told.starts_with("WRONGTYPE"), "{told}");
    let (is_well, told) = cli.run(&["--pipe"], &of_words("SET p 1").repeat(500));
    assert!(is_well && told.contains("errors: 0, replies: 500"), "{told}");
    let (_, told) = cli.run(&["--pipe"], &[of_words("SET p 1"), of_words("INCR l")].concat());
    assert!(told.contains("errors: 1, replies: 2"), "{told}");
}

/// What a Redis would send of its data: there is no such stream, and it says so.
#[test]
fn redis_cli_is_told_that_there_is_nothing_to_replicate() {
    let Some(cli) = Cli::of(Engine::Slab) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    for arguments in [&["--rdb", file.to_str().unwrap()][..], &["--replica"]] {
        let (is_well, told) = cli.run(arguments, b"");
        assert!(!is_well && told.contains("not supported yet"), "{arguments:?}: {told}");
    }
}

#[test]
fn redis_cli_listens_and_monitors() {
    let Some(cli) = Cli::of(Engine::Slab) else { return };
    for (arguments, lines, expected) in
        [(&["monitor"][..], 2, "\"PUBLISH\" \"news\" \"x\""), (&["psubscribe", "ne*"], 7, "x")]
    {
        let mut process = cli.command(arguments).spawn().unwrap();
        let mut read = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        // It has begun once it has said so.
        let first = read.next().unwrap();
        assert!(["OK", "psubscribe"].contains(&&first[..]), "{first}");
        assert!(cli.bench.connect().ask("PUBLISH news x").starts_with('('));
        let told: Vec<String> = read.take(lines - 1).collect();
        assert!(told.last().is_some_and(|last| last.ends_with(expected)), "{told:?}");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn redis_benchmark_runs_all_of_its_tests() {
    if !is_installed("redis-benchmark") {
        return;
    }
    for engine in [Engine::Slab, Engine::Hash, Engine::Tier] {
        let bench = Bench::of(engine);
        let mut command = Command::new("/usr/bin/redis-benchmark");
        command.args(["-p", &bench.address().port().to_string(), "-n", "1000", "-c", "10", "--csv", "-r", "100"]);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<&str> = told.lines().skip(1).filter_map(|line| line.split('"').nth(1)).collect();
        assert!(output.status.success() && names.len() == 20, "{engine:?}: {told}");
        assert!(names.contains(&"LRANGE_600 (first 600 elements)") && names.contains(&"MSET (10 keys)"), "{told}");
    }
}
