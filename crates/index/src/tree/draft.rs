//! Changing nodes: a draft of the new contents is put together in working space, then stored.

use std::ops::Range;

use super::IndexEntry;
use super::node::{
    GROUP_MAX, Node, RecordAddress, Restart, View, common_bytes, head, least_keys, place_bytes, read_key, write_key,
};

/// Keys between restarts when a node is written anew: room for some more before a group splits.
const GROUP_FRESH: usize = 12;
/// Working space above this is given back after a change.
const KEPT_BYTES: usize = 16 << 10;

/// What a node is to hold, encoded piece by piece. See [`Node`] for the meaning of each.
#[derive(Default)]
pub(super) struct Draft {
    pub prefix: Vec<u8>,
    pub restarts: Vec<Restart>,
    pub places: Vec<u8>,
    pub expiries: Vec<u8>,
    pub keys: Vec<u8>,
}

/// Keys with their entries, decoded, in order.
#[derive(Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    entries: Vec<IndexEntry>,
}

/// Working space of a tree, so that a change allocates nothing but its node.
#[derive(Default)]
pub(super) struct Scratch {
    draft: Draft,
    run: Run,
    key: Vec<u8>,
}

/// A change to one node.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    Insert(&'a [u8], IndexEntry),
    Remove,
}

/// A node made by a split, with the least key that may lie in it.
pub(super) struct Piece {
    pub separator: Vec<u8>,
    pub node: Node,
}

impl Run {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.entries.clear();
    }

    pub fn push(&mut self, key: &[u8], entry: IndexEntry) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.entries.push(entry);
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn key(&self, rank: usize) -> &[u8] {
        let start = if rank == 0 { 0 } else { self.ends[rank - 1] };
        &self.bytes[start..self.ends[rank]]
    }

    pub fn entry(&self, rank: usize) -> IndexEntry {
        self.entries[rank]
    }

    /// Adds all keys of `node`.
    pub fn extend(&mut self, view: View<'_>, key: &mut Vec<u8>) {
        for group in 0..view.groups {
            view.each_in_group(group, key, |rank, key| {
                self.push(key, view.entry(rank));
                true
            });
        }
    }
}

impl Draft {
    fn clear(&mut self) {
        self.prefix.clear();
        self.restarts.clear();
        self.places.clear();
        self.expiries.clear();
        self.keys.clear();
    }

    /// Drafts a node of the keys `ranks` of `run`.
    pub fn encode(&mut self, run: &Run, ranks: Range<usize>, group: usize) {
        self.clear();
        if let (Some(first), Some(last)) = (ranks.clone().next(), ranks.clone().next_back()) {
            let (first, last) = (run.key(first), run.key(last));
            self.prefix.extend_from_slice(&first[..common_bytes(first, last)]);
        }
        let start = ranks.start;
        for first in ranks.clone().step_by(group) {
            let end = ranks.end.min(first + group);
            let keys = (first..end).map(|rank| &run.key(rank)[self.prefix.len()..]);
            push_group(&mut self.restarts, &mut self.keys, first - start, keys);
        }
        self.places.extend(run.entries[ranks.clone()].iter().flat_map(|entry| place_bytes(*entry)));
        if run.entries[ranks.clone()].iter().any(|entry| entry.expiry != 0) {
            self.expiries.extend(run.entries[ranks].iter().flat_map(|entry| entry.expiry.to_le_bytes()));
        }
    }

