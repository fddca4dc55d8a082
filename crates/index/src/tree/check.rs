//! Verifying a tree's structure.

use super::draft::push_group;
use super::node::{COUNT_MAX, GROUP_MAX, Node, View};
use super::{Tree, arena::Arena};

struct Walk<'a> {
    arena: &'a Arena,
    keys: usize,
    nodes: usize,
}

pub(super) fn check(tree: &Tree) -> Result<(), String> {
    let mut walk = Walk { arena: &tree.arena, keys: 0, nodes: 0 };
    let level = tree.arena.find(tree.root).ok_or("the root is missing")?.level();
    walk.node(tree.root, level, b"", None)?;
    let node_bytes: usize = tree.arena.nodes().map(Node::footprint_bytes).sum();
    for (what, found, recorded) in [
        ("keys", walk.keys, tree.len),
        ("nodes", walk.nodes, tree.arena.len()),
        ("nodes in the arena", tree.arena.nodes().count(), tree.arena.len()),
        ("bytes of nodes", node_bytes, tree.arena.node_bytes()),
    ] {
        if found != recorded {
            return Err(format!("{found} {what} found, {recorded} recorded"));
        }
    }
    Ok(())
}

impl Walk<'_> {
    /// Checks the node `id`, whose keys lie in `least..end`.
    fn node(&mut self, id: u32, level: u8, least: &[u8], end: Option<&[u8]>) -> Result<(), String> {
        self.nodes += 1;
        let fault = |what: &str| Err(format!("node {id} at level {level}: {what}"));
        let Some(node) = self.arena.find(id) else { return fault("is missing") };
        if node.level() != level {
            return fault("is of another level");
        }
        if node.is_over() || node.count() > COUNT_MAX {
            return fault("holds too much");
        }
        if level > 0 && node.count() == 0 {
            return fault("has no children");
        }
        let keys = keys(node).map_err(|what| format!("node {id} at level {level}: {what}"))?;
        if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            return fault("keys do not ascend");
        }
        if level > 0 && keys.first().is_none_or(|first| first != least) {
            return fault("the first key is not the one its parent has for it");
        }
        if keys.iter().any(|key| key.as_slice() < least || end.is_some_and(|end| key.as_slice() >= end)) {
            return fault("a key lies outside the range its parent gives it");
        }
        let view = node.view();
        for (rank, key) in keys.iter().enumerate() {
            let addr = view.search(key);
            if !addr.found || addr.rank != rank {
                return fault("a search does not find a key that is there");
            }
        }
        if level == 0 {
            self.keys += keys.len();
            return Ok(());
        }
        for (rank, key) in keys.iter().enumerate() {
            let end = keys.get(rank + 1).map(Vec::as_slice).or(end);
            self.node(view.child(rank), level - 1, key, end)?;
        }
        Ok(())
    }
}

/// A node's keys, decoded.
fn keys(node: &Node) -> Result<Vec<Vec<u8>>, String> {
    let (view, mut keys, mut key) = (node.view(), Vec::new(), Vec::new());
    for group in 0..view.groups {
        if view.ranks(group).is_empty() || view.ranks(group).len() > GROUP_MAX || view.ranks(group).start != keys.len()
        {
            return Err(format!("group {group} holds ranks {:?}", view.ranks(group)));
        }
        view.each_in_group(group, &mut key, |_, key| {
            keys.push(key.to_vec());
            true
        });
        if !is_canonical(view, group, &keys) {
            return Err(format!("group {group} is not encoded as its keys would be together"));
        }
    }
    if keys.len() != view.count {
        Err(format!("{} keys of {} are in groups", keys.len(), view.count))
    } else {
        Ok(keys)
    }
}

/// Whether a group has the one form that its keys have, however they came and whichever went:
/// searches rely on what a key shares with the one before being all that they share.
fn is_canonical(view: View<'_>, group: usize, keys: &[Vec<u8>]) -> bool {
    let (mut restarts, mut encoded) = (Vec::new(), Vec::new());
    let first = view.ranks(group).start;
    push_group(&mut restarts, &mut encoded, first, keys[first..].iter().map(|key| &key[view.prefix.len()..]));
    encoded == view.keys[view.extent(group)] && restarts.iter().all(|fresh| fresh.head == view.restart(group).head)
}
