//! A container driven by steps, beside a volume in memory; and what must be there after a cut.

use std::collections::BTreeMap;

use stratakv_base::Expiry;
use stratakv_engine::Error;
use stratakv_matrix::container::{Change, ColumnLimits, Config, Container, Rotation, What};
use stratakv_matrix::cursor::Cursor;
use stratakv_matrix::entry::{Body, Pointer};
use stratakv_matrix::pairing::{Epoch, Known, VolumeState};
use stratakv_sim::pmem::{Domain, Pmem, PmemError, Region, Trace};

pub const UUID: [u8; 16] = *b"a store of tests";
pub const SHARD: u32 = 3;
pub const ROW_BYTES: u64 = 4096;
pub const KEYS: u8 = 16;

/// One step of a workload.
#[derive(Clone, Debug)]
pub enum Do {
    /// Keys with values of so many bytes, or deletes; a length over [`BLOB`] is a value on the
    /// volume.
    Append(Vec<(u8, Option<usize>)>),
    Commit,
    Seal,
    /// One step with this budget.
    Flush(u64),
    HandOver,
    /// The next column, of so many bytes.
    Column(u64, u64),
    /// The process ends and another one opens the region; the power stays.
    Reopen,
    /// An opening for writing: the region begins an epoch, the volume follows, the region knows it.
    Epoch,
}

/// Values this long lie on the volume.
pub const BLOB: usize = 100_000;

/// Version and value; `None`: deleted.
type ModelVersion = (u64, Option<Vec<u8>>);

/// What the volume has, durably.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    pub manifest: u64,
    pub directory: u64,
    pub rotation: Rotation,
    pub known: Known,
    pub entries: BTreeMap<Vec<u8>, ModelVersion>,
}

/// How things stood after a number of acknowledgements.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub durable: u64,
    pub appended: u64,
    pub volume: Volume,
}

/// What a workload did.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// By version: key, value, whether it is the last of its batch.
    pub history: Vec<(Vec<u8>, Option<Vec<u8>>, bool)>,
    /// By acknowledgements.
    pub moments: Vec<Moment>,
}

pub fn config() -> Config {
    Config { uuid: UUID, shard: SHARD, unit_bytes: 4096, row_bytes: ROW_BYTES }
}

/// A region with so many units.
pub fn blank(units: usize) -> Vec<u8> {
    // Superblock, two slots, which are rounded up to a unit each.
    let len_bytes = 4096 * (1 + 2 * 3 + units);
    let region = Region::new(len_bytes);
    Container::create(&region, config()).expect("created");
    image(&region)
}

pub fn image(region: &Region) -> Vec<u8> {
    let mut image = vec![0; region.len_bytes() as usize];
    region.load(0, &mut image).expect("in bounds");
    image
}

/// Some keys differ in their first bytes, some only far behind.
pub fn key(number: u8) -> Vec<u8> {
    let long = if number.is_multiple_of(3) { "" } else { "-of-a-common-beginning" };
    format!("k{}{long}{number:02}", number / 6).into_bytes()
}

pub fn value(version: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (version as usize * 37 + at) as u8).collect()
}

pub fn pointer(version: u64, bytes: usize) -> Pointer {
    Pointer { file: version * 7, offset: version * 4096, value_bytes: bytes as u32, checksum: version as u32 * 9 }
}

/// What a pointer says, as a value.
fn pointed(pointer: Pointer) -> Vec<u8> {
    format!("{pointer:?}").into_bytes()
}

pub fn memory(error: Error) -> PmemError {
    match error {
        Error::Pmem(error) => error,
        other => panic!("{other}"),
    }
}

pub fn open<P: Pmem>(region: P, volume: &Volume) -> Result<Container<P>, String> {
    let text = |error: Error| error.to_string();
    let (mut container, _) = Container::open(region, UUID, SHARD, ROW_BYTES).map_err(text)?;
    let Volume { manifest, directory, rotation, known, .. } = volume;
    let seen = VolumeState { known: *known, manifest: *manifest, directory: *directory, compactor: rotation.compactor };
    container.state().compare(&seen).map_err(|mismatch| mismatch.to_string())?;
    container.replay(&volume.rotation, volume.directory, volume.manifest).map_err(text)?;
    Ok(container)
}

