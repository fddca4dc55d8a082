//! What data commands work on: the records of the keys that they name, wherever these come from.
//!
//! A data command is a pure function ([`Core`]) of its arguments and of these records. One of one
//! key is carried out at the record's owner ([`DataRule`](super::data::DataRule)); several, and
//! those of a transaction, over records that were read before.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::{Expiry, Wall};
use stratakv_protocol::resp::Version;
use stratakv_structures::tree::{NodeName, SearchNode, SearchedNode, TreeError};
use stratakv_structures::{Damaged, HEADER_BYTES, Kind, STRUCTURE_FLAGS, TooLong, kind_of};

use super::arguments::{Arguments, RequestRefusal};
use super::nodes::{has_room_for_nodes, put_packed, whole};
use super::pubsub::ListenKind;

/// What a command answers on a key of another type.
pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A record as a command sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
}

impl StoredRecord {
    pub(crate) fn kind(&self) -> Kind {
        kind_of(self.flags, &self.value)
    }
}

/// The records of a command's keys.
pub(crate) trait Records {
    /// The record of a key.
    ///
    /// # Errors
    /// It is longer than what commands look at.
    fn get(&self, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal>;

    /// The same with as much of its value as tells its type.
    fn head(&self, key: &[u8]) -> Option<StoredRecord>;

    /// Gives a key this record. One whose expiry is over is none.
    fn put(&mut self, key: &[u8], record: StoredRecord);

    /// Removes a key's record.
    fn delete(&mut self, key: &[u8]);

    /// The bytes of a node of the tree under a key, which has so many.
    ///
    /// # Errors
    /// [`TreeError::Missing`]: it will be there when the command is carried out again. Or there is
    /// no such node.
    fn node(&self, key: &[u8], name: NodeName, bytes: u64) -> Result<Bytes, TreeError>;

    /// The same of an inner node, which `search` looks through: what it finds out may be kept.
    ///
    /// # Errors
    /// As [`Records::node`], and those of `search`.
    fn searched_node(
        &self,
        (key, name): (&[u8], NodeName),
        bytes: u64,
        search: &SearchNode<'_>,
    ) -> Result<Arc<SearchedNode>, TreeError> {
        search(self.node(key, name, bytes)?).map(Arc::new)
    }

    /// Whether a node can be read now; if not, it would be useful.
    fn has_node(&self, key: &[u8], name: NodeName, bytes: u64) -> bool;

    /// Gives a node these bytes, or removes it.
    fn put_node(&mut self, key: &[u8], name: NodeName, image: Option<Bytes>);

    /// Gives an inner node these bytes, of which is known what a search would find out.
    fn put_searched_node(&mut self, key: &[u8], name: NodeName, node: SearchedNode) {
        self.put_node(key, name, Some(node.image().clone()));
    }

    /// The least number from this one on that a node of the structure may have.
    fn usable_number(&self, key: &[u8], id: u64, from: u64) -> u64;

    /// Whether structures may be trees.
    fn has_trees(&self) -> bool;

    /// The reply is longer than a value: the command is carried out again where there is room for
    /// it, if that is not here. What it says then nobody is told.
    fn needs_room(&self) {}

    /// Whether that of this key may.
    fn may_be_tree(&self, key: &[u8]) -> bool {
        self.has_trees() && has_room_for_nodes(key)
    }

    /// At which element of a tree a cursor goes on; `None`: it is not known any more.
    fn scan_place(&self, key: &[u8], cursor: u64) -> Option<Bytes>;

    /// A cursor for an element that was reached by another one.
    fn keep_scan_place(&self, key: &[u8], from: u64, next: Bytes) -> u64;

    /// Most bytes of elements that are read of a tree as a whole.
    fn whole_bytes_max(&self) -> u64;

    /// Sends a message, of a channel and a text, once all has been carried out. At this place of
    /// the reply it is told then how many have got it.
    fn publish(&mut self, _at: usize, _kind: ListenKind, _message: (Bytes, Bytes)) {}
}

/// A command that is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// With the name of the command.
    pub(crate) a: Arguments<'a>,
    pub(crate) version: Version,
    pub(crate) wall: Wall,
    /// Longest value that may be made or looked at.
    pub(crate) value_bytes_max: usize,
    /// Longest reply to what may repeat elements or values as often as it is asked to.
    pub(crate) reply_bytes_max: usize,
    /// Whatever is drawn by lot comes of it: the same call on the same records does the same.
    pub(crate) seed: u64,
}

