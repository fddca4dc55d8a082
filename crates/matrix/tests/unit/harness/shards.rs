//! Two shards of which one's medium fails in the middle of what both take part in, or that are only
//! read.

use stratakv_base::checksum::shard_of;
use stratakv_device::IoFault;
use stratakv_engine::{Error, ShardId, SnapshotOp};

use super::*;

/// Two shards, and of each whether its volume fails.
struct Pair([Harness; 2], [Option<IoFault>; 2]);

/// A key of this shard.
fn name_at(shard: usize) -> String {
    let mut names = (0..100).map(name);
    names.find(|name| shard_of(key(name).encoded(), 2) == shard).expect("one of a hundred")
}

fn of_both(seed: u64, bytes: usize) -> Operation {
    write([0, 1].map(|shard| put(&name_at(shard), value(seed, bytes))).into())
}

impl Pair {
    fn new() -> Pair {
        let shard = |shard| Harness::new(MatrixConfig { shard, shards: 2, ..config() }, 8 << 20, UNIT_BYTES);
        let mut pair = Pair([shard(0), shard(1)], [None; 2]);
        pair.run_while_woken();
        pair
    }

    /// A tick of one shard; what it says arrives. Whether it said anything, and whether it goes on.
    fn tick(&mut self, from: usize) -> (bool, bool) {
        let shard = &mut self.0[from];
        shard.tick();
        let mut goes_on = shard.more;
        while shard.complete_where(self.1[from], |_| true) {
            goes_on = true;
        }
        let said = std::mem::take(&mut shard.effects.messages);
        let speaks = !said.is_empty();
        for (to, message) in said {
            let Harness { shard, effects, .. } = &mut self.0[to.0 as usize];
            shard.message(ShardId(from as u32), message, effects);
        }
        (speaks, goes_on)
    }

    /// A shard ticks when something wakes it: a message, its disk, or a wish of its own. Until none
    /// does.
    fn run_while_woken(&mut self) {
        let mut woken = [true; 2];
        for _ in 0..TICKS_MAX {
            if woken == [false; 2] {
                return;
            }
            for from in 0..2 {
                if !std::mem::take(&mut woken[from]) {
                    continue;
                }
                let (speaks, goes_on) = self.tick(from);
                woken[1 - from] |= speaks;
                woken[from] |= goes_on;
            }
        }
        panic!("the shards never come to rest");
    }

    fn ask(&mut self, shard: usize, operation: Operation) -> Reply {
        let token = self.0[shard].submit(operation);
        self.run_while_woken();
        self.0[shard].replies.remove(&token).expect("nobody answers")
    }

    fn close(&mut self) {
        for harness in &mut self.0 {
            harness.shard.close(&mut harness.effects);
        }
        self.run_while_woken();
        for (at, harness) in self.0.iter().enumerate() {
            assert!(harness.shard.is_closed(), "shard {at} never closes");
        }
    }

    fn reopen(&mut self) {
        self.0.iter_mut().for_each(Harness::reopen);
        self.run_while_woken();
    }

    fn reopen_reading(&mut self, read_only: bool) {
        self.0.iter_mut().for_each(|harness| harness.config.read_only = read_only);
        self.reopen();
    }

    /// What both shards have under their keys.
    fn found(&mut self) -> [Option<Vec<u8>>; 2] {
        [0, 1].map(|shard| found(&self.ask(shard, get(&name_at(shard)))))
    }
}

/// Of batches one after the other, each with its seed and length: the last one that was
/// acknowledged, or a later one, is there.
fn assert_acknowledged(found: &[Option<Vec<u8>>; 2], batches: [(&Reply, u64, usize); 2], at: &str) {
    let Some(last) = batches.iter().rposition(|(reply, ..)| matches!(reply, Reply::Done { .. })) else { return };
    let may_be = |(_, seed, bytes): &(&Reply, u64, usize)| found[0].as_deref() == Some(&value(*seed, *bytes)[..]);
    assert!(batches[last..].iter().any(may_be), "it was acknowledged: {at}");
}

/// What a failed fence left behind never became durable. Whoever waited for that waited for ever:
/// the barrier of a snapshot or a backup, so every later batch, so the end.
#[test]
fn nobody_waits_for_a_version_that_never_becomes_durable() {
    let mut refused_barriers = 0;
    for (broken, fences) in (0..2).flat_map(|broken| (0..3).map(move |fences| (broken, fences))) {
        let mut pair = Pair::new();
        pair.0[broken].fail_fences_after(fences);
        pair.ask(broken, write(vec![put(&name_at(broken), value(1, 10))]));
        for begins in [Operation::Snapshot(SnapshotOp::Open), Operation::Backup { cursor: 0, shard: 0 }] {
            let is_refused = matches!(pair.ask(0, begins), Reply::Failed(_));
            refused_barriers += u32::from(is_refused);
            let open = pair.0.iter().map(|harness| harness.shard.snapshots.len());
            assert!(!is_refused || open.sum::<usize>() == 0, "it is let go everywhere");
            pair.0.iter_mut().for_each(|harness| while harness.shard.snapshots.end_oldest() {});
        }
        pair.ask(0, of_both(2, 10));
        pair.close();
    }
    assert!(refused_barriers > 0, "no fence left anything behind");
}

