//! BITFIELD: whole numbers of any width at any bit of a string.

use std::borrow::Cow;

use stratakv_base::Expiry;
use stratakv_protocol::resp::{encode, number};
use stratakv_structures::STRUCTURE_FLAGS;

use super::super::arguments::{Arguments, RequestRefusal, SYNTAX};
use super::super::edit::too_long;
use super::super::records::{Call, Records, StoredRecord, string};

type Done = Result<(), RequestRefusal>;

/// Places of bits are below this: 512 MiB of them.
const PLACES: i64 = 1 << 32;
const BAD_TYPE: RequestRefusal =
    Cow::Borrowed("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
const BAD_PLACE: RequestRefusal = Cow::Borrowed("ERR bit offset is not an integer or out of range");

/// What becomes of a number that is too large or too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Overflow {
    #[default]
    Wrap,
    Saturate,
    Fail,
}

/// Where a number is, and which numbers there are.
#[derive(Clone, Copy, Debug)]
struct BitField {
    is_signed: bool,
    bits: u32,
    place: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldAction {
    Get,
    Set(i64),
    Add(i64),
}

#[derive(Clone, Copy, Debug)]
struct FieldOperation {
    field: BitField,
    action: FieldAction,
    overflow: Overflow,
}

impl BitField {
    fn read(kind: &[u8], place: &[u8]) -> Result<BitField, RequestRefusal> {
        let (is_signed, bits) = match kind {
            [b'i', bits @ ..] => (true, bits),
            [b'u', bits @ ..] => (false, bits),
            _ => return Err(BAD_TYPE),
        };
        let bits_max = if is_signed { 64 } else { 63 };
        let bits = number::integer(bits).filter(|bits| (1..=bits_max).contains(bits)).ok_or(BAD_TYPE)?;
        // `#2` is the third field of this width.
        let place = match place {
            [b'#', number @ ..] => number::integer(number).and_then(|number| number.checked_mul(bits)),
            place => number::integer(place),
        };
        let place = place.filter(|place| (0..PLACES).contains(place)).and_then(|place| usize::try_from(place).ok());
        Ok(BitField { is_signed, bits: bits as u32, place: place.ok_or(BAD_PLACE)? })
    }

    /// Bytes that a string with this field has.
    fn end_bytes(self) -> usize {
        (self.place + self.bits as usize).div_ceil(8)
    }

