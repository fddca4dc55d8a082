//! The two superblocks of a volume, pages 0 and 1: one of them checks, whatever a crash did.
//!
//! An engine writes one, waits until it is durable, then writes the other, or overwrites the older
//! one only. So the newer one that checks is what holds. [`Envelope`] is what all formats have in
//! common: magic number, format, UUID, checksum. [`SuperblockPair`] chooses between two, and says
//! why neither will do. What else a superblock says is its engine's.

use std::ops::RangeInclusive;

use stratakv_base::checksum::{crc32c, seed};
use stratakv_base::codec::{Reader, Truncated, Writer};
use stratakv_base::{Corruption, Place};
use stratakv_device::IoFault;
use stratakv_engine::Error;

/// Why bytes are no superblock of this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// Damaged, or none at all.
    Damaged(&'static str),
    /// The device did not give it.
    Unreadable(IoFault),
    /// A newer program's.
    Newer {
        /// The format that it has.
        found: u32,
        /// The highest one that is read.
        known: u32,
    },
    /// Another store's, whole.
    Foreign,
}

impl From<Truncated> for SuperblockError {
    fn from(_: Truncated) -> SuperblockError {
        SuperblockError::Damaged("it is cut short")
    }
}

/// Where a kind of superblock has what all kinds have. Its format stands behind the magic number.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// What it begins with.
    pub magic: &'static [u8],
    /// Formats that are read.
    pub formats: RangeInclusive<u32>,
    /// Where the store's UUID stands.
    pub uuid_at: usize,
    /// Where a format has its checksum, of all that lies before.
    pub crc_at: fn(u32) -> usize,
    /// The checksum begins with the UUID.
    pub is_seeded: bool,
}

impl Envelope {
    /// Begins a page: the writer is behind the format.
    pub fn begin<'p>(&self, format: u32, page: &'p mut [u8]) -> Writer<'p> {
        page.fill(0);
        let mut writer = Writer::new(page);
        writer.bytes(self.magic).u32(format);
        writer
    }

    /// Ends a page that has everything else: sets its checksum.
    pub fn seal(&self, format: u32, uuid: &[u8; 16], page: &mut [u8]) {
        let (covered, rest) = page.split_at_mut((self.crc_at)(format));
        Writer::new(rest).u32(self.checksum(uuid, covered));
    }

    /// Checks a page of this store; its format, and a reader behind that.
    ///
    /// # Errors
    /// [`SuperblockError`]: damage first, then what a whole one says.
    pub fn open<'p>(&self, uuid: &[u8; 16], page: &'p [u8]) -> Result<(u32, Reader<'p>), SuperblockError> {
        let mut reader = Reader::new(page);
        if reader.bytes(self.magic.len())? != self.magic {
            return Err(SuperblockError::Damaged("it has no magic number"));
        }
        let format = reader.u32()?;
        let found: [u8; 16] = Reader::new(page.get(self.uuid_at..).unwrap_or_default()).array()?;
        let (covered, crc) = page.split_at_checked((self.crc_at)(format)).unwrap_or_default();
        if Reader::new(crc).u32()? != self.checksum(&found, covered) {
            return Err(SuperblockError::Damaged("its checksum does not match"));
        }
        if !self.formats.contains(&format) {
            return Err(SuperblockError::Newer { found: format, known: *self.formats.end() });
        }
        if found != *uuid {
            return Err(SuperblockError::Foreign);
        }
        Ok((format, reader))
    }

    fn checksum(&self, uuid: &[u8; 16], covered: &[u8]) -> u32 {
        crc32c(if self.is_seeded { seed(uuid, 0, 0) } else { 0 }, covered)
    }
}

/// A superblock of which there are two.
pub trait Paired: Copy + PartialEq {
    /// The higher one holds.
    fn age(&self) -> (u64, u64);
    /// Its shard, and the store's shards.
    fn shard(&self) -> (u32, u32);
}

/// Both superblocks, as they were read.
#[derive(Clone, Debug)]
pub struct SuperblockPair<S> {
    slots: [Option<Result<S, SuperblockError>>; 2],
}

impl<S> Default for SuperblockPair<S> {
    fn default() -> Self {
        SuperblockPair { slots: [None, None] }
    }
}

