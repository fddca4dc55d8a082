//! Size classes: how many slots a small page is cut into.

use stratakv_base::fault_point;

use super::page::{PAYLOAD_BYTES, RECORD_BYTES};

/// Slots per page of each class, largest slots first. Part of the format.
const SLOTS: [u8; 19] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64];

/// Number of classes.
pub(crate) const CLASSES: usize = SLOTS.len();

/// A size class of small pages, as stored in page headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SizeClass(u8);

impl SizeClass {
    /// The class with this number, if there is one.
    pub(crate) fn from_number(number: u8) -> Option<SizeClass> {
        (usize::from(number) < CLASSES).then_some(SizeClass(number))
    }

    /// The smallest slot that holds a record of `bytes` (header, key and value), or `None` if it
    /// needs a blob.
    pub(crate) fn for_record(mut bytes: usize) -> Option<SizeClass> {
        fault_point!("off_by_one_in_a_size_class", bytes = bytes.saturating_sub(1));
        let fits = SLOTS.iter().rposition(|slots| slot_bytes(*slots) >= bytes)?;
        Some(SizeClass(fits as u8))
    }

    /// The class with the largest slots.
    pub(crate) const fn first() -> SizeClass {
        SizeClass(0)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Slots of a page.
    pub(crate) fn slots(self) -> u8 {
        SLOTS.get(self.index()).copied().unwrap_or(1)
    }

    /// Bytes of a slot.
    pub(crate) fn slot_bytes(self) -> usize {
        slot_bytes(self.slots())
    }
}

const fn slot_bytes(slots: u8) -> usize {
    PAYLOAD_BYTES / slots as usize / 8 * 8
}

const _: () = assert!(slot_bytes(64) > RECORD_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_slot_that_fits_is_taken() {
        for bytes in 1..=PAYLOAD_BYTES {
            let class = SizeClass::for_record(bytes).unwrap();
            assert!(class.slot_bytes() >= bytes);
            if let Some(next) = SizeClass::from_number(class.number() + 1) {
                assert!(next.slot_bytes() < bytes, "{bytes} would fit a smaller slot");
            }
            assert!(class.slot_bytes() * usize::from(class.slots()) <= PAYLOAD_BYTES);
        }
        assert_eq!(SizeClass::for_record(PAYLOAD_BYTES + 1), None);
    }
}
