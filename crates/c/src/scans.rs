//! Scans and snapshots.

use std::ops::Bound;

use crate::arg::{self, Bytes, Out};
use crate::collections::Collection;
use crate::lists::cleared;
use crate::pages::Page;
use crate::record::{self, Record};
use crate::records::{answer, keyed};
use crate::status::{Failure, Status, c_function, found};
use crate::store::Store;

/// `stratakv_scan_options`.
#[repr(C)]
pub struct ScanOptions<'a> {
    from: Bytes<'a>,
    from_len: usize,
    to: Bytes<'a>,
    to_len: usize,
    prefix: Bytes<'a>,
    prefix_len: usize,
    from_excluded: u8,
    to_included: u8,
    is_sort_prefix: u8,
    reverse: u8,
    keys_only: u8,
}

impl ScanOptions<'_> {
    fn read(&self) -> Result<stratakv::ScanOptions, Failure> {
        let mut options = self.extent()?;
        if self.reverse != 0 {
            options = options.reverse();
        }
        if self.keys_only != 0 {
            options = options.keys_only();
        }
        Ok(options)
    }

    fn extent(&self) -> Result<stratakv::ScanOptions, Failure> {
        let from = self.from.take_some(self.from_len, "the lower bound")?;
        let to = self.to.take_some(self.to_len, "the upper bound")?;
        let Some(prefix) = self.prefix.take_some(self.prefix_len, "the prefix")? else {
            let from = bound(from, self.from_excluded == 0);
            return Ok(stratakv::ScanOptions::range::<&[u8]>((from, bound(to, self.to_included != 0))));
        };
        if from.is_some() || to.is_some() {
            return Err(Failure::usage("a scan has bounds or a prefix, not both: leave one of them NULL"));
        }
        Ok(match self.is_sort_prefix {
            0 => stratakv::ScanOptions::prefix(prefix),
            _ => stratakv::ScanOptions::sort_prefix(prefix),
        })
    }
}

fn bound(key: Option<&[u8]>, is_included: bool) -> Bound<&[u8]> {
    match (key, is_included) {
        (None, _) => Bound::Unbounded,
        (Some(key), true) => Bound::Included(key),
        (Some(key), false) => Bound::Excluded(key),
    }
}

/// `stratakv_scan`, with the key and value that it gave last.
pub struct Scan {
    scan: stratakv::Scan,
    /// What has been taken from the scan and was not given yet: it found no room in a page.
    held: Option<Result<(bytes::Bytes, stratakv::Record), stratakv::Error>>,
    key: bytes::Bytes,
    value: bytes::Bytes,
}

impl Scan {
    fn begin(
        collection: Option<&Collection>,
        options: Option<&ScanOptions<'_>>,
        snapshot: Option<&Snapshot>,
    ) -> Result<Scan, Failure> {
        let collection = &arg::handle(collection, "collection")?.records;
        let options = options.map_or_else(|| Ok(stratakv::ScanOptions::all()), ScanOptions::read)?;
        let scan = match snapshot {
            Some(snapshot) => snapshot.snapshot.scan(collection, options),
            None => collection.scan(options),
        };
        Ok(Scan { scan, held: None, key: bytes::Bytes::new(), value: bytes::Bytes::new() })
    }

    fn is_over(&self) -> bool {
        self.held.is_none() && self.scan.is_over()
    }

    fn take(&mut self) -> Option<Result<(bytes::Bytes, stratakv::Record), stratakv::Error>> {
        self.held.take().or_else(|| self.scan.next())
    }

    /// Fills a page with what is at hand, one record at least; the bytes that the first one needs
    /// if it found no room there.
    fn fill(&mut self, page: &mut Page<'_>) -> Result<Option<usize>, Failure> {
        while page.count() == 0 || self.scan.ready() > 0 {
            let Some(next) = self.take() else { break };
            match next {
                Ok((key, record)) if page.push(&key, &record) => {}
                Err(error) if page.count() == 0 => return Err(error.into()),
                next => {
                    let needed = next.as_ref().ok().map(|(key, record)| Page::needed(key, record));
                    self.held = Some(next);
                    return Ok(needed.filter(|_| page.count() == 0));
                }
            }
        }
        Ok(None)
    }
}

/// `stratakv_snapshot`.
pub struct Snapshot {
    snapshot: stratakv::Snapshot,
}

