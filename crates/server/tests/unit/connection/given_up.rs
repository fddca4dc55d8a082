//! Connections that are given up.

use super::*;

/// What is in flight for it may end late. Until then nothing else of it is kept, whatever it was
/// at when it was given up: answers, a long get, a value that comes, one that is thrown away, a
/// command that waits, values that go slice by slice, what others do.
#[test]
fn a_connection_that_is_given_up_keeps_nothing() {
    let kept = |connection: &Connection| {
        [
            !connection.sending.output.is_empty(),
            connection.unfinished.held.is_some(),
            connection.unfinished.rest.is_some(),
            connection.unfinished.storing.is_some(),
            connection.unfinished.refused.is_some(),
            connection.watching.is_some(),
            connection.answers.pending.iter().any(|pending| pending.stream.is_some()),
        ]
    };
    let set = |key: char, bytes: usize| format!("set {key} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes));
    let sent = [set('a', 300_000), format!("get{}\r\n", " a".repeat(40)), set('b', 2 << 20), set('b', 9)].concat();
    let sent = sent + "incr b 1\r\nget b b a\r\nwatch mutations\r\n";
    let mut met = [0; 7];
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(sent.as_bytes());
        bench.model.front_bytes = (seed % 2 == 0).then_some(60_000);
        let (mut receiving, mut sending) = (None, None);
        for _ in 0..random.below(600) {
            bench.advance();
            receiving = receiving.or_else(|| bench.connection.next_recv());
            sending = sending.or_else(|| bench.connection.next_send());
            match random.below(3) {
                0 => receiving.take().into_iter().for_each(|buffer| bench.receive(buffer, 100_000)),
                1 if sending.take().is_some() => bench.connection.sent(true),
                _ if bench.model.waiting() > 0 => {
                    let (sequence, reply) = bench.model.answer(&mut random);
                    bench.connection.replied(sequence, reply);
                }
                _ => {}
            }
        }
        met.iter_mut().zip(kept(&bench.connection)).for_each(|(met, kept)| *met += u32::from(kept));
        bench.connection.abort();
        assert_eq!(kept(&bench.connection), [false; 7], "seed {seed}");
        assert!(bench.connection.is_finished() && bench.connection.next_send().is_none());
    }
    assert!(met.iter().all(|met| *met >= 4), "how often each was kept before: {met:?}");
}
