//! The binary protocol. Responses are compared as lines:
//! `#<number of the request> <opcode> <status>[ e:<extras>][ k:<key>][ v:<value>][ cas]`.

/// Requests of one connection to an empty store, and the responses.
pub struct BinaryConversation {
    pub name: &'static str,
    pub sent: Vec<u8>,
    pub expected: &'static str,
    /// memcached differs, on purpose or by defect.
    pub ours_alone: bool,
}

/// A request: opcode, key, extras, value, version.
type Request<'a> = (u8, &'a [u8], &'a [u8], &'a [u8], u64);

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCR: u8 = 0x05;
const DECR: u8 = 0x06;
const QUIT: u8 = 0x07;
const FLUSH: u8 = 0x08;
const GETQ: u8 = 0x09;
const NOOP: u8 = 0x0A;
const VERSION: u8 = 0x0B;
const GETK: u8 = 0x0C;
const GETKQ: u8 = 0x0D;
const APPEND: u8 = 0x0E;
const PREPEND: u8 = 0x0F;
const STAT: u8 = 0x10;
const VERBOSITY: u8 = 0x1B;
const TOUCH: u8 = 0x1C;
const GAT: u8 = 0x1D;
const GATQ: u8 = 0x1E;
const GATK: u8 = 0x23;
const GATKQ: u8 = 0x24;
/// What is added to make a command of 0x01 to 0x08 quiet; append and prepend have opcodes of their
/// own.
const QUIET: u8 = 0x10;
const APPENDQ: u8 = 0x19;
const PREPENDQ: u8 = 0x1A;

/// A request as bytes; the opaque is its number.
pub fn frame(number: usize, (opcode, key, extras, value, cas): Request<'_>) -> Vec<u8> {
    let body = (key.len() + extras.len() + value.len()) as u32;
    let mut out = vec![0x80, opcode];
    out.extend((key.len() as u16).to_be_bytes());
    out.extend([extras.len() as u8, 0, 0, 0]);
    out.extend(body.to_be_bytes());
    out.extend((number as u32).to_be_bytes());
    out.extend(cas.to_be_bytes());
    [&out[..], extras, key, value].concat()
}

fn frames(requests: &[Request<'_>]) -> Vec<u8> {
    requests.iter().enumerate().flat_map(|(number, request)| frame(number, *request)).collect()
}

/// Responses as lines.
pub fn told(mut answer: &[u8]) -> String {
    let mut out = String::new();
    while let Some((header, rest)) = answer.split_first_chunk::<24>() {
        let number = |range: std::ops::Range<usize>| {
            header[range].iter().fold(0, |number: usize, byte| (number << 8) | usize::from(*byte))
        };
        let (key, extras, body) = (number(2..4), number(4..5), number(8..12));
        if header[0] != 0x81 || body > rest.len() || key + extras > body {
            break;
        }
        let (body, after) = rest.split_at(body);
        out += &format!("#{} {:02x} {}", number(12..16), header[1], number(6..8));
        let (extras, key_and_value) = body.split_at(extras);
        let (key, value) = key_and_value.split_at(key);
        for (what, bytes) in [(" e:", extras), (" k:", key), (" v:", value)] {
            if !bytes.is_empty() {
                out += &format!("{what}{}", bytes.escape_ascii());
            }
        }
        out += if number(16..24) > 0 { " cas\n" } else { "\n" };
        answer = after;
    }
    if !answer.is_empty() {
        out += &format!("and {}\n", answer.escape_ascii());
    }
    out
}

/// Extras of set, add and replace.
const fn item(flags: u8, exptime: [u8; 4]) -> [u8; 8] {
    [0, 0, 0, flags, exptime[0], exptime[1], exptime[2], exptime[3]]
}

/// Extras of incr and decr.
const fn delta(by: u8, initial: u8, exptime: [u8; 4]) -> [u8; 20] {
    let [a, b, c, d] = exptime;
    [0, 0, 0, 0, 0, 0, 0, by, 0, 0, 0, 0, 0, 0, 0, initial, a, b, c, d]
}

const NEVER: [u8; 4] = [0; 4];
/// Of incr and decr: nothing is made.
const NOTHING: [u8; 4] = [0xFF; 4];
static FIVE: [u8; 8] = item(5, NEVER);
const TEN_SECONDS: &[u8] = &[0, 0, 0, 10];
const NO: &[u8] = b"";
/// Ends a conversation of quiet requests.
const END: Request<'static> = (NOOP, NO, NO, NO, 0);

fn get(key: &[u8]) -> Request<'_> {
    (GET, key, NO, NO, 0)
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    (SET, key, &FIVE, value, 0)
}

