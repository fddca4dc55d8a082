//! Scrubbing: every record is read and checked now and then, so that rot is found while there is a
//! backup, not when somebody asks.

use stratakv_pmem::Pmem;

use crate::hash::Hash;

/// How far the round is.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// Keys are checked by shares: those whose hashes end in these bits, as in a backup. 0 bits: no
    /// round was begun.
    bits: u32,
    share: u64,
    pub(crate) rounds: u64,
    pub(crate) bytes: u64,
}

impl<P: Pmem> Hash<P> {
    /// Checks the next records, some `bytes_max` of them, and counts the damage. Whether a round
    /// ended: all that was there all the time was read.
    pub fn scrub(&self, bytes_max: u64) -> bool {
        let mut scrub = self.scrub_state();
        let mut bytes = 0;
        while bytes < bytes_max {
            if scrub.bits == 0 {
                (scrub.bits, scrub.share) = (self.table.bits(), 0);
            }
            // An empty share costs a little too.
            bytes += self.scrub_share(scrub.share, scrub.bits).max(64);
            scrub.share += 1;
            if scrub.share >> scrub.bits > 0 {
                scrub.bits = 0;
                scrub.rounds += 1;
                scrub.bytes += bytes;
                return true;
            }
        }
        scrub.bytes += bytes;
        false
    }

    fn scrub_share(&self, share: u64, bits: u32) -> u64 {
        let _inside = self.epochs.enter();
        self.table.places(share, bits).into_iter().map(|place| self.scrub_record(place)).sum()
    }

    /// Checks the record at `place`; its bytes. By somebody inside an epoch.
    fn scrub_record(&self, place: u64) -> u64 {
        let offset = self.region.offset(place);
        let header = match self.region.header(offset) {
            Ok(Some(header)) => header,
            other => {
                let found = other.err().map_or("something else".into(), |error| error.to_string());
                // The damage is counted; the error is for callers, and there is none.
                let _ = self.note(self.region.damage(offset, "record", "a header", found));
                return 0;
            }
        };
        let prefix = self.region.prefix(offset, &header).unwrap_or_default();
        // It notes what does not check.
        let _ = self.read(place, header.key_in(&prefix));
        header.bytes()
    }
}