impl<S: Paired> SuperblockPair<S> {
    /// Page `slot` was read, or the device did not give it.
    pub fn read(
        &mut self,
        slot: usize,
        result: Result<(), IoFault>,
        decode: impl FnOnce() -> Result<S, SuperblockError>,
    ) {
        let found = match result {
            Ok(()) => decode(),
            Err(fault @ IoFault::Os(_)) => Err(SuperblockError::Unreadable(fault)),
            Err(_) => Err(SuperblockError::Damaged("the volume ends before it does")),
        };
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(found);
        }
    }

    /// Whether both were read.
    pub fn is_read(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }

    /// Whether both check.
    pub fn is_whole(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, Some(Ok(_))))
    }

    /// Whether this is what `slot` has.
    pub fn has(&self, slot: usize, superblock: &S) -> bool {
        matches!(self.slots.get(slot), Some(Some(Ok(found))) if found == superblock)
    }

    /// Those that check, the one that holds first.
    pub fn newest_first(&self) -> Vec<S> {
        let mut whole: Vec<S> = self.slots.iter().flatten().filter_map(|found| found.as_ref().ok()).copied().collect();
        whole.sort_by_key(|superblock| std::cmp::Reverse(superblock.age()));
        whole
    }

    /// What is wrong with those that do not check, and their slots.
    pub fn errors(&self) -> impl Iterator<Item = (usize, &SuperblockError)> {
        self.slots.iter().enumerate().filter_map(|(slot, found)| Some((slot, found.as_ref()?.as_ref().err()?)))
    }

    /// The one that holds, of the volume of this shard.
    ///
    /// # Errors
    /// Why neither will do; or it is another shard's.
    pub fn choose(&self, (shard, shards): (u32, u32)) -> Result<S, Error> {
        let Some(newest) = self.newest_first().first().copied() else { return Err(self.refusal(shard)) };
        if newest.shard() != (shard, shards) {
            let (is, of) = newest.shard();
            return Err(Error::WrongVolume(format!(
                "this volume is shard {is} of {of}, and shard {shard} of {shards} was looked for: put each volume back under its own name"
            )));
        }
        Ok(newest)
    }

    /// Refuses a volume of which either superblock is a newer program's or another store's.
    ///
    /// # Errors
    /// One is.
    pub fn refuse_strangers(&self) -> Result<(), Error> {
        self.errors().find_map(|(_, error)| stranger(error)).map_or(Ok(()), Err)
    }

    fn refusal(&self, shard: u32) -> Error {
        let mut damage = Vec::new();
        for (_, error) in self.errors() {
            if let Some(refusal) = stranger(error) {
                return refusal;
            }
            match error {
                SuperblockError::Damaged(why) => damage.push(*why),
                // It may be whole, and all that is needed.
                SuperblockError::Unreadable(fault) => {
                    return Error::Io { what: "reading the superblock", fault: *fault };
                }
                SuperblockError::Newer { .. } | SuperblockError::Foreign => {}
            }
        }
        damage.dedup();
        let place = Place { shard, offset_bytes: 0 };
        let expected = "one that checks (without it the volume cannot be opened: restore it from a backup, or create the store anew)";
        let (what, found) = ("superblock, in both copies,", damage.join("; "));
        Error::Corrupt(Corruption { place, what, expected: expected.into(), found })
    }
}

