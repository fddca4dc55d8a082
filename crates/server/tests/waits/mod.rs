//! Commands that wait, of several clients.

use super::*;

/// Waits until so many clients wait.
fn until_waiting(client: &mut Client, waiting: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let line = format!("blocked_clients:{waiting}\\r");
    loop {
        let told = client.ask("INFO clients");
        if told.contains(&line) {
            return;
        }
        assert!(Instant::now() < deadline, "{waiting} clients were to wait: {told}");
        std::thread::yield_now();
    }
}

/// A client that has sent this, and waits.
fn waiter(bench: &Bench, line: &str) -> Client {
    let mut client = bench.connect();
    client.send(&of_words(line));
    client
}

/// So many clients that wait, in this order.
fn waiters(bench: &Bench, lines: &[&str]) -> Vec<Client> {
    let mut asks = bench.connect();
    let mut waiters = Vec::new();
    for line in lines {
        waiters.push(waiter(bench, line));
        until_waiting(&mut asks, waiters.len());
    }
    waiters
}

#[test]
fn who_has_waited_longest_is_served_first() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let lines = ["BLPOP l 0", "BRPOP other l 0", "BLPOP l other 100", "BLMPOP 0 2 other l RIGHT COUNT 2"];
        let mut waiting = waiters(&bench, &lines);
        assert_eq!(client.ask("RPUSH l 1 2 3 4 5"), "(5)", "{engine:?}");
        let told: Vec<String> = waiting.iter_mut().map(Client::read).collect();
        assert_eq!(
            told,
            ["[\"l\", \"1\"]", "[\"l\", \"5\"]", "[\"l\", \"2\"]", "[\"l\", [\"4\", \"3\"]]"],
            "{engine:?}"
        );
        until_waiting(&mut client, 0);
        let mut waiting = waiters(&bench, &["BZPOPMIN z 0", "BZPOPMAX z 0", "BZMPOP 0 1 z MIN COUNT 9"]);
        assert_eq!(client.ask("ZADD z 1 a 2 b 3 c 4 d"), "(4)");
        let told: Vec<String> = waiting.iter_mut().map(Client::read).collect();
        assert_eq!(
            told,
            ["[\"z\", \"a\", \"1\"]", "[\"z\", \"d\", \"4\"]", "[\"z\", [[\"b\", \"2\"], [\"c\", \"3\"]]]"],
            "{engine:?}"
        );
    }
}

#[test]
fn whatever_makes_a_list_or_sorted_set_wakes_who_waits() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let ask = |client: &mut Client, lines: &[&str]| lines.iter().for_each(|line| _ = client.ask(line));
    for (waits, makes, told) in [
        ("BLPOP l 0", &["RPUSH m a", "RENAME m l"][..], "[\"l\", \"a\"]"),
        ("BLPOP l 0", &["RPUSH m a", "RENAMENX m l"], "[\"l\", \"a\"]"),
        ("BLPOP l 0", &["RPUSH m a", "COPY m l"], "[\"l\", \"a\"]"),
        ("BLPOP l 0", &["RPUSH n b", "LMOVE n l LEFT LEFT"], "[\"l\", \"b\"]"),
        ("BLPOP l 0", &["RPUSH n b", "RPOPLPUSH n l"], "[\"l\", \"b\"]"),
        ("BLPOP l 0", &["MULTI", "RPUSH l 1", "RPUSH l 2", "LPUSH l 0", "EXEC"], "[\"l\", \"0\"]"),
        (
            "BLPOP l 0",
            &["DEL l", "SET l x", "SET l y", "DEL l", "SADD l z", "DEL l", "ZADD l 1 a", "DEL l", "LPUSH l 9"],
            "[\"l\", \"9\"]",
        ),
        ("BLPOP l 0", &["MULTI", "RPUSH l 1", "DEL l", "RPUSH l 2", "EXEC"], "[\"l\", \"2\"]"),
        ("BZPOPMIN z 0", &["ZADD y 1 a", "ZUNIONSTORE z 1 y"], "[\"z\", \"a\", \"1\"]"),
        ("BZPOPMIN z 0", &["ZADD y 1 a", "ZRANGESTORE z y 0 -1"], "[\"z\", \"a\", \"1\"]"),
        ("BZPOPMIN z 0", &["ZINCRBY z 3 a"], "[\"z\", \"a\", \"3\"]"),
        ("BLMOVE a b LEFT LEFT 0", &["RPUSH a x"], "\"x\""),
        ("BRPOPLPUSH a a 0", &["RPUSH a x"], "\"x\""),
    ] {
        ask(&mut client, &["FLUSHALL"]);
        let mut waiting = waiter(&bench, waits);
        until_waiting(&mut client, 1);
        ask(&mut client, makes);
        assert_eq!(waiting.read(), told, "{waits} after {makes:?}");
        until_waiting(&mut client, 0);
    }
    assert_eq!(client.ask("LRANGE a 0 -1"), "[\"x\"]");
}

