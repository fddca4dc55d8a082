//! Transactions of many clients, and what they may hold.

use super::*;

/// Asks for these, and gives the last reply.
fn transaction(client: &mut Client, lines: &[String]) -> String {
    client.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
    let told: Vec<String> = lines.iter().map(|_| client.read()).collect();
    told.last().cloned().unwrap()
}

/// What transactions move between hashes and strings is neither lost nor made, and nobody sees it
/// half moved.
#[test]
fn transactions_of_many_clients_keep_a_sum() {
    for engine in ENGINES.into_iter().filter(|engine| *engine != Engine::Tier) {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let accounts = 4;
        for account in 0..accounts {
            assert_eq!(client.ask(&format!("HSET h{account} money 1000")), "(1)");
            assert_eq!(client.ask(&format!("SET s{account} 1000")), "OK");
        }
        let sum_of = |told: &str| {
            told.split(|c: char| !c.is_ascii_digit() && c != '-').filter_map(|n| n.parse::<i64>().ok()).sum::<i64>()
        };
        at_once(&bench, CLIENTS, |number, client| {
            for round in 0..ROUNDS {
                let (from, to, amount) =
                    ((number + round) % accounts, (number * 3 + round * 7) % accounts, 1 + round % 9);
                if number % 4 == 3 {
                    let reads = (0..accounts).flat_map(|a| [format!("HGET h{a} money"), format!("GET s{a}")]);
                    let lines: Vec<String> =
                        ["MULTI".to_owned()].into_iter().chain(reads).chain(["EXEC".to_owned()]).collect();
                    let told = transaction(client, &lines);
                    assert_eq!(sum_of(&told), 8000, "{engine:?}: {told}");
                    continue;
                }
                let lines = [
                    "MULTI".to_owned(),
                    format!("HINCRBY h{from} money -{amount}"),
                    format!("INCRBY s{to} {amount}"),
                    "EXEC".to_owned(),
                ];
                let told = transaction(client, &lines);
                assert!(told.starts_with("[("), "{engine:?}: {told}");
            }
        });
        let mut all: Vec<String> = (0..accounts).map(|account| client.ask(&format!("GET s{account}"))).collect();
        all.extend((0..accounts).map(|account| client.ask(&format!("HGET h{account} money"))));
        assert_eq!(sum_of(&all.join(" ")), 8000, "{engine:?}");
    }
}

/// A counter by WATCH: who was not disturbed counts, and only who does.
#[test]
fn a_watched_key_is_changed_by_who_has_seen_it() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let counted: Vec<usize> = at_once(&bench, CLIENTS, |_, client| {
            let mut counted = 0;
            while counted < 10 {
                assert_eq!(client.ask("WATCH n"), "OK");
                let seen = client.ask("GET n");
                let next = seen.trim_matches('"').parse::<u64>().unwrap_or_default() + 1;
                let told = transaction(client, &["MULTI".to_owned(), format!("SET n {next}"), "EXEC".to_owned()]);
                match told.as_str() {
                    "[OK]" => counted += 1,
                    "nil array" => {}
                    other => panic!("{engine:?}: {other}"),
                }
            }
            counted
        });
        assert_eq!(bench.connect().ask("GET n"), format!("\"{}\"", counted.iter().sum::<usize>()), "{engine:?}");
    }
}

