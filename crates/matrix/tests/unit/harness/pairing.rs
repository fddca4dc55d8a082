//! Regions and volumes that do not belong together: older copies of the one or the other, regions
//! that are gone, and what is left after a cut of what joins them.

use stratakv_engine::Error;

use super::*;
use crate::{Loss, RecoveryReport};

fn small() -> Harness {
    Harness::new(config(), 512 << 10, UNIT_BYTES)
}

impl Harness {
    pub(super) fn region_image(&self) -> Vec<u8> {
        let mut image = vec![0; self.region.len_bytes() as usize];
        self.region.load(0, &mut image).unwrap();
        image
    }

    pub(super) fn put_region(&self, image: &[u8]) {
        self.allow_all();
        self.region.memory.store(0, image).unwrap();
        self.region.memory.persist(0, image.len() as u64).unwrap();
    }

    pub(super) fn allow_all(&self) {
        self.fail_stores_after(i64::MAX);
        self.fail_fences_after(i64::MAX);
    }

    /// The process ends, the power too; another one opens the store, in a session of its own, and
    /// ends after so many writes to the volume.
    pub(super) fn try_open(&mut self, gives_up: bool, read_only: bool, requests: u32) -> Result<bool, Error> {
        self.in_flight.clear();
        self.replies.clear();
        self.region.memory.cut();
        self.effects = Effects::new(Pool::new(self.config.memory_bytes as usize));
        self.config.session += 1;
        let config = MatrixConfig { read_only, ..self.config.clone() };
        let opener = match gives_up {
            true => MatrixOpener::recover_without_region(config, self.region.clone(), UNIT_BYTES),
            false => MatrixOpener::recover(config, self.region.clone()),
        };
        let opened = open_some(opener, &mut self.effects, &mut self.volume, requests)?;
        let is_open = opened.is_some();
        if let Some(shard) = opened {
            self.shard = shard;
        }
        Ok(is_open)
    }

    /// Refused, for writing and for reading only, and nothing was changed by that. What is said.
    pub(super) fn assert_refused(&mut self) -> String {
        let (region, volume) = (self.region_image(), self.volume.clone());
        let mut said = String::new();
        for read_only in [true, false] {
            let error = self.try_open(false, read_only, u32::MAX).expect_err("it is refused");
            assert!(matches!(error, Error::WrongVolume(_)), "{error:?}");
            said = error.to_string();
        }
        assert!(self.region_image() == region && self.volume == volume, "it was written to");
        said
    }

    pub(super) fn assert_opens(&mut self) -> RecoveryReport {
        for read_only in [true, false] {
            assert!(self.try_open(false, read_only, u32::MAX).unwrap());
            self.assert_sound();
        }
        self.shard.recovery().clone()
    }

    pub(super) fn repair(&mut self) -> Option<Loss> {
        assert!(self.try_open(true, false, u32::MAX).unwrap());
        self.assert_sound();
        self.shard.recovery().loss.clone()
    }

    /// Until something was installed.
    fn fill_until_installed(&mut self, from: u64, bytes: usize) -> u64 {
        let installs = self.statistic("installs");
        let mut number = from;
        while self.statistic("installs") == installs {
            self.fill(number..number + 1, bytes);
            number += 1;
            assert!(number < from + 5_000, "nothing comes down");
        }
        number
    }
}

/// It was served, and what was acknowledged since the copy was gone.
#[test]
pub(super) fn a_region_from_before_an_opening_is_refused() {
    let mut harness = small();
    harness.fill(0..20, 100);
    harness.close();
    let older = harness.region_image();
    harness.assert_opens();
    harness.fill(20..40, 100);
    let newer = harness.region_image();
    harness.put_region(&older);
    let said = harness.assert_refused();
    assert!(said.contains("the region is older than its volume"), "{said}");
    assert!(said.contains("Lost: "), "{said}");
    harness.put_region(&newer);
    harness.assert_opens();
    harness.assert_filled(0..40, 100);
}

