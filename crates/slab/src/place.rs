//! Places as the index holds them: 48 bits that name a small record, where its placement has it, or
//! a blob.

use std::fmt::Debug;
use std::hash::Hash;

const BLOB: u64 = 1 << 47;

/// Names a small record in 47 bits.
pub(crate) trait Address: Copy + Debug + Eq + Hash + Send {
    fn to_bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
    /// Bytes that are read for it.
    fn read_bytes(self) -> usize;
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RecordPlace<A> {
    /// With other small ones.
    Record(A),
    /// Contiguous physical pages.
    Blob { first: u32, pages: u32 },
}

impl<A: Address> RecordPlace<A> {
    pub(crate) fn to_bits(self) -> u64 {
        match self {
            RecordPlace::Record(address) => address.to_bits(),
            RecordPlace::Blob { first, pages } => BLOB | u64::from(pages) << 32 | u64::from(first),
        }
    }

    pub(crate) fn from_bits(bits: u64) -> RecordPlace<A> {
        if bits & BLOB == 0 {
            RecordPlace::Record(A::from_bits(bits))
        } else {
            RecordPlace::Blob { first: bits as u32, pages: (bits >> 32) as u32 & 0x7FFF }
        }
    }
}

/// The blob that an index entry names, in any placement: its first page, and how many.
pub(crate) fn blob_of(bits: u64) -> Option<(u32, u32)> {
    (bits & BLOB != 0).then_some((bits as u32, (bits >> 32) as u32 & 0x7FFF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_place::SlotAddress;
    use crate::packed::addr::RecordAddress;

    fn fit<A: Address>(places: impl IntoIterator<Item = RecordPlace<A>>) {
        for place in places {
            assert!(place.to_bits() < 1 << 48);
            assert_eq!(RecordPlace::from_bits(place.to_bits()), place);
        }
    }

    #[test]
    fn places_fit_48_bits() {
        let blob = RecordPlace::Blob { first: u32::MAX, pages: crate::blob::PAGES_MAX - 1 };
        let slots = [(u32::MAX, 63), (0, 0)].map(|(logical, slot)| SlotAddress { logical, slot });
        fit(slots.map(RecordPlace::Record));
        fit([RecordPlace::<SlotAddress>::Blob { first: u32::MAX, pages: crate::blob::PAGES_MAX - 1 }]);
        let records = [RecordAddress::new(0, 32), RecordAddress::new((1 << 41) - 8, 80_000)];
        fit(records.map(RecordPlace::Record).into_iter().chain([blob]));
    }
}
