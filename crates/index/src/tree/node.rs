//! One node: a sorted run of front-coded keys, each with a 6-byte place, in one allocation.
//!
//! ```text
//! header   count u16, groups u8, flags u8 (expiry, wide, level << 2), prefix length u32,
//!          key bytes u32
//! prefix   what all keys of the node begin with: on the header's line, as searches begin there
//! restarts groups x { first 4 bytes of its first key (after the prefix, zero-filled), big-endian,
//!          to search without leaving this line; rank of its first key: u8;
//!          offset of the group in the key bytes: u16, or u32 in a wide node }
//! places   count x 6 bytes
//! expiries count x 8 bytes, only in a node that holds any expiry
//! keys     per key { shared and suffix length in one byte, 15 = more follows; suffix };
//!          the first of a group shares nothing
//! ```
//! Leaves and inner nodes have the same form: an inner node maps the least key that may lie below a
//! child to the child's number. A key is found by binary search over the restarts and a decode of
//! at most [`GROUP_MAX`] entries that never copies a key.

use std::cmp::Ordering;
use std::ops::Range;

use super::IndexEntry;
use super::draft::Draft;

/// Most keys between two restarts.
pub(super) const GROUP_MAX: usize = 16;
/// Most keys in a node.
pub(super) const COUNT_MAX: usize = 96;
/// Most bytes of a node besides its prefix, unless it has so few keys that it is not split.
pub(super) const BYTES_MAX: usize = 2048;

const HEADER_BYTES: usize = 12;
const PLACE_BYTES: usize = 6;
const EXPIRY_BYTES: usize = 8;
const FLAG_EXPIRY: u8 = 1;
const FLAG_WIDE: u8 = 2;
/// What the allocator adds to each block; nodes are sized so that block and addition fill whole
/// 64-byte lines.
const ALLOCATOR_BYTES: usize = 8;

/// A node's bytes. An empty box marks an unused slot of the arena.
#[derive(Default)]
pub(super) struct Node(Box<[u8]>);

/// Where a key is in a node, or where it would have to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordAddress {
    pub found: bool,
    /// Number of keys before it.
    pub rank: usize,
    /// The group it is in or would join.
    pub group: usize,
}

/// Where a group begins.
#[derive(Clone, Copy)]
pub(super) struct Restart {
    /// The start of its first key.
    pub head: [u8; 4],
    /// The rank of its first key.
    pub first: u8,
    /// Its offset in the node's key bytes.
    pub offset: u32,
}

/// The parts of a node.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub count: usize,
    pub groups: usize,
    wide: bool,
    restarts: &'a [u8],
    pub places: &'a [u8],
    pub expiries: &'a [u8],
    pub prefix: &'a [u8],
    pub keys: &'a [u8],
}

impl Node {
    /// A node that holds what `draft` says.
    pub fn new(level: u8, draft: &Draft) -> Node {
        let mut node = Node(vec![0; size_class(encoded_bytes(draft))].into_boxed_slice());
        node.write(level, draft);
        node
    }

    /// Replaces the contents; allocates only when the size class changes.
    pub fn store(&mut self, draft: &Draft) {
        let level = self.level();
        let size = size_class(encoded_bytes(draft));
        if size != self.0.len() {
            self.0 = vec![0; size].into_boxed_slice();
        }
        self.write(level, draft);
    }

    fn write(&mut self, level: u8, draft: &Draft) {
        let count = draft.places.len() / PLACE_BYTES;
        let wide = is_wide(draft);
        let mut flags = level << 2;
        flags |= if draft.expiries.is_empty() { 0 } else { FLAG_EXPIRY };
        flags |= if wide { FLAG_WIDE } else { 0 };
        let mut rest = &mut self.0[..];
        put(&mut rest, &(count as u16).to_le_bytes());
        put(&mut rest, &[draft.restarts.len() as u8, flags]);
        put(&mut rest, &(draft.prefix.len() as u32).to_le_bytes());
        put(&mut rest, &(draft.keys.len() as u32).to_le_bytes());
        put(&mut rest, &draft.prefix);
        for restart in &draft.restarts {
            put(&mut rest, &restart.head);
            put(&mut rest, &[restart.first]);
            put(&mut rest, &restart.offset.to_le_bytes()[..if wide { 4 } else { 2 }]);
        }
        put(&mut rest, &draft.places);
        put(&mut rest, &draft.expiries);
        put(&mut rest, &draft.keys);
    }

