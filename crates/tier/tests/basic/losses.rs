//! What a cache gives up: nothing while its volume has room, and whatever goes is counted under its
//! reason.

use super::*;

/// Which requests fail.
type Chooses = fn(&DiskRequest) -> bool;

const MIB: u64 = 1 << 20;

/// As a server makes one: segments of 1 MiB where there is memory for sixty-four.
fn small(memory_bytes: u64) -> TierConfig {
    TierConfig { memory_bytes, capacity_bytes: Some(256 * MIB), segment_bytes: 1 << 20, ..config() }
}

/// Values of so many bytes, 40 MiB of them, or as many as the index of so little memory knows of.
fn fill(driver: &mut Driver, len: usize) -> usize {
    let keys = (40 * MIB as usize / len).min(driver.config.memory_bytes as usize / 100);
    for number in 0..keys {
        assert!(matches!(driver.put(number, len), Reply::Done { .. }), "{number}");
    }
    driver.run_until_idle();
    keys
}

/// Of 4 KB values 87, 63, 42 and 2 percent were gone, and no counter said so: the segment to be
/// written found no block.
#[test]
fn small_memories_drop_nothing_while_the_volume_has_room() {
    let mut found = Vec::new();
    for memory in [1, 2, 3, 4, 6, 8, 12, 16] {
        for len in [300, 4000, 15_000, 70_000] {
            let mut driver = Driver::new(small(memory * MIB));
            let keys = fill(&mut driver, len);
            let gone = keys - driver.hits(0..keys, len);
            driver.sound();
            if gone > 0 || driver.statistic("evictions") > 0 {
                found.push(format!("{memory} MiB, values of {len} bytes: {gone} of {keys}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

impl Driver {
    /// A tick in which the oldest of the requests under way are done, so many.
    fn slow_tick(&mut self, done: usize) {
        for _ in 0..done.min(self.under_way.len()) {
            let (io, request) = self.under_way.remove(0);
            let outcome = self.request(request);
            self.effects.begin(self.now);
            let shard = self.shard.as_mut().expect("it is open");
            shard.complete(io, outcome, &mut self.effects);
        }
        self.tick();
    }
}

/// A disk that takes its time, a writer that does not, and somebody who reads single pages.
#[test]
fn a_slow_disk_makes_writes_wait_and_nothing_is_dropped() {
    let mut found = Vec::new();
    for memory in [1, 2, 4, 6, 8, 12, 16] {
        for len in [300, 4000, 70_000] {
            let mut driver = Driver::new(small(memory * MIB));
            driver.stays_under_way = |_| true;
            let keys = (40 * MIB as usize / len).min(driver.config.memory_bytes as usize / 100);
            let mut answered = driver.next;
            for number in 0..keys {
                driver.submit(put_of(number, len, Expiry::NEVER));
                if number % 16 == 0 {
                    driver.submit(Operation::Get { key: key(number / 2), part: RecordPart::Whole });
                }
                while answered + 40 < driver.next {
                    driver.slow_tick(usize::from(driver.now.mono.0 % 3_000_000 < 1_000_000));
                    answered += driver.effects.replies.drain(..).count() as u32;
                }
            }
            driver.stays_under_way = |_| false;
            for _ in 0..100_000 {
                driver.slow_tick(100);
                answered += driver.effects.replies.drain(..).count() as u32;
                if answered == driver.next {
                    break;
                }
            }
            assert_eq!(answered, driver.next, "all are answered");
            let gone = keys - driver.hits(0..keys, len);
            driver.sound();
            if gone > 0 || driver.statistic("evictions") > 0 {
                found.push(format!("{memory} MiB, values of {len} bytes: {gone} of {keys}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Who reads slowly keeps blocks of segments that are to leave: those wait, and others leave.
#[test]
fn answers_that_are_still_being_sent_cost_no_item() {
    for memory in [4, 8] {
        let mut driver = Driver::new(small(memory * MIB));
        let (len, mut lent) = (4000, std::collections::VecDeque::new());
        let keys = 20 * MIB as usize / len;
        for number in 0..keys {
            assert!(matches!(driver.put(number, len), Reply::Done { .. }), "{number}");
            let Reply::Record(Some(record)) = driver.ask(Operation::Get { key: key(number), part: RecordPart::Whole })
            else {
                panic!("{number} was put just now")
            };
            // An eighth of the blocks: as many as a server lends.
            lent.push_back(record);
            if lent.len() as u64 > memory * MIB / 8 / (64 << 10) {
                lent.pop_front();
            }
        }
        drop(lent);
        driver.run_until_idle();
        assert_eq!((driver.hits(0..keys, len), driver.statistic("evictions")), (keys, 0), "{memory} MiB");
        driver.sound();
    }
}

/// Writes of segments, not of the journal, of superblocks or of tables.
fn is_of_a_segment(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { offset, parts, .. } if *offset >= LOG_AT && parts.len() > 1)
}

/// First byte of the log of a volume of 256 MiB.
pub(crate) const LOG_AT: u64 = (4 + 1024) << 12;
const LEN: usize = 4000;

/// So many items more; the disk fails until one segment could not be written.
fn fill_over_a_failure(driver: &mut Driver, keys: std::ops::Range<usize>) {
    driver.fails = is_of_a_segment;
    for number in keys {
        driver.put(number, LEN);
        driver.tick();
        if driver.statistic("ssd_write_errors") > 0 {
            driver.fails = |_| false;
        }
    }
    assert!(driver.statistic("ssd_write_errors") > 0);
}

fn damage(driver: &mut Driver) -> Vec<stratakv_base::Corruption> {
    driver.config.read_only = true;
    let found = super::verify::verified(driver);
    driver.config.read_only = false;
    found.damage
}

/// A failed segment left a hole in the log, at which a recovery ended: 0 of 18,270 items were there
/// 66 seconds later.
#[test]
fn a_segment_that_could_not_be_written_costs_itself_alone() {
    for ending in [Ending::Kill, Ending::Orderly] {
        let mut driver = Driver::new(small(8 * MIB));
        (0..4000).for_each(|number| drop(driver.put(number, LEN)));
        fill_over_a_failure(&mut driver, 4000..8000);
        let failed = driver.statistic("evictions_write_failed");
        let paused = driver.statistic("evictions_ssd_paused");
        assert!((1..400).contains(&failed), "{failed} items of at most three segments");
        driver.now.mono.0 += 1 << 30;
        (8000..20_000).for_each(|number| drop(driver.put(number, LEN)));
        driver.run_until_idle();
        let before = driver.hits(0..20_000, LEN);
        assert_eq!(before as u64 + driver.statistic("evictions"), 20_000, "whatever is missing was counted");
        assert_eq!(driver.statistic("evictions"), failed + paused);
        driver.end(ending);
        assert_eq!(damage(&mut driver), [], "{ending:?}");
        driver.end(Ending::Kill);
        driver.open(false);
        let hits = driver.hits(8000..20_000, LEN);
        let least = if ending == Ending::Orderly { 12_000 } else { 10_000 };
        assert!(hits >= least, "{hits} of 12000 behind it, {ending:?}");
        assert!(driver.hits(0..4000, LEN) as u64 + failed + paused >= 4000, "before it");
        driver.sound();
    }
}

/// All that was in memory was dropped by an end while writes were paused, and `check` found damage
/// then.
#[test]
fn an_end_in_the_pause_after_a_failed_write_keeps_what_is_in_memory() {
    let mut driver = Driver::new(small(8 * MIB));
    driver.fails = is_of_a_segment;
    for number in 0..3000 {
        if driver.statistic("ssd_write_errors") == 0 {
            driver.put(number, LEN);
            driver.tick();
        }
    }
    driver.fails = |_| false;
    driver.tick();
    let there = driver.hits(0..3000, LEN);
    assert_eq!(driver.statistic("ssd_paused"), 1);
    driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
    (0..2000).for_each(|_| driver.tick());
    let shard = driver.shard.as_ref().expect("it is open");
    assert!(shard.is_closed() && shard.failure().is_none());
    driver.end(Ending::Orderly);
    assert_eq!(damage(&mut driver), []);
    driver.end(Ending::Kill);
    driver.open(false);
    assert_eq!(driver.shard.as_ref().expect("it is open").recovery().start, Start::Clean);
    assert!(there > 1000 && driver.hits(0..3000, LEN) == there, "{there} before");
}

/// A disk that stays full costs what is in memory, and leaves what is on it.
#[test]
fn an_end_on_a_full_disk_keeps_what_is_on_it() {
    let mut driver = Driver::new(small(8 * MIB));
    (0..8000).for_each(|number| drop(driver.put(number, LEN)));
    driver.run_until_idle();
    let spilled = driver.statistic("spilled_items") as usize;
    driver.fails = is_of_a_segment;
    driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
    (0..2000).for_each(|_| driver.tick());
    let shard = driver.shard.as_ref().expect("it is open");
    assert!(shard.is_closed() && shard.failure().is_some(), "it says that it could not write all");
    driver.end(Ending::Orderly);
    driver.fails = |_| false;
    assert_eq!(damage(&mut driver), []);
    driver.end(Ending::Kill);
    driver.open(false);
    let hits = driver.hits(0..8000, LEN);
    assert!(spilled > 5000 && hits >= spilled, "{hits}, {spilled} were on the volume");
    // It may have its room again, and goes on.
    (8000..12_000).for_each(|number| drop(driver.put(number, LEN)));
    assert_eq!(driver.hits(8000..12_000, LEN), 4000);
    assert_eq!(driver.restart(Ending::Orderly).start, Start::Clean);
    assert_eq!(driver.hits(8000..12_000, LEN), 4000);
    driver.sound();
}

/// Writes of a superblock.
pub(crate) fn superblocks(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Write { durable: true, .. })
}

/// Each write that is not of a segment fails a few times: the journal, the table, the superblock of
/// an orderly end.
#[test]
fn a_moment_in_which_a_page_cannot_be_written_costs_nothing() {
    let journal = |request: &DiskRequest| matches!(request, DiskRequest::Write { offset, .. } if (2 << 12..LOG_AT).contains(offset));
    let table = |request: &DiskRequest| matches!(request, DiskRequest::Write { offset, parts, .. } if *offset >= LOG_AT && parts.len() == 1);
    let kinds: [(&str, Chooses); 3] = [("journal", journal), ("table", table), ("superblock", superblocks)];
    for (kind, is_of_kind) in kinds {
        let mut driver = Driver::new(small(8 * MIB));
        (0..8000).for_each(|number| drop(driver.put(number, LEN)));
        driver.run_until_idle();
        driver.fails = is_of_kind;
        if kind == "journal" {
            // It waits for its record.
            driver.submit(put_of(0, 10, Expiry::NEVER));
            (0..30).for_each(|_| driver.tick());
            assert_eq!(driver.effects.replies.len(), 0, "nobody is answered before it is written");
            driver.fails = |_| false;
            driver.run_until_idle();
            assert!(matches!(driver.effects.replies.pop(), Some((_, Reply::Done { .. }))));
            assert_eq!(driver.hits(0..1, 10), 1);
            driver.put(0, LEN);
        } else {
            driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
            for _ in 0..10_000 {
                if driver.statistic("ssd_write_errors") == 0 {
                    driver.tick();
                }
            }
            driver.fails = |_| false;
        }
        assert!(driver.statistic("ssd_write_errors") > 0, "{kind}");
        assert_eq!(driver.statistic("ssd_lost"), 0, "{kind}");
        driver.end(Ending::Orderly);
        driver.open(false);
        assert_eq!(driver.shard.as_ref().expect("it is open").recovery().start, Start::Clean, "{kind}");
        assert_eq!(driver.hits(0..8000, LEN), 8000, "{kind}");
    }
}

/// What one failed write costs where nothing can be journaled: a segment, and not all that comes
/// after it.
#[test]
fn a_failed_write_costs_what_is_saved_one_segment() {
    let saving = TierConfig { capacity_bytes: None, saves_at_shutdown: true, ..small(8 * MIB) };
    let kinds: [(&str, Chooses, usize); 3] = [
        (
            "segment",
            |request| matches!(request, DiskRequest::Write { offset, parts, .. } if *offset > 2 << 20 && parts.len() > 1),
            100,
        ),
        ("table", |request| matches!(request, DiskRequest::Write { offset: 8192, .. }), 0),
        ("room for the table", |request| matches!(request, DiskRequest::Allocate { .. }), 0),
    ];
    for (kind, is_of_kind, cost) in kinds {
        let mut driver = Driver::new(saving.clone());
        (0..1200).for_each(|number| drop(driver.put(number, LEN)));
        assert_eq!(driver.hits(0..1200, LEN), 1200);
        driver.fails = is_of_kind;
        driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
        for _ in 0..10_000 {
            if driver.statistic("ssd_write_errors") == 0 {
                driver.tick();
            }
        }
        driver.fails = |_| false;
        driver.end(Ending::Orderly);
        driver.open(false);
        let gone = 1200 - driver.hits(0..1200, LEN);
        assert!(gone <= cost && (gone > 0) == (cost > 0), "{gone} are gone: {kind}");
    }
}