/// Whichever fence of a batch fails, at whichever shard: its caller is told, so are those who come
/// later, the shards close, and the next opening finds all of the batch or nothing.
#[test]
fn a_batch_ends_whichever_of_its_fences_fails() {
    for (broken, fences) in (0..2).flat_map(|broken| (0..6).map(move |fences| (broken, fences))) {
        let mut pair = Pair::new();
        pair.0[broken].fail_fences_after(fences);
        let batch = pair.ask(0, of_both(3, 10));
        let later = pair.ask(0, of_both(4, 10));
        pair.ask(0, Operation::Snapshot(SnapshotOp::Open));
        pair.close();
        pair.0[broken].fail_fences_after(i64::MAX);
        pair.reopen();
        let found = pair.found();
        let at = format!("shard {broken}, after {fences} fences: {batch:?}, {later:?}");
        assert_eq!(found[0], found[1], "{at}");
        assert_acknowledged(&found, [(&batch, 3, 10), (&later, 4, 10)], &at);
        pair.close();
    }
}

/// Both shards end when one batch is committed, and shard 1 has logged its part and never heard.
fn applied_at_shard_0() -> Pair {
    let mut pair = Pair::new();
    pair.0[0].submit(of_both(5, 10));
    let is_applied = |harness: &Harness| harness.shard.batches.done() == 1;
    for _ in 0..100 {
        if !is_applied(&pair.0[0]) {
            pair.tick(1);
            pair.tick(0);
        }
    }
    assert!(is_applied(&pair.0[0]), "it is never committed");
    pair.0[0].run_until_idle();
    pair
}

/// Its medium fails when shard 1 has told what it found at the opening. What is decided then could
/// not be applied, and nobody said so.
#[test]
fn nobody_waits_for_a_shard_that_fails_between_what_it_found_and_the_decision() {
    let mut pair = applied_at_shard_0();
    pair.0.iter_mut().for_each(Harness::reopen);
    // It reads, in a tick or two, and tells; shard 0 does not hear of it yet.
    for _ in 0..4 {
        pair.tick(1);
    }
    let error = Error::Unknown("the region fails");
    pair.0[1].shard.fail_region(error);
    for _ in 0..2 {
        pair.tick(1);
    }
    pair.run_while_woken();
    pair.ask(0, Operation::Snapshot(SnapshotOp::Open));
    pair.ask(0, of_both(6, 10));
    pair.close();
    pair.reopen();
    assert_eq!(pair.found(), [0, 1].map(|_| Some(value(5, 10).to_vec())));
}

/// It was committed at one shard alone before the end. Who only reads cannot apply it, so he is
/// refused; the store of that reader never closed.
#[test]
fn who_only_reads_a_store_with_a_batch_to_be_applied_can_close_it() {
    let mut pair = applied_at_shard_0();
    pair.reopen_reading(true);
    assert!(pair.0.iter().all(|harness| harness.shard.batches.may_serve()), "the opening never ends");
    let replies = [0, 1].map(|shard| pair.ask(shard, get(&name_at(shard))));
    let says = |reply: &Reply| matches!(reply, Reply::Failed(Error::WrongVolume(_)));
    assert!(replies.iter().any(says), "{replies:?}");
    pair.close();
    pair.reopen_reading(false);
    assert_eq!(pair.found(), [0, 1].map(|_| Some(value(5, 10).to_vec())));
    pair.close();
}

/// The same of volumes, which have the long values.
#[test]
fn a_batch_ends_whenever_a_volume_begins_to_fail() {
    let mut failed = 0;
    for (broken, after) in (0..2).flat_map(|broken| (0..12).map(move |after| (broken, after))) {
        let mut pair = Pair::new();
        let first = pair.0[0].submit(of_both(6, 9000));
        for _ in 0..after {
            (0..2).for_each(|shard| _ = pair.tick(shard));
        }
        pair.1[broken] = Some(IoFault::Os(5));
        pair.run_while_woken();
        let first = pair.0[0].replies.remove(&first);
        let at = format!("shard {broken} after {after} ticks: {first:?}");
        let first = first.expect("nobody answers");
        let later = pair.ask(0, of_both(7, 9000));
        failed += u32::from(matches!(later, Reply::Failed(_)));
        pair.ask(0, Operation::Snapshot(SnapshotOp::Open));
        pair.close();
        pair.1 = [None; 2];
        pair.reopen();
        let found = pair.found();
        assert_eq!(found[0], found[1], "{at}");
        assert_acknowledged(&found, [(&first, 6, 9000), (&later, 7, 9000)], &at);
    }
    assert!(failed > 0, "no volume failed");
}

/// The same with all that shards do together under way at once, whichever store or fence fails.
#[test]
fn everybody_is_answered_whichever_store_or_fence_fails() {
    for (broken, calls) in (0..2).flat_map(|broken| (0..60).map(move |calls| (broken, calls))) {
        for fails in [Harness::fail_stores_after, Harness::fail_fences_after] {
            let mut pair = Pair::new();
            fails(&pair.0[broken], calls);
            let asked = [
                of_both(8, 10),
                Operation::Snapshot(SnapshotOp::Open),
                of_both(9, 9000),
                Operation::Backup { cursor: 0, shard: 0 },
                of_both(10, 10),
            ];
            let tokens = asked.map(|operation| pair.0[0].submit(operation));
            let own = pair.0[1].submit(write(vec![put(&name_at(1), value(11, 10))]));
            pair.run_while_woken();
            let at = format!("shard {broken} after {calls} calls");
            assert!(tokens.iter().all(|token| pair.0[0].replies.contains_key(token)), "{at}: nobody answers");
            assert!(pair.0[1].replies.contains_key(&own), "{at}: nobody answers shard 1's own");
            pair.close();
            fails(&pair.0[broken], i64::MAX);
            pair.reopen();
            pair.ask(0, page(10, None));
            pair.close();
        }
    }
}
