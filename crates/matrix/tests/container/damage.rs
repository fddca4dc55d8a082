//! What is damaged is told, and never returned as data; what is no container is refused with a
//! reason.

use std::collections::BTreeMap;

use stratakv_base::random::Random;
use stratakv_engine::Error;
use stratakv_matrix::container::{Config, Container};
use stratakv_sim::pmem::{Domain, Region};

use super::world::{Do, Journal, KEYS, ROW_BYTES, SHARD, UUID, Volume, blank, config, image, key, look, open, walk};

const ALL: u64 = 1 << 20;
/// The last commit changes only this one: that it is lost cannot be told.
const LAST: u8 = KEYS - 1;

/// A container with all that there can be, its volume, and what it holds.
fn full_of_everything() -> (Vec<u8>, Volume, Journal) {
    use Do::{Append, Column, Commit, Flush, HandOver, Seal};
    let region = Region::open(blank(28), Domain::Adr);
    let (mut journal, mut volume) = (Journal::default(), Volume::default());
    let mut container = open(&region, &volume).expect("opened");
    let batch = |first: u8| {
        (0..5).map(|at| ((first + at * 3) % LAST, (at != 2).then_some(40 + 90 * usize::from(at)))).collect()
    };
    let rows = (0..3).flat_map(|at| [Append(batch(at * 4)), Commit, Seal, Flush(ALL)]);
    let steps = rows.chain([HandOver, Column(900, 2000), Append(batch(3)), Commit, Seal, Flush(ALL)]);
    // Over few keys: what rows have must be seen.
    let log = (0..6).flat_map(|_| [Append(batch(0)), Commit]).chain([
        Seal,
        Append(vec![(1, Some(3000)), (5, Some(100_040))]),
        Commit,
        Append(vec![(2, Some(1500))]),
        Commit,
        Append(vec![(LAST, Some(8))]),
        Commit,
        Append(vec![(LAST, Some(9))]),
        Commit,
    ]);
    for step in steps.chain(log) {
        assert!(journal.act(&mut container, &region, &mut volume, &step).expect("done"), "no room for {step:?}");
    }
    assert!(container.statistics().rows_compactor == 3 && container.statistics().rows_receiver == 1);
    (image(&region), volume, journal)
}

/// Told, or nothing is wrong: whether it was told at open.
fn told_or_harmless(image: Vec<u8>, volume: &Volume, journal: &Journal, what: &str) -> bool {
    let region = Region::open(image, Domain::Adr);
    let (mut container, _) = match Container::open(&region, UUID, SHARD, ROW_BYTES) {
        Ok(opened) => opened,
        Err(Error::Corrupt(_) | Error::WrongVolume(_) | Error::NewerFormat { .. }) => return true,
        Err(error) => panic!("{what}: {error}"),
    };
    match container.replay(&volume.rotation, volume.directory, volume.manifest) {
        Ok(_) => {}
        Err(Error::Corrupt(_) | Error::WrongVolume(_)) => return true,
        Err(error) => panic!("{what}: {error}"),
    }
    let last = journal.history.len() as u64;
    let (model, before) = (journal.model(last), journal.model(last - 1));
    for number in 0..KEYS {
        let key = key(number);
        let found = look(&container, volume, &key);
        assert!(!found.as_ref().is_err_and(|why| why.contains("by hints")), "{what}: {found:?}");
        if let Ok(found) = found {
            let is_right = found.as_ref() == model.get(&key) || (number == LAST && found.as_ref() == before.get(&key));
            let found = found.map(|(version, value)| (version, value.map(|value| value.len())));
            assert!(
                is_right,
                "{what}: {} is {found:?} of {:?}",
                key.escape_ascii(),
                model.get(&key).map(|entry| entry.0)
            );
        }
    }
    if let Ok(found) = walk(&container, volume) {
        assert!(found == model || found == before, "{what}: cursors find something else");
    }
    false
}

