//! Writes under a condition: checked and applied as one step; unmet, they change nothing.

use stratakv_base::{Expiry, Key};

use super::Subject;
use super::ask::{delete, done, expect_absent, expect_value, key, put, put_with, unmet, write_of};
use crate::error::Unmet;
use crate::operation::{ChangeKind, Expect, Operation};

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
