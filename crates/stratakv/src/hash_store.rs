//! [`HashStore`]: the engine `hash` as a store has it, with the level it was opened at, the cap on
//! its memory, and an end.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stratakv_base::{CollectionId, Corruption, Key, Level, Now};
use stratakv_engine::{
    Capabilities, Capability, ChangeKind, Error, Operation, PageRequest, RecordPart, Reply, Shared, Statistic, Update,
};
use stratakv_hash::Hash;
use stratakv_pmem::{Mapping, Pmem};

use crate::events::{StoreEvent, Watcher};
use crate::options::Options;
use crate::region::mark_closed;
use crate::store::{Region, take_away};

/// See the module.
pub(crate) struct HashStore {
    hash: Hash<Mapping>,
    read_only: bool,
    /// What was acknowledged survives a power cut.
    survives_power_loss: bool,
    memory_bytes: u64,
    /// The index has outgrown the cap: looked at by maintenance.
    is_over: AtomicBool,
    mark: Option<PathBuf>,
    watcher: Option<Watcher>,
    told: Told,
}

/// A store that was full has room again when it has taken writes and refused none for so long: near
/// its end it takes short ones, and refuses long ones between them.
const ROOM_AFTER_NS: u64 = 10_000_000_000;

/// What was said already.
#[derive(Default)]
struct Told {
    full: AtomicBool,
    /// Since then: when a write was refused last, and whether one was taken after that.
    refused_at_ns: AtomicU64,
    taken: AtomicBool,
    failed: AtomicBool,
    /// Damage that was met.
    damaged: AtomicU64,
    /// Findings of it that were told.
    findings: AtomicU64,
}

impl HashStore {
    /// `mark` says that the store is open, until an orderly end.
    pub(crate) fn new(hash: Hash<Mapping>, options: &Options, mark: Option<PathBuf>) -> HashStore {
        let findings = hash.damage().len() as u64;
        let told = Told { damaged: hash.report().damaged.into(), findings: findings.into(), ..Told::default() };
        HashStore {
            read_only: options.read_only,
            survives_power_loss: hash.pmem().survives_power_loss(),
            memory_bytes: options.memory_bytes,
            is_over: false.into(),
            watcher: options.listeners.watcher.as_ref().map(Arc::clone),
            hash,
            mark,
            told,
        }
    }

    pub(crate) fn summary(&self) -> Region {
        let mapping = self.hash.pmem();
        let domain = if self.read_only { mapping.medium() } else { mapping.domain() };
        Region {
            path: mapping.path().to_path_buf(),
            paths: mapping.paths().map(Path::to_path_buf).collect(),
            len_bytes: self.hash.region_bytes(),
            domain: domain.to_string(),
            can_survive_power_loss: mapping.medium().survives_power_loss(),
            survives_power_loss: self.survives_power_loss,
        }
    }

    /// Why a write is not even tried.
    fn refusal(&self, operation: &Operation) -> Option<Error> {
        let level = match operation {
            Operation::Update { level, .. } | Operation::Write { level, .. } | Operation::DeleteRange { level, .. } => {
                *level
            }
            _ => return None,
        };
        if self.read_only {
            let why = "the store is open for reading only: open it for writing to change it";
            return Some(Error::WrongVolume(why.into()));
        }
        // Of stores that nobody waits for, a later one may reach the medium before an earlier one:
        // no single write can be promised more than all.
        if level == Level::Memory || level == Level::PowerLoss && !self.survives_power_loss {
            return Some(Error::Unsupported(Capability::Level));
        }
        None
    }

    /// Whether it would make an index grow that has its share of the memory.
    fn is_too_much(&self, operation: &Operation, now: Now) -> bool {
        let is_new = |key: &Key| {
            let get = Operation::Get { key: key.clone(), part: RecordPart::Meta };
            matches!(self.hash.execute(get, now), Reply::Record(None))
        };
        match operation {
            Operation::Write { changes, .. } => {
                let mut puts = changes.iter().filter(|change| matches!(change.kind, ChangeKind::Put { .. }));
                puts.any(|change| is_new(&change.key))
            }
            Operation::Update { key, update: Update::Edit(_), .. } => is_new(key),
            _ => false,
        }
    }

    fn tell(&self, event: &StoreEvent) {
        if let Some(watcher) = &self.watcher {
            watcher(event);
        }
    }

    /// Says that the memory failed, once.
    fn tell_failure(&self) {
        if let Some(error) = self.hash.failure().filter(|_| !self.told.failed.swap(true, Ordering::Relaxed)) {
            tracing::error!(%error, "the store takes no more writes: see to the region's medium, then open it again");
            self.tell(&StoreEvent::Failed { shard: None, why: error.to_string() });
        }
    }

