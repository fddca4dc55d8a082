//! Nodes by number, in chunks, so that growth never moves what is there.

use super::node::{Node, allocation_bytes};

/// Slots in one chunk: 8 KiB of them.
const CHUNK_SLOTS: usize = 512;

struct Chunk {
    nodes: Box<[Node]>,
    free: Vec<u16>,
}

/// Owns a tree's nodes.
#[derive(Default)]
pub(super) struct Arena {
    /// `None` where all slots of a chunk came free.
    chunks: Vec<Option<Chunk>>,
    /// Chunks with a free slot.
    open: Vec<u32>,
    vacant: Vec<u32>,
    node_bytes: usize,
    nodes: usize,
}

impl Chunk {
    fn new() -> Chunk {
        let nodes = std::iter::repeat_with(Node::default).take(CHUNK_SLOTS).collect();
        Chunk { nodes, free: (0..CHUNK_SLOTS as u16).rev().collect() }
    }
}

fn position(id: u32) -> (usize, usize) {
    (id as usize / CHUNK_SLOTS, id as usize % CHUNK_SLOTS)
}

impl Arena {
    /// The node `id`; panics if there is none.
    pub fn get(&self, id: u32) -> &Node {
        let (chunk, slot) = position(id);
        match &self.chunks[chunk] {
            Some(chunk) => &chunk.nodes[slot],
            None => panic!("tree node {id} was freed"),
        }
    }

    /// The node `id`, if there is one.
    pub fn find(&self, id: u32) -> Option<&Node> {
        let (chunk, slot) = position(id);
        let node = &self.chunks.get(chunk)?.as_ref()?.nodes[slot];
        (!node.is_vacant()).then_some(node)
    }

    fn slot(&mut self, id: u32) -> &mut Node {
        let (chunk, slot) = position(id);
        match &mut self.chunks[chunk] {
            Some(chunk) => &mut chunk.nodes[slot],
            None => panic!("tree node {id} was freed"),
        }
    }

    /// Changes the node `id`.
    pub fn edit<T>(&mut self, id: u32, edit: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.slot(id);
        let before = node.footprint_bytes();
        let outcome = edit(node);
        let after = node.footprint_bytes();
        self.node_bytes = self.node_bytes - before + after;
        outcome
    }

    /// Adds a node and says its number.
    pub fn add(&mut self, node: Node) -> u32 {
        let number = match self.open.last() {
            Some(number) => *number,
            None => self.add_chunk(),
        };
        let Some(chunk) = &mut self.chunks[number as usize] else { panic!("chunk {number} of tree nodes was freed") };
        let Some(slot) = chunk.free.pop() else { panic!("chunk {number} of tree nodes has no free slot") };
        if chunk.free.is_empty() {
            self.open.pop();
        }
        self.node_bytes += node.footprint_bytes();
        self.nodes += 1;
        chunk.nodes[usize::from(slot)] = node;
        number * CHUNK_SLOTS as u32 + u32::from(slot)
    }

    fn add_chunk(&mut self) -> u32 {
        let number = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        if number as usize == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number as usize] = Some(Chunk::new());
        self.open.push(number);
        number
    }

    /// Frees the node `id`.
    pub fn remove(&mut self, id: u32) {
        let node = std::mem::take(self.slot(id));
        self.node_bytes -= node.footprint_bytes();
        self.nodes -= 1;
        let (number, slot) = position(id);
        let Some(chunk) = &mut self.chunks[number] else { return };
        chunk.free.push(slot as u16);
        if chunk.free.len() == 1 {
            self.open.push(number as u32);
        } else if chunk.free.len() == CHUNK_SLOTS {
            self.chunks[number] = None;
            self.open.retain(|open| *open != number as u32);
            self.vacant.push(number as u32);
        }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.chunks.iter().flatten().flat_map(|chunk| chunk.nodes.iter()).filter(|node| !node.is_vacant())
    }

    /// Bytes of nodes alone.
    pub fn node_bytes(&self) -> usize {
        self.node_bytes
    }

    /// Bytes of nodes and of the accounting about them.
    pub fn footprint_bytes(&self) -> usize {
        let chunk_bytes = allocation_bytes(CHUNK_SLOTS * size_of::<Node>()) + allocation_bytes(CHUNK_SLOTS * 2);
        let chunks = self.chunks.iter().flatten().count() * chunk_bytes;
        let lists =
            self.chunks.capacity() * size_of::<Option<Chunk>>() + (self.open.capacity() + self.vacant.capacity()) * 4;
        self.node_bytes + chunks + allocation_bytes(lists)
    }
}
