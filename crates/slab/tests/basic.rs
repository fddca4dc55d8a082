//! One shard, step by step: what a user of the contract sees.

#[expect(dead_code, reason = "each test binary uses its part of the harness")]
mod harness;

use bytes::Bytes;
use harness::*;
use stratakv_base::{Expiry, Level};
use stratakv_engine::{ChangeKind, Expect, Reply, Shard, Unmet};

const MEMORY: u64 = 8 << 20;

#[test]
fn values_of_every_size_survive_overwriting_closing_and_reopening() {
    let mut machine = Machine::create(1, 1 << 30, MEMORY, None);
    let sizes = [0, 1, 30, 100, 500, 1000, 2000, 3900, 4000, 4096, 5000, 20_000, 65_300, 65_536, 200_000, 1 << 20];
    for round in 0..3usize {
        for (number, size) in sizes.iter().enumerate() {
            let size = sizes[(number + round) % sizes.len()].max(*size / 2);
            let reply = machine.put(format!("key{number}").as_bytes(), &vec![number as u8; size]);
            assert!(matches!(reply, Reply::Done { existed, .. } if existed == (round > 0)), "{reply:?}");
        }
        for (number, size) in sizes.iter().enumerate() {
            let size = sizes[(number + round) % sizes.len()].max(*size / 2);
            let value = machine.get(format!("key{number}").as_bytes()).unwrap().unwrap();
            assert!(value == vec![number as u8; size], "key{number} of {size} bytes, round {round}");
        }
        machine.run_until_idle();
        assert_eq!(machine.slab.check().mistakes, Vec::<String>::new());
        machine.close();
        machine.recover(MEMORY, None).unwrap();
        assert!(machine.slab.recovery().clean);
        assert!(machine.slab.recovery().corrupt.is_empty(), "{:?}", machine.slab.recovery());
        assert_eq!(machine.slab.recovery().records, sizes.len() as u64);
    }
    for number in 0..sizes.len() {
        assert!(matches!(machine.delete(format!("key{number}").as_bytes()), Reply::Done { existed: true, .. }));
        assert_eq!(machine.get(format!("key{number}").as_bytes()), Ok(None));
    }
    machine.run_until_idle();
    let report = machine.slab.check();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.records, report.blob_pages, report.deferred_pages), (0, 0, 0));
}

#[test]
fn unmet_is_named() {
    let mut machine = Machine::create(5, 1 << 30, 4 << 20, None);
    let put = |expect| {
        let kind = ChangeKind::Put { value: Bytes::from_static(b"v"), flags: 0, expiry: Expiry::NEVER };
        harness::write(b"k", expect, kind, Level::PowerLoss)
    };
    assert!(matches!(machine.run(put(Expect::Present)), Reply::Unmet(Unmet::Absent)));
    let Reply::Done { version, existed: false } = machine.run(put(Expect::Absent)) else { panic!() };
    let present = machine.run(put(Expect::Absent));
    assert!(matches!(present, Reply::Unmet(Unmet::Present { version: found }) if found == version));
    let other = machine.run(put(Expect::Version(version + 1)));
    assert!(matches!(other, Reply::Unmet(Unmet::Version { found }) if found == version));
    assert!(matches!(machine.run(put(Expect::Version(version))), Reply::Done { existed: true, .. }));
    machine.run_until_idle();
    assert!(machine.slab.statistics_sum("records") == 1);
}

trait Sum {
    fn statistics_sum(&self, name: &str) -> u64;
}

impl Sum for stratakv_slab::Slab {
    fn statistics_sum(&self, name: &str) -> u64 {
        let mut all = Vec::new();
        self.statistics(&mut all);
        all.iter().filter(|statistic| statistic.name == name).map(|statistic| statistic.value).sum()
    }
}

/// The account of memory: every byte of the cap is for something, and blocks hold what is cached.
#[test]
fn parts_of_the_memory_add_up_to_the_cap() {
    each_engine!(E, placement => {
        let mut machine = Machine::<E>::create_as(9, 1 << 30, MEMORY, None);
        for number in 0..6_000 {
            machine.put(format!("key{number}").as_bytes(), &[7; 900]);
        }
        machine.run_until_idle();
        let mut all = Vec::new();
        machine.slab.statistics(&mut all);
        let value = |name: &str| all.iter().find(|statistic| statistic.name == name).unwrap().value;
        let parts = all.iter().filter(|part| part.name.starts_with("memory_") && part.name != "memory_limit_bytes");
        assert_eq!(parts.map(|part| part.value).sum::<u64>(), MEMORY, "{placement}");
        assert_eq!(value("memory_index_bytes") + value("memory_tables_bytes"), value("index_bytes"), "{placement}");
        assert!(value("memory_blocks_bytes") >= value("cache_bytes") && value("cache_bytes") > 0, "{placement}");
        assert!(value("memory_blocks_bytes") <= machine.effects.pool().held_bytes() as u64 + (1 << 20), "{placement}");
    });
}
