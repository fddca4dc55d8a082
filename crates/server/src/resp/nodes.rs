//! Nodes of long structures as records of a hidden collection, and the structures of a key as
//! commands see them: packed, or the root of a tree.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_structures::tree::{
    NodeName, Nodes, PACKED_BYTES_MAX, ReadNodes, SearchNode, SearchedNode, TreeError, TreeRoot, is_tree,
};
use stratakv_structures::{Kind, STRUCTURE_FLAGS};

use super::arguments::RequestRefusal;
use super::records::{Call, Records, StoredRecord, refused_by_damage, structure_too_long, unreadable};
use super::session::mixed;

/// A tree whose elements have fewer bytes is packed.
pub(crate) const TREE_BYTES_MIN: u64 = 2 << 10;
/// What stands behind the user's key in the key of a node.
pub(crate) const NAME_BYTES: usize = 16;

/// The key of a node of the structure under a user's key.
pub(crate) fn node_key(user: &[u8], name: NodeName) -> Key {
    Key::bound(CollectionId::NODES, &name.key(user))
}

/// The user's key that a node belongs to, and the node's name.
pub(crate) fn split_node_key(key: &Key) -> Option<(&[u8], NodeName)> {
    let (rest, number) = key.user().split_last_chunk::<8>()?;
    let (user, id) = rest.split_last_chunk::<8>()?;
    Some((user, NodeName { id: u64::from_be_bytes(*id), number: u64::from_be_bytes(*number) }))
}

/// Whether nodes of a key have keys that are short enough.
pub(crate) fn has_room_for_nodes(user: &[u8]) -> bool {
    user.len() + NAME_BYTES <= KEY_BYTES_MAX
}

/// The nodes of the structure with this id under a key.
pub(crate) struct KeyNodes<'r> {
    records: &'r mut dyn Records,
    key: &'r [u8],
    id: u64,
}

impl<'r> KeyNodes<'r> {
    pub(crate) fn new(records: &'r mut dyn Records, key: &'r [u8], id: u64) -> KeyNodes<'r> {
        KeyNodes { records, key, id }
    }
}

impl ReadNodes for KeyNodes<'_> {
    fn read(&self, number: u64, bytes: u64) -> Result<Bytes, TreeError> {
        self.records.node(self.key, NodeName { id: self.id, number }, bytes)
    }

    fn read_searched(&self, number: u64, bytes: u64, search: &SearchNode<'_>) -> Result<Arc<SearchedNode>, TreeError> {
        self.records.searched_node((self.key, NodeName { id: self.id, number }), bytes, search)
    }
}

impl Nodes for KeyNodes<'_> {
    fn is_at_hand(&self, number: u64, bytes: u64) -> bool {
        self.records.has_node(self.key, NodeName { id: self.id, number }, bytes)
    }

    fn write(&mut self, number: u64, image: Bytes) {
        self.records.put_node(self.key, NodeName { id: self.id, number }, Some(image));
    }

    fn write_searched(&mut self, number: u64, node: SearchedNode) {
        self.records.put_searched_node(self.key, NodeName { id: self.id, number }, node);
    }

    fn free(&mut self, number: u64) {
        self.records.put_node(self.key, NodeName { id: self.id, number }, None);
    }

    fn usable_number(&self, from: u64) -> u64 {
        self.records.usable_number(self.key, self.id, from)
    }
}

/// The same, only to be read.
pub(crate) struct KeyNodesRead<'r> {
    pub(crate) records: &'r dyn Records,
    pub(crate) key: &'r [u8],
    pub(crate) id: u64,
}

impl ReadNodes for KeyNodesRead<'_> {
    fn read(&self, number: u64, bytes: u64) -> Result<Bytes, TreeError> {
        self.records.node(self.key, NodeName { id: self.id, number }, bytes)
    }

    fn read_searched(&self, number: u64, bytes: u64, search: &SearchNode<'_>) -> Result<Arc<SearchedNode>, TreeError> {
        self.records.searched_node((self.key, NodeName { id: self.id, number }), bytes, search)
    }
}

/// The tree whose root a record is; `None`: it is packed.
///
/// # Errors
/// It is damaged, or a newer program's.
pub(crate) fn tree_of(record: &StoredRecord) -> Result<Option<TreeRoot>, RequestRefusal> {
    match is_tree(&record.value) {
        true => TreeRoot::parse(&record.value).map(Some).map_err(refused_by_damage),
        // It may have nodes, which this program does not find.
        false if record.kind() == Kind::Newer => Err(unreadable(&record.value)),
        false => Ok(None),
    }
}