    /// 0 for a leaf, else the distance to the leaves.
    pub fn level(&self) -> u8 {
        self.0[3] >> 2
    }

    /// Number of keys.
    pub fn count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]]))
    }

    /// Whether the arena's slot is unused.
    pub fn is_vacant(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes the node takes from the allocator, with what it adds.
    pub fn footprint_bytes(&self) -> usize {
        allocation_bytes(self.0.len())
    }

    /// Bytes in use apart from the prefix: a split would not make that shorter.
    fn body_bytes(&self) -> usize {
        let view = self.view();
        HEADER_BYTES + view.restarts.len() + view.places.len() + view.expiries.len() + view.keys.len()
    }

    /// Too much for one node, and enough keys to make two: leaves of one key may be of any size,
    /// and an inner node keeps two children.
    pub fn is_over(&self) -> bool {
        self.count() >= 2 * least_keys(self.level()) && (self.count() > COUNT_MAX || self.body_bytes() > BYTES_MAX)
    }

    /// Less than three eighths full.
    pub fn is_sparse(&self) -> bool {
        self.count() * 8 < COUNT_MAX * 3 && self.body_bytes() * 8 < BYTES_MAX * 3
    }

    /// Whether this node and `other` would probably fill a node to three quarters or less.
    pub fn may_merge(&self, other: &Node) -> bool {
        (self.count() + other.count()) * 4 <= COUNT_MAX * 3
            && (self.body_bytes() + other.body_bytes()) * 4 <= BYTES_MAX * 3
    }

    /// The node's parts.
    pub fn view(&self) -> View<'_> {
        let (header, rest) = self.0.split_at(HEADER_BYTES);
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let count = usize::from(u16::from_le_bytes([header[0], header[1]]));
        let (groups, flags) = (usize::from(header[2]), header[3]);
        let wide = flags & FLAG_WIDE != 0;
        let (prefix, rest) = rest.split_at(word(4));
        let (restarts, rest) = rest.split_at(groups * restart_bytes(wide));
        let (places, rest) = rest.split_at(count * PLACE_BYTES);
        let (expiries, rest) = rest.split_at(if flags & FLAG_EXPIRY != 0 { count * EXPIRY_BYTES } else { 0 });
        View { count, groups, wide, restarts, places, expiries, prefix, keys: &rest[..word(8)] }
    }

    /// Changes the entry of the key at `rank` in place; false when the node has no room for its
    /// expiry.
    pub fn set(&mut self, rank: usize, entry: IndexEntry) -> bool {
        let view = self.view();
        let places = HEADER_BYTES + view.prefix.len() + view.restarts.len();
        let expiries = places + view.places.len();
        let has_expiries = !view.expiries.is_empty();
        if !has_expiries && entry.expiry != 0 {
            return false;
        }
        self.0[places + rank * PLACE_BYTES..][..PLACE_BYTES].copy_from_slice(&place_bytes(entry));
        if has_expiries {
            self.0[expiries + rank * EXPIRY_BYTES..][..EXPIRY_BYTES].copy_from_slice(&entry.expiry.to_le_bytes());
        }
        true
    }

    /// The child of an inner node under which `key` would be, and its rank.
    pub fn child_for(&self, key: &[u8]) -> (usize, u32) {
        let view = self.view();
        let addr = view.search(key);
        let rank = if addr.found { addr.rank } else { addr.rank.saturating_sub(1) };
        (rank, view.child(rank))
    }
}

impl<'a> View<'a> {
    /// Where a group begins.
    pub fn restart(&self, group: usize) -> Restart {
        let size = restart_bytes(self.wide);
        let bytes = &self.restarts[group * size..][..size];
        let high = if self.wide { [bytes[7], bytes[8]] } else { [0, 0] };
        Restart {
            head: [bytes[0], bytes[1], bytes[2], bytes[3]],
            first: bytes[4],
            offset: u32::from_le_bytes([bytes[5], bytes[6], high[0], high[1]]),
        }
    }

    fn offset(&self, group: usize) -> usize {
        self.restart(group).offset as usize
    }