/// All of them.
pub fn conversations() -> Vec<BinaryConversation> {
    let same = |name, requests: &[Request<'_>], expected| BinaryConversation {
        name,
        sent: frames(requests),
        expected,
        ours_alone: false,
    };
    let ours = |name, requests: &[Request<'_>], expected| BinaryConversation {
        name,
        sent: frames(requests),
        expected,
        ours_alone: true,
    };
    let all = [
        same(
            "gets of nothing",
            &[get(b"a"), (GETK, b"a", NO, NO, 0), (GETQ, b"a", NO, NO, 0), (GETKQ, b"a", NO, NO, 0), END],
            "#0 00 1 v:Not found\n#1 0c 1 k:a\n#4 0a 0\n",
        ),
        same(
            "set, and all gets",
            &[set(b"a", b"abc"), get(b"a"), (GETK, b"a", NO, NO, 0), (GETQ, b"a", NO, NO, 0), (GETKQ, b"a", NO, NO, 0)],
            "#0 01 0 cas\n#1 00 0 e:\\x00\\x00\\x00\\x05 v:abc cas\n#2 0c 0 e:\\x00\\x00\\x00\\x05 k:a v:abc cas\n#3 09 0 e:\\x00\\x00\\x00\\x05 v:abc cas\n#4 0d 0 e:\\x00\\x00\\x00\\x05 k:a v:abc cas\n",
        ),
        same(
            "an empty value, and one of line ends",
            &[set(b"a", b""), get(b"a"), set(b"a", b"\r\n\r\n"), get(b"a")],
            "#0 01 0 cas\n#1 00 0 e:\\x00\\x00\\x00\\x05 cas\n#2 01 0 cas\n#3 00 0 e:\\x00\\x00\\x00\\x05 v:\\r\\n\\r\\n cas\n",
        ),
        same(
            "keys of any bytes",
            &[set(b"a b\r\n\0\xff", b"1"), get(b"a b\r\n\0\xff"), (DELETE, b"a b\r\n\0\xff", NO, NO, 0)],
            "#0 01 0 cas\n#1 00 0 e:\\x00\\x00\\x00\\x05 v:1 cas\n#2 04 0\n",
        ),
        same(
            "add",
            &[
                (ADD, b"a", &FIVE, b"1", 0),
                (ADD, b"a", &FIVE, b"2", 0),
                (ADD + QUIET, b"a", &FIVE, b"2", 0),
                (ADD + QUIET, b"b", &FIVE, b"2", 0),
                END,
            ],
            "#0 02 0 cas\n#1 02 2 v:Data exists for key.\n#2 12 2 v:Data exists for key.\n#4 0a 0\n",
        ),
        same(
            "replace",
            &[
                (REPLACE, b"a", &FIVE, b"1", 0),
                (REPLACE + QUIET, b"a", &FIVE, b"1", 0),
                set(b"a", b"1"),
                (REPLACE, b"a", &FIVE, b"3", 0),
                (REPLACE + QUIET, b"a", &FIVE, b"4", 0),
                get(b"a"),
            ],
            "#0 03 1 v:Not found\n#1 13 1 v:Not found\n#2 01 0 cas\n#3 03 0 cas\n#5 00 0 e:\\x00\\x00\\x00\\x05 v:4 cas\n",
        ),
        same(
            "stores with a version",
            &[
                (SET, b"a", &FIVE, b"1", 5),
                set(b"a", b"1"),
                (SET, b"a", &FIVE, b"1", u64::MAX),
                (SET + QUIET, b"a", &FIVE, b"1", u64::MAX),
                (ADD, b"a", &FIVE, b"1", u64::MAX),
                (ADD, b"b", &FIVE, b"1", 5),
                (REPLACE, b"a", &FIVE, b"1", u64::MAX),
            ],
            "#0 01 1 v:Not found\n#1 01 0 cas\n#2 01 2 v:Data exists for key.\n#3 11 2 v:Data exists for key.\n#4 02 2 v:Data exists for key.\n#5 02 1 v:Not found\n#6 03 2 v:Data exists for key.\n",
        ),
        same(
            "setq",
            &[(SET + QUIET, b"a", &FIVE, b"1", 0), END, get(b"a")],
            "#1 0a 0\n#2 00 0 e:\\x00\\x00\\x00\\x05 v:1 cas\n",
        ),
        same(
            "delete",
            &[
                (DELETE, b"a", NO, NO, 0),
                (DELETE + QUIET, b"a", NO, NO, 0),
                set(b"a", b"1"),
                (DELETE, b"a", NO, NO, u64::MAX),
                (DELETE, b"a", NO, NO, 0),
                set(b"a", b"1"),
                (DELETE + QUIET, b"a", NO, NO, 0),
                get(b"a"),
            ],
            "#0 04 1 v:Not found\n#1 14 1 v:Not found\n#2 01 0 cas\n#3 04 2 v:Data exists for key.\n#4 04 0\n#5 01 0 cas\n#7 00 1 v:Not found\n",
        ),
        same(
            "incr and decr",
            &[
                (INCR, b"a", &delta(1, 7, NOTHING), NO, 0),
                (INCR, b"a", &delta(1, 7, NEVER), NO, 0),
                (INCR, b"a", &delta(2, 7, NEVER), NO, 0),
                (DECR, b"a", &delta(20, 7, NEVER), NO, 0),
                (INCR + QUIET, b"a", &delta(2, 7, NEVER), NO, 0),
                (DECR + QUIET, b"a", &delta(1, 7, NEVER), NO, 0),
                get(b"a"),
                (INCR + QUIET, b"z", &delta(1, 7, NOTHING), NO, 0),
                (DECR, b"n", &delta(1, 9, NEVER), NO, 0),
            ],
            "#0 05 1 v:Not found\n#1 05 0 v:\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07 cas\n#2 05 0 v:\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\t cas\n#3 06 0 v:\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00 cas\n#6 00 0 e:\\x00\\x00\\x00\\x00 v:1 cas\n#7 15 1 v:Not found\n#8 06 0 v:\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\t cas\n",
        ),
        same(
            "incr of what is no number, and with a version",
            &[
                set(b"a", b"x"),
                (INCR, b"a", &delta(1, 7, NEVER), NO, 0),
                (INCR + QUIET, b"a", &delta(1, 7, NEVER), NO, 0),
                set(b"a", b"1"),
                (INCR, b"a", &delta(1, 7, NEVER), NO, u64::MAX),
                (DECR, b"a", &delta(1, 7, NEVER), NO, u64::MAX),
            ],
            "#0 01 0 cas\n#1 05 6 v:Non-numeric server-side value for incr or decr\n#2 15 6 v:Non-numeric server-side value for incr or decr\n#3 01 0 cas\n#4 05 2 v:Data exists for key.\n#5 06 2 v:Data exists for key.\n",
        ),
        same(
            "append and prepend",
            &[
                (APPEND, b"a", NO, b"1", 0),
                (PREPEND, b"a", NO, b"1", 0),
                (APPENDQ, b"a", NO, b"1", 0),
                (PREPENDQ, b"a", NO, b"1", 0),
                set(b"a", b"x"),
                (APPEND, b"a", NO, b"1", 0),
                (PREPEND, b"a", NO, b"2", 0),
                (APPENDQ, b"a", NO, b"3", 0),
                (PREPENDQ, b"a", NO, b"4", 0),
                (APPEND, b"a", NO, b"1", u64::MAX),
                (APPEND, b"b", NO, b"1", 5),
                get(b"a"),
            ],
            "#0 0e 5 v:Not stored.\n#1 0f 5 v:Not stored.\n#2 19 5 v:Not stored.\n#3 1a 5 v:Not stored.\n#4 01 0 cas\n#5 0e 0 cas\n#6 0f 0 cas\n#9 0e 2 v:Data exists for key.\n#10 0e 5 v:Not stored.\n#11 00 0 e:\\x00\\x00\\x00\\x05 v:42x13 cas\n",
        ),
        same(
            "touch and all gats",
            &[
                (TOUCH, b"a", TEN_SECONDS, NO, 0),
                set(b"a", b"x"),
                (TOUCH, b"a", TEN_SECONDS, NO, 0),
                (GAT, b"a", TEN_SECONDS, NO, 0),
                (GATQ, b"a", TEN_SECONDS, NO, 0),
                (GATK, b"a", TEN_SECONDS, NO, 0),
                (GATKQ, b"a", TEN_SECONDS, NO, 0),
                (GAT, b"b", TEN_SECONDS, NO, 0),
                (GATQ, b"b", TEN_SECONDS, NO, 0),
                (GATK, b"b", TEN_SECONDS, NO, 0),
                (GATKQ, b"b", TEN_SECONDS, NO, 0),
            ],
            "#0 1c 1 v:Not found\n#1 01 0 cas\n#2 1c 0 e:\\x00\\x00\\x00\\x05 cas\n#3 1d 0 e:\\x00\\x00\\x00\\x05 v:x cas\n#4 1e 0 e:\\x00\\x00\\x00\\x05 v:x cas\n#5 23 0 e:\\x00\\x00\\x00\\x05 k:a v:x cas\n#6 24 0 e:\\x00\\x00\\x00\\x05 k:a v:x cas\n#7 1d 1 v:Not found\n#9 23 1 k:b\n",
        ),
        same(
            "a time that is no relative one is absolute",
            &[
                (SET, b"a", &item(0, [0, 0x27, 0x8D, 1]), b"v", 0),
                get(b"a"),
                (SET, b"a", &item(0, [0xFF; 4]), b"v", 0),
                get(b"a"),
            ],
            "#0 01 0 cas\n#1 00 1 v:Not found\n#2 01 0 cas\n#3 00 0 e:\\x00\\x00\\x00\\x00 v:v cas\n",
        ),
        same(
            "flush",
            &[
                set(b"a", b"x"),
                (FLUSH, NO, NO, NO, 0),
                get(b"a"),
                (FLUSH, NO, &[0; 4], NO, 0),
                (FLUSH + QUIET, NO, NO, NO, 0),
                (FLUSH, NO, &[0, 0, 4, 0], NO, 0),
                set(b"a", b"y"),
                get(b"a"),
            ],
            "#0 01 0 cas\n#1 08 0\n#2 00 1 v:Not found\n#3 08 0\n#5 08 0\n#6 01 0 cas\n#7 00 0 e:\\x00\\x00\\x00\\x05 v:y cas\n",
        ),
        same("quit", &[(QUIT, NO, NO, NO, 0), END], "#0 07 0\n"),
        same("quitq", &[(QUIT + QUIET, NO, NO, NO, 0), END], ""),
        same(
            "statistics",
            &[(STAT, b"sizes", NO, NO, 0), (STAT, b"foo", NO, NO, 0), (STAT, b"reset", NO, NO, 0)],
            "#0 10 0 k:sizes_status v:disabled\n#0 10 0\n#1 10 1 v:Not found\n#2 10 0\n",
        ),
        same(
            "statistics by prefix",
            &[
                (STAT, b"reset", NO, NO, 0),
                (STAT, b"detail on", NO, NO, 0),
                get(b"user:1"),
                (STAT, b"detail off", NO, NO, 0),
                get(b"user:1"),
                (STAT, b"detail dump", NO, NO, 0),
                (STAT, b"detail", NO, NO, 0),
                (STAT, b"detail x", NO, NO, 0),
            ],
            "#0 10 0\n#1 10 0\n#2 00 1 v:Not found\n#3 10 0\n#4 00 1 v:Not found\n\
             #5 10 0 k:detailed v:PREFIX user get 1 hit 0 set 0 del 0\\r\\nEND\\r\\n\n#5 10 0\n\
             #6 10 1 v:Not found\n#7 10 1 v:Not found\n",
        ),
        same(
            "commands nobody knows",
            &[(0x50, NO, NO, NO, 0), (0x20, NO, NO, NO, 0), END],
            "#0 50 129 v:Unknown command\n#1 20 129 v:Unknown command\n#2 0a 0\n",
        ),
        same("a key too many ends it", &[(NOOP, b"k", NO, NO, 0), END], "#0 0a 4 v:Invalid arguments\n"),
        same("no key ends it", &[(GET, NO, NO, NO, 0), END], "#0 00 4 v:Invalid arguments\n"),
        same("extras too many end it", &[(GET, b"a", b"1234", NO, 0), END], "#0 00 4 v:Invalid arguments\n"),
        same("extras too few end it", &[(INCR, b"a", b"1234", NO, 0), END], "#0 05 4 v:Invalid arguments\n"),
        same("a value too many ends it", &[(GET, b"a", NO, b"v", 0), END], "#0 00 4 v:Invalid arguments\n"),
        same("no extras end it", &[(TOUCH, b"a", NO, NO, 0), END], "#0 1c 4 v:Invalid arguments\n"),
        same("too long a key ends it", &[(GET, &[b'k'; 251], NO, NO, 0), END], "#0 00 4 v:Invalid arguments\n"),
        ours(
            "an unknown command's body is thrown away",
            &[(0x50, b"k", NO, b"v", 0), (0x21, b"PLAIN", NO, b"\0u\0p", 0), END],
            "#0 50 129 v:Unknown command\n#1 21 129 v:Unknown command\n#2 0a 0\n",
        ),
        ours("version and verbosity", &[(VERBOSITY, NO, &[0, 0, 0, 1], NO, 0), END], "#0 1b 0\n#1 0a 0\n"),
    ];
    let mut all = Vec::from(all);
    let large = vec![b'x'; (1 << 20) + 1];
    all.push(same(
        "a value over the limit is thrown away",
        &[(SET, b"big", &FIVE, &large, 0), (SET + QUIET, b"big", &FIVE, &large, 0), get(b"big")],
        "#0 01 3 v:Too large.\n#1 11 3 v:Too large.\n#2 00 1 v:Not found\n",
    ));
    let mut mixed = frames(&[END]);
    mixed.extend_from_slice(b"get a\r\n");
    mixed.extend(frames(&[END]));
    all.push(BinaryConversation {
        name: "text in between ends it",
        sent: mixed,
        expected: "#0 0a 0\n",
        ours_alone: false,
    });
    let mut short = frame(0, get(b"abc"));
    short[11] = 1;
    short.extend(frames(&[END]));
    all.push(BinaryConversation {
        name: "a body shorter than its key ends it",
        sent: short,
        expected: "#0 00 129 v:Unknown command\n",
        ours_alone: false,
    });
    let mut half = frame(0, (SET, b"a", &FIVE, b"abc", 0));
    half.pop();
    all.push(BinaryConversation { name: "half a value, then nothing", sent: half, expected: "", ours_alone: false });
    let mut text = b"get a\r\n".to_vec();
    text.extend(frames(&[(VERSION, NO, NO, NO, 0)]));
    text.extend_from_slice(b"\n");
    all.push(BinaryConversation {
        name: "binary after text is no command",
        sent: text,
        expected: "and END\\r\\nERROR\\r\\n\n",
        ours_alone: false,
    });
    all
}
