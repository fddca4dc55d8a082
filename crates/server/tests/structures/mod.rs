//! Structures of Redis clients beside strings and memcache clients.

use stratakv::PutOptions;

use super::*;

/// The response to a request of the binary protocol for the key `h`.
fn binary(address: SocketAddr, opcode: u8, extras: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, b"h", value].concat();
    let mut request = vec![0x80, opcode, 0, 1, extras.len() as u8, 0, 0, 0];
    request.extend((body.len() as u32).to_be_bytes());
    request.extend([0; 12]);
    converse(address, &[request, body].concat())
}

/// A hash is no value for memcache clients, however long it is, and stays as it is.
#[test]
fn memcache_clients_are_told_of_structures() {
    let refused =
        "CLIENT_ERROR the key holds a structure of Redis, which memcache clients cannot read or append to\r\n";
    let no_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    for engine in ENGINES {
        for bytes in [1, 5_000, 200_000, 900_000] {
            let bench = Bench::of(engine);
            let mut client = bench.connect();
            assert_eq!(client.ask(&format!("HSET h a {}", "v".repeat(bytes))), "(1)");
            assert_eq!(client.ask("SET s 1"), "OK");
            for command in ["get h", "gets h", "gat 0 h", "mg h v", "mg h v T0 q", "get s h s"] {
                let told = bench.memcache(&format!("{command}\r\nget s\r\n"));
                let before = if command.contains(" s ") { "VALUE s 0 1\r\n1\r\n" } else { "" };
                assert_eq!(told, format!("{before}{refused}VALUE s 0 1\r\n1\r\nEND\r\n"), "{engine:?}, {command}");
            }
            for command in ["append h 0 0 1\r\nx", "prepend h 0 0 1\r\nx", "ms h 1 MA\r\nx", "ms h 1 MP s\r\nx"] {
                let told = bench.memcache(&format!("{command}\r\n"));
                assert_eq!(told, refused, "{engine:?}, {command}");
            }
            for command in ["incr h 1", "decr h 1", "ma h", "ma h t"] {
                assert_eq!(bench.memcache(&format!("{command}\r\n")), no_number, "{engine:?}, {command}");
            }
            // Of the binary protocol: get, getk, gat, append, prepend, and a set with the flags.
            let flags = [&0x534B_5601_u32.to_be_bytes()[..], &[0; 4]].concat();
            for (opcode, extras, value, reason) in [
                (0x00, &b""[..], &b""[..], "the key holds a structure"),
                (0x0C, b"", b"", "the key holds a structure"),
                (0x1D, &[0; 4], b"", "the key holds a structure"),
                (0x0E, b"", b"x", "the key holds a structure"),
                (0x0F, b"", b"x", "the key holds a structure"),
                (0x01, &flags, b"x", "flags 1397446145 are reserved"),
            ] {
                let told = binary(bench.server.addresses()[0], opcode, extras, value);
                assert_eq!(told[6..8], [0, 4], "{engine:?}, {opcode}");
                assert!(told[24..].starts_with(reason.as_bytes()), "{}", told.escape_ascii());
            }
            assert_eq!(bench.memcache("touch h 1000\r\nmg h f\r\n"), "TOUCHED\r\nHD f1397446145\r\n");
            assert!((990..=1000).contains(&client.number("TTL h")), "{engine:?}");
            assert_eq!(client.number("HSTRLEN h a"), bytes as i64, "{engine:?}");
            let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
            for command in ["GET h", "STRLEN h", "GETRANGE h 0 10", "GETRANGE h -10 -1", "BITCOUNT h", "GETEX h EX 5"] {
                assert_eq!(client.ask(command), wrong, "{engine:?}, {command}, {bytes} bytes");
            }
            assert_eq!(client.ask("MGET h s h"), "[nil, \"1\", nil]", "{engine:?}, {bytes} bytes");
            assert_eq!(client.ask("TYPE h"), "hash");
            assert_eq!(bench.memcache("set h 7 0 1\r\nx\r\nget h\r\n"), "STORED\r\nVALUE h 7 1\r\nx\r\nEND\r\n");
            assert_eq!(client.ask("HGETALL h"), wrong);
            assert_eq!(bench.memcache("delete h\r\n"), "DELETED\r\n");
            assert_eq!(client.ask("HSET h a 1"), "(1)");
            assert_eq!(bench.memcache("delete h\r\n"), "DELETED\r\n");
            assert_eq!(client.ask("HGET h a"), "nil");
        }
    }
}

