//! Long structures: trees whose nodes are records of their own.

use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Key};
use stratakv_engine::{Operation, PageRequest, Reply};

use super::*;

mod pipelines;

/// Engines with batches, and so with trees.
const WITH_TREES: [Engine; 3] = [Engine::Slab, Engine::Hash, Engine::Matrix];

/// How many nodes lie in a store.
fn nodes(store: &Store) -> usize {
    nodes_from(store, Key::bound(CollectionId::NODES, b""), true).len()
}

/// The keys of nodes from one on, and the lengths of their values.
fn nodes_from(store: &Store, from: Key, keys_only: bool) -> Vec<(Vec<u8>, u64)> {
    let to = Bound::Excluded(Key::bound(CollectionId(CollectionId::NODES.0 + 1), b""));
    let (mut found, mut from) = (Vec::new(), Bound::Included(from));
    loop {
        let page = PageRequest {
            from,
            to: to.clone(),
            reverse: false,
            keys_only,
            items_max: 1000,
            bytes_max: 1 << 20,
            at: None,
        };
        match store.execute(Operation::Page(page.into())) {
            Reply::Page { items, next } => {
                found.extend(
                    items
                        .into_iter()
                        .map(|item| (item.key.user().to_vec(), item.record.map_or(0, |record| record.value_bytes))),
                );
                match next {
                    Some(next) => from = next,
                    None => return found,
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until no nodes are left.
fn await_no_nodes(store: &Store, why: &str) {
    let until = Instant::now() + Duration::from_secs(30);
    while nodes(store) > 0 {
        assert!(Instant::now() < until, "{} nodes are left: {why}", nodes(store));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command of a name, a key and more words.
fn words(front: &str, rest: impl IntoIterator<Item = String>) -> String {
    rest.into_iter().fold(front.to_owned(), |line, word| line + " " + &word)
}

fn quoted<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let all: Vec<String> = texts.into_iter().map(|text| format!("\"{text}\"")).collect();
    format!("[{}]", all.join(", "))
}

#[test]
fn a_long_hash_is_a_map() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let (mut client, mut random) = (bench.connect(), Random::new(5));
        let mut model = BTreeMap::<String, String>::new();
        for step in 0..400 {
            let fields: Vec<String> = (0..random.below(30) + 1).map(|_| format!("f{}", random.below(900))).collect();
            if step % 8 < 6 {
                let pairs: Vec<(String, String)> =
                    fields.iter().map(|field| (field.clone(), format!("{step}:{}", "v".repeat(step % 50)))).collect();
                let new = pairs.iter().filter(|(field, value)| model.insert(field.clone(), value.clone()).is_none());
                let new = new.count();
                let told = client.ask(&words("HSET h", pairs.into_iter().flat_map(|(field, value)| [field, value])));
                assert_eq!(told, format!("({new})"), "{engine:?}, step {step}");
            } else {
                let gone = fields.iter().filter(|field| model.remove(*field).is_some()).count();
                assert_eq!(client.ask(&words("HDEL h", fields)), format!("({gone})"), "{engine:?}, step {step}");
            }
            let field = format!("f{}", random.below(900));
            let held = model.get(&field).map_or("nil".to_owned(), |value| format!("\"{value}\""));
            assert_eq!(client.ask(&format!("HGET h {field}")), held);
            assert_eq!(client.number("HLEN h"), model.len() as i64);
        }
        assert!(nodes(&bench.store) > 10, "{engine:?}");
        assert_eq!(client.ask("HKEYS h"), quoted(model.keys()));
        assert_eq!(client.ask("HVALS h"), quoted(model.values()));
        assert_eq!(client.ask("TYPE h"), "hash");
        assert_eq!(client.ask("KEYS *"), "[\"h\"]", "{engine:?}");
        // Of `matrix` the number is an estimate.
        assert!(client.number("DBSIZE") == 1 || engine == Engine::Matrix, "{engine:?}");
        assert_eq!(client.ask("SCAN 0 COUNT 1000"), "[\"0\", [\"h\"]]", "{engine:?}");
        // It is packed again when it is short.
        let fields: Vec<String> = model.keys().skip(3).cloned().collect();
        assert_eq!(client.number(&words("HDEL h", fields)), model.len() as i64 - 3);
        assert_eq!(nodes(&bench.store), 0, "{engine:?}");
        assert_eq!(client.ask("HKEYS h"), quoted(model.keys().take(3)));
    }
}

#[test]
fn a_long_sorted_set_is_in_order() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let (mut client, mut random) = (bench.connect(), Random::new(6));
        let mut model = BTreeMap::<String, i64>::new();
        for step in 0..150 {
            let count = if step % 5 < 4 { 30 } else { 12 };
            let given: Vec<(String, i64)> =
                (0..count).map(|_| (format!("m{:04}", random.below(1500)), random.below(100) as i64)).collect();
            if step % 5 < 4 {
                given.iter().for_each(|(member, score)| _ = model.insert(member.clone(), *score));
                client.ask(&words(
                    "ZADD z",
                    given.iter().flat_map(|(member, score)| [score.to_string(), member.clone()]),
                ));
            } else {
                given.iter().for_each(|(member, _)| _ = model.remove(member));
                client.ask(&words("ZREM z", given.iter().map(|(member, _)| member.clone())));
            }
            let mut order: Vec<(i64, &String)> = model.iter().map(|(member, score)| (*score, member)).collect();
            order.sort();
            assert_eq!(client.number("ZCARD z"), order.len() as i64, "{engine:?}");
            let (from, to) = (random.below(order.len() as u64) as usize, random.below(order.len() as u64) as usize);
            let part: Vec<&String> =
                order.iter().skip(from).take((to + 1).saturating_sub(from)).map(|entry| entry.1).collect();
            assert_eq!(client.ask(&format!("ZRANGE z {from} {to}")), quoted(part), "{engine:?}, step {step}");
            let place = random.below(order.len() as u64) as usize;
            assert_eq!(client.number(&format!("ZRANK z {}", order[place].1)), place as i64);
            assert_eq!(client.number(&format!("ZREVRANK z {}", order[place].1)), (order.len() - 1 - place) as i64);
            let between = order.iter().filter(|entry| (20..40).contains(&entry.0)).count();
            assert_eq!(client.number("ZCOUNT z 20 (40"), between as i64, "{engine:?}");
            let scored: Vec<&String> =
                order.iter().filter(|entry| entry.0 >= 20).skip(3).take(7).map(|entry| entry.1).collect();
            assert_eq!(client.ask("ZRANGE z 20 +inf BYSCORE LIMIT 3 7"), quoted(scored), "{engine:?}");
        }
        let mut order: Vec<(i64, String)> = model.iter().map(|(member, score)| (*score, member.clone())).collect();
        order.sort();
        assert!(nodes(&bench.store) > 20, "{engine:?}");
        let popped: Vec<String> =
            order.iter().take(20).flat_map(|(score, member)| [member.clone(), score.to_string()]).collect();
        assert_eq!(client.ask("ZPOPMIN z 20"), quoted(&popped), "{engine:?}");
        let low = order.iter().skip(20).filter(|entry| entry.0 <= 50).count();
        assert_eq!(client.number("ZREMRANGEBYSCORE z -inf 50"), low as i64, "{engine:?}");
        let left = order.len() - 20 - low;
        assert_eq!((client.number("ZCARD z"), client.number("ZREMRANGEBYRANK z 0 -1")), (left as i64, left as i64));
        assert_eq!((nodes(&bench.store), client.ask("EXISTS z").as_str()), (0, "(0)"), "{engine:?}");
    }
}

#[test]
fn a_long_list_is_a_queue_and_a_long_set_has_each_member_once() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let (mut client, mut random) = (bench.connect(), Random::new(7));
        let (mut list, mut set) = (std::collections::VecDeque::<String>::new(), BTreeSet::<String>::new());
        for step in 0..300 {
            let texts: Vec<String> =
                (0..random.below(20) + 1).map(|_| format!("job:{:05}", random.below(3000))).collect();
            match step % 6 {
                0..3 => {
                    list.extend(texts.iter().cloned());
                    assert_eq!(client.number(&words("RPUSH l", texts.iter().cloned())), list.len() as i64);
                }
                3 => {
                    texts.iter().for_each(|text| list.push_front(text.clone()));
                    assert_eq!(client.number(&words("LPUSH l", texts.iter().cloned())), list.len() as i64);
                }
                _ => {
                    let taken: Vec<String> = (0..7).filter_map(|_| list.pop_front()).collect();
                    assert_eq!(client.ask("LPOP l 7"), quoted(&taken), "{engine:?}, step {step}");
                }
            }
            let place = random.below(list.len() as u64) as usize;
            assert_eq!(client.ask(&format!("LINDEX l {place}")), format!("\"{}\"", list[place]), "{engine:?}");
            if step % 4 == 0 {
                assert_eq!(client.ask(&format!("LSET l {place} set:{step}")), "OK");
                list[place] = format!("set:{step}");
                assert_eq!(client.number(&format!("LPOS l set:{step}")), place as i64, "{engine:?}");
                assert_eq!(client.number(&format!("LINSERT l AFTER set:{step} new:{step}")), list.len() as i64 + 1);
                list.insert(place + 1, format!("new:{step}"));
                assert_eq!(client.number(&format!("LREM l -1 set:{step}")), 1);
                list.remove(place);
            }
            let new = texts.iter().filter(|text| set.insert((*text).clone())).count();
            assert_eq!(client.number(&words("SADD s", texts.iter().cloned())), new as i64, "{engine:?}");
            if step % 3 == 0 {
                let member = client.ask("SPOP s");
                assert!(set.remove(member.trim_matches('"')), "{engine:?}: {member}");
            }
        }
        assert_eq!(client.ask("LRANGE l 0 -1"), quoted(&list), "{engine:?}");
        assert_eq!(client.number("SCARD s"), set.len() as i64);
        let mut members: Vec<String> = of_array(&client.ask("SMEMBERS s"));
        members.sort();
        assert!(members.iter().eq(&set), "{engine:?}");
        let drawn: BTreeSet<String> = of_array(&client.ask("SRANDMEMBER s 50")).into_iter().collect();
        assert!(drawn.len() == 50 && drawn.is_subset(&set), "{engine:?}");
        // Elements move between long ones.
        let last = list.pop_back().unwrap();
        assert_eq!(client.ask("LMOVE l l RIGHT LEFT"), format!("\"{last}\""));
        list.push_front(last);
        assert_eq!(client.ask("LTRIM l 5 -900"), "OK");
        let kept: Vec<String> = list.iter().skip(5).take(list.len() + 1 - 905).cloned().collect();
        assert_eq!(client.ask("LRANGE l 0 -1"), quoted(&kept), "{engine:?}");
    }
}

