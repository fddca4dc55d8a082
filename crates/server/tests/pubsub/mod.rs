//! Publish and subscribe, of several clients.

use super::*;

/// A client that listens to this.
fn listener(bench: &Bench, line: &str) -> Client {
    let mut client = bench.connect();
    client.ask(line);
    client
}

#[test]
fn messages_reach_all_who_listen_in_order() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut listeners: Vec<Client> = (0..6).map(|_| listener(&bench, "SUBSCRIBE news")).collect();
        let mut patterns: Vec<Client> = (0..2).map(|_| listener(&bench, "PSUBSCRIBE n?ws*")).collect();
        let mut third = bench.connect();
        assert_eq!(third.ask("HELLO 3").chars().next(), Some('{'));
        third.send(&of_words("SUBSCRIBE news other"));
        assert_eq!(
            (third.read(), third.read()),
            ("[\"subscribe\", \"news\", (1)]".into(), "[\"subscribe\", \"other\", (2)]".into())
        );
        let mut client = bench.connect();
        for round in 0..50 {
            assert_eq!(client.ask(&format!("PUBLISH news {round}")), "(9)", "{engine:?}");
        }
        assert_eq!(client.ask("PUBLISH news.more x"), "(2)");
        assert_eq!(client.ask("PUBLISH nothing x"), "(0)");
        for round in 0..50 {
            let told = format!("[\"message\", \"news\", \"{round}\"]");
            listeners.iter_mut().for_each(|listener| assert_eq!(listener.read(), told, "{engine:?}"));
            assert_eq!(third.read(), told);
            let told = format!("[\"pmessage\", \"n?ws*\", \"news\", \"{round}\"]");
            patterns.iter_mut().for_each(|listener| assert_eq!(listener.read(), told));
        }
        patterns.iter_mut().for_each(|listener| {
            assert_eq!(listener.read(), "[\"pmessage\", \"n?ws*\", \"news.more\", \"x\"]");
        });
        assert_eq!(client.ask("PUBSUB NUMSUB news other"), "[\"news\", (7), \"other\", (1)]");
        assert_eq!(client.ask("PUBSUB CHANNELS"), "[\"news\", \"other\"]");
        assert_eq!(
            (client.ask("PUBSUB CHANNELS o*"), client.ask("PUBSUB NUMPAT")),
            ("[\"other\"]".into(), "(1)".into())
        );
        let list = client.ask("CLIENT LIST");
        assert_eq!((list.matches("flags=P").count(), list.matches("sub=2 psub=0").count()), (9, 1), "{list}");
        // In RESP3 a client that listens goes on with other commands.
        assert_eq!(third.ask("SET k v"), "OK");
        assert_eq!(third.ask("PUBLISH other me"), "(1)");
        assert_eq!(third.read(), "[\"message\", \"other\", \"me\"]");
        drop((listeners, patterns));
        let deadline = Instant::now() + Duration::from_secs(60);
        while client.ask("PUBSUB NUMSUB news") != "[\"news\", (1)]" || client.ask("PUBSUB NUMPAT") != "(0)" {
            assert!(Instant::now() < deadline, "who has left listens no longer");
        }
    }
}

/// A message tells of what was written before it: its listener reads that.
#[test]
fn a_message_comes_after_what_was_written_before_it() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let (mut hears, mut reads, mut writes) = (listener(&bench, "SUBSCRIBE c"), bench.connect(), bench.connect());
        for round in 0..30 {
            writes.send(&[of_words(&format!("SET k {round}")), of_words(&format!("PUBLISH c {round}"))].concat());
            assert_eq!(hears.read(), format!("[\"message\", \"c\", \"{round}\"]"));
            assert_eq!(reads.ask("GET k"), format!("\"{round}\""), "{engine:?}");
            assert_eq!((writes.read(), writes.read()), ("OK".to_owned(), "(1)".to_owned()));
        }
        let lines = ["MULTI", "INCR n", "PUBLISH c a", "PUBLISH none b", "INCR n", "PUBLISH c d", "EXEC"];
        let told: Vec<String> = lines.iter().map(|line| writes.ask(line)).collect();
        assert_eq!(told.last().unwrap(), "[(1), (1), (0), (2), (1)]", "{engine:?}");
        assert_eq!(
            (hears.read(), hears.read()),
            ("[\"message\", \"c\", \"a\"]".into(), "[\"message\", \"c\", \"d\"]".into())
        );
        // What is not carried out is not published.
        assert_eq!(writes.ask("WATCH n"), "OK");
        assert_eq!(reads.ask("INCR n"), "(3)");
        let told: Vec<String> =
            ["MULTI", "GET n", "PUBLISH c lost", "EXEC"].iter().map(|line| writes.ask(line)).collect();
        assert_eq!(told.last().unwrap(), "nil array");
        assert_eq!(writes.ask("PUBLISH c kept"), "(1)");
        assert_eq!(hears.read(), "[\"message\", \"c\", \"kept\"]");
    }
}

#[test]
fn channels_of_shards_are_others() {
    let bench = Bench::of(Engine::Hash);
    let (mut shard, mut client) = (listener(&bench, "SSUBSCRIBE c"), bench.connect());
    let mut plain = listener(&bench, "SUBSCRIBE c");
    assert_eq!((client.ask("SPUBLISH c 1"), client.ask("PUBLISH c 2")), ("(1)".to_owned(), "(1)".to_owned()));
    assert_eq!(shard.read(), "[\"smessage\", \"c\", \"1\"]");
    assert_eq!(plain.read(), "[\"message\", \"c\", \"2\"]");
    assert_eq!(client.ask("PUBSUB SHARDNUMSUB c"), "[\"c\", (1)]");
    assert_eq!(
        (shard.ask("SUNSUBSCRIBE"), shard.ask("PING")),
        ("[\"sunsubscribe\", \"c\", (0)]".into(), "PONG".into())
    );
    assert_eq!(client.ask("SPUBLISH c 1"), "(0)");
}

