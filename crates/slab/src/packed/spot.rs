//! Spots: where a record lies in the log, and how long it is, in 47 bits.
//!
//! 38 bits say where, in units of 8 bytes: 2 TiB a volume. Nine bits say how long.

/// A record's first byte and its length, rounded up to what nine bits can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot {
    /// Bytes from the volume's beginning; a multiple of 8.
    pub(crate) at: u64,
    code: u16,
}

/// Bits of the offset, in units of 8 bytes.
const AT_BITS: u32 = 38;
const CODE_MAX: u16 = (1 << 9) - 1;
/// Bytes of the largest volume that spots can name.
pub(crate) const VOLUME_BYTES_MAX: u64 = 8 << AT_BITS;
/// Lengths below this many units have a code of their own; above, each octave has 32.
const EXACT: u32 = 64;
const OCTAVE: u32 = 32;
/// Shortest record: a key has two bytes at least, encoded.
pub(crate) const BYTES_MIN: u32 = 32;
/// Longest record with a spot, in bytes.
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

impl Spot {
    /// The spot of a record of `bytes` bytes, [`RECORD_BYTES_MAX`] at most, at `at`.
    pub(crate) fn new(at: u64, bytes: u32) -> Spot {
        debug_assert!(at.is_multiple_of(8) && at < VOLUME_BYTES_MAX && (BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes));
        Spot { at, code: code(bytes.div_ceil(8)) }
    }

    /// What stands for its length.
    pub(crate) fn code(self) -> u16 {
        self.code
    }

    /// With a code of [`Spot::code`]; `None` if nothing has that length.
    pub(crate) fn coded(at: u64, code: u32) -> Option<Spot> {
        let code = u16::try_from(code).ok().filter(|code| *code <= CODE_MAX && units(*code) * 8 >= BYTES_MIN)?;
        Some(Spot { at, code })
    }

    /// As the index holds it: bits 40 and above are never all zero, which tells spots from slots.
    pub(crate) fn to_bits(self) -> u64 {
        (u64::from(self.code) << AT_BITS) | (self.at / 8)
    }

    /// Back from [`Spot::to_bits`].
    pub(crate) fn from_bits(bits: u64) -> Spot {
        Spot { at: (bits & ((1 << AT_BITS) - 1)) * 8, code: (bits >> AT_BITS) as u16 & CODE_MAX }
    }

    /// At least the record's length: what the segment counts as live.
    pub(crate) fn bytes(self) -> u32 {
        units(self.code) * 8
    }
}

const _: () = assert!(RECORD_BYTES_MAX as usize >= stratakv_base::Key::ENCODED_BYTES_MAX + (16 << 10));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_by_little_and_spots_survive() {
        for bytes in (BYTES_MIN..=100_000).step_by(8) {
            let spot = Spot::new(VOLUME_BYTES_MAX - 8, bytes);
            assert!(spot.bytes() >= bytes && spot.bytes() - bytes <= bytes / 31, "{bytes} became {}", spot.bytes());
            assert_eq!(Spot::from_bits(spot.to_bits()), spot);
            assert!(spot.to_bits() < 1 << 47 && spot.to_bits() >> 40 != 0);
            assert_eq!(Spot::new(0, spot.bytes()), Spot { at: 0, ..spot }, "rounding twice changes nothing");
        }
    }
}
