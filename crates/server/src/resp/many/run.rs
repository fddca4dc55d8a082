//! Commands of one client on one long structure that it sent without waiting for replies: those
//! that come before the first one has begun are carried out with it, in their order.

use std::sync::Arc;

use stratakv_base::Key;

use super::{ManyWork, Stage};
use crate::resp::data::{CallSettings, DataCommand};

/// Most commands of one client on one structure that are carried out as one, those that it sent
/// without waiting for replies.
const RUN_MAX: usize = 64;
/// Room that each of them brings behind the first: for two leaves that it reads and writes.
const JOINED_BYTES: u64 = 12 << 10;
/// One with longer arguments waits for those before it.
const JOINED_ARGUMENTS_MAX: usize = 4 << 10;

impl ManyWork {
    /// Room that commands have brought which came behind the first one of a run.
    pub(super) fn joined_bytes(&self) -> u64 {
        let is_run = self.transaction.is_none() && self.keys.len() == 1;
        if is_run { JOINED_BYTES * (self.commands.len() as u64).saturating_sub(1) } else { 0 }
    }

    /// How many commands there are which have a reply each.
    pub(crate) fn replies(&self) -> usize {
        if self.transaction.is_some() { 1 } else { self.commands.len() }
    }

    /// Whether a command of the same client on this key may be carried out as a part of it. What
    /// of its room and its bytes is to be counted then.
    pub(crate) fn has_place_for(&self, key: &Key, command: &DataCommand, settings: CallSettings) -> Option<u64> {
        let is_waiting = matches!(self.stage, Stage::WaitingForTurn | Stage::Reading);
        let is_fresh = self.contention.attempts == 0 && self.nodes.losses == 0 && self.room_bytes.is_none();
        let group = &self.contention.group;
        let is_open = self.contention.takes_turn && group.is_open() && !group.has_carried();
        let is_short = self.commands.len() < RUN_MAX && command.held_bytes() <= JOINED_ARGUMENTS_MAX;
        let may = is_waiting && is_fresh && is_open && is_short && settings.version == self.settings.version;
        (may && matches!(&self.keys[..], [own] if own == key)).then(|| JOINED_BYTES + command.held_bytes() as u64)
    }

    /// Takes a command along that has a place here; false: another one has begun with it.
    pub(crate) fn join(&mut self, command: Arc<DataCommand>) -> bool {
        let turn = self.contention.turns.last();
        if self.stage == Stage::WaitingForTurn && !turn.is_some_and(|turn| turn.offer_more(&command, JOINED_BYTES)) {
            return false;
        }
        self.commands.push(command);
        true
    }
}