/// Nobody waits for a listener that does not read; it is closed, and the others get everything.
#[test]
fn a_listener_that_does_not_read_is_closed_and_nobody_waits_for_it() {
    const MEMORY: u64 = 16 << 20;
    let bench = Bench::with(Engine::Hash, |options| options.limits.client_memory_bytes = Some(MEMORY));
    let mut deaf: Vec<Client> = (0..8).map(|_| listener(&bench, "SUBSCRIBE c")).collect();
    let mut hears = listener(&bench, "SUBSCRIBE c");
    let mut client = bench.connect();
    let message = vec![b'x'; 64 << 10];
    let publish = request(&[b"PUBLISH".to_vec(), b"c".to_vec(), message]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut rounds = 0;
    loop {
        client.send(&publish);
        let listeners: i64 = client.read().trim_matches(['(', ')']).parse().unwrap();
        let told = hears.read();
        assert!(told.starts_with("[\"message\", \"c\", \"xxx") && told.len() > 64 << 10);
        rounds += 1;
        if listeners == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "{listeners} listen after {rounds} messages");
    }
    let stats = bench.memcache("stats\r\n");
    assert!(stats.contains("STAT pubsub_kicks 8\r\n"), "{stats}");
    for line in stats.lines().filter(|line| line.contains("client_memory")) {
        let bytes = line.rsplit(' ').next().and_then(|bytes| bytes.parse::<u64>().ok());
        assert!(bytes.is_none_or(|bytes| bytes <= MEMORY), "{line}");
    }
    deaf.clear();
}

/// Names that a client listens to are memory for clients: there is no room for any number of them.
#[test]
fn names_without_end_are_refused() {
    let bench = Bench::with(Engine::Hash, |options| options.limits.client_memory_bytes = Some(4 << 20));
    let mut client = bench.connect();
    assert!(client.ask("HELLO 3").starts_with('{'));
    let mut listened = 0;
    let refused = loop {
        let told = client.ask(&format!("SUBSCRIBE channel{listened}"));
        if told.starts_with('-') {
            break told;
        }
        listened += 1;
        assert!(listened < 40_000, "it goes on and on");
    };
    assert_eq!(refused, "-ERR the memory for clients is short: listen to fewer channels, or raise --memory");
    assert!(listened > 1000, "{listened}");
    let mut other = bench.connect();
    assert_eq!(other.ask("SET a 1"), "OK", "others go on");
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(60);
    while other.ask("PUBSUB CHANNELS") != "[]" {
        assert!(Instant::now() < deadline);
    }
    // The room for the names of the other one comes back with its connection.
    while !other.ask("SUBSCRIBE a").starts_with("[\"subscribe\"") {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn who_has_not_said_who_it_is_hears_and_says_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("accounts");
    std::fs::write(&file, "default:word\n").unwrap();
    let bench = Bench::with(Engine::Hash, |options| options.auth_file = Some(file.clone()));
    let mut client = bench.connect();
    for line in ["SUBSCRIBE a", "PUBLISH a 1", "PUBSUB CHANNELS", "PSUBSCRIBE *"] {
        assert_eq!(client.ask(line), "-NOAUTH Authentication required.", "{line}");
    }
    assert_eq!((client.ask("AUTH word"), client.ask("PUBLISH a 1")), ("OK".to_owned(), "(0)".to_owned()));
}

/// The names of all channels were told without room for them: many such replies, which nobody read,
/// held many times the memory for clients.
#[test]
fn lists_of_channels_and_clients_wait_for_room() {
    let bench = Bench::of(Engine::Slab);
    let mut listener = bench.connect();
    for number in 0..500 {
        listener.ask(&format!("SUBSCRIBE {number}{}", "c".repeat(900)));
    }
    let deaf: Vec<Client> = (0..60)
        .map(|_| {
            let mut client = bench.connect();
            client.send(&[of_words("PUBSUB CHANNELS"), of_words("CLIENT LIST")].concat().repeat(50));
            client
        })
        .collect();
    let mut client = bench.connect();
    for _ in 0..20 {
        assert_eq!(client.ask("PUBSUB CHANNELS 7*").matches("ccc\"").count(), 11);
    }
    let (peak, limit) = bench.client_memory();
    drop(deaf);
    assert!(peak <= limit + limit / 8, "{peak} of {limit} bytes");
}

#[test]
fn names_of_channels_are_bounded() {
    let bench = Bench::of(Engine::Hash);
    let mut client = bench.connect();
    let long = "c".repeat(65_536);
    let told = "-ERR the name of a channel has at most 65535 bytes";
    for command in ["SUBSCRIBE", "PUBLISH", "SSUBSCRIBE"] {
        let message = if command == "PUBLISH" { " m" } else { "" };
        assert_eq!(client.ask(&format!("{command} {long}{message}")), told);
    }
    let mut listener = bench.connect();
    for number in 0..20 {
        listener.ask(&format!("SUBSCRIBE {number}{}", "c".repeat(65_000)));
    }
    let told = "-ERR the names of the channels are too long for one reply: ask for those of a pattern";
    assert_eq!(client.ask("PUBSUB CHANNELS"), told);
    assert_eq!(client.ask("PUBSUB CHANNELS 3c*").matches("ccc\"").count(), 1);
}
