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

/// Redis clients find the data of memcache clients, at the addresses that were told.
#[test]
fn redis_clients_are_served_where_the_server_says() {
    let (directory, data) = directory();
    let socket = directory.path().join("resp");
    let unix = format!("unix:{}", socket.display());
    let serving = Serving::with(&data, &["--threads", "1", "--resp", &unix, "--resp", "127.0.0.1:0"]);
    let told: Vec<&str> = serving.lines.iter().filter_map(|line| line.strip_prefix("resp")).map(str::trim).collect();
    assert!(told.len() == 2 && told[0] == unix, "{told:?}");
    let first = &serving.lines[0];
    assert!(first.contains(&format!("to Redis clients at {} and {unix}", told[1])), "{first}");
    let ask = |mut stream: Box<dyn ReadWrite>, commands: &[u8]| {
        stream.write_all(commands).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let tcp = TcpStream::connect(told[1]).unwrap();
    assert_eq!(ask(Box::new(tcp), b"set a 1\r\nincr a\r\nquit\r\n"), "+OK\r\n:2\r\n+OK\r\n");
    let unix = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    assert_eq!(ask(Box::new(unix), b"get a\r\nquit\r\n"), "$1\r\n2\r\n+OK\r\n");
    let memcache = TcpStream::connect(&serving.address).unwrap();
    assert_eq!(ask(Box::new(memcache), b"get a\r\nquit\r\n"), "VALUE a 0 1\r\n2\r\nEND\r\n");
    serving.end();
    assert!(!socket.exists());
    let refused = run(&data, &["serve", "--resp", "0.0.0.0:0"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--insecure"), "{}", stderr(&refused));
}

trait ReadWrite: Read + Write {}
impl<S: Read + Write> ReadWrite for S {}

#[test]
fn an_admin_address_is_told_and_answers() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--admin", "127.0.0.1:0"]);
    let url = serving.told("admin");
    assert!(http(&url, "/readyz").starts_with("HTTP/1.1 200 "));
    converse(&serving.address, "set a 0 0 1\r\n1\r\n");
    assert!(http(&url, "/metrics").contains("\nstratakv_cmd_set_total 1\n"));
    let refused = refused_to_serve(&data, &["--admin", "0.0.0.0:9100"]);
    // It advised TLS, which this address does not speak.
    let said = stderr(&refused);
    assert!(code(&refused) == 2 && said.contains("--insecure") && !said.contains("tls"), "{said}");
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

#[test]
fn unix_sockets_are_served_and_told() {
    let (directory, data) = directory();
    let path = directory.path().join("kv.sock");
    let listen = format!("unix:{}", path.display());
    let serving = Serving::with(&data, &["--threads", "1", "--memcache", &listen, "--unix-mode", "0600"]);
    assert_eq!(serving.told("unix"), path.to_str().unwrap());
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"get a\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "END\r\n");
    serving.end();
    assert!(!path.exists());
    for bad in ["unix:", "tls:127.0.0.1", "nowhere"] {
        let refused = refused_to_serve(&data, &["--memcache", bad]);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
    }
}

/// The first start makes the directory in which the socket is to be. It was refused for want of it.
#[test]
fn a_unix_socket_may_be_in_the_directory_of_a_new_store() {
    let (_directory, data) = directory();
    let path = data.join("kv.sock");
    let serving = Serving::with(&data, &["--threads", "1", "--memcache", &format!("unix:{}", path.display())]);
    assert_eq!(serving.told("unix"), path.to_str().unwrap());
    serving.end();
}

/// A notify socket as systemd has it.
struct Manager {
    socket: std::os::unix::net::UnixDatagram,
    path: std::path::PathBuf,
}

impl Manager {
    fn new(directory: &Path) -> Manager {
        let path = directory.join("notify");
        let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
        Manager { socket, path }
    }

    /// Waits until it is told this line.
    fn wait_for(&self, wanted: &str) {
        let mut heard = Vec::new();
        loop {
            let mut message = [0; 4096];
            let bytes = match self.socket.recv(&mut message) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.unwrap_or_else(|error| panic!("no {wanted} in {heard:?}: {error}")),
            };
            let text = String::from_utf8_lossy(&message[..bytes]).into_owned();
            let found = text.lines().any(|line| line.starts_with(wanted));
            heard.push(text);
            if found {
                return;
            }
        }
    }
}

/// Starts `serve` with descriptor 3 being `listener`, as systemd does; what it prints goes nowhere.
fn activated(
    data: &Path,
    listener: std::os::fd::OwnedFd,
    manager: &Manager,
    arguments: &[&str],
) -> std::process::Child {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=memcache; export LISTEN_PID LISTEN_FDS LISTEN_FDNAMES; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args([
        "-c",
        script,
        "sh",
        PROGRAM,
        "serve",
        "--durability",
        "process_crash",
        "--threads",
        "1",
        "--shards",
        "1",
    ]);
    command.args(["--placement", "in_place"]).args(arguments);
    command.env("STRATAKV_DATA", data).env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "200000");
    command.env_remove("WATCHDOG_PID").env_remove("STRATAKV_LOG").stdin(Stdio::from(listener)).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn systemd_hands_over_a_socket_and_is_told_how_far_the_server_is() {
    let (directory, data) = directory();
    let manager = Manager::new(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let config = directory.path().join("stratakv.toml");
    std::fs::write(&config, "").unwrap();
    let mut child =
        activated(&data, listener.try_clone().unwrap().into(), &manager, &["--config", config.to_str().unwrap()]);
    manager.wait_for("STATUS=opening");
    manager.wait_for("READY=1");
    assert_eq!(converse(&address, "set a 0 0 1\r\n1\r\n"), "STORED\r\n");
    // More than once: the threads are asked anew each time.
    (0..3).for_each(|_| manager.wait_for("WATCHDOG=1"));
    let pid = child.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, pid.as_str()]).status().unwrap().success());
    signal("-HUP");
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    signal("-TERM");
    manager.wait_for("STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Clients wait for the next one, and it has what the first had.
    let mut early = TcpStream::connect(&address).unwrap();
    early.write_all(b"get a\r\nquit\r\n").unwrap();
    let mut child = activated(&data, listener.into(), &manager, &[]);
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "VALUE a 0 1\r\n1\r\nEND\r\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_hangup_signal_has_options_read_again() {
    let (directory, data) = directory();
    let config = directory.path().join("stratakv.toml");
    std::fs::write(&config, "threads = 1\nlog-format = 'json'\nlog = 'error'\n").unwrap();
    let manager = Manager::new(directory.path());
    let socket = manager.path.to_str().unwrap();
    let arguments =
        ["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash", "--config", config.to_str().unwrap()];
    let mut start = command(&data, &arguments);
    let mut serving = Serving::started(start.env("NOTIFY_SOCKET", socket));
    manager.wait_for("READY=1");
    let reload = |text: &str| {
        std::fs::write(&config, text).unwrap();
        serving.signal("-HUP");
        manager.wait_for("RELOADING=1");
        manager.wait_for("READY=1");
    };
    converse(&serving.address, "get before\r\n");
    reload("threads = 2\nlog-format = 'json'\nlog = 'warn'\nslow-log-ms = 0\nidle-timeout = '100ms'\n");
    converse(&serving.address, "get between\r\n");
    let mut idle = TcpStream::connect(&serving.address).unwrap();
    assert_eq!(idle.read_to_end(&mut Vec::new()).unwrap(), 0);
    // What makes no sense leaves everything as it is.
    reload("log = 'a=b=c'\n");
    reload("slow-log-ms = 'never'\n");
    converse(&serving.address, "get still\r\n");
    reload("threads = 1\nlog-format = 'json'\nlog = 'warn'\n");
    converse(&serving.address, "get after\r\n");
    serving.signal("-TERM");
    let mut told = String::new();
    serving.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0), "{told}");
    for (key, logged) in [("before", false), ("between", true), ("still", true), ("after", false)] {
        assert_eq!(told.contains(&format!("\"key\":\"{key}\"")), logged, "{key}: {told}");
    }
    assert_eq!(told.matches("nothing is changed").count(), 2, "{told}");
    assert!(told.contains("log filter") && told.contains("--slow-log-ms"), "{told}");
    assert_eq!(told.matches("--threads has changed").count(), 1, "{told}");
}

