//! Values of every size, and keys whose values change size.

use stratakv_base::limits::VALUE_BYTES_MAX;
use stratakv_engine::{Error, RecordPart};

use super::Subject;
use super::ask::{delete, expect_value, failed, fill, get_part, key, put, put_of};

/// 0 to 4,200 bytes, each, before and after reopening.
pub fn every_size_of_small_values(subject: &mut dyn Subject) {
    for size in 0..=4200 {
        put(subject, &key(format!("s{size}")), fill(1, size));
    }
    for reopened in [false, true] {
        if reopened {
            subject.reopen();
        }
        for size in 0..=4200 {
            expect_value(subject, &key(format!("s{size}")), &fill(1, size));
        }
    }
}

/// A few bytes on either side of every power of two and of every multiple of a slice that an engine
/// may round to.
pub fn around_the_edges_of_classes(subject: &mut dyn Subject) {
    let edges = [8 << 10, 12 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 192 << 10, 256 << 10, 1 << 20];
    // Headers and keys of up to 128 bytes share a block with the value: edges lie that much lower.
    let near = |edge: usize| (edge - 130..=edge + 2).step_by(if edge < 100 << 10 { 3 } else { 11 });
    let sizes: Vec<usize> = edges.into_iter().flat_map(near).collect();
    for sizes in sizes.chunks(100) {
        for size in sizes {
            put(subject, &key(format!("s{size}")), fill(2, *size));
        }
        for size in sizes {
            expect_value(subject, &key(format!("s{size}")), &fill(2, *size));
        }
        subject.reopen();
        for size in sizes {
            expect_value(subject, &key(format!("s{size}")), &fill(2, *size));
            delete(subject, &key(format!("s{size}")));
        }
    }
}

/// Up and down through the classes, with neighbours that must not change.
pub fn growing_and_shrinking_one_key(subject: &mut dyn Subject) {
    let neighbours: Vec<_> =
        (0..20).map(|number| (key(format!("n{number}")), fill(number, 100 * number as usize))).collect();
    for (key, value) in &neighbours {
        put(subject, key, value.clone());
    }
    let k = key("k");
    let sizes = [0, 1, 60, 500, 1000, 4000, 4096, 8000, 70_000, 1 << 20, 70_000, 8000, 4096, 100, 1, 0, 300_000, 2];
    for (round, size) in sizes.into_iter().enumerate() {
        put(subject, &k, fill(round as u64, size));
        expect_value(subject, &k, &fill(round as u64, size));
        if round % 3 == 0 {
            subject.reopen();
            expect_value(subject, &k, &fill(round as u64, size));
        }
    }
    for (key, value) in &neighbours {
        expect_value(subject, key, value);
    }
}

/// Far more is written than is ever alive: the space of what was overwritten and deleted comes
/// back. (On a subject whose disk is smaller than what is written in all, an engine that loses
/// space fails here with `Full`.)
pub fn space_of_deleted_values_is_used_again(subject: &mut dyn Subject) {
    let mut round_of = vec![None; 40];
    for round in 0..400u64 {
        let slot = (round * 7 % 40) as usize;
        let k = key(format!("slot{slot}"));
        if round % 5 == 4 {
            delete(subject, &k);
            round_of[slot] = None;
        } else {
            put(subject, &k, fill(round, (round * 7919 % 150_000) as usize));
            round_of[slot] = Some(round);
        }
    }
    subject.reopen();
    for (slot, round) in round_of.into_iter().enumerate() {
        if let Some(round) = round {
            expect_value(subject, &key(format!("slot{slot}")), &fill(round, (round * 7919 % 150_000) as usize));
        }
    }
}

/// 64 MiB is stored and read, whole and in part; one byte more is refused and changes nothing.
pub fn the_largest_value_and_one_byte_more(subject: &mut dyn Subject) {
    let k = key("k");
    put(subject, &k, "before");
    let reply = subject.execute(put_of(&k, vec![0; VALUE_BYTES_MAX + 1]));
    let (len_bytes, max_bytes) = (VALUE_BYTES_MAX as u64 + 1, VALUE_BYTES_MAX as u64);
    assert_eq!(failed(reply), Error::ValueTooLarge { len_bytes, max_bytes });
    expect_value(subject, &k, b"before");
    let largest = fill(3, VALUE_BYTES_MAX);
    put(subject, &k, largest.clone());
    expect_value(subject, &k, &largest);
    subject.reopen();
    let end = get_part(subject, &k, RecordPart::Range { start: max_bytes - 5, len: 100 }).expect("it exists");
    assert!(end.value.to_bytes() == largest[VALUE_BYTES_MAX - 5..], "the last five bytes");
    expect_value(subject, &k, &largest);
    assert!(delete(subject, &k));
    put(subject, &k, largest.slice(..VALUE_BYTES_MAX - 1));
    expect_value(subject, &k, &largest[..VALUE_BYTES_MAX - 1]);
}
