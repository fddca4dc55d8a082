//! Rules by which commands change one record in dependence on itself, carried out at its owner
//! ([`RecordEdit`]): so they are atomic, and many clients that change one key do not hinder each
//! other.

use std::borrow::Cow;
use std::sync::Mutex;

use bytes::Bytes;
use stratakv_base::Expiry;
use stratakv_engine::update::{UpdateError, UpdatedRecord};
use stratakv_engine::{RecordEdit, Unmet};
use stratakv_protocol::resp::{Version, encode, number};
use stratakv_structures::{Kind, STRUCTURE_FLAGS};

use super::arguments::{NOT_AN_INTEGER, RequestRefusal};
use super::bits;
use super::records::{Records, StoredRecord, check_kind};
use super::reply::written;
use crate::server::lock;

pub(super) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(super) const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";
pub(super) const OVERFLOW: &str = "ERR increment or decrement would overflow";
/// At it every record is gone.
pub(super) const LONG_PAST: Expiry = Expiry(1);

/// What a command does to a record.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// SET with GET or KEEPTTL, GETSET. `expiry`: `None` keeps it.
    Replace { value: Bytes, expiry: Option<Expiry>, wants_old: bool, only_if_present: bool },
    /// GETEX that changes the expiry.
    GetExpire(Expiry),
    /// GETDEL.
    Remove,
    /// SET with NX and GET: a record that is there stays.
    Make { value: Bytes, expiry: Expiry },
    /// APPEND.
    Append(Bytes),
    /// SETRANGE.
    SetRange { offset: usize, value: Bytes },
    /// SETBIT.
    SetBit { place: usize, is_set: bool },
    /// INCR and its kin.
    Add(i64),
    /// INCRBYFLOAT.
    AddFloat(Bytes),
    /// EXPIRE and its kin with a condition.
    Expire { expiry: Expiry, only_if: ExpireIf },
    /// PERSIST.
    Persist,
}

/// Under which condition an expiry is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpireIf {
    /// NX.
    pub(crate) has_none: bool,
    /// XX.
    pub(crate) has_one: bool,
    /// GT.
    pub(crate) is_later: bool,
    /// LT.
    pub(crate) is_earlier: bool,
}

impl ExpireIf {
    fn holds(self, old: Expiry, new: Expiry) -> bool {
        // No expiry is later than any.
        let when = |expiry: Expiry| if expiry == Expiry::NEVER { u64::MAX } else { expiry.0 };
        (!self.has_none || old == Expiry::NEVER)
            && (!self.has_one || old != Expiry::NEVER)
            && (!self.is_later || when(new) > when(old))
            && (!self.is_earlier || when(new) < when(old))
    }
}

/// An edit on its way to the record's owner, and what it saw there.
#[derive(Debug)]
pub(crate) struct EditRule {
    edit: Edit,
    /// Longest value that it may make, or take along.
    value_bytes_max: usize,
    seen: Mutex<Result<Seen, RequestRefusal>>,
}

/// What a reply is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// The value before.
    Old(Bytes),
    Number(i64),
    Text(Bytes),
}

/// What a record becomes.
struct Change {
    value: Bytes,
    expiry: Expiry,
    flags: Option<u32>,
}

impl EditRule {
    pub(crate) fn new(edit: Edit, value_bytes_max: usize) -> EditRule {
        EditRule { edit, value_bytes_max, seen: Mutex::new(Ok(Seen::Nothing)) }
    }

    pub(crate) fn edit(&self) -> &Edit {
        &self.edit
    }

    /// Whether the old value comes with the answer.
    pub(crate) fn takes_old(&self) -> bool {
        matches!(
            self.edit,
            Edit::Replace { wants_old: true, .. } | Edit::GetExpire(_) | Edit::Remove | Edit::Make { .. }
        )
    }

    /// Whether the record has to be a string.
    fn is_of_strings(&self) -> bool {
        match &self.edit {
            Edit::Replace { wants_old, .. } => *wants_old,
            Edit::Expire { .. } | Edit::Persist => false,
            Edit::Remove
            | Edit::GetExpire(_)
            | Edit::Make { .. }
            | Edit::Append(_)
            | Edit::SetRange { .. }
            | Edit::SetBit { .. }
            | Edit::Add(_)
            | Edit::AddFloat(_) => true,
        }
    }