/// The elements of an array of strings.
fn of_array(told: &str) -> Vec<String> {
    let inner = told.trim_matches(['[', ']']);
    inner.split(", ").map(|text| text.trim_matches('"').to_owned()).collect()
}

/// A hash of so many fields under a key.
fn fill(client: &mut Client, key: &str, fields: usize) {
    for part in (0..fields).collect::<Vec<_>>().chunks(200) {
        let pairs = part.iter().flat_map(|number| [format!("f{number:06}"), format!("value-of-{number}")]);
        client.ask(&words(&format!("HSET {key}"), pairs));
    }
}

/// Whatever takes the root away, its nodes go.
#[test]
fn nodes_go_with_their_root() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        for removal in ["DEL h", "UNLINK h x", "RENAME other h", "SINTERSTORE h a b", "FLUSHALL"] {
            fill(&mut client, "h", 3000);
            assert!(nodes(&bench.store) > 30, "{engine:?}");
            client.ask("SET other 1");
            client.ask(removal);
            await_no_nodes(&bench.store, removal);
            client.ask("FLUSHALL");
        }
        fill(&mut client, "h", 3000);
        fill(&mut client, "longer:h", 100);
        fill(&mut client, "longer:h", 1000);
        let before = nodes(&bench.store);
        assert_eq!(client.ask("PEXPIRE h 1"), "(1)");
        assert_eq!(bench.memcache("delete longer:h\r\n"), "DELETED\r\n");
        fill(&mut client, "stays", 1000);
        // A server that starts looks for what lies about.
        let Bench { server, store, _directory } = bench;
        drop(server);
        let mut options = ServerOptions { memcache: vec![ANY_PORT], threads: 2, ..ServerOptions::default() };
        options.resp = RespListeners { addresses: vec![ANY_PORT], ..RespListeners::default() };
        let bench = Bench { server: Server::start(store.clone(), options).unwrap(), store, _directory };
        let until = Instant::now() + Duration::from_secs(30);
        while nodes(&bench.store) >= before {
            assert!(Instant::now() < until, "{engine:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut client = bench.connect();
        assert_eq!(
            (client.number("HLEN stays"), client.ask("HGET stays f000999").as_str()),
            (1000, "\"value-of-999\"")
        );
        client.ask("DEL stays");
        await_no_nodes(&bench.store, "DEL stays");
    }
}