/// The record with all its elements packed, whatever its form.
///
/// # Errors
/// It is too long to be read as a whole; it is damaged.
pub(crate) fn whole(records: &dyn Records, key: &[u8], record: StoredRecord) -> Result<StoredRecord, RequestRefusal> {
    if record.flags != STRUCTURE_FLAGS {
        return Ok(record);
    }
    let Some(root) = tree_of(&record)? else { return Ok(record) };
    let nodes = KeyNodesRead { records, key, id: root.id() };
    let packed = root.pack(&nodes, records.whole_bytes_max()).map_err(|error| refused(error, root.kind()))?;
    Ok(StoredRecord { value: packed.into(), ..record })
}

/// Stores a packed structure under a key, as a tree if it is long.
///
/// # Errors
/// It is longer than it may be.
pub(crate) fn put_packed(
    call: &Call<'_>,
    records: &mut dyn Records,
    key: &[u8],
    record: StoredRecord,
) -> Result<(), RequestRefusal> {
    let bytes = record.value.len();
    if bytes <= PACKED_BYTES_MAX || !records.may_be_tree(key) {
        if bytes > call.value_bytes_max {
            return Err(structure_too_long(bytes, call.value_bytes_max, records.has_trees()));
        }
        records.put(key, record);
        return Ok(());
    }
    // No other structure of this key ever had it.
    let id = mixed(call.seed ^ bytes as u64);
    let mut nodes = KeyNodes::new(records, key, id);
    let root = TreeRoot::of_packed(&record.value, id, &mut nodes);
    let root = root.map_err(|error| refused(error, Kind::Damaged))?;
    put_root(records, key, &root, record.expiry)
}

/// Stores what a tree has become; a short one is packed.
///
/// # Errors
/// It has too many elements; nodes are missing.
pub(crate) fn put_tree(
    records: &mut dyn Records,
    key: &[u8],
    mut root: TreeRoot,
    expiry: Expiry,
) -> Result<(), RequestRefusal> {
    let kind = root.kind();
    if root.is_empty() || root.element_bytes() >= TREE_BYTES_MIN {
        return put_root(records, key, &root, expiry);
    }
    let mut nodes = KeyNodes::new(records, key, root.id());
    let packed = root.pack(&nodes, u64::MAX).map_err(|error| refused(error, kind))?;
    root.free_all(&mut nodes).map_err(|error| refused(error, kind))?;
    records.put(key, StoredRecord { value: packed.into(), flags: STRUCTURE_FLAGS, expiry });
    Ok(())
}

fn put_root(records: &mut dyn Records, key: &[u8], root: &TreeRoot, expiry: Expiry) -> Result<(), RequestRefusal> {
    match root.encode().map_err(|error| refused(error, root.kind()))? {
        Some(value) => records.put(key, StoredRecord { value, flags: STRUCTURE_FLAGS, expiry }),
        None => records.delete(key),
    }
    Ok(())
}

/// Why a command on a tree of this kind does not go on.
pub(crate) fn refused(error: TreeError, kind: Kind) -> RequestRefusal {
    let piecemeal = match kind {
        Kind::Hash => "with HSCAN",
        Kind::Set => "with SSCAN",
        Kind::SortedSet => "with ZSCAN or ZRANGE",
        _ => "with LRANGE",
    };
    match error {
        // Nobody is told: the command is carried out again.
        TreeError::Missing => Cow::Borrowed("ERR nodes have to be read first"),
        TreeError::Damaged(damaged) => refused_by_damage(damaged),
        TreeError::TooLong { bytes } => Cow::Owned(format!(
            "ERR the elements have {bytes} bytes, which is too much for one command: take them piece by piece, \
             {piecemeal}, or raise --memory"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_key_says_whose_it_is() {
        let name = NodeName { id: 0x0102_0304_0506_0708, number: 300 };
        let key = node_key(b"user:1", name);
        assert_eq!(key.collection(), CollectionId::NODES);
        assert_eq!(split_node_key(&key), Some((&b"user:1"[..], name)));
        assert!(key > node_key(b"user:1", NodeName { number: 299, ..name }), "in order of their numbers");
        assert_eq!(split_node_key(&Key::bound(CollectionId::NODES, b"short")), None);
        assert!(has_room_for_nodes(&vec![b'k'; 65_519]) && !has_room_for_nodes(&vec![b'k'; 65_520]));
    }
}
