//! What the engine promises besides the contract: caps, what costs I/O, how it degrades, what a
//! restart finds.

use std::ops::Bound;

use stratakv_base::random::Random;
use stratakv_base::{CollectionId, Expiry, Key, Level, Mono, Now, Wall};
use stratakv_conformance::{Disk, Ending};
use stratakv_device::{DiskOutcome, DiskRequest, IoFault, Pool};
use stratakv_engine::{
    Change, ChangeKind, Effects, Error, Expect, Io, Opener, Operation, RecordPart, Reply, Shard, Token, Update,
};
use stratakv_tier::{RecoveryReport, Start, Tier, TierConfig, TierOpener};
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[path = "basic/collect.rs"]
mod collect;
#[path = "basic/conditions.rs"]
mod conditions;
#[path = "basic/emptied.rs"]
mod emptied;
#[path = "basic/lap.rs"]
mod lap;
#[path = "basic/listing.rs"]
mod listing;
#[path = "basic/losses.rs"]
mod losses;
#[path = "basic/no_memory.rs"]
mod no_memory;
#[path = "basic/overwrite.rs"]
mod overwrite;
#[path = "basic/resize.rs"]
mod resize;
#[path = "basic/saving.rs"]
mod saving;
#[path = "basic/slices.rs"]
mod slices;
#[path = "basic/verify.rs"]
mod verify;
#[path = "basic/waiting.rs"]
mod waiting;

const CAPACITY_BYTES: u64 = 32 << 20;

/// A shard, its disk, and the faults that it meets.
struct Driver {
    config: TierConfig,
    shard: Option<Tier>,
    effects: Effects,
    disk: Disk,
    now: Now,
    next: u32,
    fails: fn(&DiskRequest) -> bool,
    /// Requests that stay under way, until an end loses them.
    stays_under_way: fn(&DiskRequest) -> bool,
    under_way: Vec<(Io, DiskRequest)>,
    /// Requests so far.
    reads: Vec<u32>,
    writes: u64,
    write_end: u64,
}

fn config() -> TierConfig {
    TierConfig {
        uuid: [3; 16],
        shard: 0,
        shards: 1,
        memory_bytes: 8 << 20,
        depth: 16,
        capacity_bytes: Some(CAPACITY_BYTES),
        segment_bytes: 128 << 10,
        collected_percent: 66,
        saves_at_shutdown: false,
        boot: Some([1; 16]),
        begins_empty: false,
        read_only: false,
    }
}

fn key(number: usize) -> Key {
    Key::bound(CollectionId(0), format!("key {number}").as_bytes())
}

fn value(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(number as u64).fill(&mut bytes);
    bytes
}

fn put_of(number: usize, len: usize, expiry: Expiry) -> Operation {
    let kind = ChangeKind::Put { value: value(number, len).into(), flags: 0, expiry };
    let changes = vec![Change { key: key(number), expect: Expect::Any, kind }];
    Operation::Write { changes, level: Level::Memory }
}

impl Driver {
    fn new(config: TierConfig) -> Driver {
        let now = Now { mono: Mono(1), wall: Wall(1_000_000) };
        let effects = Effects::new(Pool::new(config.memory_bytes as usize));
        let disk = Disk::new(config.capacity_bytes.unwrap_or(if config.saves_at_shutdown {
            4 * config.memory_bytes
        } else {
            8192
        }));
        let mut driver = Driver {
            shard: None,
            effects,
            disk,
            now,
            next: 0,
            fails: |_| false,
            stays_under_way: |_| false,
            under_way: Vec::new(),
            reads: Vec::new(),
            writes: 0,
            write_end: 0,
            config,
        };
        driver.open(true);
        driver
    }

    fn open(&mut self, create: bool) {
        let config = self.config.clone();
        self.effects = Effects::new(Pool::new(config.memory_bytes as usize));
        let mut opener = if create { TierOpener::create(config) } else { TierOpener::recover(config) };
        opener.start(&mut self.effects);
        while !opener.is_finished() {
            assert!(!self.effects.requests.is_empty(), "it waits for nothing");
            for (io, outcome) in self.carry_out() {
                opener.complete(io, outcome, &mut self.effects);
            }
        }
        self.shard = Some(opener.finish().expect("it opens"));
    }

