//! Conversations of Redis clients: what is sent, and what is heard. They are those of Redis 7.0 but
//! where `ours` says otherwise, and a test holds them with a real one if there is one.

#[path = "resp/combinations.rs"]
mod combinations;
#[path = "resp/hashes.rs"]
mod hashes;
#[path = "resp/keys.rs"]
mod keys;
#[path = "resp/lists.rs"]
mod lists;
#[path = "resp/pubsub.rs"]
mod pubsub;
#[path = "resp/score_ranges.rs"]
mod score_ranges;
#[path = "resp/server.rs"]
mod server;
#[path = "resp/sets.rs"]
mod sets;
#[path = "resp/sorted_sets.rs"]
mod sorted_sets;
#[path = "resp/sorting.rs"]
mod sorting;
#[path = "resp/transactions.rs"]
mod transactions;
#[path = "resp/waits.rs"]
mod waits;

/// A command in words, as an inline command has them, and its reply as [`told`] shows it.
pub struct RespConversation {
    pub name: &'static str,
    /// What is said is ours alone.
    pub ours: bool,
    pub lines: &'static [(&'static str, &'static str)],
}

/// The replies in `bytes`, shown; the last one may be cut off.
pub fn told(mut bytes: &[u8]) -> Vec<String> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        match reply(&mut bytes) {
            Some(reply) => replies.push(reply),
            None => {
                replies.push(format!("unfinished: {}", bytes.escape_ascii()));
                break;
            }
        }
    }
    replies
}

fn line<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &bytes[..end];
    *bytes = &bytes[end + 2..];
    Some(line)
}

/// Takes the reply at the front.
pub fn reply(bytes: &mut &[u8]) -> Option<String> {
    let mut rest = *bytes;
    let head = line(&mut rest)?;
    let (kind, text) = head.split_first()?;
    let shown = text.escape_ascii().to_string();
    let number = || shown.parse::<i64>().ok();
    let mut many = |count: i64| (0..count).map(|_| reply(&mut rest)).collect::<Option<Vec<String>>>();
    let told = match kind {
        b'+' => shown,
        b'-' => format!("-{shown}"),
        b':' => format!("({shown})"),
        b'_' => "nil".to_owned(),
        b',' => format!(",{shown}"),
        b'#' => format!("#{shown}"),
        b'$' | b'=' => match number()? {
            -1 => "nil".to_owned(),
            length => {
                let length = length as usize;
                let text = rest.get(..length)?.escape_ascii().to_string();
                assert_eq!(rest.get(length..length + 2)?, b"\r\n", "a bulk string ends in a line end");
                rest = &rest[length + 2..];
                if *kind == b'=' { format!("={text}") } else { format!("\"{text}\"") }
            }
        },
        b'*' if number()? == -1 => "nil array".to_owned(),
        b'*' | b'>' => format!("[{}]", many(number()?)?.join(", ")),
        b'~' => format!("~[{}]", many(number()?)?.join(", ")),
        b'%' => format!("{{{}}}", many(number()? * 2)?.join(", ")),
        other => panic!("no reply begins with {other}"),
    };
    *bytes = rest;
    Some(told)
}

/// A request of these arguments.
pub fn request(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// A request of the words of a line.
pub fn of_words(line: &str) -> Vec<u8> {
    request(&stratakv_protocol::resp::words(line.as_bytes()).expect("quotes match"))
}

const fn redis(name: &'static str, lines: &'static [(&'static str, &'static str)]) -> RespConversation {
    RespConversation { name, ours: false, lines }
}

const fn ours(name: &'static str, lines: &'static [(&'static str, &'static str)]) -> RespConversation {
    RespConversation { name, ours: true, lines }
}

const ARITY_GET: &str = "-ERR wrong number of arguments for \\'get\\' command";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";
const NOT_A_FLOAT: &str = "-ERR value is not a valid float";

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// All of them. Each begins with an empty store.
pub fn conversations() -> impl Iterator<Item = &'static RespConversation> {
    let groups = [
        CONVERSATIONS,
        hashes::CONVERSATIONS,
        keys::CONVERSATIONS,
        sets::CONVERSATIONS,
        sorting::CONVERSATIONS,
        lists::CONVERSATIONS,
        sorted_sets::CONVERSATIONS,
        score_ranges::CONVERSATIONS,
        combinations::CONVERSATIONS,
        transactions::CONVERSATIONS,
        waits::CONVERSATIONS,
        pubsub::CONVERSATIONS,
        server::CONVERSATIONS,
    ];
    groups.into_iter().flatten().chain(conversations_of_batches())
}

