//! Whether a tree is whole: every node, every count, every order.

use std::collections::HashSet;

use super::node::{ChildEntry, Element, InnerNode, NodeName, Separator, read_leaf};
use super::read::element_bytes;
use super::{MAIN, ReadNodes, TreeError, TreeRoot, score_of};
use crate::{Damaged, Kind};

/// What a tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Elements.
    pub elements: u64,
    /// Nodes beside the root.
    pub nodes: u64,
    /// Their bytes.
    pub node_bytes: u64,
    /// Levels, the root's included.
    pub height: u8,
}

/// What is known while a tree is walked.
#[derive(Default)]
struct Walk {
    numbers: HashSet<u64>,
    /// The last key of the leaves so far.
    last_key: Option<Vec<u8>>,
    /// Of each tree of a sorted set a sum over all members and their scores, in whatever order.
    members: [u64; 2],
    element_bytes: u64,
    /// The first node of a newer program. Sums over all elements say nothing then.
    newer: Option<Damaged>,
    report: TreeReport,
}

impl Walk {
    /// What a node has; `None`: a newer program wrote it.
    fn known<T>(&mut self, read: Result<T, TreeError>) -> Result<Option<T>, TreeError> {
        match read {
            Err(TreeError::Damaged(damaged)) if damaged.is_newer() => {
                self.newer.get_or_insert(damaged);
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

impl TreeRoot {
    /// Reads all nodes and holds them against each other. Behind a node of a newer program it goes
    /// on: damage elsewhere is told first.
    ///
    /// # Errors
    /// [`TreeError::Damaged`] says what is wrong; [`TreeError::Missing`].
    pub fn check(&self, nodes: &dyn ReadNodes) -> Result<TreeReport, TreeError> {
        let mut walk = Walk::default();
        for tree in 0..self.trees() {
            walk.last_key = None;
            let top = self.top(tree)?;
            walk.report.height = walk.report.height.max(top.level + 1);
            for (at, child) in top.children.iter().enumerate() {
                let bound = if at == 0 { Separator::new() } else { child.separator.clone() };
                self.check_child(nodes, (tree, top.level - 1), (child, bound), &mut walk)?;
            }
        }
        walk.report.elements = self.len();
        if let Some(newer) = walk.newer {
            return Err(newer.into());
        }
        if walk.element_bytes != self.element_bytes {
            return Err(Damaged::new("its elements have another number of bytes than its root says").into());
        }
        let [by_score, by_member] = walk.members;
        if self.kind == Kind::SortedSet && by_score != by_member {
            return Err(Damaged::new("its two trees do not have the same members and scores").into());
        }
        Ok(walk.report)
    }

    /// No key below the child is less than `bound`. Of a first child that is what is said of its
    /// parent: it can have keys less than its own separator, which it had when others stood before
    /// it.
    fn check_child(
        &self,
        nodes: &dyn ReadNodes,
        (tree, level): (usize, u8),
        (child, bound): (&ChildEntry, Separator),
        walk: &mut Walk,
    ) -> Result<(), TreeError> {
        if !walk.numbers.insert(child.number) || child.number >= self.next_number {
            return Err(Damaged::new("two nodes have one number, or one has a number not given yet").into());
        }
        let image = nodes.read(child.number, child.bytes)?;
        if image.len() as u64 != child.bytes {
            return Err(Damaged::new("a node has another length than its parent says").into());
        }
        if NodeName::of(&image) != Some(NodeName { id: self.id, number: child.number }) {
            return Err(Damaged::new("a node is of another structure").into());
        }
        walk.report.nodes += 1;
        walk.report.node_bytes += child.bytes;
        let shape = self.shape(tree);
        if level > 0 {
            let Some(node) = walk.known(InnerNode::parse(&image, shape, (tree, level), child))? else { return Ok(()) };
            return node.children.iter().enumerate().try_for_each(|(at, below)| {
                let bound = if at == 0 { bound.clone() } else { below.separator.clone() };
                self.check_child(nodes, (tree, level - 1), (below, bound), walk)
            });
        }
        let Some(elements) = walk.known(read_leaf(&image, shape, tree, child))? else { return Ok(()) };
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return Ok(()) };
        let is_before = walk.last_key.as_deref().is_some_and(|before| *before >= bound[..] || bound[..] > *first.key);
        if shape.has_key && is_before {
            return Err(Damaged::new("its leaves are out of order").into());
        }
        walk.last_key = Some(last.key.to_vec());
        if let (Kind::SortedSet, Some(members)) = (self.kind, walk.members.get_mut(tree)) {
            for element in &elements {
                *members = members.wrapping_add(number_of_member(element, tree)?);
            }
        }
        if tree == MAIN {
            walk.element_bytes += element_bytes(child.bytes);
        }
        Ok(())
    }
}

/// A number for a member of a sorted set and its score, the same from either tree.
fn number_of_member(element: &Element<'_>, tree: usize) -> Result<u64, Damaged> {
    let (score, member) = match tree {
        MAIN => element.key.split_at_checked(8).ok_or(Damaged::new("a score is cut short"))?,
        _ => (element.value, element.key),
    };
    score_of(score)?;
    // FNV-1a: what is wrong is wrong by chance.
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    Ok(score.iter().chain(member).fold(0xCBF2_9CE4_8422_2325, hash))
}
