//! Commands of keys of any type.

use super::{NOT_AN_INTEGER, RespConversation, SYNTAX, redis};

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

pub const CONVERSATIONS: &[RespConversation] = &[redis(
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
)];