    /// The value and the expiry of a record where there is none; `None`: none is made.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn absent(&self) -> Result<Option<(Bytes, Expiry)>, RequestRefusal> {
        let made = match &self.edit {
            Edit::Replace { only_if_present: true, .. }
            | Edit::Remove
            | Edit::GetExpire(_)
            | Edit::Expire { .. }
            | Edit::Persist => return Ok(None),
            Edit::SetRange { value, .. } if value.is_empty() => return Ok(None),
            Edit::Replace { value, expiry, .. } => (value.clone(), expiry.unwrap_or(Expiry::NEVER)),
            Edit::Make { value, expiry } => (value.clone(), *expiry),
            Edit::Append(value) => (value.clone(), Expiry::NEVER),
            Edit::SetRange { offset, value } => (self.overwritten(b"", *offset, value)?, Expiry::NEVER),
            Edit::SetBit { place, is_set } => (self.with_bit(b"", *place, *is_set)?, Expiry::NEVER),
            Edit::Add(delta) => (delta.to_string().into(), Expiry::NEVER),
            Edit::AddFloat(delta) => (sum(b"0", delta)?, Expiry::NEVER),
        };
        Ok(Some(made))
    }

    /// Carries it out over records in memory; the reply is appended.
    ///
    /// # Errors
    /// It cannot be done, and nothing was changed.
    pub(super) fn carry_out(
        &self,
        key: &[u8],
        version: Version,
        records: &mut dyn Records,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestRefusal> {
        let Some(old) = records.get(key)? else {
            let made = self.absent()?;
            let is_made = made.is_some();
            if let Some((value, expiry)) = made {
                records.put(key, StoredRecord { value, flags: 0, expiry });
            }
            out.append(&mut self.answer_of_absent(is_made, version));
            return Ok(());
        };
        let (change, seen) = self.change(&old.value, old.flags, old.expiry)?;
        *lock(&self.seen) = Ok(seen);
        let is_changed = change.is_some();
        if let Some(Change { value, expiry, flags }) = change {
            records.put(key, StoredRecord { value, flags: flags.unwrap_or(old.flags), expiry });
        }
        out.append(&mut self.answer(is_changed));
        Ok(())
    }

    /// The reply where a record was made, or none was made.
    pub(crate) fn answer_of_absent(&self, is_made: bool, version: Version) -> Vec<u8> {
        let seen = lock(&self.seen).clone();
        written(|out| match (&self.edit, is_made) {
            _ if let Err(refusal) = seen => encode::error(out, &refusal),
            (Edit::Replace { wants_old: false, .. }, true) => encode::simple(out, "OK"),
            (Edit::Append(value), _) => encode::integer(out, value.len() as i64),
            (Edit::SetRange { offset, value }, true) => encode::integer(out, (offset + value.len()) as i64),
            (Edit::Add(delta), _) => encode::integer(out, *delta),
            (Edit::AddFloat(delta), _) => encode::bulk(out, &sum(b"0", delta).unwrap_or_default()),
            (Edit::SetRange { .. } | Edit::SetBit { .. } | Edit::Expire { .. } | Edit::Persist, _) => {
                encode::integer(out, 0);
            }
            (Edit::Replace { .. } | Edit::GetExpire(_) | Edit::Remove | Edit::Make { .. }, _) => {
                encode::null(out, version)
            }
        })
    }

    /// The reply where there was a record, which the edit has changed or not.
    pub(crate) fn answer(&self, is_changed: bool) -> Vec<u8> {
        let seen = lock(&self.seen).clone();
        written(|out| match (seen, &self.edit) {
            (Err(refusal), _) => encode::error(out, &refusal),
            (Ok(Seen::Old(_)), Edit::Replace { wants_old: false, .. }) => encode::simple(out, "OK"),
            (Ok(Seen::Old(value) | Seen::Text(value)), _) => encode::bulk(out, &value),
            (Ok(Seen::Number(number)), _) => encode::integer(out, number),
            (Ok(Seen::Nothing), _) => encode::integer(out, i64::from(is_changed)),
        })
    }

    /// The value with others from `offset` on, and zero bytes where there was nothing.
    fn overwritten(&self, old: &[u8], offset: usize, value: &[u8]) -> Result<Bytes, RequestRefusal> {
        let end = offset.saturating_add(value.len());
        self.check_length(end.max(old.len()))?;
        let mut new = old.to_vec();
        new.resize(new.len().max(end), 0);
        if let Some(part) = new.get_mut(offset..end) {
            part.copy_from_slice(value);
        }
        Ok(new.into())
    }

    /// The value with a bit set or not, and zero bytes where there was nothing.
    fn with_bit(&self, old: &[u8], place: usize, is_set: bool) -> Result<Bytes, RequestRefusal> {
        let bytes = old.len().max(place / 8 + 1);
        self.check_length(bytes)?;
        let mut new = old.to_vec();
        new.resize(bytes, 0);
        if let Some(byte) = new.get_mut(place / 8) {
            let mask = 0x80 >> (place % 8);
            *byte = if is_set { *byte | mask } else { *byte & !mask };
        }
        Ok(new.into())
    }

    fn check_length(&self, bytes: usize) -> Result<(), RequestRefusal> {
        let most = self.value_bytes_max;
        match bytes > most {
            true => Err(too_long(bytes as u64, most)),
            false => Ok(()),
        }
    }

    /// What becomes of a record, and what is told of it; no change: it stays.
    fn change(&self, old: &Bytes, flags: u32, expiry: Expiry) -> Result<(Option<Change>, Seen), RequestRefusal> {
        if self.is_of_strings() {
            check_kind(flags, old, Kind::String)?;
        }
        // What is a string stays one, whatever its bytes become.
        let flags = (flags == STRUCTURE_FLAGS).then_some(0);
        let keep = |value: Bytes| Some(Change { value, expiry, flags });
        let at = |expiry| Some(Change { value: old.clone(), expiry, flags: None });
        if self.takes_old() {
            self.check_length(old.len())?;
        }
        Ok(match &self.edit {
            Edit::Replace { value, expiry: new, .. } => {
                let change = Change { value: value.clone(), expiry: new.unwrap_or(expiry), flags: Some(0) };
                (Some(change), Seen::Old(if self.takes_old() { old.clone() } else { Bytes::new() }))
            }
            Edit::Remove => {
                let change = Change { value: Bytes::new(), expiry: LONG_PAST, flags: None };
                (Some(change), Seen::Old(old.clone()))
            }
            Edit::GetExpire(expiry) => (at(*expiry), Seen::Old(old.clone())),
            Edit::Make { .. } => (None, Seen::Old(old.clone())),
            Edit::Append(more) => {
                self.check_length(old.len() + more.len())?;
                let value: Bytes = [&old[..], more].concat().into();
                let number = Seen::Number(value.len() as i64);
                (if more.is_empty() { None } else { keep(value) }, number)
            }
            Edit::SetRange { value, .. } if value.is_empty() => (None, Seen::Number(old.len() as i64)),
            Edit::SetRange { offset, value } => {
                let value = self.overwritten(old, *offset, value)?;
                let number = Seen::Number(value.len() as i64);
                (keep(value), number)
            }
            Edit::SetBit { place, is_set } => {
                let before = Seen::Number(i64::from(bits::bit(old, *place)));
                (keep(self.with_bit(old, *place, *is_set)?), before)
            }
            Edit::Add(delta) => {
                let number = number::integer(old).ok_or(Cow::Borrowed(NOT_AN_INTEGER))?;
                let sum = number.checked_add(*delta).ok_or(Cow::Borrowed(OVERFLOW))?;
                (keep(sum.to_string().into()), Seen::Number(sum))
            }
            Edit::AddFloat(delta) => {
                let sum = sum(old, delta)?;
                (keep(sum.clone()), Seen::Text(sum))
            }
            Edit::Expire { expiry: new, only_if } => {
                (if only_if.holds(expiry, *new) { at(*new) } else { None }, Seen::Nothing)
            }
            Edit::Persist => (if expiry == Expiry::NEVER { None } else { at(Expiry::NEVER) }, Seen::Nothing),
        })
    }
}

