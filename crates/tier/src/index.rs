//! The index: from 40 bits of a key's hash to where its item may lie. Keys are compared by whoever
//! looks at the item.
//!
//! 256 tables with open addressing, each of which grows by a fifth at a load of 85 %: 12 bytes an
//! entry, 14.1 to 17.0 bytes an item. One of which two fifths are empty becomes shorter again. (A
//! table that is being changed exists twice: one of 256.) At its limit no table grows: it is filled
//! further, and then takes nothing more.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const TABLES: usize = 256;
const LOAD_PERCENT: usize = 85;
/// A table that is emptier becomes shorter.
const LOAD_PERCENT_MIN: usize = 60;
/// Of one that has become shorter: as one that has grown.
const LOAD_PERCENT_SHRUNK: usize = 70;
/// Of a table that may not grow.
const LOAD_PERCENT_MAX: usize = 92;
/// A table that has just grown has so many bytes an entry, times a hundred: those of all tables,
/// rounded up.
const ENTRY_BYTES_GROWN_PERCENT: u64 = 1700;
const ENTRY_BYTES: usize = 12;
/// Places that a list looks at together.
const CHUNK_PLACES: usize = 64;

/// 40 bits of a key's hash: the table, and the fingerprint in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) const BYTES: usize = 5;

    /// The tag of an encoded key. Part of the format.
    pub(crate) fn of(encoded: &[u8]) -> Tag {
        // Not the hash that chose the shard: that one has bits in common for all keys of a shard.
        Tag::from_bits(xxh3_64_with_seed(encoded, 0x7469_6572))
    }

    pub(crate) fn from_bits(bits: u64) -> Tag {
        Tag(bits & 0xFF_FFFF_FFFF)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The tag with these bits; `None`: they are behind the last one.
    pub(crate) fn checked(bits: u64) -> Option<Tag> {
        (bits >> (8 * Self::BYTES) == 0).then_some(Tag(bits))
    }

    fn new(table: usize, fingerprint: u32) -> Tag {
        Tag((table as u64) << 32 | u64::from(fingerprint))
    }

    fn table(self) -> usize {
        (self.0 >> 32) as usize % TABLES
    }

    fn fingerprint(self) -> u32 {
        self.0 as u32
    }
}

/// Where an item lies, how long it is if that is the volume, and how often it was used.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Loc(u64);

const PRESENT: u64 = 1 << 63;
const ON_VOLUME: u64 = 1 << 62;
const USES_AT: u32 = 60;
/// Somebody wanted the key before: the admission filter lets it pass.
const WANTED: u64 = 1 << 59;
const PLACE: u64 = ((1 << 59) - 1) | ON_VOLUME | PRESENT;
const PAGES_AT: u32 = 45;
const SLOT_AT: u32 = 24;

impl Loc {
    /// In DRAM: the segment in this slot, from this byte on (a multiple of 8).
    pub(crate) fn dram(slot: u32, offset: usize) -> Loc {
        Loc(PRESENT | u64::from(slot) << SLOT_AT | (offset / 8) as u64)
    }

    /// On the volume: from this byte on (a multiple of 8), in so many pages, which are rounded up
    /// to five bits of precision.
    pub(crate) fn volume(address: u64, pages: u64) -> Loc {
        let shift = (0..16).find(|shift| pages.div_ceil(1 << shift) < 32).unwrap_or(15);
        let code = shift << 5 | pages.div_ceil(1 << shift).min(31);
        Loc(PRESENT | ON_VOLUME | code << PAGES_AT | (address / 8))
    }

    pub(crate) fn from_bits(bits: u64) -> Loc {
        Loc(bits | PRESENT)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn is_on_volume(self) -> bool {
        self.0 & ON_VOLUME != 0
    }

    /// Slot and offset of an item in DRAM.
    pub(crate) fn in_dram(self) -> Option<(u32, usize)> {
        let slot = (self.0 >> SLOT_AT) as u32 & 0xFF_FFFF;
        (!self.is_on_volume()).then_some((slot, (self.0 as usize & 0xFF_FFFF) * 8))
    }

    /// First byte of an item on the volume.
    pub(crate) fn address(self) -> u64 {
        (self.0 & ((1 << PAGES_AT) - 1)) * 8
    }

    /// Pages to be read for an item on the volume; may be a few more than it has.
    pub(crate) fn pages(self) -> u64 {
        let code = self.0 >> PAGES_AT & 0x1FF;
        (code & 31) << (code >> 5)
    }

    /// The same place, whatever is known of its use.
    pub(crate) fn is_at(self, other: Loc) -> bool {
        self.0 & PLACE == other.0 & PLACE
    }

    /// Without what is known of its use: a name for the place.
    pub(crate) fn place(self) -> Loc {
        Loc(self.0 & PLACE)
    }

    pub(crate) fn uses(self) -> u8 {
        (self.0 >> USES_AT) as u8 & 3
    }

    pub(crate) fn with_uses(self, uses: u8) -> Loc {
        Loc(self.0 & !(3 << USES_AT) | u64::from(uses.min(3)) << USES_AT)
    }

    pub(crate) fn is_wanted(self) -> bool {
        self.0 & WANTED != 0
    }

    pub(crate) fn wanted(self, wanted: bool) -> Loc {
        Loc(self.0 & !WANTED | if wanted { WANTED } else { 0 })
    }
}

impl std::fmt::Debug for Loc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.in_dram() {
            Some((slot, offset)) => write!(f, "dram {slot}+{offset} used {}", self.uses()),
            None => write!(f, "volume {}, {} pages, used {}", self.address(), self.pages(), self.uses()),
        }
    }
}

