//! `cargo xtask streams`: the tests of `java/streams`, the state stores for Kafka Streams, and
//! measurements of them beside RocksDB's.

use std::path::Path;

use crate::bindings::{maven, without_tools};
use crate::cargo::{built, cargo, succeed};

const USAGE: &str = "\
usage: cargo xtask streams [--short | --kills N | --bench]

  Runs the tests of java/streams: stores one by one, and applications on three brokers in one
  process that are killed, replaced and moved. They need a JDK 17 and Maven (Debian:
  default-jdk-headless, maven), and Maven's repository for Kafka.

  --short    without brokers, in less than a minute
  --kills N  kill the application N times with kill -9 (default: 100)
  --bench    beside RocksDB's stores instead, in turn, medians of three runs";

/// How often the night kills an application.
const KILLS: u32 = 100;

enum Form {
    Short,
    Long { kills: u32 },
    Bench,
}

fn form(arguments: &[String]) -> Result<Form, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => Ok(Form::Long { kills: KILLS }),
        ["--short"] => Ok(Form::Short),
        ["--bench"] => Ok(Form::Bench),
        ["--kills", kills] => {
            let kills = kills.parse().map_err(|_| format!("`{kills}` is no number of kills\n\n{USAGE}"))?;
            Ok(Form::Long { kills })
        }
        _ => Err(format!("cannot do this\n\n{USAGE}")),
    }
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
    let profile = if matches!(form, Form::Bench) { "release" } else { "dev" };
    succeed("build", cargo(root).args(["build", "--package", "stratakv-c", "--lib", "--profile", profile]))?;
    let library = built(root, profile, "libstratakv_c.so");
    match form {
        Form::Short => test(root, &library, &[]),
        Form::Long { kills } => {
            test(root, &library, &["-Dstreams.groups=!bench".to_owned(), format!("-Dstreams.kills={kills}")])
        }
        Form::Bench => test(root, &library, &["-Dstreams.groups=bench".to_owned()]),
    }
}

/// Installs the Java library, and runs tests of `java/streams` on it.
pub fn test(root: &Path, library: &Path, options: &[String]) -> Result<(), String> {
    let named = format!("-Dstratakv.library={}", library.display());
    succeed("the Java library", maven(root, "java").args(["install", "-DskipTests"]).arg(&named))?;
    succeed("the stores for Kafka Streams", maven(root, "java/streams").arg("test").arg(&named).args(options))?;
    println!("streams: the tests of the stores for Kafka Streams pass");
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
        assert!(matches!(form(&[]), Ok(Form::Long { kills: KILLS })));
        assert!(matches!(form(&words(&["--kills", "7"])), Ok(Form::Long { kills: 7 })));
        assert!(matches!(form(&words(&["--short"])), Ok(Form::Short)));
        assert!(matches!(form(&words(&["--bench"])), Ok(Form::Bench)));
        assert!(form(&words(&["--kills", "many"])).is_err() && form(&words(&["--long"])).is_err());
    }
}
