//! A call of the region fails, once. A region that fails for good would refuse what follows by
//! itself; here the container alone has to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use stratakv_base::random::Random;
use stratakv_engine::Error;
use stratakv_matrix::container::Container;
use stratakv_sim::pmem::{Domain, Pmem, PmemError, Region};

use crate::cuts::draw;
use crate::world::*;

const FAILED: PmemError = PmemError::SyncFailed { errno: 5 };
const NEVER: u64 = u64::MAX;

/// A region of which one store or fence fails.
#[derive(Clone, Copy)]
struct FailingOnce<'r> {
    region: &'r Region,
    /// How many come before it.
    left: &'r AtomicU64,
    /// Stores and fences so far.
    calls: &'r AtomicU64,
}

impl FailingOnce<'_> {
    fn call(&self) -> Result<(), PmemError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.left.load(Ordering::Relaxed) {
            NEVER => Ok(()),
            left => {
                self.left.store(left.checked_sub(1).unwrap_or(NEVER), Ordering::Relaxed);
                if left == 0 { Err(FAILED) } else { Ok(()) }
            }
        }
    }
}

impl Pmem for FailingOnce<'_> {
    fn len_bytes(&self) -> u64 {
        self.region.len_bytes()
    }
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), PmemError> {
        self.region.load(offset, into)
    }
    fn load_u64(&self, offset: u64) -> Result<u64, PmemError> {
        self.region.load_u64(offset)
    }
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.call()?;
        self.region.store(offset, bytes)
    }
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), PmemError> {
        self.call()?;
        self.region.store_u64(offset, value)
    }
    fn store_nt(&self, offset: u64, bytes: &[u8]) -> Result<(), PmemError> {
        self.call()?;
        self.region.store_nt(offset, bytes)
    }
    fn flush(&self, offset: u64, len_bytes: u64) -> Result<(), PmemError> {
        self.region.flush(offset, len_bytes)
    }
    fn fence(&self) -> Result<(), PmemError> {
        self.call()?;
        self.region.fence()
    }
}

fn name(step: &Do) -> &'static str {
    match step {
        Do::Append(_) => "append",
        Do::Commit => "commit",
        Do::Seal => "seal",
        Do::Flush(_) => "flush",
        Do::HandOver => "hand over",
        Do::Column(..) => "column",
        Do::Reopen => "reopen",
        Do::Epoch => "epoch",
    }
}

/// What a container refuses that has failed: everything that stores.
fn refuses(container: &mut Container<FailingOnce<'_>>, region: &Region, volume: &Volume, what: &str) {
    let calls = container.pmem().calls.load(Ordering::Relaxed);
    let (durable, version) = (container.durable_version(), container.version());
    assert!(container.has_failed(), "{what}: it is not remembered");
    let put = Do::Append(vec![(1, Some(10))]);
    for step in [put, Do::Commit, Do::Seal, Do::Flush(1 << 20), Do::HandOver, Do::Epoch, Do::Commit] {
        let (mut journal, mut volume) = (Journal::of_nothing(), volume.clone());
        let done = journal.act(container, region, &mut volume, &step);
        assert!(matches!(done, Err(Error::Unknown(_))), "{what}: then {}: {done:?}", name(&step));
    }
    assert_eq!(container.pmem().calls.load(Ordering::Relaxed), calls, "{what}: nothing is stored any more");
    assert_eq!((container.durable_version(), container.version()), (durable, version), "{what}");
}

/// Steps until a call fails for good; which one it was, and how many rows were given up before.
fn fail_once(seed: u64) -> (Option<&'static str>, u32) {
    let mut random = Random::new(seed);
    let region = Region::open(blank(24), Domain::Adr);
    let (left, calls) = (AtomicU64::new(NEVER), AtomicU64::new(0));
    let pmem = FailingOnce { region: &region, left: &left, calls: &calls };
    let (mut journal, mut volume) = (Journal::of_nothing(), Volume::default());
    let mut container = open(pmem, &volume).expect("opened");
    let (before, mut given_up) = (random.below(60), 0);
    for step in draw(&mut random, before) {
        journal.act(&mut container, &region, &mut volume, &step).expect("done");
    }
    for step in draw(&mut random, 80).into_iter().filter(|step| !matches!(step, Do::Reopen)) {
        // Appends are the most; a row is made by many calls.
        let calls = match step {
            Do::Append(_) if random.below(8) > 0 => NEVER,
            Do::Flush(_) => random.below(60),
            _ => random.below(6),
        };
        left.store(calls, Ordering::Relaxed);
        let what = format!("seed {seed}, {}", name(&step));
        let durable = container.durable_version();
        match journal.act(&mut container, &region, &mut volume, &step) {
            Ok(_) if calls != NEVER && left.swap(NEVER, Ordering::Relaxed) == NEVER => {
                panic!("{what}: a failure was hidden")
            }
            Ok(_) => continue,
            Err(Error::Pmem(FAILED)) => {}
            Err(other) => panic!("{what}: {other}"),
        }
        assert_eq!(container.durable_version(), durable, "{what}: what failed counts as durable");
        if matches!(step, Do::Flush(_)) && !container.has_failed() {
            // Nothing named the row yet: it is given up, and begun anew.
            given_up += 1;
            continue;
        }
        refuses(&mut container, &region, &volume, &what);
        // It is read as before; of a batch of which a part was stored nobody knows.
        let model = journal.model(container.version());
        let unknown: Vec<u8> = match &step {
            Do::Append(changes) => changes.iter().map(|(number, _)| *number).collect(),
            _ => Vec::new(),
        };
        for number in (0..KEYS).filter(|number| !unknown.contains(number)) {
            let found = look(&container, &volume, &key(number)).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(found.as_ref(), model.get(&key(number)), "{what}");
        }
        drop(container);
        let acknowledged = journal.moments.len() as u64 - 1;
        let left = [image(&region), region.cut(&mut random)];
        for left in left.map(|left| Region::open(left, Domain::Adr)) {
            journal.check_and_go_on(&left, acknowledged).unwrap_or_else(|why| panic!("{what}, opened again: {why}"));
        }
        return (Some(name(&step)), given_up);
    }
    (None, given_up)
}

#[test]
#[expect(clippy::print_stdout, reason = "how often each step failed is what one wants to know")]
fn a_container_takes_no_writes_after_a_failure() {
    let mut failed = BTreeMap::<&str, u32>::new();
    for (step, given_up) in (0..600).map(fail_once) {
        *failed.entry("row given up").or_default() += given_up;
        step.into_iter().for_each(|step| *failed.entry(step).or_default() += 1);
    }
    println!("{failed:?}");
    let kinds = ["append", "column", "commit", "epoch", "flush", "hand over", "row given up"];
    assert!(kinds.iter().all(|kind| failed.get(kind).is_some_and(|count| *count >= 5)), "{failed:?}");
}