/// Carries out a command: appends the reply. A command that refuses has changed nothing.
pub(crate) type Core = fn(&Call<'_>, &mut dyn Records, &mut Vec<u8>) -> Result<(), RequestRefusal>;

/// The record of a structure of this kind with all its elements, whatever its form.
///
/// # Errors
/// The key holds another kind of value; it is too long to be read as a whole.
pub(crate) fn structure(records: &dyn Records, key: &[u8], kind: Kind) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, key, kind)?.map(|record| whole(records, key, record)).transpose()
}

/// The record of a structure of this kind: packed, or the root of a tree.
///
/// # Errors
/// The key holds another kind of value.
pub(crate) fn stored(records: &dyn Records, key: &[u8], kind: Kind) -> Result<Option<StoredRecord>, RequestRefusal> {
    match records.get(key)? {
        Some(record) => check_kind(record.flags, &record.value, kind).map(|()| Some(record)),
        None => Ok(None),
    }
}

/// The record of a string.
///
/// # Errors
/// The key holds another kind of value.
pub(crate) fn string(records: &dyn Records, key: &[u8]) -> Result<Option<StoredRecord>, RequestRefusal> {
    stored(records, key, Kind::String)
}

/// Whether a record is of this kind.
///
/// # Errors
/// It is of another one.
pub(crate) fn check_kind(flags: u32, value: &[u8], kind: Kind) -> Result<(), RequestRefusal> {
    match kind_of(flags, value) {
        found if found == kind => Ok(()),
        Kind::Damaged | Kind::Newer => Err(unreadable(value)),
        _ => Err(Cow::Borrowed(WRONG_TYPE)),
    }
}

/// A structure that cannot be read: it is damaged, or a newer program's.
pub(super) fn unreadable(value: &[u8]) -> RequestRefusal {
    match stratakv_structures::len(value) {
        Err(why) => refused_by_damage(why),
        Ok(_) => Cow::Borrowed("ERR the structure is damaged: DEL removes it"),
    }
}

/// The same, found while its elements were read.
pub(crate) fn refused_by_damage(why: Damaged) -> RequestRefusal {
    match why.is_newer() {
        // A newer program can read it: nobody is told to remove it.
        true => Cow::Owned(format!("ERR {why}")),
        false => Cow::Owned(format!("ERR {why}: DEL removes it")),
    }
}

/// Stores what a structure has become; the key goes with its last element.
///
/// # Errors
/// It is longer than clients may store.
pub(crate) fn store(
    call: &Call<'_>,
    records: &mut dyn Records,
    key: &[u8],
    (encoded, expiry): (Result<Option<Vec<u8>>, TooLong>, Expiry),
) -> Result<(), RequestRefusal> {
    match encoded {
        Ok(Some(value)) => {
            put_packed(call, records, key, StoredRecord { value: value.into(), flags: STRUCTURE_FLAGS, expiry })
        }
        Ok(None) => {
            records.delete(key);
            Ok(())
        }
        Err(TooLong { bytes }) => Err(structure_too_long(bytes, call.value_bytes_max, records.has_trees())),
    }
}

/// A structure that is one record, as the engine has no batches or the key is too long for more.
pub(crate) fn structure_too_long(bytes: usize, most: usize, has_trees: bool) -> RequestRefusal {
    let why = if has_trees { "a shorter key has no such limit" } else { "the engine `tier` has no longer ones" };
    Cow::Owned(format!(
        "ERR the key would hold {bytes} bytes, and clients may store {most}: raise --item-bytes-max, or use more \
         keys ({why})"
    ))
}

/// The front of a record, of which the type can be told.
pub(crate) fn head_of(record: &StoredRecord) -> StoredRecord {
    let value = record.value.slice(..record.value.len().min(HEADER_BYTES));
    StoredRecord { value, ..*record }
}

/// Refuses a reply that has become longer than a value may be.
///
/// # Errors
/// It has.
pub(crate) fn check_reply(
    call: &Call<'_>,
    records: &dyn Records,
    (out, began): (&[u8], usize),
) -> Result<(), RequestRefusal> {
    match out.len().saturating_sub(began) > call.reply_bytes_max {
        true => {
            records.needs_room();
            Err(reply_too_long(call))
        }
        false => Ok(()),
    }
}

/// Refuses a reply that would be longer than a value may be.
pub(crate) fn reply_too_long(call: &Call<'_>) -> RequestRefusal {
    Cow::Owned(format!(
        "ERR the reply has more than {} bytes: ask for less, or raise --item-bytes-max",
        call.reply_bytes_max
    ))
}
