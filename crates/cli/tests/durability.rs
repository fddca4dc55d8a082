//! What the documents promise of durability, held against the system calls of the program: whatever
//! is called durable was flushed before it was said, and nothing is flushed that need not be.
//! `strace` tells the calls; with `--io blocking` all I/O is made of them.

mod strace;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nothing takes so long: who has not answered by then never does.
const NEVER: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_stratakv");
const CALLS: &str =
    "trace=pwrite64,pwritev2,write,fdatasync,fsync,msync,sendto,sendmsg,mkdir,unlink,unlinkat,rename,renameat2";
/// An engine and its placement or region.
const KINDS: [(&str, &[&str]); 4] = [
    ("in_place", &["--engine", "slab", "--placement", "in_place"]),
    ("packed", &["--engine", "slab", "--placement", "packed"]),
    ("hash", &["--engine", "hash", "--region", "32M"]),
    ("matrix", &["--engine", "matrix", "--region", "32M"]),
];

/// One test at a time: a port that is free now may be another server's in a moment. `None`: there
/// is no `strace`.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    strace::is_there().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn traced(log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-s", "64", "-o"]).arg(log).args(["-e", CALLS]).arg(PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Calls of a trace in the order in which they ended, each with its arguments. One that is
/// interrupted in the trace stands where it is resumed.
fn calls(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).expect("a trace");
    let mut begun: Vec<(&str, &str)> = Vec::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or_default();
        let call = call.trim_start();
        if let Some(front) = call.strip_suffix(" <unfinished ...>") {
            begun.push((thread, front));
        } else if let Some((_, end)) = call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            let at = begun.iter().rposition(|(other, _)| *other == thread);
            let front = at.map_or("", |at| begun.remove(at).1);
            calls.push(format!("{front}{end}"));
        } else {
            calls.push(call.to_owned());
        }
    }
    calls
}

/// Whether the call has made something durable.
fn is_flush(call: &str) -> bool {
    let flushes = ["fdatasync(", "fsync(", "msync("].iter().any(|name| call.starts_with(name));
    (flushes || call.starts_with("pwritev2(") && call.contains("DSYNC")) && !call.contains("= -1")
}

fn is_answer(call: &str, words: &str) -> bool {
    (call.starts_with("send") || call.starts_with("write(")) && call.contains(words)
}

struct Server {
    child: Child,
    memcache: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        strace::end(&mut self.child);
    }
}

