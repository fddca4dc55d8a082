//! Loads: all records or none, where nothing lies yet; or the engine says that it has none.

use stratakv_base::{Expiry, Level};
use stratakv_engine::{Capability, Error, LoadRecord, Operation, Reply, Unmet};

use super::Subject;
use super::ask::{brief, expect_absent, expect_value, failed, fill, key, put};

fn record(name: &str, len: usize) -> LoadRecord {
    LoadRecord { key: key(name), value: fill(len as u64, len), flags: len as u32, expiry: Expiry::NEVER }
}

fn load_of(records: Vec<LoadRecord>) -> Operation {
    Operation::Load { records: records.into(), level: Level::PowerLoss }
}

/// Beside what is there, over a reopening, and never over anything.
pub fn loads_are_whole_or_refused(subject: &mut dyn Subject) {
    let before = put(subject, &key("z"), "there");
    let records: Vec<LoadRecord> = (0..50).map(|number| record(&format!("k{number:03}"), 97 * number)).collect();
    let version = match subject.execute(load_of(records.clone())) {
        Reply::Done { version, existed: false } => version,
        Reply::Failed(Error::Unsupported(Capability::Load)) => {
            return expect_absent(subject, &key("k001"));
        }
        other => panic!("a load is done or refused, not {}", brief(&other)),
    };
    assert!(version > before, "version {version} of a load after {before}");
    for _ in 0..2 {
        for record in &records {
            expect_value(subject, &record.key, &record.value);
        }
        expect_value(subject, &key("z"), b"there");
        subject.reopen();
    }
    let over = subject.execute(load_of(vec![record("k0005", 3), record("k0015", 3)]));
    assert!(matches!(over, Reply::Unmet(Unmet::Occupied)), "{}", brief(&over));
    expect_absent(subject, &key("k0005"));
    assert!(put(subject, &key("k0005"), "later") > version);
    let turned = vec![record("m2", 1), record("m1", 1)];
    assert!(matches!(failed(subject.execute(load_of(turned))), Error::Unsorted(_)));
    assert!(matches!(failed(subject.execute(load_of(Vec::new()))), Error::BadBatch(_)));
    expect_absent(subject, &key("m1"));
}
