//! Inner nodes that were looked through once: where their entries are. A search of one looks at few
//! entries then, and a changed entry is changed in the bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use stratakv_base::codec::Reader;

use super::node::{ChildEntry, FoundChild, RawChild, Shape, order, read_bytes, read_header};
use super::read::Target;
use super::{ReadNodes, TreeError};
use crate::{Damaged, varint};

/// See the module. Takes eight bytes for each entry beside the node's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedNode {
    image: Bytes,
    shape: Shape,
    entries: Vec<EntryPlace>,
}

/// Where an entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryPlace {
    start: u32,
    /// Elements below the entries before it.
    before: u32,
}

const TOO_MANY: Damaged = Damaged::new("a node has too many elements");

impl SearchedNode {
    /// The inner node at this level of a tree that its parent says is there; from `nodes`, which
    /// may have kept it since it was searched last.
    pub(super) fn read(
        nodes: &dyn ReadNodes,
        shape: Shape,
        place: (usize, u8),
        of: &ChildEntry,
    ) -> Result<Arc<SearchedNode>, TreeError> {
        nodes.read_searched(of.number, of.bytes, &|image| SearchedNode::parse(image, shape, place, of))
    }

    /// Looks at all entries.
    fn parse(image: Bytes, shape: Shape, place: (usize, u8), of: &ChildEntry) -> Result<SearchedNode, TreeError> {
        let mut reader = Reader::new(&image);
        let children = read_header(&mut reader, place, of.number)?;
        let mut entries = Vec::with_capacity((children as usize).min(reader.left() / 3));
        let (mut before, mut last): (u64, &[u8]) = (0, b"");
        for at in 0..children {
            let start = u32::try_from(reader.at()).map_err(|_| Damaged::new("a node is too long"))?;
            let child = RawChild::read(&mut reader, shape, (at, &mut last))?;
            entries.push(EntryPlace { start, before: u32::try_from(before).map_err(|_| TOO_MANY)? });
            before = before.checked_add(child.count).ok_or(TOO_MANY)?;
        }
        if reader.left() > 0 {
            return Err(Damaged::new("bytes follow the last child of a node").into());
        }
        if before != of.count {
            return Err(Damaged::new("a node has another number of elements than its parent says").into());
        }
        Ok(SearchedNode { image, shape, entries })
    }

    /// The bytes of the node.
    pub fn image(&self) -> &Bytes {
        &self.image
    }

    /// Bytes of memory beside those of the node.
    pub fn held_bytes(&self) -> usize {
        size_of::<SearchedNode>() + self.entries.capacity() * size_of::<EntryPlace>()
    }

    /// The child that has a key or a place, or would have it.
    pub(super) fn find(&self, target: Target<'_>) -> Result<FoundChild, TreeError> {
        // Of the first child nothing is said by its separator.
        let others = self.entries.get(1..).unwrap_or_default();
        let at = match target {
            Target::Key(key) => others.partition_point(|place| order(self.separator(*place), key).is_le()),
            Target::Place(wanted) => others.partition_point(|place| u64::from(place.before) <= wanted),
        };
        let place = self.entries.get(at).ok_or(Damaged::new("a node is empty"))?;
        let (entry, bytes) = self.child(*place)?;
        let start = place.start as usize;
        Ok(FoundChild {
            entry,
            before: u64::from(place.before),
            at,
            len: self.entries.len(),
            span: start..start + bytes,
            next: self.entries.get(at + 1).map(|next| self.separator(*next).into()),
        })
    }

    /// A child, and how many bytes its entry has.
    fn child(&self, place: EntryPlace) -> Result<(ChildEntry, usize), TreeError> {
        let mut reader = self.reader(place);
        let entry = RawChild::read(&mut reader, self.shape, (0, &mut &b""[..]))?.entry();
        Ok((entry, reader.at()))
    }

    /// Bytes of the child at a place among them, if there is one.
    pub(super) fn child_bytes(&self, at: usize) -> Option<u64> {
        let (child, _) = self.child(*self.entries.get(at)?).ok()?;
        Some(child.bytes)
    }

    /// The children that have some of these places, each with the elements before it.
    pub(super) fn children_at(
        &self,
        places: &Range<u64>,
    ) -> impl Iterator<Item = Result<(u64, ChildEntry), TreeError>> {
        let (start, end) = (places.start, places.end);
        let first = self.entries.partition_point(|place| u64::from(place.before) <= start).saturating_sub(1);
        let having = self.entries.iter().skip(first).take_while(move |place| u64::from(place.before) < end);
        having.map(|place| Ok((u64::from(place.before), self.child(*place)?.0)))
    }

    fn reader(&self, place: EntryPlace) -> Reader<'_> {
        Reader::new(self.image.get(place.start as usize..).unwrap_or_default())
    }

    /// What an entry says of keys. It was whole when the node was looked through.
    fn separator(&self, place: EntryPlace) -> &[u8] {
        if !self.shape.has_key {
            return b"";
        }
        let mut reader = self.reader(place);
        let numbers = (0..3).try_for_each(|_| varint::read(&mut reader).map(|_| ()));
        numbers.and_then(|()| read_bytes(&mut reader)).unwrap_or_default()
    }

    /// The node in which a child is another one; `None`: it cannot say so many elements.
    pub(super) fn with_child(&self, child: &FoundChild, entry: &ChildEntry) -> Option<SearchedNode> {
        let mut image = Vec::with_capacity(self.image.len() + entry.encoded_bytes(self.shape));
        image.extend_from_slice(self.image.get(..child.span.start)?);
        entry.write(self.shape, &mut image);
        let end = image.len();
        image.extend_from_slice(self.image.get(child.span.end..)?);
        let mut entries = self.entries.clone();
        let (old_end, old_count) = (u32::try_from(child.span.end).ok()?, u32::try_from(child.entry.count).ok()?);
        let (end, count) = (u32::try_from(end).ok()?, u32::try_from(entry.count).ok()?);
        for place in entries.get_mut(child.at + 1..)? {
            place.start = place.start.checked_sub(old_end)?.checked_add(end)?;
            place.before = place.before.checked_sub(old_count)?.checked_add(count)?;
        }
        Some(SearchedNode { image: image.into(), shape: self.shape, entries })
    }
}
