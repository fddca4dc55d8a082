//! Writes under a condition: checked and applied as one step; unmet, they change nothing.

use stratakv_base::{Expiry, Key, Level};
use stratakv_engine::{Capability, Change, ChangeKind, Error, Expect, Operation, Reply, Unmet};

use super::Subject;
use super::ask::{delete, done, expect_absent, expect_value, key, put, put_with, unmet, write_of};

fn put_if(key: &Key, value: &'static str, expect: Expect) -> Operation {
    put_with(key, value, 0, Expiry::NEVER, expect)
}

/// Only if the key does not exist.
pub fn absent(subject: &mut dyn Subject) {
    let k = key("k");
    let (version, existed) = done(subject.execute(put_if(&k, "first", Expect::Absent)));
    assert!(!existed);
    assert_eq!(unmet(subject.execute(put_if(&k, "second", Expect::Absent))), Unmet::Present { version });
    subject.reopen();
    assert_eq!(unmet(subject.execute(put_if(&k, "third", Expect::Absent))), Unmet::Present { version });
    expect_value(subject, &k, b"first");
    delete(subject, &k);
    done(subject.execute(put_if(&k, "fourth", Expect::Absent)));
    expect_value(subject, &k, b"fourth");
}

/// Only if it exists.
pub fn present(subject: &mut dyn Subject) {
    let k = key("k");
    assert_eq!(unmet(subject.execute(put_if(&k, "first", Expect::Present))), Unmet::Absent);
    expect_absent(subject, &k);
    put(subject, &k, "second");
    assert!(done(subject.execute(put_if(&k, "third", Expect::Present))).1);
    expect_value(subject, &k, b"third");
}

/// Only if it has this version: compare-and-swap.
pub fn version(subject: &mut dyn Subject) {
    let k = key("k");
    assert_eq!(unmet(subject.execute(put_if(&k, "none", Expect::Version(1)))), Unmet::Absent);
    expect_absent(subject, &k);
    let first = put(subject, &k, "first");
    let (second, _) = done(subject.execute(put_if(&k, "second", Expect::Version(first))));
    assert!(second > first);
    let stale = unmet(subject.execute(put_if(&k, "stale", Expect::Version(first))));
    assert_eq!(stale, Unmet::Version { found: second });
    let future = unmet(subject.execute(put_if(&k, "future", Expect::Version(second + 1))));
    assert_eq!(future, Unmet::Version { found: second });
    subject.reopen();
    expect_value(subject, &k, b"second");
    done(subject.execute(put_if(&k, "third", Expect::Version(second))));
    expect_value(subject, &k, b"third");
}

/// Deletes take conditions too.
pub fn on_deletes(subject: &mut dyn Subject) {
    let k = key("k");
    let delete_if = |expect| write_of(&key("k"), expect, ChangeKind::Delete);
    assert_eq!(unmet(subject.execute(delete_if(Expect::Present))), Unmet::Absent);
    assert_eq!(unmet(subject.execute(delete_if(Expect::Version(3)))), Unmet::Absent);
    let version = put(subject, &k, "v");
    assert_eq!(unmet(subject.execute(delete_if(Expect::Version(version + 1)))), Unmet::Version { found: version });
    assert_eq!(unmet(subject.execute(delete_if(Expect::Absent))), Unmet::Present { version });
    expect_value(subject, &k, b"v");
    assert!(done(subject.execute(delete_if(Expect::Version(version)))).1);
    expect_absent(subject, &k);
}

fn checks(changes: &[(&Key, Expect)]) -> Operation {
    let check =
        |(key, expect): &(&Key, Expect)| Change { key: (*key).clone(), expect: *expect, kind: ChangeKind::Check };
    Operation::Write { changes: changes.iter().map(check).collect(), level: Level::PowerLoss }
}

/// Whether an engine without batches says so.
fn is_unsupported(reply: &Reply) -> bool {
    matches!(reply, Reply::Failed(Error::Unsupported(Capability::Batch)))
}

/// Checks alone: the answer tells whether all hold, and nothing is changed.
pub fn checks_change_nothing(subject: &mut dyn Subject) {
    let (there, gone) = (key("there"), key("gone"));
    let version = put(subject, &there, "value");
    let reply = subject.execute(checks(&[(&there, Expect::Version(version))]));
    if is_unsupported(&reply) {
        return;
    }
    assert_eq!(done(reply), (0, false), "nothing was changed");
    let both = [(&there, Expect::Present), (&gone, Expect::Absent)];
    assert_eq!(done(subject.execute(checks(&both))), (0, false));
    assert_eq!(unmet(subject.execute(checks(&[(&there, Expect::Absent)]))), Unmet::Present { version });
    let one_fails = [(&there, Expect::Version(version)), (&gone, Expect::Present)];
    assert_eq!(unmet(subject.execute(checks(&one_fails))), Unmet::Absent);
    assert_eq!(expect_value(subject, &there, b"value").version, version, "a check makes no version");
    subject.reopen();
    assert_eq!(expect_value(subject, &there, b"value").version, version);
    expect_absent(subject, &gone);
    // What was checked is held no longer.
    assert!(put(subject, &there, "next") > version);
}

/// Checks among changes: all of it, or nothing. The answer speaks of the last change.
pub fn checks_of_a_batch_hold_or_nothing_is_done(subject: &mut dyn Subject) {
    let (checked, changed) = (key("checked"), key("changed"));
    let batch = |expect: Expect, value: &'static str| {
        let kind = ChangeKind::Put { value: value.into(), flags: 0, expiry: Expiry::NEVER };
        let put = Change { key: changed.clone(), expect: Expect::Any, kind };
        let check = Change { key: checked.clone(), expect, kind: ChangeKind::Check };
        Operation::Write { changes: vec![put, check], level: Level::PowerLoss }
    };
    let reply = subject.execute(batch(Expect::Absent, "first"));
    if is_unsupported(&reply) {
        return expect_absent(subject, &changed);
    }
    let (first, existed) = done(reply);
    assert!(first > 0 && !existed, "the answer speaks of the put");
    assert_eq!(expect_value(subject, &changed, b"first").version, first);
    assert_eq!(unmet(subject.execute(batch(Expect::Present, "second"))), Unmet::Absent);
    expect_value(subject, &changed, b"first");
    let version = put(subject, &checked, "value");
    let (_, existed) = done(subject.execute(batch(Expect::Version(version), "third")));
    assert!(existed || subject.capabilities().blind);
    let stale = subject.execute(batch(Expect::Version(version + 1), "fourth"));
    assert_eq!(unmet(stale), Unmet::Version { found: version });
    subject.reopen();
    expect_value(subject, &changed, b"third");
    assert_eq!(expect_value(subject, &checked, b"value").version, version);
}
