//! What deleted neighbours cost: scans past keys that were deleted one by one, a list as a queue,
//! and collections that were dropped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stratakv::{Collection, Engine, Error, Level, Options, Placement, ScanOptions, Store, WriteBatch};

/// Keys that are still there.
const LIVING: usize = 100;
/// Records of a batch while keys are stored.
const BATCH: usize = 500;
const MEMORY_BYTES: u64 = 256 << 20;
const REGION_BYTES: u64 = 256 << 20;
/// Of a queue: what is popped first and last of it is compared.
const PART: usize = 10;
/// A scan that knows what is dead visits hardly more than it returns; a queue visits some more
/// before it knows.
const VISITS_PER_RECORD_MAX: f64 = 40.0;

/// An engine that keeps collections in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Engine `slab`, placement `in_place`.
    InPlace,
    /// Engine `slab`, placement `packed`.
    Packed,
    /// Engine `matrix`.
    Matrix,
    /// Engine `hash`.
    Hash,
}

impl Subject {
    /// All of them.
    pub const ALL: [Subject; 4] = [Subject::InPlace, Subject::Packed, Subject::Matrix, Subject::Hash];

    /// Its name on command lines and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Subject::InPlace => "in_place",
            Subject::Packed => "packed",
            Subject::Matrix => "matrix",
            Subject::Hash => "hash",
        }
    }

    fn open(self, path: &Path) -> Result<Store, Error> {
        let options = Options::new().memory_bytes(MEMORY_BYTES).level(Level::ProcessCrash);
        let options = match self {
            Subject::InPlace => options.placement(Placement::InPlace).shards(2),
            Subject::Packed => options.placement(Placement::Packed).shards(2),
            Subject::Matrix => options.engine(Engine::Matrix).region_bytes(REGION_BYTES / 4).shards(2),
            Subject::Hash => options.engine(Engine::Hash).region_bytes(REGION_BYTES),
        };
        options.open(path)
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Engines.
    pub subjects: Vec<Subject>,
    /// Keys that are deleted one by one.
    pub deleted: usize,
    /// Elements of the queue.
    pub queue: usize,
    /// Collections that are made and dropped.
    pub dropped: usize,
    /// Where the stores lie; what is made there is removed.
    pub place: PathBuf,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            subjects: Subject::ALL.to_vec(),
            deleted: 200_000,
            queue: 20_000,
            dropped: 8000,
            place: "./stratakv-walks".into(),
        }
    }
}

impl Plan {
    /// A tenth of everything.
    pub fn shorten(&mut self) {
        (self.deleted, self.queue, self.dropped) = (self.deleted / 10, self.queue / 10, self.dropped / 10);
    }
}

/// A scan: how long it took, and records visited for each that was returned, if the engine counts
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Scanned {
    /// The time.
    pub took: Duration,
    /// The visits.
    pub visits_per_record: Option<f64>,
}

/// What was measured of one engine.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which one.
    pub subject: Subject,
    /// Of one delete, in the mean.
    pub delete: Duration,
    /// Of the living prefix beside the dead one: upwards and downwards, first and second time.
    pub beside: [Scanned; 4],
    /// Of everything, dead keys included: first and second time.
    pub all: [Scanned; 2],
    /// One pop: of the first tenth of the queue, and of the last one.
    pub pops: [Duration; 2],
    /// Visits of one pop.
    pub pop_visits: Option<f64>,
    /// One collection, made, written to and dropped.
    pub drop: Duration,
    /// Reopening before any was, and after.
    pub reopened: [Duration; 2],
}

impl Measured {
    /// Whether the visits, where they are counted, stay within their bound. The first scan of
    /// everything passes all that is dead.
    pub fn holds(&self) -> bool {
        let scans = self.beside.iter().chain(self.all.get(1)).map(|scan| scan.visits_per_record);
        scans.chain([self.pop_visits]).flatten().all(|visits| visits <= VISITS_PER_RECORD_MAX)
    }
}

/// Runs the plan; `note` is called with each measurement.
///
/// # Errors
/// An engine refused something, or did not find what is there.
pub fn run(plan: &Plan, note: &mut dyn FnMut(&Measured)) -> Result<Vec<Measured>, String> {
    let mut all = Vec::new();
    for subject in &plan.subjects {
        let place = plan.place.join(format!("{}-{}", subject.name(), std::process::id()));
        let outcome = measure(plan, *subject, &place);
        // If it was made.
        let removed = std::fs::remove_dir_all(&place);
        let measured = outcome.map_err(|why| format!("{}: {why}", subject.name()))?;
        removed.map_err(|error| format!("cannot remove {}: {error}", place.display()))?;
        note(&measured);
        all.push(measured);
    }
    Ok(all)
}

