//! Values that are too long, over a connection without sockets.

use super::conversations::binary::{frame, told};
use super::*;

/// Text, meta and binary: the answer comes when the value has been thrown away. It came with the
/// header.
#[test]
fn too_large_a_value_is_swallowed_without_keeping_it_and_answered_then() {
    let value = vec![b'x'; (1 << 20) + 1];
    let text = |line: &str, end: &[u8]| [format!("{line}\r\n").as_bytes(), &value, b"\r\n", end].concat();
    let refused = "SERVER_ERROR object too large for cache\r\n";
    let length = value.len();
    let cases = [
        (text(&format!("set a 0 0 {length}"), b"mn\r\n"), format!("{refused}MN\r\n")),
        (text(&format!("cas a 0 0 {length} 1 noreply"), b"mn\r\n"), "MN\r\n".to_owned()),
        (text(&format!("ms YQ== {length} b q"), b"mn\r\n"), format!("{refused}MN\r\n")),
        (
            [frame(7, (0x01, b"a", &[0; 8], &value, 0)), frame(8, (0x0A, b"", b"", b"", 0))].concat(),
            "#7 01 3 v:Too large.\n#8 0a 0\n".to_owned(),
        ),
        (
            [frame(7, (0x19, b"a", b"", &value, 0)), frame(8, (0x0A, b"", b"", b"", 0))].concat(),
            "#7 19 3 v:Too large.\n#8 0a 0\n".to_owned(),
        ),
    ];
    for (sent, expected) in cases {
        // All of it but its last byte, and what follows.
        let (mut bench, behind) = (Bench::new(&sent), if sent[0] == 0x80 { 25 } else { 5 });
        let mut most = 0;
        while bench.unsent.len() > behind {
            bench.advance();
            most = most.max(bench.connection.true_up(0));
            let buffer = bench.connection.next_recv().expect("it goes on receiving");
            let bytes = bench.unsent.len() - behind;
            bench.receive(buffer, bytes.min(100_000));
        }
        bench.advance();
        assert!(bench.connection.next_send().is_none(), "nothing is answered yet");
        assert!(!bench.connection.is_between_requests(), "its client has to go on");
        assert!(most < 200_000, "{most} bytes");
        let bench = bench.run(&mut Random::new(3), 1 << 20);
        let words = if sent[0] == 0x80 { told(&bench.answer) } else { String::from_utf8(bench.answer).unwrap() };
        assert_eq!(words, expected);
        assert_eq!((bench.counters.store_too_large.get(), bench.submitted), (1, 0));
    }
}

/// A cache went on serving what a `set` was to replace; other stores do, as is documented.
#[test]
fn a_set_that_is_refused_takes_the_old_value_along_in_a_cache_alone() {
    let value = "x".repeat((1 << 20) + 1);
    let length = value.len();
    let set = b"set a 0 0 3\r\nold\r\n".to_vec();
    let text = |line: &str| [&set[..], format!("{line}\r\n{value}\r\nget a\r\n").as_bytes()].concat();
    let binary = |opcode, extras: &[u8]| {
        let old = frame(0, (0x01, b"a", &[0; 8], b"old", 0));
        let refused = frame(1, (opcode, b"a", extras, value.as_bytes(), 0));
        [old, refused, frame(2, (0x00, b"a", b"", b"", 0))].concat()
    };
    let cases = [
        (text(&format!("set a 0 0 {length}")), true),
        (text(&format!("set a 0 0 {length} noreply")), true),
        (text(&format!("ms a {length}")), true),
        (text(&format!("ms a {length} MA")), true),
        (text(&format!("add a 0 0 {length}")), false),
        (text(&format!("replace a 0 0 {length}")), false),
        (text(&format!("append a 0 0 {length}")), false),
        (text(&format!("cas a 0 0 {length} 1")), false),
        (binary(0x01, &[0; 8]), true),
        (binary(0x11, &[0; 8]), true),
        (binary(0x03, &[0; 8]), false),
        (binary(0x0E, b""), false),
    ];
    for (sent, goes) in cases {
        for is_cache in [true, false] {
            let mut bench = Bench::new(&sent);
            bench.is_cache = is_cache;
            let bench = bench.run(&mut Random::new(5), 1 << 20);
            let has_old = bench.answer.windows(3).any(|bytes| bytes == b"old");
            let line = sent[..60].escape_ascii();
            assert_eq!(has_old, !(goes && is_cache), "{line}: {}", bench.answer.escape_ascii());
        }
    }
}

/// The same where the store refuses it, as its memory holds no such value.
#[test]
fn a_value_that_the_store_refuses_takes_the_old_one_along_in_a_cache_alone() {
    let text = |line: &str| format!("set a 0 0 3\r\nold\r\n{line}\r\n{}\r\nget a\r\n", "x".repeat(5000));
    let refused = frame(1, (0x01, b"a", &[0; 8], &[b'x'; 5000], 0));
    let ends = [frame(0, (0x01, b"a", &[0; 8], b"old", 0)), refused, frame(2, (0x00, b"a", b"", b"", 0))];
    let cases = [
        (text("set a 0 0 5000").into_bytes(), true),
        (text("ms a 5000").into_bytes(), true),
        (text("append a 0 0 5000").into_bytes(), false),
        (text("replace a 0 0 5000").into_bytes(), false),
        (ends.concat(), true),
    ];
    for (sent, goes) in cases {
        for is_cache in [true, false] {
            let mut bench = Bench::new(&sent);
            bench.is_cache = is_cache;
            bench.model.value_bytes_max = 4000;
            let bench = bench.run(&mut Random::new(6), 1000);
            let has_old = bench.answer.windows(3).any(|bytes| bytes == b"old");
            assert_eq!(has_old, !(goes && is_cache), "{}", bench.answer.escape_ascii());
            assert_eq!(bench.counters.store_too_large.get(), 1);
        }
    }
}
