//! `serve --config`.

use super::*;

fn settings(serving: &Serving) -> String {
    let mut stream = std::net::TcpStream::connect(&serving.address).unwrap();
    stream.write_all(b"stats settings\r\nquit\r\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    told
}

#[test]
fn a_file_gives_options_and_the_command_line_wins() {
    let (directory, data) = directory();
    let file = directory.path().join("stratakv.toml");
    let (elsewhere, path) = (directory.path().join("elsewhere"), file.to_str().unwrap());
    let text = format!(
        "connections = 77\nitem-bytes-max = '2M'\nthreads = 2\nmemcache = '127.0.0.1:1'\ndata = '{}'\n",
        elsewhere.display()
    );
    std::fs::write(&file, text).unwrap();
    // The harness names an address and a durability, and the data in the environment.
    let serving = Serving::with(&data, &["--config", path, "--threads", "1"]);
    let told = settings(&serving);
    for line in ["maxconns 77", "item_size_max 2097152", "num_threads 1", "durability process_crash"] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "no `{line}` in {told}");
    }
    assert!(serving.lines.concat().contains(path), "{:?}", serving.lines);
    assert!(data.join("store.toml").exists() && !elsewhere.exists());
    drop(serving);

    // Where neither says it, the file does.
    std::fs::write(&elsewhere, b"no directory").unwrap();
    let arguments = ["serve", "--config", path, "--memcache", "127.0.0.1:0", "--placement", "in_place"];
    let refused = command(&data, &arguments).env_remove("STRATAKV_DATA").output().unwrap();
    assert!(code(&refused) != 0 && stderr(&refused).contains(elsewhere.to_str().unwrap()), "{}", stderr(&refused));
}

#[test]
fn a_file_that_makes_no_sense_is_refused_by_name() {
    let (directory, data) = directory();
    let file = directory.path().join("stratakv.toml");
    let path = file.to_str().unwrap();
    let absent = refused_to_serve(&data, &["--config", path]);
    assert!(code(&absent) == 2 && stderr(&absent).contains(path), "{}", stderr(&absent));
    for (text, why) in [
        ("memroy = '1G'", "`memory`"),
        ("memory = 'lots'", "--memory"),
        ("threads = -1", "--threads"),
        ("memory = '1G", "line 1"),
        ("depth = 5\nmax-latency = '1ms'", "--max-latency"),
        ("insecure = 1", "true or false"),
        ("durability = 'sometimes'\nplacement = 'anywhere'", "'anywhere'"),
    ] {
        std::fs::write(&file, text).unwrap();
        let refused = refused_to_serve(&data, &["--config", path]);
        let told = stderr(&refused);
        assert!(code(&refused) == 2 && told.contains(path) && told.contains(why), "{text}: {told}");
    }
    assert!(!data.exists());
}

/// It is made of the command line's definition; what it says must be what `serve` takes.
#[test]
fn the_printed_file_is_one_that_serve_takes() {
    let (directory, data) = directory();
    let printed = String::from_utf8(ok(&data, &["config", "print-default"])).unwrap();
    let file = directory.path().join("stratakv.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, &printed).unwrap();
    ok(&data, &["config", "check", path]);
    // With each default said aloud it is the same server.
    let is_default = |line: &str| line.starts_with('#') && !line.starts_with("# ") && !line.contains("  # not set");
    let said: Vec<&str> = printed.lines().filter(|line| is_default(line)).map(|line| &line[1..]).collect();
    assert!(said.len() > 10, "{printed}");
    std::fs::write(&file, said.join("\n")).unwrap();
    let told = String::from_utf8(ok(&data, &["config", "check", path])).unwrap();
    assert!(told.contains(&format!("{} options", said.len())), "{told}");
    let serving = Serving::with(&data, &["--config", path, "--threads", "1"]);
    let with_file = settings(&serving);
    drop(serving);
    let serving = Serving::with(&data, &["--threads", "1"]);
    let mut without_file = settings(&serving);
    without_file = without_file.replace(&serving.address, "");
    let port = |text: &str| text.lines().filter(|line| !line.contains("port")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(port(&with_file), port(&without_file));
}

#[test]
fn a_file_that_is_wrong_is_told_before_a_server_is_started() {
    let (directory, data) = directory();
    let file = directory.path().join("stratakv.toml");
    let path = file.to_str().unwrap();
    for (text, why) in [
        ("memroy = '1G'", "is it `memory`?"),
        ("memory = 'much'", "much"),
        ("threads = true", "not true"),
        ("memcache = '0.0.0.0:1'", "--insecure"),
        ("depth = 7\nmax-latency = '1ms'", "cannot be used with"),
        ("log = '=='", "log"),
        ("item-bytes-max = '65M'", "64M"),
        ("memory = ", "line 1"),
        ("tls-cert = '/absent'\ntls-key = '/absent'\nmemcache = 'tls:127.0.0.1:1'", "/absent"),
    ] {
        std::fs::write(&file, text).unwrap();
        let told = run(&data, &["config", "check", path]);
        assert_eq!(code(&told), 2, "{text}: {}", stderr(&told));
        assert!(stderr(&told).contains(why) && stderr(&told).contains(path), "{text}: {}", stderr(&told));
    }
    assert_eq!(code(&run(&data, &["config", "check", "/absent.toml"])), 2);
    assert!(!data.exists());
}
