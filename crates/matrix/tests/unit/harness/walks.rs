//! Walks past records that are not shown: bounded by what they visit.

use std::ops::Bound;

use stratakv_engine::LoadRecord;

use super::*;

/// Records that a request visits, and its reply.
fn visits(harness: &mut Harness, operation: Operation) -> (u64, Reply) {
    let before = harness.statistic("records_visited");
    let reply = harness.ask(operation);
    (harness.statistic("records_visited") - before, reply)
}

fn bounds(from: &str, to: &str) -> (Bound<Key>, Bound<Key>) {
    (Bound::Included(key(from)), Bound::Excluded(key(to)))
}

fn scan(from: &str, to: &str, reverse: bool) -> Operation {
    let (from, to) = bounds(from, to);
    let (keys_only, items_max, bytes_max, at) = (true, 100, 1 << 20, None);
    Operation::Page(PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at }.into())
}

fn deletion(from: &str, to: &str) -> Operation {
    Operation::DeleteRange { range: Box::new(bounds(from, to)), level: Level::PowerLoss }
}

fn keys(reply: &Reply) -> Vec<String> {
    let Reply::Page { items, next: None } = reply else { panic!("{reply:?}") };
    items.iter().map(|item| String::from_utf8_lossy(item.key.user()).into_owned()).collect()
}

fn put_each(harness: &mut Harness, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    for some in names.chunks(200) {
        let puts = some.iter().map(|name| put(name, value(1, 20))).collect();
        assert!(matches!(harness.ask(write(puts)), Reply::Done { .. }));
    }
}

fn delete_each(harness: &mut Harness, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    for some in names.chunks(200) {
        let deletes = some.iter().map(|name| delete(name)).collect();
        assert!(matches!(harness.ask(write(deletes)), Reply::Done { .. }));
    }
}

fn harness() -> Harness {
    Harness::new(config(), 8 << 20, UNIT_BYTES)
}

const DEAD: u64 = 6000;

/// A neighbour of whom nothing is left: `b000000` and so on.
fn with_dead_neighbour(harness: &mut Harness) {
    put_each(harness, (0..DEAD).map(|number| format!("b{number:06}")));
    delete_each(harness, (0..DEAD).map(|number| format!("b{number:06}")));
}

/// A delete of a range that went on as a walk ended, and nobody told the write that waited for it
/// (found by the world of many operations at once).
#[test]
pub(super) fn who_waits_for_a_walk_goes_on_when_that_is_over() {
    let mut harness = harness();
    put_each(&mut harness, (0..DEAD).map(|number| format!("b{number:06}")));
    let tokens = [harness.submit(deletion("b", "c")), harness.submit(write(vec![put("b000001", value(1, 20))]))];
    harness.run_until_idle();
    for token in tokens {
        let reply = harness.replies.remove(&token);
        assert!(matches!(reply, Some(Reply::Number { number: DEAD, .. } | Reply::Done { .. })), "{reply:?}");
    }
}

/// A scan looked at its bound only when it had found a key that is there: it passed all that its
/// neighbours had deleted.
#[test]
pub(super) fn a_walk_ends_at_its_bound() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    put_each(&mut harness, ["a1", "d1"].into_iter().map(str::to_owned));
    for reverse in [false, true] {
        for (from, to, expected) in [("a", "b", &["a1"][..]), ("c", "d", &[]), ("c", "e", &["d1"])] {
            let (visits, reply) = visits(&mut harness, scan(from, to, reverse));
            assert_eq!(keys(&reply), expected);
            assert!(visits <= 2, "{visits} records from {from} to {to}, {reverse}");
        }
    }
    for (from, to) in [("a2", "b"), ("c", "d")] {
        let (visits, reply) = visits(&mut harness, deletion(from, to));
        assert!(matches!(reply, Reply::Number { number: 0, .. }), "{reply:?}");
        assert!(visits <= 2, "{visits} records to delete nothing from {from} to {to}");
    }
}