/// Appends a batch; its last version.
pub fn append<P: Pmem>(
    container: &mut Container<P>,
    changes: &[(u8, Option<usize>)],
    retain: &[u64],
    journal: &mut Journal,
) -> Result<(), Error> {
    let next = container.version() + 1;
    let keys: Vec<Vec<u8>> = changes.iter().map(|(number, _)| key(*number)).collect();
    let values: Vec<Option<Vec<u8>>> = (next..)
        .zip(changes)
        .map(|(version, (_, bytes))| bytes.filter(|bytes| *bytes < BLOB).map(|bytes| value(version, bytes)))
        .collect();
    let mut list = Vec::new();
    for (at, (number, bytes)) in changes.iter().enumerate() {
        let what = match (bytes, &values[at]) {
            (None, _) => What::Delete,
            (_, Some(value)) => What::Put(value),
            (Some(bytes), None) => What::Blob(pointer(next + at as u64, *bytes)),
        };
        let (flags, expiry) =
            if bytes.is_some() { (u32::from(*number), Expiry(u64::from(*number) * 3)) } else { (0, Expiry::NEVER) };
        list.push(Change { key: &keys[at], flags, expiry, what });
    }
    let versions = container.append(&list, retain)?;
    assert_eq!(versions, next..=next + changes.len() as u64 - 1);
    journal.history.truncate(next as usize - 1);
    for (at, (_, bytes)) in changes.iter().enumerate() {
        let value = bytes.map(|bytes| values[at].clone().unwrap_or_else(|| pointed(pointer(next + at as u64, bytes))));
        journal.history.push((keys[at].clone(), value, at + 1 == changes.len()));
    }
    Ok(())
}

/// The value of a version as the container has it.
fn contents(body: Body, value: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match body {
        Body::Delete => None,
        Body::Blob(pointer) => Some(pointed(pointer)),
        Body::Here { .. } => {
            value(&mut bytes);
            Some(bytes)
        }
    }
}

/// Merges a column into the volume, as its tables would.
pub fn install<P: Pmem>(
    container: &Container<P>,
    (low, high): (u64, u64),
    volume: &Volume,
) -> Option<(stratakv_matrix::container::Column, Volume)> {
    let bounds: Vec<Vec<u8>> = volume.entries.keys().step_by(3).cloned().collect();
    let limits = ColumnLimits { low_bytes: low, high_bytes: high };
    let column = container.column(&bounds, limits).expect("a column")?;
    let mut after = volume.clone();
    let mut parts = container.column_parts(&column).expect("parts");
    for mut cursor in container.part_cursors(&mut parts, b"").expect("cursors").into_iter().rev() {
        while let (Some(key), Some(meta)) = (cursor.key(), cursor.meta()) {
            assert!(
                key >= &column.from[..] && column.end.as_ref().is_none_or(|end| key < &end[..]),
                "{key:?} in {column:?}"
            );
            let value = contents(meta.body, |into| cursor.value(into).expect("a value"));
            let older = after.entries.entry(key.to_vec()).or_default();
            if older.0 < meta.version {
                *older = (meta.version, value);
            }
            cursor.next().expect("a step");
        }
    }
    after.manifest += 1;
    (after.rotation, after.directory) = (column.after.clone(), container.directory());
    Some((column, after))
}

impl Journal {
    /// Of a container that was just made.
    pub fn of_nothing() -> Journal {
        Journal { history: Vec::new(), moments: vec![Moment::default()] }
    }

    pub fn acknowledge<P: Pmem>(&mut self, container: &Container<P>, region: &Region, volume: &Volume) {
        region.acknowledge();
        self.note(container, volume);
    }

    pub fn note<P: Pmem>(&mut self, container: &Container<P>, volume: &Volume) {
        let (durable, appended) = (container.durable_version(), container.version());
        self.moments.push(Moment { durable, appended, volume: volume.clone() });
    }