impl Server {
    fn start(data: &Path, log: &Path, options: &[&str]) -> Server {
        let mut command = traced(log);
        command.args(["serve", "--threads", "1", "--shards", "1", "--memory", "64M", "--io", "blocking", "--data"]);
        command.arg(data).args(["--memcache", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses =
            said.map_while(Result::ok).filter_map(|line| Some(line.strip_prefix("memcache")?.to_owned()));
        let address = addresses.next().expect("it serves");
        Server { child, memcache: address.trim().parse().unwrap() }
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.memcache).unwrap();
        stream.set_read_timeout(Some(NEVER)).unwrap();
        stream.write_all(request).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it is answered");
        line.trim_end().to_owned()
    }

    /// Tells the traced process to end, and waits for it.
    fn end(mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let traced = fs::read_to_string(children).unwrap();
        let told = Command::new("kill").args(["-TERM", traced.trim()]).status().unwrap();
        assert!(told.success() && self.child.wait().unwrap().success(), "an orderly end");
    }
}

/// Sets values of many lengths, deletes one; the calls until each answer, and those of the end.
fn served(level: &str, options: &[&str]) -> (Vec<Vec<String>>, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("log");
    let server = Server::start(&place.path().join("data"), &log, &[options, &["--durability", level]].concat());
    let mut words = vec!["VERSION "];
    server.ask(b"version\r\n");
    for bytes in [100, 3_000, 60_000, 300_000] {
        let set = [format!("set key-{bytes} 0 0 {bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat();
        assert_eq!(server.ask(&set), "STORED");
        words.push("STORED");
    }
    assert_eq!(server.ask(b"delete key-100\r\n"), "DELETED");
    words.push("DELETED");
    server.end();
    let mut rest = calls(&log);
    let mut parts = Vec::new();
    for word in words {
        let at = rest.iter().position(|call| is_answer(call, word)).unwrap_or_else(|| panic!("{word}: {rest:#?}"));
        let after = rest.split_off(at + 1);
        parts.push(std::mem::replace(&mut rest, after));
    }
    // What came before the first one is the opening.
    (parts.split_off(1), rest)
}

#[test]
fn at_power_loss_a_write_is_answered_after_a_flush() {
    let Some(_alone) = alone() else { return };
    for (kind, options) in KINDS {
        let (writes, _) = served("power_loss", options);
        for (number, calls) in writes.iter().enumerate() {
            let last_write = calls.iter().rposition(|call| call.starts_with("pwrite")).unwrap_or(0);
            let is_durable = calls[last_write..].iter().any(|call| is_flush(call));
            assert!(is_durable, "{kind}, write {number}: {calls:#?}");
        }
    }
}

#[test]
fn at_process_crash_nothing_waits_for_a_flush_and_the_end_makes_all_durable() {
    let Some(_alone) = alone() else { return };
    for (kind, options) in KINDS {
        let (writes, end) = served("process_crash", options);
        // Some are made for other reasons meanwhile: tables of segments, say.
        let without = writes.iter().filter(|calls| !calls.iter().any(|call| is_flush(call))).count();
        assert!(without > 0, "{kind}: each write waits for a flush: {writes:#?}");
        assert!(end.iter().any(|call| is_flush(call)), "{kind}: nothing was flushed at the end: {end:#?}");
        // What survives a kill has left the process: by a call, unless it lies in a mapped region.
        let has_written = writes.iter().all(|calls| calls.iter().any(|call| call.starts_with("pwrite")));
        assert!(has_written || !options.contains(&"slab"), "{kind}: {writes:#?}");
    }
}

fn run(arguments: &[&str], log: &Path) -> Vec<String> {
    let status = traced(log).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}: {status}");
    calls(log)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn flushed(calls: &[String], path: &Path) -> Option<usize> {
    calls.iter().rposition(|call| is_flush(call) && call.contains(&format!("<{}>", path.display())))
}

/// Each new directory is a name in the one above it.
#[test]
fn the_names_of_a_new_store_are_durable_when_its_first_record_is() {
    let Some(_alone) = alone() else { return };
    for (kind, options) in KINDS {
        let place = tempfile::tempdir().unwrap();
        let (top, log) = (place.path().canonicalize().unwrap(), place.path().join("log"));
        let data = top.join("a/b/data");
        Server::start(&data, &log, options).end();
        let calls = calls(&log);
        let in_region = matches!(kind, "hash" | "matrix").then(|| data.join("pmem"));
        for folder in [top.clone(), top.join("a"), top.join("a/b"), data.clone()].into_iter().chain(in_region) {
            assert!(flushed(&calls, &folder).is_some(), "{kind}: {} is not flushed", folder.display());
        }
        let manifest = calls.iter().any(|call| is_flush(call) && call.contains("/store.toml"));
        assert!(manifest, "{kind}: the manifest is not flushed");
    }
}

/// At `process_crash` too: a number that is lost would be given out again, with the records of who
/// had it.
#[test]
fn a_collection_is_durable_before_it_is_used() {
    let Some(_alone) = alone() else { return };
    for (kind, options) in KINDS.into_iter().filter(|(kind, _)| matches!(*kind, "in_place" | "packed")) {
        let place = tempfile::tempdir().unwrap();
        let (data, log) = (place.path().join("data"), place.path().join("log"));
        Server::start(&data, &log, options).end();
        let put = |collection: &str| {
            let front = ["put", "key", "value", "--io", "blocking", "--memory", "64M", "--durability", "process_crash"];
            run(&[&front[..], &["--collection", collection, "--data", text(&data)]].concat(), &log)
        };
        let flushes = |calls: &[String]| calls.iter().filter(|call| is_flush(call) && call.contains(".vol>")).count();
        put("first");
        let (new, known) = (flushes(&put("second")), flushes(&put("second")));
        assert!(new > known, "{kind}: {new} flushes with a new collection, {known} with one that is known");
    }
}

/// A backup, and what is restored from it, are on the medium when the program says so.
#[test]
fn backups_and_restores_are_durable_when_they_end() {
    let Some(_alone) = alone() else { return };
    for (kind, options) in KINDS {
        let place = tempfile::tempdir().unwrap();
        let (top, log) = (place.path().canonicalize().unwrap(), place.path().join("log"));
        let (data, backup, again) = (top.join("data"), top.join("backup"), top.join("again"));
        let server = Server::start(&data, &log, options);
        assert_eq!(server.ask(b"set key 0 0 5\r\nvalue\r\n"), "STORED");
        server.end();
        let calls = run(&["backup", text(&backup), "--io", "blocking", "--data", text(&data)], &log);
        for path in strace::files_under(&backup).into_iter().filter(|path| !path.ends_with("LOCK")) {
            let named = |call: &String| is_flush(call) && call.contains(&format!("<{}", path.display()));
            assert!(calls.iter().any(named), "{kind}: {} of the backup is not flushed", path.display());
        }
        assert!(flushed(&calls, &backup).is_some() && flushed(&calls, &top).is_some(), "{kind}: names of the backup");
        let calls = run(&["restore", text(&backup), "--io", "blocking", "--data", text(&again)], &log);
        let removed = calls.iter().position(|call| call.starts_with("unlink") && call.contains("restore.unfinished"));
        let removed =
            removed.unwrap_or_else(|| panic!("{kind}: it says that it is unfinished until it ends: {calls:#?}"));
        let is_of_data = |call: &String| call.starts_with("msync(") || call.contains(".vol>");
        let written =
            calls[..removed].iter().rposition(|call| call.starts_with("pwrite") && is_of_data(call)).unwrap_or(0);
        let is_durable = calls[written..removed].iter().any(|call| is_flush(call) && is_of_data(call));
        assert!(is_durable, "{kind}: what was restored is not flushed before it counts as whole");
    }
}
