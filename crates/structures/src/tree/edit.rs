//! Changing trees: elements in and out, nodes split and merged, the tree higher and lower.

use std::ops::Range;

use bytes::Bytes;

use super::node::{
    ChildEntry, Element, FoundChild, InnerNode, LeafChange, NODE_HEADER_BYTES, NodeName, Separator, changed_leaf,
    find_in_leaf, leaf_image, read_leaf, separator_between,
};
use super::read::{Descent, DescentStep, NO_PLACE, Target, element_bytes};
use super::root::NO_TREE;
use super::searched_node::SearchedNode;
use super::{MAIN, NODE_BYTES, Nodes, ReadNodes, TOP_BYTES, TreeEntry, TreeError, TreeRoot};

/// A node with fewer bytes is put together with its neighbour, if both fit well into one.
const SMALL_BYTES: u64 = NODE_BYTES as u64 / 4;
const MERGED_BYTES_MAX: u64 = NODE_BYTES as u64 * 3 / 4;

/// Where elements are added most: nodes that are split there stay full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitAt {
    Middle,
    /// The front is as full as may be.
    End,
    /// The first one is.
    Start,
}

impl SplitAt {
    /// Of a change at this place of so many.
    fn of(at: usize, len: usize) -> SplitAt {
        match () {
            () if at + 1 >= len => SplitAt::End,
            () if at == 0 => SplitAt::Start,
            () => SplitAt::Middle,
        }
    }

    /// Where items of these sizes are split: each part has some.
    fn place(self, sizes: &[usize]) -> usize {
        let last = sizes.len().saturating_sub(1).max(1);
        match self {
            SplitAt::End => {
                let mut sum = NODE_HEADER_BYTES;
                let front = sizes.iter().take_while(|size| {
                    sum += **size;
                    sum <= NODE_BYTES
                });
                front.count().clamp(1, last)
            }
            SplitAt::Start => 1,
            SplitAt::Middle => {
                let half = sizes.iter().sum::<usize>() / 2;
                let mut sum = 0;
                let front = sizes.iter().take_while(|size| {
                    sum += **size;
                    sum <= half
                });
                front.count().clamp(1, last)
            }
        }
    }
}

