//! What an engine is asked, and what it answers.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::limits::SLICE_BYTES;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_device::Block;

use crate::edit::RecordEdit;
use crate::error::{Error, Unmet};

/// Which part of a record a get wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPart {
    /// Flags, version, expiry and length; the value comes back empty.
    Meta,
    /// All of it.
    Whole,
    /// Bytes `start..start + len` of the value, cut to its end.
    Range {
        /// First byte.
        start: u64,
        /// How many.
        len: u64,
    },
    /// As `Range`, for who takes a long value slice by slice and does not know how long it is.
    /// Without a hold it begins. The engine may answer with all of the value, if it had to read all
    /// of it; with a [`Reply::Part`], which has less than was asked for, and a hold; or with a
    /// [`Reply::Longer`], if it would have to read more than was expected.
    ///
    /// With the number of a hold more of that record is asked for, of the engine that gave it: it
    /// is the same record, whatever was written since. [`Reply::Record`] of `None`: it cannot be
    /// had any more.
    Sliced {
        /// [`Hold::id`]; 0 to begin.
        hold: u64,
        /// First byte.
        start: u64,
        /// How many.
        len: u32,
    },
}

impl RecordPart {
    /// How much of a value who begins to take it slice by slice expects: as much as was asked for,
    /// and a slice in any case, as less is not read at once. Of more it has to be told first.
    pub fn expected_bytes(self) -> Option<u64> {
        match self {
            RecordPart::Sliced { hold: 0, start: 0, len } => Some(u64::from(len).max(SLICE_BYTES as u64)),
            _ => None,
        }
    }
}

/// Keeps a long record where it is while it is taken slice by slice. Whoever takes it drops this at
/// the end.
#[derive(Clone, Debug)]
pub struct Hold(Arc<u64>);

impl Hold {
    /// One with this number, which is not 0. The engine keeps a clone of it.
    pub fn new(id: u64) -> Hold {
        Hold(Arc::new(id))
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        *self.0
    }

    /// Whether the engine alone has it: nobody will ask any more.
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A condition on a write, checked and applied as one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Expect {
    /// No condition.
    #[default]
    Any,
    /// The key must not exist.
    Absent,
    /// The key must exist.
    Present,
    /// The key must exist with this version.
    Version(u64),
}

impl Expect {
    /// What of the condition does not hold for a key that exists or not, with this version if it
    /// was needed; `None`: it holds.
    pub fn unmet(self, exists: bool, version: Option<u64>) -> Option<Unmet> {
        match (self, exists) {
            (Expect::Any, _) | (Expect::Absent, false) | (Expect::Present, true) => None,
            (Expect::Absent, true) => Some(Unmet::Present { version: version.unwrap_or_default() }),
            (Expect::Present | Expect::Version(_), false) => Some(Unmet::Absent),
            (Expect::Version(wanted), true) => {
                let found = version.unwrap_or_default();
                (found != wanted).then_some(Unmet::Version { found })
            }
        }
    }
}

/// One change of a write.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// Under which condition.
    pub expect: Expect,
    /// What to do.
    pub kind: ChangeKind,
}

/// Kind of a change.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// Sets the value.
    Put {
        /// The value, at most `VALUE_BYTES_MAX`.
        value: Bytes,
        /// Opaque to the store; memcache clients keep types in it.
        flags: u32,
        /// When it expires.
        expiry: Expiry,
    },
    /// Removes the key. Deleting an absent key with [`Expect::Any`] is answered
    /// `Done { existed: false }`.
    Delete,
    /// Changes nothing: only the condition counts. It holds at the instant at which the write's
    /// other changes are made; of checks alone, all hold at one instant. Costs no write of its own.
    Check,
}

/// Read-modify-write of one record at its owner. The key must exist, else [`Unmet::Absent`]; an
/// edit may make a record where there is none.
#[derive(Clone, Debug)]
pub enum Update {
    /// Value = value + bytes.
    Append(Bytes),
    /// Value = bytes + value.
    Prepend(Bytes),
    /// Value begins with a decimal number of 64 bits; adds, wrapping. [`Unmet::NotANumber`]
    /// otherwise.
    Increment(u64),
    /// Subtracts, stopping at 0. memcached's rule: the length never shrinks, the number is padded
    /// with spaces.
    Decrement(u64),
    /// Sets the expiry; replies the record.
    Touch(Expiry),
    /// What a rule of the caller's own makes of the record, which it tells its caller itself. It is
    /// answered `Done`, or [`Unmet::Unchanged`] where the rule leaves the record as it is.
    Edit(Arc<dyn RecordEdit>),
}

