//! [`OpenerIo`]: the requests of an opener, and the first reason why it fails.
//!
//! An opener asks for one thing after the other: superblocks, what they point to, its last writes.
//! What it asks for next is its engine's; that a block is found for it, what was read so far, and
//! when all is over, stands here.

use std::sync::Arc;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_device::{Block, BlockPart, Class};
use stratakv_engine::{Effects, Error, Io, IoTable};

/// See the module. `T` is what a request is for.
#[derive(Debug)]
pub struct OpenerIo<T> {
    requests: IoTable<T>,
    error: Option<Error>,
}

impl<T> Default for OpenerIo<T> {
    fn default() -> Self {
        OpenerIo { requests: IoTable::new(), error: None }
    }
}

impl<T> OpenerIo<T> {
    /// Reads these pages, at most a slice.
    pub fn read(&mut self, page: u64, pages: u64, purpose: T, effects: &mut Effects) {
        let Some(block) = self.block(pages, effects) else { return };
        let io = self.start(purpose);
        effects.read(io, page * PAGE_BYTES as u64, block, pages as u32 * PAGE_BYTES as u32);
    }

    /// Writes these pages, at most a slice, with what `fill` puts there; `durable`: through caches.
    pub fn write(
        &mut self,
        (page, pages): (u64, u64),
        durable: bool,
        purpose: T,
        effects: &mut Effects,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let (Some(mut block), len) = (self.block(pages, effects), pages as usize * PAGE_BYTES) else { return };
        if let Some(bytes) = block.get_mut(..len) {
            fill(bytes);
        }
        let part = BlockPart { block: Arc::new(block), start: 0, len: len as u32 };
        effects.write(self.start(purpose), page * PAGE_BYTES as u64, vec![part], durable);
    }

    /// Names a request that the opener puts into the effects itself.
    pub fn start(&mut self, purpose: T) -> Io {
        self.requests.start(purpose)
    }

    /// What a request was for that has ended; `None` if there is no such request.
    pub fn finish(&mut self, io: Io) -> Option<T> {
        self.requests.finish(io)
    }

    /// A block for so many pages; without one the opener fails.
    pub fn block(&mut self, pages: u64, effects: &mut Effects) -> Option<Block> {
        let block = effects.block(if pages == 1 { Class::Page } else { Class::Slice });
        if block.is_none() {
            self.lacks_memory();
        }
        block
    }

    /// There is no block, and none will come back.
    pub fn lacks_memory(&mut self) {
        self.fail(Error::Option("there is no memory to open the volume with: raise the memory cap (--memory)".into()));
    }

    /// Why it fails. The first reason is told.
    pub fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Whether it fails.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Whether no request is in flight: it has come to its end, or goes no further.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Why it failed, if it did.
    ///
    /// # Errors
    /// It did.
    pub fn result(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use stratakv_base::Now;
    use stratakv_device::{DiskRequest, Pool};

    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn requests_are_of_whole_pages_and_come_back_once() {
        let (mut io, mut effects) = (OpenerIo::default(), Effects::new(Pool::new(8 << 20)));
        effects.begin(Now::default());
        io.read(3, 2, "read", &mut effects);
        io.write((1, 1), true, "write", &mut effects, |bytes| bytes.fill(7));
        effects.flush(io.start("flush"));
        assert!(!io.is_idle());
        let mut purposes = Vec::new();
        for (name, request) in std::mem::take(&mut effects.requests) {
            match request {
                DiskRequest::Read { offset, len, .. } => assert_eq!((offset, u64::from(len)), (3 * PAGE, 2 * PAGE)),
                DiskRequest::Write { offset, parts, durable } => {
                    let is_filled = parts[0].block[..PAGE_BYTES].iter().all(|byte| *byte == 7);
                    assert!(is_filled && durable && (offset, u64::from(parts[0].len)) == (PAGE, PAGE));
                }
                _ => {}
            }
            purposes.extend(io.finish(name));
            assert_eq!(io.finish(name), None);
        }
        assert_eq!(
            (purposes.as_slice(), io.is_idle(), io.has_failed()),
            (&["read", "write", "flush"][..], true, false)
        );
    }

    #[test]
    fn the_first_reason_is_told() {
        let (mut io, mut effects) = (OpenerIo::default(), Effects::new(Pool::new(0)));
        effects.begin(Now::default());
        let _held: Vec<Block> = std::iter::from_fn(|| effects.block(Class::Page)).collect();
        io.read(0, 1, (), &mut effects);
        io.fail(Error::Closed);
        assert!(io.is_idle() && io.has_failed() && effects.requests.is_empty());
        assert!(io.result().unwrap_err().to_string().contains("memory"));
    }
}
