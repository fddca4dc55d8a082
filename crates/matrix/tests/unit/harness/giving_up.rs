//! Giving up a region with tables in its PMEM levels: what is told, what is left, and what a cut
//! leaves.

use std::collections::{BTreeMap, HashMap};

use stratakv_base::random::Random;

use super::pmem_levels::{REGION_BYTES, with_pmem_levels};
use super::*;
use crate::pairing::{Known, Loss};
use crate::volume::PMEM_LEVELS_FIRST;

const KEYS: u64 = 600;
const PMEM_LEVELS_BYTES: u64 = 128 << 10;

/// What each key ever was, with the version of the change; the last one is what it is.
type Histories = BTreeMap<String, Vec<(u64, Option<Bytes>)>>;

/// Puts and deletes at random, some of values that lie apart; each key of a run has its turn, so
/// that old ones lie deep.
fn churn(harness: &mut Harness, histories: &mut Histories, seed: u64, writes: u64) {
    let mut random = Random::new(seed);
    for _ in 0..writes {
        let name = name(random.below(KEYS));
        let (change, is) = match random.below(8) {
            0 => (delete(&name), None),
            kind => {
                let value = value(random.next_u64(), if kind == 1 { 900 } else { 150 });
                (put(&name, value.clone()), Some(value))
            }
        };
        let reply = harness.ask(write(vec![change]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        histories.entry(name).or_default().push((harness.shard.container.version(), is));
    }
}

/// A store with tables in the PMEM levels, of which some lie above others on the volume, closed in
/// order.
fn layered() -> (Harness, Histories) {
    let (mut harness, mut histories) = (with_pmem_levels(PMEM_LEVELS_BYTES), Histories::new());
    for seed in 0..4 {
        churn(&mut harness, &mut histories, seed, 1500);
        harness.run_until_idle();
    }
    assert!(harness.shard.levels.have_pmem_levels() && harness.shard.levels.value_files().count() > 2);
    harness.close();
    (harness, histories)
}

fn is_within(loss: &Loss, key: &str, choose: impl Fn(&crate::LostTable) -> bool) -> bool {
    let encoded = super::key(key);
    let is_in = |table: &&crate::LostTable| {
        table.keys.0 <= encoded.encoded().to_vec() && encoded.encoded().to_vec() <= table.keys.1
    };
    loss.tables.iter().filter(is_in).any(choose)
}

/// Each key is what it was, or what the loss says it may be. How many are as they were, gone, and
/// older than they were.
fn assert_as_told(harness: &mut Harness, histories: &Histories, loss: &Loss) -> (u32, u32, u32) {
    let mut counts = (0, 0, 0);
    for (name, history) in histories {
        let (version, last) = history.last().expect("a change");
        let found = found(&harness.ask(get(name)));
        if found.as_deref() == last.as_deref() {
            counts.0 += 1;
            continue;
        }
        let was_in_container = loss.known.oldest > 0 && *version >= loss.known.oldest;
        assert!(was_in_container || is_within(loss, name, |_| true), "{name} of version {version}: {loss}");
        match found {
            None => counts.1 += 1,
            Some(older) => {
                assert!(history.iter().any(|(_, was)| was.as_deref() == Some(&older[..])), "{name} never was that");
                assert!(was_in_container || is_within(loss, name, |table| table.hid_others), "{name}: {loss}");
                counts.2 += 1;
            }
        }
    }
    counts
}

/// No value file is longer alive than what points to it.
fn assert_values_add_up(harness: &Harness) {
    let mut pointed = HashMap::<u64, u64>::new();
    for (file, bytes) in harness.shard.tables().flat_map(|table| &table.facts.blob) {
        *pointed.entry(*file).or_default() += bytes;
    }
    assert_eq!(harness.shard.check_values(&pointed), [""; 0]);
}

/// A tmpfs with PMEM levels after a reboot.
#[test]
fn pmem_levels_that_are_lost_are_told_and_the_store_goes_on_without_its_tables() {
    let (mut harness, mut histories) = layered();
    let (known, tables) =
        (harness.shard.installer.superblock().known, harness.shard.tables().cloned().collect::<Vec<_>>());
    let (lost, left): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.lies_in_pmem_levels());
    let (free, files) = (harness.statistic("pages_free"), harness.shard.levels.value_files().count());
    harness.put_region(&vec![0; REGION_BYTES + PMEM_LEVELS_BYTES as usize]);
    let said = harness.assert_refused();
    assert!(said.contains(&format!("Lost with the PMEM levels: {} tables", lost.len())), "{said}");
    assert!(said.contains("come back after it was deleted"), "{said}");

    let loss = harness.repair().expect("it was lost");
    assert_eq!((loss.known, loss.kept_version), (known, None));
    let sums = |tables: &[&crate::volume::LevelTable]| tables.iter().map(|table| table.facts.entries).sum::<u64>();
    assert_eq!(loss.tables.iter().map(|table| table.entries).sum::<u64>(), sums(&lost));
    assert_eq!(loss.entries, sums(&left));
    let files_lost: Vec<u64> = loss.tables.iter().map(|table| table.file).collect();
    assert!(lost.iter().all(|table| files_lost.contains(&table.facts.file)) && files_lost.len() == lost.len());
    assert_values_add_up(&harness);
    let (free_now, files_now) = (harness.statistic("pages_free"), harness.shard.levels.value_files().count());
    assert!(free_now > free && files_now < files, "{free} {free_now} {files} {files_now}");
    let (same, gone, older) = assert_as_told(&mut harness, &histories, &loss);
    assert!(same > 20 && gone > 20 && older > 20, "{same} {gone} {older}");

    assert!(harness.assert_opens().loss.is_none());
    assert_eq!(assert_as_told(&mut harness, &histories, &loss), (same, gone, older), "and so it stays");
    for number in 0..KEYS {
        let reply = harness.ask(write(vec![delete(&name(number))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    histories.clear();
    churn(&mut harness, &mut histories, 9, 4000);
    harness.run_until_idle();
    assert!(harness.statistic("pmem_levels_table_bytes") > 0, "the new PMEM levels are used");
    assert_values_add_up(&harness);
    harness.region.memory.cut();
    harness.assert_opens();
    assert_eq!(assert_as_told(&mut harness, &histories, &Loss::default()).0, histories.len() as u32);
}

/// Each store, fence and write is the last one of giving up a region with PMEM levels: either
/// nothing happened that cannot be told again, or all of it.
#[test]
pub(super) fn every_cut_of_giving_up_pmem_levels_leaves_all_or_nothing() {
    let (mut harness, mut histories) = layered();
    let older = harness.region_image();
    harness.assert_opens();
    churn(&mut harness, &mut histories, 11, 600);
    harness.run_until_idle();
    let volume = harness.volume.clone();
    harness.put_region(&older);
    let told = would_lose(&mut harness);
    assert!(!told.tables.is_empty());
    let mut outcomes = [(0, 0); 3];
    for start in [vec![0; older.len()], older] {
        for cut in 0..30 {
            for (what, outcome) in outcomes.iter_mut().enumerate() {
                harness.put_region(&start);
                harness.volume.clone_from(&volume);
                let requests = if what == 2 { cut } else { u32::MAX };
                match what {
                    0 => harness.fail_stores_after(cut.into()),
                    1 => harness.fail_fences_after(cut.into()),
                    _ => {}
                }
                let is_cut = !matches!(harness.try_open(true, false, requests), Ok(true));
                outcome.0 += u32::from(is_cut);
                harness.allow_all();
                if harness.try_open(false, false, u32::MAX).is_err() {
                    outcome.1 += 1;
                    let said = harness.assert_refused();
                    assert!(said.contains("Lost with the PMEM levels: "), "{said}");
                    let again = harness.repair().expect("it is lost still");
                    assert_eq!((again.known, &again.tables), (told.known, &told.tables), "what: {what} cut: {cut}");
                }
                assert!(!harness.shard.levels.have_pmem_levels(), "what: {what}, cut: {cut}");
                harness.assert_sound();
                assert_values_add_up(&harness);
                if cut % 5 == 0 {
                    assert_as_told(&mut harness, &histories, &told);
                }
                harness.fill(5000..5001, 100);
                harness.assert_opens();
                harness.assert_filled(5000..5001, 100);
            }
        }
    }
    // Of the writes: two copies of the manifest, and two superblocks, of which the first one
    // decides.
    assert!(outcomes[0].1 > 3 && outcomes[1].1 > 3 && outcomes[2].1 >= 6, "{outcomes:?}");
    assert!(outcomes.iter().all(|(cuts, again)| cuts > again), "{outcomes:?}");
}

/// What would be lost, and nothing is changed.
fn would_lose(harness: &mut Harness) -> Loss {
    let (image, volume) = (harness.region_image(), harness.volume.clone());
    let region = std::mem::replace(&mut harness.region, Faulty::new(image.len()));
    harness.put_region(&image);
    assert!(harness.try_open(true, true, u32::MAX).unwrap());
    harness.region = region;
    assert!(harness.volume == volume && harness.region_image() == image, "something was changed");
    harness.shard.recovery().loss.clone().expect("it is lost")
}

/// A file region after a power cut: its end is missing, and a page of the PMEM levels.
#[test]
fn of_a_region_without_its_end_tables_go_whose_pages_are_not_whole() {
    let (mut harness, mut histories) = layered();
    harness.assert_opens();
    let (older, version) = (harness.region_image(), harness.shard.container.version());
    churn(&mut harness, &mut histories, 11, 3);
    harness.close();
    let tables: Vec<_> = harness.shard.tables().filter(|table| table.lies_in_pmem_levels()).cloned().collect();
    assert!(tables.len() > 1);
    for damaged in [None, Some(&tables[0])] {
        let mut image = older.clone();
        let volume = harness.volume.clone();
        if let Some(table) = damaged {
            let page = table.extents.iter().find(|extent| extent.in_pmem_levels()).expect("a page").page;
            image[REGION_BYTES + (page - PMEM_LEVELS_FIRST) as usize * 4096 + 100] ^= 1;
        }
        harness.put_region(&image);
        harness.assert_refused();
        let loss = harness.repair().expect("it lost something");
        assert_eq!((loss.kept_version, loss.known.version), (Some(version), version + 3));
        let lost: Vec<u64> = loss.tables.iter().map(|table| table.file).collect();
        assert_eq!(lost, damaged.iter().map(|table| table.facts.file).collect::<Vec<_>>());
        assert_values_add_up(&harness);
        let told = Loss { known: Known { oldest: version + 1, ..loss.known }, ..loss };
        assert_as_told(&mut harness, &histories, &told);
        harness.assert_opens();
        assert_as_told(&mut harness, &histories, &told);
        harness.volume = volume;
    }
}
