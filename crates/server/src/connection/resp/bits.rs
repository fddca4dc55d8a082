//! Commands of single bits.

use std::borrow::Cow;

use stratakv_protocol::resp::number;

use super::{Connection, Context, Handled};
use crate::connection::hash;
use crate::pending::Access;
use crate::resp::{Arguments, BitQuestion, BitRange, BitRead, Edit, RequestRefusal, SYNTAX, Session, Work, WorkKind};

/// Places of bits are below this: 512 MiB of them.
const PLACES: i64 = 1 << 32;

impl Connection {
    pub(super) fn resp_setbit(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let (key, place) = (a.key(1)?, place(a.get(2))?);
        let is_set = is_one(a.get(3)).ok_or(Cow::Borrowed("ERR bit is not an integer or out of range"))?;
        context.counters.cmd_set.add(1);
        self.edit(key, Edit::SetBit { place, is_set }, None, (s, context));
        Ok(())
    }

    pub(super) fn resp_getbit(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let question = BitQuestion::Bit(place(a.get(2))?);
        self.ask_bits(a, question, (s, context))
    }

    pub(super) fn resp_bitcount(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        let range = match a.len() {
            2 => BitRange::ALL,
            4 | 5 => BitRange { first: a.integer(2)?, last: Some(a.integer(3)?), in_bits: in_bits(a, 4)? },
            _ => return Err(Cow::Borrowed(SYNTAX)),
        };
        self.ask_bits(a, BitQuestion::Count(range), (s, context))
    }

    pub(super) fn resp_bitpos(&mut self, a: &Arguments<'_>, s: &mut Session, context: &mut Context<'_>) -> Handled {
        a.integer(2)?;
        let is_set = is_one(a.get(2)).ok_or(Cow::Borrowed("ERR The bit argument must be 1 or 0."))?;
        let first = if a.len() > 3 { a.integer(3)? } else { 0 };
        let last = if a.len() > 4 { Some(a.integer(4)?) } else { None };
        if a.len() > 6 {
            return Err(Cow::Borrowed(SYNTAX));
        }
        let range = BitRange { first, last, in_bits: in_bits(a, 5)? };
        self.ask_bits(a, BitQuestion::Position { is_set, range }, (s, context))
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

fn place(text: &[u8]) -> Result<usize, RequestRefusal> {
    let place = number::integer(text).filter(|place| (0..PLACES).contains(place));
    let place = place.and_then(|place| usize::try_from(place).ok());
    place.ok_or(Cow::Borrowed("ERR bit offset is not an integer or out of range"))
}

fn is_one(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

/// Whether places count bits: `BYTE`, which is usual, or `BIT`.
fn in_bits(a: &Arguments<'_>, at: usize) -> Result<bool, RequestRefusal> {
    match () {
        () if at >= a.len() || a.is(at, "BYTE") => Ok(false),
        () if a.is(at, "BIT") => Ok(true),
        () => Err(Cow::Borrowed(SYNTAX)),
    }
}
