//! Gets: from memory at once, or after one read. Small records are read by their placement, blobs
//! in `blob_read.rs`.

use stratakv_base::Key;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_engine::{Effects, Record, RecordPart, Reply, Stage, Token};
use stratakv_index::Finger;

use crate::blob::Shape;
use crate::blob_read::BlobPurpose;
use crate::place::RecordPlace;
use crate::placement::Placement;
use crate::shard::{IndexedShard, is_expired};

/// Values from this length on are shared with the cache instead of copied.
pub(crate) const SHARED_BYTES: usize = 1024;

/// Who waits for a record.
#[derive(Debug)]
pub(crate) enum Waiter {
    Get {
        token: Token,
        key: Key,
        part: RecordPart,
        /// Where the index had the key.
        finger: Finger,
    },
    /// The first write of this key.
    Write(Key),
    /// An item of a scan.
    Scan { scan: u64, item: usize },
}

impl Waiter {
    /// Whether it is a get of somebody who has left.
    pub(crate) fn is_get_of(&self, has_left: &dyn Fn(Token) -> bool) -> bool {
        self.token().is_some_and(has_left)
    }

    /// Who is to be answered, of a get.
    pub(crate) fn token(&self) -> Option<Token> {
        if let Waiter::Get { token, .. } = self { Some(*token) } else { None }
    }
}

impl<P: Placement> IndexedShard<P> {
    /// Answers a get: from the cache at once, or after one read.
    pub(crate) fn get(&mut self, token: Token, key: Key, part: RecordPart, effects: &mut Effects) {
        self.answer_get(token, key, part, None, effects);
    }

    /// `found`: where the index had the key before it waited for its page. Only without a wait it
    /// counts as a hit or miss.
    pub(crate) fn answer_get(
        &mut self,
        token: Token,
        key: Key,
        part: RecordPart,
        found: Option<Finger>,
        effects: &mut Effects,
    ) {
        let first = found.is_none();
        if let Some(reply) = self.batch_reply(&key, part, effects) {
            return effects.reply(token, reply);
        }
        let found = self.index.find_at(found, &key).filter(|(entry, _)| !is_expired(entry.expiry, effects));
        let Some((entry, finger)) = found else {
            return effects.reply(token, Reply::Record(None));
        };
        match RecordPlace::from_bits(entry.place) {
            RecordPlace::Record(address) => match P::cached_record(self, address, &key, part, None) {
                Some(record) => {
                    self.io.counters.cache_hits += u64::from(first);
                    let reply =
                        record.map_or_else(|error| Reply::Failed(error.into()), |record| alive(record, effects));
                    effects.reply(token, reply);
                }
                None => {
                    self.io.counters.cache_misses += u64::from(first);
                    effects.enter(token, Stage::Read);
                    P::request_record(self, address, Waiter::Get { token, key, part, finger }, effects);
                }
            },
            RecordPlace::Blob { pages, .. } if is_longer(&key, pages, part) => {
                effects.reply(token, Reply::Longer(u64::from(pages) * PAGE_BYTES as u64));
            }
            RecordPlace::Blob { first, pages } => {
                effects.enter(token, Stage::Read);
                self.read_blob(BlobPurpose::Get(token), key, (first, pages), part, effects);
            }
        }
    }
}

/// A record, unless it has expired: of one that was found damaged and can be read after all, the
/// index does not know when.
pub(crate) fn alive(record: Record, effects: &Effects) -> Reply {
    Reply::Record(Some(record).filter(|record| !is_expired(record.expiry.0, effects)))
}

/// Whether the value of a blob of so many pages is longer than its reader expects.
fn is_longer(key: &Key, pages: u32, part: RecordPart) -> bool {
    part.expected_bytes().is_some_and(|bytes| {
        let may_be = u64::from(pages) * PAGE_BYTES as u64 > bytes;
        may_be && pages > Shape::new(key.encoded().len(), bytes as usize).pages()
    })
}

/// The bytes of a value of `len` bytes that `part` asks for.
pub(crate) fn part_range(part: RecordPart, len: usize) -> std::ops::Range<usize> {
    match part {
        RecordPart::Meta => 0..0,
        RecordPart::Whole => 0..len,
        RecordPart::Sliced { start, len: wanted, .. } => {
            part_range(RecordPart::Range { start, len: wanted.into() }, len)
        }
        RecordPart::Range { start, len: wanted } => {
            let start = start.min(len as u64);
            let end = start.saturating_add(wanted).min(len as u64);
            start as usize..end as usize
        }
    }
}