#[test]
pub(super) fn a_region_from_before_an_orderly_end_is_refused() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let older = harness.region_image();
    harness.fill(20..21, 100);
    harness.close();
    let newer = harness.region_image();
    harness.put_region(&older);
    let said = harness.assert_refused();
    assert!(said.contains("it has changes up to version 20, and the volume knows of 21"), "{said}");
    harness.put_region(&newer);
    harness.assert_opens();
    harness.assert_filled(0..21, 100);
}

#[test]
pub(super) fn a_region_from_before_an_installation_is_refused() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let older = harness.region_image();
    let end = harness.fill_until_installed(20, 400);
    let newer = harness.region_image();
    harness.put_region(&older);
    harness.assert_refused();
    harness.put_region(&newer);
    harness.assert_opens();
    harness.assert_filled(0..20, 100);
    harness.assert_filled(20..end, 400);
}

/// The file that a record of the region points to was not there.
#[test]
pub(super) fn a_volume_from_before_a_long_value_is_refused() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let older = harness.volume.clone();
    let reply = harness.ask(write(vec![put("long", value(1, 60_000))]));
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    let newer = std::mem::replace(&mut harness.volume, older);
    let said = harness.assert_refused();
    assert!(said.contains("the volume is older than its region"), "{said}");
    harness.volume = newer;
    harness.assert_opens();
    assert_eq!(found(&harness.ask(get("long"))).as_deref(), Some(&value(1, 60_000)[..]));
}

#[test]
pub(super) fn a_volume_from_before_an_opening_is_refused() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let older = harness.volume.clone();
    harness.assert_opens();
    let newer = std::mem::replace(&mut harness.volume, older);
    let said = harness.assert_refused();
    assert!(said.contains("the volume is older than its region"), "{said}");
    harness.volume = newer;
    harness.assert_opens();
}

/// Both are as old, and neither is older than the other one has seen it.
#[test]
pub(super) fn copies_that_went_blob_are_not_mixed() {
    let mut harness = small();
    harness.fill(0..20, 100);
    harness.close();
    let (region, volume) = (harness.region_image(), harness.volume.clone());
    harness.try_open(false, false, u32::MAX).unwrap();
    harness.fill(20..30, 100);
    let of_the_first = harness.region_image();
    harness.put_region(&region);
    harness.volume = volume;
    harness.try_open(false, false, u32::MAX).unwrap();
    harness.put_region(&of_the_first);
    let said = harness.assert_refused();
    assert!(said.contains("do not belong together"), "{said}");
}

/// Each store and fence of the region, and each write of the volume, is the last one of an opening.
/// The next one serves all, and what was older before is older.
#[test]
pub(super) fn every_cut_of_an_opening_leaves_a_pair() {
    let mut harness = small();
    harness.fill(0..300, 400);
    harness.close();
    let older = (harness.region_image(), harness.volume.clone());
    harness.assert_opens();
    let start = (harness.region_image(), harness.volume.clone());
    let mut outcomes = [0; 3];
    for cut in 0..40 {
        for (what, outcome) in outcomes.iter_mut().enumerate() {
            harness.put_region(&start.0);
            harness.volume.clone_from(&start.1);
            let requests = if what == 2 { cut } else { u32::MAX };
            match what {
                0 => harness.fail_stores_after(cut.into()),
                1 => harness.fail_fences_after(cut.into()),
                _ => {}
            }
            let is_cut = !matches!(harness.try_open(false, false, requests), Ok(true));
            *outcome += u32::from(is_cut);
            harness.allow_all();
            harness.assert_opens();
            assert_eq!(harness.statistic("records"), 300);
            let now = (harness.region_image(), harness.volume.clone());
            harness.put_region(&older.0);
            harness.assert_refused();
            harness.put_region(&now.0);
            harness.volume.clone_from(&older.1);
            harness.assert_refused();
        }
    }
    assert!(outcomes[0] == 2 && outcomes[1] >= 2 && outcomes[2] == 2, "{outcomes:?}");
    harness.volume.clone_from(&start.1);
    harness.put_region(&start.0);
    harness.assert_opens();
    harness.assert_filled(0..300, 400);
}

