//! Compressed tables: switched on, and off again.

use stratakv_engine::Error;

use super::*;

/// Of so many bytes, a fifth at random.
fn dull(number: u64, bytes: usize) -> Bytes {
    [&value(number, bytes / 5)[..], &vec![b'.'; bytes - bytes / 5]].concat().into()
}

fn fill(harness: &mut Harness, numbers: impl Iterator<Item = u64>, bytes: usize) {
    for number in numbers {
        let reply = harness.ask(write(vec![put(&name(number), dull(number, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "key {number}: {reply:?}");
    }
}

fn assert_filled(harness: &mut Harness, numbers: impl Iterator<Item = u64>, bytes: usize) {
    for number in numbers {
        let reply = harness.ask(get(&name(number)));
        assert_eq!(found(&reply).as_deref(), Some(&dull(number, bytes)[..]), "key {number}");
    }
}

/// The version that both superblocks have on the volume.
fn format(harness: &Harness) -> u8 {
    assert_eq!(harness.volume[16], harness.volume[4096 + 16]);
    harness.volume[16]
}

fn table_bytes(harness: &Harness) -> (u64, u64) {
    (harness.statistic("table_bytes"), harness.statistic("table_plain_bytes"))
}

#[test]
fn a_volume_is_of_version_5_as_long_as_tables_are_compressed() {
    for pmem_levels_bytes in [0, 128 << 10] {
        let config =
            MatrixConfig { compression: Compression::Lz4, level_bytes: 64 << 10, pmem_levels_bytes, ..config() };
        let mut harness = Harness::new(config, (512 << 10) + pmem_levels_bytes as usize, UNIT_BYTES);
        assert_eq!(format(&harness), 2);
        fill(&mut harness, 0..8_000, 150);
        harness.run_until_idle();
        let (bytes, plain_bytes) = table_bytes(&harness);
        assert!(bytes * 10 < plain_bytes * 8, "{bytes} of {plain_bytes} bytes");
        assert_eq!(format(&harness), 5);
        assert!(harness.statistic("table_write_bytes") * 10 < harness.statistic("table_plain_write_bytes") * 8);
        harness.close();
        harness.reopen();
        assert_filled(&mut harness, 0..8_000, 150);
        assert_eq!(table_bytes(&harness), (bytes, plain_bytes), "the manifest says it");
        harness.assert_sound();
        harness.config.compression = Compression::None;
        harness.reopen();
        let mut rounds = 0;
        while format(&harness) == 5 {
            rounds += 1;
            assert!(rounds < 30, "{:?}", table_bytes(&harness));
            fill(&mut harness, 0..8_000, 150);
            harness.run_until_idle();
        }
        let (bytes, plain_bytes) = table_bytes(&harness);
        assert_eq!((bytes, format(&harness)), (plain_bytes, if pmem_levels_bytes > 0 { 3 } else { 2 }));
        assert_filled(&mut harness, 0..8_000, 150);
        harness.assert_sound();
    }
}

/// A volume that is full of compressed tables has no room for them once they are plain: they stay
/// compressed, deletes go on, and what was deleted makes room again.
#[test]
pub(super) fn a_full_volume_of_compressed_tables_recovers_when_compression_is_off() {
    let lengths = MatrixConfig { table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
    let config = MatrixConfig { capacity_bytes: Some(4 << 20), compression: Compression::Lz4, ..lengths };
    let mut harness = Harness::new(config, 512 << 10, UNIT_BYTES);
    let mut held = 0;
    loop {
        match harness.ask(write(vec![put(&name(held), dull(held, 300))])) {
            Reply::Done { .. } => held += 1,
            Reply::Failed(Error::Full(_)) => break,
            other => panic!("key {held}: {other:?}"),
        }
    }
    assert!(held * 300 > 4 << 20, "only {held} values, of which less than a half would have room as they are");
    harness.config.compression = Compression::None;
    harness.reopen();
    harness.assert_sound();
    // Columns go through all tables, and hardly anything is gone afterwards.
    for round in 0..24 {
        for number in (0..held).filter(|number| number % 8 == 1) {
            let reply = harness.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number} of {held}: {reply:?}");
        }
    }
    harness.assert_sound();
    let stays = |number: &u64| number.is_multiple_of(4);
    for round in 0..3 {
        // What stays lies in every table.
        for number in (0..held).filter(|number| !stays(number)) {
            let reply = harness.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number} of {held}: {reply:?}");
        }
        assert_filled(&mut harness, (0..held).filter(stays), 300);
        fill(&mut harness, (0..held / 8).filter(|number| !stays(number)), 300);
    }
    harness.run_until_idle();
    harness.assert_sound();
    harness.reopen();
    assert_filled(&mut harness, (0..held).filter(|number| stays(number) || *number < held / 8), 300);
}