/// Rows that do not have the key of a get are not searched, and those whose next key lies beyond
/// the end of a scan are not read: those alone.
#[test]
pub(super) fn rows_are_left_out_that_have_nothing() {
    let mut harness = harness();
    let name = |number: u64| format!("{:04}-{}", number / 4, number % 4);
    // Interleaved: of four keys that begin alike each lies in another row.
    for rest in 0..4 {
        put_each(&mut harness, (0..2000).map(|number| name(4 * number + rest)));
    }
    assert!(harness.statistic("container_rows") >= 4);
    let absent = |harness: &mut Harness| {
        let before = harness.statistic("metadata_elements_touched");
        for number in 0..1000 {
            let found = harness.ask(Operation::Get { key: key(&format!("{number:04}-4")), part: RecordPart::Whole });
            assert!(matches!(found, Reply::Record(None)), "{found:?}");
        }
        harness.statistic("metadata_elements_touched") - before
    };
    assert!(absent(&mut harness) < 1000, "most rows are not searched");
    for number in (0..7990).step_by(7) {
        let found = harness.ask(Operation::Get { key: key(&name(number)), part: RecordPart::Whole });
        assert!(matches!(found, Reply::Record(Some(_))), "{found:?}");
        for (some, reverse) in [(0, false), (1, false), (9, false), (0, true), (1, true), (9, true)] {
            let mut expected: Vec<String> = (number..number + some).map(name).collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(keys(&harness.ask(scan(&name(number), &name(number + some), reverse))), expected);
        }
    }
    harness.shard.container.keep_filters_within(0);
    assert!(absent(&mut harness) > 4000, "all rows are searched");
}

/// What a walk has passed once, later ones do not pass again.
#[test]
pub(super) fn dead_records_are_passed_once() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    let mut each = |operation: Operation| visits(&mut harness, operation).0;
    let first = each(scan("a", "z", false));
    assert!(first >= DEAD, "{first} records");
    for operation in [scan("a", "z", false), scan("a", "z", true), scan("b1", "b2", true), deletion("a", "z")] {
        assert!(each(operation) <= 2);
    }
    // A put is seen, whatever is known of what lies around it.
    put_each(&mut harness, ["b003000".to_owned()].into_iter());
    for reverse in [false, true] {
        let (visits, reply) = visits(&mut harness, scan("a", "z", reverse));
        assert_eq!(keys(&reply), ["b003000"]);
        assert!(visits <= 6, "{visits} records, {reverse}");
    }
}

/// The same from behind, of which the first walk is one downwards.
#[test]
fn dead_records_are_passed_once_downwards() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    let first = visits(&mut harness, scan("a", "z", true)).0;
    assert!(first >= DEAD, "{first} records");
    for reverse in [true, false] {
        assert!(visits(&mut harness, scan("a", "z", reverse)).0 <= 2);
    }
}

/// Each pop of a queue passed all that had been taken before.
#[test]
pub(super) fn a_queue_is_linear() {
    for (back, reverse) in [(false, false), (true, true)] {
        let mut harness = harness();
        put_each(&mut harness, (0..2000).map(name));
        let mut popped = 0;
        let before = harness.statistic("records_visited");
        for number in 0..1000 {
            let number = if back { 1999 - number } else { number };
            let (from, to) = bounds("a", "z");
            let (keys_only, items_max, bytes_max, at) = (false, 1, 1 << 20, None);
            let first = PageRequest { from, to, reverse, keys_only, items_max, bytes_max, at };
            let Reply::Page { items, .. } = harness.ask(Operation::Page(first.into())) else { panic!("no page") };
            assert_eq!(items[0].key, key(&name(number)));
            delete_each(&mut harness, [name(number)].into_iter());
            popped += 1;
        }
        let each = (harness.statistic("records_visited") - before) / popped;
        assert!(each <= 40, "{each} records for each that is popped");
    }
}

