//! Reading trees: by key, by place, ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::node::{ChildEntry, Element, FoundChild, InnerNode, NODE_HEADER_BYTES, Separator, find_in_leaf, read_leaf};
use super::searched_node::SearchedNode;
use super::{ReadNodes, TreeEntry, TreeError, TreeReport, TreeRoot};
use crate::Damaged;

/// For fewer keys each goes down by itself: nodes are searched and not taken apart.
const FEW_KEYS: usize = 4;

/// What is looked for in a tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Key(&'a [u8]),
    Place(u64),
}

/// What is done with a leaf and the keys that it has, or would have.
type TakeLeaf<'a> = dyn FnMut(&ChildEntry, &Bytes, &[&[u8]]) -> Result<(), TreeError> + 'a;

impl Target<'_> {
    /// The same in a node that has so many elements before it.
    fn behind(self, before: u64) -> Self {
        match self {
            Target::Key(_) => self,
            Target::Place(place) => Target::Place(place.saturating_sub(before)),
        }
    }
}

/// An inner node on the way down, and the child that was taken.
#[derive(Debug)]
pub(super) struct DescentStep {
    /// Above the leaves.
    pub(super) level: u8,
    /// What its parent says of the node, and the node; `None`: it is the top.
    pub(super) own: Option<(ChildEntry, Arc<SearchedNode>)>,
    pub(super) child: FoundChild,
}

/// The way to a leaf.
#[derive(Debug)]
pub(super) struct Descent {
    pub(super) steps: Vec<DescentStep>,
    /// Elements in leaves before this one.
    pub(super) before: u64,
    pub(super) leaf: ChildEntry,
    pub(super) image: Bytes,
}

impl Descent {
    /// What is said of keys behind the leaf; `None`: it is the last one.
    pub(super) fn next_separator(&self) -> Option<&Separator> {
        self.steps.iter().rev().find_map(|step| step.child.next.as_ref())
    }
}

impl TreeRoot {
    /// The way to the leaf that has a key or a place, or would have it; `None`: there are no
    /// leaves.
    pub(super) fn descend(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        target: Target<'_>,
    ) -> Result<Option<Descent>, TreeError> {
        let mut steps = Vec::new();
        let found = self.go_down(nodes, tree, target, |step| steps.push(step))?;
        Ok(found.map(|(before, leaf, image)| Descent { steps, before, leaf, image }))
    }

    /// The leaf that has a key or a place, or would have it, and how many elements come before it;
    /// `None`: there are no leaves. For those who change nothing.
    fn leaf_of(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        target: Target<'_>,
    ) -> Result<Option<(u64, ChildEntry, Bytes)>, TreeError> {
        self.go_down(nodes, tree, target, drop)
    }

    /// Goes down to a leaf, and tells of each step.
    fn go_down(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        target: Target<'_>,
        mut passed: impl FnMut(DescentStep),
    ) -> Result<Option<(u64, ChildEntry, Bytes)>, TreeError> {
        let (shape, top) = (self.shape(tree), self.top(tree)?);
        let (at, mut before) = top.find(target);
        let Some(entry) = top.children.get(at).cloned() else { return Ok(None) };
        let next = top.children.get(at + 1).map(|next| next.separator.clone());
        let mut child = FoundChild { entry, before, at, len: top.children.len(), span: 0..0, next };
        let (mut own, mut level) = (None, top.level);
        loop {
            let entry = child.entry.clone();
            if level <= 1 {
                let image = nodes.read(entry.number, entry.bytes)?;
                passed(DescentStep { level, own, child });
                return Ok(Some((before, entry, image)));
            }
            let node = SearchedNode::read(nodes, shape, (tree, level - 1), &entry)?;
            passed(DescentStep { level, own, child });
            level -= 1;
            child = node.find(target.behind(before))?;
            before += child.before;
            own = Some((entry, node));
        }
    }

