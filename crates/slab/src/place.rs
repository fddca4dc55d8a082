//! Places as the index holds them: 48 bits that name a slot of a small page, a run, or a record of
//! a log.

use crate::packed::addr::RecordAddress;

const RUN: u64 = 1 << 47;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// A slot of a logical page.
    Slot { logical: u32, slot: u8 },
    /// Contiguous physical pages.
    Run { first: u32, pages: u32 },
    /// A record in a segment (placement `packed`).
    Record(RecordAddress),
}

impl Place {
    /// Of a record that waits to be appended.
    pub(crate) const NOWHERE: Place = Place::Slot { logical: u32::MAX, slot: u8::MAX };

    pub(crate) fn to_bits(self) -> u64 {
        match self {
            Place::Slot { logical, slot } => u64::from(logical) << 8 | u64::from(slot),
            Place::Record(addr) => addr.to_bits(),
            Place::Run { first, pages } => RUN | u64::from(pages) << 32 | u64::from(first),
        }
    }

    pub(crate) fn from_bits(bits: u64) -> Place {
        if bits & RUN == 0 && bits >> 40 != 0 {
            Place::Record(RecordAddress::from_bits(bits))
        } else if bits & RUN == 0 {
            Place::Slot { logical: (bits >> 8) as u32, slot: bits as u8 }
        } else {
            Place::Run { first: bits as u32, pages: (bits >> 32) as u32 & 0x7FFF }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_48_bits() {
        for place in [
            Place::Slot { logical: u32::MAX, slot: 63 },
            Place::Slot { logical: 0, slot: 0 },
            Place::Run { first: u32::MAX, pages: crate::run::PAGES_MAX - 1 },
            Place::Record(RecordAddress::new(0, 32)),
            Place::Record(RecordAddress::new((1 << 41) - 8, 80_000)),
        ] {
            assert!(place.to_bits() < 1 << 48);
            assert_eq!(Place::from_bits(place.to_bits()), place);
        }
    }
}