    fn first(&self, group: usize) -> usize {
        usize::from(self.restart(group).first)
    }

    /// The group's ranks.
    pub fn ranks(&self, group: usize) -> Range<usize> {
        let end = if group + 1 < self.groups { self.first(group + 1) } else { self.count };
        self.first(group)..end
    }

    /// The group's bytes within [`View::keys`].
    pub fn extent(&self, group: usize) -> Range<usize> {
        let end = if group + 1 < self.groups { self.offset(group + 1) } else { self.keys.len() };
        self.offset(group)..end
    }

    /// The entry at `rank`.
    pub fn entry(&self, rank: usize) -> IndexEntry {
        let place = &self.places[rank * PLACE_BYTES..][..PLACE_BYTES];
        let place = u64::from_le_bytes([place[0], place[1], place[2], place[3], place[4], place[5], 0, 0]);
        let expiry = self.expiries.get(rank * EXPIRY_BYTES..).and_then(|bytes| bytes.first_chunk());
        let expiry = expiry.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        IndexEntry { place, expiry }
    }

    /// The child at `rank` of an inner node.
    pub fn child(&self, rank: usize) -> u32 {
        self.entry(rank).place as u32
    }

    /// Finds `key`. O(log keys).
    pub fn search(&self, key: &[u8]) -> RecordAddress {
        let Some(rest) = key.strip_prefix(self.prefix) else {
            return match key.cmp(self.prefix) {
                Ordering::Less => RecordAddress { found: false, rank: 0, group: 0 },
                _ => RecordAddress { found: false, rank: self.count, group: self.groups.saturating_sub(1) },
            };
        };
        // The last group whose first key is not greater. Four bytes tell in all but a few cases.
        let wanted = u32::from_be_bytes(head(rest));
        let (mut low, mut high) = (0, self.groups);
        while low < high {
            let middle = low.midpoint(high);
            let restart = self.restart(middle);
            let is_at_most = match u32::from_be_bytes(restart.head).cmp(&wanted) {
                Ordering::Less => true,
                Ordering::Equal => read_key(self.keys, restart.offset as usize).1 <= rest,
                Ordering::Greater => false,
            };
            if is_at_most { low = middle + 1 } else { high = middle }
        }
        if low == 0 {
            return RecordAddress { found: false, rank: 0, group: 0 };
        }
        self.search_group(low - 1, rest)
    }

    /// Finds `key`, if it is in this group.
    pub fn search_in(&self, group: usize, key: &[u8]) -> Option<RecordAddress> {
        let rest = key.strip_prefix(self.prefix).filter(|_| group < self.groups)?;
        Some(self.search_group(group, rest)).filter(|addr| addr.found)
    }

    fn search_group(&self, group: usize, rest: &[u8]) -> RecordAddress {
        let Range { start, end } = self.ranks(group);
        let mut at = self.offset(group);
        // How many bytes of `rest` the key before agrees with; that key is less than `rest`.
        let mut agreed = 0;
        for rank in start..end {
            let (shared, suffix, next) = read_key(self.keys, at);
            at = next;
            if shared > agreed {
                continue;
            }
            if shared < agreed {
                return RecordAddress { found: false, rank, group };
            }
            let wanted = &rest[agreed..];
            let same = common_bytes(suffix, wanted);
            agreed += same;
            match (suffix.get(same), wanted.get(same)) {
                (None, None) => return RecordAddress { found: true, rank, group },
                (None, Some(_)) => {}
                (Some(_), None) => return RecordAddress { found: false, rank, group },
                (Some(have), Some(want)) if have > want => return RecordAddress { found: false, rank, group },
                _ => {}
            }
        }
        RecordAddress { found: false, rank: end, group }
    }

    /// The address of the key at `rank`.
    pub fn addr(&self, rank: usize) -> RecordAddress {
        let group = (0..self.groups).rev().find(|group| self.first(*group) <= rank).unwrap_or(0);
        RecordAddress { found: true, rank, group }
    }