/// Those of them that need changes of several keys as one.
pub fn conversations_of_batches() -> impl Iterator<Item = &'static RespConversation> {
    keys::OF_BATCHES
        .iter()
        .chain(sorting::OF_BATCHES)
        .chain(transactions::OF_BATCHES)
        .chain(combinations::OF_BATCHES)
        .chain(waits::OF_BATCHES)
}

const CONVERSATIONS: &[RespConversation] = &[
    redis(
        "connection",
        &[
            ("PING", "PONG"),
            ("ping hello", "\"hello\""),
            ("PING a b", "-ERR wrong number of arguments for \\'ping\\' command"),
            ("ECHO \"a\\r\\nb\\xff\"", "\"a\\r\\nb\\xff\""),
            ("ECHO", "-ERR wrong number of arguments for \\'echo\\' command"),
            ("SELECT 0", "OK"),
            ("SELECT x", NOT_AN_INTEGER),
            ("CLIENT GETNAME", "nil"),
            ("CLIENT SETNAME me", "OK"),
            ("CLIENT GETNAME", "\"me\""),
            ("CLIENT SETNAME \"\"", "OK"),
            ("CLIENT GETNAME", "nil"),
            ("CLIENT NO-EVICT ON", "OK"),
            ("WAIT 0 0", "(0)"),
            ("WAIT 0 -1", "-ERR timeout is negative"),
            ("WAIT a 0", NOT_AN_INTEGER),
            (
                "AUTH secret",
                "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ),
            ("AUTH nobody secret", "-WRONGPASS invalid username-password pair or user is disabled."),
            ("AUTH default anything", "OK"),
            ("AUTH a b c", SYNTAX),
            ("RESET", "RESET"),
            ("QUIT", "OK"),
        ],
    ),
    redis(
        "strings",
        &[
            ("GET a", "nil"),
            ("SET a 1", "OK"),
            ("GET a", "\"1\""),
            ("set a \"\"", "OK"),
            ("get a", "\"\""),
            ("STRLEN a", "(0)"),
            ("STRLEN none", "(0)"),
            ("GET", ARITY_GET),
            ("GET a b", ARITY_GET),
            ("SET a", "-ERR wrong number of arguments for \\'set\\' command"),
            ("SET \"k \\xff\\x00\" \"v\\x00\\r\\n\"", "OK"),
            ("GET \"k \\xff\\x00\"", "\"v\\x00\\r\\n\""),
            ("GETSET a new", "\"\""),
            ("GETSET b first", "nil"),
            ("MGET a none b", "[\"new\", nil, \"first\"]"),
            ("MGET a a", "[\"new\", \"new\"]"),
            ("MGET", "-ERR wrong number of arguments for \\'mget\\' command"),
            ("GETDEL b", "\"first\""),
            ("GETDEL b", "nil"),
            ("GET b", "nil"),
            ("SETNX a x", "(0)"),
            ("SETNX b x", "(1)"),
            ("MSET a 1 b 2 a 3", "OK"),
            ("MGET a b", "[\"3\", \"2\"]"),
            ("MSET a", "-ERR wrong number of arguments for \\'mset\\' command"),
            ("MSET a 1 b", "-ERR wrong number of arguments for \\'mset\\' command"),
            ("MSETNX a 1", "(0)"),
            ("MSETNX new 1", "(1)"),
            ("GET new", "\"1\""),
        ],
    ),
    redis(
        "options of SET",
        &[
            ("SET a 1 XX", "nil"),
            ("SET a 1 NX", "OK"),
            ("SET a 2 NX", "nil"),
            ("SET a 2 xx", "OK"),
            ("SET a 3 GET", "\"2\""),
            ("SET b 1 GET", "nil"),
            ("SET b 2 XX GET", "\"1\""),
            ("SET c 2 XX GET", "nil"),
            ("EXISTS c", "(0)"),
            ("SET b 9 NX GET", "\"2\""),
            ("SET d 9 NX GET", "nil"),
            ("MGET a b d", "[\"3\", \"2\", \"9\"]"),
            ("SET a 1 EX 1000", "OK"),
            ("TTL a", "(1000)"),
            ("SET a 2 KEEPTTL", "OK"),
            ("TTL a", "(1000)"),
            ("SET a 3 GET", "\"2\""),
            ("TTL a", "(-1)"),
            ("SET a 1 PX 1000500 GET", "\"3\""),
            ("SET a 1 KEEPTTL GET", "\"1\""),
            ("EXPIRE a 1000 NX", "(0)"),
            ("SET new 1 KEEPTTL", "OK"),
            ("TTL new", "(-1)"),
            ("SET new2 1 KEEPTTL NX", "OK"),
            ("SET a 1 EXAT 4000000000", "OK"),
            ("EXPIRETIME a", "(4000000000)"),
            ("SET a 1 PXAT 4000000000123", "OK"),
            ("PEXPIRETIME a", "(4000000000123)"),
            ("SET a 1 EX", SYNTAX),
            ("SET a 1 EX 0", "-ERR invalid expire time in \\'set\\' command"),
            ("SET a 1 EX -1", "-ERR invalid expire time in \\'set\\' command"),
            ("SET a 1 EX x", NOT_AN_INTEGER),
            ("SET a 1 EX 1.5", NOT_AN_INTEGER),
            ("SET a 1 EX 10 PX 10", SYNTAX),
            ("SET a 1 EX 10 KEEPTTL", SYNTAX),
            ("SET a 1 NX XX", SYNTAX),
            ("SET a 1 FOO", SYNTAX),
            ("SET a 1 PERSIST", SYNTAX),
            ("SETEX a 1000 v", "OK"),
            ("TTL a", "(1000)"),
            ("SETEX a 0 v", "-ERR invalid expire time in \\'setex\\' command"),
            ("SETEX a x v", NOT_AN_INTEGER),
            ("PSETEX a 1000000 w", "OK"),
            ("TTL a", "(1000)"),
            ("PSETEX a -5 w", "-ERR invalid expire time in \\'psetex\\' command"),
            ("GET a", "\"w\""),
        ],
    ),
    redis(
        "parts of strings",
        &[
            ("APPEND a Hello", "(5)"),
            ("APPEND a \" World\"", "(11)"),
            ("APPEND a \"\"", "(11)"),
            ("APPEND new \"\"", "(0)"),
            ("EXISTS new", "(1)"),
            ("GETRANGE a 0 4", "\"Hello\""),
            ("GETRANGE a -5 -1", "\"World\""),
            ("GETRANGE a 0 -1", "\"Hello World\""),
            ("GETRANGE a 6 100", "\"World\""),
            ("GETRANGE a 5 2", "\"\""),
            ("GETRANGE a -1 -5", "\"\""),
            ("GETRANGE a 0 -50", "\"H\""),
            ("GETRANGE a -50 -40", "\"H\""),
            ("GETRANGE a 3 -50", "\"\""),
            ("GETRANGE a 11 20", "\"\""),
            ("GETRANGE a -100 2", "\"Hel\""),
            ("GETRANGE a 0 9223372036854775807", "\"Hello World\""),
            ("GETRANGE a -9223372036854775808 -1", "\"Hello World\""),
            ("GETRANGE none 0 -1", "\"\""),
            ("GETRANGE a x 1", NOT_AN_INTEGER),
            ("SUBSTR a 0 0", "\"H\""),
            ("SETRANGE a 6 Redis", "(11)"),
            ("GET a", "\"Hello Redis\""),
            ("SETRANGE b 3 x", "(4)"),
            ("GET b", "\"\\x00\\x00\\x00x\""),
            ("SETRANGE c 3 \"\"", "(0)"),
            ("EXISTS c", "(0)"),
            ("SETRANGE a 0 \"\"", "(11)"),
            ("SETRANGE a -1 x", "-ERR offset is out of range"),
            ("SETRANGE a x x", NOT_AN_INTEGER),
            ("STRLEN a", "(11)"),
        ],
    ),
    redis(
        "bits",
        &[
            ("SETBIT a 7 1", "(0)"),
            ("GET a", "\"\\x01\""),
            ("SETBIT a 7 0", "(1)"),
            ("SETBIT a 20 1", "(0)"),
            ("GET a", "\"\\x00\\x00\\x08\""),
            ("GETBIT a 20", "(1)"),
            ("GETBIT a 21", "(0)"),
            ("GETBIT a 4294967295", "(0)"),
            ("GETBIT none 0", "(0)"),
            ("SETBIT a -1 1", "-ERR bit offset is not an integer or out of range"),
            ("SETBIT a 4294967296 1", "-ERR bit offset is not an integer or out of range"),
            ("SETBIT a x 1", "-ERR bit offset is not an integer or out of range"),
            ("SETBIT a 1 2", "-ERR bit is not an integer or out of range"),
            ("GETBIT a x", "-ERR bit offset is not an integer or out of range"),
            ("SET f foobar", "OK"),
            ("BITCOUNT f", "(26)"),
            ("BITCOUNT f 0 0", "(4)"),
            ("BITCOUNT f 1 1 BYTE", "(6)"),
            ("BITCOUNT f 5 30 BIT", "(17)"),
            ("BITCOUNT f -2 -1", "(7)"),
            ("BITCOUNT f 5 1", "(0)"),
            ("BITCOUNT none", "(0)"),
            ("BITCOUNT f 1", SYNTAX),
            ("BITCOUNT f 1 x", NOT_AN_INTEGER),
            ("BITCOUNT f 0 1 FOO", SYNTAX),
            ("SET p \"\\xff\\xf0\\x00\"", "OK"),
            ("BITPOS p 0", "(12)"),
            ("BITPOS p 1", "(0)"),
            ("BITPOS p 1 2", "(-1)"),
            ("BITPOS p 0 0 0", "(-1)"),
            ("BITPOS p 1 -2 -1", "(8)"),
            ("BITPOS p 0 2 -1", "(16)"),
            ("BITPOS p 0 7 15 BIT", "(12)"),
            ("BITPOS p 1 13 -1 BIT", "(-1)"),
            ("SET p \"\\xff\\xff\"", "OK"),
            ("BITPOS p 0", "(16)"),
            ("BITPOS p 0 0", "(16)"),
            ("BITPOS p 0 0 -1", "(-1)"),
            ("BITPOS none 0", "(0)"),
            ("BITPOS none 1", "(-1)"),
            ("BITPOS p 2", "-ERR The bit argument must be 1 or 0."),
            ("BITPOS p x", NOT_AN_INTEGER),
            ("BITPOS p 1 0 1 BIT 5", SYNTAX),
        ],
    ),
    redis(
        "numbers",
        &[
            ("INCR a", "(1)"),
            ("INCRBY a 10", "(11)"),
            ("DECR a", "(10)"),
            ("DECRBY a 20", "(-10)"),
            ("GET a", "\"-10\""),
            ("DECR none", "(-1)"),
            ("DECRBY none2 -5", "(5)"),
            ("SET a 9223372036854775807", "OK"),
            ("INCR a", "-ERR increment or decrement would overflow"),
            ("INCRBY a x", NOT_AN_INTEGER),
            ("INCRBY a 9223372036854775808", NOT_AN_INTEGER),
            ("INCRBY a", "-ERR wrong number of arguments for \\'incrby\\' command"),
            ("DECRBY a -9223372036854775808", "-ERR decrement would overflow"),
            ("SET a abc", "OK"),
            ("INCR a", NOT_AN_INTEGER),
            ("SET a \"5 \"", "OK"),
            ("INCR a", NOT_AN_INTEGER),
            ("SET a 05", "OK"),
            ("INCR a", NOT_AN_INTEGER),
            ("SET f 10.50", "OK"),
            ("INCRBYFLOAT f 0.1", "\"10.6\""),
            ("INCRBYFLOAT f -5", "\"5.6\""),
            ("SET f 5.0e3", "OK"),
            ("INCRBYFLOAT f 2.0e2", "\"5200\""),
            ("INCRBYFLOAT new 1.5", "\"1.5\""),
            ("INCRBYFLOAT new nan", NOT_A_FLOAT),
            ("INCRBYFLOAT new x", NOT_A_FLOAT),
            ("INCRBYFLOAT a 1", "\"6\""),
            ("SET a \"5 \"", "OK"),
            ("INCRBYFLOAT a 1", NOT_A_FLOAT),
            ("SET e 1000 EX 1000", "OK"),
            ("INCR e", "(1001)"),
            ("TTL e", "(1000)"),
        ],
    ),
    redis(
        "keys",
        &[
            ("EXISTS a", "(0)"),
            ("MSET a 1 b 2 c 3", "OK"),
            ("EXISTS a b none a", "(3)"),
            ("TOUCH a none", "(1)"),
            ("TOUCH a", "(1)"),
            ("TYPE a", "string"),
            ("TYPE none", "none"),
            ("DEL a", "(1)"),
            ("DEL a", "(0)"),
            ("DEL a b c b", "(2)"),
            ("DEL", "-ERR wrong number of arguments for \\'del\\' command"),
            ("MSET a 1 b 2", "OK"),
            ("UNLINK a b none", "(2)"),
            ("UNLINK a", "(0)"),
            ("EXISTS a b", "(0)"),
        ],
    ),
    redis(
        "expiry",
        &[
            ("TTL none", "(-2)"),
            ("PTTL none", "(-2)"),
            ("EXPIRETIME none", "(-2)"),
            ("EXPIRE none 10", "(0)"),
            ("PERSIST none", "(0)"),
            ("SET a 1", "OK"),
            ("TTL a", "(-1)"),
            ("PTTL a", "(-1)"),
            ("PEXPIRETIME a", "(-1)"),
            ("PERSIST a", "(0)"),
            ("EXPIRE a -9223372036854775808", "-ERR invalid expire time in \\'expire\\' command"),
            ("EXPIRE a 1000", "(1)"),
            ("TTL a", "(1000)"),
            ("PEXPIRE a 2000400", "(1)"),
            ("TTL a", "(2000)"),
            ("PERSIST a", "(1)"),
            ("TTL a", "(-1)"),
            ("EXPIREAT a 4000000000", "(1)"),
            ("EXPIRETIME a", "(4000000000)"),
            ("PEXPIREAT a 4000000000600", "(1)"),
            ("EXPIRETIME a", "(4000000001)"),
            ("PEXPIRETIME a", "(4000000000600)"),
            ("EXPIRE a 1000 NX", "(0)"),
            ("EXPIRE a 1000 GT", "(0)"),
            ("EXPIRE a 1000 LT", "(1)"),
            ("EXPIRE a 2000 GT", "(1)"),
            ("EXPIRE a 3000 XX", "(1)"),
            ("EXPIRE a 2900 XX GT", "(0)"),
            ("PERSIST a", "(1)"),
            ("EXPIRE a 1000 XX", "(0)"),
            ("EXPIRE a 1000 GT", "(0)"),
            ("EXPIRE a 1000 LT", "(1)"),
            ("EXPIRE a 10 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
            ("EXPIRE a 10 GT LT", "-ERR GT and LT options at the same time are not compatible"),
            ("EXPIRE a 10 FOO", "-ERR Unsupported option FOO"),
            ("EXPIRE a x", NOT_AN_INTEGER),
            ("EXPIRE a", "-ERR wrong number of arguments for \\'expire\\' command"),
            ("GETEX a", "\"1\""),
            ("GETEX a EX 500", "\"1\""),
            ("TTL a", "(500)"),
            ("GETEX a PERSIST", "\"1\""),
            ("TTL a", "(-1)"),
            ("GETEX a EXAT 4000000000", "\"1\""),
            ("EXPIRETIME a", "(4000000000)"),
            ("GETEX none EX 500", "nil"),
            ("GETEX a EX 0", "-ERR invalid expire time in \\'getex\\' command"),
            ("GETEX a EX 5 PERSIST", SYNTAX),
            ("GETEX a NX", SYNTAX),
            ("GETEX a PXAT 1", "\"1\""),
            ("EXISTS a", "(0)"),
            ("SET a 1", "OK"),
            ("EXPIRE a -1", "(1)"),
            ("EXISTS a", "(0)"),
            ("SET a 1", "OK"),
            ("EXPIREAT a 1", "(1)"),
            ("GET a", "nil"),
        ],
    ),
    redis(
        "RESP3",
        &[
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
            ("HELLO 3 FOO", "-ERR Syntax error in HELLO option \\'FOO\\'"),
            ("SET a 1", "OK"),
            (
                "HELLO 3 SETNAME you",
                "{\"server\", \"redis\", \"version\", \"7.0.15\", \"proto\", (3), \"id\", *, \"mode\", \"standalone\", \"role\", \"master\", \"modules\", []}",
            ),
            ("CLIENT GETNAME", "\"you\""),
            ("GET none", "nil"),
            ("MGET a none", "[\"1\", nil]"),
            ("CONFIG GET databases nothing", "{\"databases\", *}"),
            (
                "HELLO 2",
                "[\"server\", \"redis\", \"version\", \"7.0.15\", \"proto\", (2), \"id\", *, \"mode\", \"standalone\", \"role\", \"master\", \"modules\", []]",
            ),
            ("CONFIG GET nothing", "[]"),
        ],
    ),
    redis(
        "a server that stands alone",
        &[
            ("ROLE", "[\"master\", (0), []]"),
            ("FUNCTION FLUSH", "OK"),
            ("FUNCTION FLUSH async", "OK"),
            ("FUNCTION FLUSH x", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
            ("FUNCTION LIST", "[]"),
        ],
    ),
    redis(
        "settings of encodings",
        &[
            ("CONFIG SET zset-max-ziplist-value 10 list-max-ziplist-size -3", "OK"),
            ("CONFIG GET zset-max-listpack-value", "[\"zset-max-listpack-value\", \"10\"]"),
            ("CONFIG GET list-max-listpack-size", "[\"list-max-listpack-size\", \"-3\"]"),
            ("CONFIG SET nothing 1", "-ERR Unknown option or number of arguments for CONFIG SET - \\'nothing\\'"),
            (
                "CONFIG SET list-compress-depth 1 set-max-intset-entries x",
                "-ERR CONFIG SET failed (possibly related to argument \\'set-max-intset-entries\\') - argument couldn\\'t be parsed into an integer",
            ),
            (
                "CONFIG SET list-max-listpack-size 1 list-max-listpack-size 1",
                "-ERR CONFIG SET failed (possibly related to argument \\'list-max-listpack-size\\') - duplicate parameter",
            ),
            ("CONFIG GET list-compress-depth", "[\"list-compress-depth\", \"0\"]"),
            ("CONFIG SET zset-max-ziplist-value 64 list-max-ziplist-size -2", "OK"),
            ("CONFIG RESETSTAT", "OK"),
        ],
    ),
    ours(
        "what is not there",
        &[
            ("FOO", "-ERR unknown command \\'FOO\\', with args beginning with: "),
            ("FOO a \"b\\xff\"", "-ERR unknown command \\'FOO\\', with args beginning with: \\'a\\' \\'b\\\\xff\\' "),
            ("EVAL a 1", "-ERR \\'eval\\' is not supported yet: see docs/resp.md for what is"),
            ("EVAL x 0", "-ERR \\'eval\\' is not supported yet: see docs/resp.md for what is"),
            ("SELECT 1", "-ERR DB index is out of range: there is database 0 only"),
            (
                "CONFIG SET databases 2",
                "-ERR CONFIG SET failed (possibly related to argument \\'databases\\') - it cannot be changed while the server runs",
            ),
            ("CONFIG SET databases 1", "OK"),
            ("SET a 12345", "OK"),
            ("MEMORY USAGE a", "(6)"),
            ("MEMORY USAGE none", "nil"),
            ("MEMORY USAGE a SAMPLES 5", "(6)"),
            ("MEMORY USAGE a SAMPLES x", "-ERR value is not an integer or out of range"),
            ("MEMORY USAGE a b", "-ERR syntax error"),
            ("MEMORY USAGE", "-ERR wrong number of arguments for \\'memory|usage\\' command"),
            (
                "MEMORY DOCTOR",
                "-ERR unknown subcommand or wrong number of arguments for \\'DOCTOR\\': see docs/resp.md for what memory has",
            ),
            ("DEL a", "(1)"),
            (
                "CONFIG SET hash-max-listpack-entries",
                "-ERR unknown subcommand or wrong number of arguments for \\'SET\\': see docs/resp.md for what config has",
            ),
            (
                "CLIENT PAUSE 1",
                "-ERR unknown subcommand or wrong number of arguments for \\'PAUSE\\': see docs/resp.md for what client has",
            ),
            ("SET \"\" 1", "-ERR the key is empty; a key has 1 to 65535 bytes"),
            ("GET \"\"", "-ERR the key is empty; a key has 1 to 65535 bytes"),
            ("MGET a \"\"", "-ERR the key is empty; a key has 1 to 65535 bytes"),
            (
                "SET a 1 EX 9223372036854775807",
                "-ERR invalid expire time in \\'set\\' command: the latest that is kept is in the year 2106",
            ),
            (
                "SET a 1 PXAT 9223372036854775807",
                "-ERR invalid expire time in \\'set\\' command: the latest that is kept is in the year 2106",
            ),
            (
                "EXPIRE a 9223372036854775807",
                "-ERR invalid expire time in \\'expire\\' command: the latest that is kept is in the year 2106",
            ),
            (
                "SETRANGE a 1048576 x",
                "-ERR string exceeds maximum allowed size: 1048577 bytes, and clients may store 1048576 (--item-bytes-max)",
            ),
            (
                "SETRANGE a 9223372036854775807 x",
                "-ERR string exceeds maximum allowed size: 9223372036854775808 bytes, and clients may store 1048576 (--item-bytes-max)",
            ),
            ("INCRBYFLOAT a 1e400", NOT_A_FLOAT),
            (
                "COMMAND GETKEYS",
                "-ERR unknown subcommand or wrong number of arguments for \\'GETKEYS\\': see docs/resp.md for what command has",
            ),
        ],
    ),
    redis(
        "all keys",
        &[
            ("KEYS *", "[]"),
            ("SCAN 0", "[\"0\", []]"),
            ("SET user:1 a", "OK"),
            ("KEYS *", "[\"user:1\"]"),
            ("KEYS user:?", "[\"user:1\"]"),
            ("KEYS other*", "[]"),
            ("SCAN 0 MATCH user* COUNT 100", "[\"0\", [\"user:1\"]]"),
            ("SCAN 0 COUNT 100 MATCH x*", "[\"0\", []]"),
            ("SCAN 0 TYPE string COUNT 100", "[\"0\", [\"user:1\"]]"),
            ("SCAN 0 TYPE hash COUNT 100", "[\"0\", []]"),
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 0 COUNT 0", SYNTAX),
            ("SCAN 0 COUNT x", NOT_AN_INTEGER),
            ("SCAN 0 FOO 1", SYNTAX),
            ("SCAN 0 COUNT", SYNTAX),
            ("SCAN", "-ERR wrong number of arguments for \\'scan\\' command"),
            ("FLUSHALL x", SYNTAX),
            ("FLUSHDB ASYNC", "OK"),
            ("EXISTS user:1", "(0)"),
            ("SET user:2 a", "OK"),
            ("FLUSHALL", "OK"),
            ("EXISTS user:2", "(0)"),
        ],
    ),
];

/// Whether a reply is the one expected: a `*` stands for any number.
pub fn is_told(told: &str, expected: &str) -> bool {
    if expected.starts_with("{\"databases\"") {
        return told.starts_with("{\"databases\", \"");
    }
    if expected == "*" {
        let number = told.strip_prefix('(').and_then(|told| told.strip_suffix(')'));
        return number.is_some_and(|number| number.parse::<i64>().is_ok());
    }
    match expected.split_once(", *,") {
        Some((front, back)) => told.starts_with(&format!("{front}, (")) && told.ends_with(&format!("),{back}")),
        None => told == expected,
    }
}
