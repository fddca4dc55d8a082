//! Prepare records and commit-done records: read, and dealt with by a shard that finds them when it
//! is opened.

use std::collections::BTreeMap;

use bytes::Bytes;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_device::memory::Image;
use stratakv_engine::{Change, ChangeKind, Expect};

use super::Choices;
use super::machine::{Machine, Value, config};
use crate::batch::BatchId;
use crate::batch::record::{self, Kept};
use crate::opener::IndexedOpener;
use crate::placement::Placement;
use crate::{InPlace, Log};

const VOLUME_BYTES: u64 = 128 * 4096;

/// Bytes of a prepare record: refused, or the same when written and read again. Then a shard is
/// opened that holds them, whatever they say: it serves, closes, and what was in its other keys is
/// there, or what the prepare record makes of them.
///
/// # Panics
/// A property does not hold.
pub fn share(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mode = choices.byte();
    let id = BatchId { number: choices.u64() >> 24, coordinator: if mode & 1 == 0 { 0 } else { choices.u32() } };
    let value = match mode >> 1 & 1 {
        0 => built(&mut choices),
        _ => Bytes::copy_from_slice(choices.bytes(usize::MAX)),
    };
    let kept = record::decode(&value);
    if let Some(kept) = &kept {
        let again = record::encode(kept);
        assert!(again.len() == value.len());
        assert_eq!(record::decode(&again).map(|kept| record::encode(&kept)).as_ref(), Some(&again));
    }
    if mode & 4 == 0 {
        found_at_opening::<InPlace>(id, value, kept.as_ref());
    } else {
        found_at_opening::<Log>(id, value, kept.as_ref());
    }
}

/// A share of a few changes, its fields drawn: a key may occur twice, lie in the engine's own
/// collection, belong to another shard.
fn built(choices: &mut Choices<'_>) -> Bytes {
    let shards = |choices: &mut Choices<'_>| (0..choices.byte() % 4).map(|_| u32::from(choices.byte() % 4)).collect();
    let participants: Vec<u32> = shards(choices);
    if choices.byte().is_multiple_of(8) {
        return record::encode(&Kept::Resolved { participants });
    }
    let mut changes = Vec::new();
    for _ in 0..choices.byte() % 6 {
        let collection = if choices.byte().is_multiple_of(8) { CollectionId::ENGINE } else { CollectionId(0) };
        let key = Key::bound(collection, &[b'k', choices.byte() % 4]);
        let len = choices.below(6000);
        let kind = match choices.byte() % 3 {
            0 => ChangeKind::Delete,
            _ => ChangeKind::Put { value: vec![7; len].into(), flags: 0, expiry: Expiry::NEVER },
        };
        changes.push(Change { key, expect: Expect::Any, kind });
    }
    record::encode(&Kept::PrepareRecord { participants, version: choices.u64() >> 20, changes })
}

