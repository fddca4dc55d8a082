//! The compatibility table in `docs/memcache.md` is that of the conversations: each registers what
//! it sends and is not refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use stratakv_protocol::memcache::binary::{BinaryParsed, BinaryParser, REQUEST_MAGIC};
use stratakv_protocol::memcache::{Command, MetaVerb, Parsed, Parser};

use super::conversations;

const ITEM_BYTES_MAX: usize = 1 << 20;
const BEGIN: &str = "<!-- the table begins; `STRATAKV_WRITE_TABLE=1 cargo test -p stratakv-server --test server compatibility` writes it -->\n";
const END: &str = "<!-- the table ends -->\n";

/// Every command, and what of it there is: one row each. Behind `|` what is to be said of it.
const ROWS: &[&str] = &[
    "get",
    "gets",
    "bget",
    "gat",
    "gats",
    "touch",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas|a touch changes the version too",
    "set noreply",
    "add noreply",
    "cas noreply",
    "delete noreply",
    "incr noreply",
    "touch noreply",
    "delete",
    "incr",
    "decr",
    "flush_all",
    "flush_all delay",
    "flush_all noreply",
    "version",
    "verbosity|without effect",
    "quit",
    "shutdown|with `--enable-shutdown`",
    "cache_memlimit|of `tier`, from 4 MiB for each shard on; other engines answer `MEMLIMIT_ADJUST_FAILED`: [below](#memory)",
    "refresh_certs|without TLS that is the answer",
    "slabs reassign|there are no slab classes: `CLIENT_ERROR slab reassignment disabled`",
    "slabs automove|as `slabs reassign`",
    "lru mode|there are no such lists: `ERROR lru mode not available`",
    "lru tune|as `lru mode`",
    "lru temp_ttl|as `lru mode`",
    "lru_crawler enable|without effect: expired records are found all the time",
    "lru_crawler disable|without effect",
    "lru_crawler sleep|without effect",
    "lru_crawler tocrawl|without effect",
    "lru_crawler crawl|without effect",
    "lru_crawler metadump|behind other commands too",
    "lru_crawler mgdump|of later memcached",
    "watch",
    "watch fetchers|not the reads within writes",
    "watch mutations|`size` of an append is that of what was sent",
    "watch evictions|of `tier`: what leaves memory for good; `la` is -1",
    "watch sysevents|nothing is told: there is no crawler, and no slab mover",
    "watch connevents",
    "watch rawcmds|nothing is told, as with memcached 1.6",
    "stats",
    "stats settings",
    "stats items|class 1 has all records; see [below](#statistics)",
    "stats slabs|as `stats items`",
    "stats sizes|`disabled`: no engine tells how long what goes was",
    "stats sizes_enable|`error`, and stays `disabled`",
    "stats sizes_disable",
    "stats conns",
    "stats detail|of the first 2,048 prefixes",
    "stats cachedump|class 1 has all records",
    "stats extstore|empty",
    "stats reset",
    "auth (text)|with `--auth-file`",
    "mg",
    "mg b|`k` shows the key as it was asked for, not as it was stored",
    "mg c",
    "mg f",
    "mg h|of the 64 Ki keys used last, or fewer; others count as never fetched",
    "mg k",
    "mg l|as `h`; others count as not used since the server began",
    "mg O",
    "mg q",
    "mg s",
    "mg t",
    "mg u|it counts as a use for the engine, not for `h` and `l`",
    "mg v",
    "mg E|of later memcached",
    "mg N",
    "mg R",
    "mg T",
    "mg W|in answers",
    "mg X|in answers",
    "mg Z|in answers",
    "ms",
    "ms b",
    "ms c",
    "ms C",
    "ms E|of later memcached",
    "ms F",
    "ms I",
    "ms k",
    "ms O",
    "ms q",
    "ms s|of later memcached",
    "ms T",
    "ms MA",
    "ms ME",
    "ms MP",
    "ms MR",
    "ms MS",
    "ms N|for MA and MP, as later memcached",
    "md",
    "md b",
    "md C",
    "md E|of later memcached",
    "md I",
    "md k",
    "md O",
    "md q",
    "md T",
    "md x|of later memcached",
    "ma",
    "ma b",
    "ma c",
    "ma C",
    "ma D",
    "ma E|of later memcached",
    "ma J",
    "ma k",
    "ma MD",
    "ma MI",
    "ma N",
    "ma O",
    "ma q",
    "ma t",
    "ma T",
    "ma v",
    "mn",
    "mr|ours: [ranges of keys](#ranges-of-keys)",
    "me|class 1; the size is that of key and value",
    "binary get",
    "binary getq",
    "binary getk",
    "binary getkq",
    "binary set",
    "binary setq",
    "binary add",
    "binary addq",
    "binary replace",
    "binary replaceq",
    "binary delete",
    "binary deleteq",
    "binary increment",
    "binary incrementq",
    "binary decrement",
    "binary decrementq",
    "binary append",
    "binary appendq",
    "binary prepend",
    "binary prependq",
    "binary touch",
    "binary gat",
    "binary gatq",
    "binary gatk",
    "binary gatkq",
    "binary flush",
    "binary flushq",
    "binary noop",
    "binary version|tested by memccapable too",
    "binary stat",
    "binary verbosity|without effect; memcached does not answer",
    "binary quit",
    "binary quitq",
    "binary sasl list|with `--auth-file`: PLAIN",
    "binary sasl auth|PLAIN",
    "binary sasl step|after `sasl auth` of PLAIN without a message",
];

