//! The workloads: how often which operation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stratakv_base::random::Random;

use crate::distribution::{Chooser, Distribution};

/// A workload of the YCSB core package, or KVell's production mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// 50 % read, 50 % update.
    A,
    /// 95 % read, 5 % update.
    B,
    /// Read only.
    C,
    /// 95 % read, 5 % insert; the latest are read most.
    D,
    /// 95 % scan of 1 to 100 records, 5 % insert.
    E,
    /// 50 % read, 50 % read-modify-write.
    F,
    /// 57 % write, 41 % read, 2 % scan.
    Production,
    /// Writes only, of records that may be there or not: RocksDB's `fillrandom`.
    Fill,
}

impl FromStr for Workload {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "a" => Workload::A,
            "b" => Workload::B,
            "c" => Workload::C,
            "d" => Workload::D,
            "e" => Workload::E,
            "f" => Workload::F,
            "production" => Workload::Production,
            "fill" => Workload::Fill,
            other => return Err(format!("unknown workload `{other}`: use a, b, c, d, e, f, production or fill")),
        })
    }
}

/// Kind of an operation, for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Get.
    Read,
    /// Put of an existing record.
    Update,
    /// Put of a new record.
    Insert,
    /// Ordered scan.
    Scan,
    /// Get, then put of the same record; timed as one.
    ReadModifyWrite,
}

impl Kind {
    /// All, in the order of reports.
    pub const ALL: [Kind; 5] = [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

/// One operation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// What.
    pub kind: Kind,
    /// On which record.
    pub record: u64,
    /// Scans: how many records.
    pub len: u32,
}

impl Workload {
    /// The distribution YCSB names for it; of `fill`, RocksDB.
    pub fn distribution(self) -> Distribution {
        match self {
            Workload::D => Distribution::Latest,
            Workload::Fill => Distribution::Uniform,
            _ => Distribution::Zipfian,
        }
    }

    /// Percent of read, update, insert, scan, read-modify-write.
    fn mix(self) -> [u32; 5] {
        match self {
            Workload::A => [50, 50, 0, 0, 0],
            Workload::B => [95, 5, 0, 0, 0],
            Workload::C => [100, 0, 0, 0, 0],
            Workload::D => [95, 0, 5, 0, 0],
            Workload::E => [0, 0, 5, 95, 0],
            Workload::F => [50, 0, 0, 0, 50],
            Workload::Production => [41, 57, 0, 2, 0],
            Workload::Fill => [0, 100, 0, 0, 0],
        }
    }
}

/// Draws actions; shared by threads, each with its own random numbers.
pub struct Generator {
    mix: [u32; 5],
    chooser: Chooser,
    /// Number of the next record to be inserted.
    next_insert: AtomicU64,
    inserted: Inserted,
    focus: Option<(u32, IsHot)>,
}

/// Which inserts were answered: no record is asked for while it, or an earlier one, is under way.
#[derive(Default)]
struct Inserted {
    /// All records below are there.
    below: AtomicU64,
    /// Answered before one that is lower.
    early: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Inserted {
    fn add(&self, record: u64) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        early.push(Reverse(record));
        let mut below = self.below.load(Ordering::Relaxed);
        while early.peek() == Some(&Reverse(below)) {
            early.pop();
            below += 1;
        }
        self.below.store(below, Ordering::Release);
    }
}

/// Whether a record is one of those that are asked for more often.
pub type IsHot = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// Draws until a hot record is found, at most.
const DRAWS_MAX: u32 = 256;

impl Generator {
    /// For a store loaded with `records`.
    pub fn new(workload: Workload, distribution: Distribution, records: u64) -> Generator {
        Generator {
            mix: workload.mix(),
            chooser: Chooser::new(distribution, records),
            next_insert: records.into(),
            inserted: Inserted { below: records.into(), ..Inserted::default() },
            focus: None,
        }
    }

