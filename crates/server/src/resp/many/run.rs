//! Commands of one client on one long structure that it sent without waiting for replies: those
//! that come before the first one has begun are carried out with it, in their order.

use std::sync::Arc;

use stratakv_base::Key;

use super::{ManyWork, Stage};
use crate::resp::data::{CallSettings, DataCommand, Progress};
use crate::resp::work::{Asked, WorkContext};

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

    /// Whether several commands of one client are to be one.
    pub(super) fn is_run(&self) -> bool {
        self.replies() > 1 && !self.contention.one_by_one
    }

    /// Together they need more room than they have, or the store has refused them: some of them may
    /// go through alone. Nothing of them was written.
    pub(super) fn go_one_by_one(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.contention.one_by_one = true;
        self.contention.group.disband();
        self.begin(context, asked)
    }

    /// The commands are carried out, or the first one of those that go one by one: their replies.
    pub(super) fn ended(&mut self, said: Vec<u8>, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match self.goes_on() {
            true => self.go_on_behind(&said, context, asked),
            false if self.said_before.is_empty() => Progress::Ended(said),
            false => Progress::Ended([&self.said_before[..], &said].concat()),
        }
    }

    /// The commands are not carried out, or the first one of those that go one by one is not: an
    /// error.
    pub(super) fn failed(&mut self, said: &[u8], context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        match self.goes_on() {
            true => self.go_on_behind(said, context, asked),
            false => Progress::Ended(self.refused(said)),
        }
    }

    fn goes_on(&self) -> bool {
        self.contention.one_by_one && self.replies() > 1
    }

    fn go_on_behind(&mut self, said: &[u8], context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.end_first(said);
        self.begin(context, asked)
    }

    /// Replies to commands that are over, while others go on. They can be sent if no answer comes
    /// before.
    pub(crate) fn take_said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.said_before)
    }

    fn end_first(&mut self, said: &[u8]) {
        self.said_before.extend_from_slice(said);
        self.commands.remove(0);
        (self.contention.attempts, self.nodes.losses) = (0, 0);
    }

    /// Refuses the first of several commands, and gives back what it holds; room for the others,
    /// which go on one by one. `None`: there is one command.
    pub(crate) fn refuse_first(&mut self, said: &[u8]) -> Option<u64> {
        if self.replies() < 2 {
            return None;
        }
        self.contention.one_by_one = true;
        self.contention.group.disband();
        self.end_first(said);
        self.shed();
        Some(self.first_bytes())
    }

    /// The replies, if each command that is left has this one.
    pub(crate) fn refused(&self, said: &[u8]) -> Vec<u8> {
        [&self.said_before[..], &said.repeat(self.replies())].concat()
    }
}
