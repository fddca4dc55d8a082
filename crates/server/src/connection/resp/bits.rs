//! Commands of single bits.

use super::{Connection, Context, Handled};
use crate::connection::hash;
use crate::pending::Access;
use crate::resp::commands::bits;
use crate::resp::{Arguments, BitQuestion, BitRead, Session, Work, WorkKind};

impl Connection {
    pub(super) fn resp_setbit(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let key = a.key(1)?;
        let edit = bits::set_bit(a)?;
        context.counters.cmd_set.add(1);
        self.edit(key, edit, None, (s, context));
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
