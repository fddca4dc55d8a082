//! Every bit of a small store turned in turn: it is noticed, or it harms nothing; never is there
//! wrong data.

use std::ops::Range;

use bytes::Bytes;
use stratakv_base::limits::PAGE_BYTES;
use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level};
use stratakv_engine::{Change, ChangeKind, Error, Expect, Operation, RecordPart, Reply};

use crate::disk::{Disk, DiskOptions};
use crate::machine::{Engine, Machine, Opening};

/// Pages of the store.
pub const PAGES: u64 = 64;

/// What became of turned bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    /// Bits turned before the store was opened.
    pub at_rest: u64,
    /// Bits turned while it was open.
    pub in_service: u64,
    /// Of all: opening said so, or repaired it.
    pub told_at_opening: u64,
    /// Of all: a read said so.
    pub told_by_a_read: u64,
    /// Of all: nothing was said, and every key was right.
    pub harmless: u64,
}

impl Flips {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Flips) {
        self.at_rest += other.at_rest;
        self.in_service += other.in_service;
        self.told_at_opening += other.told_at_opening;
        self.told_by_a_read += other.told_by_a_read;
        self.harmless += other.harmless;
    }
}

/// A small store, closed in order, with what its keys hold.
pub struct Sample {
    image: Vec<u8>,
    keys: Vec<(Key, Option<Bytes>)>,
}

fn opening(read_only: bool) -> Opening {
    let capacity_bytes = Some(PAGES * PAGE_BYTES as u64);
    let memory_bytes = 4 << 20;
    Opening {
        create: false,
        volume_bytes: 0,
        capacity_bytes,
        memory_bytes,
        depth: 8,
        checkpoint_bytes: None,
        record_cache: true,
        volatile_cache: true,
        read_only,
    }
}

fn disk() -> Disk {
    Disk::new(DiskOptions { capacity_bytes: PAGES * PAGE_BYTES as u64, volatile_cache: true })
}

impl Sample {
    /// Records of all sizes, some with flags and expiry, some written twice, some deleted, some
    /// grown out of their class.
    ///
    /// # Errors
    /// The engine failed without any fault.
    pub fn make<E: Engine>(engine: &E) -> Result<Sample, String> {
        let mut random = Random::new(11);
        let mut machine = Machine::new(engine, disk(), opening(false));
        machine.open(true, None, &mut random).map_err(|error| error.to_string())?;
        let mut keys = Vec::new();
        let sizes = [0, 1, 9, 30, 31, 60, 90, 130, 200, 333, 500, 700, 900, 1300, 2000, 3500, 5000, 9000, 20_000];
        for (number, size) in sizes.into_iter().cycle().take(34).enumerate() {
            let mut name = format!("key {number}").into_bytes();
            name.resize(name.len() + number % 3 * 20, b'.');
            let Ok(key) = Key::new(CollectionId(0), &name) else { return Err("a key's name".into()) };
            let versions = if number % 5 == 0 { vec![size / 3, size] } else { vec![size] };
            let mut held = None;
            for (version, size) in versions.into_iter().enumerate() {
                let mut value = vec![0; size];
                random.fill(&mut value);
                held = Some(Bytes::from(value));
                let expiry = if number % 4 == 1 { Expiry(2_000_000_000) } else { Expiry::NEVER };
                let kind = ChangeKind::Put { value: held.clone().unwrap_or_default(), flags: version as u32, expiry };
                write(&mut machine, &key, kind, &mut random)?;
            }
            if number % 7 == 6 {
                held = None;
                write(&mut machine, &key, ChangeKind::Delete, &mut random)?;
            }
            keys.push((key, held));
        }
        if !machine.close(&mut random) {
            return Err("does not close".into());
        }
        let mut image = machine.disk.bytes().to_vec();
        image.resize(PAGES as usize * PAGE_BYTES, 0);
        Ok(Sample { image, keys })
    }

    /// Bits of the store.
    pub fn bits(&self) -> u64 {
        self.image.len() as u64 * 8
    }

    /// Turns each of these bits, once at rest and once while the store is open.
    ///
    /// # Errors
    /// A key was lost or wrong, or the store did not open: which bit did it.
    pub fn tick<E: Engine>(&self, engine: &E, bits: impl Iterator<Item = u64>) -> Result<Flips, String> {
        let mut flips = Flips::default();
        let mut reader = Machine::new(engine, disk(), opening(true));
        reader.disk.restore(&self.image);
        let mut writer = Machine::new(engine, disk(), opening(false));
        for bit in bits {
            let superblocks: Range<usize> = 0..2 * PAGE_BYTES;
            let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
            // Opening for writing repairs superblocks, and changes the image.
            let told = if superblocks.contains(&at) {
                writer.disk.restore(&self.image);
                self.tick_one(&mut writer, (at, mask), true)
            } else {
                self.tick_one(&mut reader, (at, mask), true)
            };
            let (opening, read) = told.map_err(|why| format!("bit {bit} (byte {at}) turned at rest: {why}"))?;
            flips.at_rest += 1;
            flips.told_at_opening += u64::from(opening);
            flips.told_by_a_read += u64::from(read && !opening);
            flips.harmless += u64::from(!opening && !read);
            let told = self.tick_one(&mut reader, (at, mask), false);
            let (_, read) = told.map_err(|why| format!("bit {bit} (byte {at}) turned in service: {why}"))?;
            flips.in_service += 1;
            flips.told_by_a_read += u64::from(read);
            flips.harmless += u64::from(!read);
        }
        Ok(flips)
    }

    /// Turns a bit, reads everything, turns it back. Whether opening and reading told.
    fn tick_one<E: Engine>(
        &self,
        machine: &mut Machine<'_, E>,
        (at, mask): (usize, u8),
        at_rest: bool,
    ) -> Result<(bool, bool), String> {
        let mut random = Random::new(at as u64);
        if at_rest {
            machine.disk.flip(at, mask);
        }
        machine.open(false, None, &mut random).map_err(|error| format!("does not open: {error}"))?;
        if !at_rest {
            machine.disk.flip(at, mask);
        }
        let audit = machine.audit();
        let mut told = false;
        for (key, held) in &self.keys {
            match ask(machine, Operation::Get { key: key.clone(), part: RecordPart::Whole }, &mut random)? {
                Reply::Failed(Error::Corrupt(_)) => told = true,
                Reply::Record(record) if record.as_ref().map(|record| record.value.to_bytes()) == *held => {}
                other => {
                    let other: String = format!("{other:?}").chars().take(200).collect();
                    return Err(format!("{key:?}, {:?} bytes, is {other}", held.as_ref().map(Bytes::len)));
                }
            }
        }
        machine.die(false, &mut random);
        machine.disk.flip(at, mask);
        Ok((!audit.damage.is_empty() || audit.repaired, told))
    }
}

fn write<E: Engine>(
    machine: &mut Machine<'_, E>,
    key: &Key,
    kind: ChangeKind,
    random: &mut Random,
) -> Result<(), String> {
    let changes = vec![Change { key: key.clone(), expect: Expect::Any, kind }];
    match ask(machine, Operation::Write { changes, level: Level::PowerLoss }, random)? {
        Reply::Done { .. } => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn ask<E: Engine>(machine: &mut Machine<'_, E>, operation: Operation, random: &mut Random) -> Result<Reply, String> {
    machine.submit(operation).ok_or("takes nothing")?;
    if !machine.tick_until(random, |machine| !machine.replies.is_empty()) {
        return Err("no answer".into());
    }
    machine.replies.pop().map(|(_, reply)| reply).ok_or_else(|| "no answer".into())
}
