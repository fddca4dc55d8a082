//! `cargo xtask streams`: the tests of `java/streams`, the state stores for Kafka Streams, and
//! measurements of them beside RocksDB's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bindings::{maven, without_tools};
use crate::cargo::{built, cargo, succeed};

const USAGE: &str = "\
usage: cargo xtask streams [--short | --kills N | --bench [OPTIONS] | --broker]

  Runs the tests of java/streams: stores one by one, and applications on three brokers in one
  process that are killed, replaced, moved, and whose disks are full or damaged. They need a JDK 17
  and Maven (Debian: default-jdk-headless, maven), and Maven's repository for Kafka.

  --short    without brokers, in less than a minute
  --kills N  kill the application N times with kill -9 (default: 100)
  --broker   run one broker for trying out docs/streams.md; lines of the input are counted
  --bench    measure beside RocksDB's stores instead, and print a table in Markdown

  Options of --bench:
  --restore N  restore N records from a changelog (default: 1000000)
  --minutes N  measure windows for so long (default: 2)
  --records N  measure single stores with N records (default: 1000000)
  --rounds N   measure single stores so often (default: 3)
  --container M  in a control group with M MiB, as a container has: the page cache counts; as root
  --resume     keep what an interrupted run has measured";

/// How often the night kills an application.
const KILLS: u32 = 100;

#[derive(Debug, PartialEq)]
enum Form {
    Short,
    Long { kills: u32 },
    Bench(Bench),
    Broker,
}

/// What is measured beside RocksDB's stores.
#[derive(Debug, PartialEq)]
struct Bench {
    restored: u64,
    minutes: f64,
    records: u64,
    rounds: u32,
    container_mib: Option<u64>,
    resumes: bool,
}

fn form(arguments: &[String]) -> Result<Form, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => Ok(Form::Long { kills: KILLS }),
        ["--short"] => Ok(Form::Short),
        ["--broker"] => Ok(Form::Broker),
        ["--bench", ref options @ ..] => bench(options).map(Form::Bench),
        ["--kills", kills] => number(kills, "kills").map(|kills| Form::Long { kills }),
        _ => Err(format!("cannot do this\n\n{USAGE}")),
    }
}

fn bench(options: &[&str]) -> Result<Bench, String> {
    let mut bench =
        Bench { restored: 1_000_000, minutes: 2.0, records: 1_000_000, rounds: 3, container_mib: None, resumes: false };
    let mut options = options;
    while let [option, rest @ ..] = options {
        options = match (*option, rest) {
            ("--resume", rest) => {
                bench.resumes = true;
                rest
            }
            ("--restore", [value, rest @ ..]) => {
                bench.restored = number(value, "records")?;
                rest
            }
            ("--minutes", [value, rest @ ..]) => {
                bench.minutes = number(value, "minutes")?;
                rest
            }
            ("--records", [value, rest @ ..]) => {
                bench.records = number(value, "records")?;
                rest
            }
            ("--container", [value, rest @ ..]) => {
                bench.container_mib = Some(number(value, "MiB")?);
                rest
            }
            ("--rounds", [value, rest @ ..]) => {
                bench.rounds = number(value, "rounds")?;
                rest
            }
            _ => return Err(format!("cannot do `--bench {option}`\n\n{USAGE}")),
        };
    }
    Ok(bench)
}

fn number<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no number of {what}\n\n{USAGE}"))
}

/// Runs the command; without the tools says so, which in CI is a failure.
///
/// # Errors
/// What failed: the build, the tests.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let form = form(arguments)?;
    if without_tools("the stores for Kafka Streams")? {
        return Ok(());
    }
    if form == Form::Broker {
        return broker(root);
    }
    let profile = if matches!(form, Form::Bench(_)) { "release" } else { "dev" };
    succeed("build", cargo(root).args(["build", "--package", "stratakv-c", "--lib", "--profile", profile]))?;
    let library = built(root, profile, "libstratakv_c.so");
    match form {
        Form::Long { kills } => {
            test(root, &library, &["-Dstreams.groups=!bench".to_owned(), format!("-Dstreams.kills={kills}")])?;
            suite(root, &library)
        }
        Form::Bench(bench) => measure(root, &library, &bench),
        Form::Short | Form::Broker => {
            test(root, &library, &[])?;
            suite(root, &library)
        }
    }
}