    fn carry_out(&mut self) -> Vec<(Io, DiskOutcome)> {
        let requests = std::mem::take(&mut self.effects.requests);
        let (stay, requests): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|(_, request)| (self.stays_under_way)(request));
        self.under_way.extend(stay);
        requests.into_iter().map(|(io, request)| (io, self.request(request))).collect()
    }

    fn request(&mut self, request: DiskRequest) -> DiskOutcome {
        let fault = (self.fails)(&request).then_some(IoFault::Os(5));
        match &request {
            DiskRequest::Read { len, .. } => self.reads.push(*len),
            DiskRequest::Write { offset, parts, .. } => {
                self.writes += 1;
                let len: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
                self.write_end = self.write_end.max(offset + len);
            }
            _ => {}
        }
        match (fault, request) {
            (None, request) => self.disk.execute(request),
            (Some(fault), DiskRequest::Read { block, .. }) => DiskOutcome::Read(block, Err(fault)),
            (Some(fault), DiskRequest::Write { .. }) => DiskOutcome::Write(Err(fault)),
            (Some(fault), DiskRequest::Allocate { .. }) => DiskOutcome::Allocate(Err(fault)),
            (Some(fault), DiskRequest::Discard { .. }) => DiskOutcome::Discard(Err(fault)),
            (Some(fault), DiskRequest::Flush) => DiskOutcome::Flush(Err(fault)),
        }
    }

    fn tick(&mut self) {
        let outcomes = self.carry_out();
        self.now.mono.0 += 1_000_000;
        self.effects.begin(self.now);
        let shard = self.shard.as_mut().expect("it is open");
        for (io, outcome) in outcomes {
            shard.complete(io, outcome, &mut self.effects);
        }
        shard.tick_end(&mut self.effects);
    }

    fn submit(&mut self, operation: Operation) {
        self.next += 1;
        self.effects.begin(self.now);
        let token = Token { slot: self.next, generation: 0 };
        let accepted = self.shard.as_mut().expect("it is open").accept(token, operation, &mut self.effects);
        assert!(accepted.is_ok(), "it takes what is asked alone");
    }

    fn ask(&mut self, operation: Operation) -> Reply {
        self.submit(operation);
        for _ in 0..100_000 {
            if let Some((_, reply)) = self.effects.replies.pop() {
                return reply;
            }
            self.tick();
        }
        panic!("never answered");
    }

    fn put(&mut self, number: usize, len: usize) -> Reply {
        self.put_until(number, len, Expiry::NEVER)
    }

    fn put_until(&mut self, number: usize, len: usize, expiry: Expiry) -> Reply {
        self.ask(put_of(number, len, expiry))
    }

    fn get(&mut self, number: usize) -> Option<Vec<u8>> {
        match self.ask(Operation::Get { key: key(number), part: RecordPart::Whole }) {
            Reply::Record(record) => record.map(|record| record.value.to_bytes().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn hits(&mut self, numbers: std::ops::Range<usize>, len: usize) -> usize {
        let mut hits = 0;
        for number in numbers {
            if let Some(found) = self.get(number) {
                assert_eq!(found, value(number, len), "key {number}");
                hits += 1;
            }
        }
        hits
    }

    fn run_until_idle(&mut self) {
        for _ in 0..200 {
            self.tick();
        }
    }

    fn statistic(&self, name: &str) -> u64 {
        let mut found = Vec::new();
        self.shard.as_ref().expect("it is open").statistics(&mut found);
        let of = |statistic: &&stratakv_engine::Statistic| statistic.name == name;
        found.iter().find(of).unwrap_or_else(|| panic!("a statistic {name}")).value
    }

    fn end(&mut self, ending: Ending) {
        if ending == Ending::Orderly {
            let shard = self.shard.as_mut().expect("it is open");
            shard.close(&mut self.effects);
            for _ in 0..10_000 {
                if self.shard.as_ref().is_some_and(Shard::is_closed) {
                    break;
                }
                self.tick();
            }
            assert!(self.shard.as_ref().is_some_and(Shard::is_closed), "it closes");
        }
        self.effects.requests.clear();
        self.under_way.clear();
        self.shard = None;
        self.disk.end(ending, 1);
        self.config.boot =
            self.config.boot.map(|boot| if ending == Ending::PowerCut { [boot[0] + 1; 16] } else { boot });
    }

    fn restart(&mut self, ending: Ending) -> RecoveryReport {
        self.end(ending);
        self.open(false);
        self.shard.as_ref().expect("it is open").recovery().clone()
    }

    fn sound(&self) {
        assert_eq!(self.shard.as_ref().expect("it is open").check(), [] as [String; 0]);
    }
}

#[test]
fn memory_and_volume_stay_within_their_caps_and_no_put_is_refused() {
    let mut driver = Driver::new(config());
    let mut random = Random::new(1);
    for number in 0..12_000 {
        let len = if number % 50 == 0 { random.below(700_000) } else { random.below(4000) } as usize;
        assert!(matches!(driver.put(number, len), Reply::Done { .. }));
        if number % 100 == 0 {
            let bytes = driver.shard.as_ref().expect("it is open").dram_bytes();
            assert!(bytes <= driver.config.memory_bytes, "{bytes} bytes at {number}");
            assert!(driver.effects.pool().held_bytes() as u64 <= driver.config.memory_bytes + (1 << 20));
        }
    }
    assert!(driver.write_end <= CAPACITY_BYTES);
    let spilled_bytes = driver.statistic("spilled_bytes");
    assert!(driver.statistic("evictions") > 1000 && spilled_bytes > CAPACITY_BYTES / 2, "{spilled_bytes}");
    assert!(driver.statistic("not_admitted") > 1000, "once the log is full, what nobody asked for stays out");
    // Tables from which many entries are gone become shorter, one a tick.
    (0..300).for_each(|_| driver.tick());
    let index = driver.statistic("index_bytes") as f64 / driver.statistic("items") as f64;
    assert!(index <= 20.0, "{index} bytes of index an item");
    driver.sound();
}

/// A config whose volume takes far more small items than the index may know of.
fn crowded() -> TierConfig {
    TierConfig { memory_bytes: 1 << 20, segment_bytes: 64 << 10, ..config() }
}

#[test]
fn an_index_grown_to_its_share_left_no_room_for_the_longest_value() {
    let mut driver = Driver::new(crowded());
    for number in 0..100_000 {
        assert!(matches!(driver.put(number, 1), Reply::Done { .. }));
        if number % 1000 == 0 {
            let bytes = driver.shard.as_ref().expect("it is open").dram_bytes();
            assert!(bytes <= driver.config.memory_bytes, "{bytes} bytes at {number}");
        }
    }
    assert!(driver.statistic("index_bytes") <= (7 << 20) / 16);
    assert!(driver.statistic("items") > 20_000, "{} items", driver.statistic("items"));
    let Reply::Failed(error @ Error::ValueTooLarge { max_bytes, .. }) = driver.put(1, 1 << 20) else {
        panic!("it can never have a place")
    };
    assert!(max_bytes > 128 << 10 && error.to_string().contains("raise --memory"), "{error}");
    assert!(matches!(driver.put(1, max_bytes as usize + 1), Reply::Failed(Error::ValueTooLarge { .. })));
    for number in 0..20 {
        assert!(matches!(driver.put(number, max_bytes as usize), Reply::Done { .. }), "{number}");
    }
    assert_eq!(driver.hits(19..20, max_bytes as usize), 1);
    driver.sound();
}

#[test]
fn keys_of_one_table_of_the_index_left_no_room_for_those_of_others() {
    let mut driver = Driver::new(crowded());
    let table = |number: &usize| xxh3_64_with_seed(key(*number).encoded(), 0x7469_6572) >> 32 & 255;
    let limit_bytes = (7 << 20) / 16;
    for number in (0..5_000_000).filter(|number| table(number) == 7).take(18_000) {
        assert!(matches!(driver.put(number, 1), Reply::Done { .. }));
    }
    assert!(driver.statistic("index_bytes") > limit_bytes / 10 * 6);
    for number in (0..20_000).filter(|number| table(number) != 7) {
        assert!(matches!(driver.put(number, 1), Reply::Done { .. }));
        assert!(driver.statistic("index_bytes") <= limit_bytes, "at {number}");
    }
    assert!(driver.statistic("items") > 18_000, "{} items", driver.statistic("items"));
    driver.sound();
}

#[test]
fn an_append_does_not_lengthen_an_item_beyond_what_has_a_place() {
    let mut driver = Driver::new(config());
    let Reply::Failed(Error::ValueTooLarge { max_bytes, .. }) = driver.put(1, 8 << 20) else {
        panic!("it is too long")
    };
    let len = max_bytes as usize;
    driver.put(1, len);
    let append = |bytes: &'static [u8]| Operation::Update {
        key: key(1),
        update: Update::Append(bytes.into()),
        level: Level::Memory,
    };
    let prepend = Operation::Update { key: key(1), update: Update::Prepend(b"x"[..].into()), level: Level::Memory };
    assert!(matches!(driver.ask(append(b"x")), Reply::Failed(Error::ValueTooLarge { .. })));
    assert!(matches!(driver.ask(prepend), Reply::Failed(Error::ValueTooLarge { .. })));
    assert_eq!(driver.hits(1..2, len), 1, "nothing was changed");
    assert!(matches!(driver.ask(append(b"")), Reply::Done { .. }));
}

#[test]
fn with_less_memory_a_restart_keeps_the_newest_that_the_index_has_room_for() {
    for ending in [Ending::Orderly, Ending::Kill] {
        let mut driver = Driver::new(TierConfig { memory_bytes: 4 << 20, ..crowded() });
        (0..80_000).for_each(|number| drop(driver.put(number, 1)));
        driver.end(ending);
        driver.config.memory_bytes = 1 << 20;
        driver.open(false);
        let items = driver.shard.as_ref().expect("it is open").recovery().items;
        let report = driver.shard.as_ref().expect("it is open").recovery().clone();
        assert!((15_000..25_000).contains(&items), "{report:?} after {ending:?}");
        assert!(driver.statistic("index_bytes") <= (7 << 20) / 16);
        driver.sound();
        // What is no longer known of must not come back, neither with the memory that it had.
        (0..80_000).for_each(|number| drop(driver.put(number, 2)));
        driver.config.memory_bytes = 4 << 20;
        driver.restart(Ending::Kill);
        let old = (0..80_000).filter(|number| driver.get(*number).is_some_and(|found| found.len() == 1)).count();
        assert_eq!(old, 0, "{ending:?}");
    }
}

#[test]
fn only_a_write_of_a_key_with_a_copy_on_the_volume_waits_for_it() {
    let mut driver = Driver::new(config());
    (0..20_000).for_each(|number| drop(driver.put(number, 1000)));
    driver.run_until_idle();
    let journal = driver.statistic("journal_writes");
    let writes = driver.writes;
    (0..100).for_each(|number| drop(driver.put(100_000 + number, 100)));
    assert_eq!((driver.statistic("journal_writes"), driver.writes), (journal, writes), "new keys cost no I/O");
    driver.put(10_000, 100);
    assert!(driver.statistic("journal_writes") > journal, "an old one costs a page of the journal");
    let journal = driver.statistic("journal_writes");
    driver.put(10_000, 200);
    assert_eq!(driver.statistic("journal_writes"), journal, "once");
}

#[test]
fn a_get_from_the_volume_is_one_read_of_the_items_pages() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.reads.clear();
    let hits = driver.hits(2000..2100, 3000);
    assert!(hits > 90, "{hits}");
    assert!(driver.reads.len() <= 100 && driver.reads.iter().all(|len| *len <= 8192), "{:?}", driver.reads);
}

