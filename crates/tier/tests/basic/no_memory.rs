//! The system gives no memory for a block that a write needs: the write fails, and nothing that was
//! not written counts as written.

#![expect(unsafe_code, reason = "an allocator that refuses")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use stratakv_device::block::CHUNK_BYTES;
use stratakv_device::{Block, Class};

use super::*;

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// The system's, but for chunks of a pool where this thread is refused them.
struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

impl Refusing {
    fn refuses(layout: Layout) -> bool {
        layout.size() == CHUNK_BYTES && layout.align() == 4096 && REFUSES.try_with(Cell::get).unwrap_or(false)
    }
}

// SAFETY: null is what an allocator that has no memory gives; the rest is the system's.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::refuses(layout) {
            return ptr::null_mut();
        }
        // SAFETY: as the caller says.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: it came from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// From now on there are no pages: neither in the pool, whose pages these are, nor beyond it.
fn without_pages(driver: &Driver) -> Vec<Block> {
    REFUSES.set(true);
    std::iter::from_fn(|| driver.effects.pool().take(Class::Page)).collect()
}

fn with_pages(pages: Vec<Block>) {
    REFUSES.set(false);
    drop(pages);
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
    with_pages(pages);
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
    with_pages(pages);
}

#[test]
fn a_segment_was_written_a_page_too_far_where_its_head_had_no_memory() {
    let mut driver = spilled();
    let pages = without_pages(&driver);
    (10_000..20_000).for_each(|number| assert!(matches!(driver.put(number, 1000), Reply::Done { .. })));
    assert!(driver.statistic("evictions_write_failed") > 0, "they are dropped");
    with_pages(pages);
    driver.run_until_idle();
    driver.hits(0..20_000, 1000);
    assert_eq!((driver.statistic("corrupt_records"), driver.statistic("ssd_lost")), (0, 0));
    driver.sound();
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
    with_pages(pages);
    driver.restart(Ending::Kill);
    driver.hits(0..8000, 1000);

    REFUSES.set(true);
    let mut opener = TierOpener::create(config());
    opener.start(&mut Effects::new(Pool::new(8 << 20)));
    REFUSES.set(false);
    assert!(opener.is_finished());
    let error = opener.finish().expect_err("it has no memory to write with");
    assert!(error.to_string().contains("opening the volume for writing"), "{error}");
}
