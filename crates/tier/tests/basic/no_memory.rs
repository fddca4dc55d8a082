//! The system gives no memory for a block that a write needs: the write fails, and nothing that was
//! not written counts as written.

use stratakv_device::{Block, Class};

use super::losses::{LOG_AT, superblocks};
use super::*;

/// From now on there are no blocks: neither in the pool, whose blocks these are, nor beyond it.
fn without_blocks(driver: &Driver) -> Vec<Block> {
    let pool = driver.effects.pool();
    pool.refuse_chunks(true);
    std::iter::from_fn(|| pool.take(Class::Slice).or_else(|| pool.take(Class::Page))).collect()
}

/// The same, of pages only.
fn without_pages(driver: &Driver) -> Vec<Block> {
    let pool = driver.effects.pool();
    pool.refuse_chunks(true);
    std::iter::from_fn(|| pool.take(Class::Page)).collect()
}

fn with_blocks(driver: &Driver, blocks: Vec<Block>) {
    driver.effects.pool().refuse_chunks(false);
    drop(blocks);
}

/// Which spilled what it could.
fn spilled() -> Driver {
    let mut driver = Driver::new(config());
    (0..8000).for_each(|number| drop(driver.put(number, 1000)));
    driver.run_until_idle();
    assert!(driver.statistic("ssd_segments") > 0);
    driver
}

#[test]
fn a_write_was_answered_though_there_was_no_memory_for_its_page_of_the_journal() {
    let mut driver = spilled();
    let pages = without_pages(&driver);
    driver.submit(put_of(0, 10, Expiry::NEVER));
    (0..30).for_each(|_| driver.tick());
    assert_eq!(driver.effects.replies.len(), 0, "nobody is answered before it is written");
    assert!(driver.statistic("ssd_write_errors") > 0);
    with_blocks(&driver, pages);
    driver.run_until_idle();
    assert!(matches!(driver.effects.replies.pop(), Some((_, Reply::Done { .. }))));
    assert_eq!(driver.statistic("ssd_lost"), 0);
    driver.restart(Ending::Kill);
    assert!(driver.get(0).is_none_or(|found| found == value(0, 10)), "never the older one");
}

#[test]
fn a_journal_without_memory_for_good_loses_the_volume_as_one_that_cannot_be_written() {
    let mut driver = spilled();
    let pages = without_pages(&driver);
    driver.submit(put_of(0, 10, Expiry::NEVER));
    (0..1000).for_each(|_| driver.tick());
    assert_eq!(driver.statistic("ssd_lost"), 1);
    let reply = driver.effects.replies.pop();
    assert!(matches!(reply, Some((_, Reply::Failed(Error::Unknown(_))))), "{reply:?}");
    let refused = driver.put(0, 10);
    assert!(matches!(refused, Reply::Failed(Error::Io { .. })), "{refused:?}");
    assert!(matches!(driver.put(100_000, 10), Reply::Done { .. }), "others are served");
    with_blocks(&driver, pages);
}

#[test]
fn a_segment_was_written_a_page_too_far_where_its_head_had_no_memory() {
    let mut driver = spilled();
    let pages = without_pages(&driver);
    (10_000..20_000).for_each(|number| assert!(matches!(driver.put(number, 1000), Reply::Done { .. })));
    assert!(driver.statistic("evictions_write_failed") > 0, "they are dropped");
    with_blocks(&driver, pages);
    driver.run_until_idle();
    driver.hits(0..20_000, 1000);
    assert_eq!((driver.statistic("corrupt_records"), driver.statistic("ssd_lost")), (0, 0));
    driver.sound();
}

/// All eight tries were over before a block could come back.
#[test]
fn a_moment_without_memory_at_an_end_costs_nothing() {
    let table = |request: &DiskRequest| matches!(request, DiskRequest::Write { offset, parts, .. } if *offset >= LOG_AT && parts.len() == 1);
    for (kind, is_of_kind) in [("table", table as fn(&DiskRequest) -> bool), ("superblock", superblocks)] {
        let mut driver = spilled();
        driver.fails = is_of_kind;
        driver.shard.as_mut().expect("it is open").close(&mut driver.effects);
        for _ in 0..10_000 {
            if driver.statistic("ssd_write_errors") == 0 {
                driver.tick();
            }
        }
        let blocks = without_blocks(&driver);
        (0..30).for_each(|_| driver.tick());
        assert!(!driver.shard.as_ref().expect("it is open").is_closed(), "{kind}: it waits for a block");
        with_blocks(&driver, blocks);
        driver.fails = |_| false;
        driver.end(Ending::Orderly);
        driver.open(false);
        assert_eq!(driver.shard.as_ref().expect("it is open").recovery().start, Start::Clean, "{kind}");
        driver.hits(0..8000, 1000);
    }
}

/// So were those of the superblock that calls the volume void: keys were refused for a second.
#[test]
fn a_volume_lost_for_want_of_memory_refuses_no_key_once_there_is_some() {
    let mut driver = spilled();
    let blocks = without_blocks(&driver);
    driver.submit(put_of(0, 10, Expiry::NEVER));
    for _ in 0..1000 {
        if driver.statistic("ssd_lost") == 0 {
            driver.tick();
        }
    }
    (0..30).for_each(|_| driver.tick());
    with_blocks(&driver, blocks);
    driver.run_until_idle();
    let reply = driver.effects.replies.pop();
    assert!(matches!(reply, Some((_, Reply::Done { .. }))), "{reply:?}");
    assert_eq!((driver.statistic("ssd_lost"), driver.statistic("ssd_refused_keys")), (1, 0));
    assert_eq!(driver.get(0), Some(value(0, 10)));
}

#[test]
fn an_end_or_a_beginning_without_memory_says_so() {
    let mut driver = spilled();
    let pages = without_pages(&driver);
    let shard = driver.shard.as_mut().expect("it is open");
    shard.close(&mut driver.effects);
    for _ in 0..10_000 {
        if driver.shard.as_ref().is_some_and(Shard::is_closed) {
            break;
        }
        driver.tick();
    }
    let failure = driver.shard.as_ref().and_then(Shard::failure);
    assert!(matches!(failure, Some(Error::Io { fault: IoFault::Os(12), .. })), "{failure:?}");
    with_blocks(&driver, pages);
    driver.restart(Ending::Kill);
    driver.hits(0..8000, 1000);

    let pool = Pool::new(8 << 20);
    pool.refuse_chunks(true);
    let mut opener = TierOpener::create(config());
    opener.start(&mut Effects::new(pool));
    assert!(opener.is_finished());
    let error = opener.finish().expect_err("it has no memory to write with");
    assert!(error.to_string().contains("opening the volume for writing"), "{error}");
}
