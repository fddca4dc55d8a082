//! What clients do to each other and to their own connection, and backups that they begin.

use super::*;

/// Until its connection is closed.
fn is_closed(client: &mut Client) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match client.stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_client_closes_others_by_number_address_type_and_itself() {
    let bench = Bench::of(Engine::Hash);
    let mut client = bench.connect();
    let mut others: Vec<Client> = (0..6).map(|_| bench.connect()).collect();
    let ids: Vec<i64> = others.iter_mut().map(|other| other.number("CLIENT ID")).collect();
    let (id, me) = (ids[0], client.number("CLIENT ID"));
    assert_eq!(client.ask(&format!("CLIENT LIST ID {id}")).matches("id=").count(), 1);
    assert_eq!(client.ask(&format!("CLIENT LIST ID {id} {me} {me}")).matches("addr=").count(), 2 * 2);
    assert_eq!(client.ask(&format!("CLIENT KILL ID {id} TYPE pubsub")), "(0)", "every condition has to hold");
    assert_eq!(client.ask(&format!("CLIENT KILL ID {id} USER default")), "(1)");
    assert!(is_closed(&mut others[0]));
    let address = others[1].stream.local_addr().unwrap();
    assert_eq!(client.ask(&format!("CLIENT KILL {address}")), "OK");
    assert!(is_closed(&mut others[1]));
    assert_eq!(others[2].ask("SUBSCRIBE a"), "[\"subscribe\", \"a\", (1)]");
    assert_eq!(client.ask("CLIENT LIST TYPE pubsub").matches("sub=1").count(), 1);
    assert_eq!(client.ask("CLIENT KILL TYPE pubsub"), "(1)");
    assert!(is_closed(&mut others[2]));
    // One that waits for an element, too.
    others[3].send(&of_words("BLPOP list 0"));
    while !client.ask(&format!("CLIENT LIST ID {}", ids[3])).contains("flags=b") {}
    let address = others[3].stream.local_addr().unwrap();
    assert_eq!(client.ask(&format!("CLIENT KILL ADDR {address} LADDR {}", bench.address())), "(1)");
    assert!(is_closed(&mut others[3]));
    assert_eq!(client.ask(&format!("CLIENT KILL ID {me}")), "(0)", "it is left out unless it says otherwise");
    assert_eq!(client.ask("CLIENT KILL SKIPME yes"), "(2)");
    assert!(others[4..].iter_mut().all(is_closed));
    let mut last = bench.connect();
    assert_eq!(last.ask("PING"), "PONG");
    assert_eq!(client.ask("CLIENT KILL SKIPME no"), "(2)", "and hears so");
    assert!(is_closed(&mut client) && is_closed(&mut last));
    assert_eq!(bench.connect().ask("PING"), "PONG");
}

#[test]
fn replies_are_left_out_as_a_client_wants_it() {
    let benches = [Bench::of(Engine::Slab), Bench::of(Engine::Tier)];
    let redis = is_installed("redis-server").then(Redis::start);
    for address in benches.iter().map(Bench::address).chain(redis.iter().map(|redis| redis.1)) {
        let mut client = Client::connect(address);
        assert_eq!(client.ask(&format!("SET long {}", "x".repeat(200_000))), "OK");
        let lines = [
            "CLIENT REPLY SKIP",
            "GET long",
            "PING 1",
            "CLIENT REPLY OFF",
            "SET a 1",
            "MGET a long",
            "GET long",
            "FOO",
            "RPUSH l 1",
            "CLIENT REPLY SKIP",
            "PING 2",
            "SUBSCRIBE c",
            "UNSUBSCRIBE c",
            "CLIENT REPLY ON",
            "CLIENT REPLY SKIP",
            "CLIENT REPLY ON",
            "CLIENT REPLY SKIP",
            "MULTI",
            "GET a",
            "EXEC",
            "LLEN l",
        ];
        // All at once.
        client.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
        let expected = [
            "\"1\"",
            "[\"subscribe\", \"c\", (1)]",
            "[\"unsubscribe\", \"c\", (0)]",
            "OK",
            "OK",
            "QUEUED",
            "[\"1\"]",
            "(1)",
        ];
        for expected in expected {
            assert_eq!(client.read(), expected);
        }
    }
}

