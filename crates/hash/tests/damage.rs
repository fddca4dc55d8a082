//! What is damaged is told, and never returned as data; what is no store is refused with a reason.

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Wall};
use stratakv_engine::{Error, Expect};
use stratakv_hash::{Hash, HashOptions, Written};
use stratakv_sim::pmem::{Domain, Pmem, Region};

const NOW: Wall = Wall(1000);
const OPTIONS: HashOptions = HashOptions { uuid: [7; 16], block_bytes: 64, segment_bytes: 4096 };
const REGION_BYTES: usize = 8 * 4096;

fn key(number: u32) -> Key {
    Key::new(CollectionId(0), format!("key {number}").as_bytes()).expect("a key")
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 10 + number as usize * 13 % 200]
}

/// A store with records, some of them updated or deleted before: its image.
fn image() -> Vec<u8> {
    let hash = Hash::create(Region::new(REGION_BYTES), OPTIONS).expect("created");
    for number in (0..60).chain(20..30) {
        hash.put(&key(number), &value(number), (number % 3, Expiry::NEVER), Expect::Any, NOW).expect("a put");
    }
    for number in 50..60 {
        hash.delete(&key(number), Expect::Present, NOW).expect("a delete");
    }
    let mut image = vec![0; REGION_BYTES];
    hash.into_pmem().load(0, &mut image).expect("in bounds");
    image
}

fn open(image: Vec<u8>) -> Result<Hash<Region>, Error> {
    Hash::open(Region::open(image, Domain::Adr), 1)
}

/// Every key is as it was, or an error, or lost with damage that was told; deleted ones stay
/// deleted. Then it takes writes.
fn holds(hash: &Hash<Region>, what: &str) {
    for number in 0..60 {
        let found = match hash.get(&key(number), NOW) {
            Ok(found) => found.map(|record| record.value.to_bytes().to_vec()),
            Err(Error::Corrupt(_)) => continue,
            Err(error) => panic!("{what}: key {number}: {error}"),
        };
        match found {
            Some(found) => assert!(number < 50 && found == value(number), "{what}: key {number} is {found:?}"),
            None => assert!(number >= 50 || hash.report().damaged > 0, "{what}: key {number} is lost and nothing said"),
        }
    }
    let written = hash.put(&key(70), b"new", (0, Expiry::NEVER), Expect::Any, NOW);
    assert!(matches!(written, Ok(Written::Done { .. })), "{what}: {written:?}");
    let found = hash.get(&key(70), NOW).expect("a get").expect("it is there");
    assert_eq!(found.value.to_bytes(), "new", "{what}");
}

