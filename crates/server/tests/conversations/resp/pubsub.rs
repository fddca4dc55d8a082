//! Publish and subscribe, of one client alone.

use super::{RespConversation, ours, redis};

pub const CONVERSATIONS: &[RespConversation] = &[
    redis(
        "listening in the second version of the protocol",
        &[
            ("PUBSUB NUMPAT", "(0)"),
            ("SUBSCRIBE a", "[\"subscribe\", \"a\", (1)]"),
            ("SUBSCRIBE a", "[\"subscribe\", \"a\", (1)]"),
            ("PSUBSCRIBE p*", "[\"psubscribe\", \"p*\", (2)]"),
            ("SSUBSCRIBE s", "[\"ssubscribe\", \"s\", (1)]"),
            ("PING", "[\"pong\", \"\"]"),
            ("PING x", "[\"pong\", \"x\"]"),
            (
                "GET a",
                "-ERR Can\\'t execute \\'get\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            ),
            (
                "PUBLISH a 1",
                "-ERR Can\\'t execute \\'publish\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            ),
            (
                "MULTI",
                "-ERR Can\\'t execute \\'multi\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            ),
            ("UNSUBSCRIBE none", "[\"unsubscribe\", \"none\", (2)]"),
            ("UNSUBSCRIBE a", "[\"unsubscribe\", \"a\", (1)]"),
            ("UNSUBSCRIBE", "[\"unsubscribe\", nil, (1)]"),
            ("PUNSUBSCRIBE", "[\"punsubscribe\", \"p*\", (0)]"),
            (
                "GET a",
                "-ERR Can\\'t execute \\'get\\': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
            ),
            ("SUNSUBSCRIBE s", "[\"sunsubscribe\", \"s\", (0)]"),
            ("GET a", "nil"),
            ("PUNSUBSCRIBE", "[\"punsubscribe\", nil, (0)]"),
            ("SUNSUBSCRIBE", "[\"sunsubscribe\", nil, (0)]"),
            ("SUBSCRIBE a", "[\"subscribe\", \"a\", (1)]"),
            ("RESET", "RESET"),
            ("PING", "PONG"),
            ("PUBSUB NUMSUB a b", "[\"a\", (0), \"b\", (0)]"),
            ("PUBSUB NUMSUB", "[]"),
            ("PUBSUB CHANNELS", "[]"),
            ("PUBSUB CHANNELS a*", "[]"),
            ("PUBSUB SHARDCHANNELS", "[]"),
            ("PUBSUB SHARDNUMSUB s", "[\"s\", (0)]"),
            ("PUBLISH a 1", "(0)"),
            ("SPUBLISH a 1", "(0)"),
            ("SUBSCRIBE", "-ERR wrong number of arguments for \\'subscribe\\' command"),
            ("PUBLISH a", "-ERR wrong number of arguments for \\'publish\\' command"),
            ("MULTI", "OK"),
            ("PUBLISH a 1", "QUEUED"),
            ("SET k 1", "QUEUED"),
            ("SPUBLISH a 2", "QUEUED"),
            ("PUBLISH a 2", "QUEUED"),
            ("EXEC", "[(0), OK, (0), (0)]"),
        ],
    ),
    ours(
        "what of publish and subscribe there is not",
        &[
            ("MULTI", "OK"),
            ("SUBSCRIBE a", "-ERR Command not allowed inside a transaction"),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            (
                "PUBSUB FOO",
                "-ERR unknown subcommand or wrong number of arguments for \\'FOO\\': see docs/resp.md for what pubsub has",
            ),
        ],
    ),
];