    /// Calls `visit` with rank and key of each key of a group, in order, until it answers false.
    /// `key` is working space.
    pub fn each_in_group(&self, group: usize, key: &mut Vec<u8>, mut visit: impl FnMut(usize, &[u8]) -> bool) -> bool {
        key.clear();
        key.extend_from_slice(self.prefix);
        let mut at = self.offset(group);
        for rank in self.ranks(group) {
            let (shared, suffix, next) = read_key(self.keys, at);
            at = next;
            key.truncate(self.prefix.len() + shared);
            key.extend_from_slice(suffix);
            if !visit(rank, key) {
                return false;
            }
        }
        true
    }

    /// The key at `rank`, written to `key`.
    pub fn key(&self, rank: usize, key: &mut Vec<u8>) {
        self.each_in_group(self.addr(rank).group, key, |at, _| at != rank);
    }
}

/// Fewest keys that a split leaves on each side.
pub(super) fn least_keys(level: u8) -> usize {
    if level == 0 { 1 } else { 2 }
}

/// Bytes that a heap block of `len` bytes really takes (glibc: 8 bytes more, in steps of 16, at
/// least 32).
pub(super) fn allocation_bytes(len: usize) -> usize {
    if len == 0 { 0 } else { (len + ALLOCATOR_BYTES).next_multiple_of(16).max(32) }
}

/// The place as the node holds it.
pub(super) fn place_bytes(entry: IndexEntry) -> [u8; PLACE_BYTES] {
    let [a, b, c, d, e, f, ..] = entry.place.to_le_bytes();
    [a, b, c, d, e, f]
}

/// The first bytes of `key`, zero-filled: in the same order as the keys, apart from equal ones.
pub(super) fn head(key: &[u8]) -> [u8; 4] {
    match key.first_chunk() {
        Some(head) => *head,
        None => std::array::from_fn(|at| key.get(at).copied().unwrap_or(0)),
    }
}

/// Number of bytes in which `a` and `b` agree from the start.
#[inline]
pub(super) fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let (mut same, least) = (0, a.len().min(b.len()));
    while let (Some(x), Some(y)) = (a[same..].first_chunk::<8>(), b[same..].first_chunk::<8>()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return same + difference.trailing_zeros() as usize / 8;
        }
        same += 8;
    }
    while same < least && a[same] == b[same] {
        same += 1;
    }
    same
}

/// Appends one front-coded key: `shared` bytes of the key before, then `suffix`.
pub(super) fn write_key(out: &mut Vec<u8>, shared: usize, suffix: &[u8]) {
    let nibble = |n: usize| n.min(15) as u8;
    out.push(nibble(shared) << 4 | nibble(suffix.len()));
    for n in [shared, suffix.len()] {
        if n >= 15 {
            let mut more = n - 15;
            while more >= 128 {
                out.push(more as u8 | 128);
                more >>= 7;
            }
            out.push(more as u8);
        }
    }
    out.extend_from_slice(suffix);
}

/// Reads one front-coded key: bytes shared, suffix, offset of the next.
#[inline]
pub(super) fn read_key(keys: &[u8], at: usize) -> (usize, &[u8], usize) {
    let (mut shared, mut len) = (usize::from(keys[at] >> 4), usize::from(keys[at] & 15));
    let mut start = at + 1;
    if shared == 15 {
        shared += read_more(keys, &mut start);
    }
    if len == 15 {
        len += read_more(keys, &mut start);
    }
    (shared, &keys[start..start + len], start + len)
}

#[cold]
fn read_more(keys: &[u8], at: &mut usize) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = keys[*at];
        *at += 1;
        value |= usize::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            return value;
        }
    }
}

fn put(rest: &mut &mut [u8], bytes: &[u8]) {
    let (here, after) = std::mem::take(rest).split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    *rest = after;
}

fn restart_bytes(wide: bool) -> usize {
    if wide { 9 } else { 7 }
}

fn is_wide(draft: &Draft) -> bool {
    draft.keys.len() > usize::from(u16::MAX)
}

fn encoded_bytes(draft: &Draft) -> usize {
    let restarts = draft.restarts.len() * restart_bytes(is_wide(draft));
    HEADER_BYTES + restarts + draft.places.len() + draft.expiries.len() + draft.prefix.len() + draft.keys.len()
}

fn size_class(bytes: usize) -> usize {
    (bytes + ALLOCATOR_BYTES).next_multiple_of(64) - ALLOCATOR_BYTES
}
