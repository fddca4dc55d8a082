//! Commands that a client sends on one long structure without waiting for their replies: they are
//! carried out as one, in their order, and each has its own reply.

use super::*;

/// How many commands were carried out with those that their client had sent before.
fn joined(bench: &Bench) -> u64 {
    let stats = bench.memcache("stats\r\n");
    let count = stats.split_once("structure_commands_joined ").and_then(|(_, rest)| rest.split_once("\r\n"));
    count.and_then(|(count, _)| count.parse().ok()).expect("a statistic")
}

/// Commands on the structures of a client, some of which fail.
fn command(random: &mut Random, owner: &str) -> String {
    let (field, number) = (random.below(400), random.below(1000));
    match random.below(16) {
        0..4 => format!("HSET {owner}:h f{field} {number}"),
        4 => format!("HINCRBY {owner}:h f{field} 7"),
        5 => format!("HINCRBY {owner}:h text 1"),
        6 => format!("HDEL {owner}:h f{field}"),
        7 => format!("HGET {owner}:h f{field}"),
        8 => format!("LPUSH {owner}:h not-a-list"),
        9 => format!("ZADD {owner}:z {number} m{field}"),
        10 => format!("ZADD {owner}:z nan m{field}"),
        11 => format!("ZPOPMIN {owner}:z 2"),
        12 => format!("ZINCRBY {owner}:z -3 m{field}"),
        13 => format!("RPUSH {owner}:l {number} {field}"),
        14 => format!("LSET {owner}:l 100000 x"),
        _ => format!("LPOP {owner}:l"),
    }
}

/// Structures that are long.
fn begin(client: &mut Client, owner: &str) {
    fill(client, &format!("{owner}:h"), 400);
    assert_eq!(client.ask(&format!("HSET {owner}:h text text")), "(1)");
    let members = (0..400).flat_map(|number| [number.to_string(), format!("m{number}")]);
    assert_eq!(client.ask(&words(&format!("ZADD {owner}:z"), members)), "(400)");
    let elements = (0..2000).map(|number| format!("element-{number}"));
    assert_eq!(client.ask(&words(&format!("RPUSH {owner}:l"), elements)), "(2000)");
}

#[test]
fn a_pipeline_is_answered_as_its_commands_one_by_one() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        begin(&mut client, "one");
        begin(&mut client, "other");
        let mut random = Random::new(11);
        for round in 0..40 {
            let commands: Vec<(String, String)> = (0..60)
                .map(|_| {
                    let mut again = random.clone();
                    (command(&mut random, "one"), command(&mut again, "other"))
                })
                .collect();
            let told: Vec<String> = commands.iter().map(|(one, _)| client.ask(one)).collect();
            // Some runs are long: a client that fills one structure.
            let mut others: Vec<&String> = commands.iter().map(|(_, other)| other).collect();
            let mut expected: Vec<&String> = told.iter().collect();
            if round % 2 == 0 {
                let order: Vec<usize> = sorted_by_key(&others);
                others = order.iter().map(|at| others[*at]).collect();
                expected = order.iter().map(|at| expected[*at]).collect();
            }
            client.send(&others.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
            for (line, expected) in others.iter().zip(expected) {
                assert_eq!(client.read(), *expected, "{engine:?}, round {round}: {line}");
            }
        }
        for question in ["HGETALL _:h", "ZRANGE _:z 0 -1 WITHSCORES", "LRANGE _:l 0 -1"] {
            let [one, other] = ["one", "other"].map(|owner| client.ask(&question.replace('_', owner)));
            assert_eq!(one, other, "{engine:?}");
        }
        assert!(joined(&bench) > 500, "{engine:?}: {} commands were carried out with others", joined(&bench));
    }
}

/// Places of lines in the order of their keys; those of one key keep their order.
fn sorted_by_key(lines: &[&String]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..lines.len()).collect();
    places.sort_by_key(|at| lines[*at].split(' ').nth(1).map(str::to_owned));
    places
}