#[test]
fn a_failing_read_is_a_miss_and_stays_one() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.fails = |request| matches!(request, DiskRequest::Read { .. });
    assert_eq!(driver.hits(2000..2100, 3000), 0);
    assert_eq!(driver.statistic("ssd_read_errors"), 100);
    driver.fails = |_| false;
    assert_eq!(driver.hits(2000..2100, 3000), 0, "what could not be read is dropped");
    driver.restart(Ending::Kill);
    assert_eq!(driver.hits(2000..2100, 3000), 0, "after a crash too");
    assert!(driver.hits(2100..2200, 3000) > 90, "the others are there");
}

#[test]
fn a_damaged_item_is_a_miss() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    for page in driver.disk.pages().into_iter().filter(|page| *page > 200) {
        driver.disk.flip_bit(page, (page * 977 % 32_768) as usize);
    }
    // One bit a page: a third of the items has none of them. The others are never shown.
    let hits = driver.hits(0..4000, 3000);
    assert!(hits < 3000);
    assert_eq!(driver.statistic("corrupt_records") + hits as u64, 4000);
    driver.sound();
}

#[test]
fn failing_writes_leave_a_cache_in_dram() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.fails = |request| matches!(request, DiskRequest::Write { parts, .. } if parts.len() > 1);
    (8000..14_000).for_each(|number| assert!(matches!(driver.put(number, 3000), Reply::Done { .. })));
    assert!(driver.statistic("ssd_write_errors") > 0 && driver.statistic("ssd_paused") == 1);
    assert!(driver.hits(13_500..14_000, 3000) > 400, "DRAM goes on");
    driver.fails = |_| false;
    driver.now.mono.0 += 1 << 40;
    let before = driver.statistic("spilled_items");
    (14_000..18_000).for_each(|number| drop(driver.put(number, 3000)));
    assert!(driver.statistic("spilled_items") > before, "it is tried again");
    driver.sound();
}

