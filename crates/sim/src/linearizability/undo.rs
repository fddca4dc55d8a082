//! What a crash may take back: the writes since a component was durable as a whole, newest first,
//! as lists that share their tails.

use std::collections::HashMap;

use smallvec::SmallVec;
use stratakv_base::Level;

use super::register::{Register, Registers};

/// A list; equal lists have equal numbers.
pub(super) type UndoId = u32;

/// Nothing to take back.
pub(super) const NOTHING: UndoId = 0;

/// What a write, or a get, means for a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    /// A call of the component wrote.
    Wrote(u32),
    /// A get showed what a write of this level left.
    Showed(Level),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cell {
    older: UndoId,
    deed: Deed,
    /// The registers it touched, as they were before.
    before: SmallVec<[(usize, Register); 1]>,
}

/// All lists of a search.
#[derive(Debug, Default)]
pub(super) struct Undo {
    cells: Vec<Cell>,
    numbers: HashMap<Cell, UndoId>,
}

/// One way a crash can turn out.
struct Fork {
    registers: Registers,
    kept_keys: SmallVec<[bool; 1]>,
    kept: Vec<UndoId>,
}

impl Undo {
    fn cell(&self, list: UndoId) -> Option<&Cell> {
        self.cells.get((list as usize).checked_sub(1)?)
    }

    fn push(&mut self, cell: Cell) -> UndoId {
        if let Some(known) = self.numbers.get(&cell) {
            return *known;
        }
        self.cells.push(cell.clone());
        let number = self.cells.len() as UndoId;
        self.numbers.insert(cell, number);
        number
    }

    /// After a deed that changed `before` into `after`.
    pub(super) fn wrote(&mut self, older: UndoId, call: u32, before: &Registers, after: &Registers) -> UndoId {
        let changed = before.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after);
        let before = changed.map(|(key, (before, _))| (key, *before)).collect();
        self.push(Cell { older, deed: Deed::Wrote(call), before })
    }

    /// The call that last wrote a key, if it can be taken back and was not shown since.
    pub(super) fn writer(&self, mut list: UndoId, key: usize) -> Option<u32> {
        while let Some(cell) = self.cell(list) {
            if cell.before.iter().any(|(touched, _)| *touched == key) {
                return if let Deed::Wrote(call) = cell.deed { Some(call) } else { None };
            }
            list = cell.older;
        }
        None
    }

    /// After a get of a key showed what a write of this level left.
    pub(super) fn showed(&mut self, older: UndoId, key: usize, register: Register, level: Level) -> UndoId {
        self.push(Cell { older, deed: Deed::Showed(level), before: [(key, register)].into_iter().collect() })
    }

    /// What a crash may leave, given which deeds it cannot undo, and the rest of the list. Takes at
    /// most `forks_max` ways, else `None`.
    pub(super) fn crash(
        &mut self,
        registers: &Registers,
        list: UndoId,
        keeps_list: bool,
        forks_max: u64,
        survives: impl Fn(Deed) -> bool,
    ) -> Option<Vec<(Registers, UndoId)>> {
        let kept_keys = registers.iter().map(|_| false).collect();
        let mut forks = vec![Fork { registers: registers.clone(), kept_keys, kept: Vec::new() }];
        let mut at = list;
        while let Some(cell) = self.cell(at) {
            let mut dropped = Vec::new();
            for fork in &mut forks {
                let mut touched = cell.before.iter().map(|(key, _)| *key);
                if !survives(cell.deed) && !touched.any(|key| fork.kept_keys[key]) {
                    let mut without = fork.registers.clone();
                    cell.before.iter().for_each(|(key, before)| without[*key] = *before);
                    dropped.push(Fork {
                        registers: without,
                        kept_keys: fork.kept_keys.clone(),
                        kept: fork.kept.clone(),
                    });
                }
                cell.before.iter().for_each(|(key, _)| fork.kept_keys[*key] = true);
                if keeps_list {
                    fork.kept.push(at);
                }
            }
            forks.append(&mut dropped);
            if forks.len() as u64 > forks_max {
                return None;
            }
            at = cell.older;
        }
        let left = forks.into_iter().map(|fork| (fork.registers, self.rebuilt(&fork.kept))).collect();
        Some(left)
    }

    fn rebuilt(&mut self, kept: &[UndoId]) -> UndoId {
        kept.iter().rev().fold(NOTHING, |older, list| match self.cell(*list).cloned() {
            Some(cell) => self.push(Cell { older, ..cell }),
            None => older,
        })
    }
}
