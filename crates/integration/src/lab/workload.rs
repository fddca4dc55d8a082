//! What the guest does, as a function of a seed: the host needs only how far each lane came.

use std::collections::BTreeMap;

use stratakv_base::random::Random;

use crate::value;

/// Bytes of the file system; behind it, on the same device, lie the witness sectors.
pub const FILE_SYSTEM_BYTES: u64 = 95 << 20;
/// Bytes of the device.
pub const DEVICE_BYTES: u64 = 96 << 20;
/// Threads that drive several lanes each through a session: they keep many operations in flight on
/// a ring of their own.
pub const SESSIONS: u32 = 2;
/// Lanes of each session.
pub const SESSION_LANES: u32 = 8;
/// Threads that make blocking calls, one lane each.
pub const BLOCKING: u32 = 4;
/// Lanes in all. A lane has one operation in flight, and keys that nobody else writes.
pub const LANES: u32 = SESSIONS * SESSION_LANES + BLOCKING;
/// Keys of each lane.
const KEYS: u64 = 24;
const MAGIC: &[u8; 8] = b"SKVWITN1";

/// One operation: sets `key` to value `sequence` of `len` bytes, or (`None`) deletes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneWrite {
    /// Different for every key of every lane.
    pub key: u64,
    /// The value's sequence and length.
    pub put: Option<(u64, usize)>,
}

impl LaneWrite {
    /// The key's name.
    pub fn name(&self) -> String {
        name(self.key)
    }

    /// The value to write, `None` for a delete.
    pub fn value(&self) -> Option<Vec<u8>> {
        self.put.map(|(sequence, len)| value::encode(self.key, sequence, len))
    }
}

/// A key's name.
pub fn name(key: u64) -> String {
    format!("lane{:02}/key{:03}", key >> 20, key & 0xf_ffff)
}

/// Step `number` (from 0) of `lane`.
pub fn step(seed: u64, lane: u32, number: u32) -> LaneWrite {
    let mut random = Random::new(seed ^ (u64::from(lane) + 1) << 48 ^ (u64::from(number) + 1) << 20);
    let key = u64::from(lane) << 20 | random.below(KEYS);
    if random.below(7) == 0 {
        return LaneWrite { key, put: None };
    }
    let max = match random.below(40) {
        0 => 150_000,
        1..=4 => 12_000,
        _ => 1500,
    };
    LaneWrite { key, put: Some((u64::from(number) + 1, value::LEN_MIN + random.below(max) as usize)) }
}

/// What may be found under a key: what was acknowledged last, or what was in flight then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Sequence of the value, `None` for no value.
    pub acknowledged: Option<u64>,
    /// Outcome not known.
    pub in_flight: Vec<Option<u64>>,
}

impl Known {
    /// Whether `found` may be there.
    pub fn may_be(&self, found: Option<u64>) -> bool {
        self.acknowledged == found || self.in_flight.contains(&found)
    }
}

/// Every key's state, given how many steps of each lane were acknowledged; the step after those may
/// have happened.
pub fn known(seed: u64, acknowledged: &[u32], steps: u32) -> BTreeMap<u64, Known> {
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    for (lane, count) in (0..).zip(acknowledged) {
        for number in 0..*count {
            let step = step(seed, lane, number);
            known.entry(step.key).or_default().acknowledged = step.put.map(|(sequence, _)| sequence);
        }
        if *count < steps {
            let step = step(seed, lane, *count);
            known.entry(step.key).or_default().in_flight.push(step.put.map(|(sequence, _)| sequence));
        }
    }
    known
}

/// Lanes of a thread.
pub fn lanes_of(thread: u32) -> std::ops::Range<u32> {
    if thread < SESSIONS {
        return thread * SESSION_LANES..(thread + 1) * SESSION_LANES;
    }
    let lane = SESSIONS * SESSION_LANES + thread - SESSIONS;
    lane..lane + 1
}

/// Where a thread's witness sector lies on the device, in bytes.
pub fn witness_at(thread: u32) -> u64 {
    FILE_SYSTEM_BYTES + u64::from(thread) * 512
}

/// Fills a witness sector: how many steps of each lane of `thread` are acknowledged.
pub fn encode_witness(thread: u32, counts: &[u32], sector: &mut [u8]) {
    let words = [thread, counts.len() as u32].into_iter().chain(counts.iter().copied());
    let bytes = MAGIC.iter().copied().chain(words.flat_map(u32::to_le_bytes));
    for (place, byte) in sector.iter_mut().zip(bytes.chain(std::iter::repeat(0))) {
        *place = byte;
    }
}

/// Takes a witness sector, if `data` at `at` is one, into `acknowledged`.
pub fn decode_witness(at: u64, data: &[u8], acknowledged: &mut [u32]) -> bool {
    let word = |index: usize| {
        let bytes = data.get(8 + index * 4..12 + index * 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    if at < FILE_SYSTEM_BYTES || data.get(..8) != Some(MAGIC) {
        return false;
    }
    let Some(thread) = word(0).filter(|thread| *thread < SESSIONS + BLOCKING) else { return false };
    for (index, lane) in lanes_of(thread).enumerate() {
        if let (Some(count), Some(known)) = (word(2 + index), acknowledged.get_mut(lane as usize)) {
            *known = count;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_sector_carries_the_counts_of_its_threads_lanes() {
        let mut seen = vec![0; LANES as usize];
        let mut sector = [0; 512];
        encode_witness(1, &[9, 8, 7, 6, 5, 4, 3, 2], &mut sector);
        assert!(decode_witness(witness_at(1), &sector, &mut seen));
        encode_witness(SESSIONS + 3, &[77], &mut sector);
        assert!(decode_witness(witness_at(5), &sector, &mut seen));
        assert_eq!((seen[7], seen[8], seen[15], seen[18], seen[19]), (0, 9, 2, 0, 77));
        assert!(!decode_witness(4096, &sector, &mut seen), "inside the file system");
        assert!(!decode_witness(witness_at(5), &[0; 512], &mut seen));
        assert!(!decode_witness(witness_at(5), &sector[..4], &mut seen));
    }

    #[test]
    fn what_is_known_is_the_last_acknowledged_and_the_step_after() {
        let steps: Vec<LaneWrite> = (0..5).map(|number| step(3, 0, number)).collect();
        let known = known(3, &[4], 5);
        let last =
            |key| steps[..4].iter().rev().find(|step| step.key == key).and_then(|step| step.put).map(|put| put.0);
        assert!(known.iter().all(|(key, known)| known.acknowledged == last(*key)));
        let in_flight = known.iter().filter(|(_, known)| !known.in_flight.is_empty());
        assert_eq!(in_flight.map(|(key, _)| *key).collect::<Vec<_>>(), [steps[4].key]);
        assert!(!Known { acknowledged: Some(5), in_flight: vec![None] }.may_be(Some(4)));
    }
}
