//! Long structures of Redis clients in a store that is open: a root under the user's key, and nodes
//! that are records of a hidden collection. Read as a whole, written as a whole, checked.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, Reply};
use stratakv::{CollectionId, Engine, Error, Expect, Expiry, Key, Record, ScanOptions, Store};
use stratakv_base::checksum::shard_of;
use stratakv_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use stratakv_engine::{PageRequest, RecordPart};
use stratakv_structures::tree::{NodeName, Nodes, PACKED_BYTES_MAX, ReadNodes, TreeError, TreeRoot, is_tree};
use stratakv_structures::{Damaged, Kind, STRUCTURE_FLAGS, kind_of, len};

use crate::failure::{Exit, Failure};

/// As many structures that are damaged are told one by one.
const TOLD_MAX: usize = 100;

/// The nodes of the structure with this id under a key.
struct StoredNodes<'s> {
    store: &'s Store,
    key: &'s [u8],
    id: u64,
    /// Why a node could not be read, if one could not.
    failed: RefCell<Option<Error>>,
}

impl StoredNodes<'_> {
    fn of<'s>(store: &'s Store, key: &'s [u8], root: &TreeRoot) -> StoredNodes<'s> {
        StoredNodes { store, key, id: root.id(), failed: RefCell::default() }
    }
}

impl ReadNodes for StoredNodes<'_> {
    fn read(&self, number: u64, _: u64) -> Result<Bytes, TreeError> {
        let key = Key::bound(CollectionId::NODES, &NodeName { id: self.id, number }.key(self.key));
        match self.store.execute(Operation::Get { key, part: RecordPart::Whole }) {
            Reply::Record(Some(record)) => Ok(record.value.to_bytes()),
            Reply::Record(None) => Err(Damaged::new("a node is not there").into()),
            reply => {
                if let Reply::Failed(error) = reply {
                    self.failed.borrow_mut().get_or_insert(error.into());
                }
                Err(Damaged::new("a node cannot be read").into())
            }
        }
    }
}

/// Whether a record is the root of a long structure, or perhaps one, of a layout that this program
/// does not know.
pub(crate) fn is_root(record: &Record) -> bool {
    if record.flags != STRUCTURE_FLAGS {
        return false;
    }
    let value = record.to_bytes();
    is_tree(&value) || kind_of(record.flags, &value) == Kind::Newer
}

/// All of a long structure in the packed form; `None`: it has more bytes than a value may have.
///
/// # Errors
/// Its nodes cannot be read, it is damaged, or a newer program's.
pub(crate) fn packed(store: &Store, key: &[u8], root: &Record) -> Result<Option<Vec<u8>>, Failure> {
    let failure = |why: String, is_newer: bool| {
        let exit = if is_newer { Exit::Unsupported } else { Exit::Corrupt };
        Failure::new(exit, format!("key `{}`: {why}", key.escape_ascii()))
    };
    let damage = |damaged: Damaged| failure(damaged.to_string(), damaged.is_newer());
    let record = root;
    let root = TreeRoot::parse(&record.to_bytes()).map_err(damage)?;
    let nodes = StoredNodes::of(store, key, &root);
    match root.pack(&nodes, VALUE_BYTES_MAX as u64) {
        Ok(packed) => Ok((packed.len() <= VALUE_BYTES_MAX).then_some(packed)),
        Err(TreeError::TooLong { .. }) => Ok(None),
        Err(error) => Err(match (nodes.failed.take(), error) {
            (Some(error), _) => error.into(),
            // As `check` tells it: there can be damage behind a node of a newer program.
            (None, TreeError::Damaged(damaged)) => match damage_of(store, key, record) {
                Some((why, is_newer)) if damaged.is_newer() => failure(why, is_newer),
                _ => damage(damaged),
            },
            (None, error) => Failure::failed(error.to_string()),
        }),
    }
}

/// What a look at the long structures of a store has found.
#[derive(Debug, Default)]
pub(crate) struct TreeFindings {
    /// A text for each that is damaged.
    pub(crate) damage: Vec<String>,
    /// Structures of a newer program, which were not looked at.
    pub(crate) newer: u64,
    /// What is said of the first of them.
    pub(crate) first_newer: String,
}

