//! Commands of keys of any type.

use super::{NOT_AN_INTEGER, RespConversation, SYNTAX, ours, redis};

/// Where changes of several keys can be one: not on engine `tier`.
pub const OF_BATCHES: &[RespConversation] = &[redis(
    "renaming",
    &[
        ("RENAME none a", "-ERR no such key"),
        ("RENAMENX none a", "-ERR no such key"),
        ("SET a 1 EX 1000", "OK"),
        ("RENAME a b", "OK"),
        ("GET a", "nil"),
        ("GET b", "\"1\""),
        ("TTL b", "(1000)"),
        ("HSET h f v", "(1)"),
        ("RENAME h b", "OK"),
        ("HGETALL b", "[\"f\", \"v\"]"),
        ("TTL b", "(-1)"),
        ("EXISTS h", "(0)"),
        ("RENAME b b", "OK"),
        ("RENAMENX b b", "(0)"),
        ("SET a 1", "OK"),
        ("RENAMENX b a", "(0)"),
        ("GET a", "\"1\""),
        ("RENAMENX b c", "(1)"),
        ("HGET c f", "\"v\""),
        ("RENAME a", "-ERR wrong number of arguments for \\'rename\\' command"),
        ("RENAMENX a b c", "-ERR wrong number of arguments for \\'renamenx\\' command"),
    ],
)];

pub const CONVERSATIONS: &[RespConversation] = &[
    redis(
        "what is known of records",
        &[
            ("RANDOMKEY", "nil"),
            ("OBJECT ENCODING none", "nil"),
            ("OBJECT REFCOUNT none", "nil"),
            ("OBJECT IDLETIME none", "nil"),
            ("OBJECT FREQ none", "nil"),
            ("SET a abc", "OK"),
            ("RANDOMKEY", "\"a\""),
            ("OBJECT REFCOUNT a", "(1)"),
            (
                "OBJECT FREQ a",
                "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
            ),
            ("DEL a", "(1)"),
            ("HSET h f v", "(1)"),
            ("OBJECT encoding h", "\"listpack\""),
            ("OBJECT REFCOUNT h", "(1)"),
            ("RANDOMKEY", "\"h\""),
            ("OBJECT ENCODING", "-ERR wrong number of arguments for \\'object|encoding\\' command"),
            ("OBJECT ENCODING a b", "-ERR wrong number of arguments for \\'object|encoding\\' command"),
            ("OBJECT", "-ERR wrong number of arguments for \\'object\\' command"),
            ("RANDOMKEY a", "-ERR wrong number of arguments for \\'randomkey\\' command"),
        ],
    ),
    ours(
        "what is known of records otherwise",
        &[
            ("SET a 1", "OK"),
            ("OBJECT ENCODING a", "\"raw\""),
            (
                "OBJECT FOO a",
                "-ERR unknown subcommand or wrong number of arguments for \\'FOO\\': see docs/resp.md for what object has",
            ),
        ],
    ),
    redis(
        "copying",
        &[
            ("COPY none a", "(0)"),
            ("SET a 1 EX 1000", "OK"),
            ("COPY a b", "(1)"),
            ("GET b", "\"1\""),
            ("TTL b", "(1000)"),
            ("COPY a b", "(0)"),
            ("HSET h f v", "(1)"),
            ("COPY h b", "(0)"),
            ("COPY h b REPLACE", "(1)"),
            ("HGETALL b", "[\"f\", \"v\"]"),
            ("TTL b", "(-1)"),
            ("HSET b f w", "(0)"),
            ("HGET h f", "\"v\""),
            ("COPY a c DB 0 REPLACE", "(1)"),
            ("COPY a a", "-ERR source and destination objects are the same"),
            ("COPY none none", "-ERR source and destination objects are the same"),
            ("COPY a b DB x", NOT_AN_INTEGER),
            ("COPY a b DB", SYNTAX),
            ("COPY a b FOO", SYNTAX),
            ("COPY a", "-ERR wrong number of arguments for \\'copy\\' command"),
        ],
    ),
];