    /// Says what a write's end means for the store, once.
    fn note_end(&self, reply: &Reply, now: Now) {
        let told = &self.told;
        match reply {
            Reply::Failed(Error::Full(_)) => {
                told.refused_at_ns.store(now.mono.0, Ordering::Relaxed);
                told.taken.store(false, Ordering::Relaxed);
                if !told.full.swap(true, Ordering::Relaxed) {
                    self.tell(&StoreEvent::Full { shard: None });
                }
            }
            Reply::Failed(_) => self.tell_failure(),
            Reply::Done { .. } if told.full.load(Ordering::Relaxed) => told.taken.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Says that there is room again.
    fn tell_room(&self, now: Now) {
        let told = &self.told;
        if !told.full.load(Ordering::Relaxed) || !told.taken.load(Ordering::Relaxed) {
            return;
        }
        let refused_at_ns = told.refused_at_ns.load(Ordering::Relaxed);
        if now.mono.0.saturating_sub(refused_at_ns) >= ROOM_AFTER_NS && told.full.swap(false, Ordering::Relaxed) {
            self.tell(&StoreEvent::Room { shard: None });
        }
    }

    /// Says what damage was met since the last look.
    fn tell_damage(&self, damaged: u64) {
        if self.watcher.is_none() || self.told.damaged.swap(damaged, Ordering::Relaxed) == damaged {
            return;
        }
        let found: Vec<Corruption> = self.hash.damage();
        let before = self.told.findings.swap(found.len() as u64, Ordering::Relaxed) as usize;
        for corruption in found.into_iter().skip(before) {
            self.tell(&StoreEvent::Damaged { corruption });
        }
    }
}

/// The store's own records beside its users': names of collections and what belongs to them.
/// O(their number).
pub(crate) fn catalogue_records(hash: &Hash<Mapping>) -> u64 {
    let bound = |CollectionId(number)| Key::bound(CollectionId(number), b"");
    let (mut from, to) = (Bound::Included(bound(CollectionId::NODES)), Bound::Excluded(bound(CollectionId::ENGINE)));
    let mut count = 0;
    loop {
        let page = PageRequest {
            from,
            to: to.clone(),
            reverse: false,
            keys_only: true,
            items_max: 1024,
            bytes_max: 1 << 20,
            at: None,
        };
        let Reply::Page { items, next } = hash.execute(Operation::Page(page.into()), Now::default()) else {
            return count;
        };
        count += items.len() as u64;
        let Some(next) = next else { return count };
        from = next;
    }
}

/// Whether a success shows that there is room: something was laid down.
fn lays(operation: &Operation) -> bool {
    match operation {
        Operation::Write { changes, .. } => changes.iter().any(|c| matches!(c.kind, ChangeKind::Put { .. })),
        Operation::Update { update, .. } => !matches!(update, Update::Touch(_)),
        _ => false,
    }
}

impl Shared for HashStore {
    fn capabilities(&self) -> Capabilities {
        self.hash.capabilities()
    }

    fn execute_begun(&self, operation: Operation, begun_at: Option<u64>, now: Now) -> Reply {
        if let Operation::Get { .. } = operation {
            return self.hash.execute(operation, now);
        }
        if let Some(error) = self.refusal(&operation) {
            return Reply::Failed(error);
        }
        if self.is_over.load(Ordering::Relaxed) && self.is_too_much(&operation, now) {
            return Reply::Failed(Error::MemoryFull { limit_bytes: self.memory_bytes });
        }
        let lays = lays(&operation);
        let reply = self.hash.execute_begun(operation, begun_at, now);
        if lays {
            self.note_end(&reply, now);
        }
        reply
    }

    fn prefetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        Shared::prefetch(&self.hash, keys);
    }

    fn last_version(&self) -> u64 {
        self.hash.last_version()
    }

    fn writes_wait(&self) -> bool {
        self.hash.writes_wait()
    }

    fn processors(&self) -> Vec<Vec<usize>> {
        self.hash.pmem().nodes().iter().map(|node| node.processors.clone()).collect()
    }

    fn maintain(&self, now: Now) -> bool {
        let has_more = !self.read_only && self.hash.maintain(now);
        let report = self.hash.report();
        let is_over = report.dram_bytes() > self.memory_bytes;
        self.is_over.store(is_over, Ordering::Relaxed);
        // Before keys are refused for what snapshots remember.
        if is_over && report.snapshots.index_bytes > 0 && self.hash.end_oldest_snapshot() {
            return true;
        }
        self.tell_failure();
        self.tell_damage(report.damaged);
        self.tell_room(now);
        has_more
    }

    fn statistics(&self, out: &mut Vec<Statistic>) {
        self.hash.statistics(out);
        take_away(out, catalogue_records(&self.hash));
        if !self.read_only {
            let value = u64::from(self.survives_power_loss);
            out.push(Statistic { name: "region_survives_power_loss", value });
        }
    }

    fn failure(&self) -> Option<stratakv_engine::Error> {
        if self.read_only { None } else { self.hash.failure() }
    }

    fn close(&self) {
        self.hash.close();
        self.tell_failure();
        // What failed was no orderly end.
        if let Some(mark) = self.mark.as_ref().filter(|_| !self.hash.has_failed()) {
            mark_closed(mark);
        }
        self.hash.pmem().unlock();
    }
}
