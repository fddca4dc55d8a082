//! Commands that wait for an element, as their connection sees them: while one waits, nothing
//! behind it is parsed.

use std::borrow::Cow;
use std::time::Duration;

use stratakv_engine::Operation;
use stratakv_protocol::resp::encode;

use super::data::keys_of;
use super::table::{CommandSpec, unknown};
use super::{Connection, Context, Handled, work_context};
use crate::answer::Answer;
use crate::connection::{Submission, Target};
use crate::pending::Access;
use crate::resp::commands::waits::WaitRequest;
use crate::resp::{Arguments, NO_BATCHES, Session, Unblock, WaitEnd, WaitWork, Work, WorkKind};

/// A command that waits, in the order of answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Its place.
    pub(crate) sequence: u32,
    /// For how long; `None`: for ever.
    pub(crate) timeout: Option<Duration>,
    is_over: bool,
}

impl Connection {
    /// BLPOP and its kin.
    pub(super) fn resp_waits(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let request = WaitRequest::read(*a)?;
        let command = CommandSpec::find(a.get(0)).ok_or_else(|| unknown(a))?;
        let keys = keys_of(command, a)?;
        if request.moves() && keys.len() > 1 && context.is_cache {
            // It would be refused once there is an element, and wait in vain until then.
            return Err(Cow::Borrowed(NO_BATCHES));
        }
        let client = (context.server.client_id(), context.server.address());
        context.counters.cmd_get.add(1);
        let settings = (self.call_settings(s, context), self.many_limits(context));
        let work = WaitWork::new((a, request), keys, client, settings);
        let work = Work::new(WorkKind::Wait(Box::new(work)), s.version);
        self.begin_work(work, Access::Everything, (0, 0), context);
        Ok(())
    }

    /// A command that waits has got its place.
    pub(super) fn begin_waiting(&mut self, sequence: u32, timeout: Option<Duration>) {
        self.waiting = Some(Waiting { sequence, timeout, is_over: false });
    }

    /// Its command that waits, if there is one.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.waiting
    }

    /// Whether a command waits for an element.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The time of the command that waits is over.
    pub(crate) fn time_out(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.is_over = true;
        }
    }

    /// Goes on with the command that waits, if it was called or is to end.
    pub(in crate::connection) fn resume_waiting(&mut self, context: &mut Context<'_>) {
        let Some(Waiting { sequence, is_over, .. }) = self.waiting else { return };
        let end = match (self.ending.ended, is_over) {
            (true, _) => Some(WaitEnd::Left),
            (false, true) => Some(WaitEnd::TimedOut),
            (false, false) => None,
        };
        let index = sequence.wrapping_sub(self.answers.first) as usize;
        let mut asked: Vec<(Target, Operation)> = Vec::new();
        let Some(Answer::Work(work)) = self.answers.pending.get_mut(index).map(|pending| &mut pending.answer) else {
            return;
        };
        let ended = work.resume(end, &work_context(context, sequence), &mut asked);
        self.grant.spend(asked.len() as i64);
        for (target, operation) in asked {
            context.submissions.push(Submission { sequence, target, operation });
        }
        self.complete_step(index, ended);
    }

    /// The command at this place has its answer: those behind it go on, if it was the one that
    /// waited. A client that has left is not answered at all.
    pub(super) fn end_waiting(&mut self, index: usize, answer: &[u8]) {
        let sequence = self.answers.first.wrapping_add(index as u32);
        if self.waiting.is_some_and(|waiting| waiting.sequence == sequence) {
            self.waiting = None;
            self.ending.closing |= self.ending.ended && answer.is_empty();
        }
    }

    /// The connection is given up: it leaves the queues in which it waits.
    pub(in crate::connection) fn give_up_waiting(&mut self) {
        if self.waiting.take().is_none() {
            return;
        }
        for pending in &mut self.answers.pending {
            if let Answer::Work(work) = &mut pending.answer {
                work.give_up();
            }
        }
    }

    /// CLIENT UNBLOCK.
    pub(super) fn unblock(&mut self, a: &Arguments<'_>, context: &mut Context<'_>) -> Handled {
        let client = a.integer(2)?;
        let how = match () {
            () if a.len() == 3 || a.is(3, "TIMEOUT") => Unblock::Timeout,
            () if a.is(3, "ERROR") => Unblock::Error,
            () => return Err(Cow::Borrowed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        };
        let is_unblocked = u64::try_from(client).is_ok_and(|client| context.resp.waits.unblock(client, how));
        self.say(|out| encode::integer(out, i64::from(is_unblocked)))
    }
}