    /// Does a step; whether there was room.
    pub fn act<P: Pmem + Clone>(
        &mut self,
        container: &mut Container<P>,
        region: &Region,
        volume: &mut Volume,
        step: &Do,
    ) -> Result<bool, Error> {
        let done = match step {
            Do::Append(changes) => append(container, changes, &[], self),
            Do::Commit => container.commit().map(drop),
            Do::Seal => container.seal(&[]).map(drop),
            Do::Flush(budget) => container.flush_step(*budget).map(drop),
            Do::HandOver => container.hand_over().map(drop),
            Do::Reopen => {
                let version = container.version();
                *container = open(container.pmem().clone(), volume).expect("opened again");
                assert_eq!(container.version(), version);
                Ok(())
            }
            Do::Epoch => {
                let epoch = Epoch { number: container.state().epoch.number + 1, session: 9 };
                container.begin_epoch(epoch, volume.known.epoch)?;
                self.acknowledge(container, region, volume);
                volume.known = container.known();
                self.acknowledge(container, region, volume);
                container.complete_epoch()
            }
            Do::Column(low, high) => match install(container, (*low, *high), volume) {
                Some((column, after)) => {
                    *volume = after;
                    self.acknowledge(container, region, volume);
                    container.release(&column, volume.manifest)
                }
                None => Ok(()),
            },
        };
        match done {
            Err(Error::Full(_)) => return Ok(false),
            other => other?,
        }
        self.acknowledge(container, region, volume);
        Ok(true)
    }

    /// The newest value of each key, up to a version.
    pub fn model(&self, version: u64) -> BTreeMap<Vec<u8>, ModelVersion> {
        let mut model = BTreeMap::new();
        for (at, (key, value, _)) in (1..=version).zip(&self.history) {
            model.insert(key.clone(), (at, value.clone()));
        }
        model
    }
}

/// Runs steps before it is recorded, then others; and whether there was room for all of them.
pub fn record(start: Vec<u8>, before: &[Do], steps: &[Do], domain: Domain) -> (Trace, Journal, bool) {
    let region = Region::open(start, Domain::Adr);
    let (mut journal, mut volume) = (Journal::default(), Volume::default());
    let mut container = open(&region, &volume).expect("opened");
    let mut had_room = true;
    for step in before {
        had_room &= journal.act(&mut container, &region, &mut volume, step).expect("done");
    }
    container.commit().expect("committed");
    drop(container);
    journal.moments.clear();
    let trace = Trace::record(image(&region), domain, |region| {
        let mut container = open(region, &volume).expect("opened again");
        journal.note(&container, &volume);
        for step in steps {
            had_room &= journal.act(&mut container, region, &mut volume, step).map_err(memory)?;
        }
        Ok(())
    });
    (trace.expect("recorded"), journal, had_room)
}

/// What a key is, in the container and below.
pub fn look<P: Pmem>(container: &Container<P>, volume: &Volume, key: &[u8]) -> Result<Option<ModelVersion>, String> {
    let newest = container.version();
    let (hinted, full) = (container.get(key, newest), container.get_without_hints(key, newest));
    let (hinted, full) = (hinted.map_err(|stop| stop.to_string())?, full.map_err(|stop| stop.to_string())?);
    let versions = (hinted.as_ref().map(|found| found.meta.version), full.map(|found| found.meta.version));
    if versions.0 != versions.1 {
        return Err(format!("{}: by hints and in full: {versions:?}", key.escape_ascii()));
    }
    let Some(found) = hinted else { return Ok(volume.entries.get(key).cloned()) };
    let mut failed = None;
    let value = contents(found.meta.body, |into| failed = container.value(&found, into).err());
    failed.map_or(Ok(Some((found.meta.version, value))), |stop| Err(stop.to_string()))
}