#[test]
fn pipelines_of_many_clients_on_one_list_keep_their_order_with_much_memory_and_with_little() {
    const BATCHES: usize = 5;
    const EACH: usize = 40;
    for (engine, memory, padding) in [
        (Engine::Hash, None, 20),
        (Engine::Slab, None, 1500),
        (Engine::Matrix, Some(1 << 20), 1500),
        (Engine::Hash, Some(1 << 20), 3000),
    ] {
        let bench = Bench::with(engine, |options| options.limits.client_memory_bytes = memory);
        let mut client = bench.connect();
        let first = (0..600).map(|number| format!("first-element-{number:04}"));
        assert_eq!(client.number(&words("RPUSH l", first)), 600);
        let told = at_once(&bench, 8, |client, connection| {
            let mut told = Vec::new();
            for batch in 0..BATCHES {
                let elements: Vec<String> = (0..EACH)
                    .map(|number| format!("{client}-{}-{}", batch * EACH + number, "p".repeat(padding)))
                    .collect();
                connection
                    .send(&elements.iter().flat_map(|one| of_words(&format!("RPUSH l {one}"))).collect::<Vec<u8>>());
                for element in elements {
                    let reply = connection.read();
                    let len: usize = reply.trim_matches(['(', ')']).parse().unwrap_or_else(|_| panic!("{reply}"));
                    told.push((len, element));
                }
            }
            assert!(told.is_sorted_by_key(|(len, _)| *len), "{engine:?}: what is sent first comes first");
            told
        });
        let mut elements = Vec::new();
        while elements.len() < client.number("LLEN l") as usize {
            let from = elements.len();
            elements.extend(of_array(&client.ask(&format!("LRANGE l {from} {}", from + 49))));
        }
        assert_eq!(elements.len(), 600 + 8 * BATCHES * EACH, "{engine:?}");
        for (len, element) in told.iter().flatten() {
            assert_eq!(&elements[len - 1], element, "{engine:?}: where its reply says");
        }
        if memory.is_none() {
            assert!(joined(&bench) > 100, "{engine:?}: {}", joined(&bench));
        }
        let (peak, limit) = bench.client_memory();
        assert!(peak <= limit, "{engine:?}: {peak} of {limit} bytes");
    }
}

#[test]
fn each_command_of_a_pipeline_that_the_store_refuses_is_told_so() {
    let bench = Bench::of(Engine::Hash);
    let mut client = bench.connect();
    fill(&mut client, "h", 400);
    for bytes in [900 << 10, 120 << 10, 16 << 10, 3 << 10, 500] {
        let value = "v".repeat(bytes);
        let stored = (0..100_000).take_while(|at| client.ask(&format!("SET {bytes}:{at} {value}")) == "OK").count();
        assert!(stored < 100_000, "{stored} values of {bytes} bytes: then it is full");
    }
    let value = "v".repeat(4000);
    let lines = (0..300).flat_map(|number| of_words(&format!("HSET h new{number} {value}")));
    client.send(&lines.collect::<Vec<u8>>());
    client.send(b"PING\r\n");
    let (mut done, mut refused) = (0, 0);
    for _ in 0..300 {
        match client.read() {
            told if told == "(1)" => done += 1,
            told if told.contains("OOM") => refused += 1,
            told => panic!("{told}"),
        }
    }
    assert_eq!(client.read(), "PONG", "one reply for each command");
    assert_eq!(client.number("HLEN h"), 400 + done);
    assert!(refused > 100 && joined(&bench) > 50, "{refused} refused, {} joined", joined(&bench));
}