#[test]
fn a_journal_that_cannot_be_written_costs_the_second_tier_and_nothing_else() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.fails = |request| matches!(request, DiskRequest::Write { durable: false, .. });
    assert!(
        matches!(driver.put(3000, 10), Reply::Done { .. }),
        "a superblock voids the volume, then the write is answered"
    );
    assert_eq!(driver.statistic("ssd_lost"), 1);
    assert_eq!(driver.hits(3000..3001, 10), 1);
    (8000..12_000).for_each(|number| assert!(matches!(driver.put(number, 3000), Reply::Done { .. })));
    driver.fails = |_| false;
    assert_eq!(driver.restart(Ending::Kill).start, Start::Emptied);
    assert_eq!(driver.hits(0..8000, 3000), 0);
}

#[test]
fn a_journal_that_failed_lets_no_overwrite_pass_before_the_volume_is_void() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.fails = |request| matches!(request, DiskRequest::Write { .. });
    assert!(matches!(driver.put(3000, 10), Reply::Failed(Error::Unknown(_))));
    assert!(matches!(driver.put(3001, 10), Reply::Failed(Error::Io { .. })), "its copy may come back");
    driver.fails = |_| false;
    assert_eq!(driver.restart(Ending::Kill).start, Start::Recovered);
    assert_eq!(driver.get(3001).map(|found| found.len()), Some(3000), "and it does");
}

