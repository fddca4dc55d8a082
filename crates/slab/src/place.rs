//! Places as the index holds them: 48 bits that name a slot of a small page, a blob, or a record of
//! a log.

use crate::packed::addr::RecordAddress;

const BLOB: u64 = 1 << 47;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecordPlace {
    /// A slot of a logical page.
    Slot { logical: u32, slot: u8 },
    /// Contiguous physical pages.
    Blob { first: u32, pages: u32 },
    /// A record in a segment (placement `packed`).
    Record(RecordAddress),
}

impl RecordPlace {
    /// Of a record that waits to be appended.
    pub(crate) const NOWHERE: RecordPlace = RecordPlace::Slot { logical: u32::MAX, slot: u8::MAX };

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            RecordPlace::Slot { logical, slot } => u64::from(logical) << 8 | u64::from(slot),
            RecordPlace::Record(addr) => addr.to_bits(),
            RecordPlace::Blob { first, pages } => BLOB | u64::from(pages) << 32 | u64::from(first),
        }
    }

    pub(crate) fn from_bits(bits: u64) -> RecordPlace {
        if bits & BLOB == 0 && bits >> 40 != 0 {
            RecordPlace::Record(RecordAddress::from_bits(bits))
        } else if bits & BLOB == 0 {
            RecordPlace::Slot { logical: (bits >> 8) as u32, slot: bits as u8 }
        } else {
            RecordPlace::Blob { first: bits as u32, pages: (bits >> 32) as u32 & 0x7FFF }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_48_bits() {
        for place in [
            RecordPlace::Slot { logical: u32::MAX, slot: 63 },
            RecordPlace::Slot { logical: 0, slot: 0 },
            RecordPlace::Blob { first: u32::MAX, pages: crate::blob::PAGES_MAX - 1 },
            RecordPlace::Record(RecordAddress::new(0, 32)),
            RecordPlace::Record(RecordAddress::new((1 << 41) - 8, 80_000)),
        ] {
            assert!(place.to_bits() < 1 << 48);
            assert_eq!(RecordPlace::from_bits(place.to_bits()), place);
        }
    }
}
