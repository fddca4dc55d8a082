//! The model against a naive one, and small structures with and without a defect.

mod list;
mod log;
mod reference;
mod slots;

use std::time::Instant;

use stratakv_base::random::Random;

use super::*;

const EVERYTHING: Exhaustive = Exhaustive { order: WordOrder::Any, recoveries: 0, states_max: 10_000_000 };

/// A structure, how it is filled, and what is read back.
trait Subject {
    /// Puts the operations' results in order, acknowledging each.
    fn run(&self, region: &Region) -> Result<(), PmemError>;
    /// What the structure holds after the first so many operations.
    fn expected(&self, operations: u64) -> Vec<u64>;
    /// Recovers it.
    fn recover(&self, region: &Region) -> Result<Vec<u64>, String>;

    fn trace(&self) -> Trace {
        Trace::record(vec![0; 1024], Domain::Adr, |region| self.run(region)).expect("the workload fits its region")
    }

    /// The state before or after the operation that was cut: Witcher's output equivalence.
    fn check(&self, region: &Region, acknowledged: u64) -> Result<(), String> {
        let found = self.recover(region)?;
        let (before, after) = (self.expected(acknowledged), self.expected(acknowledged + 1));
        if found == before || found == after { Ok(()) } else { Err(format!("{found:?}, not {before:?} or {after:?}")) }
    }
}

fn subjects() -> Vec<(&'static str, bool, Box<dyn Subject>)> {
    use list::{Defect::*, List};
    use log::{Defect::*, Log};
    use slots::{Defect::*, Slots};
    vec![
        ("log", true, Box::new(Log(None))),
        ("log, non-temporal", true, Box::new(Log(Some(NonTemporal)))),
        ("list", true, Box::new(List(None))),
        ("slots", true, Box::new(Slots(None))),
        ("log: flush missing", false, Box::new(Log(Some(FlushMissing)))),
        ("log: fence missing", false, Box::new(Log(Some(FenceMissing)))),
        ("log: flushed before the store", false, Box::new(Log(Some(FlushBeforeStore)))),
        ("log: checksum not compared", false, Box::new(Log(Some(ChecksumSkipped)))),
        ("log: non-temporal, fence missing", false, Box::new(Log(Some(NonTemporalFenceMissing)))),
        ("list: published before it is durable", false, Box::new(List(Some(PublishedEarly)))),
        ("list: pointer not flushed", false, Box::new(List(Some(PointerNotFlushed)))),
        ("list: back pointer trusted", false, Box::new(List(Some(BackPointerTrusted)))),
        ("slots: 16 bytes assumed atomic", false, Box::new(Slots(Some(WideStore)))),
        ("slots: commit mark stored first", false, Box::new(Slots(Some(MarkFirst)))),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "how many states it took is what one wants to know")]
fn correct_structures_survive_every_state_and_each_defect_is_caught() {
    for (name, correct, subject) in subjects() {
        let trace = subject.trace();
        let mut found = Vec::new();
        for order in [WordOrder::Program, WordOrder::Any] {
            let options = Exhaustive { order, recoveries: u32::from(correct) * 2, states_max: 1_000_000 };
            let start = Instant::now();
            let explored = trace.exhaustive(options, |region, acknowledged| subject.check(region, acknowledged));
            match explored {
                Ok(explored) => {
                    assert!(correct, "{name}: not caught, {explored:?}");
                    assert!(explored.complete, "{name}: {explored:?}");
                    let rate = explored.states as f64 / start.elapsed().as_secs_f64() / 1000.0;
                    println!("{name}, {order:?}: {explored:?}, {rate:.0} K states/s");
                }
                Err(caught) => {
                    assert!(!correct, "{name}: {caught}");
                    found.push(caught.states);
                }
            }
        }
        let seeds = (1..=20).map(|seed| {
            let outcome = trace.random(seed, 2000, |region, acknowledged| subject.check(region, acknowledged));
            assert_eq!(outcome.is_ok(), correct, "{name}, seed {seed}: {outcome:?}");
            outcome.map_or_else(|caught| caught.states, |explored| explored.states)
        });
        let (least, most) = seeds.fold((u64::MAX, 0), |(least, most), states| (least.min(states), most.max(states)));
        if !correct {
            println!("{name}: caught at state {found:?}; at random after {least} to {most} cuts");
        }
    }
}

#[test]
fn a_caught_state_can_be_looked_at_again() {
    let subject = log::Log(Some(log::Defect::FenceMissing));
    let check = |region: &Region, acknowledged| subject.check(region, acknowledged);
    let trace = subject.trace();
    let caught = trace.exhaustive(EVERYTHING, check).expect_err("it is defective");
    let again = check(&Region::open(caught.image.clone(), Domain::Adr), caught.acknowledged);
    assert_eq!(again, Err(caught.why.clone()));
    assert!(caught.to_string().contains("words pending, outcome"), "{caught}");
    let caught = trace.random(3, 2000, check).expect_err("it is defective");
    assert_eq!(trace.random(3, 2000, check), Err(caught.clone()), "a seed draws the same");
    assert_eq!(caught.cuts.len(), 1, "its recovery does not write");
}