#[test]
fn users_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("accounts");
    std::fs::write(&file, "ada:one\ndefault:two\n").unwrap();
    let bench = Bench::with(Engine::Hash, |options| options.auth_file = Some(file));
    let mut client = bench.connect();
    assert_eq!(client.ask("ACL WHOAMI"), "-NOAUTH Authentication required.");
    assert_eq!(client.ask("AUTH ada one"), "OK");
    assert_eq!(client.ask("ACL WHOAMI"), "\"ada\"");
    assert_eq!(client.ask("ACL USERS"), "[\"ada\", \"default\"]");
    assert_eq!(client.ask("ACL LIST"), "[\"user ada on ~* &* +@all\", \"user default on ~* &* +@all\"]");
    assert!(client.ask("ACL GETUSER ada").starts_with("[\"flags\", [\"on\"], \"passwords\", []"));
    let mut other = bench.connect();
    assert!(other.ask("HELLO 3 AUTH default two").starts_with('{'));
    assert_eq!(other.ask("ACL WHOAMI"), "\"default\"");
    assert_eq!(client.ask("CLIENT LIST").matches("user=ada").count(), 1);
    assert_eq!(client.ask("CLIENT KILL USER nobody"), "-ERR No such user \\'nobody\\'");
    assert_eq!(client.ask("CLIENT KILL USER ada"), "(0)");
    assert_eq!(client.ask("CLIENT KILL USER default"), "(1)");
    assert!(is_closed(&mut other));
}

#[test]
fn bgsave_writes_a_backup_where_the_server_has_a_place_for_them() {
    let bench = Bench::of(Engine::Slab);
    let none = "-ERR this server takes no backups: start it with --backup-dir DIR";
    assert_eq!(bench.connect().ask("BGSAVE"), none);
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_owned();
    let bench = Bench::with(Engine::Slab, |options| options.backup_directory = Some(place.clone()));
    let mut client = bench.connect();
    assert_eq!(client.ask("CONFIG GET maxmemory"), "[\"maxmemory\", \"0\"]", "all that the disk has");
    assert_eq!(client.ask("CONFIG GET maxmemory-policy"), "[\"maxmemory-policy\", \"noeviction\"]");
    let began = client.number("LASTSAVE");
    assert_eq!(client.ask("SET a 1"), "OK");
    assert_eq!(client.ask("BGSAVE"), "Background saving started");
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.ask("INFO persistence").contains("rdb_bgsave_in_progress:1") {
        assert!(Instant::now() < deadline);
    }
    assert!(client.number("LASTSAVE") >= began);
    let backups: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(backups.len(), 1);
    assert!(backups[0].to_str().unwrap().starts_with("bgsave-"), "{backups:?}");
}

#[test]
fn clients_of_a_cluster_find_one_node_with_all_slots() {
    let bench = Bench::of(Engine::Hash);
    let mut client = bench.connect();
    let (id, port) = (client.ask("CLUSTER MYID"), bench.address().port());
    assert_eq!((id.len(), client.ask("CLUSTER MYID")), (42, id.clone()));
    assert_eq!(client.ask("CLUSTER SLOTS"), format!("[[(0), (16383), [\"127.0.0.1\", ({port}), {id}, []]]]"));
    let plain = id.trim_matches('"');
    let line =
        format!("\"{plain} 127.0.0.1:{port}@{} myself,master - 0 0 1 connected 0-16383\\n\"", u32::from(port) + 10_000);
    assert_eq!(client.ask("CLUSTER NODES"), line);
    let shards = client.ask("CLUSTER SHARDS");
    assert!(
        shards.starts_with("[[\"slots\", [(0), (16383)], \"nodes\", [[\"id\", ") && shards.contains(plain),
        "{shards}"
    );
}