fn measure(plan: &Plan, subject: Subject, place: &Path) -> Result<Measured, String> {
    std::fs::create_dir_all(place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    let path = place.join("store");
    let inner = || -> Result<Measured, Error> {
        let store = subject.open(&path)?;
        let (delete, beside, all) = scans(plan, &store)?;
        let (pops, pop_visits) = queue(plan, &store)?;
        store.close()?;
        let before = reopen(subject, &path)?;
        let store = subject.open(&path)?;
        let began = Instant::now();
        for number in 0..plan.dropped {
            let name = format!("dropped{number}");
            store.collection(&name)?.put(b"key", b"value")?;
            store.drop_collection(&name)?;
        }
        let drop = began.elapsed() / plan.dropped.max(1) as u32;
        store.close()?;
        let reopened = [before, reopen(subject, &path)?];
        Ok(Measured { subject, delete, beside, all, pops, pop_visits, drop, reopened })
    };
    let measured = inner().map_err(|error| error.to_string())?;
    Ok(measured)
}

fn reopen(subject: Subject, path: &Path) -> Result<Duration, Error> {
    let began = Instant::now();
    let store = subject.open(path)?;
    let took = began.elapsed();
    store.close()?;
    Ok(took)
}

/// Records that walks have visited, if the engine counts them.
fn visited(store: &Store) -> Option<u64> {
    store.stats().iter().find(|statistic| statistic.name == "records_visited").map(|statistic| statistic.value)
}

fn per(store: &Store, before: Option<u64>, records: usize) -> Option<f64> {
    Some((visited(store)? - before?) as f64 / records.max(1) as f64)
}

fn scan(store: &Store, keys: &Collection, options: ScanOptions, expected: usize) -> Result<Scanned, Error> {
    let (before, began) = (visited(store), Instant::now());
    let found = keys.scan(options).collect::<Result<Vec<_>, _>>()?.len();
    let took = began.elapsed();
    assert_eq!(found, expected, "a scan found other records than are there");
    Ok(Scanned { took, visits_per_record: per(store, before, found) })
}

type Scans = (Duration, [Scanned; 4], [Scanned; 2]);

/// `a…` are there, `b…` were.
fn scans(plan: &Plan, store: &Store) -> Result<Scans, Error> {
    let keys = store.collection("walked")?;
    let names = (0..LIVING).map(|number| format!("a{number:06}"));
    let all: Vec<String> = names.chain((0..plan.deleted).map(|number| format!("b{number:06}"))).collect();
    for some in all.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        some.iter().for_each(|name| _ = batch.put_in(&keys, name.as_bytes(), b"a value of some length"));
        store.write(batch)?;
    }
    let began = Instant::now();
    for name in &all[LIVING..] {
        keys.delete(name.as_bytes())?;
    }
    let delete = began.elapsed() / plan.deleted.max(1) as u32;
    let prefix = || ScanOptions::prefix(b"a");
    let beside = [
        scan(store, &keys, prefix(), LIVING)?,
        scan(store, &keys, prefix().reverse(), LIVING)?,
        scan(store, &keys, prefix(), LIVING)?,
        scan(store, &keys, prefix().reverse(), LIVING)?,
    ];
    let all = [scan(store, &keys, ScanOptions::all(), LIVING)?, scan(store, &keys, ScanOptions::all(), LIVING)?];
    Ok((delete, beside, all))
}

fn queue(plan: &Plan, store: &Store) -> Result<([Duration; 2], Option<f64>), Error> {
    let list = store.list("queue")?;
    let values: Vec<String> = (0..plan.queue).map(|number| format!("element {number}")).collect();
    for some in values.chunks(BATCH) {
        list.push_all(stratakv::End::Back, some)?;
    }
    let (part, before) = ((plan.queue / PART).max(1), visited(store));
    let mut marks = vec![Instant::now()];
    for (number, value) in values.iter().enumerate() {
        let popped = list.pop_front()?;
        assert_eq!(popped.as_deref(), Some(value.as_bytes()), "the queue is not in order");
        if (number + 1) % part == 0 {
            marks.push(Instant::now());
        }
    }
    let tenth = |from: usize| marks.get(from + 1).map_or(Duration::ZERO, |end| (*end - marks[from]) / part as u32);
    Ok(([tenth(0), tenth(marks.len().saturating_sub(2))], per(store, before, plan.queue)))
}

/// All of it as Markdown.
pub fn markdown(plan: &Plan, all: &[Measured]) -> String {
    let us = |took: Duration| format!("{:.0}", took.as_secs_f64() * 1e6);
    let visits = |visits: Option<f64>| visits.map_or("-".to_owned(), |visits| format!("{visits:.1}"));
    let one = |scan: &Scanned| format!("{} ({})", us(scan.took), visits(scan.visits_per_record));
    let mut text = format!(
        "{} keys `b…` deleted one by one, {LIVING} keys `a…` left; a list with {} elements as a queue; {} collections made, \
         written to and dropped. Times in µs; in brackets records visited for each that was returned, where the engine \
         counts them.\n\n\
         | engine | delete | scan `a`, up, down | again | scan of all, again | pop, first tenth, last | visits | drop | open \
         before, after: ms |\n|---|---|---|---|---|---|---|---|---|\n",
        plan.deleted, plan.queue, plan.dropped
    );
    for measured in all {
        let [up, down, up_again, down_again] = &measured.beside;
        let _ = writeln!(
            text,
            "| {} | {} | {}, {} | {}, {} | {}, {} | {}, {} | {} | {} | {:.1}, {:.1} |",
            measured.subject.name(),
            us(measured.delete),
            one(up),
            one(down),
            one(up_again),
            one(down_again),
            one(&measured.all[0]),
            one(&measured.all[1]),
            us(measured.pops[0]),
            us(measured.pops[1]),
            visits(measured.pop_visits),
            us(measured.drop),
            measured.reopened[0].as_secs_f64() * 1e3,
            measured.reopened[1].as_secs_f64() * 1e3
        );
    }
    text
}
