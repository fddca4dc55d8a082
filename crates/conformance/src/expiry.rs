//! Records that expire: invisible at once, at their millisecond.

use std::ops::Bound;

use stratakv_base::Expiry;
use stratakv_engine::{Expect, Reply, Unmet, Update};

use super::Subject;
use super::ask::{
    brief, delete_of, done, expect_absent, expect_value, key, page_of, put, put_with, scan, unmet, update_of,
};

/// Visible one millisecond before, gone at it.
pub fn at_its_millisecond_a_record_is_gone(subject: &mut dyn Subject) {
    let now = subject.wall().0;
    done(subject.execute(put_with(&key("soon"), "v", 0, Expiry(now + 10), Expect::Any)));
    done(subject.execute(put_with(&key("past"), "v", 0, Expiry(now - 1), Expect::Any)));
    done(subject.execute(put_with(&key("now"), "v", 0, Expiry(now), Expect::Any)));
    done(subject.execute(put_with(&key("later"), "v", 7, Expiry(now + 86_400_123), Expect::Any)));
    put(subject, &key("never"), "v");
    expect_absent(subject, &key("past"));
    expect_absent(subject, &key("now"));
    subject.advance_wall(9);
    assert_eq!(expect_value(subject, &key("soon"), b"v").expiry, Expiry(now + 10));
    assert_eq!(expect_value(subject, &key("later"), b"v").expiry, Expiry(now + 86_400_123));
    subject.advance_wall(1);
    expect_absent(subject, &key("soon"));
    subject.advance_wall(1 << 20);
    expect_value(subject, &key("never"), b"v");
    put(subject, &key("soon"), "again");
    expect_value(subject, &key("soon"), b"again");
}

/// Conditions, deletes and updates treat it as absent.
pub fn an_expired_key_is_absent_to_conditions(subject: &mut dyn Subject) {
    let k = key("k");
    let dying = |subject: &mut dyn Subject| {
        let expiry = Expiry(subject.wall().0 + 5);
        let (version, _) = done(subject.execute(put_with(&k, "5", 0, expiry, Expect::Any)));
        subject.advance_wall(5);
        version
    };
    let version = dying(subject);
    assert_eq!(unmet(subject.execute(put_with(&k, "x", 0, Expiry::NEVER, Expect::Present))), Unmet::Absent);
    assert_eq!(unmet(subject.execute(put_with(&k, "x", 0, Expiry::NEVER, Expect::Version(version)))), Unmet::Absent);
    assert_eq!(unmet(subject.execute(update_of(&k, Update::Increment(1)))), Unmet::Absent);
    assert_eq!(unmet(subject.execute(update_of(&k, Update::Append("x".into())))), Unmet::Absent);
    let touch = subject.execute(update_of(&k, Update::Touch(Expiry::NEVER)));
    assert!(matches!(touch, Reply::Record(None)), "a touch does not revive it: {}", brief(&touch));
    assert_eq!(done(subject.execute(delete_of(&k))), (0, false), "it did not exist any more");
    dying(subject);
    let (_, existed) = done(subject.execute(put_with(&k, "new", 0, Expiry::NEVER, Expect::Absent)));
    assert!(!existed);
    expect_value(subject, &k, b"new");
    dying(subject);
    assert!(!done(subject.execute(super::ask::put_of(&k, "newer"))).1, "an expired record does not count as existing");
}

/// Reopening neither revives nor kills.
pub fn survives_reopening(subject: &mut dyn Subject) {
    let now = subject.wall().0;
    for number in 0..50u64 {
        let expiry = Expiry(now + 10 + number % 2 * 1000);
        done(subject.execute(put_with(&key(format!("k{number}")), "v", 0, expiry, Expect::Any)));
    }
    subject.advance_wall(5);
    subject.reopen();
    for number in 0..50 {
        expect_value(subject, &key(format!("k{number}")), b"v");
    }
    subject.advance_wall(5);
    for _ in 0..2 {
        subject.reopen();
        for number in 0..50 {
            match number % 2 {
                0 => expect_absent(subject, &key(format!("k{number}"))),
                _ => drop(expect_value(subject, &key(format!("k{number}")), b"v")),
            }
        }
    }
}

/// Scans with and without records.
pub fn pages_leave_out_expired_records(subject: &mut dyn Subject) {
    if !subject.capabilities().ordered {
        return;
    }
    let now = subject.wall().0;
    for number in 0..40u64 {
        let expiry = Expiry(if number % 2 == 0 { now + 10 } else { 0 });
        done(subject.execute(put_with(&key(format!("k{number:02}")), "v", 0, expiry, Expect::Any)));
    }
    subject.advance_wall(10);
    for (keys_only, items_max) in [(false, 1000), (true, 1000), (false, 3), (true, 3), (true, 1)] {
        let mut request = page_of(Bound::Unbounded, Bound::Unbounded, false);
        (request.keys_only, request.items_max) = (keys_only, items_max);
        let found: Vec<_> = scan(subject, request).into_iter().map(|(key, _)| key).collect();
        let expected: Vec<_> = (0..40).filter(|n| n % 2 == 1).map(|n| key(format!("k{n:02}"))).collect();
        assert_eq!(found, expected, "keys_only {keys_only}, pages of {items_max}");
    }
}
