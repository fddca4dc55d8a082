//! Operations under way. Each runs in *steps*: a pure step either ends it or notes the pages that
//! it lacks. Those are read, then the next step runs. Steps of writes of one key run in the order
//! in which the writes came.

use std::ops::Bound;

use bytes::Bytes;
use stratakv_base::{Corruption, Key, fault_point};
use stratakv_engine::{Change, ChangeKind, Error, Operation, RecordPart, Token, Update};

use crate::batch::prepare_record::PrepareRecord;
use crate::blob_write::Placed;
use crate::changes::Before;
use crate::load::Load;
use crate::lookup::LongRead;
use crate::memory::Permit;
use crate::range_delete::RangeWork;
use crate::reading::Pins;
use crate::scan::PageWork;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    Get {
        key: Key,
        part: RecordPart,
        long: Option<LongRead>,
    },
    Write {
        changes: Vec<Change>,
        placed: Vec<Placed>,
        looked: Vec<Option<Before>>,
        /// A page that it wanted is damaged.
        damage: Option<Corruption>,
    },
    Update {
        key: Key,
        update: Update,
        placed: Vec<Placed>,
        long: Option<LongRead>,
    },
    Page(PageWork),
    /// Before it begins: it waits for the writes that came before it.
    DeleteRange {
        from: Bound<Key>,
        to: Bound<Key>,
    },
    Deleting(RangeWork),
    /// Until it has begun it waits for the writes that came before it.
    Load(Load),
    /// A snapshot or a backup.
    AfterLoad(Operation),
    Sync,
    /// Of a batch of several shards.
    PrepareRecord(Box<PrepareRecord>),
}

/// An operation that could not be ended at once.
#[derive(Debug)]
pub(crate) struct Suspended {
    pub(crate) token: Token,
    pub(crate) work: Work,
    /// Pages that were read for it.
    pub(crate) pins: Pins,
    /// Reads that it waits for.
    pub(crate) missing: usize,
    /// Long values of it that are to be written to the volume first.
    pub(crate) long_values: Vec<Bytes>,
    /// A step of it ran: it has had its turn, and goes on when it has what it waits for.
    pub(crate) begun: bool,
    /// Its values found no room once, and something was reclaimed since.
    pub(crate) insists: bool,
    /// For its values.
    pub(crate) _permit: Permit,
}

impl Suspended {
    pub(crate) fn new(token: Token, work: Work, permit: Permit) -> Suspended {
        let (missing, long_values, begun, insists) = (0, Vec::new(), false, false);
        Suspended { token, work, pins: Pins::default(), missing, long_values, begun, insists, _permit: permit }
    }

    /// Whether it goes on though a page that it wanted is damaged.
    pub(crate) fn bears(&mut self, error: &Error) -> bool {
        let Error::Corrupt(corruption) = error else { return false };
        fault_point!("trial_damage_cannot_be_deleted", return false);
        self.work.bears(corruption)
    }
}

impl Work {
    /// The keys that it writes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let (changes, one) = match self {
            Work::Write { changes, .. } => (&changes[..], None),
            Work::PrepareRecord(share) => (&share.changes[..], None),
            Work::Update { key, .. } => (&[][..], Some(key)),
            _ => (&[][..], None),
        };
        changes.iter().map(|change| &change.key).chain(one)
    }

    /// Bytes of the values that it brings.
    pub(crate) fn value_bytes(&self) -> u64 {
        let bytes =
            |change: &Change| if let ChangeKind::Put { value, .. } = &change.kind { value.len() as u64 } else { 0 };
        match self {
            Work::Write { changes, .. } => changes.iter().map(bytes).sum(),
            Work::PrepareRecord(share) => share.changes.iter().map(bytes).sum(),
            Work::Update { update: Update::Append(more) | Update::Prepend(more), .. } => more.len() as u64,
            Work::Update { update: Update::Edit(edit), .. } => edit.value_bytes(),
            Work::Load(load) => load.held_bytes(),
            _ => 0,
        }
    }

    /// Differs when it came further by a step that did not end it.
    pub(crate) fn progress(&self) -> usize {
        match self {
            Work::Get { long, .. } | Work::Update { long, .. } => long.as_ref().map_or(0, LongRead::progress),
            Work::Write { looked, .. } => looked.iter().flatten().count(),
            Work::PrepareRecord(share) => share.looked.iter().flatten().count(),
            Work::Page(page) => page.progress(),
            Work::Deleting(range) => range.progress(),
            _ => 0,
        }
    }

    /// A page that it wanted is damaged. Whether it goes on all the same: what is damaged can be
    /// deleted.
    pub(crate) fn bears(&mut self, found: &Corruption) -> bool {
        let (changes, damage) = match self {
            Work::Write { changes, damage, .. } => (changes, damage),
            Work::Deleting(range) => {
                range.bear(found);
                return true;
            }
            _ => return false,
        };
        let bears = changes.iter().any(|change| matches!(change.kind, ChangeKind::Delete));
        if bears {
            *damage = Some(found.clone());
        }
        bears
    }

    /// Whether a part of it is done.
    pub(crate) fn is_begun(&self) -> bool {
        matches!(self, Work::Deleting(range) if range.is_begun())
    }

    /// Where its long values lie.
    pub(crate) fn placed(&mut self) -> Option<&mut Vec<Placed>> {
        match self {
            Work::Write { placed, .. } | Work::Update { placed, .. } => Some(placed),
            Work::PrepareRecord(share) => Some(share.placed()),
            _ => None,
        }
    }

    /// Where everything lies that was written ahead of it.
    pub(crate) fn all_placed(&self) -> impl Iterator<Item = &Placed> {
        let (placed, more) = match self {
            Work::Write { placed, .. } | Work::Update { placed, .. } => (&placed[..], &[][..]),
            Work::PrepareRecord(share) => share.all_placed(),
            _ => (&[][..], &[][..]),
        };
        placed.iter().chain(more)
    }

    /// Whether it must not be refused any more.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self, Work::PrepareRecord(share) if share.is_decided())
    }

    /// Whether it waits for its turn among writes.
    pub(crate) fn is_write(&self) -> bool {
        matches!(
            self,
            Work::Write { .. } | Work::Update { .. } | Work::Deleting(_) | Work::Load(_) | Work::PrepareRecord(_)
        ) || self.is_barrier()
    }

    /// Whether it waits for all writes before it.
    pub(crate) fn is_barrier(&self) -> bool {
        match self {
            Work::Load(load) => !load.begun,
            _ => matches!(self, Work::DeleteRange { .. } | Work::Sync),
        }
    }
}