fn found_at_opening<P: Placement>(id: BatchId, value: Bytes, kept: Option<&Kept>) {
    let image = Image { bytes: Vec::new(), capacity_bytes: Some(VOLUME_BYTES) };
    let create = IndexedOpener::<P>::create(config(0, VOLUME_BYTES, 8));
    let mut machine = Machine::open(create, image, 7).expect("a new volume");
    let mut before = BTreeMap::<Vec<u8>, Value>::new();
    for number in 0..4 {
        before.insert(vec![b'k', number], Some(vec![number; 100]));
    }
    before.iter().for_each(|(key, value)| machine.put(key, value).expect("there is room"));
    if !machine.leave_record(id, value) {
        return;
    }
    machine.close();
    let mut machine = Machine::<P>::recover(machine.image, VOLUME_BYTES, 8).expect("a volume that was closed");
    let mut allowed: BTreeMap<&[u8], Vec<Value>> = BTreeMap::new();
    before.iter().for_each(|(key, value)| allowed.entry(key).or_default().push(value.clone()));
    if let Some(Kept::PrepareRecord { changes, .. }) = kept {
        for change in changes.iter().filter(|change| change.key.collection() == CollectionId(0)) {
            // A batch that is undone leaves a key as it was: of those that the prepare record adds,
            // absent.
            let allowed = allowed.entry(change.key.user()).or_insert_with(|| vec![None]);
            match &change.kind {
                ChangeKind::Put { value, expiry, .. } if *expiry == Expiry::NEVER => allowed.push(Some(value.to_vec())),
                ChangeKind::Put { value, .. } => allowed.extend([Some(value.to_vec()), None]),
                ChangeKind::Delete => allowed.push(None),
                ChangeKind::Check => {}
            }
        }
    }
    for (key, allowed) in &allowed {
        let found = machine.get(key);
        assert!(found.as_ref().is_ok_and(|value| allowed.contains(value)), "{key:?} is {found:?}");
    }
    machine.rest();
    machine.put(b"new", &Some(vec![1])).expect("it takes writes");
    let mistakes = machine.slab.check().mistakes;
    assert!(mistakes.is_empty(), "{mistakes:?}");
    machine.close();
    let mut machine = Machine::<P>::recover(machine.image, VOLUME_BYTES, 8).expect("a volume that was closed");
    assert_eq!(machine.get(b"new"), Ok(Some(vec![1])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SlabConfig, SlabOpener};
    use stratakv_base::checksum::shard_of;
    use stratakv_base::random::Random;

    /// The key would be there in scans of this shard, and for no get.
    #[test]
    fn a_share_of_a_key_that_another_shard_has_is_not_carried_out() {
        let config = |volume_bytes| SlabConfig { shards: 3, ..config(volume_bytes, VOLUME_BYTES, 8) };
        let keys = (0..9).map(|number| Key::bound(CollectionId(0), &[b'k', number]));
        let foreign = keys.into_iter().find(|key| shard_of(key.encoded(), 3) != 0).unwrap();
        let kind = ChangeKind::Put { value: Bytes::from_static(b"stray"), flags: 0, expiry: Expiry::NEVER };
        let changes = vec![Change { key: foreign, expect: Expect::Any, kind }];
        let value = record::encode(&Kept::PrepareRecord { participants: vec![0], version: 5, changes });
        let image = Image { bytes: Vec::new(), capacity_bytes: Some(VOLUME_BYTES) };
        let mut machine = Machine::open(SlabOpener::create(config(0)), image, 7).unwrap();
        assert!(machine.leave_record(BatchId { number: 9, coordinator: 0 }, value));
        let image = machine.image;
        let mut machine = Machine::open(SlabOpener::recover(config(image.bytes.len() as u64)), image, 7).unwrap();
        machine.rest();
        assert_eq!(machine.slab.check().corrupt.len(), 1, "it is told");
        let strays = machine.slab.index.batch_records().len();
        assert_eq!(machine.slab.index.tree.len(), strays, "nothing but records of batches");
    }

    fn opened_with(key: &[u8], participants: Vec<u32>, expiry: Expiry) {
        let kind = ChangeKind::Put { value: Bytes::from_static(b"new"), flags: 0, expiry };
        let changes = vec![Change { key: Key::bound(CollectionId(0), key), expect: Expect::Any, kind }];
        let value = record::encode(&Kept::PrepareRecord { participants, version: 3, changes });
        let (bytes_as_they_are, number) = ([2], [0; 8]);
        share(&[&bytes_as_they_are[..], &number, &value].concat());
    }

    /// Found by the fuzzer: it took a key that such a batch would have added for one that was lost.
    /// Shard 5 holds no share, so it did not commit.
    #[test]
    fn a_share_that_is_undone_leaves_a_new_key_absent() {
        opened_with(&[0, 0], vec![0, 5], Expiry::NEVER);
    }

    #[test]
    fn a_share_of_an_expired_record_leaves_its_key_absent() {
        opened_with(b"k\0", vec![0], Expiry(1));
    }

    #[test]
    fn shares_drawn_at_random_hold() {
        let mut random = Random::new(9);
        for number in 0..150 {
            let mut input = vec![0; 60];
            random.fill(&mut input);
            input[0] = number as u8;
            share(&input);
        }
    }
}
