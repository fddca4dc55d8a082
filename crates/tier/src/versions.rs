//! [`Versions`]: the newest version that was given, and which collections were flushed up to which.
//!
//! It owns both, as a flush is a version below which items do not count. Writes take versions from
//! it, and everybody who finds an item asks whether it was flushed.

use stratakv_base::Key;

use crate::journal::{FLUSH_WATERMARKS_MAX, FlushWatermark};

/// See the module.
#[derive(Debug)]
pub(crate) struct Versions {
    newest: u64,
    flush_watermarks: Vec<FlushWatermark>,
}

impl Versions {
    pub(crate) fn new(newest: u64, flush_watermarks: Vec<FlushWatermark>) -> Versions {
        Versions { newest, flush_watermarks }
    }

    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// What the next write will have.
    pub(crate) fn next(&self) -> u64 {
        self.newest + 1
    }

    /// A write has the next version.
    pub(crate) fn advance(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// Every item of these collections is gone: what is older than this version does not count. All
    /// that were flushed so far, for the journal.
    pub(crate) fn flush(&mut self, first: u32, last: u32) -> &[FlushWatermark] {
        let version = self.advance();
        self.flush_watermarks.retain(|old| old.first < first || old.last > last);
        self.flush_watermarks.push(FlushWatermark { first, last, version });
        if self.flush_watermarks.len() > FLUSH_WATERMARKS_MAX {
            self.flush_watermarks = vec![FlushWatermark { first: 0, last: u32::MAX, version }];
        }
        &self.flush_watermarks
    }

    /// Whether an item was flushed.
    pub(crate) fn is_flushed(&self, encoded: &[u8], version: u64) -> bool {
        if self.flush_watermarks.is_empty() {
            return false;
        }
        let collection = Key::from_encoded(encoded).map_or(0, |key| key.collection().0);
        self.flush_watermarks.iter().any(|flush_watermark| flush_watermark.covers(collection, version))
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::CollectionId;

    use super::*;

    #[test]
    fn a_flush_covers_what_is_older_and_many_flushes_become_one() {
        let mut versions = Versions::new(10, Vec::new());
        let key = |collection| Key::bound(CollectionId(collection), b"key").encoded().to_vec();
        assert_eq!(versions.flush(3, 4).len(), 1);
        assert!(versions.is_flushed(&key(3), 10) && !versions.is_flushed(&key(3), 11));
        assert!(!versions.is_flushed(&key(5), 10));
        assert_eq!(versions.flush(0, 9).len(), 1, "a longer range has the shorter one in it");
        for collection in 0..FLUSH_WATERMARKS_MAX as u32 {
            versions.flush(100 + collection, 100 + collection);
        }
        assert!(versions.is_flushed(&key(50), versions.newest() - 1), "more than it tells apart");
        assert_eq!((versions.next(), versions.advance()), (versions.newest(), versions.newest()));
    }
}