/// What a client moves to another list serves the one that waits there, and so on.
#[test]
fn a_move_wakes_the_next_in_a_chain() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let mut waiting = waiters(&bench, &["BLMOVE c d LEFT LEFT 0", "BLMOVE b c LEFT LEFT 0", "BLMOVE a b LEFT LEFT 0"]);
    assert_eq!(client.ask("RPUSH a x"), "(1)");
    waiting.iter_mut().for_each(|waiter| assert_eq!(waiter.read(), "\"x\""));
    assert_eq!(client.ask("LRANGE d 0 -1"), "[\"x\"]");
    // In a ring it is moved until nobody waits.
    let mut waiting = waiters(&bench, &["BRPOPLPUSH p q 0", "BRPOPLPUSH q p 0"]);
    assert_eq!(client.ask("RPUSH p y"), "(1)");
    waiting.iter_mut().for_each(|waiter| assert_eq!(waiter.read(), "\"y\""));
    assert_eq!(client.ask("LRANGE p 0 -1"), "[\"y\"]");
}

#[test]
fn a_destination_of_another_type_is_told_and_the_element_stays() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    assert_eq!(client.ask("SET s 1"), "OK");
    let mut waiting = waiters(&bench, &["BLMOVE l s LEFT LEFT 0", "BLPOP l 0"]);
    assert_eq!(client.ask("RPUSH l x"), "(1)");
    assert!(waiting[0].read().starts_with("-WRONGTYPE"));
    assert_eq!(waiting[1].read(), "[\"l\", \"x\"]", "the next one gets it");
}

#[test]
fn a_wait_ends_in_time_or_by_another_client() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        for line in ["BLPOP a b 0.02", "BLMOVE a a LEFT LEFT 0.02", "BZPOPMIN a 0.02", "BLMPOP 0.02 1 a LEFT"] {
            assert_eq!(client.ask(line), "nil array", "{engine:?}: {line}");
        }
        assert_eq!(client.ask("HELLO 3").chars().next(), Some('{'));
        assert_eq!(client.ask("BLPOP a 0.001"), "nil");
        let (mut first, mut second) = (bench.connect(), bench.connect());
        let ids = [first.number("CLIENT ID"), second.number("CLIENT ID")];
        first.send(&of_words("BLPOP a 0"));
        second.send(&[of_words("BZPOPMAX z 1000"), of_words("PING")].concat());
        until_waiting(&mut client, 2);
        let list = client.ask("CLIENT LIST");
        assert_eq!(list.matches("flags=b").count(), 2, "{list}");
        assert_eq!(client.ask(&format!("CLIENT UNBLOCK {}", ids[0])), "(1)");
        assert_eq!(client.ask(&format!("CLIENT UNBLOCK {} ERROR", ids[1])), "(1)");
        assert_eq!(first.read(), "nil array");
        assert_eq!(second.read(), "-UNBLOCKED client unblocked via CLIENT UNBLOCK");
        assert_eq!(second.read(), "PONG", "what comes behind it goes on");
        assert_eq!(client.ask(&format!("CLIENT UNBLOCK {}", ids[0])), "(0)");
        until_waiting(&mut client, 0);
    }
}

/// Commands behind one that waits are neither carried out nor answered before it.
#[test]
fn commands_behind_one_that_waits_wait() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let mut waiting = bench.connect();
    let many = of_words("INCR after").repeat(5000);
    waiting.send(&[of_words("INCR before"), of_words("BLPOP l 0"), of_words("INCR after")].concat());
    until_waiting(&mut client, 1);
    waiting.send(&many);
    assert_eq!((client.ask("GET before"), client.ask("GET after")), ("\"1\"".to_owned(), "nil".to_owned()));
    assert_eq!(client.ask("RPUSH l x"), "(1)");
    assert_eq!((waiting.read(), waiting.read()), ("(1)".to_owned(), "[\"l\", \"x\"]".to_owned()));
    for after in 1..=5001 {
        assert_eq!(waiting.read(), format!("({after})"));
    }
}