    fn smallest(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn largest(self) -> i128 {
        (1 << (self.bits - u32::from(self.is_signed))) - 1
    }

    /// The number there: bits behind the string are zero.
    fn get(self, value: &[u8]) -> i128 {
        let bit = |place: usize| value.get(place / 8).map_or(0, |byte| i128::from(byte >> (7 - place % 8) & 1));
        let raw = (self.place..self.place + self.bits as usize).fold(0, |number, place| number << 1 | bit(place));
        if raw > self.largest() { raw - (1 << self.bits) } else { raw }
    }

    fn set(self, value: &mut [u8], number: i128) {
        for (place, shift) in (self.place..).zip((0..self.bits).rev()) {
            if let Some(byte) = value.get_mut(place / 8) {
                let mask = 0x80 >> (place % 8);
                *byte = if number >> shift & 1 == 1 { *byte | mask } else { *byte & !mask };
            }
        }
    }

    /// The number as it fits; `None`: it does not.
    fn fitted(self, number: i128, overflow: Overflow) -> Option<i128> {
        if (self.smallest()..=self.largest()).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(number.clamp(self.smallest(), self.largest())),
            Overflow::Wrap => {
                let raw = number & ((1 << self.bits) - 1);
                Some(if raw > self.largest() { raw - (1 << self.bits) } else { raw })
            }
        }
    }
}

/// What BITFIELD and BITFIELD_RO are to do, in order.
fn operations(a: &Arguments<'_>) -> Result<Vec<FieldOperation>, RequestRefusal> {
    let (mut operations, mut overflow, mut at) = (Vec::new(), Overflow::default(), 2);
    while at < a.len() {
        let has = |more: usize| at + more < a.len();
        if a.is(at, "OVERFLOW") && has(1) {
            overflow = match () {
                () if a.is(at + 1, "WRAP") => Overflow::Wrap,
                () if a.is(at + 1, "SAT") => Overflow::Saturate,
                () if a.is(at + 1, "FAIL") => Overflow::Fail,
                () => return Err(Cow::Borrowed("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let arguments = match () {
            () if a.is(at, "GET") && has(2) => 2,
            () if (a.is(at, "SET") || a.is(at, "INCRBY")) && has(3) => 3,
            () => return Err(Cow::Borrowed(SYNTAX)),
        };
        let field = BitField::read(a.get(at + 1), a.get(at + 2))?;
        let action = match () {
            () if arguments == 2 => FieldAction::Get,
            () if a.is(at, "SET") => FieldAction::Set(a.integer(at + 3)?),
            () => FieldAction::Add(a.integer(at + 3)?),
        };
        operations.push(FieldOperation { field, action, overflow });
        at += arguments + 1;
    }
    Ok(operations)
}

/// Bytes that the string has at least when these are carried out; `None`: they only read.
fn written_bytes(operations: &[FieldOperation]) -> Option<usize> {
    let writes = operations.iter().filter(|operation| operation.action != FieldAction::Get);
    writes.map(|operation| operation.field.end_bytes()).max()
}

/// The same of a command that may be refused.
///
/// # Errors
/// It is.
pub(crate) fn made_bytes(a: &Arguments<'_>) -> Result<Option<usize>, RequestRefusal> {
    Ok(written_bytes(&operations(a)?))
}

/// Carries one out on a string that is long enough; what is told of it.
fn carried_out(operation: FieldOperation, value: &mut [u8]) -> Option<i128> {
    let FieldOperation { field, action, overflow } = operation;
    let old = field.get(value);
    let (wanted, tells_old) = match action {
        FieldAction::Get => return Some(old),
        FieldAction::Add(more) => (old + i128::from(more), false),
        FieldAction::Set(number) if field.is_signed => (number.into(), true),
        // As Redis has it, a number below zero is a large one.
        FieldAction::Set(number) => (i128::from(number as u64), true),
    };
    let new = field.fitted(wanted, overflow)?;
    field.set(value, new);
    Some(if tells_old { old } else { new })
}

/// BITFIELD and BITFIELD_RO.
pub(crate) fn bitfield(call: &Call<'_>, records: &mut dyn Records, out: &mut Vec<u8>) -> Done {
    let (operations, key) = (operations(&call.a)?, call.a.get(1));
    let written_bytes = written_bytes(&operations);
    if written_bytes.is_some() && call.a.is(0, "BITFIELD_RO") {
        return Err(Cow::Borrowed("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let old = string(records, key)?;
    let mut value = old.as_ref().map_or(Vec::new(), |record| record.value.to_vec());
    let bytes = value.len().max(written_bytes.unwrap_or(0));
    if bytes > call.value_bytes_max {
        return Err(too_long(bytes as u64, call.value_bytes_max));
    }
    value.resize(bytes, 0);
    encode::array(out, operations.len());
    for operation in operations {
        match carried_out(operation, &mut value) {
            Some(number) => encode::integer(out, i64::try_from(number).unwrap_or(i64::MAX)),
            None => encode::null(out, call.version),
        }
    }
    let before = old.as_ref().map(|record| &record.value[..]);
    if written_bytes.is_some() && before != Some(&value) {
        let (flags, expiry) = old.map_or((0, Expiry::NEVER), |record| (record.flags, record.expiry));
        // What is a string stays one, whatever its bytes become.
        let flags = if flags == STRUCTURE_FLAGS { 0 } else { flags };
        records.put(key, StoredRecord { value: value.into(), flags, expiry });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_where_they_were_put_and_others_stay() {
        for bits in 1..=64 {
            for place in [0, 1, 7, 8, 13] {
                let field = BitField { is_signed: true, bits, place };
                let mut value = vec![0xAA; 12];
                for number in [field.smallest(), field.largest(), -1, 0] {
                    field.set(&mut value, number);
                    assert_eq!(field.get(&value), number, "{field:?}");
                }
                let mut zeros = vec![0xAA; 12];
                field.set(&mut zeros, 0);
                assert_eq!(value, zeros, "only the field is changed");
                assert_eq!(field.get(b""), 0);
            }
        }
    }

    #[test]
    fn what_does_not_fit_wraps_saturates_or_fails() {
        let (byte, whole) = (BitField::read(b"u8", b"#1").unwrap(), BitField::read(b"i64", b"0").unwrap());
        assert_eq!((byte.place, byte.end_bytes(), whole.end_bytes()), (8, 2, 8));
        let fitted = |field: BitField, number| {
            [Overflow::Wrap, Overflow::Saturate, Overflow::Fail].map(|overflow| field.fitted(number, overflow))
        };
        assert_eq!(fitted(byte, 256), [Some(0), Some(255), None]);
        assert_eq!(fitted(byte, -1), [Some(255), Some(0), None]);
        assert_eq!(fitted(byte, 255), [Some(255); 3]);
        let past = i128::from(i64::MAX) + 1;
        assert_eq!(fitted(whole, past), [Some(i64::MIN.into()), Some(i64::MAX.into()), None]);
        assert_eq!(fitted(whole, -past - 1), [Some(i64::MAX.into()), Some(i64::MIN.into()), None]);
    }
}