/// What a long `LPOP` misses and answers has no room among the commands of others: whoever carries
/// out the commands before it leaves it, and those behind it, to its own client.
#[test]
fn a_pipeline_with_a_long_command_amid_short_ones_is_carried_out_once_and_in_order() {
    const CLIENTS: usize = 6;
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let element = |name: String| format!("{name}-{}", "p".repeat(1200));
        for part in 0..16 {
            let all = (0..300).map(|number| element(format!("first-{part}-{number}")));
            client.ask(&words("RPUSH l", all));
        }
        let all = at_once(&bench, CLIENTS, |client, connection| {
            let mut popped = Vec::new();
            for round in 0..6 {
                let push = |number: usize| format!("RPUSH l {}", element(format!("{client}-{round}-{number}")));
                let pop = "LPOP l 60".to_owned();
                let lines = [push(0), push(1), pop.clone(), push(2), push(3), pop, push(4)];
                connection.send(&lines.iter().flat_map(|line| of_words(line)).collect::<Vec<u8>>());
                let mut last = 0;
                for line in &lines {
                    let told = connection.read();
                    if line.starts_with("LPOP") {
                        let elements = of_array(&told);
                        assert_eq!(elements.len(), 60, "{engine:?}: {}", &told[..told.len().min(100)]);
                        popped.push(elements);
                        last = 0;
                        continue;
                    }
                    let len: usize = told.trim_matches(['(', ')']).parse().unwrap_or_else(|_| panic!("{told}"));
                    assert!(len > 0 && len != last, "{engine:?}: {told}");
                    last = len;
                }
            }
            popped
        });
        let mut left: Vec<String> = all.into_iter().flatten().flatten().collect();
        while client.number("LLEN l") > 0 {
            left.extend(of_array(&client.ask("LPOP l 40")));
        }
        let pushed = (0..CLIENTS).flat_map(|client| {
            (0..6).flat_map(move |round| (0..5).map(move |number| format!("{client}-{round}-{number}")))
        });
        let first = (0..16).flat_map(|part| (0..300).map(move |number| format!("first-{part}-{number}")));
        let mut expected: Vec<String> = first.chain(pushed).map(element).collect();
        left.sort_unstable();
        expected.sort_unstable();
        assert!(left == expected, "{engine:?}: {} elements of {}, each once", left.len(), expected.len());
    }
}

/// Each has room alone, and all of them have not.
#[test]
fn commands_of_a_pipeline_that_have_no_room_together_go_one_by_one() {
    for engine in WITH_TREES {
        let bench = Bench::with(engine, |options| options.limits.client_memory_bytes = Some(1 << 20));
        let mut client = bench.connect();
        let long = "v".repeat(60_000);
        for number in 0..40 {
            assert_eq!(client.ask(&format!("HSET h f{number} {long}")), "(1)", "{engine:?}");
        }
        let lines = (0..40).flat_map(|number| of_words(&format!("HDEL h f{number} f{number}")));
        client.send(&lines.collect::<Vec<u8>>());
        for number in 0..40 {
            assert_eq!(client.read(), "(1)", "{engine:?}, {number}");
        }
        assert_eq!(client.number("EXISTS h"), 0, "{engine:?}");
        assert!(joined(&bench) > 10, "{engine:?}: {}", joined(&bench));
        // So are long replies, of which each is sent before the next one is made.
        for number in 0..40 {
            assert_eq!(client.ask(&format!("RPUSH l {number}-{long}")), format!("({})", number + 1), "{engine:?}");
        }
        client.send(&(0..40).flat_map(|_| of_words("LPOP l")).collect::<Vec<u8>>());
        for number in 0..40 {
            let told = client.read();
            let begun = format!("\"{number}-v");
            assert!(
                told.starts_with(&begun) && told.len() > 60_000,
                "{engine:?}, {number}: {}",
                &told[..told.len().min(80)]
            );
        }
        // One that can never have room is refused alone.
        for number in 0..10 {
            assert_eq!(client.ask(&format!("HSET h f{number} {long}")), "(1)", "{engine:?}");
        }
        fill(&mut client, "h", 100);
        client.send(&of_words("HSET h a 1"));
        let all = (0..10).map(|number| format!("f{number}"));
        client.send(&of_words(&words("HDEL h", all.clone().chain(all))));
        client.send(&[of_words("HSET h b 1"), of_words("HSET h a 2"), of_words("PING")].concat());
        let told: Vec<String> = (0..5).map(|_| client.read()).collect();
        assert_eq!((&told[0][..], &told[2][..], &told[3][..], &told[4][..]), ("(1)", "(1)", "(0)", "PONG"), "{told:?}");
        assert!(told[1] == "(10)" || told[1].contains("raise --memory"), "{engine:?}: {}", told[1]);
        let (peak, limit) = bench.client_memory();
        assert!(peak <= limit, "{engine:?}: {peak} of {limit} bytes");
    }
}