    /// Of 100 choices, `percent` fall on records that are hot, whatever the share of these is; the
    /// others on the rest.
    #[must_use]
    pub fn with_focus(mut self, percent: u32, is_hot: IsHot) -> Generator {
        self.focus = Some((percent, is_hot));
        self
    }

    /// How many records there are now, inserts in flight included.
    pub fn records(&self) -> u64 {
        self.next_insert.load(Ordering::Relaxed)
    }

    /// The insert of a record was answered: it may be asked for.
    pub fn inserted(&self, record: u64) {
        self.inserted.add(record);
    }

    /// The next action.
    pub fn next(&self, random: &mut Random) -> Action {
        let mut draw = random.below(100) as u32;
        let mut kind = Kind::Read;
        for (candidate, percent) in Kind::ALL.into_iter().zip(self.mix) {
            if draw < percent {
                kind = candidate;
                break;
            }
            draw -= percent;
        }
        let len = if kind == Kind::Scan { 1 + random.below(100) as u32 } else { 0 };
        let record = match kind {
            Kind::Insert => self.next_insert.fetch_add(1, Ordering::Relaxed),
            _ => {
                let known = self.inserted.below.load(Ordering::Acquire);
                self.choose(known.max(1), random)
            }
        };
        Action { kind, record, len }
    }

    fn choose(&self, known: u64, random: &mut Random) -> u64 {
        let Some((percent, is_hot)) = &self.focus else { return self.chooser.next(known, random) };
        let hot = random.below(100) < u64::from(*percent);
        let mut record = self.chooser.next(known, random);
        for _ in 0..DRAWS_MAX {
            if is_hot(record) == hot {
                break;
            }
            record = self.chooser.next(known, random);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_focus_gets_its_share() {
        let generator = Generator::new(Workload::C, Distribution::Zipfian, 1000);
        let generator = generator.with_focus(80, Box::new(|record| record.is_multiple_of(4)));
        let mut random = Random::new(3);
        let hot = (0..10_000).filter(|_| generator.next(&mut random).record.is_multiple_of(4)).count();
        assert!((7_800..8_200).contains(&hot), "{hot} of 10000");
    }

    /// It drew zipfian keys, and said that it was `fillrandom`: most puts were of records that L0
    /// had anyway.
    #[test]
    fn a_fill_was_not_even() {
        assert_eq!(Workload::Fill.distribution(), Distribution::Uniform);
    }

    #[test]
    fn what_is_not_inserted_yet_is_not_asked_for() {
        let generator = Generator::new(Workload::D, Distribution::Latest, 10);
        let mut random = Random::new(5);
        let mut draw = |kind| loop {
            let action = generator.next(&mut random);
            if action.kind == kind {
                return action.record;
            }
        };
        let mut inserts: Vec<u64> = (0..100).map(|_| draw(Kind::Insert)).collect();
        let slow = inserts.remove(3);
        inserts.iter().for_each(|record| generator.inserted(*record));
        assert!((0..1000).all(|_| draw(Kind::Read) < slow));
        generator.inserted(slow);
        assert!((0..1000).any(|_| draw(Kind::Read) > slow));
    }

    #[test]
    fn the_mix_is_what_the_workload_says() {
        for workload in [Workload::A, Workload::B, Workload::D, Workload::E, Workload::F, Workload::Production] {
            assert_eq!(workload.mix().iter().sum::<u32>(), 100);
            let generator = Generator::new(workload, Distribution::Uniform, 1000);
            let mut random = Random::new(9);
            let mut counts = [0u32; 5];
            for _ in 0..20_000 {
                let action = generator.next(&mut random);
                counts[Kind::ALL.iter().position(|kind| *kind == action.kind).unwrap()] += 1;
                assert_eq!(action.kind == Kind::Scan, (1..=100).contains(&action.len));
            }
            for (count, percent) in counts.into_iter().zip(workload.mix()) {
                assert!((f64::from(count) / 200.0 - f64::from(percent)).abs() < 1.5, "{workload:?} {counts:?}");
            }
        }
    }
}
