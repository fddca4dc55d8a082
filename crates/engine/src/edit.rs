//! Read-modify-write by a rule of the caller's own: what a protocol does to records that no other
//! one does need not be known here.

use std::fmt::Debug;

use bytes::Bytes;
use stratakv_base::Expiry;

use crate::Unmet;
use crate::update::{UpdateError, UpdatedRecord};

/// A rule that makes a new record of an old one, carried out at the record's owner:
/// [`Update::Edit`](crate::Update::Edit). So edits of one key follow each other, and none is
/// repeated because another one was faster.
///
/// An engine may call [`RecordEdit::apply`] again, when it had no room the first time say: the last
/// call is the one that counts. What the caller wants to know of it, such as the length of the new
/// value, the rule keeps. It is valid once the operation is answered.
pub trait RecordEdit: Debug + Send + Sync {
    /// What becomes of a record with this value, flags and expiry. It runs in an engine's tick: it
    /// neither waits nor panics, and the same record gives the same result.
    ///
    /// # Errors
    /// [`UpdateError::Unmet`] with [`Unmet::Unchanged`] leaves the record as it is.
    /// [`UpdateError::TooLarge`]: the value would be too long.
    fn apply(&self, value: &Bytes, flags: u32, expiry: Expiry) -> Result<UpdatedRecord, UpdateError>;

    /// What becomes of a key that has no record, of which an edit may make one. As
    /// [`RecordEdit::apply`].
    ///
    /// # Errors
    /// [`UpdateError::Unmet`] with [`Unmet::Absent`]: none is made.
    fn create(&self) -> Result<UpdatedRecord, UpdateError> {
        Err(UpdateError::Unmet(Unmet::Absent))
    }

    /// Bytes that it brings: room for them is asked for before it is applied.
    fn value_bytes(&self) -> u64;
}