/// Nobody was answered any more: what could not be called void kept gets and sets of every key from
/// being acknowledged.
#[test]
fn a_dead_volume_took_the_whole_cache_with_it() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.fails = |request| matches!(request, DiskRequest::Write { .. } | DiskRequest::Flush);
    assert!(matches!(driver.put(3000, 10), Reply::Failed(Error::Unknown(_))));
    assert_eq!(driver.get(3000), None, "an older copy may come back: it is not shown");
    let refused = driver.statistic("ssd_refused_keys");
    assert!(driver.statistic("ssd_lost") == 1 && refused > 4000, "{refused}");
    let flush = Operation::DeleteRange { range: Box::new((Bound::Unbounded, Bound::Unbounded)), level: Level::Memory };
    assert!(matches!(driver.ask(flush), Reply::Failed(Error::Io { .. })), "it could not be kept over a crash");
    // Keys without a copy there are served as ever.
    (8000..9500).for_each(|number| assert!(matches!(driver.put(number, 3000), Reply::Done { .. }), "{number}"));
    assert!(driver.hits(8500..9500, 3000) > 900);
    (9000..9500).for_each(|number| assert!(matches!(driver.put(number, 20), Reply::Done { .. }), "{number}"));
    driver.sound();
    // It is tried again, and once it is void nothing is refused.
    driver.fails = |_| false;
    driver.now.mono.0 += 1 << 40;
    driver.run_until_idle();
    assert_eq!(driver.statistic("ssd_refused_keys"), 0);
    assert!(matches!(driver.put(3000, 10), Reply::Done { .. }));
    assert_eq!(driver.restart(Ending::Kill).start, Start::Emptied);
    assert_eq!(driver.hits(0..8000, 3000), 0);
}

