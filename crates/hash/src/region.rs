//! A region as the engine sees it: words with their checks, and nothing else of where things lie.

use smallvec::SmallVec;
use stratakv_base::{Corruption, corruption::Place};
use stratakv_pmem::{Pmem, PmemError};

use crate::layout::{
    First, HEADER_BYTES, Header, Kind, PartLayout, SegmentState, Superblock, commit_at, root_value, root_word,
};

/// The flags of a record, if it has any, and its key.
pub(crate) type Prefix = SmallVec<[u8; 64]>;

/// Four lines; those behind, the processor guesses by itself.
const PREFETCHED_BYTES: u64 = 256;

#[derive(Debug)]
pub(crate) struct Region<P> {
    pub(crate) pmem: P,
    pub(crate) superblock: Superblock,
    pub(crate) parts: Vec<PartLayout>,
}

impl<P: Pmem> Region<P> {
    pub(crate) fn new(pmem: P, superblock: Superblock) -> Region<P> {
        let parts = superblock.layout();
        Region { pmem, superblock, parts }
    }

    pub(crate) fn uuid(&self) -> &[u8; 16] {
        &self.superblock.uuid
    }

    /// Where the block with this number begins, and the other way round. Numbers count from the
    /// region's first byte.
    pub(crate) fn offset(&self, place: u64) -> u64 {
        place * u64::from(self.superblock.block_bytes)
    }

    pub(crate) fn place(&self, offset: u64) -> u64 {
        offset / u64::from(self.superblock.block_bytes)
    }

    /// Asks for a record that will be read: for as much as most have, what is longer follows.
    pub(crate) fn prefetch(&self, place: u64) {
        self.pmem.prefetch(self.offset(place), PREFETCHED_BYTES);
    }

    /// The first word of the extent at `offset`; `None`: it does not check.
    pub(crate) fn first(&self, offset: u64) -> Result<Option<First>, PmemError> {
        Ok(First::decode(self.uuid(), offset, self.pmem.load_u64(offset)?))
    }

    /// Makes `offset` the begin of an extent. Durable after a fence.
    pub(crate) fn set_first(&self, offset: u64, first: First) -> Result<(), PmemError> {
        self.pmem.store_u64(offset, first.encode(self.uuid(), offset))?;
        self.pmem.flush(offset, 8)
    }

    /// The header at `offset`, of a record that is there or was until it was freed.
    pub(crate) fn header(&self, offset: u64) -> Result<Option<Header>, PmemError> {
        let mut words = [0; 4];
        for (word, at) in words.iter_mut().zip((offset..).step_by(8)) {
            *word = self.pmem.load_u64(at)?;
        }
        let first = First::decode(self.uuid(), offset, words[0]).filter(|first| first.key_bytes > 0);
        let header = first.map(|first| Header::decode(words, first));
        Ok(header.filter(|header| header.fits(self.superblock.block_bytes)))
    }

    /// Stores a header, its first word last: the line is durable up to some word at every moment.
    pub(crate) fn set_header(&self, offset: u64, header: &Header, kind: Kind) -> Result<(), PmemError> {
        let words = header.words();
        for (word, at) in words.iter().zip((offset + 8..).step_by(8)) {
            self.pmem.store_u64(at, *word)?;
        }
        self.pmem.store_u64(offset, header.first().with(kind).encode(self.uuid(), offset))?;
        self.pmem.flush(offset, HEADER_BYTES)
    }

    /// Bytes of a record from `at`, counted from its header's end.
    pub(crate) fn body(&self, offset: u64, at: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.pmem.load(offset + HEADER_BYTES + at, into)
    }

    /// The flags and the key of a record.
    pub(crate) fn prefix(&self, offset: u64, header: &Header) -> Result<Prefix, PmemError> {
        let mut prefix = SmallVec::from_elem(0, header.prefix_bytes() as usize);
        self.body(offset, 0, &mut prefix)?;
        Ok(prefix)
    }

    /// The batch that a commit word names, or 0; `None`: it is damaged.
    pub(crate) fn commit(&self, number: u64) -> Result<Option<u64>, PmemError> {
        Ok(root_value(self.uuid(), commit_at(number), self.pmem.load_u64(commit_at(number))?))
    }

    /// Says that a batch is committed, or with 0 that it is carried out. Durable after a fence.
    pub(crate) fn set_commit(&self, number: u64, value: u64) -> Result<(), PmemError> {
        let at = commit_at(number);
        self.pmem.store_u64(at, root_word(self.uuid(), at, value))?;
        self.pmem.flush(at, 8)
    }

    /// The part that the segment with this number lies in.
    pub(crate) fn part_of(&self, number: u32) -> Option<&PartLayout> {
        let index = self.parts.partition_point(|part| part.segments.end <= number);
        self.parts.get(index).filter(|part| part.segments.contains(&number))
    }

    fn word_at(&self, number: u32) -> Result<u64, PmemError> {
        // No number comes from the medium: those of the parts' segments are asked for.
        let part = self.part_of(number).ok_or(PmemError::OutOfBounds {
            offset: self.superblock.segment_at(number),
            len_bytes: self.superblock.segment_bytes,
            region_bytes: self.superblock.region_bytes(),
        })?;
        Ok(part.words_at + u64::from(number - part.segments.start) * 8)
    }

    /// The state of a segment; `None`: its word is damaged.
    pub(crate) fn segment(&self, number: u32) -> Result<Option<SegmentState>, PmemError> {
        let at = self.word_at(number)?;
        let word = self.pmem.load_u64(at)?;
        Ok(root_value(self.uuid(), at, word).and_then(SegmentState::from_value))
    }

    /// Sets the state of a segment. Durable after a fence.
    pub(crate) fn set_segment(&self, number: u32, state: SegmentState) -> Result<(), PmemError> {
        let at = self.word_at(number)?;
        self.pmem.store_u64(at, root_word(self.uuid(), at, state.to_value()))?;
        self.pmem.flush(at, 8)
    }

    pub(crate) fn damage(&self, offset: u64, what: &'static str, expected: &str, found: String) -> Corruption {
        Corruption { place: Place { shard: 0, offset_bytes: offset }, what, expected: expected.into(), found }
    }
}
