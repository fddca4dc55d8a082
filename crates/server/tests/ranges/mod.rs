//! Our own commands `SKV.RANGE`, `SKV.PREFIX` and `mr`: keys in order, over all shards.

use stratakv_base::random::Random;

use super::*;

const ORDERED: [Engine; 2] = [Engine::Slab, Engine::Matrix];

/// What a range answered: where the next one begins, and the words.
fn page(client: &mut Client, command: &str) -> (String, Vec<String>) {
    let told = client.ask(command);
    let parts = told.strip_prefix("[\"").and_then(|told| told.split_once("\", ["));
    let (next, words) = parts.unwrap_or_else(|| panic!("{command}: {told}"));
    let words = words.trim_end_matches(']').split(", ").filter(|word| !word.is_empty());
    (next.to_owned(), words.map(|word| word.trim_matches('"').to_owned()).collect())
}

/// All of a range, so many records at a time.
fn all(client: &mut Client, (from, to): (&str, &str), rest: &str, limit: usize) -> Vec<String> {
    let (mut from, mut to, mut words) = (from.to_owned(), to.to_owned(), Vec::new());
    loop {
        let (next, mut more) = page(client, &format!("SKV.RANGE {from} {to} LIMIT {limit} {rest}"));
        assert!(more.len() <= limit * if rest.contains("KEYS") { 1 } else { 2 });
        words.append(&mut more);
        match next.as_str() {
            "" => return words,
            next if rest.contains("REV") => to = next.to_owned(),
            next => from = next.to_owned(),
        }
    }
}

fn model(client: &mut Client) -> BTreeMap<String, String> {
    let mut random = Random::new(7);
    let mut model = BTreeMap::new();
    for number in 0..150 {
        let key = match number % 3 {
            0 => format!("user:{}", random.below(400)),
            1 => format!("u{}", "z".repeat(random.below(60) as usize)),
            _ => format!("{}", random.below(1000)),
        };
        assert_eq!(client.ask(&format!("SET {key} v{number}")), "OK");
        model.insert(key, format!("v{number}"));
    }
    model
}

