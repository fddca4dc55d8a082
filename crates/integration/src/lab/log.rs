//! The format of `dm-log-writes` and of QEMU's `blklogwrites`: a superblock, then each request, its
//! data behind it.
//!
//! QEMU logs a request when the file below has done it and before the guest hears of it: so the
//! order of the log is that of completion, and every write that the guest knew to be complete when
//! it asked for a flush lies before that flush.

use std::ops::Range;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// What the device did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// Wrote `data` (a range of the log) at byte `at`.
    Write {
        /// First byte on the device.
        at: u64,
        /// Where the data lie in the log.
        data: Range<usize>,
        /// Durable when complete. QEMU's NVMe never says so: see [`super::trace`].
        fua: bool,
    },
    /// Everything complete before is durable.
    Flush,
    /// A discard, or a mark: changes nothing that must be kept.
    Other,
}

/// Reads a whole log.
///
/// # Errors
/// It is no log, or it is cut off or contradicts itself: what, and at which entry.
pub fn parse(log: &[u8]) -> Result<Vec<LogEntry>, String> {
    let word = |at: usize| number(log, at).ok_or_else(|| format!("the log ends before byte {}", at.saturating_add(8)));
    if word(0)? != MAGIC || word(8)? != 1 {
        return Err("this is no log of writes, version 1".into());
    }
    let (count, sector_bytes) = (word(16)?, (word(24)? & 0xffff_ffff) as usize);
    if !(512..=65_536).contains(&sector_bytes) || !sector_bytes.is_power_of_two() {
        return Err(format!("sectors of {sector_bytes} bytes"));
    }
    let mut entries = Vec::new();
    let mut at = sector_bytes;
    for index in 0..count {
        let cut_off = || format!("entry {index} of {count} is cut off");
        let (sector, sectors, flags) = (word(at)?, word(at + 8)?, word(at + 16)?);
        at = at.checked_add(sector_bytes).ok_or_else(cut_off)?;
        if flags & !(FLUSH | FUA | DISCARD | MARK) != 0 {
            return Err(format!("entry {index} has flags {flags:#x}"));
        }
        if flags & (DISCARD | MARK) != 0 {
            entries.push(LogEntry::Other);
            continue;
        }
        let bytes = usize::try_from(sectors).ok().and_then(|sectors| sectors.checked_mul(sector_bytes));
        let end = bytes.and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= log.len()).ok_or_else(cut_off)?;
        if flags & FLUSH != 0 {
            entries.push(LogEntry::Flush);
        }
        if sectors > 0 {
            let start =
                sector.checked_mul(sector_bytes as u64).ok_or_else(|| format!("entry {index}: sector {sector}"))?;
            entries.push(LogEntry::Write { at: start, data: at..end, fua: flags & FUA != 0 });
        }
        at = end;
    }
    Ok(entries)
}

fn number(log: &[u8], at: usize) -> Option<u64> {
    let bytes = log.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stratakv_base::random::Random;

    /// A log of (sector, sectors, flags), each sector filled with its entry's number.
    pub(crate) fn log_of(entries: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut log = Vec::new();
        for word in [MAGIC, 1, entries.len() as u64, 512] {
            log.extend_from_slice(&word.to_le_bytes());
        }
        log.resize(512, 0);
        for (index, (sector, sectors, flags)) in entries.iter().enumerate() {
            let start = log.len();
            for word in [*sector, *sectors, *flags, 0] {
                log.extend_from_slice(&word.to_le_bytes());
            }
            log.resize(start + 512, 0);
            let data = if flags & DISCARD == 0 { *sectors as usize * 512 } else { 0 };
            log.resize(log.len() + data, index as u8 + 1);
        }
        log
    }

    #[test]
    fn writes_flushes_and_discards_are_told_apart() {
        let log = log_of(&[(8, 2, 0), (0, 0, FLUSH), (100, 50, DISCARD), (1, 1, FUA)]);
        let entries = parse(&log).unwrap();
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[0], LogEntry::Write { at: 4096, data: 1024..2048, fua: false });
        assert_eq!((&entries[1], &entries[2]), (&LogEntry::Flush, &LogEntry::Other));
        assert!(matches!(&entries[3], LogEntry::Write { at: 512, data, fua: true } if log[data.clone()] == [4; 512]));
    }

    #[test]
    fn a_log_that_is_cut_off_or_lies_about_lengths_is_refused() {
        let log = log_of(&[(8, 2, 0), (0, 0, FLUSH), (1, 1, FUA)]);
        for len in 0..log.len() {
            assert!(parse(&log[..len]).is_err(), "{len} of {} bytes", log.len());
        }
        for (at, value) in [
            (0, 1),
            (8, 2),
            (16, u64::MAX),
            (24, 0),
            (24, 513),
            (512, u64::MAX),
            (520, u64::MAX),
            (520, 1 << 55),
            (528, 1 << 40),
        ] {
            let mut log = log.clone();
            log[at..at + 8].copy_from_slice(&value.to_le_bytes());
            assert!(parse(&log).is_err(), "{value:#x} at {at}");
        }
    }

    #[test]
    fn garbage_is_never_a_panic() {
        let mut random = Random::new(1);
        for _ in 0..2000 {
            let mut log = log_of(&[(8, 2, 0), (0, 0, FLUSH), (1, 1, FUA)]);
            for _ in 0..1 + random.below(6) {
                let at = random.below(log.len() as u64) as usize;
                log[at] = random.next_u64() as u8;
            }
            log.truncate(random.below(log.len() as u64 + 1) as usize);
            let end = log.len();
            for entry in parse(&log).unwrap_or_default() {
                assert!(!matches!(entry, LogEntry::Write { data, .. } if data.end > end));
            }
        }
    }
}
