//! Lists of all records, a page at a time: for clients of a cache, whose keys are in no order.
//!
//! A page takes shares of the keys: those whose hashes end in the same bits, as many bits as the
//! table has. Shares follow each other by these bits read backwards, so a share that is split comes
//! apart into two that are neighbours, and a cursor stays right however the table grows.

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::{Error, Item, ListRequest, Record, Value};
use stratakv_pmem::Pmem;

use crate::hash::Hash;

/// Shares that one page looks at.
const SHARES_MAX: usize = 1024;
/// Bytes of keys that end a page.
const BYTES_MAX: usize = 64 << 10;

/// Items, and the cursor of the next page.
pub(crate) type Listed = (Vec<Item>, Option<u64>);

impl<P: Pmem> Hash<P> {
    /// A page of a list. A record that is damaged is noted and left out.
    ///
    /// # Errors
    /// The memory under a record cannot be read.
    pub(crate) fn list(&self, request: &ListRequest, wall: Wall) -> Result<Listed, Error> {
        let (mut items, mut cursor, mut bytes) = (Vec::<Item>::new(), request.cursor, 0);
        for _ in 0..SHARES_MAX {
            let (bits, begin) = (self.table.bits(), items.len());
            self.list_share(share_at(cursor, bits), bits, request.collection, wall, &mut items)?;
            match behind(cursor, bits) {
                Some(next) => cursor = next,
                None => return Ok((items, None)),
            }
            bytes += items.iter().skip(begin).map(|item| item.key.encoded().len()).sum::<usize>();
            if items.len() >= request.items_max.max(1) as usize || bytes >= BYTES_MAX {
                break;
            }
        }
        Ok((items, Some(cursor)))
    }

    fn list_share(
        &self,
        share: u64,
        bits: u32,
        collection: CollectionId,
        wall: Wall,
        items: &mut Vec<Item>,
    ) -> Result<(), Error> {
        let _inside = self.epochs.enter();
        let begin = items.len();
        for place in self.table.places(share, bits) {
            let Some(item) = self.known_at(place)? else { continue };
            let record = item.record.as_ref();
            let is_there = item.key.collection() == collection && record.is_some_and(|r| !r.expiry.is_past(wall));
            // A bucket that was split meanwhile is met twice.
            if is_there && items.iter().skip(begin).all(|other| other.key != item.key) {
                items.push(item);
            }
        }
        Ok(())
    }

    /// What the header of the record at `place` says, if it checks.
    fn known_at(&self, place: u64) -> Result<Option<Item>, Error> {
        let offset = self.region.offset(place);
        let Some((header, prefix)) = self.whole_header(offset)? else {
            let damage = self.region.damage(offset, "record", "a header and a key that check", "other bytes".into());
            // It is counted; whoever gets the key is told.
            self.note(damage);
            return Ok(None);
        };
        let (flags, value_bytes) = (header.flags_in(&prefix), header.value_bytes.into());
        let (version, expiry) = (header.version, Expiry(header.expiry));
        let record = Record { value: Value::Inline(Bytes::new()), value_bytes, flags, version, expiry };
        Ok(Key::from_encoded(header.key_in(&prefix)).map(|key| Item { key, record: Some(record) }))
    }
}

/// The share that a cursor stands at, of shares with so many bits.
fn share_at(cursor: u64, bits: u32) -> u64 {
    cursor.reverse_bits() & ((1 << bits) - 1)
}

/// The cursor behind that share; `None`: it is the last one.
fn behind(cursor: u64, bits: u32) -> Option<u64> {
    let length = 1u64.checked_shl(u64::BITS - bits)?;
    (cursor & !(length - 1)).checked_add(length)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stratakv_engine::Expect;
    use stratakv_pmem::{MapOptions, Mapping};

    use super::*;
    use crate::HashOptions;

    const NOW: Wall = Wall(1000);

    fn key(number: usize) -> Key {
        Key::new(CollectionId(0), format!("key {number}").as_bytes()).unwrap()
    }

    /// Shares whose bits grow between pages were met twice, or not at all, by cursors that count
    /// them.
    #[test]
    fn keys_that_stay_are_listed_once_while_the_table_grows() {
        let pmem = Mapping::anonymous(16 << 20, MapOptions::default()).unwrap();
        let hash = Hash::create(pmem, HashOptions { segment_bytes: 16 << 10, ..HashOptions::default() }).unwrap();
        let put = |number| {
            hash.put(&key(number), b"v", (0, Expiry::NEVER), Expect::Any, NOW).unwrap();
        };
        (0..3000).for_each(put);
        let (mut cursor, mut listed, mut written) = (0, BTreeMap::new(), 3000);
        let before = hash.table.bits();
        loop {
            let request = ListRequest { collection: CollectionId(0), cursor, shard: 0, items_max: 10 };
            let (items, next) = hash.list(&request, NOW).unwrap();
            items.into_iter().for_each(|item| *listed.entry(item.key).or_insert(0) += 1);
            let Some(next) = next else { break };
            cursor = next;
            (written..written + 20).for_each(put);
            written += 20;
        }
        assert!(hash.table.bits() > before, "{before} bits, then {}", hash.table.bits());
        assert!((0..3000).all(|number| listed.get(&key(number)) == Some(&1)));
        assert!(listed.values().all(|times| *times == 1));
    }
}
