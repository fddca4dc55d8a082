//! Regions that grow, cut at every store, flush and fence of the growth and of the opening after
//! it.

use super::*;

/// Of the part that is added: its head twice, a page of words, two segments.
const PART_BYTES: usize = 5 * 4096;
const SEGMENTS: (u64, u64) = (4, 6);

/// A region of a store that has these records, in a file that is longer, and in which something
/// lies beyond.
fn start(before: &[Do]) -> Vec<u8> {
    let region = Region::open(created(), Domain::Adr);
    let hash = Hash::open(&region, 1).expect("opened");
    for (step, what) in before.iter().enumerate() {
        act(&hash, step, what).expect("there is room");
    }
    let mut image = vec![0; REGION_BYTES];
    region.load(0, &mut image).expect("in bounds");
    image.resize(REGION_BYTES + PART_BYTES, 0x5A);
    image
}

fn fill() -> Vec<Do> {
    vec![Do::Put(1, 3900), Do::Put(2, 3900), Do::Put(3, 20), Do::Put(5, 3900)]
}

/// Grows the region and opens it, then writes more than it held before.
fn grown(start: Vec<u8>, before: &[Do], steps: &[Do], domain: Domain) -> Trace {
    let trace = Trace::record(start, domain, |region| {
        Hash::add_part(&region, PART_BYTES as u64, 7).map_err(memory)?;
        region.acknowledge();
        let hash = Hash::open(region, 1).map_err(memory)?;
        for (step, what) in steps.iter().enumerate() {
            act(&hash, before.len() + step, what).map_err(memory)?;
            region.acknowledge();
        }
        Ok(())
    });
    trace.expect("recorded")
}

/// What is left is the region of before, whole, or the longer one; and whatever it is, it can be
/// grown, all of it is there then, and takes what comes next.
fn check_growth(region: &Region, before: &[Do], steps: &[Do], acknowledged: u64) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    let bytes = Hash::region_bytes_of(&region).map_err(said)?;
    let is_grown = bytes == (REGION_BYTES + PART_BYTES) as u64;
    if !is_grown && (acknowledged > 0 || bytes != REGION_BYTES as u64) {
        return Err(format!("it has {bytes} bytes"));
    }
    let hash = Hash::open(region, 1).map_err(said)?;
    let found = contents_in(&hash, if is_grown { SEGMENTS.1 } else { SEGMENTS.0 })?;
    let done = |count: u64| model(&[before, &steps[..(count as usize).min(steps.len())]].concat());
    let writes = acknowledged.saturating_sub(1);
    if found != done(writes) && (acknowledged == 0 || found != done(writes + 1)) {
        return Err(format!("{:?} are there after {acknowledged} steps", found.keys()));
    }
    drop(hash);
    go_on(region, &found, is_grown)
}

/// The same where the first superblock rots after the cut: if the second one is whole, what it
/// names is there.
fn check_rotten(region: &Region, before: &[Do], steps: &[Do], acknowledged: u64) -> Result<(), String> {
    region.store(0, &[0xFF; 64]).and_then(|()| region.persist(0, 64)).map_err(|error| error.to_string())?;
    match Hash::region_bytes_of(&region) {
        // It was being written.
        Err(Error::WrongVolume(_)) => Ok(()),
        _ => check_growth(region, before, steps, acknowledged),
    }
}

