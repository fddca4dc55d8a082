//! Keys that were dropped lately: what comes back is wanted.

use crate::index::Tag;

/// One of 64 bytes of memory remembers keys.
const SHARE: u64 = 64;

/// A table of 16-bit fingerprints, each in one place; newer ones replace older ones.
#[derive(Debug)]
pub(crate) struct GhostQueue {
    fingerprints: Vec<u16>,
}

impl GhostQueue {
    pub(crate) fn new(memory_bytes: u64) -> GhostQueue {
        GhostQueue { fingerprints: vec![0; GhostQueue::bytes_of(memory_bytes) as usize / 2] }
    }

    /// Bytes of ghost queue beside so much memory.
    pub(crate) fn bytes_of(memory_bytes: u64) -> u64 {
        (memory_bytes / SHARE / 2).clamp(64, 1 << 26) * 2
    }

    pub(crate) fn bytes(&self) -> usize {
        self.fingerprints.len() * 2
    }

    fn place(&self, tag: Tag) -> (usize, u16) {
        ((tag.bits() >> 16) as usize % self.fingerprints.len(), tag.bits() as u16 | 1)
    }

    pub(crate) fn add(&mut self, tag: Tag) {
        let (at, fingerprint) = self.place(tag);
        self.fingerprints[at] = fingerprint;
    }

    /// Whether it is among them; then it is no longer.
    pub(crate) fn take(&mut self, tag: Tag) -> bool {
        let (at, fingerprint) = self.place(tag);
        let is_there = self.fingerprints[at] == fingerprint;
        if is_there {
            self.fingerprints[at] = 0;
        }
        is_there
    }
}
