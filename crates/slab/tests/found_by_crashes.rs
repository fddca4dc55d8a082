//! What the random crash test found once, as scenarios of their own.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use harness::*;
use stratakv_base::{Expiry, Level};
use stratakv_engine::Reply;

const MEMORY: u64 = 8 << 20;

/// A run's head was the only write of its group and was written through; its other slices were not
/// flushed.
#[test]
fn a_large_value_is_durable_with_all_its_slices() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    assert!(matches!(machine.put(b"k", &[5; 200_000]), Reply::Done { .. }));
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.get(b"k"), Ok(Some(vec![5; 200_000])));
}

/// A delete was written through alone, while an earlier, unflushed delete of the same key in
/// another page was lost.
#[test]
fn a_durable_delete_makes_earlier_deletes_of_the_key_durable() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    // Keeps the first page from being recast to the second one's class.
    assert!(matches!(machine.put(b"neighbour", &[1; 604]), Reply::Done { .. }));
    assert!(matches!(machine.put(b"k", &[1; 604]), Reply::Done { .. }));
    assert!(matches!(machine.run(delete_operation(b"k", Level::ProcessCrash)), Reply::Done { existed: true, .. }));
    assert!(matches!(machine.put(b"k", &[2; 44]), Reply::Done { existed: false, .. }));
    assert!(matches!(machine.delete(b"k"), Reply::Done { existed: true, .. }));
    machine.disk.lose_all_unflushed();
    machine.recover(MEMORY, None).unwrap();
    assert_eq!(machine.get(b"k"), Ok(None));
}

/// Writes that need no flush left older copies that only a flush allows to clear, until the disk
/// was full.
#[test]
fn older_copies_are_cleared_without_a_durable_write() {
    let mut machine = Machine::create(1, 8 << 20, MEMORY, Some(8 << 20));
    for number in 0..500u32 {
        let value = vec![number as u8; 100_000];
        let reply = machine.run(put_operation(b"k", &value, Expiry::NEVER, Level::ProcessCrash));
        assert!(matches!(reply, Reply::Done { .. }), "{number}: {reply:?}");
    }
    machine.run_until_idle();
    assert!(machine.slab.check().blob_pages < 1000);
}

/// Growth or a checkpoint had a flush in flight beside a group's. The one failed, the other
/// succeeded, was heard of first and was believed: a large value lacked pages. The harness counts
/// flushes in flight.
#[test]
fn growth_and_checkpoints_flush_when_no_group_does() {
    each_engine!(E, placement => {
        let mut machine = Machine::<E>::create_as(3, 1 << 30, MEMORY, None);
        let before = machine.disk.current.len();
        let mut waiting = std::collections::VecDeque::new();
        for number in 0..4000u32 {
            let value = vec![number as u8; [30_000, 700, 3000][number as usize % 3]];
            let key = number.to_be_bytes();
            waiting.push_back(machine.submit(put_operation(&key, &value, Expiry::NEVER, Level::PowerLoss)));
            if waiting.len() > 8 {
                let reply = waiting.pop_front().map(|oldest| machine.wait(oldest));
                assert!(matches!(reply, Some(Reply::Done { .. })), "{reply:?}");
            }
        }
        machine.close();
        assert!(machine.disk.current.len() > 2 * before, "{placement}: it never grew");
    });
}