#[test]
fn long_structures_are_renamed_and_copied_whole() {
    for engine in WITH_TREES {
        let bench = Bench::with(engine, |_| {});
        let mut client = bench.connect();
        fill(&mut client, "{h}:1", 2000);
        let told = client.ask("HGETALL {h}:1");
        client.ask("PEXPIRE {h}:1 100000");
        let copied = client.ask("COPY {h}:1 {h}:2");
        let is_of_one_shard = !copied.contains("batch");
        assert!(is_of_one_shard, "{engine:?}: {copied}");
        assert_eq!(client.ask("RENAME {h}:1 {h}:3"), "OK");
        client.ask("HSET {h}:2 f000000 changed");
        assert_eq!(client.ask("HGETALL {h}:3"), told, "{engine:?}");
        assert_eq!((client.number("HLEN {h}:2"), client.ask("HGET {h}:2 f000000").as_str()), (2000, "\"changed\""));
        assert!((1..=100_000).contains(&client.number("PTTL {h}:3")), "{engine:?}");
        client.ask("DEL {h}:2 {h}:3");
        await_no_nodes(&bench.store, "DEL");
    }
}

#[test]
fn transactions_change_long_structures_as_a_whole_or_not_at_all() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let (mut client, mut other) = (bench.connect(), bench.connect());
        fill(&mut client, "h", 3000);
        client.ask("WATCH h");
        other.ask("HSET h f000001 theirs");
        client.ask("MULTI");
        client.ask("HSET h f000002 mine");
        assert_eq!(client.ask("EXEC"), "nil array", "{engine:?}");
        client.ask("MULTI");
        for command in ["HSET h f000002 mine", "HINCRBY h f000003 1", "HGET h f000002", "HDEL h f000004", "HLEN h"] {
            assert_eq!(client.ask(command), "QUEUED");
        }
        let told = client.ask("EXEC");
        let refused = "-ERR hash value is not an integer";
        assert_eq!(told, format!("[(0), {refused}, \"mine\", (1), (2999)]"), "{engine:?}");
        assert_eq!(
            client.ask("HMGET h f000001 f000002 f000003 f000004"),
            "[\"theirs\", \"mine\", \"value-of-3\", nil]"
        );
    }
}