/// Rows that no conversation can hold, and the tests that do.
const ELSEWHERE: &[(&str, &str)] = &[
    ("mr", "memcache_clients_have_ranges_too"),
    ("shutdown", "clients_stop_the_server_only_where_they_may"),
    ("stats", "statistics_are_counted"),
    ("stats settings", "the_names_are_those_of_memcached_but_for_those_documented"),
    ("stats slabs", "one_class_has_every_record"),
    ("stats items", "one_class_has_every_record"),
    ("stats sizes", "sizes_are_not_counted_and_that_is_the_answer"),
    ("stats conns", "connections_are_listed_with_their_addresses"),
    ("flush_all delay", "a_delayed_flush_all_comes_true"),
    ("auth (text)", "a_stranger_may_say_who_it_is_and_no_more"),
    ("binary version", "a_stranger_in_binary_may_say_who_it_is_and_no_more"),
    ("binary sasl list", "a_stranger_in_binary_may_say_who_it_is_and_no_more"),
    ("binary sasl auth", "a_stranger_in_binary_may_say_who_it_is_and_no_more"),
    ("binary sasl step", "a_stranger_in_binary_may_say_who_it_is_and_no_more"),
    ("watch fetchers", "watchers_on_every_thread_are_told_what_others_do"),
    ("watch mutations", "watchers_on_every_thread_are_told_what_others_do"),
    ("cache_memlimit", "the_memory_of_a_full_cache_shrinks_and_grows_while_it_serves"),
    ("watch evictions", "watchers_are_told_what_a_cache_drops"),
    ("watch connevents", "connections_are_told_when_they_come_and_go"),
];

/// Names of the binary commands by opcode.
const OPCODES: &[(u8, &str)] = &[
    (0x00, "get"),
    (0x01, "set"),
    (0x02, "add"),
    (0x03, "replace"),
    (0x04, "delete"),
    (0x05, "increment"),
    (0x06, "decrement"),
    (0x07, "quit"),
    (0x08, "flush"),
    (0x09, "getq"),
    (0x0A, "noop"),
    (0x0B, "version"),
    (0x0C, "getk"),
    (0x0D, "getkq"),
    (0x0E, "append"),
    (0x0F, "prepend"),
    (0x10, "stat"),
    (0x11, "setq"),
    (0x12, "addq"),
    (0x13, "replaceq"),
    (0x14, "deleteq"),
    (0x15, "incrementq"),
    (0x16, "decrementq"),
    (0x17, "quitq"),
    (0x18, "flushq"),
    (0x19, "appendq"),
    (0x1A, "prependq"),
    (0x1B, "verbosity"),
    (0x1C, "touch"),
    (0x1D, "gat"),
    (0x1E, "gatq"),
    (0x20, "sasl list"),
    (0x21, "sasl auth"),
    (0x22, "sasl step"),
    (0x23, "gatk"),
    (0x24, "gatkq"),
];

/// What of a text conversation is understood.
fn rows_of_text(sent: &[u8], expected: &str) -> BTreeSet<String> {
    let (mut parser, mut rest, mut rows) = (Parser::new(ITEM_BYTES_MAX), sent, BTreeSet::new());
    loop {
        let (consumed, data_bytes) = match parser.parse(rest) {
            Parsed::Incomplete => return rows,
            Parsed::Skip { consumed } | Parsed::Error { consumed, .. } => (consumed, None),
            Parsed::TooLarge { command, consumed } => (consumed, command.data_bytes()),
            Parsed::Command { command, consumed } => {
                rows.extend(rows_of_line(&rest[..consumed], &command, expected));
                (consumed, command.data_bytes())
            }
        };
        rest = &rest[consumed..];
        rest = &rest[data_bytes.map_or(0, |bytes| bytes + 2).min(rest.len())..];
    }
}

