//! A device that gives errors, played by strace: every read of one file answers EIO.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use stratakv_integration::{place, program, requirement};

use super::stores::{Kind, Made};
use super::tools::{Said, said};

/// strace, if it may trace here.
fn strace() -> Option<PathBuf> {
    let strace = requirement::tool("strace")?;
    let works =
        Command::new(&strace).args(["-o", "/dev/null", "-e", "inject=read:error=EIO:when=100", "true"]).output();
    if works.is_ok_and(|output| output.status.success()) {
        return Some(strace);
    }
    requirement::not_here("strace may not trace");
    None
}

/// Runs the program; reads of `file` fail in each thread from the one with this number on.
fn run(strace: &Path, file: &Path, from: u32, arguments: &[String]) -> Said {
    let mut command = Command::new(strace);
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=read,pread64", "-P"]).arg(file);
    command.arg("-e").arg(format!("inject=read,pread64:error=EIO:when={from}+"));
    command.arg(program::binary()).args(arguments).stdin(std::process::Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("STRATAKV_")) {
            command.env_remove(name);
        }
    }
    said(&command.output().expect("strace can be started"))
}

/// The part of the page; `None`: nothing can be traced here.
pub(crate) fn table() -> Option<String> {
    let strace = strace()?;
    let mut text = "\n## A device that gives errors\n\nEvery read of the file fails with EIO. Regions are mapped, and not read by calls.\n\n".to_owned();
    text += "| store | file | `check` | `repair` | `stats` | `get` | `dump` | `serve` |\n|---|---|---|---|---|---|---|---|\n";
    let place = place::directory();
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let made = Made::new(kind, &place.path().join(number.to_string()), false);
        let last = made.directories.last().expect("a directory");
        let files = [made.data().join("store.toml"), last.join("part.toml"), made.data().join("shard-000.vol")];
        for file in files.iter().filter(|file| file.exists()) {
            let cells = row(&strace, &made, file);
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(text, "| {} | `{name}` | {cells} |", kind.name()).expect("memory takes it");
        }
        later_reads(&strace, &made);
    }
    Some(text)
}

fn tool(made: &Made, name: &str, more: &[&str]) -> Vec<String> {
    let (mut all, more) = (vec![name.to_owned()], more.iter().map(|one| (*one).to_owned()));
    all.extend(made.arguments());
    all.extend(["--io".to_owned(), "blocking".to_owned()]);
    all.extend(more);
    all
}

fn row(strace: &Path, made: &Made, file: &Path) -> String {
    let mut cells = Vec::new();
    for name in ["check", "repair", "stats", "get", "dump", "serve"] {
        let is_its = match name {
            "repair" => made.kind == Kind::Matrix,
            "dump" => !made.kind.is_cache(),
            _ => true,
        };
        if !is_its {
            cells.push("—".to_owned());
            continue;
        }
        let more: &[&str] = match name {
            "get" => &["k00"],
            "serve" => &["--memcache", "127.0.0.1:0"],
            _ => &[],
        };
        let said = run(strace, file, 1, &tool(made, name, more));
        is_of_the_device(&format!("{name} of {}, {}", made.kind.name(), file.display()), &said);
        cells.push(format!("tells the device ({})", said.code));
    }
    cells.join(" | ")
}

/// An error of the device, with the advice that goes with it.
fn is_of_the_device(what: &str, said: &Said) {
    assert_eq!(said.code, 1, "{what}: {}", said.all());
    assert!(said.err.contains("an error of the device, not damage"), "{what}: {}", said.all());
    let advises = ["rm -r", "from a backup", "is damaged", "accept-lost"].iter().any(|words| said.err.contains(words));
    assert!(!advises, "{what}: nothing is known to be damaged: {}", said.all());
}

/// Superblocks can be read, and what comes behind them cannot: `check` is not content, whatever it
/// met.
fn later_reads(strace: &Path, made: &Made) {
    let volume = made.data().join("shard-000.vol");
    if !volume.exists() {
        return;
    }
    let said = run(strace, &volume, 3, &tool(made, "check", &[]));
    assert!(said.code != 0 || said.out.ends_with("sound\n"), "{}: {}", made.kind.name(), said.all());
    if said.code != 0 {
        assert_eq!(said.code, 1, "{}: {}", made.kind.name(), said.all());
        assert!(said.err.contains("an error of the device, not damage"), "{}", said.all());
    }
}
