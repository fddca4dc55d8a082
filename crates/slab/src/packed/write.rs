//! Writes of users: from an operation to a record that waits to be appended.

use bytes::Bytes;
use stratakv_base::Level;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_engine::{Effects, Error, Reply};

use super::addr::RecordAddress;
use super::batch::{RecordKind, record_bytes};
use super::commit::Append;
use super::{HEADROOM_BYTES, Log, LogPlace, Packed, inline_bytes};
use crate::blob::Shape;
use crate::keys::Wait;
use crate::place::RecordPlace;
use crate::record::Meta;
use crate::space::Extent;
use crate::write::{Ack, Change, Changed, Newest, Stop, Work};

/// Segments that live records leave free at least.
const KEPT_SEGMENTS: u64 = 5;

/// What a record may use of the last segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    New,
    /// A delete: it makes room.
    Delete,
    /// Set aside for a prepare record.
    Reserved,
}

impl Packed {
    /// Bytes of records that may be alive, with this claim.
    pub(crate) fn live_limit_bytes(&self, claim: Claim, taken_segments: u64) -> u64 {
        let free = self.space.whole_segments() + self.space.deferred_segments();
        let all = u64::from(free) + u64::from(self.placement.segments.used());
        let kept = KEPT_SEGMENTS.max(all / 25) - u64::from(claim != Claim::New) + taken_segments;
        all.saturating_sub(kept) * self.placement.segments.payload_bytes()
    }

    /// Whether a record of `bytes` may become alive, besides a blob in so many segments.
    fn has_room(&self, bytes: u64, claim: Claim, taken_segments: u64) -> bool {
        let alive =
            self.placement.segments.live_bytes() + self.placement.queue_bytes + self.placement.large.record_bytes();
        let reserved = if claim == Claim::Reserved { 0 } else { self.batches.reserved_bytes() };
        alive + reserved + bytes + bytes / 16 <= self.live_limit_bytes(claim, taken_segments)
    }

    /// Whether so much can be set aside for a prepare record.
    pub(crate) fn can_reserve(&self, bytes: u64, blob_pages: u32) -> bool {
        let taken = if blob_pages > 0 { u64::from(blob_pages.div_ceil(self.placement.segments.pages)) + 1 } else { 0 };
        self.has_room(bytes, Claim::New, taken)
    }

    /// Whether the volume should grow before more is moved.
    pub(crate) fn wants_growth(&self) -> bool {
        let alive = self.placement.segments.live_bytes() + self.placement.queue_bytes;
        let held = self.placement.checkpoints.held();
        self.has_few_segments(self.space.whole_segments())
            || alive > self.live_limit_bytes(Claim::New, u64::from(held)) / 4 * 3
    }

    /// With so many that are free as a whole.
    pub(crate) fn has_few_segments(&self, whole: u32) -> bool {
        whole + self.placement.segments.used() < 12 + self.placement.checkpoints.held()
    }

    /// Pages that live records would fill, with those of blobs, and all that the log could have.
    pub(crate) fn use_of_space(&self) -> (u64, u64) {
        let segments = &self.placement.segments;
        let alive = segments.live_bytes() + self.placement.queue_bytes + self.placement.large.record_bytes();
        let alive = alive + self.batches.reserved_bytes();
        (alive / PAGE_BYTES as u64 + self.blobs.pages, u64::from(self.space.held()))
    }

    /// A record that no segment could take.
    fn check_record(&self, bytes: usize) -> Result<(), Error> {
        let segment = self.placement.segments.bytes() as usize;
        if bytes + HEADROOM_BYTES > segment {
            return Err(Error::Full("its capacity is too small for a key of this length"));
        }
        Ok(())
    }

