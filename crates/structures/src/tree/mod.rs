//! Long structures: counted B+-trees of nodes that are records of their own.
//!
//! The root is the record under the user's key. It has the top of each tree: a sorted set has two,
//! by score and by member, the others have one. Leaves hold elements, and nodes above them say how
//! many elements lie below each child. So an element is found by its key and by its place alike.
//!
//! Where nodes come from and go to is the business of a [`ReadNodes`] and a [`Nodes`]. If one is
//! missing there, a call ends with [`TreeError::Missing`] and may have noted several; it is
//! repeated once they are there. A call that ends with an error may have changed nodes: whoever
//! called undoes that.

mod check;
mod edit;
mod node;
mod read;
mod root;
mod searched_node;
mod whole;

use std::sync::Arc;

use bytes::Bytes;

pub use check::TreeReport;
pub use node::NodeName;
pub use root::{TreeRoot, is_tree};
pub use searched_node::SearchedNode;
pub use whole::scored;

use crate::Damaged;

/// Bytes that nodes have at most, unless their elements are longer.
pub const NODE_BYTES: usize = 2048;
/// A packed structure with more bytes becomes a tree, where there may be one.
pub const PACKED_BYTES_MAX: usize = 8 << 10;
/// Bytes of the top of a tree in the root's record at most, unless its separators are longer.
pub const TOP_BYTES: usize = 768;

/// The tree that orders the elements of hashes, lists and sets, and sorted sets by score.
pub const MAIN: usize = 0;
/// The tree that orders a sorted set by member.
pub const BY_MEMBER: usize = 1;

/// Where the nodes of one structure come from.
pub trait ReadNodes {
    /// The bytes of a node, which has so many.
    ///
    /// # Errors
    /// [`TreeError::Missing`]: it was noted, and will be there the next time. Or there is no such
    /// node.
    fn read(&self, number: u64, bytes: u64) -> Result<Bytes, TreeError>;

    /// The same of an inner node, which `search` looks through. What it made of these very bytes
    /// may be kept for the next time.
    ///
    /// # Errors
    /// As [`ReadNodes::read`], and those of `search`.
    fn read_searched(&self, number: u64, bytes: u64, search: &SearchNode<'_>) -> Result<Arc<SearchedNode>, TreeError> {
        search(self.read(number, bytes)?).map(Arc::new)
    }
}

/// Looks through an inner node with these bytes.
pub type SearchNode<'a> = dyn Fn(Bytes) -> Result<SearchedNode, TreeError> + 'a;

/// The nodes of one structure, which are changed.
pub trait Nodes: ReadNodes {
    /// Whether it can be read now. If not, it is noted as one that would be useful.
    fn is_at_hand(&self, number: u64, bytes: u64) -> bool;

    /// Gives a node these bytes.
    fn write(&mut self, number: u64, image: Bytes);

    /// The same of an inner node that is known already: it may be kept.
    fn write_searched(&mut self, number: u64, node: SearchedNode) {
        self.write(number, node.image().clone());
    }

    /// Removes a node.
    fn free(&mut self, number: u64);

    /// The least number of a node, from this one on, that the structure may use.
    fn usable_number(&self, from: u64) -> u64;
}

/// Why something cannot be done with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Nodes have to be read first.
    #[error("nodes have to be read first")]
    Missing,
    /// Its bytes contradict the layout.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// What was asked for has more bytes than it may have.
    #[error("what was asked for has {bytes} bytes")]
    TooLong {
        /// So many at least.
        bytes: u64,
    },
}

/// An element that was read: its key in the order of the tree, and what belongs to it.
///
/// | kind | key | value |
/// |---|---|---|
/// | hash | field | value |
/// | list | empty | element |
/// | set | member | empty |
/// | sorted set, [`MAIN`] | [`score_key`] and member | empty |
/// | sorted set, [`BY_MEMBER`] | member | score key |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// See above.
    pub key: Bytes,
    /// See above.
    pub value: Bytes,
}

/// A score as eight bytes in whose order scores are. Zero has no sign.
pub fn score_key(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    ordered.to_be_bytes()
}

/// The score at the beginning of these bytes.
///
/// # Errors
/// There is none, or it is not a number.
pub fn score_of(key: &[u8]) -> Result<f64, Damaged> {
    let bytes = key.first_chunk::<8>().ok_or(Damaged::new("a score is cut short"))?;
    let ordered = u64::from_be_bytes(*bytes);
    let bits = if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered };
    let score = f64::from_bits(bits);
    if score.is_nan() { Err(Damaged::new("a score is not a number")) } else { Ok(score) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_scores_are_in_the_order_of_scores() {
        let scores = [f64::NEG_INFINITY, -1e300, -1.5, -f64::MIN_POSITIVE, 0.0, 1e-300, 1.0, 1.5, f64::INFINITY];
        assert!(scores.map(score_key).is_sorted_by(|one, next| one < next));
        for score in scores {
            assert_eq!(score_of(&score_key(score)), Ok(score));
        }
        assert_eq!(score_key(-0.0), score_key(0.0));
        assert!(score_of(&[0xFF; 8]).is_err() && score_of(&[0; 8]).is_err() && score_of(&[0; 7]).is_err());
    }
}
