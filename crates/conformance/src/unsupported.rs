//! What an engine lacks, it says; and a batch is whole or refused.

use std::ops::Bound;

use stratakv_base::{Expiry, Level};
use stratakv_engine::{Capability, Change, ChangeKind, Error, Expect, Operation, PageRequest, Reply, SnapshotOp};

use super::Subject;
use super::ask::{brief, expect_absent, expect_value, failed, key, page_of, put};

/// `Unsupported`, with what is lacking; never silence, never a wrong answer.
pub fn answers_say_so(subject: &mut dyn Subject) {
    put(subject, &key("k"), "v");
    let capabilities = subject.capabilities();
    let all = page_of(Bound::Unbounded, Bound::Unbounded, false);
    if !capabilities.ordered {
        assert_eq!(failed(subject.execute(Operation::Page(all.into()))), Error::Unsupported(Capability::Ordered));
    } else if !capabilities.snapshot {
        let reply = subject.execute(Operation::Page(PageRequest { at: Some(1), ..all }.into()));
        assert_eq!(failed(reply), Error::Unsupported(Capability::Snapshot));
    }
    if !capabilities.snapshot {
        for snapshot in [SnapshotOp::Open, SnapshotOp::Close(1)] {
            let reply = subject.execute(Operation::Snapshot(snapshot));
            assert_eq!(failed(reply), Error::Unsupported(Capability::Snapshot));
        }
    }
    if !capabilities.durable {
        let kind = ChangeKind::Put { value: "durable".into(), flags: 0, expiry: Expiry::NEVER };
        let changes = vec![Change { key: key("k"), expect: Expect::Any, kind }];
        let reply = subject.execute(Operation::Write { changes, level: Level::ProcessCrash });
        assert_eq!(failed(reply), Error::Unsupported(Capability::Level));
    }
    match subject.execute(Operation::Backup { cursor: 0, shard: 0 }) {
        Reply::Failed(Error::Unsupported(Capability::Backup)) | Reply::Record(_) | Reply::Number { .. } => {}
        other => panic!("a backup is given or refused, not {}", brief(&other)),
    }
    expect_value(subject, &key("k"), b"v");
}

/// Several changes in one write: all, none on an unmet condition, or refused by an engine without
/// batches.
pub fn batches_are_atomic_or_refused(subject: &mut dyn Subject) {
    put(subject, &key("old"), "old");
    let put_change = |name: &str, expect| {
        let kind = ChangeKind::Put { value: "new".into(), flags: 0, expiry: Expiry::NEVER };
        Change { key: key(name), expect, kind }
    };
    let batch = |last: Expect| Operation::Write {
        changes: vec![
            put_change("a", Expect::Any),
            Change { key: key("old"), expect: Expect::Present, kind: ChangeKind::Delete },
            put_change("b", last),
        ],
        level: Level::PowerLoss,
    };
    match subject.execute(batch(Expect::Present)) {
        Reply::Unmet(_) | Reply::Failed(Error::Unsupported(Capability::Batch)) => {}
        other => panic!("a batch with an unmet condition changes nothing, not {}", brief(&other)),
    }
    expect_absent(subject, &key("a"));
    expect_value(subject, &key("old"), b"old");
    match subject.execute(batch(Expect::Absent)) {
        Reply::Done { .. } => {
            subject.reopen();
            expect_value(subject, &key("a"), b"new");
            expect_value(subject, &key("b"), b"new");
            expect_absent(subject, &key("old"));
        }
        Reply::Failed(Error::Unsupported(Capability::Batch)) => {
            expect_absent(subject, &key("a"));
            expect_value(subject, &key("old"), b"old");
        }
        other => panic!("a batch is done or refused, not {}", brief(&other)),
    }
}