#[test]
fn no_turned_bit_is_returned_as_data() {
    let image = image();
    let (mut refused, mut told) = (0, 0);
    for bit in (0..image.len() * 8).step_by(11) {
        let mut turned = image.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        match open(turned) {
            Ok(hash) => {
                told += u64::from(hash.report().damaged > 0);
                holds(&hash, &format!("bit {bit}"));
            }
            Err(Error::WrongVolume(_) | Error::NewerFormat { .. }) => refused += 1,
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
    // One copy of the superblock is enough.
    assert_eq!(refused, 0);
    assert!(told > 3_000, "{told}");
}

#[test]
fn forged_regions_are_refused_or_served() {
    let (image, mut random) = (image(), Random::new(4));
    for round in 0..4_000 {
        let mut forged = image.clone();
        for _ in 0..1 + random.below(12) {
            let (at, len) = (random.below(REGION_BYTES as u64 - 64) as usize, 1 + random.below(64) as usize);
            if random.below(2) == 0 {
                random.fill(&mut forged[at..at + len]);
            } else {
                let from = random.below(REGION_BYTES as u64 - 64) as usize;
                forged.copy_within(from..from + len, at);
            }
        }
        match open(forged) {
            Ok(hash) => {
                for number in 0..60 {
                    let found = hash.get(&key(number), NOW);
                    if let Ok(Some(found)) = found {
                        assert_eq!(found.value.to_bytes(), value(number), "round {round}, key {number}");
                    }
                }
                let _ = hash.put(&key(1), b"new", (0, Expiry::NEVER), Expect::Any, NOW);
                let _ = hash.delete(&key(2), Expect::Any, NOW);
            }
            Err(Error::WrongVolume(_) | Error::NewerFormat { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
}

#[test]
fn what_is_no_store_is_refused_with_a_reason() {
    let says = |image: Vec<u8>, what: &str| match open(image) {
        Err(error) => assert!(error.to_string().contains(what), "{error}"),
        Ok(_) => panic!("it opens, though {what}"),
    };
    says(vec![0; REGION_BYTES], "blank");
    says(vec![9; REGION_BYTES], "no store of engine hash");
    says(image()[..4 * 4096].to_vec(), "cut off");
    says(vec![0; 4096], "too short");
    for (options, len_bytes) in [
        (HashOptions { block_bytes: 48, ..OPTIONS }, REGION_BYTES),
        (HashOptions { segment_bytes: 5000, ..OPTIONS }, REGION_BYTES),
        (OPTIONS, 4 * 4096),
    ] {
        let error = Hash::create(Region::new(len_bytes), options).map(drop).expect_err("no store fits");
        assert!(error.to_string().contains("no store fits a region"), "{error}");
    }
}

/// A line of segment words that the medium gave back as zeros: it was taken for segments that hold
/// nothing, and they were written over.
#[test]
fn zeroed_segment_words_are_damage_and_what_they_led_to_is_there() {
    let mut image = image();
    image[3 * 4096..][..32].fill(0);
    let hash = open(image).expect("opened");
    assert_eq!(hash.report().damaged, 4);
    holds(&hash, "zeroed words");
    assert!((0..50).all(|number| hash.get(&key(number), NOW).is_ok_and(|found| found.is_some())));
}

/// The key of a record rots while the store is open: a put took it for another key, was
/// acknowledged, and no get found it; and what it had laid was lost.
#[test]
fn a_rotten_key_refuses_writes_and_loses_no_space() {
    let hash = Hash::create(Region::new(REGION_BYTES), OPTIONS).expect("created");
    let put = |number: u32| hash.put(&key(number), &[1; 200], (0, Expiry::NEVER), Expect::Any, NOW);
    put(1).expect("a put");
    let free = |hash: &Hash<Region>| hash.report().free_bytes + hash.report().unused_bytes;
    let before = free(&hash);
    let mut image = vec![0; REGION_BYTES];
    hash.pmem().load(0, &mut image).expect("in bounds");
    let at = image.windows(5).position(|bytes| bytes == b"key 1").expect("its key");
    hash.pmem().store(at as u64, b"kez 1").expect("in bounds");
    for _ in 0..200 {
        assert!(matches!(put(1), Err(Error::Corrupt(_))));
        assert!(matches!(hash.delete(&key(1), Expect::Any, NOW), Err(Error::Corrupt(_))));
    }
    assert!(matches!(hash.get(&key(1), NOW), Err(Error::Corrupt(_))));
    assert_eq!(free(&hash), before);
    put(2).expect("a put");
}

#[test]
fn a_full_region_takes_deletes_and_then_writes_again() {
    let hash = Hash::create(Region::new(REGION_BYTES), OPTIONS).expect("created");
    let put = |number: u32| hash.put(&key(number), &[1; 200], (0, Expiry::NEVER), Expect::Any, NOW);
    let count = (0..1000).take_while(|number| put(*number).is_ok()).count() as u32;
    assert_eq!(count, 4 * 4096 / 256);
    assert!(matches!(put(count), Err(Error::Full(_))));
    assert!((0..count).all(|number| hash.get(&key(number), NOW).is_ok_and(|found| found.is_some())));
    for number in (0..count).step_by(2) {
        hash.delete(&key(number), Expect::Present, NOW).expect("a delete");
    }
    for number in (0..count).step_by(2) {
        put(number).unwrap_or_else(|error| panic!("{error}: {:?}", hash.report()));
    }
    // What is freed side by side is room for something longer.
    (0..40).for_each(|number| drop(hash.delete(&key(number), Expect::Present, NOW)));
    let long = hash.put(&key(9000), &[2; 900], (0, Expiry::NEVER), Expect::Any, NOW);
    assert!(matches!(long, Ok(Written::Done { existed: false, .. })), "{long:?}: {:?}", hash.report());
}

#[test]
fn conditions_expiry_and_versions() {
    let pmem = Region::new(REGION_BYTES);
    let hash = Hash::create(pmem, OPTIONS).expect("created");
    let put = |expiry: u64, expect| hash.put(&key(1), b"v", (9, Expiry(expiry)), expect, NOW).expect("no error");
    assert!(matches!(put(0, Expect::Present), Written::Unmet(_)));
    let Written::Done { version: first, existed: false } = put(0, Expect::Absent) else { panic!("it was absent") };
    assert!(matches!(put(0, Expect::Absent), Written::Unmet(_)));
    let Written::Done { version, existed: true } = put(1001, Expect::Version(first)) else { panic!("its version") };
    assert!(version > first && matches!(put(0, Expect::Version(first)), Written::Unmet(_)));
    assert!(hash.get(&key(1), NOW).expect("a get").is_some_and(|record| record.flags == 9));
    assert!(hash.get(&key(1), Wall(1001)).expect("a get").is_none(), "it has expired");
    let deleted = hash.delete(&key(1), Expect::Any, Wall(1001)).expect("a delete");
    assert!(matches!(deleted, Written::Done { existed: false, .. }));
    let Written::Done { version: last, .. } = put(0, Expect::Absent) else { panic!("it was absent") };
    hash.delete(&key(1), Expect::Any, NOW).expect("a delete");
    let mut image = vec![0; REGION_BYTES];
    hash.into_pmem().load(0, &mut image).expect("in bounds");
    let hash = open(image).expect("opened");
    let written = hash.put(&key(1), b"v", (0, Expiry::NEVER), Expect::Absent, NOW).expect("a put");
    assert!(
        matches!(written, Written::Done { version, .. } if version > last),
        "versions grow over deletes: {written:?}"
    );
}

/// Space that cannot be written is given up. It was the next to be taken, again and again: every
/// put failed.
#[test]
fn a_line_that_cannot_be_written_fails_one_put_and_is_lost() {
    let hash = Hash::create(Region::new(REGION_BYTES), OPTIONS).expect("created");
    let put = |number: u32| hash.put(&key(number), &value(number), (0, Expiry::NEVER), Expect::Any, NOW);
    put(1).expect("a put");
    let mut image = vec![0; REGION_BYTES];
    hash.pmem().load(0, &mut image).expect("in bounds");
    // Behind the record, where the next one goes.
    let record = image.windows(5).position(|bytes| bytes == b"key 1").expect("the record");
    hash.pmem().poison((record as u64 / 64 + 1) * 64);
    assert!(matches!(put(2), Err(Error::Pmem(_))));
    assert!(hash.report().lost_bytes > 0);
    for number in 3..12 {
        put(number).expect("there is room elsewhere");
    }
    assert!(hash.get(&key(1), NOW).expect("it is whole").is_some() && hash.get(&key(2), NOW).expect("none").is_none());
}