c_function! {
    /// Begins a scan.
    fn stratakv_scan_new(
        collection: Option<&Collection>,
        options: Option<&ScanOptions<'_>>,
        snapshot: Option<&Snapshot>,
        scan: Out<'_, Option<Box<Scan>>>,
    ) {
        let out = arg::wanted(scan, "scan")?.write(None);
        *out = Some(Box::new(Scan::begin(collection, options, snapshot)?));
        Ok(Status::Ok)
    }
}

c_function! {
    /// Begins a scan and gives its first page, and the scan itself if something follows.
    fn stratakv_scan_begin(
        collection: Option<&Collection>,
        options: Option<&ScanOptions<'_>>,
        snapshot: Option<&Snapshot>,
        room: arg::Room<'_, u8>,
        room_len: usize,
        len: Out<'_, usize>,
        count: Out<'_, usize>,
        scan: Out<'_, Option<Box<Scan>>>,
    ) {
        let (len, count) = (arg::wanted(len, "page's length")?, arg::wanted(count, "count")?);
        let (len, count) = (len.write(0), count.write(0));
        let out = arg::wanted(scan, "scan")?.write(None);
        let mut page = Page::new(room.take(room_len, "the room for records")?);
        let mut scan = Scan::begin(collection, options, snapshot)?;
        let filled = scan.fill(&mut page);
        if filled.is_err() || !scan.is_over() {
            *out = Some(Box::new(scan));
        }
        let needed = filled?;
        (*len, *count) = (needed.unwrap_or_else(|| page.len()), page.count());
        Ok(found(needed.is_some() || page.count() > 0))
    }
}

c_function! {
    /// The next key and record.
    fn stratakv_scan_next(
        scan: Option<&mut Scan>,
        key: Out<'_, *const u8>,
        key_len: Out<'_, usize>,
        record: Out<'_, Record>,
    ) {
        let record = cleared(record);
        let scan = arg::handle_mut(scan, "scan")?;
        let (key, key_len) = (arg::wanted(key, "key")?, arg::wanted(key_len, "key's length")?);
        key.write(std::ptr::null());
        key_len.write(0);
        let Some(next) = scan.take().transpose()? else {
            record::give(record, None);
            return Ok(Status::Absent);
        };
        (scan.key, scan.value) = (next.0, next.1.to_bytes());
        key.write(scan.key.as_ptr());
        key_len.write(scan.key.len());
        record::give(record, Some(Record::borrowed(&scan.value, &next.1)));
        Ok(Status::Ok)
    }
}

c_function! {
    /// The next records, one behind the other, as many as find room.
    fn stratakv_scan_page(
        scan: Option<&mut Scan>,
        room: arg::Room<'_, u8>,
        room_len: usize,
        len: Out<'_, usize>,
        count: Out<'_, usize>,
    ) {
        let (len, count) = (arg::wanted(len, "page's length")?, arg::wanted(count, "count")?);
        let (len, count) = (len.write(0), count.write(0));
        let scan = arg::handle_mut(scan, "scan")?;
        let mut page = Page::new(room.take(room_len, "the room for records")?);
        let needed = scan.fill(&mut page)?;
        (*len, *count) = (needed.unwrap_or_else(|| page.len()), page.count());
        Ok(found(needed.is_some() || page.count() > 0))
    }
}

/// Ends a scan.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_scan_free(scan: Option<Box<Scan>>) {
    drop(scan);
}

c_function! {
    /// A snapshot of all collections.
    fn stratakv_snapshot_new(store: Option<&Store>, snapshot: Out<'_, Option<Box<Snapshot>>>) {
        let out = arg::wanted(snapshot, "snapshot")?.write(None);
        let snapshot = arg::handle(store, "store")?.store.snapshot()?;
        *out = Some(Box::new(Snapshot { snapshot }));
        Ok(Status::Ok)
    }
}

c_function! {
    /// Reads a record of a snapshot.
    fn stratakv_snapshot_get(
        snapshot: Option<&Snapshot>,
        collection: Option<&Collection>,
        key: Bytes<'_>,
        key_len: usize,
        record: Out<'_, Record>,
    ) {
        let out = arg::wanted(record, "record")?;
        out.write(record::NONE);
        let snapshot = &arg::handle(snapshot, "snapshot")?.snapshot;
        let (collection, key) = keyed(collection, key, key_len)?;
        answer(snapshot.get(collection, key)?, Some(out))
    }
}

/// Ends a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn stratakv_snapshot_free(snapshot: Option<Box<Snapshot>>) {
    drop(snapshot);
}
