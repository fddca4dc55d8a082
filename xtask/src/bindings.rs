//! `cargo xtask bindings`: the tests of `java/` on the shared library of a debug build, and YCSB's
//! own driver, by `java/ycsb`, against servers of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::cargo::{built, cargo, succeed};
use crate::serving::{Serving, with_directory};

const USAGE: &str = "\
usage: cargo xtask bindings [java | ycsb]

  java  the tests of the Java library
  ycsb  YCSB's own driver over spymemcached, against servers with the engines slab and tier, in text and binary
  Without a word, both. They need a JDK 17 and Maven (Debian: default-jdk-headless, maven).";

/// Programs, and the Debian package that has each.
const TOOLS: &[(&str, &str)] = &[("javac", "default-jdk-headless"), ("mvn", "maven")];

const ENGINES: &[(&str, &[&str])] = &[
    ("slab", &["--engine", "slab", "--durability", "process_crash", "--placement", "in_place"]),
    ("tier", &["--engine", "tier"]),
];
const PROTOCOLS: &[&str] = &["text", "binary"];

const RECORDS: u64 = 1000;
const OPERATIONS: u64 = 3000;

/// YCSB's workloads, but for e: memcache has no scans. The one that inserts comes last: the others
/// know of the loaded records only.
const WORKLOADS: &[(&str, &[&str])] = &[
    ("a", &["readproportion=0.5", "updateproportion=0.5", "requestdistribution=zipfian"]),
    ("b", &["readproportion=0.95", "updateproportion=0.05", "requestdistribution=zipfian"]),
    ("c", &["readproportion=1", "updateproportion=0", "requestdistribution=zipfian"]),
    (
        "f",
        &["readproportion=0.5", "updateproportion=0", "readmodifywriteproportion=0.5", "requestdistribution=zipfian"],
    ),
    ("d", &["readproportion=0.95", "updateproportion=0", "insertproportion=0.05", "requestdistribution=latest"]),
];

/// Runs the command; without the tools says so, which in CI is a failure.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let (java, ycsb) = match arguments {
        [] => (true, true),
        [word] if word == "java" => (true, false),
        [word] if word == "ycsb" => (false, true),
        _ => return Err(format!("cannot do this\n\n{USAGE}")),
    };
    if without_tools("the bindings")? {
        return Ok(());
    }
    // Together: each by itself has other features of what both depend on, and would be built anew
    // in turn.
    succeed("build", cargo(root).args(["build", "--workspace", "--lib", "--bin", "stratakv", "--test", "bus"]))?;
    if java {
        library(root)?;
    }
    if ycsb { drivers(root) } else { Ok(()) }
}

/// Whether the tools are missing, which is said; in CI it is a failure.
pub fn without_tools(what: &str) -> Result<bool, String> {
    let missing = missing(&std::env::var_os("PATH").unwrap_or_default());
    if missing.is_empty() {
        return Ok(false);
    }
    let reason = format!("{what} need {}", missing.join(", "));
    if crate::requirement::is_ci() {
        return Err(format!("{reason}; with CI=true everything must run"));
    }
    println!("skipped: {reason}");
    Ok(true)
}

/// Tools that are in no folder of the path.
fn missing(path: &std::ffi::OsStr) -> Vec<String> {
    let is_there = |tool: &str| std::env::split_paths(path).any(|folder| folder.join(tool).is_file());
    let absent = TOOLS.iter().filter(|(tool, _)| !is_there(tool));
    absent.map(|(tool, package)| format!("{tool} (Debian: {package})")).collect()
}

/// Maven, quietly, on a project of the repository.
pub fn maven(root: &Path, project: &str) -> Command {
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-Dstyle.color=never", "-f"]).arg(root.join(project));
    maven
}

fn library(root: &Path) -> Result<(), String> {
    let library = format!("-Dstratakv.library={}", built(root, "debug", "libstratakv_c.so").display());
    succeed("the Java library's tests", maven(root, "java").arg("test").arg(library))?;
    println!("bindings: the Java library's tests pass");
    Ok(())
}

fn drivers(root: &Path) -> Result<(), String> {
    succeed("YCSB's driver", maven(root, "java/ycsb").arg("process-classes"))?;
    with_directory("bindings", |directory| {
        ENGINES.iter().try_for_each(|(engine, options)| {
            PROTOCOLS.iter().try_for_each(|protocol| {
                let data = directory.join(format!("{engine}-{protocol}"));
                std::fs::create_dir_all(&data).map_err(|error| format!("cannot make {}: {error}", data.display()))?;
                workloads(root, &data, engine, options, protocol)
            })
        })
    })
}