    /// What belongs to a key, if it is there.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn get(&self, nodes: &dyn ReadNodes, tree: usize, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        let Some((_, leaf, image)) = self.leaf_of(nodes, tree, Target::Key(key))? else { return Ok(None) };
        let found = find_in_leaf(&image, self.shape(tree), tree, &leaf, Target::Key(key))?;
        Ok(found.value.map(|value| image.slice_ref(value)))
    }

    /// How many keys are less than this one, and whether it is there itself.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn place_of(&self, nodes: &dyn ReadNodes, tree: usize, key: &[u8]) -> Result<(u64, bool), TreeError> {
        let Some((before, leaf, image)) = self.leaf_of(nodes, tree, Target::Key(key))? else { return Ok((0, false)) };
        let found = find_in_leaf(&image, self.shape(tree), tree, &leaf, Target::Key(key))?;
        Ok((before + found.at, found.value.is_some()))
    }

    /// The element at a place; `None`: there are fewer.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn get_at(&self, nodes: &dyn ReadNodes, tree: usize, place: u64) -> Result<Option<TreeEntry>, TreeError> {
        Ok(self.entries(nodes, tree, place..place.saturating_add(1), u64::MAX)?.pop())
    }

    /// Reads ahead the leaves of all these keys. One alone is not looked for: whoever changes it
    /// finds out.
    ///
    /// # Errors
    /// Some are missing, and all of them were noted as far as their parents are there.
    pub fn need_keys<'k>(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<(), TreeError> {
        let mut keys: Vec<&[u8]> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        let are_there = match keys.len() {
            0 | 1 => true,
            2..FEW_KEYS => self.look_for(nodes, tree, &keys)?,
            _ => self.walk_keys(nodes, tree, self.top(tree)?, &keys, &mut |_, _, _| Ok(()))?,
        };
        if are_there { Ok(()) } else { Err(TreeError::Missing) }
    }

    /// Goes down to the leaf of each key, and notes all that are missing; whether none is.
    fn look_for(&self, nodes: &dyn ReadNodes, tree: usize, keys: &[&[u8]]) -> Result<bool, TreeError> {
        let mut are_there = true;
        for key in keys {
            match self.leaf_of(nodes, tree, Target::Key(key)) {
                Err(TreeError::Missing) => are_there = false,
                found => _ = found?,
            }
        }
        Ok(are_there)
    }

    /// What belongs to each of these keys, which are in order, each once. Each node is looked at
    /// once.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn get_all(&self, nodes: &dyn ReadNodes, tree: usize, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, TreeError> {
        if let [key] = keys {
            return Ok(vec![self.get(nodes, tree, key)?]);
        }
        let (mut found, shape) = (Vec::with_capacity(keys.len()), self.shape(tree));
        let mut take = |child: &ChildEntry, image: &Bytes, keys: &[&[u8]]| {
            let elements = read_leaf(image, shape, tree, child)?;
            found.extend(keys.iter().map(|key| {
                let at = elements.binary_search_by_key(key, |element| element.key).ok()?;
                elements.get(at).map(|element| image.slice_ref(element.value))
            }));
            Ok(())
        };
        if !self.walk_keys(nodes, tree, self.top(tree)?, keys, &mut take)? {
            return Err(TreeError::Missing);
        }
        // Without elements there are no leaves.
        found.resize(keys.len(), None);
        Ok(found)
    }

    /// Looks at the leaves of keys in order, those below a node; all that are missing are noted.
    /// Whether all are there.
    fn walk_keys(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        node: &InnerNode,
        keys: &[&[u8]],
        take: &mut TakeLeaf<'_>,
    ) -> Result<bool, TreeError> {
        let (mut rest, mut are_there) = (keys, true);
        for (at, child) in node.children.iter().enumerate() {
            let next = node.children.get(at + 1);
            let count = next.map_or(rest.len(), |next| rest.partition_point(|key| next.separator[..] > **key));
            let (here, behind) = rest.split_at(count);
            rest = behind;
            if here.is_empty() {
                continue;
            }
            are_there &= match nodes.read(child.number, child.bytes) {
                Ok(image) if node.level <= 1 => take(child, &image, here).map(|()| true)?,
                Ok(image) => {
                    let below = InnerNode::parse(&image, self.shape(tree), (tree, node.level - 1), child)?;
                    self.walk_keys(nodes, tree, &below, here, take)?
                }
                Err(TreeError::Missing) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(are_there)
    }

    /// The elements at these places, which are in order, each once. Each node is looked at once.
    ///
    /// # Errors
    /// See [`TreeError`]; there is no such place.
    pub fn entries_at(&self, nodes: &dyn ReadNodes, tree: usize, places: &[u64]) -> Result<Vec<TreeEntry>, TreeError> {
        if places.last().is_some_and(|last| *last >= self.len()) {
            return Err(NO_PLACE.into());
        }
        let mut gather = Gather::of(self, nodes, tree, u64::MAX);
        gather.at_places(self.top(tree)?, 0, places)?;
        gather.end()
    }

    /// About how many nodes there are, and their bytes: of one node in the middle of each level it
    /// is taken that the others are like it. Of a tree of two levels it is exact.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn estimate(&self, nodes: &dyn ReadNodes) -> Result<TreeReport, TreeError> {
        let (mut report, mut is_missing) = (TreeReport { elements: self.len(), ..TreeReport::default() }, false);
        for tree in 0..self.trees() {
            let mut node = self.top(tree)?.clone();
            report.height = report.height.max(node.level + 1);
            loop {
                let all = |of_node: u64| scaled(of_node, self.len(), node.count());
                report.nodes = report.nodes.saturating_add(all(node.children.len() as u64));
                let bytes = node.children.iter().fold(0u64, |sum, child| sum.saturating_add(child.bytes));
                report.node_bytes = report.node_bytes.saturating_add(all(bytes));
                let Some(child) = node.children.get(node.children.len() / 2).filter(|_| node.level > 1) else { break };
                match nodes.read(child.number, child.bytes) {
                    Ok(image) => node = InnerNode::parse(&image, self.shape(tree), (tree, node.level - 1), child)?,
                    Err(TreeError::Missing) => {
                        is_missing = true;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if is_missing { Err(TreeError::Missing) } else { Ok(report) }
    }

    /// The elements at these places, as far as there are any. Nodes of so many bytes are looked at.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn entries(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        places: Range<u64>,
        bytes_max: u64,
    ) -> Result<Vec<TreeEntry>, TreeError> {
        let mut gather = Gather::of(self, nodes, tree, bytes_max);
        gather.walk(self.top(tree)?, &places)?;
        gather.end()
    }
}

/// Gathers the elements of a range, and notes all nodes of it that are missing.
struct Gather<'a> {
    root: &'a TreeRoot,
    nodes: &'a dyn ReadNodes,
    tree: usize,
    entries: Vec<TreeEntry>,
    bytes: u64,
    bytes_max: u64,
    is_missing: bool,
}

impl<'a> Gather<'a> {
    fn of(root: &'a TreeRoot, nodes: &'a dyn ReadNodes, tree: usize, bytes_max: u64) -> Gather<'a> {
        Gather { root, nodes, tree, entries: Vec::new(), bytes: 0, bytes_max, is_missing: false }
    }

    /// What was gathered.
    fn end(self) -> Result<Vec<TreeEntry>, TreeError> {
        if self.is_missing { Err(TreeError::Missing) } else { Ok(self.entries) }
    }

    /// Gathers the elements at places in order, of a node that begins at `start`.
    fn at_places(&mut self, node: &InnerNode, mut start: u64, places: &[u64]) -> Result<(), TreeError> {
        let mut rest = places;
        for child in &node.children {
            let end = start.saturating_add(child.count);
            let (here, behind) = rest.split_at(rest.partition_point(|place| *place < end));
            rest = behind;
            if here.is_empty() {
                start = end;
                continue;
            }
            match self.nodes.read(child.number, child.bytes) {
                Err(TreeError::Missing) => self.is_missing = true,
                Err(error) => return Err(error),
                Ok(image) if node.level > 1 => {
                    let shape = self.root.shape(self.tree);
                    let below = InnerNode::parse(&image, shape, (self.tree, node.level - 1), child)?;
                    self.at_places(&below, start, here)?;
                }
                Ok(_) if self.is_missing => {}
                Ok(image) => {
                    let elements = read_leaf(&image, self.root.shape(self.tree), self.tree, child)?;
                    let found = here.iter().filter_map(|place| elements.get((place - start) as usize));
                    self.entries.extend(found.map(|element| entry_of(&image, element)));
                }
            }
            start = end;
        }
        Ok(())
    }

    fn walk(&mut self, node: &InnerNode, places: &Range<u64>) -> Result<(), TreeError> {
        let mut start = 0u64;
        for child in &node.children {
            let end = start.saturating_add(child.count);
            let within = places.start.max(start)..places.end.min(end);
            if within.start < within.end {
                self.child(node.level, child, within.start - start..within.end - start)?;
            }
            start = end;
        }
        Ok(())
    }

    /// A node, if it is there; that one is missing is noted.
    fn there<T>(&mut self, read: Result<T, TreeError>) -> Result<Option<T>, TreeError> {
        match read {
            Err(TreeError::Missing) => {
                self.is_missing = true;
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    fn child(&mut self, level: u8, child: &ChildEntry, places: Range<u64>) -> Result<(), TreeError> {
        self.bytes = self.bytes.saturating_add(child.bytes);
        // Of one node alone there is no less.
        if self.bytes > self.bytes_max.max(child.bytes) {
            return Err(TreeError::TooLong { bytes: self.bytes });
        }
        let shape = self.root.shape(self.tree);
        if level > 1 {
            let node = SearchedNode::read(self.nodes, shape, (self.tree, level - 1), child);
            let Some(node) = self.there(node)? else { return Ok(()) };
            for below in node.children_at(&places) {
                let (before, below) = below?;
                let end = before.saturating_add(below.count);
                let within = places.start.max(before)..places.end.min(end);
                if within.start < within.end {
                    self.child(level - 1, &below, within.start - before..within.end - before)?;
                }
            }
            return Ok(());
        }
        let image = self.nodes.read(child.number, child.bytes);
        let Some(image) = self.there(image)? else { return Ok(()) };
        if self.is_missing {
            return Ok(());
        }
        let elements = read_leaf(&image, shape, self.tree, child)?;
        let (first, len) = (places.start as usize, (places.end - places.start) as usize);
        self.entries.extend(elements.iter().skip(first).take(len).map(|element| entry_of(&image, element)));
        Ok(())
    }
}

/// What all have together, if a part of them has so much.
fn scaled(of_part: u64, all: u64, part: u64) -> u64 {
    let scaled = u128::from(of_part) * u128::from(all) / u128::from(part.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// An element of a leaf with these bytes.
fn entry_of(image: &Bytes, element: &Element<'_>) -> TreeEntry {
    TreeEntry { key: image.slice_ref(element.key), value: image.slice_ref(element.value) }
}

/// Bytes of elements in a leaf of so many bytes.
pub(super) fn element_bytes(leaf_bytes: u64) -> u64 {
    leaf_bytes.saturating_sub(NODE_HEADER_BYTES as u64)
}

/// A place that a tree does not have.
pub(super) const NO_PLACE: Damaged = Damaged::new("a place is not in its tree");
