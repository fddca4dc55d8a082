//! Data commands: pure functions of the records of the keys that they name.

use super::table::CommandSpec;
use super::{Connection, Context, Handled};
use crate::connection::hash;
use crate::pending::Access;
use crate::resp::{Arguments, CallSettings, Core, DataCommand, DataWork, Session, Work, WorkKind};

impl Connection {
    pub(super) fn data_command(
        &mut self,
        command: &CommandSpec,
        core: Core,
        a: &Arguments<'_>,
        (session, context): (&mut Session, &mut Context<'_>),
    ) -> Handled {
        let settings = self.call_settings(session, context);
        let key = a.key(1)?;
        let only_reads = command.only_reads();
        let access = if only_reads { Access::Read(hash(&key)) } else { Access::Alone(hash(&key)) };
        let data = DataCommand::new(core, a);
        let bytes = if only_reads {
            context.counters.cmd_get.add(1);
            (self.reading.first_bytes, 0)
        } else {
            context.counters.cmd_set.add(1);
            (0, data.held_bytes() as u64)
        };
        let work = DataWork::new(key, data, settings, only_reads).with_first_bytes(self.reading.first_bytes);
        self.begin_work(Work::new(WorkKind::Data(work), session.version), access, bytes, context);
        Ok(())
    }

    fn call_settings(&self, session: &mut Session, context: &Context<'_>) -> CallSettings {
        CallSettings {
            version: session.version,
            wall: context.wall,
            value_bytes_max: usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX),
            seed: session.draw(context.server.client_id(), context.wall),
        }
    }
}
