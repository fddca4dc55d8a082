//! Whether all that counts on the volume is what was written. It changes nothing, and knows what a
//! process that was killed may have left half written.

use std::collections::HashMap;

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::{Corruption, Key, Place};
use stratakv_chassis::superblock::SuperblockError;

use crate::ending::decode_page;
use crate::index::Tag;
use crate::item::{HEADER_BYTES, Header};
use crate::journal::{Tail, decode_ring};
use crate::log::{Head, Stored};
use crate::superblock::{Layout, Superblock, TAIL_PAGE};
use crate::tier::Tier;

/// Keys of lost items that are listed, of a shard.
const LOST_LISTED: usize = 100;
/// Segments that may have been on their way when the process was killed.
const ON_THEIR_WAY: usize = 2;

/// What [`Tier::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Items whose checksum, place and entry in the index are right.
    pub items: u64,
    /// What a process that was killed left half written: harmless.
    pub torn: u64,
    /// Damage, with its place.
    pub damage: Vec<Corruption>,
    /// Places that the device did not give.
    pub unreadable: Vec<String>,
    /// Keys of items that cannot be read: at most a hundred.
    pub lost: Vec<Key>,
    /// How many there are whose key is known.
    pub lost_items: u64,
    /// Those whose key cannot be read either.
    pub lost_unknown: u64,
}

/// Reads so many bytes from this byte of the volume on; why they cannot be read.
pub type ReadVolume<'a> = &'a mut dyn FnMut(u64, usize) -> Result<Vec<u8>, String>;

struct Verifier<'a, 'r> {
    tier: &'a Tier,
    read: ReadVolume<'r>,
    found: Verified,
}

impl Tier {
    /// Reads and verifies all that counts of the volume of a shard that was opened for reading
    /// only: superblocks, journal, table, and of the segments heads, summaries and the items that
    /// the index knows. O(volume).
    pub fn verify(&self, read: ReadVolume<'_>) -> Verified {
        let mut verifier = Verifier { tier: self, read, found: Verified::default() };
        if let Some(superblock) = verifier.superblocks()
            && verifier.counts(&superblock)
            && (superblock.is_saved() || verifier.journal(&superblock))
        {
            verifier.table(&superblock);
            verifier.segments(&superblock);
        }
        verifier.found
    }

    /// Pages of the volume, and those of them that hold nothing.
    pub fn volume_pages(&self) -> (u64, u64) {
        let Layout { log_page, log_pages, .. } = self.superblock.get().layout;
        let used = self.volume.as_ref().map_or(0, |volume| volume.log.used_pages());
        (log_page + log_pages, log_pages.saturating_sub(used))
    }
}

impl Verifier<'_, '_> {
    fn damaged(&mut self, page: u64, what: &'static str, expected: &str, found: impl Into<String>) {
        self.damaged_at(page * PAGE_BYTES as u64, what, expected, found);
    }

    fn damaged_at(&mut self, offset_bytes: u64, what: &'static str, expected: &str, found: impl Into<String>) {
        let place = Place { shard: self.tier.config.shard, offset_bytes };
        let (expected, found) = (expected.to_owned(), found.into());
        self.found.damage.push(Corruption { place, what, expected, found });
    }

    /// A page, or damage of it.
    fn page(&mut self, page: u64, what: &'static str) -> Option<Vec<u8>> {
        match (self.read)(page * PAGE_BYTES as u64, PAGE_BYTES) {
            Ok(bytes) => Some(bytes),
            Err(why) => {
                self.found.unreadable.push(format!("{why} ({what})"));
                None
            }
        }
    }

    /// The one that holds.
    fn superblocks(&mut self) -> Option<Superblock> {
        let uuid = self.tier.config.uuid;
        let mut newest: Option<Superblock> = None;
        for page in 0..2 {
            let Some(bytes) = self.page(page, "superblock") else { continue };
            match Superblock::decode(&uuid, page, &bytes) {
                Ok(found) => newest = newest.into_iter().chain([found]).max_by_key(|found| found.generation),
                // `page` has told what cannot be read.
                Err(SuperblockError::Unreadable(_)) => {}
                Err(SuperblockError::Damaged(why)) => self.damaged(page, "superblock", "one that checks", why),
                Err(SuperblockError::Newer { found, .. }) => {
                    self.damaged(page, "superblock", "the same format as its copy", format!("format {found}"));
                }
                Err(SuperblockError::Foreign) => self.damaged(page, "superblock", "this store's", "another store's"),
            }
        }
        newest
    }

    /// Whether anything but the superblocks counts: there is a second tier, as long as before, and
    /// nothing says that the power may have failed since.
    fn counts(&self, superblock: &Superblock) -> bool {
        let config = &self.tier.config;
        let same_system = superblock.boot.is_some() && superblock.boot == config.boot;
        match Layout::of(config) {
            Some(layout) => layout == superblock.layout && (superblock.clean || same_system),
            None => superblock.is_saved(),
        }
    }