#[test]
fn a_range_has_what_a_model_has() {
    for engine in ORDERED {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        assert_eq!(client.ask("SKV.RANGE - +"), "[\"\", []]");
        let model = model(&mut client);
        let ends = [("-", "+"), ("user:", "user:2"), ("[u", "(uzz"), ("(user:100", "+"), ("5", "4"), ("-", "[9")];
        for (from, to) in ends {
            let is_in = |key: &str| {
                let is_behind = match from {
                    "-" => true,
                    from => match from.strip_prefix('(') {
                        Some(from) => key > from,
                        None => key >= from.trim_start_matches('['),
                    },
                };
                is_behind
                    && match to {
                        "+" => true,
                        to => match to.strip_prefix('[') {
                            Some(to) => key <= to,
                            None => key < to.trim_start_matches('('),
                        },
                    }
            };
            let inside: Vec<(&String, &String)> = model.iter().filter(|(key, _)| is_in(key)).collect();
            let pairs: Vec<String> =
                inside.iter().flat_map(|(key, value)| [(*key).clone(), (*value).clone()]).collect();
            let names: Vec<String> = inside.iter().map(|(key, _)| (*key).clone()).collect();
            for limit in [1, 7, 1000] {
                assert_eq!(all(&mut client, (from, to), "", limit), pairs, "{engine:?}, {from} {to}, {limit}");
                let backwards: Vec<String> = names.iter().rev().cloned().collect();
                let told = all(&mut client, (from, to), "KEYS REV", limit);
                assert_eq!(told, backwards, "{engine:?}, {from} {to}, {limit}");
            }
        }
        let users: Vec<String> = model.keys().filter(|key| key.starts_with("user:")).cloned().collect();
        assert_eq!(page(&mut client, "SKV.PREFIX user: KEYS LIMIT 1000"), (String::new(), users.clone()));
        let (next, first) = page(&mut client, "SKV.PREFIX user: KEYS LIMIT 5");
        let (_, rest) = page(&mut client, &format!("SKV.PREFIX user: FROM {next} KEYS LIMIT 1000"));
        assert_eq!([first, rest].concat(), users);
        let (next, last) = page(&mut client, "SKV.PREFIX user: REV KEYS LIMIT 5");
        let (_, rest) = page(&mut client, &format!("SKV.PREFIX user: REV FROM {next} KEYS LIMIT 1000"));
        assert_eq!([last, rest].concat(), users.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(page(&mut client, "SKV.PREFIX \"\" KEYS LIMIT 1000").1.len(), model.len());
        assert_eq!(page(&mut client, "SKV.PREFIX \\xff KEYS").1.len(), 0);
    }
}

/// The records of a range come before the replies to what follows it, also if it is found late; and
/// values of any length.
#[test]
fn the_order_of_replies_is_that_of_the_requests() {
    for engine in ORDERED {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let long = "x".repeat(300_000);
        for (key, value) in [("a", "1"), ("b", long.as_str()), ("c", "3")] {
            assert_eq!(client.ask(&format!("SET {key} {value}")), "OK");
        }
        assert_eq!(client.ask("HSET h f v"), "(1)");
        let requests =
            ["GET a", "SKV.RANGE - + LIMIT 4", "SET d 4", "GET c", "SKV.RANGE c + LIMIT 1", "PING", "EXISTS d"];
        let sent: Vec<u8> = requests.iter().flat_map(|line| of_words(line)).collect();
        for pieces in [sent.len(), 5] {
            assert!(client.number("DEL d") >= 0);
            sent.chunks(pieces).for_each(|piece| client.send(piece));
            let replies: Vec<String> = requests.iter().map(|_| client.read()).collect();
            let range = format!("[\"\", [\"a\", \"1\", \"b\", \"{long}\", \"c\", \"3\", \"h\", nil]]");
            let expected = ["\"1\"", &range, "OK", "\"3\"", "[\"(c\", [\"c\", \"3\"]]", "PONG", "(1)"];
            assert_eq!(replies, expected, "{engine:?}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_range_is_told() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    for (command, told) in [
        ("SKV.RANGE a", "-ERR wrong number of arguments for \\'skv.range\\' command"),
        ("SKV.RANGE + a", "-ERR a range begins at -, key, [key or (key"),
        ("SKV.RANGE a -", "-ERR a range ends at key, [key, (key or +"),
        ("SKV.RANGE a b LIMIT", "-ERR syntax error"),
        ("SKV.RANGE a b FROM c", "-ERR syntax error"),
        ("SKV.RANGE a b LIMIT x", "-ERR value is not an integer or out of range"),
        ("SKV.RANGE a b LIMIT 0", "-ERR LIMIT is from 1 to 1000: the rest comes with the next command"),
        ("SKV.RANGE a b LIMIT 1001", "-ERR LIMIT is from 1 to 1000: the rest comes with the next command"),
        ("SKV.PREFIX a REV FROM -", "-ERR a range ends at key, [key, (key or +"),
    ] {
        assert_eq!(client.ask(command), told, "{command}");
    }
    for engine in [Engine::Hash, Engine::Tier] {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let told = "-ERR the engine keeps keys in no order: SCAN lists them, and `slab` and `matrix` have ranges";
        client.send(&[of_words("SKV.RANGE - +"), of_words("PING")].concat());
        assert_eq!((client.read().as_str(), client.read().as_str()), (told, "PONG"));
        let told = "SERVER_ERROR the engine keeps keys in no order: lru_crawler mgdump all lists them\r\n";
        assert_eq!(bench.memcache("mr - + 5 v\r\nmn\r\n"), format!("{told}MN\r\n"));
    }
}

/// Long keys end a page before its limit, and none is lost.
#[test]
fn long_keys_are_bounded_in_bytes() {
    for engine in ORDERED {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let keys: Vec<String> = (0..100).map(|number| format!("{number:03}{}", "k".repeat(2000))).collect();
        for key in &keys {
            assert_eq!(client.ask(&format!("SET {key} v")), "OK");
        }
        assert!(page(&mut client, "SKV.RANGE - + LIMIT 1000 KEYS").1.len() < 40);
        assert_eq!(all(&mut client, ("-", "+"), "KEYS", 1000), keys, "{engine:?}");
        let backwards: Vec<String> = keys.iter().rev().cloned().collect();
        assert_eq!(all(&mut client, ("-", "+"), "KEYS REV", 1000), backwards, "{engine:?}");
    }
}

/// The same for memcache clients: what `mg` tells of each record.
#[test]
fn memcache_clients_have_ranges_too() {
    for engine in ORDERED {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        assert_eq!(bench.memcache("mr - + 5 v\r\n"), "EN\r\n");
        let sets = "set a 1 0 1\r\n1\r\nset b 2 1000 2\r\n22\r\nset c 3 0 0\r\n\r\n";
        assert_eq!(bench.memcache(sets), "STORED\r\n".repeat(3));
        assert_eq!(client.ask("SET \"white space\" w"), "OK");
        assert_eq!(client.ask("HSET h f v"), "(1)");
        for (command, told) in [
            ("mr - + 5", "HD ka\r\nHD kb\r\nHD kc\r\nHD kh\r\nHD kd2hpdGUgc3BhY2U= b\r\nEN\r\n"),
            ("mr - + 2 v f", "VA 1 ka f1\r\n1\r\nVA 2 kb f2\r\n22\r\nEN n(b\r\n"),
            ("mr (b + 2 f s", "HD kc f3 s0\r\nHD kh f1397446145 s16\r\nEN n(h\r\n"),
            ("mr (c + 2 v t", "HD kh\r\nVA 1 kd2hpdGUgc3BhY2U= b t-1\r\nw\r\nEN\r\n"),
            ("mr - + -1 v", "VA 1 kd2hpdGUgc3BhY2U= b\r\nw\r\nEN n(d2hpdGUgc3BhY2U= b\r\n"),
            ("mr [YQ== (Yg== 9 b v O7", "VA 1 kYQ== b O7\r\n1\r\nEN\r\n"),
            ("mr [YQ== (Yg== 9 b O7", "HD kYQ== b O7\r\nEN\r\n"),
            ("mr b a 9 v", "EN\r\n"),
        ] {
            let told_after = format!("{told}MN\r\nVALUE a 1 1\r\n1\r\nEND\r\n");
            assert_eq!(bench.memcache(&format!("{command}\r\nmn\r\nget a\r\n")), told_after, "{engine:?}, {command}");
        }
    }
}

/// Whoever asks for ranges of long values and never reads holds no more than others may.
#[test]
fn clients_that_never_read_their_ranges_hold_little() {
    let bench = Bench::of(Engine::Slab);
    let mut client = bench.connect();
    let long = "x".repeat(100_000);
    for number in 0..40 {
        assert_eq!(client.ask(&format!("SET {number:03} {long}")), "OK");
    }
    let deaf: Vec<Client> = (0..30)
        .map(|_| {
            let mut client = bench.connect();
            client.send(&of_words("SKV.RANGE - + LIMIT 1000").repeat(20));
            client
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(page(&mut client, "SKV.RANGE - + LIMIT 1000").1.len(), 80);
    }
    drop(deaf);
    let (peak, limit) = bench.client_memory();
    assert!(peak > 1 << 20 && peak <= limit, "{peak} of {limit} bytes");
}