/// While a scan passes what is not there, others are answered: no tick visits more than a few
/// thousand records.
#[test]
pub(super) fn a_walk_pauses() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    let walks: Vec<u32> = (0..3).map(|_| harness.submit(scan("a", "z", false))).collect();
    let (mut ticks, mut most) = (0, 0);
    while !walks.iter().all(|token| harness.replies.contains_key(token)) {
        let before = harness.statistic("records_visited");
        let get = harness.submit(get("b000001"));
        harness.tick();
        assert!(harness.replies.remove(&get).is_some(), "a get waits for scans");
        most = most.max(harness.statistic("records_visited") - before);
        ticks += 1;
        assert!(ticks < 100, "the scans never end");
        while harness.complete_where(None, |_| true) {}
    }
    assert!(ticks > 1 && most <= 2 * 4096 + 64, "{most} records in a tick, {ticks} ticks");
    let rest: Vec<_> = walks.iter().map(|token| keys(&harness.replies[token])).collect();
    assert_eq!(rest, vec![Vec::<String>::new(); 3]);
}

/// What expired is passed once, too; and found again by whoever asks by an earlier clock.
#[test]
fn expired_records_are_passed_once() {
    let mut harness = harness();
    let expiring = |number: u64| {
        let kind = ChangeKind::Put { value: value(1, 20), flags: 0, expiry: Expiry(1500) };
        Change { key: key(&name(number)), expect: Expect::Any, kind }
    };
    for some in 0..10 {
        assert!(matches!(
            harness.ask(write((some * 100..some * 100 + 100).map(expiring).collect())),
            Reply::Done { .. }
        ));
    }
    harness.now.wall = Wall(2000);
    assert!(visits(&mut harness, scan("a", "z", false)).0 >= 1000);
    assert!(visits(&mut harness, scan("a", "z", false)).0 <= 2);
    harness.now.wall = Wall(1200);
    assert_eq!(keys(&harness.ask(scan("key000100", "key000103", false))).len(), 3);
}

/// Deletes that walks have passed again and again went down only when other writes pushed them out.
#[test]
pub(super) fn dense_deletes_are_compacted_away() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    put_each(&mut harness, (0..50).map(|number| format!("c{number:06}")));
    let elements = |harness: &Harness| {
        let container = harness.shard.container.statistics();
        container.elements + container.keys
    };
    let before = elements(&harness);
    // Spans are forgotten, as at an opening.
    for _ in 0..6 {
        harness.shard.scheduler.walks_mut().spans.get_mut().forget(b"", &[255; 9]);
        assert_eq!(keys(&harness.ask(scan("a", "z", false))).len(), 50);
        harness.run_until_idle();
    }
    let after = elements(&harness) + harness.shard.tables().map(|table| table.facts.entries).sum::<u64>();
    assert!(before >= DEAD && after < before / 10, "{before} elements, then {after}");
    assert_eq!(keys(&harness.ask(scan("a", "z", false))).len(), 50);
    harness.assert_sound();
}

/// A load makes records appear in a span.
#[test]
fn a_load_into_a_dead_span_is_seen() {
    let mut harness = harness();
    with_dead_neighbour(&mut harness);
    assert!(keys(&harness.ask(scan("a", "z", false))).is_empty());
    let record = |number: u64| LoadRecord {
        key: key(&format!("c{number:03}")),
        value: value(number, 20),
        flags: 0,
        expiry: Expiry::NEVER,
    };
    let records: Vec<LoadRecord> = (0..50).map(record).collect();
    let reply = harness.ask(Operation::Load { records: records.into(), level: Level::PowerLoss });
    assert!(matches!(reply, Reply::Done { .. }), "{reply:?}");
    for reverse in [false, true] {
        assert_eq!(keys(&harness.ask(scan("a", "z", reverse))).len(), 50);
    }
}
