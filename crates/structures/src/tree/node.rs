//! Nodes of a tree: their bytes, and what is between them.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;
use stratakv_base::codec::Reader;

use super::TreeError;
use super::read::Target;
use crate::{Damaged, Kind, varint};

/// Bytes of a node before its entries.
pub(super) const NODE_HEADER_BYTES: usize = 24;
/// A tree has no more levels.
pub(super) const LEVEL_MAX: u8 = 24;
const NODE_VERSION: u8 = 1;
/// Where a node says how many entries it has.
const COUNT_AT: usize = 4;

/// What an element of a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) has_key: bool,
    pub(super) has_value: bool,
}

impl Shape {
    /// Of this tree of a structure of this kind.
    pub(super) fn of(kind: Kind, tree: usize) -> Shape {
        match (kind, tree) {
            (Kind::List, _) => Shape { has_key: false, has_value: true },
            (Kind::Set, _) | (Kind::SortedSet, 0) => Shape { has_key: true, has_value: false },
            _ => Shape { has_key: true, has_value: true },
        }
    }
}

/// What identifies a node beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Of the structure.
    pub id: u64,
    /// In it.
    pub number: u64,
}

impl NodeName {
    /// The key of the node in the collection of nodes: the user's key, then this name.
    pub fn key(&self, user: &[u8]) -> Vec<u8> {
        [user, &self.id.to_be_bytes(), &self.number.to_be_bytes()].concat()
    }

    /// The name of the node with these bytes, of which the first 24 are enough.
    pub fn of(image: &[u8]) -> Option<NodeName> {
        let mut reader = Reader::new(image);
        reader.bytes(8).ok()?;
        Some(NodeName { id: reader.u64().ok()?, number: reader.u64().ok()? })
    }
}

