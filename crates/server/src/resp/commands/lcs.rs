//! LCS: the longest string whose bytes come in two others in its order, with gaps.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use stratakv_protocol::resp::encode;
use stratakv_structures::Kind;

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::records::{Call, Records};

type Done = Result<(), RequestRefusal>;

/// Pairs of bytes that are compared at most: each takes a bit, and others of the thread wait.
const PAIRS_MAX: usize = 1 << 24;

/// What LCS says beside its keys.
#[derive(Debug, Default)]
struct LcsOptions {
    wants_length: bool,
    wants_matches: bool,
    with_lengths: bool,
    match_bytes_min: u64,
}

impl LcsOptions {
    fn read(a: &Arguments<'_>) -> Result<LcsOptions, RequestRefusal> {
        let (mut options, mut at) = (LcsOptions::default(), 3);
        while at < a.len() {
            match () {
                () if a.is(at, "IDX") => options.wants_matches = true,
                () if a.is(at, "LEN") => options.wants_length = true,
                () if a.is(at, "WITHMATCHLEN") => options.with_lengths = true,
                () if a.is(at, "MINMATCHLEN") && at + 1 < a.len() => {
                    at += 1;
                    options.match_bytes_min = u64::try_from(a.integer(at)?).unwrap_or(0);
                }
                () => return Err(Cow::Borrowed(SYNTAX)),
            }
            at += 1;
        }
        match options.wants_length && options.wants_matches {
            true => Err(Cow::Borrowed("ERR If you want both the length and indexes, please just use IDX.")),
            false => Ok(options),
        }
    }
}

/// Which way the longest string goes on from a pair of different bytes: a bit for each pair.
struct Directions {
    columns: usize,
    bits: Vec<u64>,
}

impl Directions {
    fn new(rows: usize, columns: usize) -> Directions {
        Directions { columns, bits: vec![0; (rows * columns).div_ceil(64)] }
    }

    /// From this pair it goes on with the byte before in the first string.
    fn set(&mut self, row: usize, column: usize) {
        let place = row * self.columns + column;
        if let Some(word) = self.bits.get_mut(place / 64) {
            *word |= 1 << (place % 64);
        }
    }

    fn is_set(&self, row: usize, column: usize) -> bool {
        let place = row * self.columns + column;
        self.bits.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}

/// How long the longest string of the two is; which way it goes is noted.
fn length(first: &[u8], second: &[u8], mut directions: Option<&mut Directions>) -> u32 {
    // Of the strings up to the row before; the first one is of no byte of the second string.
    let mut lengths = vec![0_u32; second.len() + 1];
    for (row, byte) in first.iter().enumerate() {
        let (mut left, mut before) = (0, 0);
        for (column, (other, above)) in second.iter().zip(lengths.iter_mut().skip(1)).enumerate() {
            let is_above = *above > left;
            let longest = match byte == other {
                true => before + 1,
                false => left.max(*above),
            };
            if is_above && let Some(directions) = &mut directions {
                directions.set(row, column);
            }
            before = *above;
            (left, *above) = (longest, longest);
        }
    }
    lengths.last().copied().unwrap_or(0)
}

/// A piece of the longest string that both have in one.
type Match = (RangeInclusive<usize>, RangeInclusive<usize>);

/// The longest string, and the pieces it is made of, the last one first.
fn traced(first: &[u8], second: &[u8], directions: &Directions) -> (Vec<u8>, Vec<Match>) {
    let (mut string, mut matches, mut open) = (Vec::new(), Vec::new(), None::<Match>);
    let (mut row, mut column) = (first.len(), second.len());
    while let (Some(above), Some(left)) = (row.checked_sub(1), column.checked_sub(1)) {
        let pair = first.get(above).zip(second.get(left));
        if let Some((byte, other)) = pair
            && byte == other
        {
            string.push(*byte);
            // Pairs that follow each other are one piece.
            open = Some(match open {
                Some((one, two)) => (above..=*one.end(), left..=*two.end()),
                None => (above..=above, left..=left),
            });
            (row, column) = (above, left);
            continue;
        }
        matches.extend(open.take());
        match directions.is_set(above, left) {
            true => row = above,
            false => column = left,
        }
    }
    matches.extend(open);
    string.reverse();
    (string, matches)
}

pub(crate) fn lcs(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let value = |at| match records.get(call.a.get(at))? {
        Some(record) if record.kind() == Kind::String => Ok(record.value),
        Some(_) => Err(Cow::Borrowed("ERR The specified keys must contain string values")),
        None => Ok(bytes::Bytes::new()),
    };
    let (first, second) = (value(1)?, value(2)?);
    let options = LcsOptions::read(&call.a)?;
    if first.len().saturating_mul(second.len()) > PAIRS_MAX {
        return Err(Cow::Owned(format!(
            "ERR the strings have {} and {} bytes, and LCS compares up to {PAIRS_MAX} pairs of bytes: use shorter ones",
            first.len(),
            second.len()
        )));
    }
    if options.wants_length {
        encode::integer(out, length(&first, &second, None).into());
        return Ok(());
    }
    let mut directions = Directions::new(first.len(), second.len());
    let length = length(&first, &second, Some(&mut directions));
    let (string, mut matches) = traced(&first, &second, &directions);
    if !options.wants_matches {
        encode::bulk(out, &string);
        return Ok(());
    }
    let match_bytes = |range: &RangeInclusive<usize>| (range.end() - range.start()) as u64 + 1;
    matches.retain(|(one, _)| match_bytes(one) >= options.match_bytes_min);
    encode::map(out, 2, call.version);
    encode::bulk(out, b"matches");
    encode::array(out, matches.len());
    for (one, two) in &matches {
        encode::array(out, 2 + usize::from(options.with_lengths));
        for range in [one, two] {
            encode::array(out, 2);
            encode::integer(out, *range.start() as i64);
            encode::integer(out, *range.end() as i64);
        }
        if options.with_lengths {
            encode::integer(out, match_bytes(one) as i64);
        }
    }
    encode::bulk(out, b"len");
    encode::integer(out, length.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use stratakv_base::random::Random;

    use super::*;

    /// As the definition has it.
    fn length_by_definition(first: &[u8], second: &[u8]) -> u32 {
        match (first.split_last(), second.split_last()) {
            (Some((byte, before)), Some((other, others))) if byte == other => length_by_definition(before, others) + 1,
            (Some((_, before)), Some((_, others))) => {
                length_by_definition(before, second).max(length_by_definition(first, others))
            }
            _ => 0,
        }
    }

    #[test]
    fn the_string_is_in_both_and_as_long_as_any() {
        let mut random = Random::new(3);
        for _ in 0..300 {
            let mut draw = || (0..random.below(9)).map(|_| b'a' + random.below(3) as u8).collect::<Vec<u8>>();
            let (first, second) = (draw(), draw());
            let expected = length_by_definition(&first, &second);
            let mut directions = Directions::new(first.len(), second.len());
            assert_eq!(length(&first, &second, Some(&mut directions)), expected);
            assert_eq!(length(&first, &second, None), expected);
            let (string, matches) = traced(&first, &second, &directions);
            assert_eq!(string.len(), expected as usize, "{first:?} {second:?}");
            let pieces = |of: &[u8], second: bool| {
                let ranges = matches.iter().rev().map(|(one, two)| if second { two } else { one });
                ranges.flat_map(|range| of[range.clone()].to_vec()).collect::<Vec<u8>>()
            };
            assert_eq!((pieces(&first, false), pieces(&second, true)), (string.clone(), string));
        }
    }
}
