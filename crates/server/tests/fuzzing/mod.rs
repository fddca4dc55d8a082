//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use stratakv_base::random::Random;

use crate::bench::Bench;

/// Holds a conversation twice, once with all bytes at once, once with bytes, replies and sends in
/// an order drawn from the first two bytes of `input`: the client hears the same. A third time
/// operations fail: it ends all the same.
///
/// # Panics
/// A property does not hold.
pub fn conversation(input: &[u8]) {
    let Some(([low, high], sent)) = input.split_first_chunk() else { return };
    let mut random = Random::new(u64::from(u16::from_le_bytes([*low, *high])));
    let whole = Bench::new(sent).run(&mut Random::new(0), u64::MAX >> 1);
    let longest = [1, 9, 300][usize::from(low % 3)];
    let cut = Bench::new(sent).run(&mut random, longest);
    assert!(cut.answer == whole.answer, "\n{}\n{}", cut.answer.escape_ascii(), whole.answer.escape_ascii());
    assert_eq!(cut.submitted, whole.submitted);
    let mut failing = Bench::new(sent);
    failing.model.failures_percent = u64::from(high % 100);
    failing.run(&mut random, longest);
}

/// The same of a Redis client: [`conversation`].
///
/// # Panics
/// A property does not hold.
pub fn conversation_resp(input: &[u8]) {
    let Some(([low, high], sent)) = input.split_first_chunk() else { return };
    let mut random = Random::new(u64::from(u16::from_le_bytes([*low, *high])));
    let whole = Bench::of_resp(sent).run(&mut Random::new(0), u64::MAX >> 1);
    let longest = [1, 9, 300][usize::from(low % 3)];
    let cut = Bench::of_resp(sent).run(&mut random, longest);
    assert!(cut.answer == whole.answer, "\n{}\n{}", cut.answer.escape_ascii(), whole.answer.escape_ascii());
    let mut failing = Bench::of_resp(sent);
    failing.model.failures_percent = u64::from(high % 100);
    failing.run(&mut random, longest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/conversation");
        for file in std::fs::read_dir(folder).unwrap() {
            conversation(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_corpus_of_redis_clients_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/conversation_resp");
        for file in std::fs::read_dir(folder).unwrap() {
            conversation_resp(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}
