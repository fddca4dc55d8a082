//! Power cuts: which contents a device with a volatile cache may be left with, at a given place of
//! its log.

use std::ops::Range;

use stratakv_base::random::Random;

use super::log::LogEntry;

/// Sectors are whole; anything larger may tear.
const SECTOR_BYTES: usize = 512;

/// What happens to the writes that nothing has made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All are lost: the hardest on acknowledgements.
    Lost,
    /// All are kept.
    Kept,
    /// Each is kept, lost, or torn at 512 bytes, a third each.
    Mixed(u64),
}

/// What a device says and does not do: to see that the oracle notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// So many flushes before a cut did nothing.
    pub flushes_ignored: usize,
    /// Writes with FUA are no more durable than others.
    pub ignores_fua: bool,
}

impl Lies {
    /// None.
    pub fn is_honest(self) -> bool {
        self == Lies::default()
    }
}

/// A device, as durable as its log says up to some entry. Cuts must be asked for in rising order.
pub struct Replayer<'a> {
    log: &'a [u8],
    entries: &'a [LogEntry],
    durable: Vec<u8>,
    applied: usize,
    lies: Lies,
    write_through: Range<u64>,
}

impl<'a> Replayer<'a> {
    /// Starts from the device's contents before the log.
    pub fn new(base: Vec<u8>, log: &'a [u8], entries: &'a [LogEntry], lies: Lies) -> Replayer<'a> {
        Replayer { log, entries, durable: base, applied: 0, lies, write_through: 0..0 }
    }

    /// Writes to these bytes are durable once they are complete: another device, without a cache.
    pub fn write_through(self, bytes: Range<u64>) -> Replayer<'a> {
        Replayer { write_through: bytes, ..self }
    }

    /// The device after a power cut at `cut`: entries before it were complete.
    pub fn cut(&mut self, cut: usize, fate: Fate) -> Vec<u8> {
        let complete = self.entries.get(..cut).unwrap_or(self.entries);
        let flushes = complete.iter().enumerate().rev().filter(|(_, entry)| **entry == LogEntry::Flush);
        let flushed = flushes.map(|(index, _)| index).nth(self.lies.flushes_ignored).unwrap_or(0).max(self.applied);
        for entry in complete.get(self.applied..flushed).unwrap_or_default() {
            apply(&mut self.durable, self.log, entry, |_| true);
        }
        self.applied = flushed;
        let mut device = self.durable.clone();
        let mut random = Random::new(if let Fate::Mixed(seed) = fate { seed } else { 0 });
        for entry in complete.get(flushed..).unwrap_or_default() {
            let is_through = matches!(entry, LogEntry::Write { at, .. } if self.write_through.contains(at));
            let is_fua = matches!(entry, LogEntry::Write { fua: true, .. }) && !self.lies.ignores_fua;
            let durable = is_fua || is_through;
            match (fate, random.below(3)) {
                _ if durable => apply(&mut device, self.log, entry, |_| true),
                (Fate::Kept, _) | (Fate::Mixed(_), 0) => apply(&mut device, self.log, entry, |_| true),
                (Fate::Lost, _) | (Fate::Mixed(_), 1) => {}
                (Fate::Mixed(_), _) => apply(&mut device, self.log, entry, |_| random.below(2) == 0),
            }
        }
        device
    }
}

/// Writes those sectors of an entry that `keep` says are kept.
fn apply(device: &mut [u8], log: &[u8], entry: &LogEntry, mut keep: impl FnMut(usize) -> bool) {
    let LogEntry::Write { at, data, .. } = entry else { return };
    let data = log.get(data.clone()).unwrap_or_default();
    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
        let start = *at as usize + index * SECTOR_BYTES;
        if keep(index)
            && let Some(place) = device.get_mut(start..start + sector.len())
        {
            place.copy_from_slice(sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::parse;
    use super::super::log::tests::log_of;
    use super::*;

    /// Sectors 0 to 3 after a cut; a write of entry n leaves n + 1.
    fn cut(flushes_ignored: usize, at: usize, fate: Fate) -> Vec<u8> {
        cut_of(Lies { flushes_ignored, ignores_fua: false }, at, fate)
    }

    fn cut_of(lies: Lies, at: usize, fate: Fate) -> Vec<u8> {
        let log = log_of(&[(0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 2, 0), (3, 1, 2), (0, 0, 1), (0, 1, 0)]);
        let entries = parse(&log).unwrap();
        let device = Replayer::new(vec![0; 2048], &log, &entries, lies).cut(at, fate);
        device.chunks(512).map(|sector| sector[0]).collect()
    }

    #[test]
    fn what_was_flushed_or_fua_stays_and_the_rest_may_go() {
        assert_eq!(cut(0, 2, Fate::Lost), [0, 0, 0, 0]);
        assert_eq!(cut(0, 3, Fate::Lost), [1, 2, 0, 0]);
        assert_eq!(cut(0, 5, Fate::Lost), [1, 2, 0, 5], "FUA");
        assert_eq!(cut(0, 5, Fate::Kept), [1, 4, 4, 5]);
        assert_eq!(cut(0, 7, Fate::Lost), [1, 4, 4, 5]);
        assert_eq!(cut(0, 7, Fate::Kept), [7, 4, 4, 5]);
        assert_eq!(cut(0, 99, Fate::Kept), [7, 4, 4, 5]);
    }

    #[test]
    fn a_device_without_a_cache_loses_nothing() {
        let log = log_of(&[(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 2)]);
        let entries = parse(&log).unwrap();
        let lies = Lies { flushes_ignored: 1, ignores_fua: true };
        let mut replayer = Replayer::new(vec![0; 2048], &log, &entries, lies).write_through(512..1536);
        let device = replayer.cut(4, Fate::Lost);
        assert_eq!(device.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>(), [0, 2, 3, 0]);
    }

    #[test]
    fn a_torn_write_is_old_and_new_sectors() {
        let seen: std::collections::BTreeSet<Vec<u8>> = (0..200).map(|seed| cut(0, 4, Fate::Mixed(seed))).collect();
        assert!([[1, 2, 0, 0], [1, 4, 0, 0], [1, 2, 4, 0], [1, 4, 4, 0]].iter().all(|state| seen.contains(&state[..])));
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn a_device_that_lies_about_flushes_loses_what_they_covered() {
        assert_eq!(cut(1, 3, Fate::Lost), [0, 0, 0, 0]);
        assert_eq!(cut(1, 6, Fate::Lost), [1, 2, 0, 5], "FUA is no flush");
        assert_eq!(cut_of(Lies { flushes_ignored: 0, ignores_fua: true }, 5, Fate::Lost), [1, 2, 0, 0]);
    }
}
