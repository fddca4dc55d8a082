//! Ways to a running server: TLS, socket files, accounts; ranges deleted and records checked there.

use std::path::PathBuf;

use super::*;

/// Certificates below a folder: of an authority, of a server by the name `localhost`, of a client,
/// and of another authority.
struct Certificates {
    authority: PathBuf,
    server: (PathBuf, PathBuf),
    client: (PathBuf, PathBuf),
    stranger: PathBuf,
}

impl Certificates {
    fn made(folder: &Path) -> Certificates {
        let write = |name: &str, text: &str| {
            let file = folder.join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let authority = |name: &str| {
            let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = parameters.self_signed(&key).unwrap();
            (certificate.pem(), rcgen::Issuer::new(parameters, key))
        };
        let (pem, issuer) = authority("ours");
        let signed = |name: &str| {
            let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = parameters.signed_by(&key, &issuer).unwrap();
            let named = |kind: &str| format!("{name}.{kind}.pem");
            (write(&named("certificate"), &certificate.pem()), write(&named("key"), &key.serialize_pem()))
        };
        Certificates {
            authority: write("authority.pem", &pem),
            server: signed("localhost"),
            client: signed("client"),
            stranger: write("stranger.pem", &authority("theirs").0),
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A command with `--server`, of a store that is not there: nothing but the server can answer.
fn ask(arguments: &[&str]) -> Output {
    run(Path::new("/nonexistent/stratakv"), arguments)
}

fn tls_of(serving: &Serving) -> String {
    let line = serving.lines.iter().find_map(|line| line.strip_prefix("tls")).expect("it tells");
    let port = line.trim().rsplit(':').next().unwrap();
    format!("tls:localhost:{port}")
}

#[test]
fn a_server_is_reached_by_tls() {
    let (directory, data) = directory();
    let made = Certificates::made(directory.path());
    let files = ["--tls-cert", text(&made.server.0), "--tls-key", text(&made.server.1)];
    let listens = ["--threads", "1", "--memcache", "tls:127.0.0.1:0", "--memcache", "tls:[::1]:0"];
    let serving = Serving::with(&data, &[&listens[..4], &files].concat());
    let server = tls_of(&serving);
    let trusting = ["--server", &server, "--tls-ca", text(&made.authority)];
    let done = ask(&[&["put", "key", "value"][..], &trusting].concat());
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    assert_eq!(ask(&[&["get", "key"][..], &trusting].concat()).stdout, b"value");
    let by_address = server.replace("localhost", "127.0.0.1");
    let plain = format!("tls:{}", serving.address);
    for (arguments, exit, why) in [
        (&["--server", &server][..], 2, "--tls-ca FILE"),
        (&["--server", &server, "--tls-ca", text(&made.stranger)], 1, "signed by none of the authorities"),
        (&["--server", &by_address, "--tls-ca", text(&made.authority)], 1, "of another name"),
        (&["--server", &server, "--tls-ca", "/absent.pem"], 2, "/absent.pem"),
        (&["--server", &server, "--tls-ca", text(&made.server.1)], 2, "no certificate"),
        (&["--server", &plain, "--tls-ca", text(&made.authority)], 1, "TLS"),
        (&["--server", &server, "--tls-ca", text(&made.authority), "--tls-cert", text(&made.client.0)], 2, "--tls-key"),
        (&["--tls-ca", text(&made.authority)], 2, "--server"),
    ] {
        let told = ask(&[&["get", "key"][..], arguments].concat());
        assert_eq!(code(&told), exit, "{arguments:?}: {}", stderr(&told));
        assert!(stderr(&told).contains(why), "{arguments:?}: no `{why}` in {}", stderr(&told));
    }
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_one() {
    let (directory, data) = directory();
    let made = Certificates::made(directory.path());
    let files = ["--tls-cert", text(&made.server.0), "--tls-key", text(&made.server.1)];
    let asks = ["--threads", "1", "--memcache", "tls:127.0.0.1:0", "--tls-client-ca", text(&made.authority)];
    let serving = Serving::with(&data, &[&asks[..], &files].concat());
    let server = tls_of(&serving);
    let trusting = ["get", "key", "--server", &server, "--tls-ca", text(&made.authority)];
    let told = ask(&trusting);
    assert_eq!(code(&told), 1, "{}", stderr(&told));
    assert!(stderr(&told).contains("--tls-cert FILE and --tls-key FILE"), "{}", stderr(&told));
    let shown = ["--tls-cert", text(&made.client.0), "--tls-key", text(&made.client.1)];
    let told = ask(&[&trusting[..], &shown].concat());
    assert_eq!(code(&told), 3, "it is let in, and there is no such key: {}", stderr(&told));
}

#[test]
fn a_server_is_reached_at_a_socket_file_with_an_account() {
    let (directory, data) = directory();
    let (socket, accounts) = (directory.path().join("socket"), directory.path().join("accounts"));
    std::fs::write(&accounts, "ada:pass word\n").unwrap();
    let listen = format!("unix:{}", socket.display());
    let with = ["--threads", "1", "--memcache", &listen, "--auth-file", text(&accounts)];
    let _serving = Serving::with(&data, &with);
    let put = |more: &[&str]| ask(&[&["put", "key", "value", "--server", &listen][..], more].concat());
    let refused = put(&[]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--password-file"), "{}", stderr(&refused));
    assert_eq!(code(&put(&["--auth-file", text(&accounts)])), 0);
    let password = directory.path().join("password");
    std::fs::write(&password, "pass word\n").unwrap();
    assert_eq!(code(&put(&["--user", "ada", "--password-file", text(&password)])), 0);
    let mut by_variable = command(&data, &["get", "key", "--server", &listen, "--user", "ada"]);
    assert_eq!(by_variable.env("STRATAKV_PASSWORD", "pass word").output().unwrap().stdout, b"value");
    for (arguments, why) in [
        (&["--user", "eve", "--password-file", text(&password)][..], "does not know this user"),
        (&["--user", "ada"], "$STRATAKV_PASSWORD"),
        (&["--password-file", text(&password)], "--user NAME"),
        (&["--user", "ada", "--password-file", "/absent"], "/absent"),
        (&["--user", "ada", "--auth-file", text(&accounts)], "cannot be used with"),
    ] {
        let told = put(arguments);
        assert!(code(&told) == 2 && stderr(&told).contains(why), "{arguments:?}: {}", stderr(&told));
        assert!(!stderr(&told).contains("pass word"), "{}", stderr(&told));
    }
    let absent = ask(&["get", "key", "--server", "unix:/absent/socket"]);
    assert!(code(&absent) == 1 && stderr(&absent).contains("cannot connect to unix:/absent"), "{}", stderr(&absent));
}

#[test]
fn ranges_of_a_server_are_deleted_and_its_records_are_checked() {
    for engine in ["slab", "matrix", "hash", "tier"] {
        let (directory, data) = directory();
        let region: &[&str] = if matches!(engine, "matrix" | "hash") { &["--region", "16M"] } else { &[] };
        let mut start = command(&data, &["serve", "--memcache", "127.0.0.1:0", "--threads", "1", "--engine", engine]);
        if engine != "tier" {
            start.args(["--durability", "process_crash"]);
        }
        let serving = Serving::started(start.args(region));
        let server = ["--server", &serving.address];
        let mut words: String = (0..3000).map(|n| format!("set user:{n:04} 0 0 3 noreply\r\nabc\r\n")).collect();
        words += "set a 0 0 1 noreply\r\n1\r\nset b 0 0 1 noreply\r\n2\r\nset c 0 0 1\r\n3\r\n";
        let mut stream = std::net::TcpStream::connect(&serving.address).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        let checked = ask(&[&["check", "--json"][..], &server].concat());
        assert_eq!(code(&checked), 0, "{engine}: {}", stderr(&checked));
        let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
        assert_eq!(
            (&report["records"], &report["bytes"], &report["unread"]),
            (&3003.into(), &9003.into(), &0.into()),
            "{engine}"
        );
        let text = String::from_utf8(ask(&[&["check"][..], &server].concat()).stdout).unwrap();
        assert!(text.contains("3003 records read") && text.contains("not verified: named collections"), "{text}");
        let deleted = ask(&[&["del", "--prefix", "user:0"][..], &server].concat());
        assert_eq!((code(&deleted), stderr(&deleted).as_str()), (0, "stratakv: 1000 keys deleted\n"), "{engine}");
        let deleted = ask(&[&["del", "--from", "b", "--to", "c"][..], &server].concat());
        assert_eq!(stderr(&deleted), "stratakv: 1 key deleted\n", "{engine}");
        let there = |key: &str| code(&ask(&[&["get", key][..], &server].concat()));
        assert_eq!(
            (there("a"), there("b"), there("c"), there("user:0999"), there("user:1000")),
            (0, 3, 0, 3, 0),
            "{engine}"
        );
        let deleted = ask(&[&["del", "--prefix", ""][..], &server].concat());
        assert_eq!(stderr(&deleted), "stratakv: 2002 keys deleted\n", "{engine}");
        drop(directory);
    }
}

/// Damage on the disk is met by a server that has not the record in memory.
#[test]
fn damage_that_a_server_meets_is_told_with_its_key() {
    let (_directory, data) = directory();
    for number in 0..50 {
        put(&data, &[&format!("key{number}"), &format!("needle{number:02}needle")]);
    }
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(14).position(|window| window == b"needle07needle") {
            bytes[at] = b'?';
        }
        std::fs::write(&path, bytes).unwrap();
    }
    let serving = Serving::start(&data);
    let checked = ask(&["check", "--server", &serving.address]);
    assert_eq!(code(&checked), 4, "{} {}", String::from_utf8_lossy(&checked.stdout), stderr(&checked));
    assert!(stderr(&checked).contains("stratakv check"), "{}", stderr(&checked));
}

#[test]
fn top_prints_a_frame_where_there_is_no_terminal() {
    let (_directory, data) = directory();
    let serving = Serving::with(&data, &["--threads", "1", "--admin", "127.0.0.1:0"]);
    let line = serving.lines.iter().find_map(|line| line.strip_prefix("admin     http://")).expect("it tells");
    let admin = line.trim().trim_end_matches('/');
    let busy = std::sync::atomic::AtomicBool::new(true);
    let drawn = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = std::net::TcpStream::connect(&serving.address).unwrap();
            let mut answer = [0; 64];
            while busy.load(std::sync::atomic::Ordering::Relaxed) {
                stream.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nget absent\r\n").unwrap();
                let mut left = "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\nEND\r\n".len();
                while left > 0 {
                    left -= stream.read(&mut answer[..left.min(64)]).unwrap();
                }
            }
        });
        let drawn = ["--admin", "--server"].map(|option| {
            let address = if option == "--admin" { admin } else { &serving.address };
            ask(&["top", option, address, "--interval", "300ms"])
        });
        busy.store(false, std::sync::atomic::Ordering::Relaxed);
        drawn
    });
    for (output, has_all) in drawn.iter().zip([true, false]) {
        assert_eq!(code(output), 0, "{}", stderr(output));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(text.lines().count() == 23 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().any(|line| line.contains("hits of gets") && line.contains(" 50.0 %")), "{text}");
        assert!(text.contains("slab, process_crash") && text.contains("Bound by"), "{text}");
        assert!(!text.contains("q ends"), "nobody can press a key: {text}");
        assert_eq!(text.contains("p99") && text.contains("under way"), has_all, "{text}");
    }
    for (arguments, exit, why) in [
        (&["top"][..], 2, "--admin"),
        (&["top", "--admin", &serving.address, "--once"], 1, "no admin address"),
        (&["top", "--admin", "127.0.0.1:1", "--once"], 1, "serve --admin"),
        (&["top", "--admin", admin, "--interval", "1ms"], 2, "100ms to 1h"),
    ] {
        let told = ask(arguments);
        assert!(code(&told) == exit && stderr(&told).contains(why), "{arguments:?}: {}", stderr(&told));
    }
}