/// A tmpfs after a reboot.
#[test]
pub(super) fn a_region_that_is_gone_is_given_up_if_that_is_accepted() {
    let mut harness = small();
    harness.fill(0..1500, 400);
    harness.run_until_idle();
    harness.close();
    let (lost, blank) = (harness.region_image(), vec![0; 512 << 10]);
    let known = harness.shard.installer.superblock().known;
    assert!(known.version == 1500 && known.oldest > 100 && known.oldest <= 1500, "{known:?}");
    harness.put_region(&blank);
    let said = harness.assert_refused();
    assert!(said.contains("blank") && said.contains("was closed in order"), "{said}");
    let volume = harness.volume.clone();
    // Told, and nothing done.
    let image = harness.region_image();
    let (region, memory) = (harness.region.clone(), Memory::new(512 << 10, 9));
    harness.region.memory = memory;
    assert!(harness.try_open(true, true, u32::MAX).unwrap());
    assert!(harness.shard.recovery().loss.is_some() && harness.volume == volume);
    harness.region = region;
    assert_eq!(harness.region_image(), image);

    let loss = harness.repair().expect("it was lost");
    assert_eq!((loss.known, loss.clean, loss.kept_version), (known, true, None));
    assert!(loss.to_string().contains(&format!("Every change up to version {} is there", known.oldest - 1)), "{loss}");
    // Keys were put in the order of their versions.
    harness.assert_filled(0..known.oldest - 1, 400);
    let left = harness.statistic("records");
    assert!(left >= known.version - known.records && left < 1500, "{left} records, {known:?}");
    harness.fill(0..300, 500);
    assert!(harness.shard.container.version() > 1 << 32, "no version is given twice");
    harness.close();
    assert!(harness.assert_opens().loss.is_none());
    harness.assert_filled(0..300, 500);
    harness.assert_filled(300..known.oldest - 1, 400);
    assert_eq!(harness.repair(), None, "there is nothing to repair");
    harness.put_region(&lost);
    let said = harness.assert_refused();
    assert!(said.contains("the region is older"), "{said}");
}

/// Each store, fence and write is the last one of giving up a region: the store opens with what is
/// on the volume, or is refused as before and can be repaired again.
#[test]
pub(super) fn every_cut_of_giving_up_a_region_leaves_what_is_on_the_volume() {
    let mut harness = small();
    harness.fill(0..1500, 400);
    harness.run_until_idle();
    let older = harness.region_image();
    harness.assert_opens();
    let (volume, known) = (harness.volume.clone(), harness.shard.installer.superblock().known);
    let mut outcomes = [(0, 0); 3];
    for start in [vec![0; 512 << 10], older] {
        for cut in 0..40 {
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
                    assert!(said.contains("If it is lost: on the volume are"), "{said}");
                    assert_eq!(harness.repair().map(|loss| loss.known), Some(known));
                }
                harness.assert_sound();
                assert!(harness.statistic("records") >= known.oldest - 1);
                harness.fill(5000..5001, 100);
                harness.assert_opens();
                harness.assert_filled(5000..5001, 100);
            }
        }
    }
    harness.assert_filled(0..known.oldest - 1, 400);
    assert!(outcomes.iter().all(|(cuts, _)| *cuts > 2), "{outcomes:?}");
    assert!(outcomes[0].1 > 3 && outcomes[1].1 > 3, "{outcomes:?}");
}

/// The end of a region is gone, nothing of it came down since: the rest of it is kept.
#[test]
pub(super) fn of_a_region_without_its_end_the_rest_is_kept() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let older = harness.region_image();
    harness.fill(20..25, 100);
    harness.close();
    harness.put_region(&older);
    let said = harness.assert_refused();
    assert!(said.contains("lacks its end"), "{said}");
    let loss = harness.repair().expect("it lost something");
    assert_eq!((loss.kept_version, loss.known.version), (Some(20), 25));
    assert!(loss.to_string().contains("Lost: versions 21 to 25; nothing was written after"), "{loss}");
    harness.assert_filled(0..20, 100);
    harness.fill(30..40, 100);
    harness.close();
    harness.assert_opens();
    harness.assert_filled(30..40, 100);
}