#[test]
fn an_orderly_end_tries_once_more_to_call_a_lost_volume_void() {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    driver.fails = |request| matches!(request, DiskRequest::Write { .. });
    assert!(matches!(driver.put(3000, 10), Reply::Failed(_)));
    driver.fails = |_| false;
    assert_eq!(driver.restart(Ending::Orderly).start, Start::Emptied);
}

#[test]
fn a_restart_is_warm_and_a_kill_leaves_what_was_spilled() {
    let mut driver = Driver::new(config());
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    let report = driver.restart(Ending::Orderly);
    assert_eq!((report.start, report.items), (Start::Clean, 6000), "all of it fits");
    assert_eq!(driver.hits(0..6000, 3000), 6000);
    (6000..7500).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    let report = driver.restart(Ending::Kill);
    assert_eq!(report.start, Start::Recovered);
    assert!(driver.hits(1000..6000, 3000) > 4500, "{report:?}");
    assert_eq!(driver.restart(Ending::PowerCut).start, Start::Emptied);
    assert_eq!(driver.hits(0..7500, 3000), 0);
    driver.sound();
}

#[test]
fn without_a_boot_id_a_kill_leaves_nothing() {
    let mut driver = Driver::new(TierConfig { boot: None, ..config() });
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    assert_eq!(driver.restart(Ending::Kill).start, Start::Emptied);
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    assert_eq!(driver.restart(Ending::Orderly).items, 6000);
}

#[test]
fn a_flush_holds_after_a_kill_and_costs_one_write() {
    let mut driver = Driver::new(config());
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    let writes = driver.writes;
    let from = Bound::Included(Key::bound(CollectionId(0), b""));
    let to = Bound::Excluded(Key::bound(CollectionId(1), b""));
    let flush = Operation::DeleteRange { range: Box::new((from, to)), level: Level::Memory };
    assert!(matches!(driver.ask(flush), Reply::Number { .. }));
    assert_eq!(driver.writes, writes + 1);
    assert_eq!(driver.hits(0..6000, 3000), 0);
    driver.put(1, 10);
    for ending in [Ending::Kill, Ending::Orderly, Ending::Kill] {
        driver.restart(ending);
        assert_eq!(driver.hits(2..6000, 3000), 0, "{ending:?}");
    }
    let part =
        Operation::DeleteRange { range: Box::new((Bound::Included(key(1)), Bound::Unbounded)), level: Level::Memory };
    assert!(matches!(driver.ask(part), Reply::Failed(Error::Unsupported(_))));
}

#[test]
fn expired_segments_give_their_memory_back() {
    let mut driver = Driver::new(config());
    let expiry = Expiry(driver.now.wall.0 + 10);
    (0..1000).for_each(|number| drop(driver.put_until(number, 3000, expiry)));
    let before = driver.statistic("dram_bytes");
    driver.now.wall.0 += 10;
    driver.run_until_idle();
    assert!(driver.statistic("dram_bytes") < before / 10, "nobody asked for them");
    assert_eq!((driver.statistic("expired"), driver.statistic("items")), (1000, 0));
}

#[test]
fn without_a_volume_it_is_a_cache_in_dram() {
    let mut driver = Driver::new(TierConfig { capacity_bytes: None, ..config() });
    (0..20_000).for_each(|number| assert!(matches!(driver.put(number, 1000), Reply::Done { .. })));
    let hits = driver.hits(15_000..20_000, 1000);
    assert!(hits > 2000, "{hits}");
    assert!(driver.write_end <= 8192);
    assert_eq!(driver.restart(Ending::Orderly).items, 0);
    driver.put(1, 10);
    driver.sound();
}

