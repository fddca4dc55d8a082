//! Commands on one long structure that wait for each other anyway: whoever has the turn carries out
//! those behind it as well. They read the same nodes once, and write them as one.
//!
//! Each keeps its own reply, and what one changed before it met an error is undone. Those that
//! write gather while others write; those that only read, while the root is read.

use std::sync::Arc;

use stratakv_base::Key;
use stratakv_engine::Error;

use super::{ManyWork, REPLY_BYTES, SEEN_BYTES, carry_out, lot};
use crate::resp::data::{CallSettings, DataCommand, Progress};
use crate::resp::node_reads::{NodeReads, WantedNode};
use crate::resp::turns::{CarriedCommand, KeyTurn, OfferedCommand, TurnNews};
use crate::resp::work::{Asked, WorkContext};

/// Most commands that one carries out beside its own.
const CARRIED_MAX: usize = 63;
/// One that misses nodes of more bytes goes alone.
const MISSING_BYTES_MAX: u64 = 64 << 10;

/// What a command has to do with others on the same structure.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// It may be carried out by another one, and carry out others.
    is_open: bool,
    /// The reply to its own command.
    reply: Option<Vec<u8>>,
    carried: Vec<Carried>,
    /// What it was told while it waited.
    news: Option<TurnNews>,
}

#[derive(Clone, Debug)]
struct Carried {
    command: Arc<CarriedCommand>,
    reply: Option<Vec<u8>>,
}

/// What came of a command of a group.
enum CommandOutcome {
    Done,
    /// It misses nodes.
    Misses(Vec<WantedNode>),
    /// For what it makes or answers there is no room in the group.
    TooLong,
}

impl Group {
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// What others may carry out.
    pub(super) fn offered(
        &self,
        key: &Key,
        command: &Arc<DataCommand>,
        settings: CallSettings,
        room_bytes: u64,
    ) -> Option<OfferedCommand> {
        self.is_open.then(|| OfferedCommand { key: key.clone(), command: Arc::clone(command), settings, room_bytes })
    }

    /// Takes along who waits.
    pub(super) fn gather(&mut self, turn: &KeyTurn, key: &Key) {
        if self.is_open {
            let new = turn.carry(key, CARRIED_MAX.saturating_sub(self.carried.len()));
            self.carried.extend(new.into_iter().map(|command| Carried { command, reply: None }));
        }
    }

    /// Bytes of records and replies for which those have room that are carried out.
    pub(super) fn room_bytes(&self) -> u64 {
        self.carried.iter().map(|one| one.command.offered().room_bytes).sum()
    }

    /// Whether others are carried out with it, or were to be.
    pub(super) fn is_under_way(&self) -> bool {
        self.has_carried() || self.reply.is_some()
    }