/// A copy from before, and only puts since: all that it has is kept.
#[test]
pub(super) fn of_an_older_region_all_is_kept_if_nothing_came_down_since() {
    let mut harness = small();
    harness.fill(0..20, 100);
    harness.close();
    let older = harness.region_image();
    harness.assert_opens();
    harness.fill(20..25, 100);
    harness.close();
    harness.put_region(&older);
    harness.assert_refused();
    let loss = harness.repair().expect("it lost something");
    assert_eq!((loss.kept_version, loss.known.version), (Some(20), 25));
    harness.assert_filled(0..20, 100);
    harness.fill(30..40, 100);
    // Something came down since: what it has is older than what is below.
    let end = harness.fill_until_installed(40, 400);
    harness.run_until_idle();
    harness.close();
    harness.put_region(&older);
    harness.assert_refused();
    assert_eq!(harness.repair().expect("it is given up").kept_version, None);
    let oldest = harness.statistic("records");
    assert!(oldest < end, "{oldest} of {end}");
    harness.assert_opens();
}

/// Of another store nothing is written over.
#[test]
pub(super) fn another_stores_region_is_not_given_up() {
    let mut harness = small();
    harness.fill(0..20, 100);
    let mut other = Harness::new(MatrixConfig { uuid: *b"yet another one!", ..config() }, 512 << 10, UNIT_BYTES);
    other.fill(0..3, 10);
    for image in [other.region_image(), vec![7; 512 << 10]] {
        harness.put_region(&image);
        harness.assert_refused();
        let error = harness.try_open(true, false, u32::MAX).expect_err("refused");
        assert!(error.to_string().contains("not written over"), "{error}");
        assert!(harness.region_image() == image);
    }
}

/// A store of the format before has no epochs: it is opened, and has them from then on.
#[test]
pub(super) fn a_volume_and_a_region_without_epochs_are_paired_when_they_are_opened() {
    let mut harness = small();
    harness.fill(0..20, 100);
    harness.close();
    // As the format before was.
    for slot in [0, 1] {
        let page = &mut harness.volume[slot * 4096..][..4096];
        page[16] = 1;
        page[76..].fill(0);
        let checksum = stratakv_base::checksum::crc32c(0, &page[..76]);
        page[76..80].copy_from_slice(&checksum.to_le_bytes());
    }
    let mut image = harness.region_image();
    let region = stratakv_sim::pmem::Region::open(image.clone(), stratakv_sim::pmem::Domain::Adr);
    crate::container::forging::forget_epochs(&region, harness.config.uuid, 0);
    region.load(0, &mut image).unwrap();
    harness.put_region(&image);
    harness.assert_opens();
    harness.assert_filled(0..20, 100);
    assert!(harness.shard.installer.superblock().known.epoch.number > 0);
    harness.put_region(&image);
    harness.assert_refused();
}

/// An opening was cut when one superblock had the new epoch; the next could not read that one, and
/// was cut when the region had begun one more: the volume was refused as older than its region,
/// since that knew of two epochs, and the volume had the one between them (simulator, seed
/// 7023443).
#[test]
pub(super) fn an_epoch_begins_when_both_superblocks_have_the_one_before() {
    let mut harness = small();
    harness.fill(0..300, 300);
    harness.run_until_idle();
    harness.close();
    assert!(!harness.try_open(false, false, 1).unwrap(), "cut behind the first superblock");
    let slot = PAGE_BYTES..2 * PAGE_BYTES;
    let newer = harness.volume[slot.clone()].to_vec();
    harness.volume[slot.clone()].fill(0xee);
    assert!(!harness.try_open(false, false, 0).unwrap(), "cut before anything is written");
    harness.volume[slot].copy_from_slice(&newer);
    harness.assert_opens();
    harness.assert_filled(0..300, 300);
}
