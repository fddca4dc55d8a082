//! Read-modify-write: the new value of a record from its old one. Pure functions.

use crate::{Error, Reply, Unmet, Update};
use bytes::Bytes;
use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_base::{Expiry, decimal};

/// What an update makes of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct UpdatedRecord {
    /// The new value.
    pub value: Bytes,
    /// When it expires, as [`Expiry`] has it; 0 never.
    pub expiry: u64,
    /// The new number, for increment and decrement.
    pub number: Option<u64>,
    /// New flags; `None`: they stay, and are 0 of a new record.
    pub flags: Option<u32>,
}

/// Why an update cannot be applied.
#[derive(Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// A condition on the record does not hold: it is no number, or an edit leaves it as it is.
    Unmet(Unmet),
    /// The new value would be longer than the limit.
    TooLarge(Error),
}

impl From<UpdateError> for Reply {
    fn from(error: UpdateError) -> Reply {
        match error {
            UpdateError::Unmet(unmet) => Reply::Unmet(unmet),
            UpdateError::TooLarge(error) => Reply::Failed(error),
        }
    }
}

/// The record that an update makes of a key that has none: only an edit does.
///
/// # Errors
/// What is answered if it makes none: a touch finds no record, every other update has a condition
/// that does not hold.
pub fn create(update: &Update) -> Result<UpdatedRecord, Reply> {
    let made = match update {
        Update::Touch(_) => return Err(Reply::Record(None)),
        Update::Edit(edit) => edit.create().and_then(checked),
        _ => Err(UpdateError::Unmet(Unmet::Absent)),
    };
    made.map_err(Reply::from)
}

/// What an update makes of a key's record, given as value, flags and expiry, or of a key that has
/// none.
///
/// # Errors
/// What is answered if it cannot be applied.
pub fn outcome(update: &Update, old: Option<(&Bytes, u32, u64)>) -> Result<UpdatedRecord, Reply> {
    match old {
        Some((value, flags, expiry)) => apply(update, value, flags, expiry).map_err(Reply::from),
        None => create(update),
    }
}

/// Applies `update` to a record.
///
/// # Errors
/// See [`UpdateError`].
pub fn apply(update: &Update, old: &Bytes, flags: u32, expiry: u64) -> Result<UpdatedRecord, UpdateError> {
    let joined = |front: &[u8], back: &[u8]| {
        let len = front.len() + back.len();
        if len > VALUE_BYTES_MAX {
            return Err(UpdateError::TooLarge(too_large(len)));
        }
        Ok(UpdatedRecord { value: [front, back].concat().into(), expiry, number: None, flags: None })
    };
    match update {
        Update::Append(bytes) => joined(old, bytes),
        Update::Prepend(bytes) => joined(bytes, old),
        Update::Touch(expiry) => Ok(UpdatedRecord { value: old.clone(), expiry: expiry.0, number: None, flags: None }),
        Update::Increment(by) => number(old, expiry, |number| number.wrapping_add(*by)),
        Update::Decrement(by) => number(old, expiry, |number| number.saturating_sub(*by)),
        Update::Edit(edit) => edit.apply(old, flags, Expiry(expiry)).and_then(checked),
    }
}

/// What an edit made, if it is not too long.
fn checked(updated: UpdatedRecord) -> Result<UpdatedRecord, UpdateError> {
    match updated.value.len() {
        len if len > VALUE_BYTES_MAX => Err(UpdateError::TooLarge(too_large(len))),
        _ => Ok(updated),
    }
}

fn too_large(len: usize) -> Error {
    Error::ValueTooLarge { len_bytes: len as u64, max_bytes: VALUE_BYTES_MAX as u64 }
}

/// memcached's rule: the value begins with a decimal number; a shorter result is padded to the old
/// length.
fn number(old: &[u8], expiry: u64, change: impl Fn(u64) -> u64) -> Result<UpdatedRecord, UpdateError> {
    let new = change(decimal::unsigned(old).ok_or(UpdateError::Unmet(Unmet::NotANumber))?);
    Ok(UpdatedRecord { value: decimal::padded(new, old.len()).into(), expiry, number: Some(new), flags: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(update: Update, old: &str) -> Result<String, UpdateError> {
        apply(&update, &Bytes::copy_from_slice(old.as_bytes()), 0, 0)
            .map(|outcome| String::from_utf8_lossy(&outcome.value).into_owned())
    }

    #[test]
    fn follows_the_rules_of_memcached() {
        assert_eq!(value_of(Update::Increment(1), "99"), Ok("100".into()));
        assert_eq!(value_of(Update::Decrement(1), "100"), Ok("99 ".into()));
        assert_eq!(value_of(Update::Decrement(5), "3"), Ok("0".into()));
        assert_eq!(value_of(Update::Increment(1), "99 "), Ok("100".into()));
        assert_eq!(value_of(Update::Increment(2), &u64::MAX.to_string()), Ok(format!("{:<20}", 1)));
        for (old, new) in [(" 5", "6 "), ("+5", "6 "), ("5 apples", "6       "), ("5\r\n", "6  ")] {
            assert_eq!(value_of(Update::Increment(1), old), Ok(new.into()), "{old:?}");
        }
        for bad in ["", "x", "-1", "5apples", "99999999999999999999999"] {
            assert_eq!(value_of(Update::Increment(1), bad), Err(UpdateError::Unmet(Unmet::NotANumber)), "{bad}");
        }
        assert_eq!(value_of(Update::Append(Bytes::from_static(b"b")), "a"), Ok("ab".into()));
        assert_eq!(value_of(Update::Prepend(Bytes::from_static(b"b")), "a"), Ok("ba".into()));
        let long = Bytes::from(vec![0; VALUE_BYTES_MAX]);
        assert!(matches!(apply(&Update::Append(Bytes::from_static(b"b")), &long, 0, 0), Err(UpdateError::TooLarge(_))));
    }
}