#[derive(Debug, Default)]
struct IndexTable {
    fingerprints: Vec<u32>,
    /// 0 where there is no entry.
    locs: Vec<u64>,
    len: usize,
}

impl IndexTable {
    fn with_places(places: usize) -> IndexTable {
        IndexTable { fingerprints: vec![0; places], locs: vec![0; places], len: 0 }
    }

    fn bucket(&self, fingerprint: u32) -> usize {
        ((u64::from(fingerprint) * self.locs.len() as u64) >> 32) as usize
    }

    /// Places from a fingerprint's bucket to the next empty one.
    fn chain(&self, fingerprint: u32) -> impl Iterator<Item = usize> {
        let (len, bucket) = (self.locs.len(), self.bucket(fingerprint));
        (bucket..len)
            .chain(0..bucket)
            .take_while(|at| self.locs[*at] != 0)
            .filter(move |at| self.fingerprints[*at] == fingerprint)
    }

    /// Whether one entry more makes it fuller than this.
    fn is_loaded(&self, percent: usize) -> bool {
        (self.len + 1) * 100 > self.locs.len() * percent
    }

    fn grown_len(&self) -> usize {
        (self.locs.len() * 6 / 5 + 1).max(8)
    }

    /// A place must be free.
    fn insert(&mut self, fingerprint: u32, loc: Loc) {
        let (len, bucket) = (self.locs.len(), self.bucket(fingerprint));
        if let Some(at) = (bucket..len).chain(0..bucket).find(|at| self.locs[*at] == 0) {
            (self.fingerprints[at], self.locs[at]) = (fingerprint, loc.bits());
            self.len += 1;
        }
    }

    fn grow(&mut self) {
        self.rebuild(self.grown_len());
    }

    /// Places that its entries need at this load.
    fn fitting_len(&self, percent: usize) -> usize {
        if self.len == 0 { 0 } else { (self.len * 100 / percent + 2).max(8) }
    }

    /// Into a table of so many places, which are more than entries.
    fn rebuild(&mut self, places: usize) {
        let old = std::mem::replace(self, IndexTable::with_places(places));
        for (fingerprint, loc) in old.fingerprints.into_iter().zip(old.locs).filter(|(_, loc)| *loc != 0) {
            self.insert(fingerprint, Loc(loc));
        }
    }

