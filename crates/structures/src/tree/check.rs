//! Whether a tree is whole: every node, every count, every order.

use std::collections::HashSet;

use super::node::{ChildEntry, InnerNode, read_leaf};
use super::read::element_bytes;
use super::{BY_MEMBER, MAIN, ReadNodes, TreeError, TreeRoot, score_of};
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
    element_bytes: u64,
    report: TreeReport,
}

impl TreeRoot {
    /// Reads all nodes and holds them against each other.
    ///
    /// # Errors
    /// [`TreeError::Damaged`] says what is wrong; [`TreeError::Missing`].
    pub fn check(&self, nodes: &dyn ReadNodes) -> Result<TreeReport, TreeError> {
        let mut walk = Walk::default();
        for tree in 0..self.trees() {
            walk.last_key = None;
            let top = self.top(tree)?;
            walk.report.height = walk.report.height.max(top.level + 1);
            for child in &top.children {
                self.check_child(nodes, (tree, top.level - 1), child, &mut walk)?;
            }
        }
        walk.report.elements = self.len();
        if walk.element_bytes != self.element_bytes {
            return Err(Damaged("its elements have another number of bytes than its root says").into());
        }
        self.check_members(nodes)?;
        Ok(walk.report)
    }

    fn check_child(
        &self,
        nodes: &dyn ReadNodes,
        (tree, level): (usize, u8),
        child: &ChildEntry,
        walk: &mut Walk,
    ) -> Result<(), TreeError> {
        if !walk.numbers.insert(child.number) || child.number >= self.next_number {
            return Err(Damaged("two nodes have one number, or one has a number not given yet").into());
        }
        let image = nodes.read(child.number, child.bytes)?;
        if image.len() as u64 != child.bytes {
            return Err(Damaged("a node has another length than its parent says").into());
        }
        walk.report.nodes += 1;
        walk.report.node_bytes += child.bytes;
        let shape = self.shape(tree);
        if level > 0 {
            let node = InnerNode::parse(&image, shape, (tree, level), child)?;
            return node.children.iter().try_for_each(|below| self.check_child(nodes, (tree, level - 1), below, walk));
        }
        let elements = read_leaf(&image, shape, tree, child)?;
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return Ok(()) };
        let is_before =
            walk.last_key.as_deref().is_some_and(|before| before >= first.key || child.separator[..] > *first.key);
        if shape.has_key && is_before {
            return Err(Damaged("its leaves are out of order").into());
        }
        walk.last_key = Some(last.key.to_vec());
        if tree == MAIN {
            walk.element_bytes += element_bytes(child.bytes);
        }
        Ok(())
    }

    /// Whether both trees of a sorted set have the same members with the same scores.
    fn check_members(&self, nodes: &dyn ReadNodes) -> Result<(), TreeError> {
        if self.kind != Kind::SortedSet {
            return Ok(());
        }
        for entry in self.entries(nodes, MAIN, 0..self.len(), u64::MAX)? {
            score_of(&entry.key)?;
            let (score, member) = entry.key.split_at_checked(8).ok_or(Damaged("a score is cut short"))?;
            if self.get(nodes, BY_MEMBER, member)?.as_deref() != Some(score) {
                return Err(Damaged("a member has two scores").into());
            }
        }
        Ok(())
    }
}
