//! Giving up a region with tables in its layer: what is told, what is left, and what a cut leaves.

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
fn churn(trial: &mut Trial, histories: &mut Histories, seed: u64, writes: u64) {
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
        let reply = trial.ask(write(vec![change]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
        histories.entry(name).or_default().push((trial.shard.container.version(), is));
    }
}

/// A store with tables in the layer, of which some lie above others on the volume, closed in order.
fn layered() -> (Trial, Histories) {
    let (mut trial, mut histories) = (with_pmem_levels(PMEM_LEVELS_BYTES), Histories::new());
    for seed in 0..4 {
        churn(&mut trial, &mut histories, seed, 1500);
        trial.settle();
    }
    assert!(trial.shard.levels.have_pmem_levels() && trial.shard.levels.value_files().count() > 2);
    trial.close();
    (trial, histories)
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
fn assert_as_told(trial: &mut Trial, histories: &Histories, loss: &Loss) -> (u32, u32, u32) {
    let mut counts = (0, 0, 0);
    for (name, history) in histories {
        let (version, last) = history.last().expect("a change");
        let found = found(&trial.ask(get(name)));
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
fn assert_values_add_up(trial: &Trial) {
    let mut pointed = HashMap::<u64, u64>::new();
    for (file, bytes) in trial.shard.tables().flat_map(|table| &table.facts.blob) {
        *pointed.entry(*file).or_default() += bytes;
    }
    assert_eq!(trial.shard.check_values(&pointed), [""; 0]);
}

/// A tmpfs with a layer after a reboot.
#[test]
fn pmem_levels_that_are_lost_are_told_and_the_store_goes_on_without_its_tables() {
    let (mut trial, mut histories) = layered();
    let (known, tables) = (trial.shard.superblock.known, trial.shard.tables().cloned().collect::<Vec<_>>());
    let (lost, left): (Vec<_>, Vec<_>) = tables.iter().partition(|table| table.lies_in_pmem_levels());
    let (free, files) = (trial.statistic("pages_free"), trial.shard.levels.value_files().count());
    trial.put_region(&vec![0; REGION_BYTES + PMEM_LEVELS_BYTES as usize]);
    let said = trial.assert_refused();
    assert!(said.contains(&format!("Lost with the layer: {} tables", lost.len())), "{said}");
    assert!(said.contains("come back after it was deleted"), "{said}");

    let loss = trial.repair().expect("it was lost");
    assert_eq!((loss.known, loss.kept_version), (known, None));
    let sums = |tables: &[&crate::volume::Table]| tables.iter().map(|table| table.facts.entries).sum::<u64>();
    assert_eq!(loss.tables.iter().map(|table| table.entries).sum::<u64>(), sums(&lost));
    assert_eq!(loss.entries, sums(&left));
    let files_lost: Vec<u64> = loss.tables.iter().map(|table| table.file).collect();
    assert!(lost.iter().all(|table| files_lost.contains(&table.facts.file)) && files_lost.len() == lost.len());
    assert_values_add_up(&trial);
    let (free_now, files_now) = (trial.statistic("pages_free"), trial.shard.levels.value_files().count());
    assert!(free_now > free && files_now < files, "{free} {free_now} {files} {files_now}");
    let (same, gone, older) = assert_as_told(&mut trial, &histories, &loss);
    assert!(same > 20 && gone > 20 && older > 20, "{same} {gone} {older}");

    assert!(trial.assert_opens().loss.is_none());
    assert_eq!(assert_as_told(&mut trial, &histories, &loss), (same, gone, older), "and so it stays");
    for number in 0..KEYS {
        let reply = trial.ask(write(vec![delete(&name(number))]));
        assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    }
    histories.clear();
    churn(&mut trial, &mut histories, 9, 4000);
    trial.settle();
    assert!(trial.statistic("layer_table_bytes") > 0, "the new layer is used");
    assert_values_add_up(&trial);
    trial.region.memory.cut();
    trial.assert_opens();
    assert_eq!(assert_as_told(&mut trial, &histories, &Loss::default()).0, histories.len() as u32);
}

/// Each store, fence and write is the last one of giving up a region with a layer: either nothing
/// happened that cannot be told again, or all of it.
#[test]
pub(super) fn every_cut_of_giving_up_pmem_levels_leaves_all_or_nothing() {
    let (mut trial, mut histories) = layered();
    let older = trial.region_image();
    trial.assert_opens();
    churn(&mut trial, &mut histories, 11, 600);
    trial.settle();
    let volume = trial.volume.clone();
    trial.put_region(&older);
    let told = would_lose(&mut trial);
    assert!(!told.tables.is_empty());
    let mut outcomes = [(0, 0); 3];
    for start in [vec![0; older.len()], older] {
        for cut in 0..30 {
            for (what, outcome) in outcomes.iter_mut().enumerate() {
                trial.put_region(&start);
                trial.volume.clone_from(&volume);
                let requests = if what == 2 { cut } else { u32::MAX };
                match what {
                    0 => trial.fail_stores_after(cut.into()),
                    1 => trial.fail_fences_after(cut.into()),
                    _ => {}
                }
                let is_cut = !matches!(trial.try_open(true, false, requests), Ok(true));
                outcome.0 += u32::from(is_cut);
                trial.allow_all();
                if trial.try_open(false, false, u32::MAX).is_err() {
                    outcome.1 += 1;
                    let said = trial.assert_refused();
                    assert!(said.contains("Lost with the layer: "), "{said}");
                    let again = trial.repair().expect("it is lost still");
                    assert_eq!((again.known, &again.tables), (told.known, &told.tables), "what: {what} cut: {cut}");
                }
                assert!(!trial.shard.levels.have_pmem_levels(), "what: {what}, cut: {cut}");
                trial.assert_sound();
                assert_values_add_up(&trial);
                if cut % 5 == 0 {
                    assert_as_told(&mut trial, &histories, &told);
                }
                trial.fill(5000..5001, 100);
                trial.assert_opens();
                trial.assert_filled(5000..5001, 100);
            }
        }
    }
    // Of the writes: two copies of the manifest, and two superblocks, of which the first one
    // decides.
    assert!(outcomes[0].1 > 3 && outcomes[1].1 > 3 && outcomes[2].1 >= 6, "{outcomes:?}");
    assert!(outcomes.iter().all(|(cuts, again)| cuts > again), "{outcomes:?}");
}

/// What would be lost, and nothing is changed.
fn would_lose(trial: &mut Trial) -> Loss {
    let (image, volume) = (trial.region_image(), trial.volume.clone());
    let region = std::mem::replace(&mut trial.region, Faulty::new(image.len()));
    trial.put_region(&image);
    assert!(trial.try_open(true, true, u32::MAX).unwrap());
    trial.region = region;
    assert!(trial.volume == volume && trial.region_image() == image, "something was changed");
    trial.shard.recovery().loss.clone().expect("it is lost")
}

/// A file region after a power cut: its end is missing, and a page of the layer.
#[test]
fn of_a_region_without_its_end_tables_go_whose_pages_are_not_whole() {
    let (mut trial, mut histories) = layered();
    trial.assert_opens();
    let (older, version) = (trial.region_image(), trial.shard.container.version());
    churn(&mut trial, &mut histories, 11, 3);
    trial.close();
    let tables: Vec<_> = trial.shard.tables().filter(|table| table.lies_in_pmem_levels()).cloned().collect();
    assert!(tables.len() > 1);
    for damaged in [None, Some(&tables[0])] {
        let mut image = older.clone();
        let volume = trial.volume.clone();
        if let Some(table) = damaged {
            let page = table.extents.iter().find(|extent| extent.in_pmem_levels()).expect("a page").page;
            image[REGION_BYTES + (page - PMEM_LEVELS_FIRST) as usize * 4096 + 100] ^= 1;
        }
        trial.put_region(&image);
        trial.assert_refused();
        let loss = trial.repair().expect("it lost something");
        assert_eq!((loss.kept_version, loss.known.version), (Some(version), version + 3));
        let lost: Vec<u64> = loss.tables.iter().map(|table| table.file).collect();
        assert_eq!(lost, damaged.iter().map(|table| table.facts.file).collect::<Vec<_>>());
        assert_values_add_up(&trial);
        let told = Loss { known: Known { oldest: version + 1, ..loss.known }, ..loss };
        assert_as_told(&mut trial, &histories, &told);
        trial.assert_opens();
        assert_as_told(&mut trial, &histories, &told);
        trial.volume = volume;
    }
}