/// Clients that change one long structure at once lose nothing, and none waits for ever.
#[test]
fn many_clients_work_on_one_long_list() {
    const CLIENTS: usize = 12;
    const JOBS: usize = 60;
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        for part in 0..10 {
            client.ask(&words("RPUSH jobs", (0..100).map(|number| format!("filler:{part}:{number}"))));
        }
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let bench = &bench;
                scope.spawn(move || {
                    let mut client = bench.connect();
                    for job in 0..JOBS {
                        let told = client.ask(&format!("RPUSH jobs job:{number}:{job}"));
                        assert!(told.starts_with('('), "{engine:?}: {told}");
                        assert!(client.ask("LRANGE jobs 100 110").starts_with("[\"filler"), "{engine:?}");
                    }
                });
            }
        });
        let jobs = of_array(&client.ask("LRANGE jobs 1000 -1"));
        assert_eq!(jobs.iter().collect::<BTreeSet<_>>().len(), CLIENTS * JOBS, "{engine:?}");
        for number in 0..CLIENTS {
            let of_client = jobs.iter().filter(|job| job.starts_with(&format!("job:{number}:")));
            assert!(of_client.eq((0..JOBS).map(|job| format!("job:{number}:{job}")).collect::<Vec<_>>().iter()));
        }
    }
}