fn rows_of_line(line: &[u8], command: &Command<'_>, expected: &str) -> Vec<String> {
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_whitespace().collect();
    let name = words[0];
    let mut rows = vec![name.to_owned()];
    match (name, command) {
        (_, Command::Meta(meta)) => {
            for (letter, rest) in meta.flags.words() {
                rows.push(match letter {
                    b'M' => format!("{name} M{}", rest.escape_ascii().to_string().replace('+', "I").replace('-', "D")),
                    letter => format!("{name} {}", char::from(letter)),
                });
            }
            if meta.verb == MetaVerb::Get {
                let told = |letter| expected.lines().any(|line| line.starts_with(['V', 'H']) && line.ends_with(letter));
                rows.extend(
                    ["W", "X", "Z"].iter().filter(|letter| told(**letter)).map(|letter| format!("mg {letter}")),
                );
            }
        }
        ("stats" | "slabs" | "lru" | "lru_crawler", _) => {
            rows.extend(words.get(1).map(|word| format!("{name} {word}")))
        }
        ("flush_all", _) if words.get(1).is_some_and(|word| *word != "noreply") => {
            rows.push("flush_all delay".to_owned())
        }
        ("watch", _) => rows.extend(words.iter().skip(1).map(|kind| format!("watch {kind}"))),
        _ => {}
    }
    if words.last() == Some(&"noreply") {
        rows.push(format!("{name} noreply"));
    }
    rows
}

fn rows_of_binary(sent: &[u8]) -> BTreeSet<String> {
    let (mut parser, mut rest, mut rows) = (BinaryParser::new(ITEM_BYTES_MAX), sent, BTreeSet::new());
    while rest.first() == Some(&REQUEST_MAGIC) {
        let BinaryParsed::Request { request, consumed } = parser.parse(rest) else { break };
        let name = OPCODES.iter().find(|(opcode, _)| *opcode == request.tag.opcode).map(|(_, name)| *name);
        rows.extend(name.map(|name| format!("binary {name}")));
        let header = rest.first_chunk::<24>().unwrap();
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        rest = &rest[(24 + body).max(consumed).min(rest.len())..];
    }
    rows
}

/// How many conversations of ours and memcached's have it, and of ours alone.
fn counted() -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let text = conversations::conversations().map(|conversation| {
        (rows_of_text(conversation.sent.as_bytes(), conversation.expected), conversation.ours_alone)
    });
    let binary = conversations::binary::conversations();
    let binary = binary.iter().map(|conversation| (rows_of_binary(&conversation.sent), conversation.ours_alone));
    for (rows, ours_alone) in text.chain(binary) {
        for row in rows {
            let count = counts.entry(row).or_default();
            count.0 += usize::from(!ours_alone);
            count.1 += usize::from(ours_alone);
        }
    }
    counts
}

fn table() -> String {
    let counts = counted();
    let mut table = String::from(
        "| command, flag | conversations held with memcached 1.6.18 too | with ours alone | tested besides by | |\n|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let (name, note) = row.split_once('|').unwrap_or((row, ""));
        let (same, ours) = counts.get(name).copied().unwrap_or_default();
        let tests: Vec<String> =
            ELSEWHERE.iter().filter(|(row, _)| *row == name).map(|(_, test)| format!("`{test}`")).collect();
        assert!(same + ours + tests.len() > 0, "nothing tests `{name}`");
        let number = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        table += &format!("| `{name}` | {} | {} | {} | {note} |\n", number(same), number(ours), tests.join(", "));
    }
    table
}

#[test]
fn the_table_in_the_documentation_is_that_of_the_tests() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memcache.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page says where the table begins");
    let (_, after) = rest.split_once(END).expect("the page says where the table ends");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("STRATAKV_WRITE_TABLE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == wanted,
        "docs/memcache.md is old: STRATAKV_WRITE_TABLE=1 cargo test -p stratakv-server --test server compatibility"
    );
}

#[test]
fn tests_that_the_table_names_are_there() {
    let tests = [
        include_str!("../server.rs"),
        include_str!("../memory/mod.rs"),
        include_str!("../names/mod.rs"),
        include_str!("../watching/mod.rs"),
        include_str!("../ranges/mod.rs"),
        include_str!("../unit/connection.rs"),
    ]
    .concat();
    for (row, test) in ELSEWHERE {
        assert!(tests.contains(&format!("fn {test}()")), "{test}");
        assert!(ROWS.iter().any(|known| known.split('|').next() == Some(row)), "{row}");
    }
}

#[test]
fn a_conversation_registers_what_is_understood_and_nothing_else() {
    let sent = b"mg a v k\r\nms a 5 ME\r\nmn  \r\n\r\nmg b !\r\nincr n 1 noreply\r\nstats reset\r\nfoo\r\n";
    let rows = rows_of_text(sent, "VA 2 X W\r\n");
    let expected = ["incr", "incr noreply", "mg", "mg W", "mg k", "mg v", "ms", "ms ME", "stats", "stats reset"];
    assert_eq!(rows.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
