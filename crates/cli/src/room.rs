//! How much memory reading one value of a source may take, whatever the source says of itself.

/// For one value: ten million short elements take three quarters of it.
pub(crate) const VALUE_MEMORY_MAX: usize = 1 << 30;
/// What an element takes beside its bytes: its place in a list, and what the allocator adds.
const ELEMENT_BYTES: usize = 56;

/// What is left of the memory for a value.
#[derive(Debug)]
pub(crate) struct Room {
    left: usize,
    is_exceeded: bool,
}

impl Room {
    /// For one element of at most so many bytes.
    pub(crate) fn of_bytes(bytes: usize) -> Room {
        Room::of(bytes.saturating_add(ELEMENT_BYTES))
    }

    /// For any value.
    pub(crate) fn of_value() -> Room {
        Room::of(VALUE_MEMORY_MAX)
    }

    /// For a value that takes at most so many.
    pub(crate) fn of(bytes: usize) -> Room {
        Room { left: bytes, is_exceeded: false }
    }

    /// Takes room for an element. `false`: there is none, and from now on for nothing.
    #[must_use]
    pub(crate) fn takes(&mut self, element_bytes: u64) -> bool {
        let bytes = usize::try_from(element_bytes).unwrap_or(usize::MAX).saturating_add(ELEMENT_BYTES);
        self.is_exceeded |= bytes > self.left;
        self.left = self.left.saturating_sub(bytes);
        !self.is_exceeded
    }

    /// Something did not fit.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_ends_it() {
        let mut room = Room::of(100);
        assert!(room.takes(10) && !room.is_exceeded());
        assert!(!room.takes(u64::MAX) && room.is_exceeded());
        // A value without one of its elements is another value.
        assert!(!room.takes(0));
    }
}