/// A walk by cursors meets each element that is there all the time once, whatever else comes and
/// goes, and each page is short.
#[test]
fn walks_over_long_structures_go_page_by_page() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        fill(&mut client, "h", 2000);
        for part in 0..20 {
            let numbers = || part * 100..part * 100 + 100;
            client.ask(&words("SADD s", numbers().map(|number| format!("f{number:06}"))));
            client.ask(&words(
                "ZADD z",
                numbers().flat_map(|number| [(number % 7).to_string(), format!("f{number:06}")]),
            ));
        }
        for (scan, key, is_paired) in [("HSCAN", "h", true), ("SSCAN", "s", false), ("ZSCAN", "z", true)] {
            let (mut cursor, mut seen, mut pages) = ("0".to_owned(), Vec::new(), 0);
            loop {
                let told = client.ask(&format!("{scan} {key} {cursor} COUNT 100"));
                let (next, elements) = told.split_once(", ").unwrap();
                let elements = of_array(elements);
                assert!(elements.len() <= 200, "{engine:?}, {scan}: {} elements", elements.len());
                seen.extend(elements.into_iter().step_by(if is_paired { 2 } else { 1 }));
                pages += 1;
                cursor = next.trim_matches(['[', '"']).to_owned();
                // Others come and go, before and behind the place.
                match key {
                    "h" => client.ask(&format!("HSET h f0{pages:05}x 1 f9{pages:05} 1")),
                    "s" => client.ask(&format!("SADD s f0{pages:05}x f9{pages:05}")),
                    _ => client.ask(&format!("ZADD z 3 f0{pages:05}x {pages} f000{pages:03}")),
                };
                if cursor == "0" {
                    break;
                }
            }
            assert!((20..50).contains(&pages), "{engine:?}, {scan}: {pages} pages");
            let lasting = seen.iter().filter(|field| field.len() == 7 && field.starts_with("f00"));
            let wanted: Vec<String> = (0..2000).map(|number| format!("f{number:06}")).collect();
            assert!(lasting.eq(&wanted), "{engine:?}, {scan}");
            let told = client.ask(&format!("{scan} {key} 12345"));
            assert!(told.starts_with("-ERR invalid cursor"), "{engine:?}, {scan}: {told}");
        }
        let told = client.ask("HSCAN h 0 MATCH f00001? COUNT 4000");
        assert!(told.contains("f000019") && !told.contains("f000020"), "{engine:?}: {told}");
    }
}

/// Clients that wait for elements take them off long lists too.
#[test]
fn clients_that_wait_take_elements_off_long_lists() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let (mut client, mut other) = (bench.connect(), bench.connect());
        client.ask(&words("RPUSH l", (0..2000).map(|number| format!("job:{number}"))));
        assert_eq!(client.ask("BLPOP none l 1"), "[\"l\", \"job:0\"]", "{engine:?}");
        assert_eq!(client.ask("BLMOVE {l}2 l LEFT LEFT 0.01"), "nil array", "{engine:?}");
        other.send(&of_words("BLMPOP 0 2 {l}2 {l}3 LEFT COUNT 3"));
        client.ask(&words("RPUSH {l}2", (0..1500).map(|number| format!("other:{number}"))));
        assert_eq!(other.read(), "[\"{l}2\", [\"other:0\", \"other:1\", \"other:2\"]]", "{engine:?}");
        assert_eq!((client.number("LLEN l"), client.number("LLEN {l}2")), (1999, 1497), "{engine:?}");
    }
}

/// The cache has no batches: its structures are packed, and as long as a value.
#[test]
fn structures_of_the_cache_stay_packed() {
    let bench = Bench::with(Engine::Tier, |options| options.limits.item_bytes_max = 64 << 10);
    let mut client = bench.connect();
    fill(&mut client, "h", 1500);
    assert_eq!(client.number("HLEN h"), 1500);
    fill(&mut client, "h", 3000);
    let told = client.ask(&words("HSET h", ["x".to_owned(), "y".repeat(60 << 10)]));
    assert!(told.contains("`tier` has no longer ones") && told.contains("--item-bytes-max"), "{told}");
}