/// A record of a load.
#[derive(Clone, Debug)]
pub struct LoadRecord {
    /// The key.
    pub key: Key,
    /// The value, at most `VALUE_BYTES_MAX`.
    pub value: Bytes,
    /// Opaque to the store.
    pub flags: u32,
    /// When it expires.
    pub expiry: Expiry,
}

impl LoadRecord {
    /// Bytes of key and value.
    pub fn len_bytes(&self) -> u64 {
        (self.key.encoded().len() + self.value.len()) as u64
    }

    /// What is wrong with the order of these: the first two keys of which the second one does not
    /// come after the first.
    ///
    /// # Errors
    /// [`Error::Unsorted`].
    pub fn check_order(records: &[LoadRecord]) -> Result<(), Error> {
        match records.windows(2).find(|pair| pair[0].key >= pair[1].key) {
            Some(pair) => Err(Error::Unsorted(Box::new([pair[0].key.clone(), pair[1].key.clone()]))),
            None => Ok(()),
        }
    }

    /// The put that leaves the same.
    pub fn to_change(&self) -> Change {
        let LoadRecord { key, value, flags, expiry } = self.clone();
        Change { key, expect: Expect::Any, kind: ChangeKind::Put { value, flags, expiry } }
    }
}

/// One page of a scan. Stateless: the next page starts where this one ended.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// Lower bound.
    pub from: Bound<Key>,
    /// Upper bound.
    pub to: Bound<Key>,
    /// From the upper bound downwards.
    pub reverse: bool,
    /// Keys (with expiry) only: costs no I/O.
    pub keys_only: bool,
    /// At most this many items; at least 1.
    pub items_max: u32,
    /// Stop after this many bytes of keys and values; at least one item is returned.
    pub bytes_max: u32,
    /// On this snapshot.
    pub at: Option<u64>,
}

/// One page of a list of all records of a collection, in no order. Stateless: the next page starts
/// at the cursor that this one gives.
///
/// A record that is there from the first page to the last is in exactly one of them. One that comes
/// or goes meanwhile may be missing. One that has expired or was deleted before its page was asked
/// for is in none. A cursor means nothing once the store was opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Of which collection.
    pub collection: CollectionId,
    /// 0 begins; later [`Reply::Listed`] gives it.
    pub cursor: u64,
    /// Whose records.
    pub shard: u32,
    /// At most this many records, at least 1. Records whose keys share a hash come together all the
    /// same. There may be none although others follow.
    pub items_max: u32,
}

/// Open or close a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOp {
    /// Open one; replied as `Number(id)`.
    Open,
    /// Close it.
    Close(u64),
}

/// What an engine is asked. It is handed on often, so what is rare and large lies in a box.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Reads a record.
    Get {
        /// The key.
        key: Key,
        /// How much of it.
        part: RecordPart,
    },
    /// Changes a record in dependence on itself.
    Update {
        /// The key.
        key: Key,
        /// How.
        update: Update,
        /// When to acknowledge.
        level: Level,
    },
    /// Puts, deletes, compare-and-swap and batches: one path. Several changes are atomic; no key
    /// occurs twice.
    Write {
        /// At least one.
        changes: Vec<Change>,
        /// When to acknowledge.
        level: Level,
    },
    /// Puts records that are not there yet where they would lie in the end, all or none, also over
    /// a crash: by engines that can do that for less than what as many puts cost
    /// ([`Capability::Load`](crate::Capability::Load)). Replied as `Done` with the version that all
    /// of them have. Writes between its first and its last key that come later wait for it; readers
    /// see nothing of it, then all. [`Unmet::Occupied`]: nothing was changed, and puts are the way.
    Load {
        /// In ascending order of keys, none twice; at least one, and of several at most 64 MiB of
        /// keys and values.
        records: Arc<[LoadRecord]>,
        /// When to acknowledge.
        level: Level,
    },
    /// One page of a scan.
    Page(Box<PageRequest>),
    /// What is known of a shard's records, without their values, by an engine that has no order to
    /// scan them in. One that has may answer [`Capability::List`](crate::Capability::List).
    List(ListRequest),
    /// Deletes every key in a range that exists once the writes handed over before it are done;
    /// replied as `Number(deleted)`. Later writes stay.
    DeleteRange {
        /// Lower and upper bound.
        range: Box<(Bound<Key>, Bound<Key>)>,
        /// When to acknowledge.
        level: Level,
    },
    /// Opens or closes a snapshot.
    Snapshot(SnapshotOp),
    /// A backup of the whole store: begun at shard 0, then fetched from each shard, piece by piece.
    /// It is a cut: all writes of a shard up to one version, batches whole.
    Backup {
        /// 0 begins one, replied as `Number(cursor)`: the cuts are made. With that cursor, every
        /// shard gives its next piece, a `Page` of records in no order; `next` tells whether there
        /// are more.
        cursor: u64,
        /// Whose piece; 0 to begin.
        shard: u32,
    },
    /// Makes every acknowledged write durable at power loss, whatever its level was.
    Sync,
}

