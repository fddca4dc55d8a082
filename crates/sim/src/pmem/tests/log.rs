//! An append log: records of {length, CRC-32C, sequence, payload}, found by a scan.

use stratakv_base::checksum::crc32c;

use super::super::{Pmem, PmemError, Region};
use super::Subject;

const HEADER_BYTES: usize = 16;
/// Bytes of each record's payload; what it holds is told by the first word.
const PAYLOADS: [usize; 4] = [8, 56, 24, 40];

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Defect {
    /// None: only written past the cache.
    NonTemporal,
    NonTemporalFenceMissing,
    FlushMissing,
    FenceMissing,
    FlushBeforeStore,
    ChecksumSkipped,
}

pub(super) struct Log(pub Option<Defect>);

fn record(sequence: u64) -> Vec<u8> {
    let payload = PAYLOADS[sequence as usize % PAYLOADS.len()];
    let mut bytes = vec![0; 8];
    bytes[..4].copy_from_slice(&(payload as u32).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend((0..payload as u64 / 8).flat_map(|word| (100 + sequence + word).to_le_bytes()));
    let crc = crc32c(payload as u32, &bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    bytes
}

impl Log {
    fn append(&self, region: &Region, at: u64, bytes: &[u8]) -> Result<(), PmemError> {
        let len = bytes.len() as u64;
        match self.0 {
            None | Some(Defect::ChecksumSkipped) => {
                region.store(at, bytes)?;
                region.persist(at, len)
            }
            Some(Defect::NonTemporal) => {
                region.store_nt(at, bytes)?;
                region.fence()
            }
            Some(Defect::NonTemporalFenceMissing) => region.store_nt(at, bytes),
            Some(Defect::FlushMissing) => {
                region.store(at, bytes)?;
                region.fence()
            }
            Some(Defect::FenceMissing) => {
                region.store(at, bytes)?;
                region.flush(at, len)
            }
            Some(Defect::FlushBeforeStore) => {
                region.flush(at, len)?;
                region.store(at, bytes)?;
                region.fence()
            }
        }
    }
}

impl Subject for Log {
    fn run(&self, region: &Region) -> Result<(), PmemError> {
        let mut at = 0;
        for sequence in 0..PAYLOADS.len() as u64 {
            let bytes = record(sequence);
            self.append(region, at, &bytes)?;
            region.acknowledge();
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn expected(&self, operations: u64) -> Vec<u64> {
        (0..operations.min(PAYLOADS.len() as u64)).map(|sequence| 100 + sequence).collect()
    }

    fn recover(&self, region: &Region) -> Result<Vec<u64>, String> {
        let mut image = vec![0; region.len_bytes() as usize];
        region.load(0, &mut image).map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        let mut rest = &image[..];
        while let Some((header, tail)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (len, crc, sequence) = (word(0) as usize, word(4), u64::from(word(8)));
            let Some(payload) = tail.get(..len).filter(|_| len >= 8) else { break };
            let checked = rest.get(8..HEADER_BYTES + len).is_some_and(|bytes| crc32c(len as u32, bytes) == crc);
            if sequence != found.len() as u64 || !(checked || self.0 == Some(Defect::ChecksumSkipped)) {
                break;
            }
            let words = payload.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
            let first = words.clone().next().unwrap_or(0);
            if words.enumerate().any(|(at, word)| word != first + at as u64) {
                return Err(format!("record {sequence} is torn"));
            }
            found.push(first);
            rest = &tail[len..];
        }
        Ok(found)
    }
}
