//! Commands that wait, where they need not: there is an element, the command is none, or it stands
//! in a transaction.

use super::{RespConversation, SYNTAX, WRONG_TYPE, redis};

const NOT_A_TIME: &str = "-ERR timeout is not a float or out of range";
const NEGATIVE: &str = "-ERR timeout is negative";
const TOO_LONG: &str = "-ERR timeout is out of range";

pub const CONVERSATIONS: &[RespConversation] = &[
    redis(
        "waiting for a list that is there",
        &[
            ("RPUSH l a b c d e f", "(6)"),
            ("BLPOP l 0", "[\"l\", \"a\"]"),
            ("BRPOP l 0.01", "[\"l\", \"f\"]"),
            ("BLPOP none l other 0", "[\"l\", \"b\"]"),
            ("BLPOP l l 1e2", "[\"l\", \"c\"]"),
            ("BLMPOP 0 2 none l LEFT COUNT 10", "[\"l\", [\"d\", \"e\"]]"),
            ("EXISTS l", "(0)"),
            ("RPUSH l a b", "(2)"),
            ("BLMPOP 0.5 1 l RIGHT", "[\"l\", [\"b\"]]"),
            ("blpop l 0", "[\"l\", \"a\"]"),
            ("RPUSH l a b c", "(3)"),
            ("BLMOVE l l LEFT RIGHT 0", "\"a\""),
            ("LRANGE l 0 -1", "[\"b\", \"c\", \"a\"]"),
            ("BRPOPLPUSH l l 0", "\"a\""),
            ("LRANGE l 0 -1", "[\"a\", \"b\", \"c\"]"),
        ],
    ),
    redis(
        "waiting for a sorted set that is there",
        &[
            ("ZADD z 1 a 2.5 b 3 c", "(3)"),
            ("BZPOPMIN z 0", "[\"z\", \"a\", \"1\"]"),
            ("BZPOPMAX none z 0", "[\"z\", \"c\", \"3\"]"),
            (
                "HELLO 3",
                "{\"server\", \"redis\", \"version\", \"7.0.15\", \"proto\", (3), \"id\", *, \"mode\", \"standalone\", \"role\", \"master\", \"modules\", []}",
            ),
            ("BZPOPMIN z 0", "[\"z\", \"b\", ,2.5]"),
            ("ZADD z 1 a 2.5 b", "(2)"),
            ("BZMPOP 1 2 none z MAX", "[\"z\", [[\"b\", ,2.5]]]"),
            ("BZMPOP 1 1 z MIN COUNT 5", "[\"z\", [[\"a\", ,1]]]"),
            ("EXISTS z", "(0)"),
        ],
    ),
    redis(
        "what is no command that waits",
        &[
            ("BLPOP l", "-ERR wrong number of arguments for \\'blpop\\' command"),
            ("BLPOP l x", NOT_A_TIME),
            ("BRPOP l \"\"", NOT_A_TIME),
            ("BLPOP l nan", NOT_A_TIME),
            ("BLPOP l -1", NEGATIVE),
            ("BZPOPMIN l -0.5", NEGATIVE),
            ("BLMOVE a b LEFT UP 1", SYNTAX),
            ("BLMOVE a b UP LEFT x", SYNTAX),
            ("BLMOVE a b LEFT LEFT x", NOT_A_TIME),
            ("BRPOPLPUSH a b -1", NEGATIVE),
            ("BLMPOP 1 0 a LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP 1 a b LEFT", "-ERR numkeys should be greater than 0"),
            ("BLMPOP x 1 a LEFT", NOT_A_TIME),
            ("BLMPOP 1 5 a LEFT", SYNTAX),
            ("BLMPOP 1 1 a UP", SYNTAX),
            ("BLMPOP 1 1 a LEFT COUNT 0", "-ERR count should be greater than 0"),
            ("BLMPOP 1 1 a LEFT COUNT", SYNTAX),
            ("BZMPOP 1 1 a UP", SYNTAX),
            ("BZMPOP 1 1 a MIN COUNT x", "-ERR count should be greater than 0"),
            ("SET s 1", "OK"),
            ("RPUSH l 1", "(1)"),
            ("BLPOP s 0", WRONG_TYPE),
            ("BLPOP none s l 0", WRONG_TYPE),
            ("BZPOPMAX l 0", WRONG_TYPE),
            ("BZMPOP 0 1 l MIN", WRONG_TYPE),
            ("BLMPOP 0 1 s LEFT", WRONG_TYPE),
            ("LRANGE l 0 -1", "[\"1\"]"),
            ("CLIENT UNBLOCK 1000000", "(0)"),
            ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
            ("CLIENT UNBLOCK 1000000 NOW", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        ],
    ),
    // Redis 7.0 says of these that they are negative.
    RespConversation {
        name: "times that no clock has",
        ours: true,
        lines: &[("BLPOP l 1e30", TOO_LONG), ("BLPOP l inf", TOO_LONG), ("BLPOP l 9223372036854776", TOO_LONG)],
    },
    redis(
        "in a transaction nobody waits",
        &[
            ("MULTI", "OK"),
            ("BLPOP l 0", "QUEUED"),
            ("BLMPOP 0 2 l m LEFT", "QUEUED"),
            ("BZPOPMIN z 0", "QUEUED"),
            ("BLMOVE l l LEFT LEFT 0", "QUEUED"),
            ("BZMPOP 0 1 z MIN", "QUEUED"),
            ("BLPOP l x", "QUEUED"),
            ("EXEC", "[nil array, nil array, nil array, nil, nil array, -ERR timeout is not a float or out of range]"),
        ],
    ),
];

pub const OF_BATCHES: &[RespConversation] = &[
    redis(
        "a move that waits at what is no list",
        &[
            ("SET s 1", "OK"),
            ("RPUSH l 1", "(1)"),
            ("BLMOVE s l LEFT LEFT 0", WRONG_TYPE),
            ("LRANGE l 0 -1", "[\"1\"]"),
        ],
    ),
    redis(
        "waiting for a list, and moving its elements",
        &[
            ("RPUSH l a b", "(2)"),
            ("BLMOVE l m RIGHT LEFT 0", "\"b\""),
            ("BRPOPLPUSH l m 0", "\"a\""),
            ("LRANGE m 0 -1", "[\"a\", \"b\"]"),
            ("RPUSH l a", "(1)"),
            ("SET s 1", "OK"),
            ("BLMOVE l s LEFT LEFT 0", WRONG_TYPE),
            ("LLEN l", "(1)"),
            ("MULTI", "OK"),
            ("RPUSH k x y", "QUEUED"),
            ("BLPOP none k 0", "QUEUED"),
            ("BLMOVE k j LEFT LEFT 1", "QUEUED"),
            ("EXEC", "[(2), [\"k\", \"x\"], \"y\"]"),
        ],
    ),
];
