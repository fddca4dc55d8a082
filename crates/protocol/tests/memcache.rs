//! The parser as a connection uses it: any bytes, cut anywhere.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use stratakv_protocol::memcache::{
    Body, Command, GET_LINE_BYTES_MAX, KEY_BYTES_MAX, LINE_BYTES_MAX, Meta, MetaVerb, Parsed, Parser, StoreMode, reply,
};

const ITEM_BYTES_MAX: usize = 5000;

/// What came out of a stream, in order.
#[derive(Debug, PartialEq, Eq)]
enum Out {
    Command(String),
    Data(Vec<u8>),
    Reply(&'static [u8]),
    Closed,
}

/// A connection without a socket: what arrives is fed in pieces.
struct Session {
    parser: Parser,
    received: Vec<u8>,
    body: Option<Body>,
    /// Bytes of a block that is too large.
    skipped: usize,
    out: Vec<Out>,
}

impl Session {
    fn new() -> Session {
        Session { parser: Parser::new(ITEM_BYTES_MAX), received: Vec::new(), body: None, skipped: 0, out: Vec::new() }
    }

    fn is_closed(&self) -> bool {
        self.out.last() == Some(&Out::Closed)
    }

    fn feed(&mut self, piece: &[u8]) {
        self.received.extend_from_slice(piece);
        while !self.is_closed() && self.step() {}
    }

