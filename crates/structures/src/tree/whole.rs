//! From packed structures to trees and back.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{BY_MEMBER, MAIN, Nodes, ReadNodes, TreeEntry, TreeError, TreeRoot, score_key, score_of};
use crate::packed::{self, ElementPart};
use crate::{Damaged, Hash, Kind, List, Set, SortedSet, header};

impl TreeRoot {
    /// The tree of what a packed value has.
    ///
    /// # Errors
    /// The value is damaged.
    pub fn of_packed(value: &[u8], id: u64, nodes: &mut dyn Nodes) -> Result<TreeRoot, TreeError> {
        let (kind, _) = header::read(value)?;
        let mut root = TreeRoot::new(kind, id);
        match kind {
            Kind::Hash => root.fill(nodes, MAIN, Hash::parse(value)?.iter())?,
            Kind::Set => root.fill(nodes, MAIN, Set::parse(value)?.iter().map(|member| (member, &b""[..])))?,
            Kind::List => {
                let list = List::parse(value)?;
                root.fill(nodes, MAIN, list.elements.iter().map(|element| (&b""[..], *element)))?;
            }
            Kind::SortedSet => {
                let set = SortedSet::parse(value)?;
                let by_score: Vec<Vec<u8>> = set.iter().map(|(member, score)| scored(member, score)).collect();
                root.fill(nodes, MAIN, by_score.iter().map(|key| (&key[..], &b""[..])))?;
                let by_member: BTreeMap<&[u8], [u8; 8]> =
                    set.iter().map(|(member, score)| (member, score_key(score))).collect();
                root.fill(nodes, BY_MEMBER, by_member.iter().map(|(member, score)| (*member, &score[..])))?;
            }
            Kind::String | Kind::Damaged | Kind::Newer => return Err(Damaged::new("its type is unknown").into()),
        }
        Ok(root)
    }

    /// The packed value with everything that the tree has, whose elements have so many bytes at
    /// most.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn pack(&self, nodes: &dyn ReadNodes, bytes_max: u64) -> Result<Vec<u8>, TreeError> {
        let entries = self.all(nodes, MAIN, bytes_max)?;
        let scores = match self.kind {
            Kind::SortedSet => entries.iter().map(|entry| score_of(&entry.key)).collect::<Result<Vec<_>, _>>()?,
            _ => Vec::new(),
        };
        let parts = entries.iter().enumerate().flat_map(|(at, entry)| parts(self.kind, entry, scores.get(at).copied()));
        let packed = packed::encode(self.kind, entries.len(), usize::MAX, parts.flatten());
        let too_long = TreeError::TooLong { bytes: self.element_bytes };
        packed.ok().flatten().ok_or(too_long)
    }
}

/// The key of a member with its score.
pub fn scored(member: &[u8], score: f64) -> Vec<u8> {
    [&score_key(score)[..], member].concat()
}

/// An element as it stands in a packed value.
fn parts(kind: Kind, entry: &TreeEntry, score: Option<f64>) -> [Option<ElementPart<'_>>; 2] {
    fn bytes(bytes: &Bytes) -> Option<ElementPart<'_>> {
        Some(ElementPart::Bytes(bytes))
    }
    match kind {
        Kind::Hash => [bytes(&entry.key), bytes(&entry.value)],
        Kind::List => [bytes(&entry.value), None],
        Kind::SortedSet => [score.map(ElementPart::Score), entry.key.get(8..).map(ElementPart::Bytes)],
        Kind::Set | Kind::String | Kind::Damaged | Kind::Newer => [bytes(&entry.key), None],
    }
}