/// Commands of two keys made each other repeat until they gave up with an error. Now those that
/// were not the first take turns, and every client comes to its own.
#[test]
fn clients_that_move_elements_between_two_lists_do_not_fail() {
    const CLIENTS: usize = 40;
    for (engine, elements) in [(Engine::Slab, 1000), (Engine::Matrix, 1000), (Engine::Slab, 40)] {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        for list in ["a", "b"] {
            let line =
                (0..elements).fold(format!("RPUSH {list}"), |line, number| format!("{line} element-{number:06}"));
            assert_eq!(client.number(&line), elements);
        }
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let bench = &bench;
                scope.spawn(move || {
                    let mut client = bench.connect();
                    let line = if number % 2 == 0 { "LMOVE a b LEFT RIGHT" } else { "LMOVE b a LEFT RIGHT" };
                    for _ in 0..8 {
                        let told = client.ask(line);
                        assert!(told.starts_with("\"element-"), "{engine:?}, {elements}: {told}");
                    }
                });
            }
        });
        assert_eq!((client.number("LLEN a"), client.number("LLEN b")), (elements, elements), "{engine:?}");
    }
}

#[test]
fn commands_of_many_clients_on_one_tree_are_carried_out_together_and_once() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let first: Vec<String> = (0..600).map(|number| format!("first-element-{number:04}")).collect();
        assert_eq!(client.number(&words("RPUSH l", first.iter().cloned())), 600);
        let told = at_once(&bench, 12, |client, connection| {
            if client >= 10 {
                // It leaves amid its commands.
                for number in 0..30 {
                    let mut other = bench.connect();
                    other.send(format!("RPUSH l gone-{client}-{number}\r\n").as_bytes());
                }
                return Vec::new();
            }
            let mut told = Vec::new();
            for number in 0..40 {
                let line =
                    format!("RPUSH l {client}-{number}\r\nHGET l f\r\nLINDEX l 599\r\nLPOS l {client}-{number}\r\n");
                connection.send(line.as_bytes());
                let len: usize = connection.read().trim_matches(['(', ')']).parse().expect("a length");
                assert!(connection.read().contains("WRONGTYPE"), "{engine:?}");
                assert_eq!(connection.read(), "\"first-element-0599\"", "{engine:?}");
                assert_eq!(connection.read(), format!("({})", len - 1), "{engine:?}");
                told.push((len, format!("{client}-{number}")));
            }
            told
        });
        let text = client.ask("LRANGE l 0 -1");
        let elements: Vec<&str> = text.trim_matches(['[', ']']).split(", ").map(|one| one.trim_matches('"')).collect();
        for (len, element) in told.iter().flatten() {
            assert_eq!(elements[len - 1], element, "{engine:?}: where its reply says");
        }
        let gone = elements.iter().filter(|element| element.starts_with("gone")).count();
        assert_eq!(elements.len(), 600 + 400 + gone, "{engine:?}");
        let each: BTreeSet<&&str> = elements.iter().collect();
        assert_eq!(each.len(), elements.len(), "{engine:?}: once each");
        let stats = bench.memcache("stats\r\n");
        let carried = stats.split_once("structure_commands_carried ").and_then(|(_, rest)| rest.split_once("\r\n"));
        let carried: u64 = carried.and_then(|(count, _)| count.parse().ok()).expect("a statistic");
        assert!(carried > 50, "{engine:?}: {carried} were carried out with another");
    }
}

