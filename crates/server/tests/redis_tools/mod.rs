//! Redis's own programs against a server of ours.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use stratakv::Engine;

use super::conversations::of_words;
use super::{Bench, ENGINES, is_installed};

/// What redis-cli prints of a command.
fn redis_cli(address: SocketAddr, arguments: &[&str]) -> String {
    let port = address.port().to_string();
    let mut command = Command::new("/usr/bin/redis-cli");
    let output = command.args(["-p", &port]).args(arguments).stdin(Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn redis_cli_works_with_it() {
    if !is_installed("redis-cli") {
        return;
    }
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let cli = |arguments: &[&str]| redis_cli(bench.address(), arguments);
        assert_eq!(cli(&["ping"]), "PONG\n");
        assert_eq!(cli(&["-3", "set", "user:1", "Ada"]), "OK\n");
        assert_eq!(cli(&["get", "user:1"]), "Ada\n");
        assert_eq!(cli(&["-3", "get", "none"]), "\n");
        assert_eq!(cli(&["--no-raw", "ttl", "user:1"]), "(integer) -1\n");
        assert_eq!(cli(&["eval", "a", "1"]), "ERR 'eval' is not supported yet: see docs/resp.md for what is\n\n");
        assert_eq!(cli(&["rpush", "list", "1", "2"]), "2\n");
        assert_eq!(cli(&["lrange", "list", "0", "-1"]), "1\n2\n");
        assert_eq!(cli(&["-3", "zadd", "scores", "1.5", "a"]), "1\n");
        assert_eq!(cli(&["--no-raw", "-3", "zscore", "scores", "a"]), "(double) 1.5\n");
        assert_eq!(cli(&["-3", "sadd", "set", "a"]), "1\n");
        assert_eq!(cli(&["--no-raw", "-3", "smembers", "set"]), "1~ \"a\"\n");
        assert_eq!(cli(&["del", "list", "scores", "set"]), "3\n");
        assert_eq!(cli(&["--scan", "--pattern", "user:*"]), "user:1\n");
        assert!(cli(&["--bigkeys"]).contains("1 strings with 3 bytes"), "{}", cli(&["--bigkeys"]));
        assert_eq!(cli(&["-r", "3", "incr", "n"]), "1\n2\n3\n");
        assert!(cli(&["info", "server"]).contains("redis_mode:standalone"));
    }
}

/// Commands that people type, in one connection, and a file of requests.
#[test]
fn redis_cli_takes_commands_and_requests_from_its_input() {
    if !is_installed("redis-cli") {
        return;
    }
    let bench = Bench::of(Engine::Slab);
    let port = bench.address().port().to_string();
    let run = |arguments: &[&str], input: &[u8]| {
        let mut command = Command::new("/usr/bin/redis-cli");
        command.args(["-p", &port]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(input).unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap).collect::<Vec<_>>();
        assert!(process.wait().unwrap().success());
        lines.join("|")
    };
    assert_eq!(run(&[], b"set a \"b c\"\nget a\nhello 3\nincr a\n").split('|').next(), Some("OK"));
    let piped = run(&["--pipe"], &of_words("SET p 1").repeat(1000));
    assert!(piped.contains("errors: 0, replies: 1000"), "{piped}");
    assert_eq!(bench.connect().ask("GET p"), "\"1\"");
}

#[test]
fn redis_benchmark_works_with_it() {
    if !is_installed("redis-benchmark") {
        return;
    }
    const TESTS: &str = "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,mset";
    let bench = Bench::of(Engine::Tier);
    let port = bench.address().port().to_string();
    let mut command = Command::new("/usr/bin/redis-benchmark");
    command.args(["-p", &port, "-n", "2000", "-c", "20", "-P", "4", "-q", "-t", TESTS]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && told.matches("requests per second").count() == 15, "{told}");
    assert_eq!(bench.connect().ask("GET counter:__rand_int__"), "\"2000\"");
}