#[test]
fn a_cut_inside_a_recovery_is_tried() {
    // A recovery that moves what it finds, and forgets the place before the new one is durable: one
    // cut shows nothing.
    let workload = |region: &Region| {
        region.store_u64(0, 7)?;
        region.persist(0, 8)?;
        region.acknowledge();
        Ok(())
    };
    let recover = |region: &Region, acknowledged| {
        let moved = region.load_u64(64).map_err(|error| error.to_string())?;
        let found = if moved == 0 { region.load_u64(0).map_err(|error| error.to_string())? } else { moved };
        let repair = || {
            region.store_u64(64, found)?;
            region.store_u64(0, 0)?;
            region.flush(0, 128)?;
            region.fence()
        };
        repair().map_err(|error| error.to_string())?;
        if found == 7 || acknowledged == 0 { Ok(()) } else { Err(format!("found {found}")) }
    };
    let trace = Trace::record(vec![0; 128], Domain::Adr, workload).expect("it fits");
    assert!(trace.exhaustive(EVERYTHING, recover).expect("one cut is survived").complete);
    let fine = |region: &Region, _| region.store_u64(64, 1).map_err(|error| error.to_string());
    let explored = trace.exhaustive(Exhaustive { recoveries: 1, ..EVERYTHING }, fine).expect("nothing is checked");
    assert_eq!((explored.states, explored.in_recovery), (9, 6), "three states, and of each what one store can leave");
    let caught = trace.exhaustive(Exhaustive { recoveries: 1, ..EVERYTHING }, recover).expect_err("two are not");
    assert_eq!((caught.cuts.len(), caught.why.as_str()), (2, "found 0"));
    let caught = trace.random(1, 1000, recover).expect_err("two are not");
    assert!(caught.cuts.len() >= 2);
}

#[test]
fn a_check_leaves_nothing_to_the_next_one() {
    let workload = |region: &Region| region.store(0, &[1; 24]);
    let trace = Trace::record(vec![0; 128], Domain::Adr, workload).expect("it fits");
    let check = |region: &Region, _| {
        let untouched = region.load_u64(64) == Ok(0) && region.counters().unflushed_lines == 0;
        let spoil = || {
            region.store_u64(64, 1)?;
            region.store_u64(64, 2)?;
            region.poison(64);
            region.shrink(100);
            Ok(())
        };
        let spoilt = spoil().map_err(|error: PmemError| error.to_string());
        if untouched { spoilt } else { Err("something is left".into()) }
    };
    assert_eq!(trace.exhaustive(EVERYTHING, check).map(|explored| explored.states), Ok(8));
    let not_cut = |region: &Region, acknowledged| match region.load_u64(64) {
        Ok(0) => check(region, acknowledged),
        _ => Ok(()), // a recovery of such a recovery
    };
    trace.random(1, 200, not_cut).expect("nothing is left");
}

#[test]
fn the_bound_stops_a_search_and_says_so() {
    let workload = |region: &Region| (0..16).try_for_each(|line| region.store(line * 64, &[1; 64]));
    let trace = Trace::record(vec![0; 1024], Domain::Adr, workload).expect("it fits");
    let options = Exhaustive { states_max: 5000, ..Exhaustive::default() };
    let explored = trace.exhaustive(options, |_, _| Ok(())).expect("nothing is checked");
    assert_eq!((explored.states, explored.complete, explored.cuts), (5000, false, 17));
    assert_eq!(trace.random(1, 100, |_, _| Ok(())).map(|explored| explored.states), Ok(100));
}

#[test]
fn a_word_is_atomic_and_nothing_larger() {
    let workload = |region: &Region| region.store(4, &[9; 12]);
    let trace = Trace::record(vec![0; 64], Domain::Adr, workload).expect("it fits");
    let mut seen = Vec::new();
    let collect = |region: &Region, _| {
        let mut bytes = [0; 16];
        region.load(0, &mut bytes).map_err(|error| error.to_string())?;
        seen.push(bytes.map(|byte| byte.min(1)));
        Ok(())
    };
    trace.exhaustive(EVERYTHING, collect).expect("nothing is checked");
    let (low, high) = ([0, 0, 0, 0, 1, 1, 1, 1], [1; 8]);
    let join = |low: &[u8], high: &[u8]| [low, high].concat();
    let expected = [join(&[0; 8], &[0; 8]), join(&low, &[0; 8]), join(&[0; 8], &high), join(&low, &high)];
    assert_eq!(seen.iter().map(|bytes| bytes.to_vec()).collect::<Vec<_>>(), expected);
}