/// An element: a slice of a node or of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Element<'_> {
    pub(super) fn encoded_bytes(&self, shape: Shape) -> usize {
        let part = |has, bytes: &[u8]| if has { varint::bytes(bytes.len() as u64) + bytes.len() } else { 0 };
        part(shape.has_key, self.key) + part(shape.has_value, self.value)
    }

    fn write(&self, shape: Shape, out: &mut Vec<u8>) {
        for (has, bytes) in [(shape.has_key, self.key), (shape.has_value, self.value)] {
            if has {
                varint::write(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// Bytes that no key below a child is less than: short, as they are made of what keeps keys apart.
pub(super) type Separator = SmallVec<[u8; 24]>;

/// A child of an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChildEntry {
    pub(super) number: u64,
    /// Elements below.
    pub(super) count: u64,
    /// Bytes of the child.
    pub(super) bytes: u64,
    /// No key below is less. Of the first child nothing is said by it.
    pub(super) separator: Separator,
}

impl ChildEntry {
    pub(super) fn encoded_bytes(&self, shape: Shape) -> usize {
        let numbers = varint::bytes(self.number) + varint::bytes(self.count) + varint::bytes(self.bytes);
        let separator = self.separator.len();
        numbers + if shape.has_key { varint::bytes(separator as u64) + separator } else { 0 }
    }

    pub(super) fn write(&self, shape: Shape, out: &mut Vec<u8>) {
        varint::write(self.number, out);
        varint::write(self.count, out);
        varint::write(self.bytes, out);
        if shape.has_key {
            varint::write(self.separator.len() as u64, out);
            out.extend_from_slice(&self.separator);
        }
    }
}

/// A node that is no leaf, or the top of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InnerNode {
    /// Above the leaves.
    pub(super) level: u8,
    pub(super) children: Vec<ChildEntry>,
}

impl InnerNode {
    pub(super) fn count(&self) -> u64 {
        self.children.iter().map(|child| child.count).sum()
    }

    pub(super) fn encoded_bytes(&self, shape: Shape) -> usize {
        self.children.iter().map(|child| child.encoded_bytes(shape)).sum()
    }

    pub(super) fn write_children(&self, shape: Shape, out: &mut Vec<u8>) {
        self.children.iter().for_each(|child| child.write(shape, out));
    }

    pub(super) fn image(&self, shape: Shape, tree: usize, name: NodeName) -> Bytes {
        let mut out = Vec::with_capacity(NODE_HEADER_BYTES + self.encoded_bytes(shape));
        write_header((tree, self.level, self.children.len()), name, &mut out);
        self.write_children(shape, &mut out);
        out.into()
    }

    /// The node in these bytes, which its parent says is at this level with so many elements below.
    pub(super) fn parse(
        image: &Bytes,
        shape: Shape,
        (tree, level): (usize, u8),
        of: &ChildEntry,
    ) -> Result<InnerNode, TreeError> {
        let mut reader = Reader::new(image);
        let children = read_header(&mut reader, (tree, level), of.number)?;
        let children = read_children(&mut reader, shape, children)?;
        let node = InnerNode { level, children };
        if reader.left() > 0 {
            return Err(Damaged::new("bytes follow the last child of a node").into());
        }
        if sum_of(&node.children) != Some(of.count) {
            return Err(Damaged::new("a node has another number of elements than its parent says").into());
        }
        Ok(node)
    }

    /// The place of the child that has a key or a place, or would have it, and how many elements
    /// come before the child.
    pub(super) fn find(&self, target: Target<'_>) -> (usize, u64) {
        match target {
            Target::Key(key) => {
                let others = self.children.get(1..).unwrap_or_default();
                let at = others.partition_point(|child| order(&child.separator, key).is_le());
                (at, self.children.iter().take(at).map(|child| child.count).sum())
            }
            Target::Place(place) => self.child_at(place),
        }
    }

    /// Behind the last element: the last child.
    fn child_at(&self, place: u64) -> (usize, u64) {
        let mut before = 0;
        let last = self.children.len().saturating_sub(1);
        for (at, child) in self.children.iter().enumerate() {
            if at == last || place < before + child.count {
                return (at, before);
            }
            before += child.count;
        }
        (0, 0)
    }
}

/// How many elements children have together; `None`: more than a number can say.
pub(super) fn sum_of(children: &[ChildEntry]) -> Option<u64> {
    children.iter().try_fold(0u64, |sum, child| sum.checked_add(child.count))
}

fn write_header((tree, level, entries): (usize, u8, usize), name: NodeName, out: &mut Vec<u8>) {
    out.extend_from_slice(&[NODE_VERSION, tree as u8, level, 0]);
    out.extend_from_slice(&(entries as u32).to_le_bytes());
    out.extend_from_slice(&name.id.to_le_bytes());
    out.extend_from_slice(&name.number.to_le_bytes());
}

/// How many entries follow.
pub(super) fn read_header(reader: &mut Reader<'_>, (tree, level): (usize, u8), number: u64) -> Result<u32, TreeError> {
    let short = |_| Damaged::new("the header of a node is cut short");
    let [version, found_tree, found_level, zero] = reader.array().map_err(short)?;
    let entries = reader.u32().map_err(short)?;
    reader.u64().map_err(short)?;
    let found_number = reader.u64().map_err(short)?;
    match () {
        () if version < NODE_VERSION || version == NODE_VERSION && zero != 0 => {
            Err(Damaged::new("a node is of no version").into())
        }
        () if usize::from(found_tree) != tree => Err(Damaged::new("a node is of another tree").into()),
        () if found_level != level => Err(Damaged::new("a node is at another level").into()),
        () if found_number != number => Err(Damaged::new("a node has another number").into()),
        // It is where its parent says: nothing but its version is unknown.
        () if version > NODE_VERSION => Err(Damaged::newer(version).into()),
        () if entries == 0 => Err(Damaged::new("a node is empty").into()),
        () => Ok(entries),
    }
}

/// A child as it stands in a node or in the root's record.
pub(super) struct RawChild<'a> {
    number: u64,
    pub(super) count: u64,
    bytes: u64,
    separator: &'a [u8],
}

impl<'a> RawChild<'a> {
    /// The child at this place; `last` is the separator of the one before it.
    #[inline]
    pub(super) fn read(
        reader: &mut Reader<'a>,
        shape: Shape,
        (at, last): (u32, &mut &'a [u8]),
    ) -> Result<RawChild<'a>, TreeError> {
        let (number, count, bytes) = (varint::read(reader)?, varint::read(reader)?, varint::read(reader)?);
        let separator = if shape.has_key { read_bytes(reader)? } else { b"" };
        if count == 0 {
            return Err(Damaged::new("a child has no elements").into());
        }
        if at > 1 && shape.has_key && order(last, separator).is_ge() {
            return Err(Damaged::new("the children of a node are out of order").into());
        }
        *last = separator;
        Ok(RawChild { number, count, bytes, separator })
    }

    pub(super) fn entry(&self) -> ChildEntry {
        let separator = Separator::from_slice(self.separator);
        ChildEntry { number: self.number, count: self.count, bytes: self.bytes, separator }
    }
}

/// All children of a node, or of the top.
pub(super) fn read_children(
    reader: &mut Reader<'_>,
    shape: Shape,
    children: u32,
) -> Result<Vec<ChildEntry>, TreeError> {
    let mut all = Vec::with_capacity((children as usize).min(reader.left() / 3));
    let mut last: &[u8] = b"";
    for at in 0..children {
        all.push(RawChild::read(reader, shape, (at, &mut last))?.entry());
    }
    Ok(all)
}

/// The order of keys, most often by their first eight bytes: a node has a hundred to look at.
#[inline]
pub(super) fn order(one: &[u8], other: &[u8]) -> Ordering {
    beginning(one).cmp(&beginning(other)).then_with(|| one.cmp(other))
}

/// The first eight bytes as a number in whose order they are; what is missing is zero.
#[inline]
fn beginning(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) << (64 - 8 * bytes.len().max(1)),
    }
}

#[inline]
pub(super) fn read_bytes<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Damaged> {
    let len = usize::try_from(varint::read(reader)?).map_err(|_| Damaged::new("a length is too large"))?;
    reader.bytes(len).map_err(|_| Damaged::new("it is cut short"))
}

