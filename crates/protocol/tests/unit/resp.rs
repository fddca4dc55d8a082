//! Requests whole, cut, too large, and what is none.

use super::super::{ARGUMENTS_MAX, words};
use super::*;

const LIMITS: Limits = Limits { argument_bytes_max: 5000, request_bytes_max: 20_000, arguments_max: ARGUMENTS_MAX };

/// What a stream says: each request as its arguments, and what ends it.
fn said(stream: &[u8], limits: Limits) -> String {
    let (mut parser, mut rest, mut arguments, mut said) = (Parser::default(), stream, Vec::new(), Vec::new());
    loop {
        let parsed = parser.parse(rest, limits);
        let kept = parser.spans().iter().map(|span| rest[span.clone()].escape_ascii().to_string());
        let consumed = match parsed {
            Parsed::Incomplete => break,
            Parsed::Skip { consumed } => consumed,
            Parsed::Part { consumed } => {
                arguments.extend(kept);
                consumed
            }
            Parsed::Long { bytes, consumed } => {
                arguments.extend(kept);
                let Some(long) = rest[consumed..].get(..bytes + 2) else { break };
                assert!(long.ends_with(b"\r\n"));
                arguments.push(format!("long {bytes}"));
                consumed + bytes + 2
            }
            Parsed::Request { consumed } => {
                arguments.extend(kept);
                said.push(std::mem::take(&mut arguments).join(" "));
                consumed
            }
            Parsed::Inline { bytes, consumed } => {
                said.push(format!("inline {:?}", words(&rest[..bytes]).map(|words| words.len())));
                consumed
            }
            Parsed::TooLarge { excess, consumed } => {
                arguments.clear();
                said.push(format!("{excess:?}"));
                consumed
            }
            Parsed::Error(error) => {
                said.push(error.to_string());
                break;
            }
        };
        rest = &rest[consumed..];
    }
    assert!(parser.is_between_requests() || !stream.is_empty());
    said.join("|")
}

#[test]
fn requests_are_arrays_of_bulk_strings() {
    for (stream, expected) in [
        (&b""[..], ""),
        (b"*1\r\n$4\r\nPING\r\n", "PING"),
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n", "GET |PING"),
        (b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\xff\x00\r\n", "GET \\r\\n\\xff\\x00"),
        (b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", "PING"),
        (b"PING\r\nget a b\n\r\n", "inline Ok(1)|inline Ok(3)|inline Ok(0)"),
        (b"set \"a\r\n", "inline Err(UnbalancedQuotes)"),
        (b"*1\r\n$4\r\nPIN", ""),
        (b"*", ""),
        (b"*1\r", ""),
    ] {
        assert_eq!(said(stream, LIMITS), expected, "{}", stream.escape_ascii());
    }
}

#[test]
fn what_is_no_request_is_told_and_ends_the_connection() {
    for (stream, expected) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*9223372036854775807\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*111111111111111111111111111111111111", "invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$1073741824\r\n", "invalid bulk length"),
        (b"*1\r\n$4294967296\r\n", "invalid bulk length"),
        (b"*1\r\n$+1\r\na\r\n", "invalid bulk length"),
        (b"*1\r\n$01\r\na\r\n", "invalid bulk length"),
        (b"*2\r\n*1\r\n$1\r\na\r\n", "expected '$', got '*'"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got '\\r'"),
        (b"*1\r\n$1\r\nabc\r\n", "expected a line end behind an argument"),
    ] {
        assert_eq!(said(stream, LIMITS), expected, "{}", stream.escape_ascii());
    }
    assert_eq!(said(&[b'a'; INLINE_BYTES_MAX + 1], LIMITS), "too big inline request");
    let line = [&[b'a'; INLINE_BYTES_MAX + 1][..], b"\r\n"].concat();
    assert_eq!(said(&line, LIMITS), "too big inline request");
    assert_eq!(said(&line[1..], LIMITS), "inline Ok(1)");
    let few = Limits { arguments_max: 2, ..LIMITS };
    assert_eq!(said(b"*2\r\n$1\r\na\r\n$1\r\nb\r\n*3\r\n", few), "a b|invalid multibulk length");
}

fn bulk(bytes: usize) -> Vec<u8> {
    [format!("${bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

#[test]
fn long_arguments_are_for_the_caller_and_too_long_ones_are_thrown_away() {
    let request = |lengths: &[usize]| {
        let head = format!("*{}\r\n", lengths.len()).into_bytes();
        [head, lengths.iter().flat_map(|bytes| bulk(*bytes)).collect()].concat()
    };
    let ping = &b"*1\r\n$4\r\nPING\r\n"[..];
    let after = |lengths: &[usize]| said(&[&request(lengths), ping].concat(), LIMITS);
    assert_eq!(after(&[1, LONG_BYTES_MIN, 1]), "x long 1024 x|PING");
    assert_eq!(after(&[LONG_BYTES_MIN - 1]), format!("{}|PING", "x".repeat(1023)));
    assert_eq!(after(&[2, 5000]), "xx long 5000|PING");
    assert_eq!(after(&[1, 5001, 1]), "Argument(5001)|PING");
    assert_eq!(after(&[5001, 9000]), "Argument(5001)|PING", "the first excess is told");
    assert_eq!(after(&[4000, 4000, 4000, 4000, 4000]), "Request|PING");
    assert_eq!(after(&[0; 1250]), format!("{}|PING", " ".repeat(1249)));
    assert_eq!(after(&[0; 1251]), "Request|PING");
}

/// A request of many arguments is handed over part by part, and no byte is parsed twice.
#[test]
fn a_request_that_comes_slowly_is_handed_over_in_parts() {
    let limits = Limits { request_bytes_max: 1 << 30, ..LIMITS };
    let count = 20_000;
    let stream = [format!("*{count}\r\n").into_bytes(), bulk(3).repeat(count)].concat();
    let (mut parser, mut received, mut arguments, mut longest) = (Parser::default(), Vec::new(), 0, 0);
    for piece in stream.chunks(700) {
        received.extend_from_slice(piece);
        longest = longest.max(received.len());
        loop {
            let consumed = match parser.parse(&received, limits) {
                Parsed::Part { consumed } | Parsed::Request { consumed } => consumed,
                Parsed::Incomplete => break,
                other => panic!("{other:?}"),
            };
            arguments += parser.spans().len();
            received.drain(..consumed);
        }
    }
    assert_eq!((arguments, received.len()), (count, 0));
    assert!(longest < PART_BYTES + 2 * 700, "{longest}");
    assert!(parser.held_bytes() < 64 << 10, "{}", parser.held_bytes());
}
