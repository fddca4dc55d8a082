//! Single bits of strings.

use std::borrow::Cow;

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, number};

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::bits::{self, BitRange};
use super::super::edit::Edit;
use super::super::reads::BitQuestion;
use super::super::records::{Call, Records, StoredRecord, string};
use super::strings::edited;

type Done = Result<(), RequestRefusal>;

/// Places of bits are below this: 512 MiB of them.
const PLACES: i64 = 1 << 32;

/// What SETBIT does.
pub(crate) fn set_bit(a: &Arguments<'_>) -> Result<Edit, RequestRefusal> {
    let place = place(a.get(2))?;
    let is_set = is_one(a.get(3)).ok_or(Cow::Borrowed("ERR bit is not an integer or out of range"))?;
    Ok(Edit::SetBit { place, is_set })
}

/// What GETBIT asks.
pub(crate) fn one_bit(a: &Arguments<'_>) -> Result<BitQuestion, RequestRefusal> {
    Ok(BitQuestion::Bit(place(a.get(2))?))
}

/// What BITCOUNT asks.
pub(crate) fn counted(a: &Arguments<'_>) -> Result<BitQuestion, RequestRefusal> {
    let range = match a.len() {
        2 => BitRange::ALL,
        4 | 5 => BitRange { first: a.integer(2)?, last: Some(a.integer(3)?), in_bits: in_bits(a, 4)? },
        _ => return Err(Cow::Borrowed(SYNTAX)),
    };
    Ok(BitQuestion::Count(range))
}

/// What BITPOS asks.
pub(crate) fn position(a: &Arguments<'_>) -> Result<BitQuestion, RequestRefusal> {
    a.integer(2)?;
    let is_set = is_one(a.get(2)).ok_or(Cow::Borrowed("ERR The bit argument must be 1 or 0."))?;
    let first = if a.len() > 3 { a.integer(3)? } else { 0 };
    let last = if a.len() > 4 { Some(a.integer(4)?) } else { None };
    if a.len() > 6 {
        return Err(Cow::Borrowed(SYNTAX));
    }
    let range = BitRange { first, last, in_bits: in_bits(a, 5)? };
    Ok(BitQuestion::Position { is_set, range })
}

pub(crate) fn setbit(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    edited(call, records, out, set_bit(&call.a)?)
}

pub(crate) fn getbit(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    answered(call, records, out, one_bit(&call.a)?)
}

pub(crate) fn bitcount(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    answered(call, records, out, counted(&call.a)?)
}

pub(crate) fn bitpos(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    answered(call, records, out, position(&call.a)?)
}

/// BITOP: shorter strings are as if zero bytes followed.
pub(crate) fn bitop(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let operation = match () {
        () if call.a.is(1, "AND") => BitOperation::And,
        () if call.a.is(1, "OR") => BitOperation::Or,
        () if call.a.is(1, "XOR") => BitOperation::Xor,
        () if call.a.is(1, "NOT") => BitOperation::Not,
        () => return Err(Cow::Borrowed(SYNTAX)),
    };
    if operation == BitOperation::Not && call.a.len() != 4 {
        return Err(Cow::Borrowed("ERR BITOP NOT must be called with a single source key."));
    }
    let mut sources = Vec::with_capacity(call.a.len());
    for key in call.a.from(3) {
        sources.push(string(records, key)?.map(|record| record.value).unwrap_or_default());
    }
    let value: Bytes = operation.combined(&sources).into();
    encode::integer(out, value.len() as i64);
    match value.is_empty() {
        true => records.delete(call.a.get(2)),
        false => records.put(call.a.get(2), StoredRecord { value, flags: 0, expiry: Expiry::NEVER }),
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BitOperation {
    And,
    Or,
    Xor,
    Not,
}

impl BitOperation {
    /// What becomes of strings: as long as the longest one. It takes as long as all of them have
    /// bytes, however many are empty.
    fn combined(self, sources: &[Bytes]) -> Vec<u8> {
        let lengths = || sources.iter().map(Bytes::len);
        let (longest, shortest) = (lengths().max().unwrap_or_default(), lengths().min().unwrap_or_default());
        let mut value = sources.first().map(|first| first.to_vec()).unwrap_or_default();
        value.resize(longest, 0);
        for source in sources.iter().skip(1) {
            for (byte, other) in value.iter_mut().zip(source) {
                match self {
                    BitOperation::And => *byte &= other,
                    BitOperation::Or => *byte |= other,
                    BitOperation::Xor => *byte ^= other,
                    BitOperation::Not => {}
                }
            }
        }
        match self {
            BitOperation::And => value.iter_mut().skip(shortest).for_each(|byte| *byte = 0),
            BitOperation::Not => value.iter_mut().for_each(|byte| *byte = !*byte),
            BitOperation::Or | BitOperation::Xor => {}
        }
        value
    }
}

fn answered(call: &Call<'_>, records: &dyn Records, out: &mut Vec<u8>, question: BitQuestion) -> Done {
    let record = string(records, call.a.get(1))?;
    let value = record.as_ref().map(|record| &record.value[..]);
    let number = match question {
        BitQuestion::Bit(place) => i64::from(bits::bit(value.unwrap_or_default(), place)),
        question => question.answer(value),
    };
    encode::integer(out, number);
    Ok(())
}

fn place(text: &[u8]) -> Result<usize, RequestRefusal> {
    let place = number::integer(text).filter(|place| (0..PLACES).contains(place));
    let place = place.and_then(|place| usize::try_from(place).ok());
    place.ok_or(Cow::Borrowed("ERR bit offset is not an integer or out of range"))
}

fn is_one(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// Whether places count bits: `BYTE`, which is usual, or `BIT`.
fn in_bits(a: &Arguments<'_>, at: usize) -> Result<bool, RequestRefusal> {
    match () {
        () if at >= a.len() || a.is(at, "BYTE") => Ok(false),
        () if a.is(at, "BIT") => Ok(true),
        () => Err(Cow::Borrowed(SYNTAX)),
    }
}
