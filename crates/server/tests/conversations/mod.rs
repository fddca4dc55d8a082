//! What clients send and what they must get back, byte for byte. Run on the connection alone, on a
//! server, and on memcached.

mod admin;
pub mod binary;
mod meta;

/// One connection's bytes to an empty store, and the answer. In `expected`, `#` stands for a number
/// (a version of a record), `*` for a word.
pub struct Conversation {
    pub name: &'static str,
    pub sent: &'static str,
    pub expected: &'static str,
    /// memcached differs, on purpose: see the protocol's documentation.
    pub ours_alone: bool,
}

/// All of them.
pub fn conversations() -> impl Iterator<Item = &'static Conversation> {
    CONVERSATIONS.iter().chain(meta::CONVERSATIONS).chain(admin::CONVERSATIONS)
}

const fn same(name: &'static str, sent: &'static str, expected: &'static str) -> Conversation {
    Conversation { name, sent, expected, ours_alone: false }
}

const fn ours(name: &'static str, sent: &'static str, expected: &'static str) -> Conversation {
    Conversation { name, sent, expected, ours_alone: true }
}

const CONVERSATIONS: &[Conversation] = &[
    same("a get of nothing", "get a\r\n", "END\r\n"),
    same("set, get", "set a 5 0 3\r\nabc\r\nget a\r\n", "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"),
    same("an empty value", "set a 0 0 0\r\n\r\nget a\r\n", "STORED\r\nVALUE a 0 0\r\n\r\nEND\r\n"),
    same("bare newlines end lines too", "set a 0 0 1\n1\r\nget a\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"),
    same(
        "a value may hold anything",
        "set a 0 0 10\r\nget a\r\nEND\r\nget a\r\n",
        "STORED\r\nVALUE a 0 10\r\nget a\r\nEND\r\nEND\r\n",
    ),
    same(
        "several keys, in the order asked, absent ones left out, twice if asked twice",
        "set a 1 0 1\r\nA\r\nset b 2 0 2\r\nBB\r\nget b x a b\r\n",
        "STORED\r\nSTORED\r\nVALUE b 2 2\r\nBB\r\nVALUE a 1 1\r\nA\r\nVALUE b 2 2\r\nBB\r\nEND\r\n",
    ),
    same("gets shows a version", "set a 0 0 1\r\n1\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 #\r\n1\r\nEND\r\n"),
    same(
        "writes of a connection are seen by its later reads",
        "set a 0 0 1\r\n1\r\nget a\r\nset a 0 0 1\r\n2\r\nget a\r\nappend a 0 0 1\r\n3\r\nget a\r\ndelete a\r\nget a\r\n",
        "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nEND\r\nSTORED\r\nVALUE a 0 2\r\n23\r\nEND\r\nDELETED\r\nEND\r\n",
    ),
    same(
        "add, replace, append, prepend",
        "add a 0 0 1\r\n1\r\nadd a 0 0 1\r\n2\r\nreplace a 0 0 1\r\n3\r\nreplace b 0 0 1\r\n4\r\nappend b 0 0 1\r\n5\r\nprepend b 0 0 1\r\n6\r\nappend a 9 0 2\r\n78\r\nprepend a 9 0 2\r\n90\r\nget a b\r\n",
        "STORED\r\nNOT_STORED\r\nSTORED\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE a 0 5\r\n90378\r\nEND\r\n",
    ),
    same(
        "cas of an absent key and with a wrong version",
        "cas a 0 0 1 1\r\n1\r\nset a 0 0 1\r\n1\r\ncas a 0 0 1 18446744073709551615\r\n2\r\nget a\r\n",
        "NOT_FOUND\r\nSTORED\r\nEXISTS\r\nVALUE a 0 1\r\n1\r\nEND\r\n",
    ),
    same(
        "delete",
        "delete a\r\nset a 0 0 1\r\n1\r\ndelete a 0\r\ndelete a\r\nset a 0 0 1\r\n1\r\ndelete a noreply\r\nget a\r\n",
        "NOT_FOUND\r\nSTORED\r\nDELETED\r\nNOT_FOUND\r\nSTORED\r\nEND\r\n",
    ),
    same(
        "incr and decr",
        "incr a 1\r\ndecr a 1\r\nset a 7 0 1\r\n9\r\nincr a 1\r\ndecr a 1\r\nget a\r\ndecr a 100\r\nincr a 18446744073709551615\r\nincr a 2\r\nget a\r\n",
        "NOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\n10\r\n9\r\nVALUE a 7 2\r\n9 \r\nEND\r\n0\r\n18446744073709551615\r\n1\r\nVALUE a 7 20\r\n1                   \r\nEND\r\n",
    ),
    same(
        "incr of what is no number, by what is no number",
        "set a 0 0 2\r\n1x\r\nincr a 1\r\nset a 0 0 0\r\n\r\nincr a 1\r\nset a 0 0 20\r\n18446744073709551616\r\ndecr a 1\r\nincr a x\r\nincr a -1\r\nincr a 18446744073709551616\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n",
    ),
    same(
        "numbers are read as C does",
        "set a 0 0 1\r\n5\r\nincr a -1\r\nincr a -0\r\nincr a \t1\r\nincr a 1\tx\r\nincr a 1x\r\nset a +7 +0 1\r\n1\r\nget a\r\nverbosity 4294967296\r\nappend a 0 1 noreply\r\n",
        "STORED\r\nCLIENT_ERROR invalid numeric delta argument\r\n5\r\n6\r\n7\r\nCLIENT_ERROR invalid numeric delta argument\r\nSTORED\r\nVALUE a 7 1\r\n1\r\nEND\r\nOK\r\n",
    ),
    same(
        "touch, gat, gats",
        "touch a 0\r\nset a 3 0 1\r\n1\r\ntouch a 100\r\ngat 0 a b\r\ngats 100 a\r\nget a\r\ngat 0\r\n",
        "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nVALUE a 3 1\r\n1\r\nEND\r\nVALUE a 3 1 #\r\n1\r\nEND\r\nVALUE a 3 1\r\n1\r\nEND\r\nEND\r\n",
    ),
    same(
        "a time in the past is gone at once",
        "set a 0 -1 1\r\n1\r\nget a\r\nset b 0 0 1\r\n1\r\ntouch b -1\r\nget b\r\nadd b 0 0 1\r\n2\r\nset c 0 2592001 1\r\n1\r\nget b c\r\n",
        "STORED\r\nEND\r\nSTORED\r\nTOUCHED\r\nEND\r\nSTORED\r\nSTORED\r\nVALUE b 0 1\r\n2\r\nEND\r\n",
    ),
    same(
        "noreply is silent, errors too",
        "set a 0 0 1 noreply\r\n1\r\nadd a 0 0 1 noreply\r\n2\r\ncas a 0 0 1 18446744073709551615 noreply\r\n3\r\nincr a 1 noreply\r\nincr a x noreply\r\ntouch a 0 noreply\r\nverbosity 1 noreply\r\ndelete b noreply\r\nset a 0 0 1 noreply\r\n99\r\nget a\r\n",
        "ERROR\r\nVALUE a 0 1\r\n2\r\nEND\r\n",
    ),
    same(
        "flush_all takes what came before it and nothing else",
        "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nflush_all\r\nget a b\r\nset c 0 0 1\r\n1\r\nflush_all noreply\r\nget c\r\nflush_all 1000\r\nset d 0 0 1\r\n1\r\nget d\r\n",
        "STORED\r\nSTORED\r\nOK\r\nEND\r\nSTORED\r\nEND\r\nOK\r\nSTORED\r\nVALUE d 0 1\r\n1\r\nEND\r\n",
    ),
    same(
        "a data block of the wrong length is resynced as memcached does",
        "set a 0 0 3\r\nabcd\r\nget a\r\nset a 0 0 3\r\nabcdefgh\r\nversion x\r\nset a 0 0 3\r\nab\r\nget a\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nVERSION *\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\n",
    ),
    same(
        "lines that are no commands",
        "\r\nfoo\r\nget\r\nset a 0 0\r\nset a x 0 1\r\nset a 0 x 1\r\nset a 0 0 -1\r\ncas a 0 0 1\r\ndelete\r\ndelete a 1\r\ntouch a\r\ntouch a x\r\ngat x a\r\nverbosity\r\nflush_all x\r\nstats foo\r\nget a\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nERROR\r\nERROR\r\nCLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nERROR\r\nCLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR invalid exptime argument\r\nERROR\r\nCLIENT_ERROR invalid exptime argument\r\nERROR\r\nEND\r\n",
    ),
    same("quit ends it", "version\r\nquit\r\nversion\r\n", "VERSION *\r\n"),
    same(
        "a length of 2 GB is no length",
        "set a 0 0 2147483647\r\nget a\r\n",
        "CLIENT_ERROR bad command line format\r\nEND\r\n",
    ),
    same("half a command, then nothing", "get a\r\nset a 0 0 10\r\nabc", "END\r\n"),
    same("small statistics", "verbosity 1\r\nstats reset\r\n", "OK\r\nRESET\r\n"),
    same("a browser is hung up on", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
    ours("a browser's post is hung up on before its body", "POST /\r\nset a 0 0 1\r\n1\r\n", ""),
    same(
        "control characters may be in keys",
        "set \x01\t 0 0 1\r\n1\r\nget \x01\t\r\n",
        "STORED\r\nVALUE \x01\t 0 1\r\n1\r\nEND\r\n",
    ),
    ours("a zero byte may not", "get a\0b\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ours(
        "flags of structures are reserved",
        "set a 1397446145 0 1\r\n1\r\nset a 1397446145 0 1 noreply\r\n1\r\nappend a 1397446145 0 1\r\n1\r\nadd a 1397446145 0 1\r\n1\r\ncas a 1397446145 0 1 1\r\n1\r\nms a 1 F1397446145\r\n1\r\nms a 1 F1397446145 MA N0\r\n1\r\nms a 1 F1397446145 MA\r\n1\r\nmd a x F1397446145\r\nget a\r\nset a 1397446144 0 1\r\n1\r\nget a\r\n",
        "CLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nNOT_STORED\r\nCLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nCLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nCLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nCLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nNS\r\nCLIENT_ERROR flags 1397446145 are reserved for structures of Redis\r\nEND\r\nSTORED\r\nVALUE a 1397446144 1\r\n1\r\nEND\r\n",
    ),
    ours("flags have 32 bits", "set a 4294967296 0 1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ours(
        "a backup has a name, and no path",
        "backup ../a\r\nbackup\r\nbackup a b\r\nstats backup\r\n",
        "CLIENT_ERROR a backup's name has 1 to 100 letters, digits, `-`, `_` and `.`, the first one a letter or a digit\r\nERROR\r\nERROR\r\nEND\r\n",
    ),
    ours("sizes are not kept", "stats sizes\r\nstats items\r\n", "STAT sizes_status disabled\r\nEND\r\nEND\r\n"),
];

/// Whether `answer` is `expected`, a number in the place of each `#` and a word in the place of
/// each `*`.
pub fn matches(answer: &[u8], expected: &str) -> bool {
    let mut rest = answer;
    for wanted in expected.bytes() {
        let class: fn(&u8) -> bool = match wanted {
            b'#' => u8::is_ascii_digit,
            b'*' => u8::is_ascii_graphic,
            _ => {
                let Some(after) = rest.strip_prefix(&[wanted]) else { return false };
                rest = after;
                continue;
            }
        };
        let end = rest.iter().position(|byte| !class(byte)).unwrap_or(rest.len());
        if end == 0 {
            return false;
        }
        rest = &rest[end..];
    }
    rest.is_empty()
}