/// What can have room in the memory for clients goes through, and what never can is refused at
/// once. Before, a `ZADD` of two members of 1 MB waited for memory that it held itself, until its
/// client was closed.
#[test]
fn commands_that_make_long_structures_go_through_or_are_refused_at_once() {
    let long = |letter: char| letter.to_string().repeat(1_000_000);
    let both = |front: &str, between: &str| format!("{front}{} {between}{}", long('a'), long('b'));
    for engine in WITH_TREES {
        // As with 64 MiB for server and store.
        let bench = Bench::with(engine, |options| options.limits.client_memory_bytes = Some(8 << 20));
        let (mut client, most) = (bench.connect(), 4 << 20);
        for (line, told) in [
            (both("ZADD z 1 ", "2 "), "(2)"),
            (both("HSET h a ", "b "), "(2)"),
            (both("HSET h a ", "b "), "(0)"),
            (both("RPUSH l ", ""), "(2)"),
            (both("LPUSH l ", ""), "(4)"),
            (both("SADD s ", ""), "(2)"),
            (both("SADD s ", ""), "(0)"),
            (format!("SADD t {}", long('a')), "(1)"),
            (format!("SADD u {}", long('b')), "(1)"),
        ] {
            assert_eq!(client.ask(&line), told, "{engine:?}, {}", &line[..10]);
        }
        for (line, told) in [
            ("SUNIONSTORE v t u", "(2)"),
            ("SINTERSTORE v t u", "(0)"),
            ("COPY t w", "(1)"),
            ("RENAME w x", "OK"),
            ("LMOVE l l2 LEFT RIGHT", &format!("\"{}\"", long('b'))),
            ("ZUNIONSTORE zz 1 t", "(1)"),
        ] {
            assert_eq!(client.ask(line), told, "{engine:?}, {line}");
        }
        // It has four members of half of the memory, and would be read as a whole.
        for line in ["COPY z z2", "RENAME s s2", "SUNIONSTORE v s t", "ZUNIONSTORE zz 2 z s"] {
            let told = client.ask(line);
            assert!(told.contains("too much for one command"), "{engine:?}, {line}: {told}");
        }
        // What is read and what is written of both trees has more than a command may have.
        let told = client.ask(&both("ZADD z 3 ", "4 "));
        assert!(told.contains(&format!("may have {most}")), "{engine:?}: {told}");
        // The separator of the two has as many bytes as they have.
        let alike = format!("ZADD y 1 {0}a 2 {0}b", long('a'));
        let told = client.ask(&alike);
        assert!(told.contains(&format!("may have {most}")), "{engine:?}: {told}");
        assert_eq!(client.ask("EXISTS y"), "(0)");
        // A transaction that queues as much as it may has less room for what it makes.
        for (count, is_done) in [(1, true), (3, false)] {
            assert_eq!(client.ask("MULTI"), "OK");
            for number in 0..count {
                assert_eq!(client.ask(&format!("ZADD m{number} 1 {}", long('a'))), "QUEUED");
            }
            let told = client.ask("EXEC");
            assert_eq!(told == "[(1)]", is_done, "{engine:?}, {count}: {told}");
            assert!(is_done || told.contains("raise --memory"), "{engine:?}, {count}: {told}");
        }
        let (peak, limit) = bench.client_memory();
        assert!(peak <= limit, "{engine:?}: {peak} of {limit} bytes");
    }
}

/// The time of many draws was that of as many searches from the root.
#[test]
fn elements_drawn_by_lot_come_in_the_order_of_the_draw() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let names: Vec<String> = (0..3000).map(|number| format!("m{number:05}")).collect();
        client.ask(&words("SADD s", names.iter().cloned()));
        client.ask(&words("ZADD z", names.iter().zip(0..).flat_map(|(name, at)| [format!("{at}"), name.clone()])));
        client.ask(&words("HSET h", names.iter().flat_map(|name| [name.clone(), format!("v{name}")])));
        for line in ["SRANDMEMBER s", "ZRANDMEMBER z", "HRANDFIELD h"] {
            let told = client.ask(&format!("{line} -100000"));
            let drawn: Vec<&str> =
                told.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('"')).collect();
            assert_eq!(drawn.len(), 100_000, "{engine:?}, {line}");
            // By the lot: neighbours are in order half of the time, and each member comes 33 times.
            let rising = drawn.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((48_000..52_000).contains(&rising), "{engine:?}, {line}: {rising}");
            let mut counts = BTreeMap::<&str, usize>::new();
            drawn.iter().for_each(|name| *counts.entry(*name).or_default() += 1);
            assert_eq!(counts.len(), 3000, "{engine:?}, {line}");
            assert!(counts.values().all(|count| *count < 100), "{engine:?}, {line}");
            let told = client.ask(&format!("{line} -200000"));
            assert!(told.contains("a command may draw"), "{engine:?}: {told}");
            let told = client.ask(&format!("{line} 1000"));
            let drawn: BTreeSet<&str> = told.trim_matches(['[', ']']).split(", ").collect();
            assert_eq!(drawn.len(), 1000, "{engine:?}, {line}: each once");
        }
        // Each has what belongs to it.
        let told = client.ask("HRANDFIELD h -2000 WITHVALUES");
        let told: Vec<&str> = told.trim_matches(['[', ']']).split(", ").map(|text| text.trim_matches('"')).collect();
        assert!(told.chunks(2).all(|pair| pair[1] == format!("v{}", pair[0])), "{engine:?}");
        // Of a packed structure, too, a reply may be longer than a value where there is room.
        assert_eq!(client.ask(&format!("HSET p f {}", "x".repeat(5000))), "(1)");
        let told = client.ask("HRANDFIELD p -300 WITHVALUES");
        assert_eq!(told.matches("\"f\"").count(), 300, "{engine:?}: 1.5 MB");
        let taken = client.ask("SPOP s 1500");
        let taken: BTreeSet<&str> = taken.trim_matches(['[', ']']).split(", ").collect();
        assert_eq!((taken.len(), client.number("SCARD s")), (1500, 1500), "{engine:?}");
    }
}

