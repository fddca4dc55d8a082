//! Imports that ended early, and go on: `import --resume`.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::import::{Peer, import, inline, is_installed};
use super::*;

#[path = "../strace/mod.rs"]
#[expect(dead_code, reason = "others use the rest of it")]
mod strace;

const RECORDS: usize = 2_000;

fn numbered(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{{\"key\":\"k{number:05}\",\"value\":\"v{number}\"}}\n")).collect()
}

/// Whether all records are there, each with its value.
fn has_all(data: &Path, records: usize) {
    let dumped = String::from_utf8(ok(data, &["scan"])).unwrap();
    let expected: String = (0..records).map(|number| format!("k{number:05}\tv{number}\n")).collect();
    assert!(dumped == expected, "{} of {records} records are there", dumped.lines().count());
}

/// The number behind `"name":` in a checkpoint; 0 if there is none.
fn saved(checkpoint: &Path, name: &str) -> u64 {
    let text = std::fs::read(checkpoint).unwrap_or_default();
    let saved: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    saved.pointer(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Imports a file again and again, each time killed with `kill -9` as it replaces its checkpoint
/// for the n-th time, until one run comes to its end. How many were killed.
fn killed_imports(data: &Path, arguments: &[&str]) -> usize {
    let words = [&["import", "--durability", "process_crash"], arguments].concat();
    for killed in 0.. {
        // The first run renames a file of the new store, too.
        let when = format!("inject=rename,renameat,renameat2:signal=SIGKILL:when={}", 3 + killed % 3);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2", "-e", &when]);
        let ended = command.arg(PROGRAM).env("STRATAKV_DATA", data).args(&words).output().unwrap();
        match ended.status.signal() {
            Some(9) => {}
            None => {
                assert_eq!(code(&ended), 0, "{}", stderr(&ended));
                assert!(stderr(&ended).contains(&format!("with the runs before: {RECORDS} records")), "{ended:?}");
                return killed;
            }
            other => panic!("ended by {other:?}: {}", stderr(&ended)),
        }
        assert!(killed < 50, "no run comes to its end");
    }
    0
}

#[test]
fn files_are_imported_in_spite_of_kill_9() {
    if !strace::is_there() {
        return;
    }
    let csv = (0..RECORDS).map(|number| format!("k{number:05};v{number}\r\n")).collect::<String>();
    for (name, text, options) in [
        ("records.jsonl", numbered(0..RECORDS), &[][..]),
        ("records.csv", format!("key;value\r\n{csv}"), &["--separator", ";"]),
    ] {
        let (directory, data) = directory();
        let (file, checkpoint) = (directory.path().join(name), directory.path().join("checkpoint"));
        std::fs::write(&file, text).unwrap();
        let resume = ["--resume", checkpoint.to_str().unwrap(), "--checkpoint-records", "100"];
        let arguments = [&[file.to_str().unwrap()], options, &resume].concat();
        let killed = killed_imports(&data, &arguments);
        assert!(killed >= 4, "{name}: only {killed} runs were killed");
        has_all(&data, RECORDS);
        assert!(!checkpoint.exists(), "an import that is complete leaves no checkpoint");
    }
}

#[test]
fn a_stream_that_is_given_again_goes_on() {
    let (directory, data) = directory();
    let checkpoint = directory.path().join("checkpoint");
    let words = ["import", "--durability", "process_crash", "-", "--format", "jsonl", "--checkpoint-records", "50"];
    let words = [&words[..], &["--resume", checkpoint.to_str().unwrap()]].concat();
    let text = numbered(0..RECORDS);
    // Each run gets more lines, and is killed when they are counted.
    for until in [150, 700, 1_150] {
        let mut child = command(&data, &words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(numbered(0..until + 7).as_bytes()).unwrap();
        eventually("a checkpoint", || saved(&checkpoint, "/position/line") == until as u64);
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
    let refused = feed(&data, &words, text.replace("v149\"", "w149\"").as_bytes());
    assert!(code(&refused) == 2 && stderr(&refused).contains("its bytes are others"), "{}", stderr(&refused));
    let ended = feed(&data, &words, text.as_bytes());
    assert_eq!(code(&ended), 0, "{}", stderr(&ended));
    assert!(stderr(&ended).contains("850 records (") && stderr(&ended).contains("with the runs before: 2000 records"));
    has_all(&data, RECORDS);
}

/// A pipe ends in the same way whether its producer came to its end, failed, or was killed.
#[test]
fn a_producer_that_fails_leaves_the_checkpoint() {
    let (directory, data) = directory();
    let checkpoint = directory.path().join("checkpoint");
    let words = ["import", "-", "--format", "jsonl", "--resume", checkpoint.to_str().unwrap()];
    let piped = |script: &str| {
        let mut producer = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let output = producer.stdout.take().unwrap();
        let ended = command(&data, &words).stdin(output).output().unwrap();
        producer.wait().unwrap();
        ended
    };
    let lines = |name: &str, text: String| {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        format!("cat {}", file.display())
    };
    let half = lines("half", numbered(0..1_000));
    for ending in ["exit 1", "kill -9 $$"] {
        // Of a program that promises nothing: the checkpoint stays, with all that came.
        let ended = piped(&format!("{half}; {ending}"));
        assert!(code(&ended) == 0 && stderr(&ended).contains("behind 1000 lines"), "{}", stderr(&ended));
        assert_eq!((saved(&checkpoint, "/position/line"), saved(&checkpoint, "/written/records")), (1_000, 1_000));
    }
    std::fs::remove_file(&checkpoint).unwrap();
    // Of `export --resume`, which promises a last line.
    let first = "echo '{\"continues_behind_base64\":\"\"}'";
    for ending in ["exit 1", "kill -9 $$"] {
        let ended = piped(&format!("{first}; {half}; {ending}"));
        assert!(code(&ended) == 1 && stderr(&ended).contains("without the last line"), "{}", stderr(&ended));
    }
    let whole = lines("whole", numbered(0..RECORDS));
    let ended = piped(&format!("{first}; {whole}; echo '{{\"ends_after\":{RECORDS}}}'"));
    assert!(code(&ended) == 0 && !checkpoint.exists(), "{}", stderr(&ended));
    has_all(&data, RECORDS);
}

#[test]
fn a_changed_source_and_another_store_are_refused() {
    let (directory, data) = directory();
    let (file, checkpoint) = (directory.path().join("records.csv"), directory.path().join("checkpoint"));
    let good: String = (0..300).map(|number| format!("k{number:05},v{number}\n")).collect();
    let bad = format!("key,value\n{good}k,too,many\n");
    std::fs::write(&file, &bad).unwrap();
    let (file, shown) = (file.to_str().unwrap(), checkpoint.to_str().unwrap());
    let resumed = |data: &Path, more: &[&str]| {
        import(data, &[&[file, "--resume", shown, "--checkpoint-records", "100"], more].concat())
    };
    let ended = resumed(&data, &[]);
    assert!(code(&ended) == 1 && stderr(&ended).contains("line 302: it has 3 fields"), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("run the same command again to go on from"), "{}", stderr(&ended));
    assert_eq!((saved(&checkpoint, "/written/records"), saved(&checkpoint, "/position/line")), (300, 302));
    let elsewhere = resumed(&directory.path().join("other"), &[]);
    assert!(code(&elsewhere) == 2 && stderr(&elsewhere).contains("another store"), "{}", stderr(&elsewhere));
    let other_options = resumed(&data, &["--rows", "json"]);
    assert!(
        code(&other_options) == 2 && stderr(&other_options).contains("other options"),
        "{}",
        stderr(&other_options)
    );
    // What is passed over is counted over all runs, and says nothing of what records become.
    let ended = resumed(&data, &["--skip-errors"]);
    assert_eq!(code(&ended), 0, "{}", stderr(&ended));
    assert!(stderr(&ended).contains("1 bad line passed over") && stderr(&ended).contains("before: 300 records"));
    has_all(&data, 300);
    assert_eq!(code(&resumed(&data, &[])), 1, "it begins again");
    std::fs::write(file, bad.replace("k00007", "k70000")).unwrap();
    let changed = resumed(&data, &[]);
    assert!(code(&changed) == 2 && stderr(&changed).contains("this is not the source"), "{}", stderr(&changed));
    let cache = directory.path().join("cache");
    std::fs::remove_file(&checkpoint).unwrap();
    let of_cache = resumed(&cache, &["--engine", "tier"]);
    assert!(code(&of_cache) == 6 || stderr(&of_cache).contains("cache"), "{}", stderr(&of_cache));
}

/// Stands between an import and a Redis, and holds the n-th `SCAN` back.
fn holding_back(socket: PathBuf, scans: usize) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (held, is_held) = channel();
    std::thread::spawn(move || {
        let client = listener.accept().unwrap().0;
        let redis = UnixStream::connect(socket).unwrap();
        let (mut answers, mut back) = (redis.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let mut waits = forward(client, redis, scans);
        held.send(()).unwrap();
        // The import waits for its answer until it is killed.
        drop(waits.read(&mut [0]));
    });
    (address, is_held)
}

fn forward(mut client: TcpStream, mut redis: UnixStream, scans: usize) -> TcpStream {
    let (mut some, mut seen) = (vec![0; 1 << 16], 0);
    loop {
        let read = client.read(&mut some).unwrap_or(0);
        seen += some[..read].windows(4).filter(|word| *word == b"SCAN").count();
        if read == 0 || seen >= scans {
            return client;
        }
        redis.write_all(&some[..read]).unwrap();
    }
}

fn filled_redis(folder: &Path) -> Peer {
    let peer = Peer::redis(folder);
    let sets = (0..RECORDS).map(|number| format!("SET k{number:05} v{number}"));
    let more = ["XADD stream * f v", "ECHO done"].map(str::to_owned);
    peer.ask(&inline(&sets.chain(more).collect::<Vec<_>>()), "done\r\n");
    peer
}

#[test]
fn a_redis_is_imported_in_spite_of_kill_9() {
    if !is_installed("redis-server") {
        return;
    }
    let (directory, data) = directory();
    let peer = filled_redis(directory.path());
    let checkpoint = directory.path().join("checkpoint");
    let resume = ["--resume", checkpoint.to_str().unwrap(), "--checkpoint-records", "1"];
    let killed_at = |scans: usize| {
        let (address, is_held) = holding_back(peer.socket.clone(), scans);
        let url = format!("redis://{address}");
        let words = [&["import", "--durability", "process_crash", &url], &resume[..]].concat();
        let mut child = command(&data, &words).stderr(Stdio::null()).spawn().unwrap();
        is_held.recv_timeout(Duration::from_secs(60)).unwrap();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        saved(&checkpoint, "/written/records")
    };
    assert_eq!(killed_at(1), 0, "nothing is read");
    let first = killed_at(2);
    let second = killed_at(3);
    assert!(first > 0 && first < second && second < RECORDS as u64, "{first} {second}");
    let before_restart = std::fs::read(&checkpoint).unwrap();
    let url = format!("redis+unix://{}", peer.socket.display());
    let ended = import(&data, &[&[url.as_str()], &resume[..]].concat());
    // What the killed runs left out counts, too.
    assert_eq!(code(&ended), 6, "{}", stderr(&ended));
    assert!(stderr(&ended).contains("left out: 1 record: values of the type stream"), "{}", stderr(&ended));
    assert!(stderr(&ended).contains(&format!("with the runs before: {RECORDS} records")), "{}", stderr(&ended));
    has_all(&data, RECORDS);
    assert!(!checkpoint.exists());
    // A server that was started again hands out other cursors.
    drop(peer);
    let peer = filled_redis(directory.path());
    std::fs::write(&checkpoint, before_restart).unwrap();
    let ended = import(&data, &[&[&*format!("redis+unix://{}", peer.socket.display())], &resume[..]].concat());
    assert!(stderr(&ended).contains("the import begins again"), "{}", stderr(&ended));
    assert!(stderr(&ended).contains(&format!("{RECORDS} records (")), "{}", stderr(&ended));
}

#[test]
fn a_file_of_redis_is_imported_in_spite_of_kill_9() {
    if !is_installed("redis-server") || !strace::is_there() {
        return;
    }
    let (directory, data) = directory();
    let peer = Peer::redis(directory.path());
    let sets = (0..RECORDS).map(|number| format!("SET k{number:05} v{number}"));
    let more = ["SAVE", "ECHO done"].map(str::to_owned);
    peer.ask(&inline(&sets.chain(more).collect::<Vec<_>>()), "done\r\n");
    let (file, checkpoint) = (directory.path().join("dump.rdb"), directory.path().join("checkpoint"));
    let resume = ["--resume", checkpoint.to_str().unwrap(), "--checkpoint-records", "100"];
    let killed = killed_imports(&data, &[&[file.to_str().unwrap()], &resume[..]].concat());
    assert!(killed >= 4, "only {killed} runs were killed");
    has_all(&data, RECORDS);
}

#[test]
fn what_cannot_resume_says_so() {
    let (directory, data) = directory();
    let checkpoint = directory.path().join("checkpoint");
    let resume = ["--resume", checkpoint.to_str().unwrap()];
    let refused = import(&data, &[&["memcached://127.0.0.1:1"], &resume[..]].concat());
    assert!(code(&refused) == 2 && stderr(&refused).contains("--keep-existing"), "{}", stderr(&refused));
    let words = [&["import", "-", "--format", "csv"], &resume[..]].concat();
    let refused = feed(&data, &words, b"key,value\na,b\n");
    assert!(code(&refused) == 2 && stderr(&refused).contains("save it to a file"), "{}", stderr(&refused));
    let file = directory.path().join("records.jsonl");
    std::fs::write(&file, numbered(0..3)).unwrap();
    std::fs::write(&checkpoint, "{}").unwrap();
    let refused = import(&data, &[&[file.to_str().unwrap()], &resume[..]].concat());
    assert!(code(&refused) == 2 && stderr(&refused).contains("is no checkpoint"), "{}", stderr(&refused));
    assert!(!data.exists(), "no store is made for nothing");
}
