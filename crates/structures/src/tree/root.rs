//! The record of a root: header, numbers, and the top of each tree.

use bytes::Bytes;
use stratakv_base::codec::Reader;

use super::node::{InnerNode, LEVEL_MAX, Shape, read_children, sum_of};
use super::{BY_MEMBER, MAIN, TreeError};
use crate::header::{self, Form};
use crate::{Damaged, Kind};

/// The root of a structure whose elements lie in nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRoot {
    pub(super) kind: Kind,
    pub(super) id: u64,
    /// Numbers from it on were never given to nodes.
    pub(super) next_number: u64,
    /// Bytes of all elements.
    pub(super) element_bytes: u64,
    /// One, or two of a sorted set.
    pub(super) tops: Vec<InnerNode>,
}

/// Whether a value is the root of a tree, as far as its header says.
pub fn is_tree(value: &[u8]) -> bool {
    header::read_form(value).is_ok_and(|(_, form, _)| form == Form::Tree)
}

impl TreeRoot {
    /// One without elements, which is no record yet. No other structure that there ever was under
    /// its key has this id.
    pub fn new(kind: Kind, id: u64) -> TreeRoot {
        let top = InnerNode { level: 1, children: Vec::new() };
        TreeRoot { kind, id, next_number: 0, element_bytes: 0, tops: vec![top; trees_of(kind)] }
    }

    /// The root in a record's value.
    ///
    /// # Errors
    /// It is none, or damaged.
    pub fn parse(value: &Bytes) -> Result<TreeRoot, Damaged> {
        let (kind, form, count) = header::read_form(value)?;
        if form != Form::Tree {
            return Err(Damaged::new("it is no tree"));
        }
        let short = |_| Damaged::new("its root is cut short");
        let mut reader = Reader::new(value);
        reader.bytes(header::HEADER_BYTES).map_err(short)?;
        let id = reader.u64().map_err(short)?;
        let next_number = reader.u64().map_err(short)?;
        let element_bytes = reader.u64().map_err(short)?;
        let mut tops = Vec::new();
        for tree in 0..trees_of(kind) {
            let (level, children) = (reader.u8().map_err(short)?, reader.u32().map_err(short)?);
            if !(1..=LEVEL_MAX).contains(&level) {
                return Err(Damaged::new("its tree has no such height"));
            }
            let children = read_children(&mut reader, Shape::of(kind, tree), children).map_err(damage)?;
            if sum_of(&children) != Some(u64::from(count)) {
                return Err(Damaged::new("its tree has another number of elements"));
            }
            tops.push(InnerNode { level, children });
        }
        match reader.left() {
            0 => Ok(TreeRoot { kind, id, next_number, element_bytes, tops }),
            _ => Err(Damaged::new("bytes follow its trees")),
        }
    }

    /// The record's value; `None`: there are no elements, so there is no record.
    ///
    /// # Errors
    /// It has more elements than a structure can have.
    pub fn encode(&self) -> Result<Option<Bytes>, TreeError> {
        let count = self.len();
        if count == 0 {
            return Ok(None);
        }
        let count = u32::try_from(count).map_err(|_| TreeError::TooLong { bytes: self.element_bytes })?;
        let mut out = Vec::new();
        header::write_form(self.kind, Form::Tree, count, &mut out);
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.next_number.to_le_bytes());
        out.extend_from_slice(&self.element_bytes.to_le_bytes());
        for (tree, top) in self.tops.iter().enumerate() {
            out.push(top.level);
            out.extend_from_slice(&(top.children.len() as u32).to_le_bytes());
            top.write_children(Shape::of(self.kind, tree), &mut out);
        }
        Ok(Some(out.into()))
    }

    /// What kind of structure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The id that its nodes have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The id in the front of a root's value, of which 20 bytes are enough.
    pub fn id_of(value: &[u8]) -> Option<u64> {
        if !is_tree(value) {
            return None;
        }
        let mut reader = Reader::new(value);
        reader.bytes(header::HEADER_BYTES).ok()?;
        reader.u64().ok()
    }

    /// How many elements there are.
    pub fn len(&self) -> u64 {
        self.tops.get(MAIN).map_or(0, InnerNode::count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all elements: about as many as they have when they are packed.
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    /// How many trees it has.
    pub fn trees(&self) -> usize {
        self.tops.len()
    }

    pub(super) fn shape(&self, tree: usize) -> Shape {
        Shape::of(self.kind, tree)
    }

    pub(super) fn top(&self, tree: usize) -> Result<&InnerNode, TreeError> {
        self.tops.get(tree).ok_or(TreeError::Damaged(NO_TREE))
    }
}

/// One is asked for that its kind does not have.
pub(super) const NO_TREE: Damaged = Damaged::new("it has no such tree");

fn trees_of(kind: Kind) -> usize {
    if kind == Kind::SortedSet { BY_MEMBER + 1 } else { 1 }
}

fn damage(error: TreeError) -> Damaged {
    match error {
        TreeError::Damaged(damaged) => damaged,
        TreeError::Missing | TreeError::TooLong { .. } => Damaged::new("its tree cannot be read"),
    }
}
