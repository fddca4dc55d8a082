//! A disk in memory that can lose power.

use std::collections::{BTreeMap, BTreeSet};

use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_device::{DiskOutcome, DiskRequest, IoFault};

/// How an engine's life on a disk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `close`, carried out.
    Orderly,
    /// The process dies: what was handed to the disk is there.
    Kill,
    /// The power fails: of what was written since the last flush, each page is there or not, at
    /// random.
    PowerCut,
}

type Page = Box<[u8]>;

/// Pages in memory, with a volatile cache in front of them.
#[derive(Clone, Debug)]
pub struct Disk {
    capacity_bytes: u64,
    len_bytes: u64,
    pages: BTreeMap<u64, Page>,
    /// Pages written since the last flush, with what they were before (`None`: never written).
    unflushed: BTreeMap<u64, Option<Page>>,
    durable_len_bytes: u64,
    flushes: u64,
}

impl Disk {
    /// An empty disk that grows to `capacity_bytes` and then is full.
    pub fn new(capacity_bytes: u64) -> Disk {
        Disk {
            capacity_bytes,
            len_bytes: 0,
            pages: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            durable_len_bytes: 0,
            flushes: 0,
        }
    }

    /// Bytes up to the end of the furthest write.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Flushes so far, durable writes included.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Numbers of the pages that were ever written.
    pub fn pages(&self) -> BTreeSet<u64> {
        self.pages.keys().copied().collect()
    }

    /// Flips one bit of what is stored.
    pub fn flip_bit(&mut self, page: u64, bit: usize) {
        if let Some(page) = self.pages.get_mut(&page) {
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Does a request.
    pub fn execute(&mut self, request: DiskRequest) -> DiskOutcome {
        match request {
            DiskRequest::Read { offset, mut block, len } => {
                let outcome = self.read(offset, &mut block[..len as usize]);
                DiskOutcome::Read(block, outcome)
            }
            DiskRequest::Write { offset, parts, durable } => {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
                let outcome = self.write(offset, &bytes);
                if durable && outcome.is_ok() {
                    self.complete_write(offset / PAGE_BYTES as u64, bytes.len() / PAGE_BYTES);
                }
                DiskOutcome::Write(outcome)
            }
            DiskRequest::Flush => {
                self.unflushed.clear();
                self.durable_len_bytes = self.len_bytes;
                self.flushes += 1;
                DiskOutcome::Flush(Ok(()))
            }
            DiskRequest::Allocate { offset, len } => {
                let fits = offset + len <= self.capacity_bytes;
                DiskOutcome::Allocate(if fits { Ok(()) } else { Err(IoFault::Full) })
            }
            DiskRequest::Discard { offset, len } => {
                let (first, end) = (offset / PAGE_BYTES as u64, (offset + len) / PAGE_BYTES as u64);
                for page in first..end {
                    self.remember(page);
                    self.pages.remove(&page);
                }
                DiskOutcome::Discard(Ok(()))
            }
        }
    }

    /// Ends a life in the given way; `seed` decides which unflushed pages a power cut takes.
    pub fn end(&mut self, ending: Ending, seed: u64) {
        if ending != Ending::PowerCut {
            return;
        }
        let mut random = Random::new(seed);
        for (number, before) in std::mem::take(&mut self.unflushed) {
            if random.below(2) == 0 {
                match before {
                    Some(page) => self.pages.insert(number, page),
                    None => self.pages.remove(&number),
                };
            }
        }
        self.len_bytes = self.durable_len_bytes;
        if let Some((last, _)) = self.pages.last_key_value() {
            self.len_bytes = self.len_bytes.max((last + 1) * PAGE_BYTES as u64);
        }
        self.durable_len_bytes = self.len_bytes;
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), IoFault> {
        assert!(offset.is_multiple_of(PAGE_BYTES as u64), "reads are aligned");
        if offset + into.len() as u64 > self.len_bytes {
            return Err(IoFault::Short);
        }
        for (number, piece) in (offset / PAGE_BYTES as u64..).zip(into.chunks_mut(PAGE_BYTES)) {
            match self.pages.get(&number) {
                Some(page) => piece.copy_from_slice(&page[..piece.len()]),
                None => piece.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoFault> {
        let aligned = offset.is_multiple_of(PAGE_BYTES as u64) && bytes.len().is_multiple_of(PAGE_BYTES);
        assert!(aligned, "writes are aligned: {} bytes at {offset}", bytes.len());
        let end = offset + bytes.len() as u64;
        if end > self.capacity_bytes {
            return Err(IoFault::Full);
        }
        for (number, piece) in (offset / PAGE_BYTES as u64..).zip(bytes.chunks(PAGE_BYTES)) {
            self.remember(number);
            self.pages.insert(number, piece.into());
        }
        self.len_bytes = self.len_bytes.max(end);
        Ok(())
    }

    fn remember(&mut self, page: u64) {
        if !self.unflushed.contains_key(&page) {
            self.unflushed.insert(page, self.pages.get(&page).cloned());
        }
    }

    /// A durable write: its pages are safe, others stay in the cache.
    fn complete_write(&mut self, first: u64, count: usize) {
        for page in first..first + count as u64 {
            self.unflushed.remove(&page);
        }
        self.durable_len_bytes = self.durable_len_bytes.max((first + count as u64) * PAGE_BYTES as u64);
        self.flushes += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stratakv_device::{BlockPart, Class, Pool};

    use super::*;

    fn write(disk: &mut Disk, pool: &Pool, offset: u64, byte: u8, durable: bool) -> Result<(), IoFault> {
        let mut block = pool.take(Class::Page).expect("a free block");
        block.fill(byte);
        match disk.execute(DiskRequest::Write { offset, parts: vec![BlockPart::whole(Arc::new(block))], durable }) {
            DiskOutcome::Write(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn read(disk: &mut Disk, pool: &Pool, offset: u64) -> Result<u8, IoFault> {
        let block = pool.take(Class::Page).expect("a free block");
        match disk.execute(DiskRequest::Read { offset, block, len: 4096 }) {
            DiskOutcome::Read(block, outcome) => outcome.map(|()| block[4095]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_power_cut_takes_only_what_was_not_flushed() {
        let pool = Pool::new(1 << 20);
        let survivors = |seed| {
            let mut disk = Disk::new(1 << 20);
            for page in 0..64 {
                write(&mut disk, &pool, page * 4096, 1, page % 4 == 0).expect("there is room");
            }
            disk.execute(DiskRequest::Flush);
            for page in 0..64 {
                write(&mut disk, &pool, page * 4096, 2, page % 4 == 0).expect("there is room");
            }
            disk.end(Ending::PowerCut, seed);
            (0..64).map(|page| read(&mut disk, &pool, page * 4096).expect("it was flushed once")).collect::<Vec<u8>>()
        };
        let found = survivors(1);
        assert!(found.iter().step_by(4).all(|byte| *byte == 2), "durable writes stay");
        assert!(found.contains(&1) && found.iter().all(|byte| [1, 2].contains(byte)));
        assert_ne!(found, survivors(2));
    }

    #[test]
    fn it_has_an_end() {
        let pool = Pool::new(1 << 20);
        let mut disk = Disk::new(8192);
        assert_eq!(read(&mut disk, &pool, 0), Err(IoFault::Short));
        assert_eq!(write(&mut disk, &pool, 4096, 7, false), Ok(()));
        assert_eq!(read(&mut disk, &pool, 0), Ok(0));
        assert_eq!(write(&mut disk, &pool, 8192, 7, false), Err(IoFault::Full));
    }
}