    /// Drafts `view` with one change at `addr`. Of keys, only the one that comes or goes is
    /// encoded, and the one behind it; where a group is split or ends, the group.
    fn splice(&mut self, view: View<'_>, addr: RecordAddress, change: Change<'_>, run: &mut Run, key: &mut Vec<u8>) {
        self.clear();
        let ranks = view.ranks(addr.group);
        self.prefix.extend_from_slice(view.prefix);
        self.restarts.extend((0..addr.group).map(|group| view.restart(group)));
        let more_ranks = match change {
            Change::Insert(new, _) if ranks.len() < GROUP_MAX => {
                self.insert_key(view, addr, &new[view.prefix.len()..]);
                ranks.end + 1
            }
            Change::Remove if ranks.len() > 1 => {
                self.remove_key(view, addr, key);
                ranks.end - 1
            }
            _ => self.encode_group(view, addr, change, run, key),
        };
        let end = view.extent(addr.group).end;
        let more_bytes = self.keys.len() - (view.keys.len() - end);
        self.restarts.extend((addr.group + 1..view.groups).map(|group| {
            let old = view.restart(group);
            let first = (more_ranks + usize::from(old.first) - ranks.end) as u8;
            Restart { head: old.head, first, offset: (more_bytes + old.offset as usize - end) as u32 }
        }));
        self.splice_entries(view, addr.rank, change);
    }

    /// Drafts the keys with `new` (behind the prefix) before the one at `addr`. In a group, what a
    /// key shares with one before it is the least of what neighbours between them share.
    fn insert_key(&mut self, view: View<'_>, addr: RecordAddress, new: &[u8]) {
        let ranks = view.ranks(addr.group);
        let (mut at, mut agreed) = (view.extent(addr.group).start, 0);
        for _ in ranks.start..addr.rank {
            let (shared, suffix, next) = read_key(view.keys, at);
            if shared <= agreed {
                agreed = shared + common_bytes(suffix, &new[shared..]);
            }
            at = next;
        }
        self.keys.extend_from_slice(&view.keys[..at]);
        let before = view.restart(addr.group);
        let head = if addr.rank == ranks.start { head(new) } else { before.head };
        self.restarts.push(Restart { head, ..before });
        write_key(&mut self.keys, agreed, &new[agreed..]);
        if addr.rank < ranks.end {
            let (shared, suffix, next) = read_key(view.keys, at);
            let more = if shared == agreed { common_bytes(suffix, &new[agreed..]) } else { 0 };
            write_key(&mut self.keys, shared + more, &suffix[more..]);
            at = next;
        }
        self.keys.extend_from_slice(&view.keys[at..]);
    }

    /// Drafts the keys without the one at `addr`, in a group that has others. `key` is working
    /// space.
    fn remove_key(&mut self, view: View<'_>, addr: RecordAddress, key: &mut Vec<u8>) {
        let ranks = view.ranks(addr.group);
        let mut at = view.extent(addr.group).start;
        for _ in ranks.start..addr.rank {
            at = read_key(view.keys, at).2;
        }
        self.keys.extend_from_slice(&view.keys[..at]);
        let mut restart = view.restart(addr.group);
        let (shared, removed, mut at) = read_key(view.keys, at);
        if addr.rank + 1 < ranks.end {
            let (with_removed, suffix, next) = read_key(view.keys, at);
            key.clear();
            key.extend_from_slice(&removed[..with_removed.saturating_sub(shared)]);
            key.extend_from_slice(suffix);
            write_key(&mut self.keys, shared.min(with_removed), key);
            if addr.rank == ranks.start {
                restart.head = head(key);
            }
            at = next;
        }
        self.restarts.push(restart);
        self.keys.extend_from_slice(&view.keys[at..]);
    }

