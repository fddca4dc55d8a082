//! [`SuperblockWriter`]: the superblock of an open shard, and the tries to write it.
//!
//! It owns what the superblock says and when one that failed is tried again. `ending.rs` and
//! `losing.rs` change it by what has come about: an orderly end, a volume that is lost.

use stratakv_base::Mono;
use stratakv_base::limits::PAGE_BYTES;

use crate::superblock::{IndexDump, Layout, Superblock};

/// How often a superblock is tried before the others are served without it, or an end goes on.
const TRIES: u32 = 8;
/// Between these tries is so long, twice as long each time: an eighth of a second in all. What was
/// the matter may be over then, such as a lack of memory.
const FIRST_NS: u64 = crate::tier::RETRY_NS;
/// After them it is tried again after so long; twice as long each time, up to about a minute.
const RETRY_NS: u64 = 1_000_000_000;
const DOUBLINGS_MAX: u32 = 6;

/// See the module.
#[derive(Debug)]
pub(crate) struct SuperblockWriter {
    superblock: Superblock,
    /// Times that it failed to be written.
    tries: u32,
    /// When it is tried again; never, if none has to be.
    retries_at: Option<Mono>,
}

impl SuperblockWriter {
    pub(crate) fn new(superblock: Superblock) -> SuperblockWriter {
        SuperblockWriter { superblock, tries: 0, retries_at: None }
    }

    /// What it says.
    pub(crate) fn get(&self) -> &Superblock {
        &self.superblock
    }

    /// Nothing on the volume counts.
    pub(crate) fn set_void(&mut self) {
        (self.superblock.boot, self.superblock.table, self.superblock.clean) = (None, None, false);
    }

    /// An orderly end is complete.
    pub(crate) fn set_clean(&mut self, version: u64) {
        (self.superblock.clean, self.superblock.version) = (true, version);
    }

    /// An orderly end writes its table there.
    pub(crate) fn set_table(&mut self, table: IndexDump) {
        self.superblock.table = Some(table);
    }

    pub(crate) fn set_layout(&mut self, layout: Layout) {
        self.superblock.layout = layout;
    }

    /// The next one is to be written.
    pub(crate) fn advance(&mut self) {
        self.superblock.generation += 1;
    }

    /// Its page of the volume, and the bytes of that.
    pub(crate) fn page(&self, uuid: &[u8; 16]) -> (u64, Vec<u8>) {
        let mut bytes = vec![0; PAGE_BYTES];
        self.superblock.encode(uuid, &mut bytes);
        (self.superblock.generation % 2, bytes)
    }

    /// It could not be written. Whether it is tried again soon.
    pub(crate) fn has_failed(&mut self, now: Mono) -> bool {
        self.tries = self.tries.saturating_add(1);
        let is_soon = self.tries < TRIES;
        if is_soon {
            self.retries_at = Some(Mono(now.0 + (FIRST_NS << (self.tries - 1))));
        }
        is_soon
    }

    /// It is written.
    pub(crate) fn has_succeeded(&mut self) {
        (self.tries, self.retries_at) = (0, None);
    }

    /// Whether the last one that was to be written is.
    pub(crate) fn is_written(&self) -> bool {
        self.tries == 0
    }

    /// Whether it failed so often that nobody waits for it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.tries >= TRIES
    }

    /// It is tried again much later. Whether it is given up only now.
    pub(crate) fn retry_later(&mut self, now: Mono) -> bool {
        let doublings = self.tries.saturating_sub(TRIES);
        self.retries_at = Some(Mono(now.0 + (RETRY_NS << doublings.min(DOUBLINGS_MAX))));
        doublings == 0
    }

    pub(crate) fn retries_at(&self) -> Option<Mono> {
        self.retries_at
    }

    /// It is tried again now.
    pub(crate) fn begin_retry(&mut self) {
        self.retries_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_some_tries_it_is_given_up_once_and_tried_again_ever_more_seldom() {
        let mut writer = SuperblockWriter::new(Superblock::default());
        let mut soon = Vec::new();
        while writer.has_failed(Mono(7)) {
            soon.extend(writer.retries_at().map(|at| (at.0 - 7) / FIRST_NS));
            writer.begin_retry();
        }
        assert_eq!(soon, [1, 2, 4, 8, 16, 32, 64]);
        assert!(writer.is_given_up() && !writer.is_written());
        assert!(writer.retry_later(Mono(0)));
        assert_eq!(writer.retries_at(), Some(Mono(RETRY_NS)));
        (0..9).for_each(|_| {
            writer.begin_retry();
            assert!(!writer.has_failed(Mono(0)) && !writer.retry_later(Mono(0)));
        });
        assert_eq!(writer.retries_at(), Some(Mono(RETRY_NS << DOUBLINGS_MAX)));
        writer.has_succeeded();
        assert!(writer.is_written() && writer.retries_at().is_none());
    }
}