/// Measures what was not measured before, and prints the table.
fn measure(root: &Path, library: &Path, bench: &Bench) -> Result<(), String> {
    let folder = root.join("java/streams/target/streams-bench");
    if !bench.resumes && folder.exists() {
        let removed = std::fs::remove_dir_all(&folder);
        removed.map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    }
    let options = [
        "-Dstreams.groups=bench".to_owned(),
        format!("-Dstreams.restore={}", bench.restored),
        format!("-Dstreams.minutes={}", bench.minutes),
        format!("-Dstreams.records={}", bench.records),
    ];
    match bench.container_mib {
        None => {
            let rounds = format!("-Dstreams.rounds={}", bench.rounds);
            test(root, library, &[&options[..], &[rounds]].concat())?;
        }
        // A process and a group for each round: RocksDB's shared cache stays when its store is
        // closed, and what a process has taken stays the group's when it leaves that.
        Some(mib) => {
            let rounds =
                (0..bench.rounds).map(|round| vec![test_of("StoreBench#beside"), first(round), ONE_ROUND.into()]);
            let all = rounds.chain([vec![test_of("ClusterBench")]]);
            for part in all {
                let container = Container::make(mib)?;
                let within = [
                    format!("-Dstreams.container={}", container.folder.display()),
                    // What is left of the container is the stores' and the page cache's.
                    format!("-Dstreams.heap={HEAP_MIB}"),
                    format!("-DargLine=-Xmx{HEAP_MIB}m"),
                ];
                test(root, library, &[&options[..], &part, &within].concat())?;
            }
        }
    }
    let table = folder.join("table.md");
    let table = std::fs::read_to_string(&table).map_err(|error| format!("cannot read {}: {error}", table.display()))?;
    println!("{table}");
    println!("streams: the table is in {}", folder.join("table.md").display());
    Ok(())
}

const ONE_ROUND: &str = "-Dstreams.rounds=1";

fn test_of(class: &str) -> String {
    format!("-Dtest={class}")
}

fn first(round: u32) -> String {
    format!("-Dstreams.first={round}")
}

/// Java's heap in a container.
const HEAP_MIB: u64 = 256;

/// A control group for memory; it is removed when this is dropped.
struct Container {
    folder: PathBuf,
}

impl Container {
    fn make(mib: u64) -> Result<Container, String> {
        let memory = Path::new("/sys/fs/cgroup/memory");
        let (parent, limit) = match memory.is_dir() {
            true => (memory, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let folder = parent.join(format!("stratakv-streams-{}", std::process::id()));
        let made = std::fs::create_dir(&folder);
        made.map_err(|error| format!("cannot make the control group {}: {error}; run it as root", folder.display()))?;
        let container = Container { folder };
        let limited = std::fs::write(container.folder.join(limit), (mib << 20).to_string());
        limited.map_err(|error| format!("cannot limit the control group to {mib} MiB: {error}"))?;
        Ok(container)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.folder) {
            eprintln!("streams: cannot remove the control group {}: {error}", self.folder.display());
        }
    }
}

/// Runs the broker until the input ends.
fn broker(root: &Path) -> Result<(), String> {
    succeed("the Java library", maven(root, "java").args(["install", "-DskipTests"]))?;
    succeed("the broker", maven(root, "java/streams").arg("test-compile"))?;
    let target = root.join("java/streams/target");
    let list = target.join("classpath");
    let jars = std::fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    let classes =
        format!("{}:{}:{}", target.join("classes").display(), target.join("test-classes").display(), jars.trim());
    let mut java = Command::new("java");
    java.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &classes]);
    succeed("the broker", java.arg("io.stratakv.streams.cluster.TrialBroker"))
}

/// Installs the Java library, and runs tests of `java/streams` on it.
pub fn test(root: &Path, library: &Path, options: &[String]) -> Result<(), String> {
    let named = format!("-Dstratakv.library={}", library.display());
    succeed("the Java library", maven(root, "java").args(["install", "-DskipTests"]).arg(&named))?;
    let mut tests = maven(root, "java/streams");
    succeed("the stores for Kafka Streams", tests.arg("install").arg(&named).args(options))?;
    println!("streams: the tests of the stores for Kafka Streams pass");
    Ok(())
}

/// Runs Kafka's own tests of stores on ours.
fn suite(root: &Path, library: &Path) -> Result<(), String> {
    let named = format!("-Dstratakv.library={}", library.display());
    succeed("Kafka's tests of stores", maven(root, "java/streams/kafka-suite").arg("test").arg(named))?;
    println!("streams: Kafka's own tests of stores pass");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_are_read() {
        assert_eq!(form(&[]), Ok(Form::Long { kills: KILLS }));
        assert_eq!(form(&words(&["--kills", "7"])), Ok(Form::Long { kills: 7 }));
        assert_eq!(form(&words(&["--short"])), Ok(Form::Short));
        assert_eq!(form(&words(&["--broker"])), Ok(Form::Broker));
        let bench = Bench {
            restored: 1_000_000,
            minutes: 2.0,
            records: 1_000_000,
            rounds: 3,
            container_mib: None,
            resumes: false,
        };
        assert_eq!(form(&words(&["--bench"])), Ok(Form::Bench(bench)));
        let all = "--bench --restore 10000000 --resume --minutes 0.5 --rounds 1 --records 5 --container 512";
        let bench = Bench {
            restored: 10_000_000,
            minutes: 0.5,
            records: 5,
            rounds: 1,
            container_mib: Some(512),
            resumes: true,
        };
        assert_eq!(form(&words(&all.split(' ').collect::<Vec<_>>())), Ok(Form::Bench(bench)));
        assert!(form(&words(&["--kills", "many"])).is_err() && form(&words(&["--long"])).is_err());
        assert!(form(&words(&["--bench", "--minutes"])).is_err() && form(&words(&["--bench", "--all"])).is_err());
    }
}
