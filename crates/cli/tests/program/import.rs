//! Imports from servers: our own, and memcached and Redis where they are installed.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use super::*;

/// Whether a program is installed. With `CI=true` it must be.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(found || !in_ci, "{name} is not installed; with CI=true every test must run");
    if !found {
        eprintln!("skipped: {name} not installed");
    }
    found
}

/// Somebody else's server, at a socket file.
pub(crate) struct Peer {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Peer {
    pub(crate) fn start(program: &str, folder: &Path, arguments: &[&str]) -> Peer {
        let socket = folder.join("peer.sock");
        let path = socket.to_str().unwrap();
        let arguments = arguments.iter().map(|word| if *word == "SOCKET" { path } else { word });
        let mut command = Command::new(program);
        let child = command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        let peer = Peer { child: child.spawn().unwrap(), socket: socket.clone() };
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        peer
    }

    pub(crate) fn redis(folder: &Path) -> Peer {
        Peer::start("redis-server", folder, &["--port", "0", "--unixsocket", "SOCKET", "--save", ""])
    }

    /// Sends bytes, and reads until the answer ends with `end`.
    pub(crate) fn ask(&self, words: &[u8], end: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(words).unwrap();
        let mut answer = Vec::new();
        let mut some = [0; 4096];
        while !answer.ends_with(end.as_bytes()) {
            let read = stream.read(&mut some).unwrap();
            assert!(read > 0, "{}", answer.escape_ascii());
            answer.extend_from_slice(&some[..read]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn import(data: &Path, arguments: &[&str]) -> Output {
    run(data, &[&["import", "--durability", "process_crash"], arguments].concat())
}

/// As `redis-cli` sends it.
pub(crate) fn inline(commands: &[String]) -> Vec<u8> {
    commands.iter().flat_map(|command| format!("{command}\r\n").into_bytes()).collect()
}

/// Commands that make a structure of each type, short ones and long ones.
pub(crate) fn structures() -> Vec<String> {
    let many = |verb: &str, element: &dyn Fn(u32) -> String| {
        let of = |part: u32| (part * 500..(part + 1) * 500).map(element).collect::<Vec<_>>().join(" ");
        (0..24).map(|part| format!("{verb} {}", of(part))).collect::<Vec<_>>()
    };
    let mut commands = vec![
        "SET plain value".to_owned(),
        "SET number 12345".to_owned(),
        "SET expires soon PX 90000000".to_owned(),
        "RPUSH list a b a".to_owned(),
        "SADD set a b c".to_owned(),
        "SADD numbers 1 2 300 70000".to_owned(),
        "HSET hash field value other 7".to_owned(),
        "ZADD sorted 1.5 a inf b -2 c".to_owned(),
        "PEXPIRE hash 80000000".to_owned(),
    ];
    commands.extend(many("RPUSH long:list", &|number| format!("e{}", number % 77)));
    commands.extend(many("SADD long:set", &|number| format!("member:{number}")));
    commands.extend(many("HSET long:hash", &|number| format!("f{number} v{number}")));
    commands.extend(many("ZADD long:sorted", &|number| format!("{}.25 m{number}", number % 100)));
    commands
}

/// What a server for Redis clients answers to these commands.
fn answers(address: &str, commands: &[String]) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&inline(commands)).unwrap();
    stream.write_all(b"QUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads all that `structures` makes, in an order that every server has.
pub(crate) fn reads() -> Vec<String> {
    let mut commands: Vec<String> =
        ["GET plain", "GET number", "GET expires", "LRANGE list 0 -1", "HGET hash other", "SCARD numbers"]
            .map(str::to_owned)
            .to_vec();
    commands.extend(["SISMEMBER numbers 300", "ZRANGE sorted 0 -1 WITHSCORES", "TYPE hash"].map(str::to_owned));
    commands.extend(["LRANGE long:list 0 -1", "SCARD long:set", "HLEN long:hash"].map(str::to_owned));
    commands.extend(
        (0..12_000)
            .step_by(1999)
            .flat_map(|number| [format!("SISMEMBER long:set member:{number}"), format!("HGET long:hash f{number}")]),
    );
    commands.push("ZRANGE long:sorted 0 -1 WITHSCORES".to_owned());
    commands
}

fn resp_of(serving: &Serving) -> String {
    let line = serving.lines.iter().find_map(|line| line.strip_prefix("resp"));
    line.expect("it tells").trim().to_owned()
}

/// What comes of imports that served stores can be asked for.
pub(crate) fn asked_when_served(data: &Path) -> String {
    let serving = Serving::with(data, &["--threads", "1", "--resp", "127.0.0.1:0"]);
    answers(&resp_of(&serving), &reads())
}

#[test]
fn a_server_of_ours_is_imported_through_either_protocol() {
    let (directory, data) = directory();
    put(&data, &["--flags", "7", "key", "value"]);
    put(&data, &["--ttl", "100000", "mortal", "value"]);
    put(&data, &["--base64", "/wAg", "binary"]);
    let serving = Serving::with(&data, &["--threads", "1", "--resp", "127.0.0.1:0"]);
    let copy = directory.path().join("copy");
    let told = import(&copy, &[&format!("memcached://{}", serving.address)]);
    assert_eq!(code(&told), 0, "{}", stderr(&told));
    assert!(stderr(&told).contains("3 records ("), "{}", stderr(&told));
    answers(&resp_of(&serving), &structures());
    // What that protocol cannot carry is told.
    let told = import(&copy, &[&format!("memcached://{}", serving.address)]);
    assert_eq!(code(&told), 6, "{}", stderr(&told));
    assert!(stderr(&told).contains("9 records: structures of Redis clients"), "{}", stderr(&told));
    let whole = directory.path().join("whole");
    let url = format!("redis://{}", resp_of(&serving));
    let told = import(&whole, &[&url]);
    assert_eq!(code(&told), 0, "{}", stderr(&told));
    assert!(stderr(&told).contains("15 records ("), "{}", stderr(&told));
    // A second time nothing changes; nor is anything overwritten that is to be kept.
    put(&whole, &["plain", "newer"]);
    let kept = import(&whole, &[&url, "--keep-existing"]);
    assert!(code(&kept) == 0 && stderr(&kept).contains("15 records: their keys are there"), "{}", stderr(&kept));
    assert_eq!(ok(&whole, &["get", "plain"]), b"newer");
    assert_eq!(code(&import(&whole, &[&url])), 0);
    assert_eq!(ok(&whole, &["get", "plain"]), b"value");
    let dumped = String::from_utf8(ok(Path::new("/nonexistent"), &["dump", "--server", &url])).unwrap();
    let part = ok(Path::new("/nonexistent"), &["dump", "--server", &url, "--prefix", "long:"]);
    assert_eq!((dumped.lines().count(), part.iter().filter(|byte| **byte == b'\n').count()), (15, 4));
    let mut original = serving;
    original.signal("-TERM");
    assert!(original.child.wait().unwrap().success());
    let lines = |data: &Path| {
        let text = String::from_utf8(ok(data, &["dump"])).unwrap();
        // Expiry is read as time that is left, and flags are none of RESP's.
        let plain = |line: &str| line.split(",\"expiry").next().unwrap().replace(",\"flags\":7}", "}");
        text.lines().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(lines(&whole), lines(&data));
    ok(&whole, &["check"]);
    let again = directory.path().join("again");
    assert_eq!(code(&load(&again, &[], dumped.as_bytes())), 0);
    assert_eq!(lines(&again), lines(&data));
    let expiry = |data: &Path| {
        let line: serde_json::Value = serde_json::from_slice(&ok(data, &["get", "--json", "mortal"])).unwrap();
        line["expiry"].as_i64().unwrap()
    };
    assert!((expiry(&data) - expiry(&whole)).abs() <= 2 && (expiry(&data) - expiry(&copy)).abs() <= 2);
    let line: serde_json::Value = serde_json::from_slice(&ok(&copy, &["get", "--json", "key"])).unwrap();
    assert_eq!(line["flags"], 7, "{line}");
}

#[test]
fn a_memcached_is_imported() {
    if !is_installed("memcached") {
        return;
    }
    let (directory, data) = directory();
    let peer = Peer::start("memcached", directory.path(), &["-u", "root", "-s", "SOCKET"]);
    let mut words =
        b"set plain 0 0 5\r\nvalue\r\nset flagged 4294967295 0 1\r\nx\r\nset mortal 0 5000 1\r\nx\r\n".to_vec();
    words.extend(b"ms YSBi/w== 3 b\r\nbin\r\nset 100%sure 0 0 0\r\n\r\n");
    words.extend((0..2000).flat_map(|number| format!("set k{number} 1 0 3 noreply\r\nabc\r\n").into_bytes()));
    words.extend(b"mn\r\n");
    peer.ask(&words, "MN\r\n");
    let url = format!("memcached+unix://{}", peer.socket.display());
    let told = import(&data, &[&url]);
    assert_eq!(code(&told), 0, "{}", stderr(&told));
    assert!(stderr(&told).contains("2005 records ("), "{}", stderr(&told));
    assert_eq!(ok(&data, &["get", "--base64", "YSBi/w=="]), b"bin");
    assert_eq!((ok(&data, &["get", "100%sure"]), ok(&data, &["get", "k1999"])), (b"".to_vec(), b"abc".to_vec()));
    let line =
        |key: &str| -> serde_json::Value { serde_json::from_slice(&ok(&data, &["get", "--json", key])).unwrap() };
    assert_eq!(
        (&line("flagged")["flags"], &line("plain")["expiry"]),
        (&4_294_967_295_u32.into(), &serde_json::Value::Null)
    );
    let left = line("mortal")["expiry"].as_u64().unwrap() - now();
    assert!((4900..=5001).contains(&left), "{left}");
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_redis_is_imported() {
    if !is_installed("redis-server") {
        return;
    }
    let (directory, data) = directory();
    let peer = Peer::redis(directory.path());
    let more = ["XADD stream * f v", "SET \"\" nameless", "SELECT 3", "SET elsewhere 1", "SELECT 0"].map(str::to_owned);
    let more = more.into_iter().chain((0..3000).map(|number| format!("SET k{number} {number}")));
    let commands: Vec<String> = structures().into_iter().chain(more).chain(["ECHO done".to_owned()]).collect();
    peer.ask(&inline(&commands), "done\r\n");
    let url = format!("redis+unix://{}", peer.socket.display());
    let told = import(&data, &[&url]);
    assert_eq!(code(&told), 6, "{}", stderr(&told));
    assert!(stderr(&told).contains("database 3 has 1 record more"), "{}", stderr(&told));
    assert!(stderr(&told).contains("values of the type stream, such as `stream`"), "{}", stderr(&told));
    assert!(
        stderr(&told).contains("3012 records (") && stderr(&told).contains("missing from this import: 2"),
        "{}",
        stderr(&told)
    );
    let original = peer.ask(&inline(&[&reads()[..], &["ECHO done".to_owned()]].concat()), "$4\r\ndone\r\n");
    let served = asked_when_served(&data);
    assert_eq!(served.strip_suffix("+OK\r\n"), original.strip_suffix("$4\r\ndone\r\n"));
    let line: serde_json::Value = serde_json::from_slice(&ok(&data, &["get", "--json", "expires"])).unwrap();
    let left = line["expiry"].as_u64().unwrap() - now();
    assert!((89_900..=90_001).contains(&left), "{left}");
    let told = import(&data, &[&format!("{url}?db=3"), "--collection", "three"]);
    assert_eq!(code(&told), 0, "{}", stderr(&told));
    assert_eq!(ok(&data, &["get", "--collection", "three", "elsewhere"]), b"1");
}

#[test]
fn a_redis_with_accounts_wants_a_login() {
    if !is_installed("redis-server") {
        return;
    }
    let (directory, data) = directory();
    let peer = Peer::start(
        "redis-server",
        directory.path(),
        &["--port", "0", "--unixsocket", "SOCKET", "--save", "", "--requirepass", "secret"],
    );
    let url = format!("redis+unix://{}", peer.socket.display());
    let told = import(&data, &[&url]);
    assert!(code(&told) == 2 && stderr(&told).contains("--password-file"), "{}", stderr(&told));
    let file = directory.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let told = import(&data, &[&url, "--password-file", file.to_str().unwrap()]);
    assert!(code(&told) == 2 && stderr(&told).contains("WRONGPASS"), "{}", stderr(&told));
    assert!(!data.exists(), "no store is made for nothing");
    std::fs::write(&file, "secret\n").unwrap();
    assert_eq!(code(&import(&data, &[&url, "--password-file", file.to_str().unwrap()])), 0);
    let mut with_variable = command(&data, &["import", "--durability", "process_crash", &url, "--user", "default"]);
    let told = with_variable.env("STRATAKV_PASSWORD", "secret").output().unwrap();
    assert_eq!(code(&told), 0, "{}", stderr(&told));
}

#[test]
fn sources_that_are_none_are_told_and_make_no_store() {
    let (directory, data) = directory();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let silent = std::thread::spawn(move || {
        for words in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", b""] {
            let (mut stream, _) = listener.accept().unwrap();
            // What is not read when it is closed would be told as a reset.
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            stream.write_all(words).unwrap();
        }
    });
    let there = |scheme: &str| format!("{scheme}://{address}");
    for (source, exit, why) in [
        (there("redis"), 1, "not RESP"),
        (there("memcached"), 1, "not the memcache text protocol"),
        (there("redis"), 1, "closed the connection"),
        ("redis://127.0.0.1:1".to_owned(), 1, "cannot connect"),
        (format!("redis+unix://{}/absent", directory.path().display()), 1, "cannot connect"),
        ("redis://:secret@127.0.0.1:1".to_owned(), 2, "--password-file"),
        ("127.0.0.1:6379".to_owned(), 2, "redis://HOST:PORT"),
    ] {
        let told = import(&data, &[&source]);
        assert_eq!(code(&told), exit, "{source}: {}", stderr(&told));
        assert!(stderr(&told).contains(why) && !stderr(&told).contains("secret"), "{source}: {}", stderr(&told));
    }
    silent.join().unwrap();
    assert!(!data.exists());
}

#[test]
fn a_file_of_redis_is_imported() {
    let (directory, data) = directory();
    let file = directory.path().join("dump.rdb");
    let path = file.to_str().unwrap();
    if is_installed("redis-server") {
        let peer = Peer::redis(directory.path());
        let saved = [&structures()[..], &["SAVE".to_owned(), "ECHO done".to_owned()]].concat();
        peer.ask(&inline(&saved), "done\r\n");
        let original = peer.ask(&inline(&[&reads()[..], &["ECHO done".to_owned()]].concat()), "$4\r\ndone\r\n");
        let told = import(&data, &[path]);
        assert_eq!(code(&told), 0, "{}", stderr(&told));
        assert!(stderr(&told).contains("12 records ("), "{}", stderr(&told));
        let served = asked_when_served(&data);
        assert_eq!(served.strip_suffix("+OK\r\n"), original.strip_suffix("$4\r\ndone\r\n"));
        // A byte turned anywhere is seen at the end at the latest.
        let mut text = std::fs::read(&file).unwrap();
        let middle = text.len() / 2;
        text[middle] ^= 1;
        std::fs::write(&file, &text).unwrap();
        let told = import(&directory.path().join("turned"), &[path]);
        assert!(matches!(code(&told), 1 | 4) && stderr(&told).contains("at byte"), "{}", stderr(&told));
    }
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rdb/redis-7.0");
    let (first, third) = (directory.path().join("first"), directory.path().join("third"));
    let told = import(&first, &[corpus]);
    assert_eq!(code(&told), 6, "{}", stderr(&told));
    for line in
        ["10 records (", "database 3: import it by --database 3, such as `other`", "the type stream, such as `x`"]
    {
        assert!(stderr(&told).contains(line), "no `{line}` in {}", stderr(&told));
    }
    assert_eq!(ok(&first, &["get", "lzf"]), "abc".repeat(60).into_bytes());
    let told = import(&third, &[corpus, "--database", "3"]);
    // What was not asked for is told, and nothing is missing.
    assert_eq!((code(&told), ok(&third, &["get", "other"])), (0, b"1".to_vec()), "{}", stderr(&told));
    assert!(stderr(&told).contains("database 0: import it"), "{}", stderr(&told));
    for (options, why) in [
        (&["--rows", "hash"][..], "--rows says nothing of an RDB file"),
        (&["--skip-errors"], "--skip-errors says nothing of an RDB file"),
        (&["--format", "jsonl", "--key-column", "id"], "--key-column says nothing of lines of JSON"),
        (&["--format", "csv", "--database", "3"], "--database says nothing of a CSV file"),
    ] {
        let told = import(&third, &[&[corpus][..], options].concat());
        assert!(code(&told) == 2 && stderr(&told).contains(why), "{why}: {}", stderr(&told));
    }
    std::fs::write(&file, b"REDIS0099").unwrap();
    let absent = directory.path().join("absent");
    for (text, why) in
        [(&b"REDIS0099"[..], "redis://"), (b"REDISABCD", "no RDB file"), (b"PK", "--format"), (b"", "--format")]
    {
        std::fs::write(&file, text).unwrap();
        let told = import(&absent, &[path]);
        assert!(matches!(code(&told), 1 | 2) && stderr(&told).contains(why), "{why}: {}", stderr(&told));
    }
    assert!(!absent.exists());
}

#[test]
fn a_dump_in_csv_is_imported_as_it_was() {
    let (directory, data) = directory();
    put(&data, &["--flags", "7", "key", "a,b\n\"c\""]);
    put(&data, &["--ttl", "100000", "mortal", ""]);
    put(&data, &["--base64", "/wAg", "binary"]);
    put(&data, &["--collection", "c", "k", "v"]);
    put(&data, &["--collection", "numbers", "--order", "stratakv.numeric", "10", "ten"]);
    let lines = ok(&data, &["dump"]);
    let csv = ok(&data, &["dump", "--format", "csv"]);
    assert!(csv.starts_with(b"key,value,flags,expiry,"), "{}", csv.escape_ascii());
    let file = directory.path().join("all.csv");
    std::fs::write(&file, &csv).unwrap();
    let copy = directory.path().join("copy");
    let told = import(&copy, &[file.to_str().unwrap()]);
    assert_eq!(code(&told), 0, "{}", stderr(&told));
    assert_eq!(ok(&copy, &["dump"]), lines);
    let jsonl = directory.path().join("all.jsonl");
    std::fs::write(&jsonl, &lines).unwrap();
    let told = import(&copy, &[jsonl.to_str().unwrap(), "--keep-existing"]);
    assert!(code(&told) == 0 && stderr(&told).contains("left out: 5 records"), "{}", stderr(&told));
    // The line of what is wrong is told, and what came before it is written.
    std::fs::write(&file, "id,name\n1,Ada\n2\n3,Grace\n").unwrap();
    let (people, path) = (directory.path().join("people"), file.to_str().unwrap());
    let told = import(&people, &[path]);
    assert!(code(&told) == 2 && !people.exists() && stderr(&told).contains("--key-column"), "{}", stderr(&told));
    let told = import(&people, &[path, "--key-column", "id", "--rows", "json"]);
    assert!(code(&told) == 1 && stderr(&told).contains("line 3: it has 1 field"), "{}", stderr(&told));
    assert_eq!(ok(&people, &["get", "1"]), br#"{"name":"Ada"}"#);
    let told = import(&people, &[path, "--key-column", "id", "--value-column", "name", "--skip-errors"]);
    assert!(code(&told) == 0 && stderr(&told).contains("1 bad line passed over"), "{}", stderr(&told));
    assert_eq!(ok(&people, &["dump"]).iter().filter(|byte| **byte == b'\n').count(), 2);
}

/// A root was written although its nodes had found no room: a good structure became a damaged one.
#[test]
fn a_structure_that_finds_no_room_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let rows = folder.path().join("rows.csv");
    let region = ["--engine", "hash", "--region", "8M"];
    std::fs::write(&rows, "key,good\nt,yes\n").unwrap();
    let rows = rows.to_str().unwrap();
    let out = import(&data, &[&[rows, "--rows", "hash"][..], &region].concat());
    assert!(out.status.success(), "{}", stderr(&out));
    let before = run(&data, &["get", "t"]);
    // More than the region has.
    let names: Vec<String> = (0..40_000).map(|number| format!("f{number}")).collect();
    let values = vec!["v".repeat(250); 40_000];
    std::fs::write(rows, format!("key,{}\nt,{}\n", names.join(","), values.join(","))).unwrap();
    let out = import(&data, &[rows, "--rows", "hash"]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("full"), "{}", stderr(&out));
    assert_eq!(run(&data, &["get", "t"]).stdout, before.stdout, "the one before is whole");
    let checked = run(&data, &["check"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
}

/// Somebody else's Redis: takes one client, and answers each command, in words, as `answer` says.
fn redis_that_answers(mut answer: impl FnMut(&[String]) -> Vec<u8> + Send + 'static) -> std::net::SocketAddr {
    use std::io::{BufRead, BufReader};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        while let Some(head) = lines.next() {
            let count: usize = head.trim_start_matches('*').parse().unwrap();
            let mut words: Vec<String> = (0..count).map(|_| (lines.next(), lines.next().unwrap()).1).collect();
            words[0].make_ascii_uppercase();
            // The client may have given up.
            if stream.write_all(&answer(&words)).is_err() {
                return;
            }
        }
    });
    address
}

/// One string that is about to expire until its value has been read: then it has just been written
/// anew, to stay.
fn redis_of_a_moment() -> std::net::SocketAddr {
    let mut is_read = false;
    redis_that_answers(move |words| {
        let answer: &[u8] = match words[0].as_str() {
            "DBSIZE" | "STRLEN" => b":1\r\n",
            "SCAN" => b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n",
            "TYPE" => b"+string\r\n",
            "PTTL" if is_read => b":-1\r\n",
            "PTTL" => b":1\r\n",
            "GET" => {
                is_read = true;
                b"$3\r\nnew\r\n"
            }
            _ => b"-ERR unknown command\r\n",
        };
        answer.to_vec()
    })
}

/// A hash whose cursor never ends was read until memory was full; so were the keys of a server
/// whose cursor stands still.
#[test]
fn cursors_without_end_are_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut cursor = 7u64;
    let address = redis_that_answers(move |words| {
        cursor += 1;
        match words[0].as_str() {
            "DBSIZE" => b":1\r\n".to_vec(),
            "SCAN" => b"*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n".to_vec(),
            "TYPE" => b"+hash\r\n".to_vec(),
            "HLEN" => b":20000\r\n".to_vec(),
            "HSCAN" => {
                let cursor = cursor.to_string();
                format!("*2\r\n${}\r\n{cursor}\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n", cursor.len()).into_bytes()
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    });
    let told = import(&folder.path().join("hash"), &[&format!("redis://{address}")]);
    assert!(code(&told) == 1 && stderr(&told).contains("grew as fast as they were read"), "{}", stderr(&told));
    let address = redis_that_answers(|words| match words[0].as_str() {
        "DBSIZE" => b":1\r\n".to_vec(),
        "SCAN" => b"*2\r\n$1\r\n7\r\n*0\r\n".to_vec(),
        "INFO" if words[1] == "cluster" => b"$19\r\ncluster_enabled:1\r\n\r\n".to_vec(),
        _ => b"-ERR unknown command\r\n".to_vec(),
    });
    let told = import(&folder.path().join("keys"), &[&format!("redis://{address}")]);
    assert!(code(&told) == 1 && stderr(&told).contains("the same cursor"), "{}", stderr(&told));
    assert!(stderr(&told).contains("one node of a cluster"), "{}", stderr(&told));
}

/// The old time to live came with the new value, or the record was left out as expired.
#[test]
fn a_time_to_live_is_that_of_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let out = import(&data, &[&format!("redis://{}", redis_of_a_moment())]);
    assert!(out.status.success(), "{}", stderr(&out));
    let got = run(&data, &["get", "k", "--json"]);
    let text = String::from_utf8_lossy(&got.stdout).into_owned();
    assert!(text.contains("\"new\"") && !text.contains("expiry\":1"), "{text} {}", stderr(&out));
}