impl TreeRoot {
    /// Gives a key this value; whether the key is new.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn insert(&mut self, nodes: &mut dyn Nodes, tree: usize, entry: (&[u8], &[u8])) -> Result<bool, TreeError> {
        let (key, value) = entry;
        let Some(descent) = self.descend(nodes, tree, Target::Key(key))? else {
            self.plant(nodes, tree, Element { key, value })?;
            return Ok(true);
        };
        Ok(self.insert_into_leaf(nodes, tree, descent, &[entry])? > 0)
    }

    /// Gives many keys their values: in the order of keys, each once. How many keys are new.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn insert_all(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        entries: &[(&[u8], &[u8])],
    ) -> Result<u64, TreeError> {
        let (mut rest, mut new) = (entries, 0);
        while let Some((first, others)) = rest.split_first() {
            let Some(descent) = self.descend(nodes, tree, Target::Key(first.0))? else {
                self.plant(nodes, tree, Element { key: first.0, value: first.1 })?;
                (rest, new) = (others, new + 1);
                continue;
            };
            // Those that the same leaf has, or would have.
            let next = descent.next_separator();
            let count = next.map_or(rest.len(), |next| rest.partition_point(|entry| next[..] > *entry.0));
            let (here, behind) = rest.split_at(count.max(1));
            new += self.insert_into_leaf(nodes, tree, descent, here)?;
            rest = behind;
        }
        Ok(new)
    }

    fn insert_into_leaf(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        descent: Descent,
        entries: &[(&[u8], &[u8])],
    ) -> Result<u64, TreeError> {
        let Descent { steps, leaf, image, .. } = descent;
        if let [(key, value)] = entries {
            let place = find_in_leaf(&image, self.shape(tree), tree, &leaf, Target::Key(key))?;
            let (removed, added) = (u64::from(place.value.is_some()), Some(Element { key, value }));
            let change = LeafChange { span: place.span, removed, added };
            if let Some(written) = self.change_leaf(nodes, tree, (&leaf, &image), &change) {
                self.tell_parents(nodes, tree, steps, vec![written])?;
                return Ok(1 - removed);
            }
        }
        let mut elements = read_leaf(&image, self.shape(tree), tree, &leaf)?;
        let (before, mut last) = (elements.len(), 0);
        for (key, value) in entries {
            let element = Element { key, value };
            last = match elements.binary_search_by_key(key, |element| element.key) {
                Ok(at) => {
                    elements.splice(at..=at, [element]);
                    at
                }
                Err(at) => {
                    elements.insert(at, element);
                    at
                }
            };
        }
        let new = elements.len() - before;
        let split = SplitAt::of(last, elements.len());
        self.replace_leaf(nodes, (tree, split), steps, (&leaf, &elements))?;
        Ok(new as u64)
    }

    /// Puts an element of a list at a place, of which there are as many as elements and one more.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn insert_at(&mut self, nodes: &mut dyn Nodes, place: u64, value: &[u8]) -> Result<(), TreeError> {
        let element = Element { key: b"", value };
        let Some(descent) = self.descend(nodes, MAIN, Target::Place(place))? else {
            return self.plant(nodes, MAIN, element);
        };
        let Descent { steps, leaf, image, before } = descent;
        let at = place.saturating_sub(before);
        if at > leaf.count {
            return Err(NO_PLACE.into());
        }
        let start = find_in_leaf(&image, self.shape(MAIN), MAIN, &leaf, Target::Place(at))?.span.start;
        let change = LeafChange { span: start..start, removed: 0, added: Some(element) };
        if let Some(written) = self.change_leaf(nodes, MAIN, (&leaf, &image), &change) {
            return self.tell_parents(nodes, MAIN, steps, vec![written]);
        }
        let mut elements = read_leaf(&image, self.shape(MAIN), MAIN, &leaf)?;
        let at = at as usize;
        elements.insert(at, element);
        let split = SplitAt::of(at, elements.len());
        self.replace_leaf(nodes, (MAIN, split), steps, (&leaf, &elements))
    }

    /// Gives the element of a list at a place other bytes.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn set_at(&mut self, nodes: &mut dyn Nodes, place: u64, value: &[u8]) -> Result<(), TreeError> {
        let Some(descent) = self.descend(nodes, MAIN, Target::Place(place))? else { return Err(NO_PLACE.into()) };
        let Descent { steps, leaf, image, before } = descent;
        let at = place.saturating_sub(before);
        let found = find_in_leaf(&image, self.shape(MAIN), MAIN, &leaf, Target::Place(at))?;
        if found.value.is_none() {
            return Err(NO_PLACE.into());
        }
        let change = LeafChange { span: found.span, removed: 1, added: Some(Element { key: b"", value }) };
        if let Some(written) = self.change_leaf(nodes, MAIN, (&leaf, &image), &change) {
            return self.tell_parents(nodes, MAIN, steps, vec![written]);
        }
        let mut elements = read_leaf(&image, self.shape(MAIN), MAIN, &leaf)?;
        elements.get_mut(at as usize).ok_or(NO_PLACE)?.value = value;
        self.replace_leaf(nodes, (MAIN, SplitAt::Middle), steps, (&leaf, &elements))
    }

    /// Removes a key; what belonged to it.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn remove(&mut self, nodes: &mut dyn Nodes, tree: usize, key: &[u8]) -> Result<Option<Bytes>, TreeError> {
        let Some(descent) = self.descend(nodes, tree, Target::Key(key))? else { return Ok(None) };
        self.remove_at(nodes, tree, descent, key)
    }

    /// Removes a key from the leaf that has it, or would have it; what belonged to it.
    fn remove_at(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        descent: Descent,
        key: &[u8],
    ) -> Result<Option<Bytes>, TreeError> {
        let Descent { steps, leaf, image, .. } = descent;
        let found = find_in_leaf(&image, self.shape(tree), tree, &leaf, Target::Key(key))?;
        let Some(value) = found.value else { return Ok(None) };
        let value = image.slice_ref(value);
        let change = LeafChange { span: found.span, removed: 1, added: None };
        let written = self.change_leaf(nodes, tree, (&leaf, &image), &change);
        let replacement =
            written.map_or_else(|| self.write_elements(nodes, (tree, SplitAt::Middle), (&leaf, &[])), |one| vec![one]);
        self.tell_parents(nodes, tree, steps, replacement)?;
        Ok(Some(value))
    }

    /// Removes many keys: in their order, each once. How many were there.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn remove_all(&mut self, nodes: &mut dyn Nodes, tree: usize, keys: &[&[u8]]) -> Result<u64, TreeError> {
        let (mut rest, mut removed) = (keys, 0);
        while let Some(first) = rest.first() {
            let Some(descent) = self.descend(nodes, tree, Target::Key(first))? else { break };
            // Those that the same leaf has, or would have.
            let next = descent.next_separator();
            let count = next.map_or(rest.len(), |next| rest.partition_point(|key| next[..] > **key));
            let (here, behind) = rest.split_at(count.max(1));
            rest = behind;
            if let [key] = here {
                removed += u64::from(self.remove_at(nodes, tree, descent, key)?.is_some());
                continue;
            }
            let Descent { steps, leaf, image, .. } = descent;
            let mut elements = read_leaf(&image, self.shape(tree), tree, &leaf)?;
            let before = elements.len();
            elements.retain(|element| here.binary_search(&element.key).is_err());
            if elements.len() < before {
                removed += (before - elements.len()) as u64;
                self.replace_leaf(nodes, (tree, SplitAt::Middle), steps, (&leaf, &elements))?;
            }
        }
        Ok(removed)
    }

    /// Removes the elements at these places.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn remove_places(&mut self, nodes: &mut dyn Nodes, tree: usize, places: Range<u64>) -> Result<(), TreeError> {
        if places.is_empty() {
            return Ok(());
        }
        if places.end.saturating_sub(places.start) < NODE_BYTES as u64 && self.remove_from_leaf(nodes, tree, &places)? {
            return Ok(());
        }
        let top = self.top(tree)?.clone();
        self.need_cut(nodes, tree, &top, &places)?;
        let kept = self.cut(nodes, tree, top, &places)?;
        self.set_top(nodes, tree, kept)
    }

    /// Removes them if one leaf has all of them; whether it has.
    fn remove_from_leaf(&mut self, nodes: &mut dyn Nodes, tree: usize, places: &Range<u64>) -> Result<bool, TreeError> {
        let Some(descent) = self.descend(nodes, tree, Target::Place(places.start))? else { return Ok(false) };
        let Descent { steps, leaf, image, before } = descent;
        let end = before.saturating_add(leaf.count);
        if !(before <= places.start && places.start < places.end && places.end <= end) {
            return Ok(false);
        }
        let [start, end] = [places.start, places.end].map(|place| {
            let found = find_in_leaf(&image, self.shape(tree), tree, &leaf, Target::Place(place - before));
            found.map(|found| found.span.start)
        });
        let change = LeafChange { span: start?..end?, removed: places.end - places.start, added: None };
        let written = self.change_leaf(nodes, tree, (&leaf, &image), &change);
        let replacement =
            written.map_or_else(|| self.write_elements(nodes, (tree, SplitAt::Middle), (&leaf, &[])), |one| vec![one]);
        self.tell_parents(nodes, tree, steps, replacement)?;
        Ok(true)
    }

    /// Adds many elements to a tree that has none: they are in its order, each key once.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn fill<'a>(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), TreeError> {
        let shape = self.shape(tree);
        let mut children = Vec::new();
        let (mut leaf, mut bytes) = (Vec::<Element<'_>>::new(), 0);
        let mut last_key: &[u8] = b"";
        let mut separator = Separator::new();
        for (key, value) in entries {
            let element = Element { key, value };
            let more = element.encoded_bytes(shape);
            if !leaf.is_empty() && NODE_HEADER_BYTES + bytes + more > NODE_BYTES {
                children.push(self.write_leaf(nodes, tree, None, (&leaf, separator)));
                separator = separator_between(last_key, key);
                (leaf, bytes) = (Vec::new(), 0);
            }
            leaf.push(element);
            bytes += more;
            last_key = key;
        }
        if !leaf.is_empty() {
            children.push(self.write_leaf(nodes, tree, None, (&leaf, separator)));
        }
        self.set_top(nodes, tree, InnerNode { level: 1, children })
    }

    /// Removes all nodes.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn free_all(&mut self, nodes: &mut dyn Nodes) -> Result<(), TreeError> {
        for tree in 0..self.trees() {
            self.remove_places(nodes, tree, 0..u64::MAX)?;
        }
        Ok(())
    }

    /// The first element of a tree.
    fn plant(&mut self, nodes: &mut dyn Nodes, tree: usize, element: Element<'_>) -> Result<(), TreeError> {
        let child = self.write_leaf(nodes, tree, None, (&[element], Separator::new()));
        self.set_top(nodes, tree, InnerNode { level: 1, children: vec![child] })
    }

    fn draw_number(&mut self, nodes: &dyn Nodes) -> u64 {
        let number = nodes.usable_number(self.next_number);
        self.next_number = number.saturating_add(1);
        number
    }

    /// Writes a leaf, whose elements count from then on.
    fn write_leaf(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        number: Option<u64>,
        (elements, separator): (&[Element<'_>], Separator),
    ) -> ChildEntry {
        let number = number.unwrap_or_else(|| self.draw_number(nodes));
        let image = leaf_image(elements, self.shape(tree), tree, NodeName { id: self.id, number });
        self.put_leaf(nodes, tree, image, ChildEntry { number, count: elements.len() as u64, bytes: 0, separator })
    }

    /// Writes the bytes of a leaf. What its parent says of it, its bytes included.
    fn put_leaf(&mut self, nodes: &mut dyn Nodes, tree: usize, image: Bytes, leaf: ChildEntry) -> ChildEntry {
        let bytes = image.len() as u64;
        if tree == MAIN {
            self.element_bytes = self.element_bytes.saturating_add(element_bytes(bytes));
        }
        nodes.write(leaf.number, image);
        ChildEntry { bytes, ..leaf }
    }

    /// A leaf's elements count no more.
    fn forget_leaf(&mut self, tree: usize, leaf: &ChildEntry) {
        if tree == MAIN {
            self.element_bytes = self.element_bytes.saturating_sub(element_bytes(leaf.bytes));
        }
    }

    /// Writes elements in place of those that a leaf had; the nodes that have them now.
    fn write_elements(
        &mut self,
        nodes: &mut dyn Nodes,
        (tree, split): (usize, SplitAt),
        (leaf, elements): (&ChildEntry, &[Element<'_>]),
    ) -> Vec<ChildEntry> {
        self.forget_leaf(tree, leaf);
        if elements.is_empty() {
            nodes.free(leaf.number);
            return Vec::new();
        }
        let shape = self.shape(tree);
        let (mut written, mut rest, mut split) = (Vec::new(), vec![elements], split);
        let (mut number, mut last_key): (_, &[u8]) = (Some(leaf.number), b"");
        while let Some(part) = rest.pop() {
            let sizes: Vec<usize> = part.iter().map(|element| element.encoded_bytes(shape)).collect();
            let is_too_long = NODE_HEADER_BYTES + sizes.iter().sum::<usize>() > NODE_BYTES;
            if is_too_long && part.len() > 1 {
                let (front, back) = part.split_at(split.place(&sizes));
                rest.extend([back, front]);
                // What is behind a full front is filled like it.
                split = if split == SplitAt::End { SplitAt::End } else { SplitAt::Middle };
                continue;
            }
            let first_key = part.first().map_or(&b""[..], |element| element.key);
            let separator = match written.is_empty() {
                true => leaf.separator.clone(),
                false => separator_between(last_key, first_key),
            };
            written.push(self.write_leaf(nodes, tree, number.take(), (part, separator)));
            last_key = part.last().map_or(&b""[..], |element| element.key);
        }
        written
    }

    /// Gives a leaf these elements, and its parents up to the top what becomes of it.
    fn replace_leaf(
        &mut self,
        nodes: &mut dyn Nodes,
        (tree, split): (usize, SplitAt),
        steps: Vec<DescentStep>,
        (leaf, elements): (&ChildEntry, &[Element<'_>]),
    ) -> Result<(), TreeError> {
        let replacement = self.write_elements(nodes, (tree, split), (leaf, elements));
        self.tell_parents(nodes, tree, steps, replacement)
    }

    /// Changes a leaf in its bytes, if it stays one node with some elements: the other elements are
    /// not looked at. What its parent says of it then.
    fn change_leaf(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        (leaf, image): (&ChildEntry, &[u8]),
        change: &LeafChange<'_>,
    ) -> Option<ChildEntry> {
        let count = leaf.count.checked_sub(change.removed)? + u64::from(change.added.is_some());
        let image = changed_leaf(image, count, self.shape(tree), change)?;
        if count == 0 || image.len() > NODE_BYTES {
            return None;
        }
        self.forget_leaf(tree, leaf);
        Some(self.put_leaf(nodes, tree, image, ChildEntry { count, ..leaf.clone() }))
    }

    /// Tells the parents of nodes, up to the top, that these are there in place of the one that the
    /// way led to.
    fn tell_parents(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        mut steps: Vec<DescentStep>,
        mut replacement: Vec<ChildEntry>,
    ) -> Result<(), TreeError> {
        while let Some(DescentStep { level, own, child }) = steps.pop() {
            if let ([only], true) = (&replacement[..], own.is_some()) {
                // Nothing of it is told above.
                if *only == child.entry {
                    return Ok(());
                }
            }
            let Some((own, known)) = own else {
                let top = self.tops.get_mut(tree).ok_or(NO_TREE)?;
                let mut node = InnerNode { level, children: std::mem::take(&mut top.children) };
                self.put_children(nodes, tree, &mut node, (child.at, replacement))?;
                return self.set_top(nodes, tree, node);
            };
            if let Some(entry) = replace_entry(nodes, (&own, &known), (&child, &replacement)) {
                replacement = vec![entry];
                continue;
            }
            let mut node = InnerNode::parse(known.image(), self.shape(tree), (tree, level), &own)?;
            self.put_children(nodes, tree, &mut node, (child.at, replacement))?;
            let (split, known) = (SplitAt::of(child.at, child.len), Some((own.number, own.separator)));
            replacement = self.write_inner(nodes, (tree, split), known, node);
        }
        Ok(())
    }

    /// Puts children in place of one; what is small is put together with a neighbour.
    fn put_children(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        node: &mut InnerNode,
        (at, replacement): (usize, Vec<ChildEntry>),
    ) -> Result<(), TreeError> {
        let is_one = replacement.len() == 1;
        if at < node.children.len() {
            node.children.splice(at..=at, replacement);
        }
        if is_one { self.merge_around(nodes, tree, node, at) } else { Ok(()) }
    }

    /// Writes an inner node, or several if it is too long; none if it has no children. `known`: its
    /// number and separator, if it has them already.
    fn write_inner(
        &mut self,
        nodes: &mut dyn Nodes,
        (tree, mut split): (usize, SplitAt),
        known: Option<(u64, Separator)>,
        node: InnerNode,
    ) -> Vec<ChildEntry> {
        let (mut number, separator) = known.map_or((None, Separator::new()), |(number, of)| (Some(number), of));
        let InnerNode { level, children } = node;
        if children.is_empty() {
            number.into_iter().for_each(|number| nodes.free(number));
            return Vec::new();
        }
        let shape = self.shape(tree);
        let (mut written, mut rest) = (Vec::new(), vec![children]);
        while let Some(mut children) = rest.pop() {
            let sizes: Vec<usize> = children.iter().map(|child| child.encoded_bytes(shape)).collect();
            if NODE_HEADER_BYTES + sizes.iter().sum::<usize>() > NODE_BYTES && children.len() >= 4 {
                let at = split.place(&sizes).clamp(2, children.len() - 2);
                let back = children.split_off(at);
                rest.extend([back, children]);
                split = if split == SplitAt::End { SplitAt::End } else { SplitAt::Middle };
                continue;
            }
            let of_first = children.first().map(|child| child.separator.clone()).unwrap_or_default();
            let separator = if written.is_empty() { separator.clone() } else { of_first };
            let number = number.take().unwrap_or_else(|| self.draw_number(nodes));
            let node = InnerNode { level, children };
            let image = node.image(shape, tree, NodeName { id: self.id, number });
            written.push(ChildEntry { number, count: node.count(), bytes: image.len() as u64, separator });
            nodes.write(number, image);
        }
        written
    }

    /// Puts a small child together with a neighbour, if that one is at hand and both fit well.
    fn merge_around(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        node: &mut InnerNode,
        at: usize,
    ) -> Result<(), TreeError> {
        let Some(small) = node.children.get(at).filter(|child| child.bytes < SMALL_BYTES) else { return Ok(()) };
        let fits = |other: usize| {
            let other = node.children.get(other)?;
            fits_into_one(small.bytes, other.bytes).then_some((other.number, other.bytes))
        };
        let before = at.checked_sub(1);
        let left = match (fits(at + 1), before.and_then(fits)) {
            (Some((number, bytes)), _) if nodes.is_at_hand(number, bytes) => at,
            (_, Some((number, bytes))) if nodes.is_at_hand(number, bytes) => at - 1,
            _ => return Ok(()),
        };
        let mut both = node.children.splice(left..=left + 1, []);
        let (Some(one), Some(other)) = (both.next(), both.next()) else { return Ok(()) };
        drop(both);
        let merged = self.merged(nodes, tree, node.level, (&one, &other))?;
        node.children.splice(left..left, merged);
        Ok(())
    }

    /// Two neighbours below a node of this level as one.
    fn merged(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        level: u8,
        (one, other): (&ChildEntry, &ChildEntry),
    ) -> Result<Vec<ChildEntry>, TreeError> {
        let images = (nodes.read(one.number, one.bytes)?, nodes.read(other.number, other.bytes)?);
        let shape = self.shape(tree);
        nodes.free(other.number);
        if level <= 1 {
            let mut elements = read_leaf(&images.0, shape, tree, one)?;
            elements.extend(read_leaf(&images.1, shape, tree, other)?);
            self.forget_leaf(tree, other);
            return Ok(self.write_elements(nodes, (tree, SplitAt::Middle), (one, &elements)));
        }
        let mut node = InnerNode::parse(&images.0, shape, (tree, level - 1), one)?;
        let mut more = InnerNode::parse(&images.1, shape, (tree, level - 1), other)?.children;
        if let Some(first) = more.first_mut() {
            // What its separator said before is not known: it was the first one.
            first.separator = other.separator.clone();
        }
        node.children.append(&mut more);
        let known = Some((one.number, one.separator.clone()));
        Ok(self.write_inner(nodes, (tree, SplitAt::Middle), known, node))
    }

    /// Makes this the top of a tree, which becomes higher or lower so that it fits.
    fn set_top(&mut self, nodes: &mut dyn Nodes, tree: usize, mut top: InnerNode) -> Result<(), TreeError> {
        let shape = self.shape(tree);
        while let ([only], true) = (&top.children[..], top.level > 1) {
            // Half of what it may have: it is not to go up and down with each element.
            if only.bytes > (NODE_HEADER_BYTES + TOP_BYTES / 2) as u64 || !nodes.is_at_hand(only.number, only.bytes) {
                break;
            }
            let image = nodes.read(only.number, only.bytes)?;
            nodes.free(only.number);
            top = InnerNode::parse(&image, shape, (tree, top.level - 1), only)?;
        }
        while top.encoded_bytes(shape) > TOP_BYTES && top.children.len() >= 4 {
            let level = top.level + 1;
            let children = self.write_inner(nodes, (tree, SplitAt::Middle), None, top);
            top = InnerNode { level, children };
        }
        if top.children.is_empty() {
            top.level = 1;
        }
        *self.tops.get_mut(tree).ok_or(NO_TREE)? = top;
        Ok(())
    }

    /// Reads ahead what [`TreeRoot::cut`] looks at: inner nodes, and leaves of which a part stays.
    fn need_cut(
        &self,
        nodes: &dyn ReadNodes,
        tree: usize,
        node: &InnerNode,
        places: &Range<u64>,
    ) -> Result<(), TreeError> {
        let mut is_missing = false;
        for (child, within) in overlapping(node, places) {
            let is_whole = within == (0..child.count);
            if node.level <= 1 && is_whole {
                continue;
            }
            let needed = match nodes.read(child.number, child.bytes) {
                Ok(_) if node.level <= 1 => Ok(()),
                Ok(image) => {
                    let below = InnerNode::parse(&image, self.shape(tree), (tree, node.level - 1), child)?;
                    self.need_cut(nodes, tree, &below, &within)
                }
                Err(error) => Err(error),
            };
            match needed {
                Err(TreeError::Missing) => is_missing = true,
                needed => needed?,
            }
        }
        if is_missing { Err(TreeError::Missing) } else { Ok(()) }
    }

    /// What is left of a node without these places, and all below it.
    fn cut(
        &mut self,
        nodes: &mut dyn Nodes,
        tree: usize,
        node: InnerNode,
        places: &Range<u64>,
    ) -> Result<InnerNode, TreeError> {
        let (level, shape) = (node.level, self.shape(tree));
        let mut kept = Vec::with_capacity(node.children.len());
        let mut start = 0u64;
        for child in node.children {
            let end = start.saturating_add(child.count);
            let within = places.start.max(start)..places.end.min(end);
            let within = if within.start < within.end { within.start - start..within.end - start } else { 0..0 };
            start = end;
            match (within.is_empty(), level <= 1) {
                (true, _) => kept.push(child),
                (false, true) if within == (0..child.count) => {
                    self.forget_leaf(tree, &child);
                    nodes.free(child.number);
                }
                (false, true) => {
                    let image = nodes.read(child.number, child.bytes)?;
                    let mut elements = read_leaf(&image, shape, tree, &child)?;
                    elements.drain(within.start as usize..within.end as usize);
                    kept.extend(self.write_elements(nodes, (tree, SplitAt::Middle), (&child, &elements)));
                }
                (false, false) => {
                    let image = nodes.read(child.number, child.bytes)?;
                    let below = InnerNode::parse(&image, shape, (tree, level - 1), &child)?;
                    let below = self.cut(nodes, tree, below, &within)?;
                    let known = Some((child.number, child.separator));
                    kept.extend(self.write_inner(nodes, (tree, SplitAt::Middle), known, below));
                }
            }
        }
        Ok(InnerNode { level, children: kept })
    }

    /// All elements of a tree, with nodes of so many bytes at most.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn all(&self, nodes: &dyn ReadNodes, tree: usize, bytes_max: u64) -> Result<Vec<TreeEntry>, TreeError> {
        if self.element_bytes > bytes_max {
            return Err(TreeError::TooLong { bytes: self.element_bytes });
        }
        self.entries(nodes, tree, 0..self.len(), u64::MAX)
    }
}

/// Whether two neighbours of these bytes are to be one node.
fn fits_into_one(one: u64, other: u64) -> bool {
    one.saturating_add(other) <= MERGED_BYTES_MAX
}

/// Writes an inner node in which one child is another one, if that is all there is to do: the other
/// entries are not looked at. What its parent says of it then.
fn replace_entry(
    nodes: &mut dyn Nodes,
    (own, node): (&ChildEntry, &SearchedNode),
    (child, replacement): (&FoundChild, &[ChildEntry]),
) -> Option<ChildEntry> {
    let [entry] = replacement else { return None };
    let neighbours = [child.at.checked_sub(1), child.at.checked_add(1)];
    let mut bytes = neighbours.into_iter().flatten().filter_map(|at| node.child_bytes(at));
    if entry.bytes < SMALL_BYTES && bytes.any(|other| fits_into_one(entry.bytes, other)) {
        return None;
    }
    let count = own.count.checked_sub(child.entry.count)?.checked_add(entry.count)?;
    let node = node.with_child(child, entry)?;
    let bytes = node.image().len();
    if bytes > NODE_BYTES {
        return None;
    }
    nodes.write_searched(own.number, node);
    Some(ChildEntry { count, bytes: bytes as u64, ..own.clone() })
}

/// The children that have some of these places, and which of their own.
fn overlapping<'n>(node: &'n InnerNode, places: &Range<u64>) -> impl Iterator<Item = (&'n ChildEntry, Range<u64>)> {
    let (from, to) = (places.start, places.end);
    let mut start = 0u64;
    node.children.iter().filter_map(move |child| {
        let end = start.saturating_add(child.count);
        let within = from.max(start)..to.min(end);
        let begin = std::mem::replace(&mut start, end);
        (within.start < within.end).then(|| (child, within.start - begin..within.end - begin))
    })
}
