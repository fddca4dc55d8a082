//! What holds for any bytes: run by the fuzzers (docs/fuzzing.md), and over their corpus by a test.

use crate::codec::{Reader, Truncated, Writer};
use crate::key::Key;

/// Reads fields of the kinds and lengths named by the first half of `input` from the second half,
/// and compares with plain slicing.
///
/// # Panics
/// A property does not hold.
pub fn codec(input: &[u8]) {
    let (orders, bytes) = input.split_at(input.len() / 2);
    let (mut reader, mut copy, mut at) = (Reader::new(bytes), vec![0; bytes.len()], 0usize);
    for order in orders {
        let wanted = match order % 8 {
            kind @ 0..4 => 1 << kind,
            4 => usize::MAX - usize::from(order / 8),
            _ => usize::from(order / 8),
        };
        let field = at.checked_add(wanted).and_then(|end| bytes.get(at..end));
        let refused = Truncated { at, wanted, left: bytes.len() - at };
        assert_eq!(read(&mut reader, order % 8, wanted), field.map(number).ok_or(refused));
        if let Some(field) = field {
            let mut writer = Writer::new(&mut copy[at..]);
            write(&mut writer, order % 8, field);
            assert_eq!(writer.at(), wanted);
            at += wanted;
        }
        assert_eq!((reader.at(), reader.left()), (at, bytes.len() - at), "a refused field consumes nothing");
    }
    assert_eq!(copy[..at], bytes[..at], "what was read is written as it was");
    key(bytes);
}

/// The last eight bytes as a number, enough to compare fields by.
fn number(field: &[u8]) -> u64 {
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read(reader: &mut Reader<'_>, kind: u8, wanted: usize) -> Result<u64, Truncated> {
    match kind {
        0 => reader.u8().map(u64::from),
        1 => reader.u16().map(u64::from),
        2 => reader.u32().map(u64::from),
        3 => reader.u64(),
        _ => reader.bytes(wanted).map(number),
    }
}

fn write(writer: &mut Writer<'_>, kind: u8, field: &[u8]) {
    let number = number(field);
    match kind {
        0 => writer.u8(number as u8),
        1 => writer.u16(number as u16),
        2 => writer.u32(number as u32),
        3 => writer.u64(number),
        _ => writer.bytes(field),
    };
}

/// An encoded key, as records hold it, is what its parts make again.
fn key(bytes: &[u8]) {
    if let Some(key) = Key::from_encoded(bytes) {
        assert_eq!(key.encoded(), bytes);
        assert_eq!(Key::new(key.collection(), key.user()), Ok(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/codec");
        for file in std::fs::read_dir(folder).unwrap() {
            codec(&std::fs::read(file.unwrap().path()).unwrap());
        }
        let mut random = Random::new(1);
        for length in 0..300 {
            let mut input = vec![0; length];
            random.fill(&mut input);
            codec(&input);
        }
    }
}