/// All that is in a container and below, through cursors.
pub fn walk<P: Pmem>(container: &Container<P>, volume: &Volume) -> Result<BTreeMap<Vec<u8>, ModelVersion>, String> {
    let mut all = volume.entries.clone();
    for mut cursor in container.cursors() {
        cursor.seek(b"").map_err(|stop| stop.to_string())?;
        let mut last = None;
        while let (Some(key), Some(meta)) = (cursor.key(), cursor.meta()) {
            let here = (key.to_vec(), std::cmp::Reverse(meta.version));
            if last.as_ref().is_some_and(|last| *last >= here) {
                return Err(format!("{:?} after {last:?}", here.0.escape_ascii()));
            }
            let mut failed = None;
            let value = contents(meta.body, |into| failed = cursor.value(into).err());
            failed.map_or(Ok(()), |stop| Err(stop.to_string()))?;
            let older = all.entry(here.0.clone()).or_default();
            if older.0 < meta.version {
                *older = (meta.version, value);
            }
            last = Some(here);
            cursor.next().map_err(|stop| stop.to_string())?;
        }
    }
    Ok(all)
}

impl Journal {
    /// Opens what a cut left after so many acknowledgements: all that was durable is there, in
    /// order, in whole batches; nothing else is.
    pub fn check(&self, region: &Region, acknowledged: u64) -> Result<(), String> {
        let last = self.moments.len() - 1;
        let now = &self.moments[(acknowledged as usize).min(last)];
        let next = &self.moments[(acknowledged as usize + 1).min(last)];
        let container = open(region, &now.volume)?;
        let version = container.version();
        if version < now.durable || version > next.appended {
            return Err(format!("version {version} after {acknowledged}: {} was durable", now.durable));
        }
        if version > 0 && !self.history[version as usize - 1].2 {
            return Err(format!("version {version} is in the middle of a batch"));
        }
        container.check().map_err(|fault| fault.to_string())?;
        let model = self.model(version);
        for number in 0..KEYS {
            let key = key(number);
            let found = look(&container, &now.volume, &key)?;
            if found.as_ref() != model.get(&key) {
                let short = |entry: Option<&ModelVersion>| {
                    entry.map(|(version, value)| (*version, value.as_ref().map(Vec::len)))
                };
                let (found, expected) = (short(found.as_ref()), short(model.get(&key)));
                return Err(format!("{} at {version} is {found:?}, not {expected:?}", key.escape_ascii()));
            }
        }
        if walk(&container, &now.volume)? != model {
            return Err(format!("cursors find something else at version {version}"));
        }
        Ok(())
    }

    /// The same; then goes on with a copy: what was void stays so whatever is written over it.
    pub fn check_and_go_on(&self, region: &Region, acknowledged: u64) -> Result<(), String> {
        self.check(region, acknowledged)?;
        let region = Region::open(image(region), Domain::Adr);
        let mut volume = self.moments[(acknowledged as usize).min(self.moments.len() - 1)].volume.clone();
        let mut journal = self.clone();
        for round in 0..3 {
            let mut container = open(&region, &volume)?;
            journal.history.truncate(container.version() as usize);
            journal.moments.clear();
            for step in going_on(round) {
                let done = journal.act(&mut container, &region, &mut volume, &step);
                done.map_err(|error| format!("{step:?} afterwards: {error}"))?;
            }
            journal.moments.clear();
            journal.note(&container, &volume);
            drop(container);
            journal.check(&region, 0).map_err(|why| format!("after round {round} of more: {why}"))?;
        }
        Ok(())
    }
}

/// What is done after a cut.
fn going_on(round: u8) -> Vec<Do> {
    // As long as those that a cut may have lost: what survived of them follows these.
    let put = Do::Append(vec![(3 * round, Some(30))]);
    let batch = Do::Append(vec![(round, Some(30)), (14, Some(200)), (15, None)]);
    let all = 1 << 20;
    match round {
        0 => vec![put, Do::Commit],
        1 => vec![batch, Do::Commit, Do::Seal, Do::Flush(all), put, Do::Flush(all), Do::Commit, Do::HandOver],
        _ => [
            vec![Do::Column(1000, 3000), batch, Do::Commit],
            vec![Do::Column(all, all); 2],
            vec![Do::Seal, Do::Flush(all)],
        ]
        .concat(),
    }
}