/// On a copy: recoveries are cut too, and this is none.
fn go_on(region: &Region, found: &Model, is_grown: bool) -> Result<(), String> {
    let mut image = vec![0; REGION_BYTES + PART_BYTES];
    region.load(0, &mut image).map_err(|error| error.to_string())?;
    let region = &Region::open(image, Domain::Adr);
    if !is_grown {
        Hash::add_part(&region, PART_BYTES as u64, 7).map_err(|error| error.to_string())?;
    }
    let mut expected = found.clone();
    for (step, number) in [(200, 9), (201, 10)] {
        let hash = Hash::open(region, 1).map_err(|error| error.to_string())?;
        let there = contents_in(&hash, SEGMENTS.1)?;
        if there != expected {
            return Err(format!("{:?} are there of {:?} after it was grown", there.keys(), expected.keys()));
        }
        match act(&hash, step, &Do::Put(number, 3900)) {
            Ok(()) => drop(expected.insert(number, value(step, 3900))),
            Err(Error::Full(_)) if found.len() > 4 => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Whole, and with a damaged line in each copy of the superblock.
fn starts(before: &[Do]) -> [(&'static str, Vec<u8>); 3] {
    let (whole, mut first, mut second) = (start(before), start(before), start(before));
    first[..64].fill(0xFF);
    second[4096..][..64].fill(0xFF);
    [("whole", whole), ("first copy damaged", first), ("second copy damaged", second)]
}

#[test]
#[expect(clippy::print_stdout, reason = "how many states it took is what one wants to know")]
fn every_cut_of_a_growth() {
    let (before, steps) = (fill(), [Do::Put(7, 20)]);
    for (name, start) in starts(&before) {
        let trace = grown(start, &before, &steps, Domain::Adr);
        let exhaustive = Exhaustive { order: WordOrder::Program, recoveries: 1, states_max: 300_000 };
        let explored = trace
            .exhaustive(exhaustive, |region, done| check_growth(region, &before, &steps, done))
            .unwrap_or_else(|caught| panic!("{name}: {caught}"));
        println!("{name}: {explored:?}");
        assert!(explored.complete && explored.states > 500, "{name}: {explored:?}");
        let counters = trace.counters();
        assert_eq!((counters.unflushed_lines, counters.unfenced_lines), (0, 0), "{name}: {counters:?}");
    }
}

#[test]
fn every_cut_of_a_growth_leaves_a_second_superblock_that_can_be_relied_upon() {
    let (before, steps) = (fill(), [Do::Put(7, 20)]);
    let trace = grown(start(&before), &before, &steps, Domain::Adr);
    let exhaustive = Exhaustive { order: WordOrder::Program, recoveries: 0, states_max: 300_000 };
    let checked = trace.exhaustive(exhaustive, |region, done| check_rotten(region, &before, &steps, done));
    let explored = checked.unwrap_or_else(|caught| panic!("{caught}"));
    assert!(explored.complete && explored.states > 300, "{explored:?}");
}

#[test]
fn cuts_of_growths_at_random() {
    let (before, steps) = (fill(), [Do::Put(6, 3900), Do::Batch(vec![(7, Some(3000)), (2, None)]), Do::Put(8, 60)]);
    for (seed, (name, start)) in (7..).zip(starts(&before)) {
        for domain in [Domain::Adr, Domain::File] {
            let trace = grown(start.clone(), &before, &steps, domain);
            trace
                .random(seed, 800, |region, done| check_growth(region, &before, &steps, done))
                .unwrap_or_else(|caught| panic!("{name}, {domain:?}: {caught}"));
        }
    }
}

#[test]
fn it_grows_as_often_as_it_can_and_each_part_is_used() {
    let mut image = created();
    let mut puts: u8 = 0;
    for part in 1..64_u64 {
        image.resize(image.len() + PART_BYTES, 0);
        let region = Region::open(image, Domain::Adr);
        Hash::add_part(&&region, PART_BYTES as u64, 7).expect("grown");
        let hash = Hash::open(&region, 2).expect("opened");
        while hash.put(&key(puts), &[puts; 3900], (0, Expiry::NEVER), Expect::Any, NOW).is_ok() {
            puts += 1;
        }
        assert_eq!(u64::from(puts), 4 + 2 * part, "a segment holds one of them");
        for number in 0..puts {
            let record = hash.get(&key(number), NOW).expect("sound").expect("there");
            assert_eq!(record.value.to_bytes(), vec![number; 3900]);
        }
        image = vec![0; region.len_bytes() as usize];
        region.load(0, &mut image).expect("in bounds");
    }
    image.resize(image.len() + PART_BYTES, 0);
    let region = Region::open(image, Domain::Adr);
    let refused = Hash::add_part(&&region, PART_BYTES as u64, 7).expect_err("as often as it can").to_string();
    assert!(refused.contains("grown 63 times") && refused.contains("restore"), "{refused}");
}

#[test]
fn what_is_no_part_is_refused_with_a_reason() {
    let region = Region::open(start(&[]), Domain::Adr);
    let refused = |part_bytes: usize, words: &str| {
        let error = Hash::add_part(&&region, part_bytes as u64, 7).expect_err("refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(PART_BYTES + 4096, "make its file longer first");
    refused(3 * 4096, "has room for one segment of 4096");
    refused(PART_BYTES - 64, "multiple of 4096");
    refused(usize::MAX, "cannot grow");
    Hash::add_part(&&region, PART_BYTES as u64, 7).expect("grown");
    let mut image = vec![0; REGION_BYTES + PART_BYTES];
    region.load(0, &mut image).expect("in bounds");
    let says = |image: Vec<u8>, words: &[&str]| {
        let error = Hash::open(Region::open(image, Domain::Adr), 1).map(drop).expect_err("refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    says(image[..REGION_BYTES].to_vec(), &["cut off"]);
    // A head of another part, both copies; then one copy, and nothing that checks.
    let other = Region::open(image.clone(), Domain::Adr);
    let mut longer = vec![0; REGION_BYTES + 2 * PART_BYTES];
    other.load(0, &mut longer[..REGION_BYTES + PART_BYTES]).expect("in bounds");
    let other = Region::open(longer, Domain::Adr);
    Hash::add_part(&&other, PART_BYTES as u64, 7).expect("grown");
    let mut exchanged = image.clone();
    other.load((REGION_BYTES + PART_BYTES) as u64, &mut exchanged[REGION_BYTES..]).expect("in bounds");
    says(exchanged, &["parts were exchanged", "part 2 of it"]);
    let mut damaged = image.clone();
    for at in [REGION_BYTES, REGION_BYTES + 4096] {
        damaged[at..at + 64].fill(7);
        let region = Region::open(damaged.clone(), Domain::Adr);
        contents_in(&Hash::open(&region, 1).expect("mended"), SEGMENTS.1).expect("sound");
        let mut mended = vec![0; image.len()];
        region.load(0, &mut mended).expect("in bounds");
        assert!(mended[REGION_BYTES..][..60] == image[REGION_BYTES..][..60], "the head is there again");
    }
}

/// With a defect, does the check find it?
#[cfg(feature = "fault_points")]
pub fn is_caught(name: &str) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use stratakv_base::fault_point;

    let (before, steps) = (fill(), [Do::Put(7, 20)]);
    let found = |start: Vec<u8>| {
        fault_point::release(Some(name));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let trace = grown(start, &before, &steps, Domain::Adr);
            let exhaustive = Exhaustive { order: WordOrder::Program, recoveries: 0, states_max: 300_000 };
            trace.exhaustive(exhaustive, |region, done| check_growth(region, &before, &steps, done)).is_err()
                || trace.exhaustive(exhaustive, |region, done| check_rotten(region, &before, &steps, done)).is_err()
        }));
        fault_point::release(None);
        caught.unwrap_or(true)
    };
    let starts = starts(&before);
    starts.into_iter().any(|(_, start)| found(start))
}