    /// Whether others are carried out.
    pub(super) fn has_carried(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Bytes of the replies that there are.
    pub(super) fn said_bytes(&self) -> usize {
        let replies = self.carried.iter().map(|one| &one.reply).chain([&self.reply]);
        replies.flatten().map(Vec::len).sum()
    }

    /// It begins anew: nothing has been carried out.
    pub(super) fn begin(&mut self) {
        self.reply = None;
        self.carried.iter_mut().for_each(|one| one.reply = None);
    }

    /// It goes on alone, and so do the others.
    pub(super) fn disband(&mut self) {
        self.carried.clear();
        self.is_open = false;
    }

    /// What they do is being written.
    pub(super) fn begin_write(&self) {
        self.carried.iter().for_each(|one| one.command.begin_write());
    }

    /// None of it was written.
    pub(super) fn undo_write(&self) {
        self.carried.iter().for_each(|one| one.command.undo_write());
    }

    /// All have been carried out; how many those are.
    pub(super) fn end(&mut self) -> u64 {
        let replies = self.carried.drain(..).filter_map(|one| one.reply.map(|reply| one.command.end(reply)));
        replies.count() as u64
    }

    /// All have failed alike: `said` is the reply.
    pub(super) fn fail(&mut self, said: &[u8]) {
        self.carried.drain(..).for_each(|one| one.command.end(said.to_vec()));
    }

    pub(super) fn hear(&mut self, news: TurnNews) {
        self.news = Some(news);
    }

    pub(super) fn take_news(&mut self) -> Option<TurnNews> {
        self.news.take()
    }
}

/// Whether nothing was written because of this error, which another one of the group may have
/// brought about: then each is to try for itself.
pub(super) fn leaves_nothing(error: &Error) -> bool {
    matches!(
        error,
        Error::Full(_) | Error::MemoryFull { .. } | Error::ValueTooLarge { .. } | Error::Busy | Error::Cancelled
    )
}

impl ManyWork {
    /// Carries out the command and those that it has taken along. Those that miss nodes are undone
    /// and wait until the nodes of all have been read.
    pub(super) fn run_group(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let (mut missing, mut seen_bytes) = (Vec::<WantedNode>::new(), 0);
        if self.contention.group.reply.is_none() {
            let (command, settings) = (Arc::clone(&self.commands[0]), self.settings);
            match self.run_one(&command, settings, 0, &mut seen_bytes) {
                (CommandOutcome::Done | CommandOutcome::TooLong, said) => self.contention.group.reply = Some(said),
                (CommandOutcome::Misses(nodes), _) => {
                    if bytes_of(&nodes) > MISSING_BYTES_MAX {
                        self.contention.group.disband();
                    }
                    // The others need some of them, too, and would be begun in vain.
                    return self.read_for_group(nodes, context, asked);
                }
            }
        }
        let mut at = 0;
        while let Some(Carried { command, reply }) = self.contention.group.carried.get(at) {
            if reply.is_some() {
                at += 1;
                continue;
            }
            let OfferedCommand { command, settings, .. } = command.offered();
            let (command, settings) = (Arc::clone(command), *settings);
            match self.run_one(&command, settings, at + 1, &mut seen_bytes) {
                (CommandOutcome::TooLong, _) => {
                    self.contention.group.carried.remove(at);
                    continue;
                }
                (CommandOutcome::Misses(nodes), _) if bytes_of(&nodes) > MISSING_BYTES_MAX => {
                    self.contention.group.carried.remove(at);
                    continue;
                }
                (CommandOutcome::Misses(nodes), _) => missing.extend(nodes),
                (CommandOutcome::Done, said) => self.contention.group.carried[at].reply = Some(said),
            }
            at += 1;
            if seen_bytes > SEEN_BYTES {
                return self.let_others_go_on(asked);
            }
        }
        self.read_for_group(missing, context, asked)
    }

    /// Reads these nodes, if there is room for them and for what has been made; without any, all
    /// have been carried out.
    fn read_for_group(
        &mut self,
        mut missing: Vec<WantedNode>,
        context: &WorkContext<'_>,
        asked: &mut Asked,
    ) -> Progress {
        missing.sort_unstable_by_key(|node| (node.name.id, node.name.number));
        missing.dedup();
        self.nodes = NodeReads::new(missing, self.nodes.losses);
        let needed = self.nodes.bytes().saturating_add(self.made_bytes() + REPLY_BYTES);
        if needed > self.has_bytes() + self.keys_bytes() && self.contention.group.has_carried() {
            self.contention.group.disband();
            return self.begin(context, asked);
        }
        match self.nodes.bytes() {
            0 => self.end_group(context, asked),
            _ => self.want_nodes(context, asked),
        }
    }

    /// All have been carried out.
    fn end_group(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        self.run.said = self.contention.group.reply.take().unwrap_or_default();
        self.finish(context, asked)
    }

    /// Carries out one of them; its reply.
    fn run_one(
        &mut self,
        command: &DataCommand,
        settings: CallSettings,
        number: usize,
        seen_bytes: &mut usize,
    ) -> (CommandOutcome, Vec<u8>) {
        // The command itself may have what it may have alone; others have the room that is left.
        let (bytes_max, room_bytes) = (self.bytes_max(), self.has_bytes() + self.keys_bytes());
        let left = room_bytes.saturating_sub(self.made_bytes());
        let reply_bytes_max = if number == 0 { bytes_max } else { bytes_max.min(left) };
        let mut said = Vec::new();
        let settings = lot(settings, number, reply_bytes_max);
        let run = carry_out(command, settings, &mut self.overlay, &mut said);
        said.shrink_to_fit();
        *seen_bytes += run.seen_bytes + said.len();
        let is_too_long = self.made_bytes() + said.len() as u64 > room_bytes;
        // With more room it may have another answer than an error.
        let is_short_of_room = number > 0 && (is_too_long || (!run.is_done && reply_bytes_max < bytes_max));
        if !run.is_done || !run.missing.is_empty() || is_short_of_room {
            self.overlay.roll_back();
        }
        if !run.missing.is_empty() {
            return (CommandOutcome::Misses(run.missing), said);
        }
        self.overlay.end_command();
        (if is_short_of_room { CommandOutcome::TooLong } else { CommandOutcome::Done }, said)
    }
}

fn bytes_of(nodes: &[WantedNode]) -> u64 {
    nodes.iter().map(|node| node.bytes).sum()
}
