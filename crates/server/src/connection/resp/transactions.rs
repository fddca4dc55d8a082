//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.

use std::borrow::Cow;
use std::collections::HashSet;

use stratakv_protocol::resp::encode;

use super::data::{KEYS_MAX, keys_of};
use super::table::CommandSpec;
use super::{Connection, Context, Handled, RequestRefusal};
use crate::pending::Access;
use crate::resp::transaction::Queue;
use crate::resp::watching::WatchWork;
use crate::resp::{Arguments, DataCommand, ManyWork, Session, Work, WorkKind};

/// Commands that a transaction does not queue.
const NOT_QUEUED: [&str; 6] = ["discard", "exec", "multi", "quit", "reset", "watch"];

/// Whether a command is carried out at once, also after MULTI.
pub(super) fn is_at_once(command: &CommandSpec) -> bool {
    NOT_QUEUED.contains(&command.name)
}

/// The reply to a command that is carried out at once, with too many arguments or too few: it
/// spoils the transaction that it is in.
pub(super) fn wrong_count(command: &CommandSpec, session: &mut Session) -> RequestRefusal {
    let why = super::table::wrong_count(command.name);
    if command.name != "exec" {
        session.transaction.refuse();
        return why;
    }
    session.transaction.queue = None;
    session.transaction.take_watched();
    Cow::Owned(format!("EXECABORT Transaction discarded because of: {}", why.trim_start_matches("ERR ")))
}

impl Connection {
    pub(super) fn resp_multi(&mut self, _: &Arguments<'_>, s: &mut Session, _: &mut Context<'_>) -> Handled {
        if s.transaction.queue.is_some() {
            return Err(Cow::Borrowed("ERR MULTI calls can not be nested"));
        }
        s.transaction.queue = Some(Queue::default());
        self.say(|out| encode::simple(out, "OK"))
    }

    pub(super) fn resp_discard(&mut self, _: &Arguments<'_>, s: &mut Session, _: &mut Context<'_>) -> Handled {
        if s.transaction.queue.take().is_none() {
            return Err(Cow::Borrowed("ERR DISCARD without MULTI"));
        }
        s.transaction.take_watched();
        self.say(|out| encode::simple(out, "OK"))
    }

    pub(super) fn resp_watch(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        if s.transaction.queue.is_some() {
            return Err(Cow::Borrowed("ERR WATCH inside MULTI is not allowed"));
        }
        if s.transaction.watched_keys() + a.len() - 1 > KEYS_MAX {
            return Err(Cow::Owned(format!("ERR a client watches up to {KEYS_MAX} keys: UNWATCH, or watch fewer")));
        }
        let mut keys = (1..a.len()).map(|at| a.key(at)).collect::<Result<Vec<_>, _>>()?;
        let list = s.transaction.watch(&mut keys);
        let work = Work::new(WorkKind::Watch(WatchWork::new(keys, list)), s.version);
        self.begin_work(work, Access::Everything, (0, 0), context);
        Ok(())
    }

    pub(super) fn resp_unwatch(&mut self, _: &Arguments<'_>, s: &mut Session, _: &mut Context<'_>) -> Handled {
        s.transaction.take_watched();
        self.say(|out| encode::simple(out, "OK"))
    }

    pub(super) fn resp_exec(&mut self, _: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let queue = s.transaction.queue.take().ok_or(Cow::Borrowed("ERR EXEC without MULTI"))?;
        let watched = s.transaction.take_watched();
        if queue.is_refused {
            return Err(Cow::Borrowed("EXECABORT Transaction discarded because of previous errors."));
        }
        let Queue { commands, mut keys, .. } = queue;
        let mut seen = HashSet::with_capacity(keys.len());
        keys.retain(|key| seen.insert(key.clone()));
        let settings = self.call_settings(s, context);
        let work = ManyWork::new(commands, keys, settings, self.many_limits(context)).in_transaction(watched);
        let reading_bytes = work.first_bytes();
        let work = Work::new(WorkKind::Many(Box::new(work)), s.version);
        self.begin_work(work, Access::Everything, (reading_bytes, 0), context);
        Ok(())
    }

    /// Queues a command; one that is refused spoils the transaction.
    pub(super) fn queue(
        &mut self,
        command: Option<&'static CommandSpec>,
        a: &Arguments<'_>,
        s: &mut Session,
        context: &Context<'_>,
    ) -> Handled {
        let bytes_max = usize::try_from(self.many_limits(context).bytes_max).unwrap_or(usize::MAX);
        let Some(queue) = &mut s.transaction.queue else { return Ok(()) };
        match queued(command, a, queue, bytes_max) {
            Ok(()) => self.say(|out| encode::simple(out, "QUEUED")),
            Err(refusal) => {
                queue.refuse();
                Err(refusal)
            }
        }
    }
}

fn queued(
    command: Option<&CommandSpec>,
    a: &Arguments<'_>,
    queue: &mut Queue,
    bytes_max: usize,
) -> Result<(), RequestRefusal> {
    let command = command.ok_or_else(|| super::table::unknown(a))?;
    if !command.takes(a.len()) {
        return Err(super::table::wrong_count(command.name));
    }
    let core = command.core.ok_or(Cow::Borrowed("ERR Command not allowed inside a transaction"))?;
    if queue.is_refused {
        return Ok(());
    }
    let keys = keys_of(command, a)?;
    if queue.keys.len() + keys.len() > KEYS_MAX {
        return Err(Cow::Owned(format!("ERR a transaction names up to {KEYS_MAX} keys: send it in parts")));
    }
    queue.push(DataCommand::new(core, a), keys);
    if queue.held_bytes() > bytes_max {
        return Err(Cow::Owned(format!(
            "ERR the transaction has more than {bytes_max} bytes: send it in parts, or raise --memory"
        )));
    }
    Ok(())
}