/// What is said of a superblock that is whole, and not one to be read.
fn stranger(error: &SuperblockError) -> Option<Error> {
    match error {
        SuperblockError::Newer { found, known } => Some(Error::NewerFormat { found: *found, known: *known }),
        SuperblockError::Foreign => Some(Error::WrongVolume(
            "this volume belongs to another store (its UUID differs): put the right one in its place".into(),
        )),
        SuperblockError::Damaged(_) | SuperblockError::Unreadable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope = Envelope {
        magic: b"TEST",
        formats: 1..=2,
        uuid_at: 8,
        crc_at: |format| if format == 1 { 24 } else { 32 },
        is_seeded: true,
    };

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct One(u64);

    impl Paired for One {
        fn age(&self) -> (u64, u64) {
            (self.0, 0)
        }

        fn shard(&self) -> (u32, u32) {
            (1, 4)
        }
    }

    fn page(format: u32, uuid: [u8; 16]) -> [u8; 64] {
        let mut page = [0xFF; 64];
        ENVELOPE.begin(format, &mut page).bytes(&uuid);
        ENVELOPE.seal(format, &uuid, &mut page);
        page
    }

    fn pair(first: Result<u64, SuperblockError>, second: Result<u64, SuperblockError>) -> SuperblockPair<One> {
        let mut pair = SuperblockPair::default();
        pair.read(0, Ok(()), || first.map(One));
        assert!(!pair.is_read());
        pair.read(1, Ok(()), || second.map(One));
        assert!(pair.is_read());
        pair
    }

    fn chosen(first: Result<u64, SuperblockError>, second: Result<u64, SuperblockError>) -> Result<u64, String> {
        let chosen = pair(first, second).choose((1, 4));
        chosen.map(|One(age)| age).map_err(|error| error.to_string())
    }

    #[test]
    fn an_envelope_is_opened_as_it_was_sealed() {
        for format in [1, 2] {
            let page = page(format, [7; 16]);
            let (found, reader) = ENVELOPE.open(&[7; 16], &page).unwrap();
            assert_eq!((found, reader.at()), (format, 8));
            assert!(page[(ENVELOPE.crc_at)(format) + 4..].iter().all(|byte| *byte == 0), "what was there is gone");
            for bit in 0..((ENVELOPE.crc_at)(format) + 4) * 8 {
                let mut turned = page;
                turned[bit / 8] ^= 1 << (bit % 8);
                assert!(ENVELOPE.open(&[7; 16], &turned).is_err(), "bit {bit}");
            }
            for len in 0..(ENVELOPE.crc_at)(format) + 4 {
                assert!(ENVELOPE.open(&[7; 16], &page[..len]).is_err(), "cut to {len} bytes");
            }
        }
    }

    #[test]
    fn damage_is_told_before_what_a_page_says() {
        let error = |page: &[u8]| ENVELOPE.open(&[7; 16], page).unwrap_err();
        assert_eq!(error(&page(1, [8; 16])), SuperblockError::Foreign);
        assert_eq!(error(&page(3, [8; 16])), SuperblockError::Newer { found: 3, known: 2 });
        let mut damaged = page(3, [8; 16]);
        damaged[20] ^= 1;
        assert_eq!(error(&damaged), SuperblockError::Damaged("its checksum does not match"));
        damaged[0] ^= 1;
        assert_eq!(error(&damaged), SuperblockError::Damaged("it has no magic number"));
        assert_eq!(error(&damaged[..3]), SuperblockError::Damaged("it is cut short"));
    }

    #[test]
    fn the_newer_one_that_checks_holds() {
        let damaged = || Err(SuperblockError::Damaged("torn"));
        assert_eq!((chosen(Ok(3), Ok(4)), chosen(Ok(5), Ok(4))), (Ok(4), Ok(5)));
        assert_eq!((chosen(damaged(), Ok(4)), chosen(Ok(5), damaged())), (Ok(4), Ok(5)));
        let both = pair(Ok(3), Ok(4));
        assert!(both.is_whole() && both.has(1, &One(4)) && !both.has(0, &One(4)) && both.errors().next().is_none());
        assert_eq!(both.newest_first(), [One(4), One(3)]);
        let one = pair(damaged(), Ok(4));
        assert!(!one.is_whole() && one.errors().map(|(slot, _)| slot).eq([0]));
    }

    #[test]
    fn why_neither_will_do_is_told() {
        let refused = |first, second| chosen(Err(first), Err(second)).unwrap_err();
        let damaged = || SuperblockError::Damaged("torn");
        assert!(refused(damaged(), SuperblockError::Newer { found: 9, known: 2 }).contains('9'));
        assert!(refused(damaged(), SuperblockError::Foreign).contains("another store"));
        let unreadable = refused(damaged(), SuperblockError::Unreadable(IoFault::Os(5)));
        assert!(unreadable.contains("reading the superblock failed"), "{unreadable}");
        let both = refused(damaged(), damaged());
        assert!(both.contains("superblock, in both copies,") && both.contains("one that checks"), "{both}");
    }

    #[test]
    fn a_stranger_is_refused_where_its_copy_is_ours() {
        let newer = || Err(SuperblockError::Newer { found: 9, known: 2 });
        assert_eq!(chosen(Ok(3), newer()), Ok(3));
        assert!(pair(Ok(3), newer()).refuse_strangers().is_err());
        assert!(pair(Ok(3), Err(SuperblockError::Foreign)).refuse_strangers().is_err());
        assert!(pair(Ok(3), Err(SuperblockError::Damaged("torn"))).refuse_strangers().is_ok());
    }

    #[test]
    fn another_shard_s_volume_is_refused() {
        let other = pair(Ok(1), Ok(2)).choose((2, 4)).unwrap_err().to_string();
        assert!(other.contains("shard 1 of 4") && other.contains("shard 2 of 4"), "{other}");
    }

    #[test]
    fn what_the_device_did_not_give_may_be_whole() {
        let mut pair = SuperblockPair::<One>::default();
        pair.read(0, Err(IoFault::Os(5)), || Ok(One(1)));
        pair.read(1, Err(IoFault::Short), || Ok(One(1)));
        let errors: Vec<_> = pair.errors().map(|(_, error)| error.clone()).collect();
        let short = SuperblockError::Damaged("the volume ends before it does");
        assert_eq!(errors, [SuperblockError::Unreadable(IoFault::Os(5)), short]);
    }
}
