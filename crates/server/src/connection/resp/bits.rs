//! Commands of bits and fields of bits.

use super::table::CommandSpec;
use super::{Connection, Context, Handled};
use crate::connection::hash;
use crate::pending::Access;
use crate::resp::commands::{bit_fields, bits};
use crate::resp::{Arguments, BitQuestion, BitRead, DataCommand, DataWork, Session, Work, WorkKind, too_long};

impl Connection {
    pub(super) fn resp_setbit(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let edit = bits::set_bit(a)?;
        context.counters.cmd_set.add(1);
        self.edit(key, edit, (s, context));
        Ok(())
    }

    pub(super) fn resp_getbit(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.ask_bits(a, bits::one_bit(a)?, (s, context))
    }

    pub(super) fn resp_bitcount(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.ask_bits(a, bits::counted(a)?, (s, context))
    }

    pub(super) fn resp_bitpos(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        self.ask_bits(a, bits::position(a)?, (s, context))
    }

    /// BITFIELD: at the owner of the key only if it may change something.
    pub(super) fn resp_bitfield(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let Some(made_bytes) = bit_fields::made_bytes(a)? else {
            let command = CommandSpec::find(b"bitfield_ro").ok_or_else(|| super::table::unknown(a))?;
            return self.data_command(command, bit_fields::bitfield, a, (s, context));
        };
        let bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        if made_bytes > bytes_max {
            return Err(too_long(made_bytes as u64, bytes_max));
        }
        context.counters.cmd_set.add(1);
        let (key, settings) = (a.key(1)?, self.call_settings(s, context));
        let command = DataCommand::new(bit_fields::bitfield, a).making(made_bytes);
        let (access, writing_bytes) = (Access::Alone(hash(&key)), command.held_bytes() as u64);
        let work = DataWork::new(key, command, (settings, self.many_limits(context)), false);
        self.begin_work(Work::new(WorkKind::Data(work), s.version), access, (0, writing_bytes), context);
        Ok(())
    }

    fn ask_bits(
        &mut self,
        a: &Arguments<'_>,
        question: BitQuestion,
        (session, context): (&Session, &mut Context<'_>),
    ) -> Handled {
        let key = a.key(1)?;
        context.counters.cmd_get.add(1);
        let bytes_max = usize::try_from(self.client.item_bytes_max).unwrap_or(usize::MAX);
        let reading_bytes = if let BitQuestion::Bit(_) = question { 1 } else { bytes_max as u64 };
        let access = Access::Read(hash(&key));
        let work = Work::new(WorkKind::Bits(BitRead { key, question, bytes_max }), session.version);
        self.begin_work(work, access, (reading_bytes, 0), context);
        Ok(())
    }
}