    pub(crate) fn put_record(
        &mut self,
        work: &mut Work,
        newest: &Newest<Log>,
        (mut meta, value): (Meta, &Bytes),
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<Log>> {
        let (pages, key_bytes) = (self.placement.segments.pages, work.key.encoded().len());
        let bytes = record_bytes(&meta, key_bytes, value.len());
        let claim = if work.has_reserve() { Claim::Reserved } else { Claim::New };
        if matches!(newest.place, Some(RecordPlace::Blob { .. })) && newest.pending {
            // Its record is appended when the blob is durable: in which order is not known before.
            return Err(Wait::Drain.into());
        }
        if newest.place.is_none() && !work.has_reserve() {
            self.check_memory()?;
        }
        if bytes > inline_bytes(pages) {
            return self.put_large(work, newest, meta, value, reply, effects);
        }
        if !self.has_room(bytes as u64, claim, 0) {
            return Err(self.no_room(4 * pages, effects));
        }
        meta.version = work.version.unwrap_or_else(|| self.next_number());
        let reply = reply(meta.version);
        self.append((work, newest), RecordKind::Value, meta, value.clone(), reply);
        Ok(())
    }

    fn put_large(
        &mut self,
        work: &mut Work,
        newest: &Newest<Log>,
        meta: Meta,
        value: &Bytes,
        reply: &dyn Fn(u64) -> Reply,
        effects: &mut Effects,
    ) -> Result<(), Stop<Log>> {
        if newest.pending {
            return Err(Wait::Drain.into());
        }
        let (segment_pages, key_bytes) = (self.placement.segments.pages, work.key.encoded().len());
        let bytes = record_bytes(&meta, key_bytes, 12);
        self.check_record(bytes)?;
        let pages = Shape::new(key_bytes, value.len()).pages();
        // Set aside already, if it has an extent.
        if work.extent.is_none() {
            let taken = self.space.blob_takes_segments(pages);
            if !taken.is_some_and(|taken| self.has_room(bytes as u64, Claim::New, u64::from(taken))) {
                return Err(self.no_room(pages + 4 * segment_pages, effects));
            }
        }
        self.start_blob(work, meta, value.clone(), reply, effects)
    }

    pub(crate) fn delete_record(
        &mut self,
        work: &Work,
        newest: &Newest<Log>,
        effects: &mut Effects,
    ) -> Result<(), Stop<Log>> {
        if matches!(newest.place, Some(RecordPlace::Blob { .. })) && newest.pending {
            return Err(Wait::Drain.into());
        }
        let meta = Meta::default();
        let bytes = record_bytes(&meta, work.key.encoded().len(), 8);
        self.check_record(bytes)?;
        let claim = if work.has_reserve() { Claim::Reserved } else { Claim::Delete };
        if !self.has_room(bytes as u64, claim, 0) {
            return Err(self.no_room(1, effects));
        }
        let version = self.next_number();
        let meta = Meta { version, ..meta };
        let reply = Reply::deleted(version, newest.exists);
        self.append((work, newest), RecordKind::Deleted { appended: 0 }, meta, Bytes::new(), reply);
        Ok(())
    }

    /// Queues a record of a user's write.
    fn append(
        &mut self,
        (work, before): (&Work, &Newest<Log>),
        kind: RecordKind,
        meta: Meta,
        value: Bytes,
        reply: Reply,
    ) {
        let deleted = matches!(kind, RecordKind::Deleted { .. });
        let change = Change {
            key: work.key.clone(),
            place: LogPlace::Record(RecordAddress::NOWHERE),
            expiry: meta.expiry,
            finger: before.finger,
            kind: if deleted { Changed::Delete } else { Changed::Put },
            ack: Some(Ack { origin: work.origin, reply }),
        };
        let newest = (!deleted).then_some(LogPlace::Record(RecordAddress::NOWHERE));
        let pending = self.keys.changed(&work.key, newest, meta.expiry);
        pending.placement.newest = (!deleted).then(|| (meta, value.clone()));
        self.placement.reclusterer.written();
        self.queue_append(Append { kind, meta, value, change, level: work.level });
    }

    /// A blob and its head are durable: its record is appended.
    pub(crate) fn append_large(&mut self, change: Change<Log>, meta: Meta, value_bytes: u32, level: Level) {
        let RecordPlace::Blob { first, pages } = change.place else { return };
        let kind = RecordKind::Large { blob: Extent { first, pages }, value_bytes };
        self.queue_append(Append { kind, meta, value: Bytes::new(), change, level });
    }

    fn queue_append(&mut self, append: Append) {
        self.placement.queue_bytes += append.bytes() as u64;
        self.placement.queue.push_back(append);
    }
}