#[test]
#[expect(clippy::print_stdout, reason = "how many were told is what one wants to know")]
fn no_turned_bit_is_returned_as_data() {
    let (image, volume, journal) = full_of_everything();
    assert!(!told_or_harmless(image.clone(), &volume, &journal, "nothing"));
    // Every bit of lines that hold anything, some of the others.
    let is_blank = |line: usize| image[line * 64..][..64].iter().all(|byte| *byte == 0);
    let bits = (0..image.len() * 8).filter(|bit| !is_blank(bit / 512) || bit % 97 == 0);
    let (mut turned, mut told) = (0u64, 0u64);
    for bit in bits {
        let mut image = image.clone();
        image[bit / 8] ^= 1 << (bit % 8);
        told += u64::from(told_or_harmless(image, &volume, &journal, &format!("bit {} of byte {}", bit % 8, bit / 8)));
        turned += 1;
    }
    println!("{turned} bits, {told} told at open");
    assert!(told > turned / 10, "{told} of {turned}");
}

#[test]
fn forged_regions_are_refused_or_served() {
    let (image, volume, journal) = full_of_everything();
    let mut random = Random::new(4);
    let mut known = BTreeMap::<Vec<u8>, Vec<Option<Vec<u8>>>>::new();
    for (key, value, _) in &journal.history {
        known.entry(key.clone()).or_default().push(value.clone());
    }
    for round in 0..1_500 {
        let mut forged = image.clone();
        for _ in 0..1 + random.below(6) {
            let len = [1 + random.below(64), 64, 4096][random.below(3) as usize] as usize;
            let mut place = || random.below((forged.len() - len) as u64 / 64) as usize * 64;
            let (from, at) = (place(), place());
            if random.below(2) == 0 {
                random.fill(&mut forged[at..at + len]);
            } else {
                forged.copy_within(from..from + len, at);
            }
        }
        let region = Region::open(forged, Domain::Adr);
        let Ok((mut container, _)) = Container::open(&region, UUID, SHARD, ROW_BYTES) else { continue };
        let _ = container.replay(&volume.rotation, volume.directory, volume.manifest);
        for number in 0..KEYS {
            let key = key(number);
            if let Ok(Some((_, value))) = look(&container, &volume, &key) {
                let is_known = known.get(&key).is_some_and(|values| values.contains(&value));
                assert!(is_known, "round {round}: {}", key.escape_ascii());
            }
        }
        let _ = (container.check(), walk(&container, &volume));
        let (mut journal, mut volume) = (journal.clone(), volume.clone());
        for step in [Do::Append(vec![(1, Some(9))]), Do::Commit, Do::Seal, Do::Flush(ALL), Do::Column(1, 2)] {
            if !matches!(step, Do::Column(..)) {
                journal.history.resize(container.version() as usize, (Vec::new(), None, true));
                let _ = journal.act(&mut container, &region, &mut volume, &step);
            }
        }
    }
}