    fn step(&mut self) -> bool {
        if self.skipped > 0 {
            let skipped = self.skipped.min(self.received.len());
            self.received.drain(..skipped);
            self.skipped -= skipped;
            return skipped > 0;
        }
        if let Some(body) = &mut self.body {
            let taken = body.push(&self.received);
            self.received.drain(..taken);
            if body.missing() > 0 {
                return false;
            }
            self.out.push(match self.body.take().unwrap().finish() {
                Ok(data) => Out::Data(data.to_vec()),
                Err(_) => Out::Reply(reply::BAD_DATA_CHUNK),
            });
            return true;
        }
        let consumed = match self.parser.parse(&self.received) {
            Parsed::Incomplete => return false,
            Parsed::Skip { consumed } => consumed,
            Parsed::Command { command, consumed } => {
                self.body = command.data_bytes().map(Body::new);
                self.out.push(Out::Command(format!("{command:?}")));
                consumed
            }
            Parsed::TooLarge { command, consumed } => {
                self.skipped = command.data_bytes().unwrap() + 2;
                self.out.push(Out::Reply(reply::TOO_LARGE));
                consumed
            }
            Parsed::Error { reply, consumed, close } => {
                self.out.push(Out::Reply(reply));
                if close {
                    self.out.push(Out::Closed);
                }
                consumed
            }
        };
        assert!(consumed > 0 && consumed <= self.received.len(), "progress within the input");
        self.received.drain(..consumed);
        true
    }
}

fn run(stream: &[u8], cuts: &[usize]) -> Vec<Out> {
    let mut session = Session::new();
    let mut from = 0;
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.sort_unstable();
    for cut in cuts.into_iter().chain([stream.len()]) {
        session.feed(&stream[from..cut]);
        from = cut;
    }
    session.out
}

/// The only thing that came out.
fn only(line: &[u8]) -> Out {
    let mut stream = line.to_vec();
    stream.extend_from_slice(b"\r\n");
    let mut out = run(&stream, &[]);
    assert!(out.len() == 1 || out.last() == Some(&Out::Closed), "{}: {out:?}", line.escape_ascii());
    out.remove(0)
}

#[test]
fn lines_that_are_no_commands_are_refused_as_memcached_does() {
    let long_key = "k".repeat(KEY_BYTES_MAX + 1);
    let table: &[(&str, &[u8])] = &[
        ("", reply::ERROR),
        (" ", reply::ERROR),
        ("foo", reply::ERROR),
        ("get", reply::ERROR),
        ("get ", reply::ERROR),
        ("Get a", reply::ERROR),
        ("\rget a", reply::ERROR),
        ("get a\0b", reply::BAD_LINE),
        ("set", reply::ERROR),
        ("set a 0 0", reply::ERROR),
        ("set a 0 0 1 1 1", reply::ERROR),
        ("set a 0 0 -1", reply::BAD_LINE),
        ("set a 0 0 2147483646", reply::BAD_LINE),
        ("set a 0 0 99999999999999999999999", reply::BAD_LINE),
        ("set a x 0 1", reply::BAD_LINE),
        ("set a -1 0 1", reply::BAD_LINE),
        ("set a 4294967296 0 1", reply::BAD_LINE),
        ("set a 0 x 1", reply::BAD_LINE),
        ("set a 0 0 1x", reply::BAD_LINE),
        ("set a x 0 1 noreply", b""),
        ("cas a 0 0 1", reply::ERROR),
        ("cas a 0 0 1 x", reply::BAD_LINE),
        ("cas a 0 0 1 -1", reply::BAD_LINE),
        ("cas a 0 0 1 1 x y", reply::ERROR),
        ("delete", reply::ERROR),
        ("delete a 1", reply::BAD_DELETE),
        ("delete a 0 0", reply::BAD_DELETE),
        ("delete a 0 noreply x", reply::ERROR),
        ("incr a", reply::ERROR),
        ("incr a x", reply::BAD_DELTA),
        ("incr a -1", reply::BAD_DELTA),
        ("incr a 18446744073709551616", reply::BAD_DELTA),
        ("incr a x noreply", b""),
        ("incr a noreply", b""),
        ("decr a 1 2 3", reply::ERROR),
        ("touch a", reply::ERROR),
        ("touch a x", reply::BAD_EXPTIME),
        ("touch a noreply", b""),
        ("touch a 0 x y", reply::ERROR),
        ("gat", reply::ERROR),
        ("gat a", reply::BAD_EXPTIME),
        ("flush_all x", reply::BAD_EXPTIME),
        ("flush_all 1 2 3", reply::ERROR),
        ("verbosity", reply::ERROR),
        ("verbosity x", reply::BAD_LINE),
        ("verbosity noreply", b""),
        ("verbosity 0 1 2", reply::ERROR),
        ("stats foo", reply::ERROR),
        ("slabs", reply::ERROR),
        ("slabs reassign x 1", reply::BAD_LINE),
        ("slabs automove x", reply::BAD_LINE),
        ("slabs automove 5", reply::ERROR),
        ("slabs automove ratio x", reply::ERROR),
        ("lru mode x", reply::ERROR),
        ("lru tune 90 4294967295 1 1", reply::LRU_SHARES),
        ("lru tune 1 1 x 1", reply::ERROR),
        ("lru temp_ttl x", reply::ERROR),
        ("lru_crawler", reply::ERROR),
        ("lru_crawler sleep 1000001", reply::CRAWLER_SLEEP),
        ("lru_crawler tocrawl -1", reply::BAD_LINE),
        ("lru_crawler crawl 1,64", reply::BAD_CLASS),
        ("lru_crawler metadump ", reply::ERROR),
        ("lru_crawler metadump x", reply::BAD_CLASS),
        ("lru_crawler enable 1 2", reply::ERROR),
        ("cache_memlimit", reply::ERROR),
        ("cache_memlimit -1", reply::ERROR),
        ("stats detail", reply::DETAIL_USAGE),
        ("stats cachedump 1", reply::CACHEDUMP_USAGE),
        ("stats cachedump x 1", reply::BAD_LINE),
        ("stats cachedump 64 1", reply::BAD_SLAB),
        ("mg", reply::ERROR),
        ("mg a\0", reply::BAD_LINE),
        ("mg a !", reply::META_INVALID_FLAG),
        ("mg a S1", reply::META_INVALID_FLAG),
        ("mg a v v", reply::META_DUPLICATE_FLAG),
        ("mg a \u{e9}", reply::META_DUPLICATE_FLAG),
        ("mg a T", reply::META_BAD_TOKEN),
        ("mg a T1x", reply::META_BAD_TOKEN),
        ("mg a T99999999999999999999", reply::META_BAD_TOKEN),
        ("mg a N-", reply::META_BAD_TOKEN),
        ("mg a Rx", reply::META_BAD_TOKEN),
        ("mg a C-1", reply::META_BAD_TOKEN),
        ("mg a C18446744073709551616", reply::META_BAD_TOKEN),
        ("mg a Ex", reply::META_BAD_TOKEN),
        ("mg a Fx", reply::BAD_LINE),
        ("mg a F4294967296", reply::BAD_LINE),
        ("mg a D", reply::META_BAD_DELTA),
        ("mg a J-1", reply::META_BAD_INITIAL),
        ("mg a M", reply::META_MODE_LENGTH),
        ("mg a Mset", reply::META_MODE_LENGTH),
        ("mg a O12345678901234567890123456789012", reply::META_OPAQUE_TOO_LONG),
        ("mg a b", reply::META_BAD_BASE64),
        ("mg YQ b", reply::META_BAD_BASE64),
        ("mg a 1 2 3 4 5 6 7 8 9 a b c d e f g h i", reply::MG_TOO_MANY_FLAGS),
        ("md a 1 2 3 4 5 6 7 8 9 a b c d e f g h i", reply::META_TOO_MANY_FLAGS),
        ("ms", reply::ERROR),
        ("ms a", reply::BAD_LINE),
        ("ms a x", reply::BAD_LINE),
        ("ms a -1", reply::BAD_LINE),
        ("ms a 2147483646", reply::BAD_LINE),
        ("md", reply::ERROR),
        ("md a k k", reply::META_BAD_FLAGS),
        ("md a* b", reply::META_BAD_FLAGS),
        ("ma", reply::ERROR),
        ("ma a Jx", reply::META_BAD_FLAGS),
        ("ma a MX", reply::META_BAD_ARITHMETIC_MODE),
        ("ma a Mincr", reply::META_BAD_FLAGS),
        ("me", reply::BAD_LINE),
        ("me a b", reply::BAD_LINE),
        ("me a b c", reply::BAD_LINE),
        ("GET / HTTP/1.1", b""),
        ("POST /x", b""),
        ("Host: localhost", b""),
    ];
    for (line, expected) in table {
        assert_eq!(only(line.as_bytes()), Out::Reply(expected), "{line}");
    }
    let commands = [
        "get {}",
        "gets a {}",
        "gat 0 {}",
        "set {} 0 0 1",
        "delete {}",
        "incr {} 1",
        "touch {} 0",
        "mg {} v",
        "ms {} 1",
        "md {}",
        "ma {}",
        "me {}",
    ];
    for command in commands {
        assert_eq!(only(command.replace("{}", &long_key).as_bytes()), Out::Reply(reply::BAD_LINE), "{command}");
    }
}

#[test]
fn commands_are_read_with_their_options() {
    let table = [
        (
            "  set  a  +1 -1 +3 noreply",
            "Store(Store { verb: Set, key: [97], flags: 1, exptime: -1, data_bytes: 3, noreply: true })",
        ),
        (
            "set a 4294967295 9999999999 0 x",
            "Store(Store { verb: Set, key: [97], flags: 4294967295, exptime: 9999999999, data_bytes: 0, noreply: false })",
        ),
        (
            "cas a 0 0 1 7",
            "Store(Store { verb: Cas(7), key: [97], flags: 0, exptime: 0, data_bytes: 1, noreply: false })",
        ),
        (
            "cas a 0 0 1 7 noreply",
            "Store(Store { verb: Cas(7), key: [97], flags: 0, exptime: 0, data_bytes: 1, noreply: true })",
        ),
        ("delete \x01", "Delete { key: [1], noreply: false }"),
        ("delete a 0", "Delete { key: [97], noreply: false }"),
        ("delete a 0 noreply", "Delete { key: [97], noreply: true }"),
        ("delete noreply", "Delete { key: [110, 111, 114, 101, 112, 108, 121], noreply: false }"),
        ("decr a +2 noreply", "Arithmetic { key: [97], delta: 2, decrement: true, noreply: true }"),
        ("touch a 5 x", "Touch { key: [97], exptime: 5, noreply: false }"),
        ("flush_all", "FlushAll { delay: 0, noreply: false }"),
        ("flush_all noreply", "FlushAll { delay: 0, noreply: true }"),
        ("flush_all -1", "FlushAll { delay: -1, noreply: false }"),
        ("flush_all 10 noreply", "FlushAll { delay: 10, noreply: true }"),
        ("verbosity 1 noreply", "Verbosity { noreply: true }"),
        ("version x", "Version"),
        ("quit noreply", "Quit"),
        ("stats ", "Stats(General)"),
        ("stats settings x", "Stats(Settings)"),
    ];
    for (line, expected) in table {
        assert_eq!(run(format!("{line}\n").as_bytes(), &[]), [Out::Command(expected.to_owned())], "{line}");
    }
}

/// All flags at once, but for the mode, whose letters differ.
const META_LINE: &[u8] = b"mg YQ== b q v x I T-5 N7 R9 C1 E2 F3 D4 J5 Oopaque k s t\n";

#[test]
fn flags_of_meta_commands_are_read_and_told_in_their_order() {
    let Parsed::Command { command: Command::Meta(meta), .. } = Parser::new(9).parse(META_LINE) else { panic!("an mg") };
    assert_eq!((meta.verb, &*meta.key()), (MetaVerb::Get, &b"a"[..]));
    let flags = meta.flags;
    assert!(flags.base64 && flags.quiet && flags.value && flags.clear && flags.invalidate);
    assert_eq!((flags.times.exptime, flags.times.vivify, flags.times.recache), (Some(-5), Some(7), Some(9)));
    assert_eq!((flags.compare, flags.version, flags.client_flags), (Some(1), Some(2), 3));
    assert_eq!((flags.arithmetic.delta, flags.arithmetic.initial), (4, 5));
    let letters: Vec<u8> = flags.words().map(|(letter, _)| letter).collect();
    assert_eq!(letters, b"bqvxITNRCEFDJOkst");
    assert!(flags.words().any(|word| word == (b'O', &b"opaque"[..])));
    let set = |line: &[u8]| match Parser::new(9).parse(line) {
        Parsed::Command { command: Command::Meta(Meta { verb: MetaVerb::Set { mode, data_bytes }, .. }), .. } => {
            (mode, data_bytes)
        }
        other => panic!("{other:?}"),
    };
    let modes = [
        ("ms a 3\n", StoreMode::Set),
        ("ms a 3 MS\n", StoreMode::Set),
        ("ms a 3 ME\n", StoreMode::Add),
        ("ms a 3 MR\n", StoreMode::Replace),
        ("ms a 3 MA\n", StoreMode::Append),
        ("ms a 3 MP\n", StoreMode::Prepend),
    ];
    for (line, mode) in modes {
        assert_eq!(set(line.as_bytes()), (mode, 3), "{line}");
    }
}

#[test]
fn what_is_wrong_behind_the_length_of_ms_takes_its_block_along() {
    for (line, refused) in [
        ("ms a 2 !", reply::META_INVALID_FLAG),
        ("ms a 2 Ms", reply::META_BAD_STORE_MODE),
        ("ms a 2 b", reply::META_BAD_BASE64),
        ("ms a 2 q q", reply::META_DUPLICATE_FLAG),
    ] {
        let out = run(format!("{line}\r\nhi\r\nmn\r\n").as_bytes(), &[]);
        assert_eq!(out, [Out::Reply(refused), Out::Command("MetaNoop".into())], "{line}");
    }
    let long = format!("ms a {} q\r\n{}\r\nmn\r\n", ITEM_BYTES_MAX + 1, "x".repeat(ITEM_BYTES_MAX + 1));
    assert_eq!(run(long.as_bytes(), &[]), [Out::Reply(reply::TOO_LARGE), Out::Command("MetaNoop".into())]);
}

#[test]
fn keys_of_a_get_come_in_order() {
    let Parsed::Command { command: Command::Get { keys, cas: true, touch: Some(-5) }, consumed } =
        Parser::new(0).parse(b"gats -5  b a  b \nrest")
    else {
        panic!("a gats")
    };
    assert_eq!(consumed, 17);
    assert!(keys.iter().eq([b"b", b"a", b"b"]));
}

#[test]
fn a_refused_data_block_is_swallowed_a_bad_one_resyncs_at_its_length() {
    let mut stream = format!("set a 0 0 {}\r\n", ITEM_BYTES_MAX + 1).into_bytes();
    stream.extend(vec![b'\n'; ITEM_BYTES_MAX + 1]);
    stream.extend_from_slice(b"\r\nset a 0 0 3\r\nabcdefgh\r\nversion\r\n");
    let out = run(&stream, &[]);
    assert_eq!(out[0], Out::Reply(reply::TOO_LARGE));
    assert!(matches!(&out[1], Out::Command(set) if set.contains("Set")));
    let rest = [Out::Reply(reply::BAD_DATA_CHUNK), Out::Reply(reply::ERROR), Out::Command("Version".into())];
    assert_eq!(out[2..], rest);
}

#[test]
fn long_lines_close_wherever_they_are_cut() {
    for (length, close) in [(LINE_BYTES_MAX, false), (LINE_BYTES_MAX + 1, true)] {
        let mut line = vec![b'x'; length];
        let refused = [Out::Reply(b""), Out::Closed];
        line.push(b'\n');
        for cuts in [&[][..], &[length], &[1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1]] {
            let out = run(&line, cuts);
            assert_eq!(out == refused, close, "{length} cut at {cuts:?}: {out:?}");
        }
    }
    for (length, close) in [(GET_LINE_BYTES_MAX, false), (GET_LINE_BYTES_MAX + 1, true)] {
        let mut line = b"get ".to_vec();
        line.extend(b"k ".iter().cycle().take(length - 4));
        line.push(b'\n');
        for cuts in [&[][..], &[3000, length], &[100_000]] {
            let out = run(&line, cuts);
            assert_eq!(matches!(out[..], [Out::Reply(b""), Out::Closed]), close, "{length} {cuts:?}");
        }
    }
}

#[test]
fn a_line_that_grows_byte_by_byte_is_searched_once() {
    // Quadratic work on a megabyte would take minutes here.
    let mut line = b"get ".to_vec();
    line.extend(b"k ".iter().cycle().take(GET_LINE_BYTES_MAX - 4));
    let mut parser = Parser::new(0);
    for end in (1..line.len()).step_by(16) {
        assert_eq!(parser.parse(&line[..end]), Parsed::Incomplete);
    }
}

/// Streams that get deep: real commands, damaged ones, bodies of the right and wrong length,
/// garbage.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("a".to_owned()),
        Just("noreply".to_owned()),
        Just("k".repeat(KEY_BYTES_MAX)),
        Just("k".repeat(KEY_BYTES_MAX + 1)),
        (-3i64..12).prop_map(|number| number.to_string()),
        Just(format!("{}", ITEM_BYTES_MAX + 1)),
        Just("99999999999".to_owned()),
        Just("YQ==".to_owned()),
        "[bqvxITNRCEFDJMOkstcfhl][0-9A-S]{0,2}",
        "[ -~]{0,6}",
    ];
    let name = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "append",
        "cas",
        "delete",
        "incr",
        "touch",
        "flush_all",
        "stats",
        "version",
        "verbosity",
        "quit",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "mn",
        "lru_crawler",
        "slabs",
        "shutdown",
        "cache_memlimit",
        "GET",
    ]);
    let line = (name, prop::collection::vec(word, 0..7), prop::bool::ANY).prop_map(|(name, words, crlf)| {
        format!("{name} {}{}", words.join(" "), if crlf { "\r\n" } else { "\n" }).into_bytes()
    });
    let set =
        (0usize..9, prop::collection::vec(any::<u8>(), 0..9), prop::bool::ANY).prop_map(|(length, data, right)| {
            let length = if right { data.len() } else { length };
            [format!("set a 0 0 {length}\r\n").as_bytes(), &data, b"\r\n"].concat()
        });
    let garbage = prop::collection::vec(any::<u8>(), 0..40);
    let long = (2000usize..2100).prop_map(|length| vec![b'z'; length]);
    let piece = prop_oneof![6 => line, 4 => set, 1 => garbage, 1 => long];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(11211),
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn any_cut_of_any_stream_gives_the_same(stream in stream(), cuts in prop::collection::vec(any::<usize>(), 0..20)) {
        let whole = run(&stream, &[]);
        prop_assert_eq!(&run(&stream, &cuts), &whole);
        let bytewise: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(&run(&stream, &bytewise), &whole);
    }

    #[test]
    fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..3000)) {
        run(&stream, &[]);
    }
}