/// Loads a new server, and runs all workloads.
fn workloads(root: &Path, data: &Path, engine: &str, options: &[&str], protocol: &str) -> Result<(), String> {
    let server = Serving::start(root, data, options)?;
    let mut done = 0;
    let load = [("load", &[][..])];
    for (name, proportions) in load.iter().chain(WORKLOADS) {
        let output = driver(root, &server.memcache, protocol, name, proportions)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let expected = if *name == "load" { RECORDS } else { OPERATIONS };
        done += judge(&said, expected).map_err(|why| {
            let complaints = String::from_utf8_lossy(&output.stderr);
            format!("YCSB's workload {name} on {engine} in {protocol}: {why}\n{said}\n{complaints}")
        })?;
    }
    println!("bindings: YCSB's workloads on {engine} in {protocol}: {done} operations, all OK");
    Ok(())
}

fn driver(root: &Path, address: &str, protocol: &str, workload: &str, proportions: &[&str]) -> Result<Output, String> {
    let classes = |folder: &str| -> PathBuf { root.join("java/ycsb/target").join(folder) };
    let path = std::env::join_paths([classes("classes"), classes("lib/*")]).map_err(|error| error.to_string())?;
    let mut java = Command::new("java");
    java.arg("-cp").arg(path).args(["site.ycsb.Client", if workload == "load" { "-load" } else { "-t" }]);
    java.args(["-threads", "4", "-db", "io.stratakv.ycsb.MemcacheDb"]);
    let properties = [
        "workload=site.ycsb.workloads.CoreWorkload".to_owned(),
        // Values are made of keys and fields, and each read compares them.
        "dataintegrity=true".to_owned(),
        format!("recordcount={RECORDS}"),
        format!("operationcount={OPERATIONS}"),
        format!("memcache.address={address}"),
        format!("memcache.protocol={protocol}"),
    ];
    for property in properties.iter().map(String::as_str).chain(proportions.iter().copied()) {
        java.args(["-p", property]);
    }
    java.output().map_err(|error| format!("cannot start java: {error}"))
}

/// How many operations YCSB says were done; all of them must have been, and every read verified.
fn judge(said: &str, expected: u64) -> Result<u64, String> {
    let (mut done, mut reads, mut verified) = (0, 0, 0);
    for line in said.lines() {
        let mut parts = line.split(", ");
        let (Some(kind), Some(what), Some(count)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let Some(outcome) = what.strip_prefix("Return=") else { continue };
        let count: u64 = count.trim().parse().map_err(|_| format!("cannot read `{line}`"))?;
        if outcome != "OK" {
            return Err(format!("{count} times {kind} {outcome}"));
        }
        match kind {
            "[VERIFY]" => verified += count,
            "[READ]" => (done, reads) = (done + count, reads + count),
            _ => done += count,
        }
    }
    if done < expected {
        return Err(format!("{done} operations were done, not {expected}"));
    }
    if verified != reads {
        return Err(format!("{verified} of {reads} reads were compared"));
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ycsb_says_is_judged() {
        let all = "[OVERALL], RunTime(ms), 12\n[READ], Operations, 6\n[READ], Return=OK, 6\n[UPDATE], Return=OK, 4\n[VERIFY], Return=OK, 6\n";
        assert_eq!(judge(all, 10), Ok(10));
        assert!(judge(all, 11).is_err() && judge("", 1).is_err());
        let refused = format!("{all}[INSERT], Return=ERROR, 2\n");
        assert_eq!(judge(&refused, 10), Err("2 times [INSERT] ERROR".into()));
        let unlike = format!("{all}[VERIFY], Return=UNEXPECTED_STATE, 1\n");
        assert_eq!(judge(&unlike, 10), Err("1 times [VERIFY] UNEXPECTED_STATE".into()));
        assert!(judge(&all.replace("[VERIFY], Return=OK, 6", ""), 10).is_err(), "reads that were not compared");
    }

    #[test]
    fn missing_tools_are_named() {
        assert_eq!(missing("".as_ref()), ["javac (Debian: default-jdk-headless)", "mvn (Debian: maven)"]);
    }

    #[test]
    fn versions_are_the_workspaces() {
        for project in ["java/pom.xml", "java/ycsb/pom.xml", "java/streams/pom.xml", "java/streams/kafka-suite/pom.xml"]
        {
            let pom = std::fs::read_to_string(crate::repository().join(project)).expect("the project is there");
            let version = pom.split("<version>").nth(1).and_then(|rest| rest.split('<').next());
            assert_eq!(version, Some(env!("CARGO_PKG_VERSION")), "the first version in {project} is its own");
        }
    }
}