#[test]
fn a_head_that_could_not_be_read_once_brings_nothing_old_back() {
    let mut driver = Driver::new(config());
    // Written twice they are wanted, so that the log wraps.
    for number in 0..16_000 {
        driver.put(number, 3000);
        driver.put(number, 3000);
    }
    driver.run_until_idle();
    driver.end(Ending::Kill);
    driver.fails = |request| matches!(request, DiskRequest::Read { offset, len: 4096, .. } if *offset >= 28 << 20);
    driver.open(false);
    driver.fails = |_| false;
    (0..16_000).for_each(|number| drop(driver.put(number, 10)));
    driver.restart(Ending::Kill);
    let old = (0..16_000).filter(|number| driver.get(*number).is_some_and(|found| found.len() == 3000)).count();
    assert_eq!(old, 0);
}

#[test]
fn an_item_that_left_memory_before_its_segment_was_called_gone_came_back() {
    let mut driver = Driver::new(config());
    let is_journal = |request: &DiskRequest| matches!(request, DiskRequest::Write { offset, .. } if *offset >> 13 == 1);
    (0..9000).for_each(|number| drop(driver.put(number, 3000)));
    driver.run_until_idle();
    // Used three times, they lie in memory too. The copies of the last ones are the oldest on the
    // volume.
    for numbers in [3000..5000, 3000..5000, 3000..5000, 0..30, 0..30, 0..30] {
        driver.hits(numbers, 3000);
    }
    driver.stays_under_way = is_journal;
    for number in 9000.. {
        driver.put(number, 3000);
        driver.tick();
        if !driver.under_way.is_empty() {
            break;
        }
    }
    assert!(driver.statistic("ssd_segments") > 150, "the oldest segment is being called gone");
    // Others take their place in memory.
    for numbers in [5000..7000, 5000..7000, 5000..7000] {
        driver.hits(numbers, 3000);
    }
    driver.run_until_idle();
    driver.effects.replies.clear();
    let before = driver.next;
    (0..30).for_each(|number| driver.submit(put_of(number, 10, Expiry::NEVER)));
    driver.run_until_idle();
    let answered: Vec<usize> =
        driver.effects.replies.iter().map(|(token, _)| (token.slot - before - 1) as usize).collect();
    driver.stays_under_way = |_| false;
    // So that nothing is recycled before it is looked for.
    driver.config.read_only = true;
    assert_eq!(driver.restart(Ending::Kill).start, Start::Recovered);
    let old: Vec<usize> =
        (0..30).filter(|number| driver.get(*number).is_some_and(|found| found.len() == 3000)).collect();
    assert!(old.len() > 20, "copies that nobody was told are stale: {old:?}");
    assert!(!answered.iter().any(|number| old.contains(number)), "{answered:?} were answered, {old:?} are back");
}

#[test]
fn opened_for_reading_it_answers_and_writes_nothing() {
    let mut driver = Driver::new(config());
    (0..3000).for_each(|number| drop(driver.put(number, 3000)));
    driver.end(Ending::Orderly);
    driver.config.read_only = true;
    let writes = driver.writes;
    driver.open(false);
    assert_eq!(driver.hits(0..3000, 3000), 3000);
    assert!(matches!(driver.put(1, 1), Reply::Failed(Error::WrongVolume(_))));
    driver.end(Ending::Orderly);
    assert_eq!(driver.writes, writes);
}

#[test]
fn the_journals_pages_were_promised_and_not_reserved() {
    let mut driver = Driver::new(config());
    let pages = driver.disk.pages();
    assert!((0..4 + 8192 / 64).all(|page| pages.contains(&page)), "{pages:?}");
    driver.end(Ending::Orderly);
    driver.config.capacity_bytes = Some(CAPACITY_BYTES - (8 << 20));
    driver.disk = Disk::new(CAPACITY_BYTES);
    driver.open(true);
    driver.end(Ending::Orderly);
    driver.config.capacity_bytes = Some(CAPACITY_BYTES);
    driver.open(false);
    let pages = driver.disk.pages();
    assert!((0..4 + 8192 / 64).all(|page| pages.contains(&page)), "a longer volume has a longer ring: {pages:?}");
    let writes = driver.writes;
    driver.restart(Ending::Kill);
    assert!(driver.writes - writes < 10, "once");
}

