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
use crate::resp::turns::{CarriedCommands, KeyTurn, OfferedCommands, TurnNews};
use crate::resp::work::{Asked, WorkContext};

/// Most commands that one carries out beside its own.
const CARRIED_MAX: usize = 255;
/// One that misses nodes of more bytes goes alone.
const MISSING_BYTES_MAX: u64 = 64 << 10;

/// What a command has to do with others on the same structure.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// It may be carried out by another one, and carry out others.
    is_open: bool,
    /// Of its own commands.
    own: RunProgress,
    carried: Vec<Carried>,
    /// What it was told while it waited.
    news: Option<TurnNews>,
}

#[derive(Clone, Debug)]
struct Carried {
    commands: Arc<CarriedCommands>,
    progress: RunProgress,
    /// For the next one there is no room here: it and those behind it go on by themselves.
    has_ended: bool,
}

/// How far the commands of one client have come, which follow each other.
#[derive(Clone, Debug, Default)]
struct RunProgress {
    /// How many were carried out.
    done: usize,
    /// Their replies.
    said: Vec<u8>,
}

/// What came of a command of a group.
enum CommandOutcome {
    Done,
    /// It misses nodes.
    Misses(Vec<WantedNode>),
    /// For what it makes or answers there is no room in the group.
    TooLong,
}

/// Commands of one client, and whose they are.
struct Run<'a> {
    commands: &'a [Arc<DataCommand>],
    settings: CallSettings,
    /// They are those of the command that has the turn.
    is_own: bool,
}

/// What came of the commands of one client.
#[derive(Default)]
struct RunOutcome {
    missing: Vec<WantedNode>,
    /// For the next one there is no room in the group.
    is_too_long: bool,
}