#[test]
fn a_client_that_has_left_takes_nothing() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let mut waiting = waiters(&bench, &["BLPOP l 0", "BLPOP l 0", "BLPOP l 0", "BLPOP l 0"]);
        // It says that it is all, another one is gone, a third has sent more before.
        waiting[0].stream.shutdown(Shutdown::Write).unwrap();
        waiting[1].send(&of_words("PING"));
        drop(waiting.drain(1..3));
        until_waiting(&mut client, 1);
        assert_eq!(client.ask("RPUSH l x"), "(1)");
        assert_eq!(waiting[1].read(), "[\"l\", \"x\"]", "{engine:?}");
        let mut rest = Vec::new();
        waiting[0].stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "{engine:?}");
    }
}

/// A client leaves in the moment in which it is called: the one behind it is called instead. Both
/// stood still until somebody pushed again.
#[test]
fn who_leaves_when_called_passes_the_call_on() {
    let bench = Bench::of(Engine::Hash);
    let mut client = bench.connect();
    client.ask("SET no-list x");
    for round in 0..400 {
        // It can take nothing, as its destination is no list.
        let leaves = waiter(&bench, "BRPOPLPUSH l no-list 0");
        until_waiting(&mut client, 1);
        let mut stays = waiter(&bench, "BLPOP l 0");
        until_waiting(&mut client, 2);
        drop(leaves);
        (0..round % 40).for_each(|_| std::thread::yield_now());
        client.ask("RPUSH l e");
        assert_eq!(stays.read(), "[\"l\", \"e\"]", "round {round}");
        until_waiting(&mut client, 0);
    }
}

/// Each element is taken once, however many wait for several lists and push to them.
#[test]
fn elements_are_neither_lost_nor_taken_twice() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let taken: Vec<Vec<String>> = at_once(&bench, 2 * CLIENTS, |number, client| {
            let rounds = 0..ROUNDS;
            match number % 4 {
                0 => rounds.map(|_| client.ask("BLPOP l0 l1 l2 0")).collect(),
                1 => rounds.map(|_| client.ask("BRPOP l2 l1 l0 0")).collect(),
                _ => {
                    rounds.for_each(|round| {
                        assert!(client.number(&format!("RPUSH l{} {number}.{round}", (round + number) % 3)) > 0);
                    });
                    Vec::new()
                }
            }
        });
        let all: Vec<String> = taken.into_iter().flatten().collect();
        let each: BTreeSet<&str> = all.iter().filter_map(|told| told.rsplit(", ").next()).collect();
        assert_eq!((all.len(), each.len()), (CLIENTS * ROUNDS, CLIENTS * ROUNDS), "{engine:?}");
        let mut client = bench.connect();
        assert_eq!(client.ask("EXISTS l0 l1 l2"), "(0)", "{engine:?}");
        until_waiting(&mut client, 0);
    }
}

/// A server that stops does not wait for those that wait.
#[test]
fn a_server_stops_while_clients_wait() {
    let bench = Bench::of(Engine::Slab);
    let mut waiting = waiters(&bench, &["BLPOP l 0", "BZPOPMIN z 1000"]);
    let began = Instant::now();
    bench.server.shutdown();
    bench.server.join().unwrap();
    for client in &mut waiting {
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
    assert!(began.elapsed() < Duration::from_secs(9), "it did not wait for them until it cut them off");
}

#[test]
fn hundreds_that_wait_at_one_key_get_one_element_each() {
    const WAITERS: usize = 600;
    for engine in [Engine::Slab, Engine::Hash] {
        let bench = Bench::with(engine, |options| options.limits.client_memory_bytes = Some(8 << 20));
        let mut client = bench.connect();
        let mut waiting: Vec<Client> = (0..WAITERS).map(|_| waiter(&bench, "BLPOP jobs 0")).collect();
        until_waiting(&mut client, WAITERS);
        let (peak, limit) = bench.client_memory();
        assert!(peak <= WAITERS as u64 * 1024 && peak <= limit, "{engine:?}: {peak} of {limit} bytes");
        for part in 0..6 {
            let line =
                (part * 100..part * 100 + 100).fold("RPUSH jobs".to_owned(), |line, job| format!("{line} {job}"));
            assert!(client.ask(&line).starts_with('('), "{engine:?}");
        }
        let told: BTreeSet<String> = waiting.iter_mut().map(Client::read).collect();
        let wanted: BTreeSet<String> = (0..WAITERS).map(|job| format!("[\"jobs\", \"{job}\"]")).collect();
        assert_eq!(told, wanted, "{engine:?}");
        assert_eq!(client.ask("EXISTS jobs"), "(0)", "{engine:?}");
    }
}