/// Long records, and many, are read within the memory for clients; what is too much is told so.
#[test]
fn transactions_stay_within_their_memory() {
    let bench = Bench::with(Engine::Slab, |options| options.limits.client_memory_bytes = Some(8 << 20));
    let mut client = bench.connect();
    let value = "v".repeat(400_000);
    for key in 0..12 {
        assert_eq!(client.ask(&format!("HSET h{key} f {value}")), "(1)");
    }
    let lines = |keys: usize| -> Vec<String> {
        let reads = (0..keys).map(|key| format!("HSTRLEN h{key} f"));
        ["MULTI".to_owned()].into_iter().chain(reads).chain(["EXEC".to_owned()]).collect()
    };
    assert_eq!(transaction(&mut client, &lines(3)), "[(400000), (400000), (400000)]");
    let told = transaction(&mut client, &lines(12));
    assert!(told.starts_with("-ERR the records and replies have "), "{told}");
    let copies: Vec<String> = (0..12).map(|copy| format!("COPY h0 c{copy}")).collect();
    let lines = [vec!["MULTI".to_owned()], copies, vec!["EXEC".to_owned()]].concat();
    let told = transaction(&mut client, &lines);
    assert!(told.starts_with("-ERR the records and replies have "), "{told}");
    assert_eq!(client.ask("EXISTS c0 c1 c11"), "(0)", "all or nothing");
    assert_eq!(client.ask("COPY h0 c0"), "(1)");
    assert_eq!(client.ask("RENAME c0 c1"), "OK");
    assert_eq!(client.number("HSTRLEN c1 f"), 400_000);
    // One key may be told often, and not as often as anybody likes.
    assert_eq!(client.ask(&format!("SET s {value}")), "OK");
    let often = format!("MGET{}", " s".repeat(1000));
    let lines = ["MULTI".to_owned(), often, "STRLEN s".to_owned(), "EXEC".to_owned()];
    let told = transaction(&mut client, &lines);
    assert!(
        told.starts_with("[-ERR the reply has more than ") && told.ends_with(", (400000)]"),
        "{} bytes",
        told.len()
    );
    // A queue that is too long is refused, and the connection goes on.
    assert_eq!(client.ask("MULTI"), "OK");
    let set = of_words(&format!("SET a {value}"));
    let told: Vec<String> = (0..20)
        .map(|_| {
            client.send(&set);
            client.read()
        })
        .collect();
    assert!(told.iter().any(|told| told.starts_with("-ERR the transaction has more than ")), "{told:?}");
    assert_eq!(client.ask("EXEC"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.ask("GET a"), "nil");
    // Many commands on a long record, while another client is served.
    let lines = [vec!["MULTI".to_owned()], vec!["HSTRLEN h0 f".to_owned(); 2000], vec!["EXEC".to_owned()]].concat();
    client.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
    assert_eq!(bench.connect().ask("PING"), "PONG");
    let told: Vec<String> = lines.iter().map(|_| client.read()).collect();
    assert_eq!(told[2001].matches("(400000)").count(), 2000);
}

/// What engine `tier` cannot, it says.
#[test]
fn transactions_of_several_keys_are_refused_where_there_are_no_batches() {
    let bench = Bench::of(Engine::Tier);
    let mut client = bench.connect();
    let refused = "-ERR the engine `tier` has no batches: a transaction that changes something has one key there, the watched ones included";
    let run = |client: &mut Client, lines: &[&str]| {
        let lines: Vec<String> =
            ["MULTI"].iter().chain(lines).chain(&["EXEC"]).map(|line| (*line).to_owned()).collect();
        transaction(client, &lines)
    };
    assert_eq!(run(&mut client, &["SET a 1", "INCR a"]), "[OK, (2)]");
    assert_eq!(run(&mut client, &["SET a 5", "SET b 1"]), refused);
    assert_eq!(run(&mut client, &["SET a 5", "GET b"]), refused);
    assert_eq!(run(&mut client, &["GET a", "GET b"]), "[\"2\", nil]");
    assert_eq!(client.ask("WATCH b"), "OK");
    assert_eq!(run(&mut client, &["SET a 5"]), refused);
    assert_eq!(client.ask("WATCH a"), "OK");
    assert_eq!(run(&mut client, &["SET a 5"]), "[OK]");
    assert!(client.ask("RENAME a b").starts_with("-ERR the engine `tier` has no batches"));
    assert_eq!(client.ask("COPY a b"), "(1)");
    assert_eq!(client.ask("MGET a b"), "[\"5\", \"5\"]");
}
