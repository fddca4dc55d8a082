//! Structures as commands work on them, whichever form they have: packed in their record, or a
//! tree. A change is not there until it is stored.

mod hash_form;
mod list_form;
mod set_form;
mod sorted_set_form;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use stratakv_structures::tree::{MAIN, ReadNodes, TreeEntry, TreeError, TreeRoot};

pub(crate) use hash_form::HashForm;
pub(crate) use list_form::{ListEnd, ListForm};
pub(crate) use set_form::SetForm;
pub(crate) use sorted_set_form::{NewScore, ScoreEdge, SortedSetForm};

use super::arguments::RequestRefusal;
use super::nodes::{KeyNodes, KeyNodesRead, refused};
use super::records::Records;

/// Bytes of an element: a slice of a record or of a command, or read of a node.
pub(crate) type ElementBytes<'a> = Cow<'a, [u8]>;

fn owned<'a>(bytes: &Bytes) -> ElementBytes<'a> {
    Cow::Owned(bytes.to_vec())
}

fn nodes<'r>(records: &'r dyn Records, key: &'r [u8], root: &TreeRoot) -> KeyNodesRead<'r> {
    KeyNodesRead { records, key, id: root.id() }
}

/// All elements of a tree, as far as a command may read so much.
fn all(records: &dyn Records, key: &[u8], root: &TreeRoot) -> Result<Vec<TreeEntry>, RequestRefusal> {
    let all = root.all(&nodes(records, key, root), MAIN, records.whole_bytes_max());
    all.map_err(|error| refused(error, root.kind()))
}

/// The elements at these places of a tree.
fn range(
    (records, key): (&dyn Records, &[u8]),
    (root, tree): (&TreeRoot, usize),
    places: Range<usize>,
) -> Result<Vec<TreeEntry>, RequestRefusal> {
    let places = places.start as u64..places.end as u64;
    let entries = root.entries(&nodes(records, key, root), tree, places, records.whole_bytes_max());
    entries.map_err(|error| refused(error, root.kind()))
}

/// Elements drawn by lot: each is there once, and may have been drawn often.
pub(crate) struct Drawn<T> {
    elements: Vec<T>,
    /// Which of them were drawn.
    order: Vec<usize>,
}

impl<T> Drawn<T> {
    /// Those at these places, in any order. They are read in the order of places, each once.
    fn read(
        places: &[usize],
        read: impl FnOnce(&[usize]) -> Result<Vec<T>, RequestRefusal>,
    ) -> Result<Drawn<T>, RequestRefusal> {
        let mut each = places.to_vec();
        each.sort_unstable();
        each.dedup();
        let order = places.iter().filter_map(|place| each.binary_search(place).ok()).collect();
        Ok(Drawn { elements: read(&each)?, order })
    }

    /// They in the order in which they were drawn.
    pub(crate) fn in_order(&self) -> Vec<&T> {
        self.order.iter().filter_map(|at| self.elements.get(*at)).collect()
    }
}

/// The elements at places of a tree in order, each once.
fn at_places(
    (records, key): (&dyn Records, &[u8]),
    root: &TreeRoot,
    places: &[usize],
) -> Result<Vec<TreeEntry>, RequestRefusal> {
    let places: Vec<u64> = places.iter().map(|place| *place as u64).collect();
    let entries = root.entries_at(&nodes(records, key, root), MAIN, &places);
    entries.map_err(|error| refused(error, root.kind()))
}

/// What belongs to keys in any order, of which one may be named often. Nodes are looked at once.
fn found<'k>(
    root: &TreeRoot,
    nodes: &dyn ReadNodes,
    tree: usize,
    keys: impl IntoIterator<Item = &'k [u8]>,
) -> Result<BTreeMap<&'k [u8], Option<Bytes>>, TreeError> {
    let mut keys: Vec<&[u8]> = keys.into_iter().collect();
    keys.sort_unstable();
    keys.dedup();
    let values = root.get_all(nodes, tree, &keys)?;
    Ok(keys.into_iter().zip(values).collect())
}

/// Removes keys in any order, of which one may be named often; how many were there.
fn remove_all(root: &mut TreeRoot, nodes: &mut KeyNodes<'_>, tree: usize, keys: &[&[u8]]) -> Result<usize, TreeError> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    root.need_keys(nodes, tree, keys.iter().copied())?;
    root.remove_all(nodes, tree, &keys).map(|removed| removed as usize)
}

/// Elements that one call of `HSCAN` and its kin looks at, however many it asks for.
const SCANNED_MAX: u64 = 4096;

/// A page of elements of a tree from a cursor on, and the cursor of the next one; 0 at the end.
fn scan(
    (records, key): (&dyn Records, &[u8]),
    (root, tree): (&TreeRoot, usize),
    (cursor, count): (u64, u64),
) -> Result<(Vec<TreeEntry>, u64), RequestRefusal> {
    let (nodes, refuse) = (nodes(records, key, root), |error| refused(error, root.kind()));
    let first = match cursor {
        0 => 0,
        cursor => {
            let next = records.scan_place(key, cursor).ok_or(UNKNOWN_CURSOR)?;
            root.place_of(&nodes, tree, &next).map_err(refuse)?.0
        }
    };
    let mut count = count.clamp(1, SCANNED_MAX);
    loop {
        // One more, at which the next page begins.
        let places = first..first.saturating_add(count + 1);
        match root.entries(&nodes, tree, places, records.whole_bytes_max()) {
            Err(TreeError::TooLong { .. }) if count > 1 => count /= 2,
            Err(error) => return Err(refuse(error)),
            Ok(mut entries) => {
                let behind = (entries.len() as u64 > count).then(|| entries.pop()).flatten();
                let next = behind.map_or(0, |entry| records.keep_scan_place(key, cursor, entry.key));
                return Ok((entries, next));
            }
        }
    }
}

const UNKNOWN_CURSOR: RequestRefusal =
    Cow::Borrowed("ERR invalid cursor: it is not known, or too old; begin again with 0");