/// Looks at the elements of a leaf, one after the other, each with the place of its first byte.
fn each_element<'a>(
    image: &'a [u8],
    shape: Shape,
    tree: usize,
    of: &ChildEntry,
    mut each: impl FnMut(Element<'a>, usize),
) -> Result<(), TreeError> {
    let mut reader = Reader::new(image);
    let entries = read_header(&mut reader, (tree, 0), of.number)?;
    if u64::from(entries) != of.count {
        return Err(Damaged::new("a leaf has another number of elements than its parent says").into());
    }
    let mut last: Option<&[u8]> = None;
    for _ in 0..entries {
        let start = reader.at();
        let key = if shape.has_key { read_bytes(&mut reader)? } else { b"" };
        let value = if shape.has_value { read_bytes(&mut reader)? } else { b"" };
        if shape.has_key && last.is_some_and(|last| order(last, key).is_ge()) {
            return Err(Damaged::new("the elements of a leaf are out of order").into());
        }
        last = Some(key);
        each(Element { key, value }, start);
    }
    match reader.left() {
        0 => Ok(()),
        _ => Err(Damaged::new("bytes follow the last element of a leaf").into()),
    }
}

/// The elements of a leaf.
pub(super) fn read_leaf<'a>(
    image: &'a [u8],
    shape: Shape,
    tree: usize,
    of: &ChildEntry,
) -> Result<Vec<Element<'a>>, TreeError> {
    let mut elements = Vec::with_capacity((of.count as usize).min(image.len()));
    each_element(image, shape, tree, of, |element, _| elements.push(element))?;
    Ok(elements)
}

/// A child that was looked for.
#[derive(Clone, Debug)]
pub(super) struct FoundChild {
    pub(super) entry: ChildEntry,
    /// Elements below the children before it.
    pub(super) before: u64,
    /// Its place among so many children.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Where its entry stands in the node.
    pub(super) span: Range<usize>,
    /// What the entry behind it says of keys.
    pub(super) next: Option<Separator>,
}

/// Where an element of a leaf is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeafPlace<'a> {
    /// So many come before it.
    pub(super) at: u64,
    /// Its bytes. Empty: it is not there, and would begin here.
    pub(super) span: Range<usize>,
    /// What belongs to it, if it is there.
    pub(super) value: Option<&'a [u8]>,
}

/// Looks for a key or a place in a leaf.
pub(super) fn find_in_leaf<'a>(
    image: &'a [u8],
    shape: Shape,
    tree: usize,
    of: &ChildEntry,
    target: Target<'_>,
) -> Result<LeafPlace<'a>, TreeError> {
    let mut at = 0;
    let mut found = LeafPlace { at: 0, span: 0..0, value: None };
    // Where the first element begins that comes behind it.
    let mut behind = None;
    each_element(image, shape, tree, of, |element, start| {
        let ordering = match target {
            Target::Key(key) => order(element.key, key),
            Target::Place(place) => at.cmp(&place),
        };
        at += 1;
        match ordering {
            Ordering::Less => found.at = at,
            Ordering::Equal => (found.span.start, found.value) = (start, Some(element.value)),
            Ordering::Greater => _ = behind.get_or_insert(start),
        }
    })?;
    found.span.end = behind.unwrap_or(image.len());
    if found.value.is_none() {
        found.span.start = found.span.end;
    }
    Ok(found)
}

/// A change of a leaf: these bytes, which so many elements have, become one element or none.
pub(super) struct LeafChange<'a> {
    pub(super) span: Range<usize>,
    pub(super) removed: u64,
    pub(super) added: Option<Element<'a>>,
}

/// The bytes of a leaf of so many elements that is changed so.
pub(super) fn changed_leaf(image: &[u8], count: u64, shape: Shape, change: &LeafChange<'_>) -> Option<Bytes> {
    let more = change.added.map_or(0, |element| element.encoded_bytes(shape));
    let mut out = Vec::with_capacity(image.len() + more);
    out.extend_from_slice(image.get(..change.span.start)?);
    if let Some(element) = change.added {
        element.write(shape, &mut out);
    }
    out.extend_from_slice(image.get(change.span.end..)?);
    let count = u32::try_from(count).ok()?;
    out.get_mut(COUNT_AT..COUNT_AT + 4)?.copy_from_slice(&count.to_le_bytes());
    Some(out.into())
}

/// The bytes of a leaf.
pub(super) fn leaf_image(elements: &[Element<'_>], shape: Shape, tree: usize, name: NodeName) -> Bytes {
    let bytes: usize = elements.iter().map(|element| element.encoded_bytes(shape)).sum();
    let mut out = Vec::with_capacity(NODE_HEADER_BYTES + bytes);
    write_header((tree, 0, elements.len()), name, &mut out);
    elements.iter().for_each(|element| element.write(shape, &mut out));
    out.into()
}

/// The shortest bytes that are greater than one key and not greater than the next.
pub(super) fn separator_between(last: &[u8], next: &[u8]) -> Separator {
    let common = last.iter().zip(next).take_while(|(one, other)| one == other).count();
    Separator::from_slice(next.get(..common + 1).unwrap_or(next))
}