/// Looks at the long structures of a store.
///
/// # Errors
/// Records cannot be read.
pub(crate) fn verify(store: &Store, engine: Engine) -> Result<TreeFindings, Failure> {
    let (mut found, mut untold) = (TreeFindings::default(), 0);
    if !has_nodes(store, engine) {
        return Ok(found);
    }
    let mut look = |key: &[u8], record: &Record| {
        let Some((why, is_newer)) = is_root(record).then(|| damage_of(store, key, record)).flatten() else { return };
        let why = format!("key `{}`: {why}", key.escape_ascii());
        if is_newer {
            found.newer += 1;
            if found.first_newer.is_empty() {
                found.first_newer = why;
            }
        } else if found.damage.len() < TOLD_MAX {
            found.damage.push(why);
        } else {
            untold += 1;
        }
    };
    if engine == Engine::Hash {
        store.for_each(|collection, key: &[u8], record| {
            if collection == store.id() {
                look(key, &record);
            }
            Ok::<(), Error>(())
        })?;
    } else {
        for item in store.scan(ScanOptions::all()) {
            let (key, record) = item?;
            look(&key, &record);
        }
    }
    found.damage.extend((untold > 0).then(|| format!("{untold} more long structures")));
    Ok(found)
}

/// Whether there are nodes: without them there are no long structures, and a walk over all records
/// in the order of their keys would take longer than all else that `check` does.
fn has_nodes(store: &Store, engine: Engine) -> bool {
    if engine == Engine::Tier {
        return false;
    }
    let page = PageRequest {
        from: Bound::Included(Key::bound(CollectionId::NODES, b"")),
        to: Bound::Excluded(Key::bound(CollectionId(CollectionId::NODES.0 + 1), b"")),
        reverse: false,
        keys_only: true,
        items_max: 1,
        bytes_max: 1 << 10,
        at: None,
    };
    match store.execute(Operation::Page(page.into())) {
        Reply::Page { items, next } => !items.is_empty() || next.is_some(),
        // What it is that cannot be read, the walk tells.
        _ => true,
    }
}

/// What is wrong with a long structure, and whether it is only that a newer program wrote it.
fn damage_of(store: &Store, key: &[u8], root: &Record) -> Option<(String, bool)> {
    let root = match TreeRoot::parse(&root.to_bytes()) {
        Ok(root) => root,
        Err(damaged) => return Some((damaged.to_string(), damaged.is_newer())),
    };
    let nodes = StoredNodes::of(store, key, &root);
    let error = root.check(&nodes).err()?;
    Some(match nodes.failed.take() {
        Some(why) => (format!("{error} ({why})"), false),
        None => (error.to_string(), matches!(error, TreeError::Damaged(damaged) if damaged.is_newer())),
    })
}

/// The root of the tree that a long packed structure becomes, and the writes of its nodes; `None`:
/// it is a record like others.
pub(crate) fn planted(
    (store, engine): (&Store, Engine),
    key: &[u8],
    (value, flags): (&[u8], u32),
) -> Option<(Bytes, Vec<Change>)> {
    let is_long = flags == STRUCTURE_FLAGS && value.len() > PACKED_BYTES_MAX && len(value).is_ok() && !is_tree(value);
    let mut nodes = NewNodes {
        user: key,
        id: RandomState::new().build_hasher().finish(),
        shards: store.shards(),
        changes: Vec::new(),
    };
    if !is_long || engine == Engine::Tier || nodes.key(0).user().len() > KEY_BYTES_MAX {
        return None;
    }
    // One that is damaged stays what it is.
    let root = TreeRoot::of_packed(value, nodes.id, &mut nodes).ok()?;
    Some((root.encode().ok()??, nodes.changes))
}

/// The nodes of a structure that is being written.
struct NewNodes<'s> {
    user: &'s [u8],
    id: u64,
    shards: usize,
    changes: Vec<Change>,
}

impl NewNodes<'_> {
    fn key(&self, number: u64) -> Key {
        Key::bound(CollectionId::NODES, &NodeName { id: self.id, number }.key(self.user))
    }
}

impl ReadNodes for NewNodes<'_> {
    fn read(&self, _: u64, _: u64) -> Result<Bytes, TreeError> {
        Err(TreeError::Missing)
    }
}

impl Nodes for NewNodes<'_> {
    fn is_at_hand(&self, _: u64, _: u64) -> bool {
        false
    }

    fn write(&mut self, number: u64, image: Bytes) {
        let kind = ChangeKind::Put { value: image, flags: 0, expiry: Expiry::NEVER };
        self.changes.push(Change { key: self.key(number), expect: Expect::Any, kind });
    }

    fn free(&mut self, _: u64) {}

    fn usable_number(&self, from: u64) -> u64 {
        let root = Key::bound(CollectionId::default(), self.user);
        let wanted = shard_of(root.encoded(), self.shards);
        let candidates = from..from.saturating_add(64 * self.shards as u64);
        candidates
            .into_iter()
            .find(|number| shard_of(self.key(*number).encoded(), self.shards) == wanted)
            .unwrap_or(from)
    }
}