/// Bytes of a value, owned or shared with the cache.
#[derive(Clone, Debug)]
pub enum Value {
    /// Owned.
    Inline(Bytes),
    /// `len` bytes from `start` of the blocks laid end to end; shared, never changed.
    Blocks {
        /// The blocks, in order.
        blocks: Vec<Arc<Block>>,
        /// First byte, in the first block.
        start: u32,
        /// How many bytes in all.
        len: u64,
    },
}

/// A record as read.
#[derive(Clone, Debug)]
pub struct Record {
    /// The value, or the part asked for.
    pub value: Value,
    /// Length of the whole value, in bytes.
    pub value_bytes: u64,
    /// As written.
    pub flags: u32,
    /// Only grows, over all keys of a shard.
    pub version: u64,
    /// As written.
    pub expiry: Expiry,
}

/// An item of a page.
#[derive(Clone, Debug)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// `None` in keys-only pages.
    pub record: Option<Record>,
}

/// What an engine answers: exactly one per accepted token.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A write is durable at its level.
    Done {
        /// Version of the (last) change that is no check; 0 if there is none, or if it deleted
        /// nothing.
        version: u64,
        /// Whether its key existed before; false if there is none.
        existed: bool,
    },
    /// Get and touch: the record, or `None` if the key does not exist.
    Record(Option<Record>),
    /// Increment, decrement: the new number. DeleteRange: how many. Snapshot: its id.
    Number {
        /// The number.
        number: u64,
        /// Version of the change, 0 if none.
        version: u64,
    },
    /// The first bytes of a long record, of which more can be asked for: [`RecordPart::Sliced`].
    Part(Record, Hold),
    /// To [`RecordPart::Sliced`], begun: the value is longer than was expected, and nothing of it
    /// was read. So many bytes have to be asked for, at least as many as it has.
    Longer(u64),
    /// A page of a scan.
    Page {
        /// In order.
        items: Vec<Item>,
        /// Where the next page starts (as `from`, or as `to` when reversed); `None` at the end.
        next: Option<Bound<Key>>,
    },
    /// A page of a list: values are empty, `value_bytes` tells how long they are.
    Listed {
        /// In no order.
        items: Vec<Item>,
        /// Where the next page starts; `None` at the end.
        next: Option<u64>,
    },
    /// A condition did not hold; nothing was changed.
    Unmet(Unmet),
    /// It failed; see the error for whether the outcome is known.
    Failed(Error),
}

impl Reply {
    /// Of a delete: one of a key that was not there, or had expired, changed nothing, so it has no
    /// version.
    pub fn deleted(version: u64, existed: bool) -> Reply {
        Reply::Done { version: if existed { version } else { 0 }, existed }
    }
}

impl Value {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Value::Inline(bytes) => bytes.len() as u64,
            Value::Blocks { len, .. } => *len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes as a list of slices, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (inline, blocks, mut start, mut left) = match self {
            Value::Inline(bytes) => (Some(&bytes[..]), &[][..], 0, 0),
            Value::Blocks { blocks, start, len } => (None, &blocks[..], *start as usize, *len as usize),
        };
        let from_blocks = blocks.iter().map_while(move |block| {
            let slice = block.get(start..)?;
            let slice = &slice[..slice.len().min(left)];
            start = 0;
            left -= slice.len();
            (!slice.is_empty()).then_some(slice)
        });
        inline.into_iter().chain(from_blocks)
    }

    /// The bytes in one piece. Copies, unless they are owned already.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Value::Inline(bytes) => bytes.clone(),
            Value::Blocks { len, .. } => {
                let mut out = Vec::with_capacity(*len as usize);
                self.slices().for_each(|slice| out.extend_from_slice(slice));
                out.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is longer is moved by calls of memcpy, half a dozen times for each operation.
    #[test]
    fn operations_and_replies_are_short_enough_to_be_moved_in_registers() {
        assert!(size_of::<Operation>() <= 104, "{}", size_of::<Operation>());
        assert!(size_of::<Reply>() <= 96, "{}", size_of::<Reply>());
    }
}