#[test]
fn what_is_no_container_is_refused_with_a_reason() {
    let (image, ..) = full_of_everything();
    let says = |image: Vec<u8>, (uuid, shard): ([u8; 16], u32), what: &str| match Container::open(
        Region::open(image, Domain::Adr),
        uuid,
        shard,
        ROW_BYTES,
    ) {
        Err(error) => assert!(error.to_string().contains(what), "{error}"),
        Ok(_) => panic!("it opens, though {what}"),
    };
    let own = (UUID, SHARD);
    says(vec![0; 64], own, "too short");
    says(vec![0; 8192], own, "blank");
    says(vec![9; 8192], own, "something else");
    says(image.clone(), ([1; 16], SHARD), "another store");
    says(image.clone(), (UUID, SHARD + 1), "another store or shard");
    says(image[..image.len() - 4096].to_vec(), own, "restore its length");
    let mut newer = image.clone();
    newer[16] = 4;
    let crc = stratakv_base::checksum::crc32c(0, &newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    says(newer, own, "format 4");
    let mut without_directories = image.clone();
    without_directories[4096..4096 * 7].fill(0);
    says(without_directories, own, "directory is damaged");
    for (config, len_bytes) in [
        (Config { unit_bytes: 5000, ..config() }, image.len()),
        (Config { unit_bytes: 2 << 20, ..config() }, image.len()),
        (config(), 4 * 4096),
    ] {
        let error = Container::create(Region::new(len_bytes), config).map(drop).expect_err("it does not fit");
        assert!(error.to_string().contains("no matrix container fits"), "{error}");
    }
}

/// A record in the middle of the log, and the whole header of a unit: both looked like a torn end,
/// and what follows was lost.
#[test]
fn damage_to_what_was_durable_is_no_torn_end() {
    let region = Region::open(blank(20), Domain::Adr);
    let mut container = open(&region, &Volume::default()).expect("opened");
    let (mut journal, mut volume) = (Journal::default(), Volume::default());
    let units_at = 4096 * 7;
    for at in 0..12 {
        for step in [Do::Append(vec![(at, Some(600))]), Do::Commit] {
            journal.act(&mut container, &region, &mut volume, &step).expect("done");
        }
    }
    let image = image(&region);
    for (at, what) in [
        (64 + 3, "a checksum"),
        (64 + 5, "a length"),
        (64 + 700, "the second"),
        (1, "a header"),
        (4096 + 8, "another header"),
    ] {
        let mut rotten = image.clone();
        rotten[units_at + at] ^= 0x5A;
        let opened = Container::open(Region::open(rotten, Domain::Adr), UUID, SHARD, ROW_BYTES);
        let error = opened.map(drop).expect_err(what).to_string();
        assert!(error.contains("was durable") || error.contains("says that version"), "{what}: {error}");
    }
}

/// The region of one backup beside the volume of a later one.
#[test]
fn a_region_older_than_its_volume_is_refused() {
    let (image, volume, _) = full_of_everything();
    let region = Region::open(image, Domain::Adr);
    let (mut container, _) = Container::open(&region, UUID, SHARD, ROW_BYTES).expect("opened");
    let mut rotation = volume.rotation.clone();
    rotation.compactor += 1;
    for (rotation, directory, manifest) in [
        (&rotation, volume.directory, volume.manifest),
        (&volume.rotation, container.directory() + 1, volume.manifest),
        (&volume.rotation, volume.directory, volume.manifest - 1),
    ] {
        let error = container.replay(rotation, directory, manifest).expect_err("refused").to_string();
        assert!(error.contains("do not belong together"), "{error}");
    }
    assert_eq!(region.counters().unflushed_lines, 0);
}

/// A line that the memory cannot give back was taken for the end of a log.
#[test]
fn a_lost_line_of_a_log_is_told() {
    let region = Region::open(blank(20), Domain::Adr);
    let (mut journal, mut volume) = (Journal::default(), Volume::default());
    let mut container = open(&region, &volume).expect("opened");
    for step in [Do::Append(vec![(1, Some(600)), (2, Some(300))]), Do::Commit] {
        journal.act(&mut container, &region, &mut volume, &step).expect("done");
    }
    drop(container);
    for at in [0, 64, 128, 800] {
        let region = Region::open(image(&region), Domain::Adr);
        region.poison(4096 * 7 + at);
        let error = Container::open(&region, UUID, SHARD, ROW_BYTES).map(drop).expect_err("lost").to_string();
        assert!(error.contains("uncorrectable"), "{error}");
    }
}

/// A record of a log rots while its row is made: the row is given up, its units come back, again
/// and again.
#[test]
fn a_row_that_cannot_be_made_keeps_no_units() {
    let region = Region::open(blank(20), Domain::Adr);
    let (mut journal, mut volume) = (Journal::default(), Volume::default());
    let mut container = open(&region, &volume).expect("opened");
    for step in [Do::Append(vec![(1, Some(600)), (2, Some(300)), (4, Some(900))]), Do::Commit, Do::Seal] {
        journal.act(&mut container, &region, &mut volume, &step).expect("done");
    }
    // The last one in order: the others are copied before it.
    let before = container.units_free();
    use stratakv_sim::pmem::Pmem;
    region.store(4096 * 7 + 64 + 664 + 368 + 8, &[77]).expect("stored");
    for _ in 0..3 {
        let mut last = container.flush_step(1);
        while last.is_ok() {
            last = container.flush_step(1);
        }
        assert!(matches!(last, Err(Error::Corrupt(_))), "{last:?}");
        assert_eq!(container.units_free(), before);
    }
}