/// A record of the library with the flags of a structure, which is none, is a string; one that
/// looks like a structure and is damaged is told to be so.
#[test]
fn flags_alone_make_no_structure() {
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let put = |key: &str, value: &[u8]| {
            let options = PutOptions { flags: 0x534B_5601, ..PutOptions::default() };
            bench.store.put_with(key.as_bytes(), value, &options).unwrap();
        };
        put("s", b"text");
        assert_eq!(client.ask("GET s"), "\"text\"");
        assert_eq!(client.ask("TYPE s"), "string");
        assert_eq!(client.ask("STRLEN s"), "(4)");
        assert_eq!(client.ask("GETRANGE s 1 2"), "\"ex\"");
        assert_eq!(client.ask("MGET s s"), "[\"text\", \"text\"]");
        assert_eq!(bench.memcache("get s\r\n"), "VALUE s 1397446145 4\r\ntext\r\nEND\r\n");
        put("empty", b"");
        assert_eq!(client.ask("GET empty"), "\"\"");
        assert_eq!(
            client.ask("SETRANGE empty 0 \"\\xffSKV\\x01\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\""),
            "(14)"
        );
        assert_eq!(client.ask("TYPE empty"), "string", "what is a string stays one");
        for damaged in [&b"\xffSKV"[..], b"\xffSKV\x09\x01\0\0\x01\0\0\0", b"\xffSKV\x01\x01\0\0\x02\0\0\0\x01a\x01"] {
            put("d", damaged);
            for command in ["HGETALL d", "HSET d a 1", "HDEL d a", "HLEN d", "GET d", "APPEND d x", "INCR d"] {
                let told = client.ask(command);
                let is_read = command == "HLEN d" && damaged.len() > 12;
                assert!(is_read || told.starts_with("-"), "{engine:?}, {command}: {told}");
            }
            assert_eq!(client.ask("DEL d"), "(1)");
        }
    }
}

/// Of a few keys every one can come, and no other. Engines that list have no favourites: the key
/// that is first in the order of their list once came by hardly any lot.
#[test]
fn a_random_key_is_one_of_those_that_are_there() {
    const DRAWS: usize = 2400;
    for engine in ENGINES {
        let bench = Bench::of(engine);
        let mut client = bench.connect();
        let keys: BTreeSet<String> = (0..12).map(|number| format!("\"key:{number}\"")).collect();
        let began = Instant::now();
        for key in &keys {
            assert_eq!(client.ask(&format!("SET {key} v")), "OK");
        }
        let mut drawn = BTreeMap::<String, usize>::new();
        for _ in 0..DRAWS {
            *drawn.entry(client.ask("RANDOMKEY")).or_default() += 1;
        }
        assert_eq!(drawn.keys().cloned().collect::<BTreeSet<_>>(), keys, "{engine:?}");
        if matches!(engine, Engine::Hash | Engine::Tier) {
            // All twelve may be in one of two shards: a twenty-fourth each.
            assert!(drawn.values().all(|&times| times > DRAWS / 24 * 4 / 10), "{engine:?}: {drawn:?}");
        }
        let (idle, seconds) = (client.number("OBJECT IDLETIME key:1"), began.elapsed().as_secs() as i64);
        assert!((0..=seconds + 1).contains(&idle), "{engine:?}: {idle} s");
        assert_eq!(client.ask("FLUSHALL"), "OK");
        assert_eq!(client.ask("RANDOMKEY"), "nil", "{engine:?}");
    }
}