impl RecordEdit for EditRule {
    fn apply(&self, value: &Bytes, flags: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError> {
        let changed = self.change(value, flags, expiry);
        let (change, seen) = match changed {
            Ok((change, seen)) => (change, Ok(seen)),
            Err(refusal) => (None, Err(refusal)),
        };
        *lock(&self.seen) = seen;
        match change {
            Some(Change { value, expiry, flags }) => Ok(UpdatedRecord { value, expiry: expiry.0, number: None, flags }),
            None => Err(UpdateError::Unmet(Unmet::Unchanged)),
        }
    }

    fn create(&self) -> Result<UpdatedRecord, UpdateError> {
        let made = self.absent();
        let mut seen = lock(&self.seen);
        *seen = Ok(Seen::Nothing);
        match made {
            Ok(Some((value, expiry))) => Ok(UpdatedRecord { value, expiry: expiry.0, number: None, flags: Some(0) }),
            Ok(None) => Err(UpdateError::Unmet(Unmet::Absent)),
            Err(refusal) => {
                *seen = Err(refusal);
                Err(UpdateError::Unmet(Unmet::Absent))
            }
        }
    }

    fn value_bytes(&self) -> u64 {
        match &self.edit {
            Edit::Replace { value, .. } | Edit::Make { value, .. } | Edit::Append(value) => value.len() as u64,
            Edit::SetRange { offset, value } => offset.saturating_add(value.len()) as u64,
            Edit::SetBit { place, .. } => (place / 8 + 1) as u64,
            _ => 0,
        }
    }
}

/// A value that is longer than clients may store.
pub(crate) fn too_long(bytes: u64, most: usize) -> RequestRefusal {
    Cow::Owned(format!(
        "ERR string exceeds maximum allowed size: {bytes} bytes, and clients may store {most} (--item-bytes-max)"
    ))
}

fn sum(left: &[u8], right: &[u8]) -> Result<Bytes, RequestRefusal> {
    match number::sum(left, right) {
        Ok(sum) => Ok(sum.into()),
        Err(number::SumError::NotANumber) => Err(Cow::Borrowed(NOT_A_FLOAT)),
        Err(number::SumError::Infinite) => Err(Cow::Borrowed(NOT_FINITE)),
    }
}

#[cfg(test)]
#[path = "../../tests/unit/resp/edit.rs"]
mod tests;