    /// Tails, and the pages of the ring that count. False: without a tail nothing else does.
    fn journal(&mut self, superblock: &Superblock) -> bool {
        let uuid = self.tier.config.uuid;
        let mut tails = Vec::new();
        for page in TAIL_PAGE..TAIL_PAGE + 2 {
            let Some(bytes) = self.page(page, "tail of the journal") else { continue };
            match Tail::decode(&uuid, page, &bytes) {
                Some(tail) => tails.push(tail),
                None => self.damaged(page, "tail of the journal", "one that checks", "something else"),
            }
        }
        tails.sort_by_key(|tail| tail.number);
        let [older, newer] = &tails[..] else { return false };
        if superblock.clean {
            return true;
        }
        // Pages that the newer tail speaks of first were written together with it.
        let (first, written, next) = (newer.first, older.next, newer.next);
        let ring_pages = superblock.layout.ring_pages.max(1);
        for position in first..next.min(first.saturating_add(ring_pages)) {
            let page = TAIL_PAGE + 2 + position % ring_pages;
            let Some(bytes) = self.page(page, "page of the journal") else { continue };
            match decode_ring(&uuid, page, position, &bytes) {
                Some(_) => {}
                None if position >= written => self.found.torn += 1,
                None => self.damaged(page, "page of the journal", &format!("position {position}"), "something else"),
            }
        }
        true
    }

    /// The table of an orderly end.
    fn table(&mut self, superblock: &Superblock) {
        let Some(table) = superblock.table.filter(|_| superblock.clean) else { return };
        for number in 0..table.pages() {
            let page = table.page.saturating_add(number);
            let Some(bytes) = self.page(page, "table of what is cached") else { continue };
            if decode_page(&self.tier.config.uuid, &table, number, &bytes).is_none() {
                let expected = format!("page {number} of {}", table.pages());
                self.damaged(page, "table of what is cached", &expected, "something else");
            }
        }
    }

    fn segments(&mut self, superblock: &Superblock) {
        let Some(volume) = &self.tier.volume else { return };
        let mut items: HashMap<u64, Vec<(u64, Tag)>> = HashMap::new();
        for (tag, loc) in self.tier.index.entries().filter(|(_, loc)| loc.is_on_volume()) {
            if let Some(stored) = volume.log.of(loc.address()) {
                items.entry(stored.page).or_default().push((loc.address(), tag));
            }
        }
        let all: Vec<Stored> = volume.log.iter().copied().collect();
        let written = all.len() - if superblock.clean { 0 } else { ON_THEIR_WAY.min(all.len()) };
        for (number, stored) in all.iter().enumerate().filter(|(_, stored)| stored.head_pages > 0) {
            // Of a void one nothing counts, if that is known from an orderly end.
            if superblock.clean && stored.is_void {
                continue;
            }
            let mut items = items.remove(&stored.page).unwrap_or_default();
            items.sort_unstable_by_key(|(address, _)| *address);
            let before = self.found.clone();
            self.segment(stored, &items);
            let broken = self.found.damage.len() - before.damage.len();
            if number >= written && broken > 0 {
                self.found = Verified { items: self.found.items, torn: before.torn + broken as u64, ..before };
            }
        }
    }

    fn segment(&mut self, stored: &Stored, items: &[(u64, Tag)]) {
        let bytes = match (self.read)(stored.page * PAGE_BYTES as u64, stored.pages as usize * PAGE_BYTES) {
            Ok(bytes) => bytes,
            Err(why) => return self.found.unreadable.push(format!("{why} (a segment of {} items)", items.len())),
        };
        let head = Head::decode(&self.tier.config.uuid, stored.page, &bytes);
        match head.filter(|head| (head.id, head.order) == (stored.id, stored.order)) {
            None => self.damaged(stored.page, "head of a segment", "one that checks", "something else"),
            Some(head) if head.lines(&bytes).is_none() => {
                self.damaged(stored.page, "summary of a segment", "one that checks", "something else");
            }
            Some(_) => {}
        }
        for (address, tag) in items {
            match self.check(stored, &bytes, *address, *tag) {
                Ok(()) => self.found.items += 1,
                Err((key, why)) => {
                    self.damaged_at(*address, "item", "one that checks", why);
                    self.lose(key);
                }
            }
        }
    }

    fn lose(&mut self, key: Option<Key>) {
        match key {
            Some(key) => {
                self.found.lost_items += 1;
                if self.found.lost.len() < LOST_LISTED {
                    self.found.lost.push(key);
                }
            }
            None => self.found.lost_unknown += 1,
        }
    }

    /// Whether the item at this byte of the volume is the one that the index means; else its key,
    /// if that can be read, and what is wrong.
    fn check(
        &self,
        stored: &Stored,
        segment: &[u8],
        address: u64,
        tag: Tag,
    ) -> Result<(), (Option<Key>, &'static str)> {
        let start = address.checked_sub(stored.page * PAGE_BYTES as u64).unwrap_or(u64::MAX) as usize;
        let offset = address.checked_sub(stored.data_at()).unwrap_or(u64::MAX) as usize;
        let bytes = segment.get(start..).unwrap_or_default();
        let Some(header) = Header::decode(bytes) else { return Err((None, "no header of an item")) };
        let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let encoded = body.get(..header.key_bytes as usize).unwrap_or_default();
        let key = Key::from_encoded(encoded).filter(|_| Tag::of(encoded) == tag);
        let Some(body) = body.get(..header.body_bytes()) else {
            return Err((key, "a header that says more bytes than the segment has"));
        };
        let sum = header.sum(&self.tier.config.uuid, stored.id, offset, std::iter::once(body));
        let value = bytes.get(header.value_at()..).unwrap_or_default();
        let sums = bytes.get(HEADER_BYTES + header.key_bytes as usize..header.value_at()).unwrap_or_default();
        let value = value.get(..header.value_bytes as usize).unwrap_or_default();
        if header.encode_sums(|range| value.get(range).into_iter()) != sums {
            return Err((key, "another checksum of a slice"));
        }
        match (key, sum == header.checksum) {
            (Some(_), true) => Ok(()),
            (key, _) => Err((key, "another checksum")),
        }
    }
}