#[test]
fn what_is_told_of_a_long_structure_names_its_layout_and_counts_its_nodes() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let text = |number: i32| format!("element-{number:06}");
        for (key, line, layout) in [
            ("h", "HSET", "hashtable"),
            ("l", "RPUSH", "quicklist"),
            ("s", "SADD", "hashtable"),
            ("z", "ZADD", "skiplist"),
        ] {
            for (count, layout) in [(20, "listpack"), (20_000, layout)] {
                client.ask(&format!("DEL {key}"));
                for part in 0..(count / 500).max(1) {
                    let texts = (part * 500..part * 500 + count.min(500)).flat_map(|number| match line {
                        "HSET" => vec![text(number), "x".to_owned()],
                        "ZADD" => vec![number.to_string(), text(number)],
                        _ => vec![text(number)],
                    });
                    client.ask(&words(&format!("{line} {key}"), texts));
                }
                assert_eq!(client.ask(&format!("OBJECT ENCODING {key}")), format!("\"{layout}\""), "{engine:?}");
                let told = client.number(&format!("MEMORY USAGE {key}")) as u64;
                let told_again = client.number(&format!("MEMORY USAGE {key} SAMPLES 3")) as u64;
                // The record, and all nodes of this key.
                let from = Key::bound(CollectionId::NODES, key.as_bytes());
                let held: u64 = bench.store.get(key.as_bytes()).unwrap().map_or(0, |record| record.len() as u64 + 1)
                    + nodes_from(&bench.store, from, false)
                        .into_iter()
                        .filter(|(of, _)| of.starts_with(key.as_bytes()))
                        .map(|(of, bytes)| of.len() as u64 + bytes)
                        .sum::<u64>();
                let is_close = told >= held * 9 / 10 && told <= held * 11 / 10;
                assert!(is_close && told == told_again, "{engine:?}, {key}: {told} of {held}");
            }
        }
    }
}

/// An older server beside a newer store: it says so, and takes nothing away.
#[test]
fn structures_of_a_newer_layout_are_kept_and_not_called_damaged() {
    for engine in WITH_TREES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        fill(&mut client, "newer", 3000);
        let kept = nodes(&bench.store);
        let root = bench.store.get("newer").unwrap().unwrap();
        let mut value = root.to_bytes().to_vec();
        value[4] = 2;
        let options = stratakv::PutOptions::new().flags(root.flags);
        bench.store.put_with("newer", &value, &options).unwrap();
        let why = "ERR the structure has format 2, this program knows up to 1: use a newer stratakv";
        for command in ["HGETALL newer", "HSET newer a 1", "HLEN newer", "RENAME newer other", "COPY newer other"] {
            let said = client.ask(command);
            assert!(said.contains(why) && !said.contains("DEL"), "{engine:?}: {command}: {said}");
        }
        assert_eq!(client.ask("TYPE newer"), "newer");
        // Behind the keys of this one, the walk finds these on every shard.
        (0..12).for_each(|n| fill(&mut client, &format!("z{n}:lost"), 1000));
        (0..12).for_each(|n| assert_eq!(bench.memcache(&format!("delete z{n}:lost\r\n")), "DELETED\r\n"));
        assert!(nodes(&bench.store) > kept, "{engine:?}");
        // A server that starts looks for what lies about.
        let Bench { server, store, _directory } = bench;
        drop(server);
        let options = ServerOptions { memcache: vec![ANY_PORT], threads: 2, ..ServerOptions::default() };
        let _server = Server::start(store.clone(), options).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while nodes(&store) > kept {
            assert!(Instant::now() < until, "{engine:?}: {} nodes, {kept}", nodes(&store));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(nodes(&store), kept, "{engine:?}: nodes of a newer structure are gone");
    }
}
