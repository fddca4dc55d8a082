//! Compressed tables: switched on, and off again.

use stratakv_engine::Error;

use super::*;

/// Of so many bytes, a fifth at random.
fn dull(number: u64, bytes: usize) -> Bytes {
    [&value(number, bytes / 5)[..], &vec![b'.'; bytes - bytes / 5]].concat().into()
}

fn fill(trial: &mut Trial, numbers: impl Iterator<Item = u64>, bytes: usize) {
    for number in numbers {
        let reply = trial.ask(write(vec![put(&name(number), dull(number, bytes))]));
        assert!(matches!(reply, Reply::Done { .. }), "key {number}: {reply:?}");
    }
}

fn assert_filled(trial: &mut Trial, numbers: impl Iterator<Item = u64>, bytes: usize) {
    for number in numbers {
        let reply = trial.ask(get(&name(number)));
        assert_eq!(found(&reply).as_deref(), Some(&dull(number, bytes)[..]), "key {number}");
    }
}

/// The version that both superblocks have on the volume.
fn format(trial: &Trial) -> u8 {
    assert_eq!(trial.volume[16], trial.volume[4096 + 16]);
    trial.volume[16]
}

fn table_bytes(trial: &Trial) -> (u64, u64) {
    (trial.statistic("table_bytes"), trial.statistic("table_plain_bytes"))
}

#[test]
fn a_volume_is_of_version_5_as_long_as_tables_are_compressed() {
    for pmem_levels_bytes in [0, 128 << 10] {
        let config =
            MatrixConfig { compression: Compression::Lz4, level_bytes: 64 << 10, pmem_levels_bytes, ..config() };
        let mut trial = Trial::new(config, (512 << 10) + pmem_levels_bytes as usize, UNIT_BYTES);
        assert_eq!(format(&trial), 2);
        fill(&mut trial, 0..8_000, 150);
        trial.settle();
        let (bytes, plain_bytes) = table_bytes(&trial);
        assert!(bytes * 10 < plain_bytes * 8, "{bytes} of {plain_bytes} bytes");
        assert_eq!(format(&trial), 5);
        assert!(trial.statistic("table_write_bytes") * 10 < trial.statistic("table_plain_write_bytes") * 8);
        trial.close();
        trial.reopen();
        assert_filled(&mut trial, 0..8_000, 150);
        assert_eq!(table_bytes(&trial), (bytes, plain_bytes), "the manifest says it");
        trial.assert_sound();
        trial.config.compression = Compression::None;
        trial.reopen();
        let mut rounds = 0;
        while format(&trial) == 5 {
            rounds += 1;
            assert!(rounds < 30, "{:?}", table_bytes(&trial));
            fill(&mut trial, 0..8_000, 150);
            trial.settle();
        }
        let (bytes, plain_bytes) = table_bytes(&trial);
        assert_eq!((bytes, format(&trial)), (plain_bytes, if pmem_levels_bytes > 0 { 3 } else { 2 }));
        assert_filled(&mut trial, 0..8_000, 150);
        trial.assert_sound();
    }
}

/// A volume that is full of compressed tables has no room for them once they are plain: they stay
/// compressed, deletes go on, and what was deleted makes room again.
#[test]
pub(super) fn a_full_volume_of_compressed_tables_recovers_when_compression_is_off() {
    let lengths = MatrixConfig { table_bytes: 16 << 10, level_bytes: 64 << 10, ..config() };
    let config = MatrixConfig { capacity_bytes: Some(4 << 20), compression: Compression::Lz4, ..lengths };
    let mut trial = Trial::new(config, 512 << 10, UNIT_BYTES);
    let mut held = 0;
    loop {
        match trial.ask(write(vec![put(&name(held), dull(held, 300))])) {
            Reply::Done { .. } => held += 1,
            Reply::Failed(Error::Full(_)) => break,
            other => panic!("key {held}: {other:?}"),
        }
    }
    assert!(held * 300 > 4 << 20, "only {held} values, of which less than a half would have room as they are");
    trial.config.compression = Compression::None;
    trial.reopen();
    trial.assert_sound();
    // Columns go through all tables, and hardly anything is gone afterwards.
    for round in 0..24 {
        for number in (0..held).filter(|number| number % 8 == 1) {
            let reply = trial.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number} of {held}: {reply:?}");
        }
    }
    trial.assert_sound();
    let stays = |number: &u64| number.is_multiple_of(4);
    for round in 0..3 {
        // What stays lies in every table.
        for number in (0..held).filter(|number| !stays(number)) {
            let reply = trial.ask(write(vec![delete(&name(number))]));
            assert!(matches!(reply, Reply::Done { .. }), "round {round}, key {number} of {held}: {reply:?}");
        }
        assert_filled(&mut trial, (0..held).filter(stays), 300);
        fill(&mut trial, (0..held / 8).filter(|number| !stays(number)), 300);
    }
    trial.settle();
    trial.assert_sound();
    trial.reopen();
    assert_filled(&mut trial, (0..held).filter(|number| stays(number) || *number < held / 8), 300);
}