    /// Drafts the keys, those of the group concerned encoded again; how many ranks there are up to
    /// its end.
    fn encode_group(
        &mut self,
        view: View<'_>,
        addr: RecordAddress,
        change: Change<'_>,
        run: &mut Run,
        key: &mut Vec<u8>,
    ) -> usize {
        run.clear();
        let prefix = view.prefix.len();
        let mut copy = |rank: usize, key: &[u8]| {
            if rank == addr.rank {
                match change {
                    Change::Insert(new, entry) => run.push(new, entry),
                    Change::Remove => return true,
                }
            }
            run.push(key, view.entry(rank));
            true
        };
        view.each_in_group(addr.group, key, &mut copy);
        let ranks = view.ranks(addr.group);
        if let Change::Insert(new, entry) = change
            && addr.rank == ranks.end
        {
            run.push(new, entry);
        }
        let extent = view.extent(addr.group);
        self.keys.extend_from_slice(&view.keys[..extent.start]);
        let size = if run.len() > GROUP_MAX { run.len().div_ceil(2) } else { GROUP_MAX };
        for first in (0..run.len()).step_by(size) {
            let end = run.len().min(first + size);
            let keys = (first..end).map(|rank| &run.key(rank)[prefix..]);
            push_group(&mut self.restarts, &mut self.keys, ranks.start + first, keys);
        }
        self.keys.extend_from_slice(&view.keys[extent.end..]);
        ranks.start + run.len()
    }

    fn splice_entries(&mut self, view: View<'_>, rank: usize, change: Change<'_>) {
        let (new, skip) = match change {
            Change::Insert(_, entry) => (Some(entry), 0),
            Change::Remove => (None, 1),
        };
        self.places.extend_from_slice(&view.places[..rank * 6]);
        if let Some(entry) = new {
            self.places.extend_from_slice(&place_bytes(entry));
        }
        self.places.extend_from_slice(&view.places[(rank + skip) * 6..]);
        if view.expiries.is_empty() && new.is_none_or(|entry| entry.expiry == 0) {
            return;
        }
        let old = |from: usize, to: usize| (from..to).map(|rank| view.entry(rank).expiry);
        let expiries = old(0, rank).chain(new.map(|entry| entry.expiry)).chain(old(rank + skip, view.count));
        self.expiries.extend(expiries.flat_map(u64::to_le_bytes));
        if self.expiries.iter().all(|byte| *byte == 0) {
            self.expiries.clear();
        }
    }
}

impl Scratch {
    /// Makes one change to `node` at `addr`.
    pub fn change(&mut self, node: &mut Node, addr: RecordAddress, change: Change<'_>) {
        let Scratch { draft, run, key } = self;
        let view = node.view();
        let fits = match change {
            Change::Insert(new, _) => view.groups > 0 && new.starts_with(view.prefix),
            // Removals thin the groups out; write them anew before restarts outweigh what sharing
            // saves.
            Change::Remove => view.groups == 1 || view.count > view.groups * 4,
        };
        if fits {
            draft.splice(view, addr, change, run, key);
        } else {
            run.clear();
            for group in 0..view.groups {
                view.each_in_group(group, key, |rank, key| {
                    match change {
                        Change::Insert(new, entry) if rank == addr.rank => run.push(new, entry),
                        Change::Remove if rank == addr.rank => return true,
                        _ => {}
                    }
                    run.push(key, view.entry(rank));
                    true
                });
            }
            if let Change::Insert(new, entry) = change
                && addr.rank == view.count
            {
                run.push(new, entry);
            }
            draft.encode(run, 0..run.len(), GROUP_FRESH);
        }
        node.store(draft);
    }

    /// Gives the key at `rank` an entry with an expiry, in a node that held none.
    pub fn add_expiry(&mut self, node: &mut Node, rank: usize, entry: IndexEntry) {
        self.run.clear();
        self.run.extend(node.view(), &mut self.key);
        self.run.entries[rank] = entry;
        self.draft.encode(&self.run, 0..self.run.len(), GROUP_FRESH);
        node.store(&self.draft);
    }

    /// Replaces the first key of an inner node by `key`, which is not greater.
    pub fn lower_first(&mut self, node: &mut Node, key: &[u8]) {
        let first = node.view().entry(0);
        let addr = node.view().addr(0);
        self.change(node, addr, Change::Remove);
        let addr = node.view().search(key);
        self.change(node, addr, Change::Insert(key, first));
    }