#[test]
fn tls_wants_its_files() {
    let (directory, data) = directory();
    let refused = refused_to_serve(&data, &["--memcache", "tls:127.0.0.1:0"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--tls-cert"), "{}", stderr(&refused));
    let file = directory.path().join("file.pem");
    std::fs::write(&file, b"nothing").unwrap();
    let path = file.to_str().unwrap();
    let tls = ["--memcache", "tls:127.0.0.1:0", "--tls-cert", path];
    assert_eq!(code(&refused_to_serve(&data, &tls)), 2);
    let refused = refused_to_serve(&data, &[&tls[..], &["--tls-key", path]].concat());
    assert!(code(&refused) == 2 && stderr(&refused).contains(path), "{}", stderr(&refused));
    let refused = refused_to_serve(&data, &["--memcache", "tls:0.0.0.0:0", "--tls-cert", path, "--tls-key", path]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--tls-client-ca"), "{}", stderr(&refused));
    assert!(!data.exists());
}

#[test]
fn a_hangup_signal_has_accounts_read_again() {
    let (directory, data) = directory();
    let accounts = directory.path().join("accounts");
    std::fs::write(&accounts, "first:word\n").unwrap();
    let manager = Manager::new(directory.path());
    let socket = manager.path.to_str().unwrap();
    let arguments = ["serve", "--memcache", "127.0.0.1:0", "--durability", "process_crash", "--auth-file"];
    let mut start = command(&data, &arguments);
    let serving = Serving::started(start.arg(&accounts).env("NOTIFY_SOCKET", socket));
    manager.wait_for("READY=1");
    let reload = |text: &str| {
        std::fs::write(&accounts, text).unwrap();
        serving.signal("-HUP");
        manager.wait_for("RELOADING=1");
        manager.wait_for("READY=1");
    };
    let attempt = |user: &str| format!("set who 0 0 {}\r\n{user} word\r\n", user.len() + 5);
    let is_admitted = |user: &str| converse(&serving.address, &attempt(user)) == "STORED\r\n";
    let mut early = TcpStream::connect(&serving.address).unwrap();
    early.write_all(attempt("first").as_bytes()).unwrap();
    early.read_exact(&mut [0; 8]).unwrap();
    reload("second:word\n");
    assert!(is_admitted("second") && !is_admitted("first"));
    // What is no good leaves what there is.
    for broken in ["third:word\nsecret\n", ""] {
        reload(broken);
        assert!(is_admitted("second") && !is_admitted("third"), "{broken:?}");
    }
    early.write_all(b"get a\r\nquit\r\n").unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "END\r\n", "who is in stays");
    let told = serving.end();
    assert_eq!(told.matches("nothing is changed").count(), 2, "{told}");
    assert!(told.contains("accounts: line 2 is not `user:password`") && told.contains("it has no account"), "{told}");
    assert!(!told.contains("secret"), "{told}");
}
