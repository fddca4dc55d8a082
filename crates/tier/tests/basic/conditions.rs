//! Conditional puts on a full cache.

use super::*;

/// A put made room first and looked at its condition then: an `add` of a key that is there drove
/// other records out, and wrote nothing.
#[test]
fn a_put_that_its_condition_refuses_evicts_nothing() {
    let mut driver = Driver::new(TierConfig { capacity_bytes: None, ..config() });
    let mut newest = 0;
    while driver.statistic("evictions") == 0 {
        newest += 1;
        assert!(matches!(driver.put(newest, 4000), Reply::Done { .. }));
    }
    let before = (driver.statistic("evictions"), driver.statistic("items"));
    for _ in 0..1000 {
        // The longest one that would still find a place at some time.
        let kind = ChangeKind::Put { value: value(newest, 100_000).into(), flags: 0, expiry: Expiry(0) };
        let changes = vec![Change { key: key(newest), expect: Expect::Absent, kind }];
        let reply = driver.ask(Operation::Write { changes, level: Level::Memory });
        assert!(matches!(reply, Reply::Unmet(_)), "{reply:?}");
    }
    assert_eq!((driver.statistic("evictions"), driver.statistic("items")), before);
}