    /// Both nodes' keys in one node, unless that would be too large.
    pub fn merge(&mut self, left: &Node, right: &Node) -> Option<Node> {
        self.run.clear();
        self.run.extend(left.view(), &mut self.key);
        self.run.extend(right.view(), &mut self.key);
        self.draft.encode(&self.run, 0..self.run.len(), GROUP_FRESH);
        Some(Node::new(left.level(), &self.draft)).filter(|node| !node.is_over())
    }

    /// Cuts a node that is too large. `ascending`: the last change was at its end, so probably the
    /// next ones are too.
    pub fn split(&mut self, node: &Node, ascending: bool) -> Vec<Piece> {
        self.run.clear();
        self.run.extend(node.view(), &mut self.key);
        let mut pieces = Vec::new();
        let left = if ascending { 15 } else { 8 };
        cut(&self.run, 0..self.run.len(), node.level(), left, GROUP_FRESH, &mut self.draft, &mut pieces);
        pieces
    }

    /// Gives back working space that one large key made large.
    pub fn trim(&mut self) {
        if self.footprint_bytes() > KEPT_BYTES {
            *self = Scratch::default();
        }
    }

    /// Bytes of working space.
    pub fn footprint_bytes(&self) -> usize {
        let (run, draft) = (&self.run, &self.draft);
        let run_bytes =
            run.bytes.capacity() + run.ends.capacity() * 8 + run.entries.capacity() * size_of::<IndexEntry>();
        let bytes =
            draft.prefix.capacity() + draft.places.capacity() + draft.expiries.capacity() + draft.keys.capacity();
        run_bytes + bytes + draft.restarts.capacity() * size_of::<Restart>() + self.key.capacity()
    }
}

/// Makes nodes of `ranks`, as many as the limits need; `left` sixteenths of the bytes go to the
/// first of two.
pub(super) fn cut(
    run: &Run,
    ranks: Range<usize>,
    level: u8,
    left: usize,
    group: usize,
    draft: &mut Draft,
    pieces: &mut Vec<Piece>,
) {
    draft.encode(run, ranks.clone(), group);
    let node = Node::new(level, draft);
    if !node.is_over() {
        pieces.push(Piece { separator: separator(run, ranks.start, level), node });
        return;
    }
    let middle = split_rank(run, ranks.clone(), level, left);
    cut(run, ranks.start..middle, level, left, group, draft, pieces);
    cut(run, middle..ranks.end, level, left, group, draft, pieces);
}

/// The shortest key that is greater than the key before `rank` and not greater than the one there.
fn separator(run: &Run, rank: usize, level: u8) -> Vec<u8> {
    let key = run.key(rank);
    if level > 0 || rank == 0 {
        return key.to_vec();
    }
    key[..common_bytes(run.key(rank - 1), key) + 1].to_vec()
}

fn split_rank(run: &Run, ranks: Range<usize>, level: u8, left: usize) -> usize {
    let prefix = common_bytes(run.key(ranks.start), run.key(ranks.end - 1));
    let weight = |rank: usize| {
        let key = run.key(rank);
        8 + key.len() - if rank == ranks.start { prefix } else { common_bytes(run.key(rank - 1), key) }
    };
    let total: usize = ranks.clone().map(weight).sum();
    let mut sum = 0;
    let middle = ranks.clone().find(|rank| {
        sum += weight(*rank);
        sum * 16 >= total * left
    });
    let least = least_keys(level);
    middle.unwrap_or(ranks.start).clamp(ranks.start + least, ranks.end - least)
}

pub(super) fn push_group<'a>(
    restarts: &mut Vec<Restart>,
    out: &mut Vec<u8>,
    first: usize,
    keys: impl Iterator<Item = &'a [u8]>,
) {
    let (offset, mut before) = (out.len() as u32, None::<&[u8]>);
    for key in keys {
        if before.is_none() {
            restarts.push(Restart { head: head(key), first: first as u8, offset });
        }
        let shared = before.map_or(0, |before| common_bytes(before, key));
        write_key(out, shared, &key[shared..]);
        before = Some(key);
    }
}