impl Carried {
    fn is_over(&self) -> bool {
        self.has_ended || self.progress.done == self.commands.offered().commands.len()
    }
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
        commands: &[Arc<DataCommand>],
        settings: CallSettings,
        room_bytes: u64,
    ) -> Option<OfferedCommands> {
        self.is_open.then(|| OfferedCommands { key: key.clone(), commands: commands.to_vec(), settings, room_bytes })
    }

    /// Takes along who waits.
    pub(super) fn gather(&mut self, turn: &KeyTurn, key: &Key) {
        if self.is_open {
            let has: usize = self.carried.iter().map(|one| one.commands.offered().commands.len()).sum();
            let new = turn.carry(key, CARRIED_MAX.saturating_sub(has));
            let progress = RunProgress::default();
            self.carried.extend(new.into_iter().map(|commands| Carried {
                commands,
                progress: progress.clone(),
                has_ended: false,
            }));
        }
    }

    /// Bytes of records and replies for which those have room that are carried out.
    pub(super) fn room_bytes(&self) -> u64 {
        self.carried.iter().map(|one| one.commands.offered().room_bytes).sum()
    }

    /// Whether others are carried out with it, or were to be.
    pub(super) fn is_under_way(&self) -> bool {
        self.has_carried() || self.own.done > 0
    }

    /// Whether others are carried out.
    pub(super) fn has_carried(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Bytes of the replies that there are.
    pub(super) fn said_bytes(&self) -> usize {
        self.carried.iter().map(|one| &one.progress).chain([&self.own]).map(|progress| progress.said.len()).sum()
    }

    /// It begins anew: nothing has been carried out.
    pub(super) fn begin(&mut self) {
        self.own = RunProgress::default();
        for one in &mut self.carried {
            (one.progress, one.has_ended) = Default::default();
        }
    }

    /// It goes on alone, and so do the others.
    pub(super) fn disband(&mut self) {
        self.carried.clear();
        self.is_open = false;
    }

    /// What they do is being written.
    pub(super) fn begin_write(&self) {
        self.carried.iter().for_each(|one| one.commands.begin_write());
    }

    /// None of it was written.
    pub(super) fn undo_write(&self) {
        self.carried.iter().for_each(|one| one.commands.undo_write());
    }

    /// All have been carried out; how many those are.
    pub(super) fn end(&mut self) -> u64 {
        let mut commands = 0;
        for Carried { commands: carried, progress: RunProgress { done, said }, .. } in self.carried.drain(..) {
            carried.end(said, done);
            commands += done as u64;
        }
        commands
    }

    /// All have failed alike: `said` is the reply to each command.
    pub(super) fn fail(&mut self, said: &[u8]) {
        for one in self.carried.drain(..) {
            let commands = one.commands.offered().commands.len();
            one.commands.end(said.repeat(commands), commands);
        }
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
    /// Carries out its commands and those that it has taken along. Those that miss nodes are undone
    /// and wait until the nodes of all have been read.
    pub(super) fn run_group(&mut self, context: &WorkContext<'_>, asked: &mut Asked) -> Progress {
        let (mut missing, mut seen_bytes) = (Vec::<WantedNode>::new(), 0);
        let mut progress = std::mem::take(&mut self.contention.group.own);
        let commands = self.commands.clone();
        let run = Run { commands: &commands, settings: self.settings, is_own: true };
        // As long as there are no nodes, all miss the same ones.
        let knows_nodes = self.overlay.has_nodes();
        let outcome = self.run_commands(&run, knows_nodes, &mut progress, &mut seen_bytes);
        self.contention.group.own = progress;
        if !outcome.missing.is_empty() && !knows_nodes {
            if bytes_of(&outcome.missing) > MISSING_BYTES_MAX {
                self.contention.group.disband();
            }
            return self.read_for_group(outcome.missing, context, asked);
        }
        missing.extend(outcome.missing);
        for at in 0..self.contention.group.carried.len() {
            if seen_bytes > SEEN_BYTES {
                break;
            }
            missing.extend(self.run_carried(at, &mut seen_bytes));
        }
        // Those of which nothing was done here go on by themselves.
        self.contention.group.carried.retain(|one| !(one.has_ended && one.progress.done == 0));
        if missing.is_empty() && !self.is_group_over() {
            return self.let_others_go_on(asked);
        }
        self.read_for_group(missing, context, asked)
    }

    fn is_group_over(&self) -> bool {
        let group = &self.contention.group;
        group.own.done == self.commands.len() && group.carried.iter().all(Carried::is_over)
    }

    /// Goes on with commands that were taken along; the nodes that they miss.
    fn run_carried(&mut self, at: usize, seen_bytes: &mut usize) -> Vec<WantedNode> {
        let Some(one) = self.contention.group.carried.get_mut(at).filter(|one| !one.is_over()) else {
            return Vec::new();
        };
        let (carried, mut progress) = (Arc::clone(&one.commands), std::mem::take(&mut one.progress));
        let OfferedCommands { commands, settings, .. } = carried.offered();
        let run = Run { commands, settings: *settings, is_own: false };
        let outcome = self.run_commands(&run, true, &mut progress, seen_bytes);
        if let Some(one) = self.contention.group.carried.get_mut(at) {
            (one.progress, one.has_ended) = (progress, outcome.is_too_long);
        }
        outcome.missing
    }

    /// Carries out commands of one client in their order until one misses nodes, or for one there
    /// is no room. Those behind one that misses nodes only say which they would miss.
    fn run_commands(
        &mut self,
        run: &Run<'_>,
        looks_ahead: bool,
        progress: &mut RunProgress,
        seen_bytes: &mut usize,
    ) -> RunOutcome {
        let mut outcome = RunOutcome::default();
        while let Some(command) = run.commands.get(progress.done) {
            if *seen_bytes > SEEN_BYTES && progress.done > 0 {
                return outcome;
            }
            match self.run_one(command, (run, progress), seen_bytes) {
                (CommandOutcome::Done, said) => progress.said.extend_from_slice(&said),
                (CommandOutcome::TooLong, said) if run.is_own => progress.said.extend_from_slice(&said),
                (CommandOutcome::Misses(nodes), _) if bytes_of(&nodes) <= MISSING_BYTES_MAX || run.is_own => {
                    outcome.missing = nodes;
                    break;
                }
                (CommandOutcome::TooLong | CommandOutcome::Misses(_), _) => {
                    outcome.is_too_long = true;
                    return outcome;
                }
            }
            progress.done += 1;
        }
        if looks_ahead && !outcome.missing.is_empty() {
            for command in run.commands.get(progress.done + 1..).unwrap_or_default() {
                outcome.missing.extend(self.look_ahead(command, run.settings, seen_bytes));
            }
        }
        outcome
    }

    /// The nodes that a command would miss, as far as can be told before others were carried out.
    fn look_ahead(&mut self, command: &DataCommand, settings: CallSettings, seen_bytes: &mut usize) -> Vec<WantedNode> {
        if *seen_bytes > SEEN_BYTES {
            return Vec::new();
        }
        let run = carry_out(command, lot(settings, 0, 0), &mut self.overlay, &mut Vec::new());
        self.overlay.roll_back();
        self.overlay.end_command();
        *seen_bytes += run.seen_bytes;
        if bytes_of(&run.missing) > MISSING_BYTES_MAX { Vec::new() } else { run.missing }
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
        self.run.said = std::mem::take(&mut self.contention.group.own.said);
        self.finish(context, asked)
    }

    /// Carries out the next one of these; its reply.
    fn run_one(
        &mut self,
        command: &DataCommand,
        (run, progress): (&Run<'_>, &RunProgress),
        seen_bytes: &mut usize,
    ) -> (CommandOutcome, Vec<u8>) {
        // The command itself may have what it may have alone; others have the room that is left.
        let (bytes_max, room_bytes) = (self.bytes_max(), self.has_bytes() + self.keys_bytes());
        let made_bytes = self.made_bytes() + progress.said.len() as u64;
        let left = room_bytes.saturating_sub(made_bytes);
        let reply_bytes_max = if run.is_own { bytes_max } else { bytes_max.min(left) };
        let mut said = Vec::new();
        let settings = lot(run.settings, progress.done, reply_bytes_max);
        let one = carry_out(command, settings, &mut self.overlay, &mut said);
        said.shrink_to_fit();
        *seen_bytes += one.seen_bytes + said.len();
        let is_too_long = made_bytes + said.len() as u64 > room_bytes;
        // With more room it may have another answer than an error.
        let is_short_of_room = !run.is_own && (is_too_long || (!one.is_done && reply_bytes_max < bytes_max));
        if !one.is_done || !one.missing.is_empty() || is_short_of_room {
            self.overlay.roll_back();
        }
        if !one.missing.is_empty() {
            return (CommandOutcome::Misses(one.missing), said);
        }
        self.overlay.end_command();
        (if is_short_of_room { CommandOutcome::TooLong } else { CommandOutcome::Done }, said)
    }
}

fn bytes_of(nodes: &[WantedNode]) -> u64 {
    nodes.iter().map(|node| node.bytes).sum()
}

#[cfg(test)]
mod tests {
    use stratakv_base::{CollectionId, Wall};
    use stratakv_protocol::resp::Version;

    use super::*;
    use crate::resp::arguments::{Arguments, Gathered};
    use crate::resp::turns::{KeyTurns, TurnGrant, TurnWaiter};

    fn offered(key: &Key, commands: usize) -> OfferedCommands {
        let gathered = Gathered::default();
        let command = Arc::new(DataCommand::new(|_, _, _| Ok(()), &Arguments::new(&gathered, b"", &[])));
        let (version, wall) = (Version::default(), Wall(1));
        let settings = CallSettings { version, wall, value_bytes_max: 1, reply_bytes_max: 1, seed: 1 };
        OfferedCommands { key: key.clone(), commands: vec![command; commands], settings, room_bytes: 10 }
    }

    /// A group of one that took along these numbers of commands, and those who wait for them.
    fn group_of(numbers: &[usize]) -> (Arc<KeyTurns>, Group, Vec<KeyTurn>) {
        let (turns, key) = (Arc::new(KeyTurns::default()), Key::new(CollectionId::default(), b"k").unwrap());
        let waiter = TurnWaiter::default();
        let (first, _) = turns.take(1, waiter, Some(offered(&key, 1)));
        let mut waiting: Vec<KeyTurn> =
            numbers.iter().map(|number| turns.take(1, waiter, Some(offered(&key, *number))).0).collect();
        let mut group = Group { is_open: true, ..Group::default() };
        group.gather(&first, &key);
        waiting.insert(0, first);
        (turns, group, waiting)
    }

    fn news(turns: &KeyTurns) -> Vec<TurnNews> {
        turns.take_granted(0).0.into_iter().map(|TurnGrant { news, .. }| news).collect()
    }

    #[test]
    fn each_command_is_told_an_error_that_all_have() {
        let (turns, mut group, _waiting) = group_of(&[2, 1]);
        group.fail(b"-ERR no\r\n");
        let told = |times: usize| TurnNews::Carried { said: b"-ERR no\r\n".repeat(times), commands: times };
        assert_eq!(news(&turns), [told(2), told(1)]);
    }

    #[test]
    fn commands_that_were_left_out_are_told_apart_from_those_that_were_carried_out() {
        let (turns, mut group, _waiting) = group_of(&[3, 200, 100]);
        assert_eq!(group.carried.len(), 2, "beyond {CARRIED_MAX} commands others wait");
        group.carried[0].progress = RunProgress { done: 1, said: b":1\r\n".to_vec() };
        group.carried[0].has_ended = true;
        group.carried[1].progress = RunProgress { done: 200, said: b":1\r\n".repeat(200) };
        assert!(group.carried.iter().all(Carried::is_over));
        assert_eq!(group.end(), 201);
        let told = |times: usize| TurnNews::Carried { said: b":1\r\n".repeat(times), commands: times };
        assert_eq!(news(&turns), [told(1), told(200)]);
    }
}
