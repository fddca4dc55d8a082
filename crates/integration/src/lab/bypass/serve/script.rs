//! What clients do, as a function of a seed: so the host knows what must be there from the counts
//! of witness sectors alone.

use std::collections::BTreeMap;

use stratakv_base::random::Random;

use super::super::super::workload::{Known, name};
use crate::value;

/// Commands that a connection has in flight at most.
pub(super) const DEPTH: u32 = 4;
/// Keys of each lane.
const KEYS: u64 = 12;
/// The longest value.
const LEN_MAX: u64 = 256 << 10;

/// One command of a lane. Its number plus one is the *sequence* of what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientStep {
    Set { key: u64, len: usize },
    Delete { key: u64 },
    Get { key: u64 },
}

/// ClientStep `number` (from 0) of `lane`.
pub(super) fn step(seed: u64, lane: u32, number: u32) -> ClientStep {
    let mut random = Random::new(seed ^ (u64::from(lane) + 1) << 48 ^ (u64::from(number) + 1) << 20);
    let key = u64::from(lane) << 20 | random.below(KEYS);
    match random.below(10) {
        0 => return ClientStep::Delete { key },
        1..=3 => return ClientStep::Get { key },
        _ => {}
    }
    let max = match random.below(24) {
        0 => LEN_MAX,
        1..=4 => 16 << 10,
        5..=8 => 32,
        _ => 1500,
    };
    ClientStep::Set { key, len: 1 + random.below(max) as usize }
}

/// The value that a step writes, if it writes one.
pub(super) fn value(step: ClientStep, sequence: u64) -> Option<Vec<u8>> {
    let ClientStep::Set { key, len } = step else { return None };
    // The end of a short value tells more than its begin, which is the key.
    let mut value = value::encode(key, sequence, len);
    Some(value.split_off(value.len() - len))
}

/// The value of a key of `lane` with a sequence.
pub(super) fn value_of(seed: u64, key: u64, sequence: u64) -> Option<Vec<u8>> {
    let lane = (key >> 20) as u32;
    value(step(seed, lane, sequence.checked_sub(1)? as u32), sequence)
}

/// Every key's state, given how many steps of each lane were acknowledged: so many after those as
/// are in flight may have happened.
pub(super) fn known(seed: u64, acknowledged: &[u32], steps: u32) -> BTreeMap<u64, Known> {
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    for (lane, count) in (0..).zip(acknowledged) {
        for number in 0..steps.min(*count + DEPTH) {
            let (key, found) = match step(seed, lane, number) {
                ClientStep::Set { key, .. } => (key, Some(u64::from(number) + 1)),
                ClientStep::Delete { key } => (key, None),
                ClientStep::Get { .. } => continue,
            };
            let known = known.entry(key).or_default();
            if number < *count { known.acknowledged = found } else { known.in_flight.push(found) }
        }
    }
    known
}

/// Writes among the first steps of each lane.
pub(super) fn writes(seed: u64, acknowledged: &[u32]) -> u64 {
    let lanes = (0..).zip(acknowledged);
    let steps = lanes.flat_map(|(lane, count)| (0..*count).map(move |number| step(seed, lane, number)));
    steps.filter(|step| !matches!(step, ClientStep::Get { .. })).count() as u64
}

/// Whether these bytes, or none, may be found under a key.
///
/// # Errors
/// They may not: what was found.
pub(super) fn compare(seed: u64, key: u64, known: &Known, found: Option<&[u8]>) -> Result<(), String> {
    let candidates = std::iter::once(&known.acknowledged).chain(&known.in_flight);
    let is = |candidate: &Option<u64>| match (candidate, found) {
        (Some(sequence), Some(found)) => value_of(seed, key, *sequence).is_some_and(|value| value == found),
        (None, None) => true,
        _ => false,
    };
    match candidates.into_iter().any(is) {
        true => Ok(()),
        false => Err(format!("{}: found {}, known {known:?}", name(key), describe(key, found))),
    }
}

/// What was found, for a message.
fn describe(key: u64, found: Option<&[u8]>) -> String {
    match found {
        None => "nothing".into(),
        Some(bytes) if bytes.len() < value::LEN_MIN => format!("{} bytes", bytes.len()),
        Some(bytes) => match value::decode(key, bytes) {
            Ok(sequence) => format!("{} bytes of sequence {sequence}", bytes.len()),
            Err(why) => format!("{} bytes: {why}", bytes.len()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_lengths_tell_their_sequence() {
        let sets = (0..4000).filter_map(|number| match step(5, 3, number) {
            ClientStep::Set { key, len } => Some((key, u64::from(number) + 1, len)),
            _ => None,
        });
        let mut lens = Vec::new();
        for (key, sequence, len) in sets {
            let value = value_of(5, key, sequence).unwrap();
            assert_eq!(value.len(), len);
            lens.push(len);
            let known = Known { acknowledged: Some(sequence), in_flight: vec![] };
            assert_eq!(compare(5, key, &known, Some(&value)), Ok(()));
            assert!(compare(5, key, &known, None).is_err() && compare(5, key, &known, Some(&value[1..])).is_err());
        }
        assert_eq!(lens.iter().min(), Some(&1));
        assert!(lens.iter().any(|len| *len > 200 << 10) && lens.iter().all(|len| *len <= 256 << 10));
    }

    #[test]
    fn what_is_in_flight_may_have_happened_and_nothing_behind_it() {
        let all = known(9, &[20], 40);
        let behind = known(9, &[20 + DEPTH], 40);
        for (key, known) in &all {
            let after = (20..20 + DEPTH).map(|number| (step(9, 0, number), number));
            let of_key = after.filter_map(|(step, number)| match step {
                ClientStep::Set { key: of, .. } if of == *key => Some(Some(u64::from(number) + 1)),
                ClientStep::Delete { key: of } if of == *key => Some(None),
                _ => None,
            });
            assert_eq!(known.in_flight, of_key.collect::<Vec<_>>());
            let last = known.in_flight.last().unwrap_or(&known.acknowledged);
            assert_eq!(behind.get(key).map(|known| &known.acknowledged), Some(last));
        }
        assert!(writes(9, &[20]) < 20 && writes(9, &[20]) > 8);
    }
}
