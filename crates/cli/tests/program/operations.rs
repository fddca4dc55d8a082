//! What looks after a server: the admin address, logs, signals, systemd.

use std::net::TcpStream;

use super::*;

impl Serving {
    /// What stands behind `name` in the lines that it printed.
    fn told(&self, name: &str) -> String {
        let line =
            self.lines.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{:?}", self.lines));
        line.trim().to_owned()
    }

    /// Ends it in order; what it wrote to stderr.
    fn end(mut self) -> String {
        self.signal("-TERM");
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{told}");
        told
    }
}

/// An answer over HTTP, whole.
fn http(url: &str, path: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Commands and their whole answer.
fn converse(address: &str, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn an_admin_address_is_told_and_answers() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--admin", "127.0.0.1:0"]);
    let url = serving.told("admin");
    assert!(http(&url, "/readyz").starts_with("HTTP/1.1 200 "));
    converse(&serving.address, "set a 0 0 1\r\n1\r\n");
    assert!(http(&url, "/metrics").contains("\nstratakv_cmd_set_total 1\n"));
    let refused = refused_to_serve(&data, &["--admin", "0.0.0.0:9100"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--insecure"), "{}", stderr(&refused));
    let taken = url.trim_start_matches("http://").trim_end_matches('/');
    let (_directory, other) = directory();
    let refused = refused_to_serve(&other, &["--admin", taken]);
    assert!(code(&refused) == 5 && stderr(&refused).contains(taken), "{}", stderr(&refused));
    serving.end();
}

#[test]
fn slow_operations_are_logged_as_json_with_their_key() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--slow-log-ms", "0", "--log-format", "json"]);
    converse(&serving.address, "set a\"b 0 0 1\r\n1\r\n");
    let told = serving.end();
    let lines = told.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let slow: Vec<_> = lines.filter(|line| line["message"] == "a slow operation").collect();
    assert_eq!(slow.len(), 1, "{told}");
    assert!(slow[0]["operation"] == "set" && slow[0]["key"] == "a\\\"b" && slow[0]["key_bytes"] == 3, "{told}");
    assert!(slow[0]["latency_us"].is_u64() && slow[0]["level"] == "WARN", "{told}");
}

#[test]
fn a_log_filter_that_is_none_is_refused() {
    let (_directory, data) = directory();
    let refused = refused_to_serve(&data, &["--log", "stratakv=loud=ly"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("log filter"), "{}", stderr(&refused));
    assert!(!data.exists());
}

/// A figure of /metrics.
fn figure(url: &str, name: &str) -> u64 {
    let text = http(url, "/metrics");
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_else(|| panic!("{text}"));
    line.parse().unwrap()
}

#[test]
fn idle_connections_cost_little_memory() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--admin", "127.0.0.1:0"]);
    let url = serving.told("admin");
    let idle = |many: usize| -> Vec<TcpStream> {
        let connected = (0..many).map(|_| {
            let mut stream = TcpStream::connect(&serving.address).unwrap();
            stream.write_all(b"get a\r\n").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            stream
        });
        connected.collect()
    };
    let warm = idle(50);
    let before = figure(&url, "stratakv_process_resident_bytes");
    // As many as a limit of 1024 open files leaves room for.
    let more = idle(400);
    let after = figure(&url, "stratakv_process_resident_bytes");
    assert_eq!(figure(&url, "stratakv_connections"), 450);
    let each = after.saturating_sub(before) / 400;
    assert!(each <= 16 << 10, "{each} bytes for each connection");
    drop((warm, more));
}

#[test]
fn connections_over_the_limit_are_told_in_the_log() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--connections", "1", "--log-format", "json"]);
    let mut first = TcpStream::connect(&serving.address).unwrap();
    first.write_all(b"get a\r\n").unwrap();
    first.read_exact(&mut [0; 5]).unwrap();
    for _ in 0..20 {
        let mut refused = String::new();
        TcpStream::connect(&serving.address).unwrap().read_to_string(&mut refused).unwrap();
        assert_eq!(refused, "ERROR Too many open connections\r\n");
    }
    let told = serving.end();
    let lines: Vec<_> = told.lines().filter(|line| line.contains("connections are refused")).collect();
    assert!(!lines.is_empty() && lines[0].contains("\"connections_max\":1"), "{told}");
    // At most one a second: twenty refusals are over before that many seconds are.
    assert!(lines.len() < 20, "{told}");
}
