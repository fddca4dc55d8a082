//! What clients ask: a few keys, values that no two writes share.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use stratakv::raw::{Change, ChangeKind, Operation, PageRequest, RecordPart, Reply, Unmet, Update};
use stratakv::{CollectionId, Expect, Expiry, Key, Level};
use stratakv_base::random::Random;

/// Draws operations.
pub(super) struct Requests {
    keys: Vec<Key>,
    /// Versions last heard of.
    versions: BTreeMap<Key, u64>,
    counter: u64,
    /// Percentage of writes at `process_crash` only.
    casual: u64,
    value_bytes_max: u64,
    /// Percentage of batches. They tie their keys together, which makes an order hard to find: then
    /// there are few keys.
    batches: u64,
    /// Batches have checks too.
    checks: bool,
    /// The highest level that there is.
    level: Level,
}

impl Requests {
    pub(super) fn new(random: &mut Random, checks: bool, level: Level) -> Requests {
        let batches = [0, 15, 40, 60][random.below(4) as usize];
        let counts = if batches == 0 { [2, 4, 8, 16] } else { [2, 3, 4, 5] };
        let count = counts[random.below(4) as usize];
        let keys = (0..count).map(|number| Key::bound(CollectionId(0), format!("key-{number:02}").as_bytes()));
        Requests {
            keys: keys.collect(),
            versions: BTreeMap::new(),
            counter: 0,
            casual: [0, 0, 30, 80][random.below(4) as usize],
            value_bytes_max: [40, 300, 2_000, 9_000][random.below(4) as usize],
            batches,
            checks,
            level,
        }
    }

    /// Most operations in doubt at once: more would make an order hard to find.
    pub(super) fn in_doubt_max(&self) -> usize {
        if self.batches == 0 { 5 * self.keys.len() } else { 8 }
    }

    pub(super) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// A read of every key, and a scan of all.
    pub(super) fn everything(&self) -> Vec<Operation> {
        let get = |key: &Key| Operation::Get { key: key.clone(), part: RecordPart::Whole };
        let mut all: Vec<Operation> = self.keys.iter().map(get).collect();
        all.push(page(Bound::Unbounded, Bound::Unbounded, false, 100, 1 << 20, false));
        all
    }

    pub(super) fn draw(&mut self, random: &mut Random) -> Operation {
        match random.below(16) {
            0 => Operation::Sync,
            1 | 2 => {
                let bound = |random: &mut Random, keys: &[Key]| {
                    let key = keys[random.below(keys.len() as u64) as usize].clone();
                    [Bound::Unbounded, Bound::Unbounded, Bound::Included(key.clone()), Bound::Excluded(key)]
                        [random.below(4) as usize]
                        .clone()
                };
                let (from, to) = (bound(random, &self.keys), bound(random, &self.keys));
                let items = 1 + random.below(20) as u32;
                // Pages that end before they have all items: what other shards have beyond must
                // wait.
                let bytes_max = [1 << 20, 1 << 20, 60, 10][random.below(4) as usize];
                page(from, to, random.below(2) == 0, items, bytes_max, random.below(4) == 0)
            }
            _ => self.draw_for_keys(random),
        }
    }

    /// Changes of several keys as one.
    fn batch(&mut self, random: &mut Random) -> Operation {
        let mut keys = self.keys.clone();
        let count = 2 + random.below((keys.len() as u64 - 1).min(3)) as usize;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
            // Conditions rarely, or most batches would be refused.
            let mut expect = if random.below(6) == 0 { self.expect(&key, random) } else { Expect::Any };
            let kind = match random.below(4) {
                0 => ChangeKind::Delete,
                _ if self.checks && random.below(2) == 0 => ChangeKind::Check,
                _ => self.put(random),
            };
            if matches!((&kind, expect), (ChangeKind::Check, Expect::Any)) {
                // One without a condition would say nothing, and most batches of which one rarely
                // holds would be refused.
                expect =
                    [Expect::Present, Expect::Present, Expect::Absent, self.last_heard(&key)][random.below(4) as usize];
            }
            changes.push(Change { key, expect, kind });
        }
        Operation::Write { changes, level: self.level }
    }

    pub(super) fn draw_for_keys(&mut self, random: &mut Random) -> Operation {
        if random.below(100) < self.batches {
            return self.batch(random);
        }
        let key = self.keys[random.below(self.keys.len() as u64) as usize].clone();
        let level = if random.below(100) < self.casual { Level::ProcessCrash } else { self.level };
        let write = |key, expect, kind| Operation::Write { changes: vec![Change { key, expect, kind }], level };
        match random.below(16) {
            0..=5 => {
                let expect = self.expect(&key, random);
                write(key, expect, self.put(random))
            }
            6 | 7 => {
                let expect = self.expect(&key, random);
                write(key, expect, ChangeKind::Delete)
            }
            8..=10 => Operation::Update { key, update: self.update(random), level },
            _ => Operation::Get { key, part: RecordPart::Whole },
        }
    }

    /// Versions told by answers, for conditions to come.
    pub(super) fn learn(&mut self, operation: &Operation, reply: &Reply) {
        let key = match operation {
            Operation::Get { key, .. } | Operation::Update { key, .. } => key,
            Operation::Write { changes, .. } => match (&changes[..], reply) {
                ([change], _) => &change.key,
                (_, Reply::Done { .. }) => {
                    match changes.iter().rfind(|change| !matches!(change.kind, ChangeKind::Check)) {
                        Some(change) => &change.key,
                        None => return,
                    }
                }
                // It is not said which condition did not hold.
                _ => return,
            },
            _ => return,
        };
        let version = match reply {
            Reply::Done { version, .. } | Reply::Number { version, .. } => *version,
            Reply::Record(Some(record)) => record.version,
            Reply::Unmet(Unmet::Present { version } | Unmet::Version { found: version }) => *version,
            _ => return,
        };
        self.versions.insert(key.clone(), version);
    }

    fn expect(&self, key: &Key, random: &mut Random) -> Expect {
        match random.below(8) {
            0 => Expect::Absent,
            1 => Expect::Present,
            2 | 3 => self.last_heard(key),
            _ => Expect::Any,
        }
    }

    fn last_heard(&self, key: &Key) -> Expect {
        self.versions.get(key).map_or(Expect::Any, |version| Expect::Version(*version))
    }

    fn put(&mut self, random: &mut Random) -> ChangeKind {
        self.counter += 1;
        let value = match random.below(5) {
            0 => Bytes::from(format!("{}", self.counter * 1000)),
            _ => {
                let len = random.below(self.value_bytes_max + 1) as usize;
                let unit = format!("<{}>", self.counter);
                // Long enough to be told from every other.
                Bytes::from(unit.bytes().cycle().take(len.max(unit.len())).collect::<Vec<u8>>())
            }
        };
        ChangeKind::Put { value, flags: 0, expiry: Expiry::NEVER }
    }

    fn update(&mut self, random: &mut Random) -> Update {
        self.counter += 1;
        match random.below(4) {
            0 => Update::Append(Bytes::from(format!("+{}", self.counter))),
            1 => Update::Prepend(Bytes::from(format!("{}+", self.counter))),
            2 => Update::Increment(self.counter),
            _ => Update::Decrement(1 + random.below(50)),
        }
    }
}

fn page(from: Bound<Key>, to: Bound<Key>, reverse: bool, items_max: u32, bytes_max: u32, keys_only: bool) -> Operation {
    Operation::Page(PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at: None }.into())
}