#[test]
fn a_disk_too_full_for_the_journal_is_said_when_the_volume_is_made() {
    let mut driver = Driver::new(config());
    driver.fails = |request| matches!(request, DiskRequest::Write { offset, .. } if *offset == 4 << 12);
    let mut opener = TierOpener::create(driver.config.clone());
    opener.start(&mut driver.effects);
    while !opener.is_finished() {
        for (io, outcome) in driver.carry_out() {
            opener.complete(io, outcome, &mut driver.effects);
        }
    }
    let error = opener.finish().map(|_| ()).expect_err("the ring has no room").to_string();
    assert!(error.contains("journal"), "{error}");
}

/// Runs ticks until there is nothing left in DRAM and the table of an orderly end is in flight.
fn writing_the_table(driver: &mut Driver) -> Vec<(Io, DiskRequest)> {
    driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
    for _ in 0..10_000 {
        driver.tick();
        if driver.statistic("dram_segments") == 0 && driver.effects.requests.len() > 1 {
            return std::mem::take(&mut driver.effects.requests);
        }
    }
    panic!("no table was written");
}

#[test]
fn a_failed_piece_of_the_table_closed_the_shard_while_others_were_in_flight() {
    let mut driver = Driver::new(config());
    (0..20_000).for_each(|number| drop(driver.put(number, 1)));
    let mut requests = writing_the_table(&mut driver);
    let last = requests.pop().expect("several");
    let (io, _) = requests.remove(0);
    let complete = |driver: &mut Driver, io: Io, outcome: DiskOutcome| {
        driver.effects.begin(driver.now);
        let shard = driver.shard.as_mut().expect("it is open");
        shard.complete(io, outcome, &mut driver.effects);
        shard.tick_end(&mut driver.effects);
        (shard.is_closed(), driver.effects.requests.len())
    };
    assert_eq!(complete(&mut driver, io, DiskOutcome::Write(Err(IoFault::Os(5)))), (false, 0), "others are in flight");
    for (io, request) in requests {
        let outcome = driver.request(request);
        assert_eq!(complete(&mut driver, io, outcome), (false, 0), "one is in flight");
    }
    // All are done: it is written anew. It fails for ever.
    driver.fails = |request| matches!(request, DiskRequest::Write { durable: false, .. });
    let failed = DiskOutcome::Write(Err(IoFault::Os(5)));
    assert_eq!(complete(&mut driver, last.0, failed), (false, 0), "not at once");
    driver.tick();
    assert!(driver.effects.requests.len() > 1, "all of its pieces");
    driver.run_until_idle();
    assert!(driver.shard.as_ref().is_some_and(Shard::is_closed));
    driver.fails = |_| false;
    assert_eq!(driver.restart(Ending::Kill).start, Start::Recovered);
    assert!(driver.hits(0..20_000, 1) > 19_000);
}

#[test]
fn an_orderly_end_went_round_and_round_while_it_waited_for_the_disk() {
    let mut driver = Driver::new(config());
    (0..6000).for_each(|number| drop(driver.put(number, 3000)));
    driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
    let mut idle_ticks = 0;
    while !driver.shard.as_ref().is_some_and(Shard::is_closed) {
        driver.tick();
        for _ in 0..20 {
            let shard = driver.shard.as_mut().expect("it is open");
            driver.effects.begin(driver.now);
            shard.tick_end(&mut driver.effects);
            if !driver.effects.more {
                break;
            }
            idle_ticks += 1;
        }
        let is_open = !driver.shard.as_ref().is_some_and(Shard::is_closed);
        assert!(!is_open || !driver.effects.requests.is_empty(), "it waits for something");
    }
    assert!(idle_ticks < 40, "{idle_ticks} ticks for nothing");
    driver.end(Ending::Kill);
    driver.open(false);
    assert_eq!(driver.hits(0..6000, 3000), 6000);
}
