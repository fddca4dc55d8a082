//! How the program ends: in order, whatever becomes of its output, and however often it is asked.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;

/// Where nothing can be written.
fn full() -> Stdio {
    Stdio::from(File::options().write(true).open("/dev/full").unwrap())
}

/// A pipe that nobody reads any more.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

fn serving(data: &Path, more: &[&str], stderr: Stdio) -> Serving {
    let arguments = ["serve", "--memcache", "127.0.0.1:0", "--threads", "1"];
    let mut command = command(data, &[&arguments, more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    let address = loop {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "the server ended: {lines:?}");
        lines.push(line.clone());
        if let Some(address) = line.strip_prefix("memcache") {
            break address.trim().to_owned();
        }
    };
    Serving { child, lines, address, _stdout: stdout }
}

fn set(address: &str, key: &str, value: &[u8]) {
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes()).unwrap();
    client.write_all(&[value, b"\r\n"].concat()).unwrap();
    let mut answer = [0; 8];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");
}

#[test]
fn a_server_whose_stderr_cannot_be_written_reloads_and_ends_in_order() {
    for stderr in [full as fn() -> Stdio, unread] {
        for format in ["text", "json"] {
            let (_directory, data) = directory();
            let more = ["--log", "trace", "--log-format", format, "--durability", "process_crash"];
            let mut serving = serving(&data, &more, stderr());
            set(&serving.address, "key", b"value");
            serving.signal("-HUP");
            set(&serving.address, "key", b"other");
            serving.signal("-TERM");
            assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{format}");
            assert_eq!(ok(&data, &["get", "key"]), b"other");
        }
    }
}

#[test]
fn a_server_whose_stdout_cannot_be_written_serves() {
    let (directory, data) = directory();
    let socket = directory.path().join("socket");
    let listen = format!("unix:{}", socket.display());
    let mut command = command(&data, &["serve", "--memcache", &listen, "--threads", "1"]);
    let mut child = command.stdout(full()).stderr(Stdio::null()).spawn().unwrap();
    let mut client = loop {
        if let Ok(client) = UnixStream::connect(&socket) {
            break client;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended since nobody reads where it serves");
        std::thread::sleep(Duration::from_millis(5));
    };
    client.write_all(b"set k 0 0 1\r\nv\r\n").unwrap();
    let mut answer = [0; 8];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"STORED\r\n");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The exit code tells how the work went, not whether a line about it could be written.
#[test]
fn commands_whose_stderr_cannot_be_written_end_as_they_would() {
    let (directory, data) = directory();
    put(&data, &["a", "1"]);
    put(&data, &["b", "2"]);
    let copy = directory.path().join("copy").display().to_string();
    let restored = directory.path().join("restored");
    let cases: [(&Path, &[&str], i32); 7] = [
        (&data, &["get", "absent"], 3),
        (&data, &["get"], 2),
        (&data, &["backup", &copy], 0),
        (&restored, &["restore", &copy], 0),
        (&data, &["del", "--prefix", "a"], 0),
        (Path::new("/nonexistent/stratakv"), &["get", "a"], 3),
        (&data, &["bench", "ycsb", "--workload", "nothing"], 2),
    ];
    for stderr in [full as fn() -> Stdio, unread] {
        for (data, arguments, expected) in cases {
            if arguments[0] == "restore" {
                let _ = std::fs::remove_dir_all(data);
            }
            if arguments[0] == "backup" {
                let _ = std::fs::remove_dir_all(&copy);
            }
            let status = command(data, arguments).stdout(Stdio::null()).stderr(stderr()).status().unwrap();
            assert_eq!(status.code(), Some(expected), "{arguments:?}");
        }
    }
    assert_eq!(ok(&restored, &["get", "b"]), b"2");
}

/// `timeout` signals the process and then its group; a cache that is not ended in order comes back
/// empty.
#[test]
fn two_signals_at_once_are_one() {
    let (_directory, data) = directory();
    let more = ["--engine", "tier", "--memory", "64M", "--capacity", "0", "--save-at-shutdown"];
    let mut serving = serving(&data, &more, Stdio::piped());
    for number in 0..2000 {
        set(&serving.address, &format!("key{number}"), &[b'v'; 500]);
    }
    let id = serving.child.id();
    let twice = format!("kill -TERM {id}; kill -INT {id}; kill -TERM {id}");
    assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    let mut told = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("closed in order"), "{told}");
    let again = self::serving(&data, &more, Stdio::null());
    let mut client = TcpStream::connect(&again.address).unwrap();
    client.write_all(b"get key0 key1999\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).unwrap();
    assert_eq!(line, "VALUE key0 0 500\r\n", "the cache came back empty");
}

#[test]
fn a_signal_that_comes_later_ends_a_server_that_takes_long() {
    let (_directory, data) = directory();
    let mut serving = serving(&data, &["--durability", "process_crash"], Stdio::null());
    set(&serving.address, "long", &vec![b'v'; 1 << 20]);
    // Who does not take what was answered is waited for.
    let mut client = TcpStream::connect(&serving.address).unwrap();
    client.write_all(&b"get long\r\n".repeat(100)).unwrap();
    let mut first = [0; 5];
    client.read_exact(&mut first).unwrap();
    let signalled = Instant::now();
    serving.signal("-TERM");
    while signalled.elapsed() < Duration::from_millis(1500) {
        std::thread::sleep(Duration::from_millis(20));
    }
    if serving.child.try_wait().unwrap().is_none() {
        serving.signal("-TERM");
    }
    assert_eq!(serving.child.wait().unwrap().code(), Some(128 + 15));
    drop(client);
    assert_eq!(ok(&data, &["get", "long"]).len(), 1 << 20);
}

#[test]
fn every_line_of_a_server_that_logs_json_is_json() {
    let (directory, data) = directory();
    let options = directory.path().join("options.toml");
    std::fs::write(&options, "").unwrap();
    let more = ["--config", options.to_str().unwrap(), "--log-format", "json", "--log", "info"];
    let mut serving = serving(&data, &more, Stdio::piped());
    std::fs::write(&options, "memory = '1G'\n").unwrap();
    let mut stderr = BufReader::new(serving.child.stderr.take().unwrap());
    serving.signal("-HUP");
    let mut lines = Vec::new();
    while !lines.iter().any(|line: &String| line.contains("options are read again")) {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "{lines:?}");
        lines.push(line);
    }
    serving.signal("-TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    lines.extend(rest.lines().map(str::to_owned));
    assert!(lines.iter().any(|line| line.contains("closed in order")), "{lines:?}");
    for line in &lines {
        let value: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(value.is_ok_and(|value| value["message"].is_string() && value["level"].is_string()), "{line}");
    }
}