#[test]
fn counters_show_what_was_in_vain() {
    let region = Region::new(256);
    let work = || {
        region.store_u64(0, 1)?;
        region.flush(0, 8)?;
        region.flush(0, 8)?; // no store since
        region.flush(128, 100)?; // two clean lines
        region.fence()?;
        region.fence()?; // nothing to wait for
        region.store_nt(64, &[1; 8])?;
        region.flush(64, 8)?; // it went past the cache
        region.fence()?;
        region.store(126, &[1; 4])?; // two lines, one flushed
        region.flush(64, 1)
    };
    work().expect("inside the region");
    let expected = Counters {
        stores: 2,
        stores_nt: 1,
        flushes: 6,
        redundant_flushes: 4,
        fences: 3,
        redundant_fences: 1,
        unflushed_lines: 1,
        unfenced_lines: 1,
    };
    assert_eq!(region.counters(), expected);
}

#[test]
fn a_file_is_flushed_by_pages() {
    for (domain, survives) in [(Domain::Adr, false), (Domain::File, true)] {
        let work = |region: &Region| {
            region.store_u64(0, 1)?;
            region.store_u64(4000, 2)?;
            region.persist(0, 8)?;
            region.acknowledge();
            Ok(())
        };
        let trace = Trace::record(vec![0; 8192], domain, work).expect("it fits");
        let mut lost = 0;
        let check = |region: &Region, acknowledged| {
            lost += u64::from(acknowledged == 1 && region.load_u64(4000) == Ok(0));
            Ok(())
        };
        trace.exhaustive(EVERYTHING, check).expect("nothing is checked");
        assert_eq!(lost == 0, survives, "{domain:?}");
    }
}

#[test]
fn offsets_are_checked_everywhere() {
    let region = Region::new(128);
    for (offset, len) in [(0, 129), (128, 1), (129, 0), (u64::MAX, 1), (u64::MAX - 1, 2), (1 << 63, 8)] {
        let refused = PmemError::OutOfBounds { offset, len_bytes: len as u64, region_bytes: 128 };
        assert_eq!(region.load(offset, &mut vec![0; len]), Err(refused));
        assert_eq!(region.store(offset, &vec![0; len]), Err(refused));
        assert_eq!(region.store_nt(offset, &vec![0; len]), Err(refused));
        assert_eq!(region.flush(offset, len as u64), Err(refused));
    }
    assert_eq!(region.load_u64(4), Err(PmemError::Misaligned { offset: 4 }));
    assert_eq!(region.store_u64(121, 0), Err(PmemError::Misaligned { offset: 121 }));
    assert!(region.load(128, &mut []).is_ok() && region.flush(128, 0).is_ok());
    assert_eq!(region.counters(), Counters::default());
}

#[test]
fn a_poisoned_line_fails_and_its_neighbours_do_not() {
    let region = Region::new(256);
    region.store(0, &[7; 256]).expect("inside");
    region.persist(0, 256).expect("inside");
    region.poison(70);
    let poisoned = Err(PmemError::Poisoned { offset: 64 });
    assert_eq!(region.load_u64(120), poisoned.map(|()| 0));
    assert_eq!(region.load(0, &mut [0; 256]), poisoned);
    assert_eq!(region.store(127, &[1, 1]), poisoned);
    assert_eq!(region.load(60, &mut [0; 8]), poisoned);
    assert!(region.load(0, &mut [0; 64]).is_ok() && region.load(128, &mut [0; 128]).is_ok());
    region.clear_poison(64).expect("inside");
    assert_eq!((region.load_u64(64), region.load_u64(128)), (Ok(0), Ok(0x0707_0707_0707_0707)));
}

#[test]
fn beyond_the_end_of_a_shrunk_file_nothing_is_left() {
    let region = Region::new(256);
    region.shrink(100);
    region.shrink(200);
    assert_eq!(region.len_bytes(), 256, "the mapping stays");
    assert!(region.load(0, &mut [0; 100]).is_ok());
    assert_eq!(region.load(96, &mut [0; 8]), Err(PmemError::Shrunk { offset: 100, file_bytes: 100 }));
    assert_eq!(region.store_u64(192, 1), Err(PmemError::Shrunk { offset: 192, file_bytes: 100 }));
}

#[test]
fn a_live_region_can_be_cut() {
    let region = Region::new(128);
    region.store_u64(0, 1).expect("inside");
    region.persist(0, 8).expect("inside");
    region.store_u64(64, 2).expect("inside");
    let mut random = Random::new(1);
    let cuts: Vec<_> = (0..50).map(|_| region.cut(&mut random)).collect();
    assert!(cuts.iter().all(|image| image[0] == 1));
    assert!([0, 2].iter().all(|byte| cuts.iter().any(|image| image[64] == *byte)));
}
