//! Addresses: where a record lies in the log, and how long it is, in 47 bits.
//!
//! 38 bits say where, in units of 8 bytes: 2 TiB a volume. Nine bits say how long.

use crate::place::Address;

/// A record's first byte and its length, rounded up to what nine bits can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordAddress {
    /// Bytes from the volume's beginning; a multiple of 8.
    pub(crate) at: u64,
    code: u16,
}

/// Bits of the offset, in units of 8 bytes.
const AT_BITS: u32 = 38;
const CODE_MAX: u16 = (1 << 9) - 1;
/// Bytes of the largest volume that addresses can name.
pub(crate) const VOLUME_BYTES_MAX: u64 = 8 << AT_BITS;
/// Lengths below this many units have a code of their own; above, each octave has 32.
const EXACT: u32 = 64;
const OCTAVE: u32 = 32;
/// Shortest record: a key has two bytes at least, encoded.
pub(crate) const BYTES_MIN: u32 = 32;
/// Longest record with an address, in bytes.
pub(crate) const RECORD_BYTES_MAX: u32 = units(CODE_MAX) * 8;

const fn units(code: u16) -> u32 {
    let code = code as u32;
    if code < EXACT {
        return code;
    }
    let octave = (code - EXACT) / OCTAVE;
    (EXACT << octave) + ((code - EXACT) % OCTAVE) * (2 << octave)
}

fn code(units: u32) -> u16 {
    if units < EXACT {
        return units as u16;
    }
    let octave = units.ilog2() - EXACT.ilog2();
    let step = 2 << octave;
    // One step beyond an octave's last is the first of the next.
    (EXACT + octave * OCTAVE + (units - (EXACT << octave)).div_ceil(step)).min(u32::from(CODE_MAX)) as u16
}

impl RecordAddress {
    /// Of a record that waits to be appended: no record is so short.
    pub(crate) const NOWHERE: RecordAddress = RecordAddress { at: 0, code: 0 };

    /// The address of a record of `bytes` bytes, [`RECORD_BYTES_MAX`] at most, at `at`.
    pub(crate) fn new(at: u64, bytes: u32) -> RecordAddress {
        debug_assert!(at.is_multiple_of(8) && at < VOLUME_BYTES_MAX && (BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes));
        RecordAddress { at, code: code(bytes.div_ceil(8)) }
    }

    /// What stands for its length.
    pub(crate) fn code(self) -> u16 {
        self.code
    }

    /// With a code of [`RecordAddress::code`]; `None` if nothing has that length.
    pub(crate) fn coded(at: u64, code: u32) -> Option<RecordAddress> {
        let code = u16::try_from(code).ok().filter(|code| *code <= CODE_MAX && units(*code) * 8 >= BYTES_MIN)?;
        Some(RecordAddress { at, code })
    }

    /// At least the record's length: what the segment counts as live.
    pub(crate) fn bytes(self) -> u32 {
        units(self.code) * 8
    }
}

impl Address for RecordAddress {
    /// Bits 40 and above are never all zero: no record is so short.
    fn to_bits(self) -> u64 {
        (u64::from(self.code) << AT_BITS) | (self.at / 8)
    }

    fn from_bits(bits: u64) -> RecordAddress {
        RecordAddress { at: (bits & ((1 << AT_BITS) - 1)) * 8, code: (bits >> AT_BITS) as u16 & CODE_MAX }
    }

    fn read_bytes(self) -> usize {
        self.bytes() as usize
    }
}

const _: () = assert!(RECORD_BYTES_MAX as usize >= stratakv_base::Key::ENCODED_BYTES_MAX + (16 << 10));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_by_little_and_addresses_survive() {
        for bytes in (BYTES_MIN..=100_000).step_by(8) {
            let addr = RecordAddress::new(VOLUME_BYTES_MAX - 8, bytes);
            assert!(addr.bytes() >= bytes && addr.bytes() - bytes <= bytes / 31, "{bytes} became {}", addr.bytes());
            assert_eq!(RecordAddress::from_bits(addr.to_bits()), addr);
            assert!(addr.to_bits() < 1 << 47 && addr.to_bits() >> 40 != 0);
            assert_eq!(
                RecordAddress::new(0, addr.bytes()),
                RecordAddress { at: 0, ..addr },
                "rounding twice changes nothing"
            );
        }
    }
}
