//! Data commands: pure functions of the records of the keys that they name.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use stratakv_base::Key;
use stratakv_protocol::resp::number;

use super::table::CommandSpec;
use super::{Connection, Context, Handled, REQUEST_BYTES_MIN, REQUEST_SHARE};
use crate::answer::Answer;
use crate::connection::hash;
use crate::pending::{Access, PendingAnswer};
use crate::resp::commands::sort::stored_at;
use crate::resp::{
    Arguments, CallSettings, Core, DataCommand, DataWork, ManyLimits, ManyWork, RequestRefusal, Session, Work, WorkKind,
};

/// Most keys of one command or transaction: the checks of all are one write.
pub(super) const KEYS_MAX: usize = 16_384;
/// Values of the longest length that a command may hold: two that it reads, and two that it makes.
const VALUES_HELD: u64 = 4;
/// This part of the memory for clients is for what a connection holds beside its command.
const CONNECTION_SHARE: u64 = 16;

impl Connection {
    pub(super) fn data_command(
        &mut self,
        command: &CommandSpec,
        core: Core,
        a: &Arguments<'_>,
        (session, context): (&mut Session, &mut Context<'_>),
    ) -> Handled {
        let settings = self.call_settings(session, context);
        let keys = keys_of(command, a)?;
        let only_reads = command.only_reads();
        let counter = if only_reads { &context.counters.cmd_get } else { &context.counters.cmd_set };
        counter.add(1);
        let data = DataCommand::new(core, a);
        let mut writing_bytes = if only_reads { 0 } else { data.held_bytes() as u64 };
        let (first_bytes, limits) = (self.reading.first_bytes, self.many_limits(context));
        let mut reading_bytes = 0;
        let (work, access) = match <[Key; 1]>::try_from(keys) {
            Ok([key]) if context.resp.trees.has(hash(&key)) => {
                let access = if only_reads { Access::Read(hash(&key)) } else { Access::Alone(hash(&key)) };
                let data = Arc::new(data);
                if !only_reads && self.join(&key, &data, settings) {
                    context.counters.structure_commands_joined.add(1);
                    return Ok(());
                }
                let work = ManyWork::on_one_tree(data, key, settings, limits, !only_reads).in_groups();
                // What it makes has room of its own.
                (reading_bytes, writing_bytes) = (work.first_bytes(), 0);
                (WorkKind::Many(Box::new(work)), access)
            }
            Ok([key]) if only_reads => {
                let access = Access::Read(hash(&key));
                let work = DataWork::new(key, data, (settings, limits), true).with_first_bytes(first_bytes);
                reading_bytes = first_bytes;
                (WorkKind::Data(work), access)
            }
            Ok([key]) => {
                let access = Access::Alone(hash(&key));
                (WorkKind::Data(DataWork::new(key, data, (settings, limits), false)), access)
            }
            Err(keys) => {
                let work = ManyWork::new(vec![Arc::new(data)], keys, settings, limits);
                // What it makes has room of its own.
                (reading_bytes, writing_bytes) = (work.first_bytes(), 0);
                (WorkKind::Many(Box::new(work)), Access::Everything)
            }
        };
        self.begin_work(Work::new(work, session.version), access, (reading_bytes, writing_bytes), context);
        Ok(())
    }

    /// Carries a command out with the one before it, which works on the same structure and has not
    /// begun; false: it cannot be.
    fn join(&mut self, key: &Key, command: &Arc<DataCommand>, settings: CallSettings) -> bool {
        let last = self.answers.pending.back().filter(|last| !last.noreply && last.again_bytes.is_none());
        let Some(PendingAnswer { answer: Answer::Work(work), .. }) = last else { return false };
        let place =
            if let WorkKind::Many(many) = &work.kind { many.has_place_for(key, command, settings) } else { None };
        let Some(bytes) = place.filter(|_| !self.client.reply_mode.is_silent()) else { return false };
        if !self.may_take(bytes) {
            return false;
        }
        let Some(last) = self.answers.pending.back_mut() else { return false };
        let Answer::Work(work) = &mut last.answer else { return false };
        let WorkKind::Many(many) = &mut work.kind else { return false };
        if !many.join(Arc::clone(command)) {
            return false;
        }
        last.reading_bytes += bytes;
        self.reading.bytes += bytes;
        true
    }

    pub(super) fn call_settings(&self, session: &mut Session, context: &Context<'_>) -> CallSettings {
        let value_bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        CallSettings {
            version: session.version,
            wall: context.wall,
            value_bytes_max,
            reply_bytes_max: value_bytes_max,
            seed: session.draw(context.server.client_id(), context.wall),
        }
    }

    /// What a command of several keys may hold: a part of the memory for clients, whatever others
    /// hold, and some values in any case.
    pub(super) fn many_limits(&self, context: &Context<'_>) -> ManyLimits {
        let (budget, item_bytes_max) = (self.budget().max_bytes(), self.client.item_bytes_max);
        let least = item_bytes_max.saturating_mul(VALUES_HELD).saturating_add(REQUEST_BYTES_MIN as u64);
        ManyLimits {
            bytes_max: (budget / REQUEST_SHARE).max(least).min(budget / 2),
            all_bytes_max: budget - budget / CONNECTION_SHARE,
            first_bytes: self.reading.first_bytes,
            has_batches: !context.is_cache,
        }
    }
}

/// The keys of a command, each once. None, if it does not say how many there are: the command tells
/// that itself.
pub(super) fn keys_of(command: &CommandSpec, a: &Arguments<'_>) -> Result<Vec<Key>, RequestRefusal> {
    let mut places = key_places(command, a);
    if places.len() > KEYS_MAX {
        return Err(Cow::Owned(format!("ERR a command takes up to {KEYS_MAX} keys: send them in parts")));
    }
    let mut seen = HashSet::with_capacity(places.len());
    places.retain(|place| seen.insert(a.get(*place)));
    places.into_iter().map(|place| a.key(place)).collect()
}

/// Where they stand among the arguments. A request that lacks arguments may end before.
pub(super) fn key_places(command: &CommandSpec, a: &Arguments<'_>) -> Vec<usize> {
    let (first, last, step) = command.keys;
    let (first, last, step) = (usize::try_from(first), isize::from(last), usize::try_from(step).unwrap_or(1));
    let mut places = Vec::new();
    if let Ok(first @ 1..) = first {
        let last = if last < 0 { a.len().saturating_add_signed(last) } else { last.unsigned_abs() };
        places.extend((first..=last).step_by(step.max(1)));
    }
    if command.name == "sort" {
        places.extend(stored_at(a));
    } else if command.flags.ends_with("movablekeys") {
        // The number of keys stands behind those that have a place.
        let first = if command.flags.contains("blocking") { 2 } else { 1 };
        let at = places.last().map_or(first, |last| last + 1);
        match number::integer(a.get(at)).and_then(|count| usize::try_from(count).ok()) {
            Some(count) if count > 0 && count <= a.len().saturating_sub(at + 1) => {
                places.extend(at + 1..=at + count);
            }
            _ => return Vec::new(),
        }
    }
    places
}