#[test]
fn slow_commands_are_told_with_who_gave_them() {
    let bench = Bench::of(Engine::Slab);
    let (mut client, mut other) = (bench.connect(), bench.connect());
    assert_eq!(client.ask("CONFIG GET slowlog-log-slower-than"), "[\"slowlog-log-slower-than\", \"-1\"]");
    assert_eq!(client.ask("CONFIG SET slowlog-log-slower-than 0"), "OK");
    assert_eq!(other.ask("CLIENT SETNAME ada"), "OK");
    assert_eq!(client.ask("SLOWLOG RESET"), "OK");
    assert_eq!(other.ask("AUTH default secret"), "OK", "nobody is told of it");
    let lines = ["SET a 1", "MSET a 1 b 2", "MGET a b", "MULTI", "GET a", "EXEC", "FOO", "GET a b", "BLPOP none 0.01"];
    other.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
    lines.iter().for_each(|_| _ = other.read());
    let told = client.ask("SLOWLOG GET -1");
    let words = [
        "EXEC",
        "MULTI",
        "MGET\", \"a\", \"b",
        "MSET\", \"a\", \"1\", \"b\", \"2",
        "SET\", \"a\", \"1",
        "SLOWLOG\", \"RESET",
    ];
    let mut rest = &told[..];
    for words in words {
        let (_, behind) = rest.split_once(&format!("[\"{words}\"]")).unwrap_or_else(|| panic!("{words}: {told}"));
        rest = behind;
    }
    assert_eq!(client.number("SLOWLOG LEN"), 7, "with SLOWLOG GET: {told}");
    let address = other.stream.local_addr().unwrap();
    assert_eq!(told.matches(&format!("\"{address}\", \"ada\"]")).count(), 5, "{told}");
    assert_eq!(client.ask("CONFIG SET slowlog-log-slower-than 9000000"), "OK");
    assert_eq!(other.ask("GET a"), "\"1\"");
    assert!(!client.ask("SLOWLOG GET 1").contains("GET\", \"a\"]"), "it was not slow");
    assert_eq!(client.ask("SLOWLOG GET 0"), "[]");
    let bench = Bench::with(Engine::Hash, |options| options.slow_from = Some(Duration::from_millis(7)));
    let told = bench.connect().ask("CONFIG GET slowlog-log-slower-than");
    assert_eq!(told, "[\"slowlog-log-slower-than\", \"7000\"]", "as the server's own log of what is slow");
}

#[test]
fn who_monitors_is_told_of_every_command_in_order() {
    let bench = Bench::of(Engine::Matrix);
    let (mut monitor, mut client) = (bench.connect(), bench.connect());
    assert_eq!(monitor.ask("MONITOR"), "OK");
    assert_eq!(client.ask("CLIENT LIST").matches("flags=O").count(), 1);
    let lines = [
        "SET a \"1 \\xff\\n\\\\\\\"\"",
        "GET a b",
        "AUTH default x",
        "CONFIG GET save",
        "MULTI",
        "get a",
        "EXEC",
        "FOO",
    ];
    client.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
    lines.iter().for_each(|_| _ = client.read());
    let address = client.stream.local_addr().unwrap();
    let mut next = || {
        let told = monitor.read();
        let (at, line) = told.split_once(' ').expect("a time, and the command");
        assert!(at.contains('.') && at.chars().all(|letter| letter.is_ascii_digit() || letter == '.'), "{told}");
        line.to_owned()
    };
    let shown = |words: &str| format!("[0 {address}] {words}");
    let list = shown("\\\"CLIENT\\\" \\\"LIST\\\"");
    assert_eq!(next(), list);
    let set = shown("\\\"SET\\\" \\\"a\\\" \\\"1 \\\\xff\\\\n\\\\\\\\\\\\\\\"\\\"");
    assert_eq!(next(), set);
    for words in ["\\\"MULTI\\\"", "\\\"get\\\" \\\"a\\\"", "\\\"EXEC\\\""] {
        assert_eq!(next(), shown(words));
    }
    // It may go on itself, and is told of that too.
    monitor.send(&of_words("PING x"));
    let mut told = [monitor.read(), monitor.read()];
    told.sort();
    assert!(told[0] == "\"x\"" && told[1].contains("PING"), "{told:?}");
    assert_eq!(monitor.ask("RESET"), "RESET");
    assert_eq!((client.ask("PING"), monitor.ask("PING")), ("PONG".into(), "PONG".into()), "no more is told");
}

#[test]
fn who_monitors_and_takes_nothing_is_closed_and_holds_no_more_than_its_part() {
    let bench = Bench::of(Engine::Hash);
    let (mut monitor, mut client) = (bench.connect(), bench.connect());
    assert_eq!(monitor.ask("MONITOR"), "OK");
    let long = of_words(&format!("ECHO {}", "x".repeat(60_000)));
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.ask("CLIENT LIST").contains("flags=O") {
        client.send(&long);
        client.read();
        assert!(Instant::now() < deadline, "it is never closed");
    }
    let (peak, limit) = bench.client_memory();
    assert!(peak <= limit, "{peak} of {limit}");
    assert!(is_closed(&mut monitor));
    assert!(bench.memcache("stats\r\n").contains("STAT pubsub_kicks 1"));
}
