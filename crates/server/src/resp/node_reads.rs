//! Nodes that a command waits for: asked for side by side, and told apart by the names in them.

use std::collections::{HashMap, VecDeque};

use stratakv_base::Key;
use stratakv_engine::{Operation, Record, RecordPart};
use stratakv_structures::tree::NodeName;

use super::nodes::split_node_key;
use super::overlay::{ENTRY_BYTES, Overlay};
use super::work::Asked;
use crate::connection::Target;

/// Nodes of one command that are read at once.
const IN_FLIGHT_MAX: usize = 64;

/// A node that a command misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedNode {
    pub(crate) key: Key,
    pub(crate) name: NodeName,
    pub(crate) bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeReads {
    queue: VecDeque<WantedNode>,
    asked: HashMap<(u64, u64), WantedNode>,
    in_flight: usize,
    /// How often a node was not there.
    pub(crate) losses: u32,
}

impl NodeReads {
    pub(crate) fn new(wanted: Vec<WantedNode>, losses: u32) -> NodeReads {
        NodeReads { queue: wanted.into(), losses, ..NodeReads::default() }
    }

    /// Bytes that the nodes will take.
    pub(crate) fn bytes(&self) -> u64 {
        self.queue.iter().map(|wanted| wanted.bytes.saturating_add(ENTRY_BYTES as u64)).sum()
    }

    /// Asks for some; false: nothing is under way.
    pub(crate) fn ask(&mut self, asked: &mut Asked) -> bool {
        while self.in_flight < IN_FLIGHT_MAX {
            let Some(wanted) = self.queue.pop_front() else { break };
            let part = RecordPart::Range { start: 0, len: wanted.bytes };
            asked.push((Target::Key, Operation::Get { key: wanted.key.clone(), part }));
            self.asked.insert((wanted.name.id, wanted.name.number), wanted);
            self.in_flight += 1;
        }
        self.in_flight > 0
    }

    /// A node came, or was not there.
    pub(crate) fn came(&mut self, record: Option<Record>, overlay: &mut Overlay) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(image) = record.map(|record| record.value.to_bytes()) else { return };
        let name = NodeName::of(&image);
        let wanted = name.and_then(|name| self.asked.remove(&(name.id, name.number)));
        if let Some((user, name)) = wanted.as_ref().and_then(|wanted| split_node_key(&wanted.key)) {
            overlay.insert_node(user, name, image);
        }
    }

    /// Whether all that were asked for were there.
    pub(crate) fn are_whole(&self) -> bool {
        self.asked.is_empty()
    }
}