    /// Empties a place, and moves back what was pushed past it.
    fn remove(&mut self, mut hole: usize) {
        let len = self.locs.len();
        let mut at = hole;
        loop {
            at = (at + 1) % len;
            if self.locs[at] == 0 {
                break;
            }
            let bucket = self.bucket(self.fingerprints[at]);
            // It may lie in the hole if its bucket is not cyclically in (hole, at].
            if (at + len - bucket) % len >= (at + len - hole) % len {
                (self.fingerprints[hole], self.locs[hole]) = (self.fingerprints[at], self.locs[at]);
                hole = at;
            }
        }
        self.locs[hole] = 0;
        self.len -= 1;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Index {
    tables: Vec<IndexTable>,
    len: usize,
    places: usize,
    limit_bytes: usize,
    /// The next table that is looked at for places that it does not need.
    hand: usize,
}

impl Index {
    pub(crate) fn new(limit_bytes: u64) -> Index {
        let limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        Index { tables: (0..TABLES).map(|_| IndexTable::default()).collect(), len: 0, places: 0, limit_bytes, hand: 0 }
    }

    /// Changes the limit. Above it no table grows, and [`Index::shrink_step`] brings it down once
    /// entries are gone.
    pub(crate) fn set_limit_bytes(&mut self, limit_bytes: u64) {
        self.limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
    }

    /// Whether it takes more than its limit.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes() > self.limit_bytes
    }

    /// Makes one table shorter, if that is worth it: above the limit the one with the most places
    /// to spare, else the next one in turn if two fifths of it are empty. Whether it did. Nobody
    /// may be counting entries meanwhile ([`Index::entries_from`]). O(entries of a table).
    pub(crate) fn shrink_step(&mut self) -> bool {
        if self.is_over() {
            return self.shrink_slackest();
        }
        self.hand = (self.hand + 1) % TABLES;
        let table = &self.tables[self.hand];
        let is_slack = table.locs.len() > 8 && table.len * 100 < table.locs.len() * LOAD_PERCENT_MIN;
        is_slack && self.shrink(self.hand, LOAD_PERCENT_SHRUNK)
    }

    /// Makes the table with the most places to spare shorter, if they are an eighth of it. Whether
    /// it did.
    pub(crate) fn shrink_slackest(&mut self) -> bool {
        let spare = |table: &IndexTable| table.locs.len().saturating_sub(table.fitting_len(LOAD_PERCENT));
        let slackest = (0..TABLES).max_by_key(|number| spare(&self.tables[*number]));
        let slackest = slackest.filter(|number| spare(&self.tables[*number]) * 8 > self.tables[*number].locs.len());
        slackest.is_some_and(|number| self.shrink(number, LOAD_PERCENT))
    }

    fn shrink(&mut self, number: usize, percent: usize) -> bool {
        let table = &mut self.tables[number];
        let (before, after) = (table.locs.len(), table.fitting_len(percent));
        if after < before {
            table.rebuild(after);
            self.places -= before - after;
        }
        after < before
    }

    /// Whether it has so many entries that some should go: it is not at its limit yet.
    pub(crate) fn is_crowded(&self) -> bool {
        self.len as u64 * ENTRY_BYTES_GROWN_PERCENT / 100 > self.limit_bytes as u64 / 8 * 7
    }

    /// Whether an entry of this tag fits within the limit.
    pub(crate) fn has_room(&self, tag: Tag) -> bool {
        let table = &self.tables[tag.table()];
        !table.is_loaded(LOAD_PERCENT) || self.may_grow(table) || !table.is_loaded(LOAD_PERCENT_MAX)
    }

    /// A table without places gets its first ones in any case.
    fn may_grow(&self, table: &IndexTable) -> bool {
        table.locs.is_empty() || (self.places + table.grown_len() - table.locs.len()) * ENTRY_BYTES <= self.limit_bytes
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.places * ENTRY_BYTES
    }

    /// Where items with this tag lie.
    pub(crate) fn find(&self, tag: Tag) -> impl Iterator<Item = Loc> {
        let table = &self.tables[tag.table()];
        table.chain(tag.fingerprint()).map(|at| Loc(table.locs[at]))
    }

    /// The entry of this place, with what is known of its use.
    pub(crate) fn at(&self, tag: Tag, place: Loc) -> Option<Loc> {
        self.find(tag).find(|loc| loc.is_at(place))
    }

    /// Without [`Index::has_room`] it goes beyond the limit.
    pub(crate) fn insert(&mut self, tag: Tag, loc: Loc) {
        let table = &self.tables[tag.table()];
        let may_grow = self.may_grow(table);
        let table = &mut self.tables[tag.table()];
        let before = table.locs.len();
        if table.is_loaded(if may_grow { LOAD_PERCENT } else { LOAD_PERCENT_MAX }) {
            table.grow();
        }
        table.insert(tag.fingerprint(), loc);
        self.places += table.locs.len() - before;
        self.len += 1;
    }

    /// Points the entry of a place elsewhere; false if there is none.
    pub(crate) fn replace(&mut self, tag: Tag, place: Loc, new: Loc) -> bool {
        let table = &mut self.tables[tag.table()];
        let at = table.chain(tag.fingerprint()).find(|at| Loc(table.locs[*at]).is_at(place));
        at.inspect(|at| table.locs[*at] = new.bits()).is_some()
    }

    /// Removes the entry of a place; false if there is none.
    pub(crate) fn remove(&mut self, tag: Tag, place: Loc) -> bool {
        let table = &mut self.tables[tag.table()];
        let at = table.chain(tag.fingerprint()).find(|at| Loc(table.locs[*at]).is_at(place));
        self.len -= usize::from(at.is_some());
        at.inspect(|at| table.remove(*at)).is_some()
    }

    /// Keeps the entries of which `keep` says so, in tables that are no larger than they need;
    /// gives back how many are gone. O(entries).
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Tag, Loc) -> bool) -> u64 {
        let before = self.len;
        (self.len, self.places) = (0, 0);
        for (number, table) in self.tables.iter_mut().enumerate() {
            let old = std::mem::take(table);
            let entries = old.fingerprints.into_iter().zip(old.locs).filter(|(_, loc)| *loc != 0);
            let kept: Vec<_> =
                entries.filter(|(fingerprint, loc)| keep(Tag::new(number, *fingerprint), Loc(*loc))).collect();
            if !kept.is_empty() {
                *table = IndexTable::with_places((kept.len() * 100 / LOAD_PERCENT + 2).max(8));
                kept.into_iter().for_each(|(fingerprint, loc)| table.insert(fingerprint, Loc(loc)));
            }
            self.len += table.len;
            self.places += table.locs.len();
        }
        (before - self.len) as u64
    }

    /// The entries of the tags from this one to another, in their order, and that other one.
    /// `None`: there are none behind. Where tags lie depends on their tables' lengths only to the
    /// order, so whoever goes on from tag to tag meets every entry once, however tables grow
    /// meanwhile. O(places of a chunk, and of the chain that goes on there).
    pub(crate) fn chunk(&self, from: Tag) -> (Vec<(Tag, Loc)>, Option<Tag>) {
        let (number, first) = (from.table(), from.fingerprint());
        let behind = Tag::checked((number as u64 + 1) << 32);
        let table = &self.tables[number];
        let places = table.locs.len();
        if table.len == 0 {
            return (Vec::new(), behind);
        }
        let bucket = table.bucket(first);
        let end = Some(bucket + CHUNK_PLACES).filter(|end| *end < places);
        // The first fingerprint whose bucket is there.
        let end_fingerprint = end.map(|end| ((end as u64) << 32).div_ceil(places as u64));
        let wanted = u64::from(first)..end_fingerprint.unwrap_or(1 << 32);
        let mut entries = Vec::new();
        for (distance, at) in (bucket..places).chain(0..bucket).enumerate() {
            if table.locs[at] == 0 {
                if bucket + distance >= end.unwrap_or(places) {
                    break;
                }
            } else if wanted.contains(&u64::from(table.fingerprints[at])) {
                entries.push((Tag::new(number, table.fingerprints[at]), Loc(table.locs[at])));
            }
        }
        entries.sort_by_key(|(tag, _)| *tag);
        (entries, end_fingerprint.map_or(behind, |end| Some(Tag::new(number, end as u32))))
    }

    /// All entries but the first `skipped`. O(tables) to begin with.
    pub(crate) fn entries_from(&self, mut skipped: usize) -> impl Iterator<Item = (Tag, Loc)> {
        let mut first = 0;
        while let Some(table) = self.tables.get(first).filter(|table| table.len <= skipped) {
            skipped -= table.len;
            first += 1;
        }
        self.entries_of(first).skip(skipped)
    }

    /// All entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Tag, Loc)> {
        self.entries_of(0)
    }

    fn entries_of(&self, first: usize) -> impl Iterator<Item = (Tag, Loc)> {
        self.tables.iter().enumerate().skip(first).flat_map(|(number, table)| {
            let entries = table.fingerprints.iter().zip(&table.locs).filter(|(_, loc)| **loc != 0);
            entries.map(move |(fingerprint, loc)| (Tag::new(number, *fingerprint), Loc(*loc)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use stratakv_base::random::Random;

    use super::*;

    #[test]
    fn an_item_costs_at_most_twenty_bytes() {
        let (mut index, mut random) = (Index::new(u64::MAX), Random::new(1));
        for number in 0..400_000u64 {
            index.insert(Tag::from_bits(random.next_u64()), Loc::volume(number * 8, 1));
            if number >= 50_000 && number % 997 == 0 {
                let each = index.bytes() as f64 / index.len() as f64;
                assert!(each <= 17.1, "{each} bytes an item at {number} items");
            }
        }
    }

    #[test]
    fn at_its_limit_it_grows_no_more() {
        let (mut index, mut random) = (Index::new(100_000), Random::new(1));
        let mut crowded_at = None;
        for number in 0..20_000u64 {
            let tag = Tag::from_bits(random.next_u64());
            if index.has_room(tag) {
                index.insert(tag, Loc::volume(number * 8, 1));
                assert_eq!(index.find(tag).count(), 1);
            }
            crowded_at = crowded_at.or(index.is_crowded().then_some(number));
        }
        assert!(index.bytes() <= 100_000 && index.len() > 6000, "{} entries in {} bytes", index.len(), index.bytes());
        let gone = index.retain(|tag, _| tag.bits() % 2 == 0);
        assert!(gone > 3000 && index.bytes() < 60_000, "{gone} gone, {} bytes left", index.bytes());
        assert!(index.entries().all(|(tag, loc)| index.at(tag, loc).is_some()));
        assert!(crowded_at.is_some_and(|number| (5000..6000).contains(&number)), "{crowded_at:?}");
    }

    #[test]
    fn places_come_back_as_they_were() {
        for pages in [1, 2, 31, 32, 33, 100, 1000, 16_385, 16_402] {
            let loc = Loc::volume(123_456_789 * 8, pages).with_uses(2).wanted(true);
            assert_eq!(loc.address(), 123_456_789 * 8);
            assert!(loc.pages() >= pages && loc.pages() <= pages + pages / 16 + 1, "{} for {pages}", loc.pages());
            assert!(loc.in_dram().is_none() && loc.uses() == 2 && loc.is_wanted());
            assert!(loc.is_at(Loc::volume(123_456_789 * 8, pages)));
        }
        let loc = Loc::dram(0xABCDEF, 80).with_uses(9);
        assert_eq!((loc.in_dram(), loc.uses()), (Some((0xABCDEF, 80)), 3));
    }

    /// What a list meets, chunk after chunk; `between` is called after each.
    fn listed(index: &mut Index, mut between: impl FnMut(&mut Index)) -> Vec<(Tag, Loc)> {
        let (mut all, mut from) = (Vec::new(), Tag::checked(0));
        while let Some(tag) = from {
            let (entries, next) = index.chunk(tag);
            assert!(entries.iter().all(|(found, _)| *found >= tag && next.is_none_or(|next| *found < next)));
            assert!(next.is_none_or(|next| next > tag));
            all.extend(entries);
            from = next;
            between(index);
        }
        all
    }

    #[test]
    fn chunks_have_what_stays_once_while_tables_grow_and_shrink() {
        for load in [3u64, 300, 30_000, 200_000] {
            let (mut index, mut random) = (Index::new(u64::MAX), Random::new(load));
            let place = |number: u64| Loc::volume(number * 8, 1);
            let stays: Vec<(Tag, Loc)> =
                (0..load).map(|number| (Tag::from_bits(random.next_u64()), place(number))).collect();
            stays.iter().for_each(|(tag, loc)| index.insert(*tag, *loc));
            let (mut others, mut number) = (Vec::new(), load);
            let found = listed(&mut index, |index| {
                // First many come, then all of them go again.
                for _ in 0..40 {
                    if number < 2 * load {
                        let (tag, loc) = (Tag::from_bits(random.next_u64()), place(number));
                        index.insert(tag, loc);
                        others.push((tag, loc));
                        number += 1;
                    } else if let Some((tag, loc)) = others.pop() {
                        assert!(index.remove(tag, loc));
                    }
                }
                index.shrink_step();
            });
            let mut ours: Vec<_> = found.into_iter().filter(|(_, loc)| loc.address() < load * 8).collect();
            let mut expected = stays;
            expected.sort_by_key(|(tag, loc)| (*tag, loc.bits()));
            ours.sort_by_key(|(tag, loc)| (*tag, loc.bits()));
            assert_eq!(ours, expected, "{load}");
        }
    }

    proptest! {
        /// A few fingerprints, so that chains are long and wrap around.
        #[test]
        fn it_holds_what_a_set_holds(steps in prop::collection::vec((0u64..3, 0u64..40, 0u64..4), 1..400)) {
            let (mut index, mut set) = (Index::new(u64::MAX), BTreeSet::new());
            for (what, tag, place) in steps {
                let (tag, loc) = (Tag::from_bits(tag << 27 | 0xFF), Loc::volume((tag * 4 + place) * 8, 1));
                match what {
                    0 if set.insert((tag, loc.bits())) => index.insert(tag, loc),
                    1 => prop_assert_eq!(index.remove(tag, loc), set.remove(&(tag, loc.bits()))),
                    _ => prop_assert_eq!(index.at(tag, loc).is_some(), set.contains(&(tag, loc.bits()))),
                }
                prop_assert_eq!(index.len(), set.len());
            }
            let entries: BTreeSet<_> = index.entries().map(|(tag, loc)| (tag, loc.bits())).collect();
            prop_assert_eq!(&entries, &set);
            let found = listed(&mut index, |_| {});
            prop_assert_eq!(found.len(), set.len());
            prop_assert_eq!(found.into_iter().map(|(tag, loc)| (tag, loc.bits())).collect::<BTreeSet<_>>(), set);
        }
    }
}
