//! Put, get, delete; keys; versions; parts.

use stratakv_base::key::KeyError;
use stratakv_base::limits::KEY_BYTES_MAX;
use stratakv_base::{CollectionId, Expiry, Key};
use stratakv_engine::{Capability, Error, Expect, Operation, RecordPart};

use super::Subject;
use super::ask::{
    check_value, delete, delete_of, done, expect_absent, expect_value, failed, fill, get, get_part, key, put, put_of,
    put_with,
};

/// A key never written has no record.
pub fn an_absent_key_is_none(subject: &mut dyn Subject) {
    expect_absent(subject, &key("nothing"));
    assert!(get_part(subject, &key("nothing"), RecordPart::Meta).is_none());
    let nothing = done(subject.execute(delete_of(&key("nothing"))));
    assert_eq!(nothing, (0, false), "deleting an absent key says that it did not exist, and has no version");
}

/// The way of every record.
pub fn put_get_delete(subject: &mut dyn Subject) {
    let (a, b) = (key("a"), key("b"));
    let (version, existed) = done(subject.execute(put_of(&a, "one")));
    assert!(!existed, "a new key did not exist");
    put(subject, &b, "two");
    let record = expect_value(subject, &a, b"one");
    assert_eq!(record.version, version, "a get shows the version that the put was answered with");
    assert_eq!((record.flags, record.expiry), (0, Expiry::NEVER));
    assert!(delete(subject, &a));
    expect_absent(subject, &a);
    assert_eq!(done(subject.execute(delete_of(&a))), (0, false), "the second delete finds nothing");
    expect_value(subject, &b, b"two");
    put(subject, &a, "again");
    expect_value(subject, &a, b"again");
}

/// One value per key, before and after reopening.
pub fn overwriting_keeps_only_the_newest(subject: &mut dyn Subject) {
    let k = key("k");
    for round in 0..100 {
        let (_, existed) = done(subject.execute(put_of(&k, format!("value {round}"))));
        assert_eq!(existed, round > 0 && !subject.capabilities().blind, "existed, in round {round}");
        expect_value(subject, &k, format!("value {round}").as_bytes());
    }
    subject.reopen();
    expect_value(subject, &k, b"value 99");
}

/// Flags come back as written and change with the value.
pub fn flags_are_kept(subject: &mut dyn Subject) {
    let k = key("k");
    for flags in [0, 1, 0xFFFF, u32::MAX] {
        done(subject.execute(put_with(&k, "v", flags, Expiry::NEVER, Expect::Any)));
        assert_eq!(get(subject, &k).expect("it was just put").flags, flags);
        subject.reopen();
        assert_eq!(get(subject, &k).expect("it was put before reopening").flags, flags);
    }
}

/// No byte means anything in a key.
pub fn keys_are_any_bytes(subject: &mut dyn Subject) {
    let keys: Vec<Key> =
        (0..=255u8).flat_map(|byte| [key([byte]), key([byte, 0]), key([0, byte]), key([byte; 9])]).collect();
    for (number, key) in keys.iter().enumerate() {
        put(subject, key, number.to_string());
    }
    // Where two are equal ([0, 0] is made twice), the last one written counts.
    let last = |wanted: &Key| keys.iter().rposition(|key| key == wanted).unwrap_or_default();
    for reopened in [false, true] {
        if reopened {
            subject.reopen();
        }
        for key in &keys {
            expect_value(subject, key, last(key).to_string().as_bytes());
        }
    }
}

/// 1 to 65,535 bytes; else a clear error, and nothing changed.
pub fn keys_have_limits(subject: &mut dyn Subject) {
    for len in [1, 255, 256, 4000, 4096, 5000, 65_534, KEY_BYTES_MAX] {
        let long = key(fill(len as u64, len));
        put(subject, &long, format!("under a key of {len}"));
        expect_value(subject, &long, format!("under a key of {len}").as_bytes());
    }
    let too_long = Key::bound(CollectionId(0), &vec![b'k'; KEY_BYTES_MAX + 1]);
    let empty = Key::bound(CollectionId(0), b"");
    assert_eq!(failed(subject.execute(put_of(&too_long, "v"))), Error::Key(KeyError::TooLong(KEY_BYTES_MAX + 1)));
    assert_eq!(failed(subject.execute(put_of(&empty, "v"))), Error::Key(KeyError::Empty));
    subject.reopen();
    for len in [1, 255, 256, 4000, 4096, 5000, 65_534, KEY_BYTES_MAX] {
        expect_value(subject, &key(fill(len as u64, len)), format!("under a key of {len}").as_bytes());
    }
}

/// Keys that share 8, 64 or 1,000 bytes do not stand for each other (KVell's prototype mixes them
/// up).
pub fn keys_with_long_common_prefixes_are_different(subject: &mut dyn Subject) {
    let keys: Vec<Key> = [8, 16, 64, 1000]
        .iter()
        .flat_map(|len| (0..4u8).map(move |last| key([vec![b'p'; *len], vec![last]].concat())))
        .chain([8, 16, 64, 1000].iter().map(|len| key(vec![b'p'; *len])))
        .collect();
    for (number, key) in keys.iter().enumerate() {
        put(subject, key, fill(number as u64, 100));
    }
    for (number, key) in keys.iter().enumerate().step_by(2) {
        assert!(delete(subject, key), "key {number}");
    }
    subject.reopen();
    for (number, key) in keys.iter().enumerate() {
        match number % 2 {
            0 => expect_absent(subject, key),
            _ => drop(expect_value(subject, key, &fill(number as u64, 100))),
        }
    }
}

/// The same bytes in two collections are two keys.
pub fn collections_are_apart(subject: &mut dyn Subject) {
    let keys = [0, 1, 254, 255, 256, u32::MAX - 1].map(|id| Key::new(CollectionId(id), b"k").expect("a key"));
    for (number, key) in keys.iter().enumerate() {
        put(subject, key, number.to_string());
    }
    assert!(delete(subject, &keys[1]));
    for (number, key) in keys.iter().enumerate().filter(|(number, _)| *number != 1) {
        expect_value(subject, key, number.to_string().as_bytes());
    }
    expect_absent(subject, &keys[1]);
}

/// Over all keys, over deletes, over reopening.
pub fn versions_only_grow(subject: &mut dyn Subject) {
    let mut last = 0;
    for round in 0..4 {
        for name in ["a", "b", "c"] {
            let version = put(subject, &key(name), format!("{name}{round}"));
            assert!(version > last, "version {version} after {last}");
            last = version;
            assert_eq!(get(subject, &key(name)).map(|record| record.version), Some(version));
        }
        delete(subject, &key("a"));
        let again = put(subject, &key("a"), "again");
        assert!(again > last, "version {again} after a delete, {last} before it");
        last = again;
        subject.reopen();
        assert_eq!(get(subject, &key("a")).map(|record| record.version), Some(last), "reopening keeps versions");
    }
}

/// A delete survives reopening, whatever was written under the key before and elsewhere after.
pub fn deleted_keys_stay_deleted(subject: &mut dyn Subject) {
    let keys: Vec<Key> = (0..60).map(|number| key(format!("key{number}"))).collect();
    for (number, key) in keys.iter().enumerate() {
        for size in [10, 3000, 100, 9000, 500] {
            put(subject, key, fill(number as u64, size));
        }
    }
    for key in keys.iter().step_by(3) {
        assert!(delete(subject, key));
    }
    for round in 0..2 {
        subject.reopen();
        for (number, key) in keys.iter().enumerate() {
            match number % 3 {
                0 => expect_absent(subject, key),
                _ => drop(expect_value(subject, key, &fill(number as u64, 500))),
            }
        }
        put(subject, &super::ask::key(format!("new{round}")), fill(1, 500));
    }
}

/// Meta and ranges, of values in a page and over many blocks.
pub fn parts_of_a_value(subject: &mut dyn Subject) {
    for len in [0, 1, 100, 4096, 10_000, 200_000] {
        let (k, value) = (key(format!("of {len}")), fill(7, len));
        done(subject.execute(put_with(&k, value.clone(), 5, Expiry::NEVER, Expect::Any)));
        let meta = get_part(subject, &k, RecordPart::Meta).expect("it exists");
        assert_eq!((meta.value.len(), meta.value_bytes, meta.flags), (0, len as u64, 5));
        let end = len as u64;
        let wanted =
            [(0, 0), (0, 1), (0, end), (1, 50), (end / 2, end), (end, 1), (end + 1, 1), (4090, 12), (65_530, 5000)];
        for (start, count) in wanted.into_iter().chain([(0, u64::MAX), (u64::MAX, u64::MAX), (3, u64::MAX)]) {
            let record = get_part(subject, &k, RecordPart::Range { start, len: count }).expect("it exists");
            let from = start.min(end) as usize;
            let to = start.saturating_add(count).min(end) as usize;
            assert_eq!(record.value_bytes, end, "value_bytes is the whole value's, also in a range");
            assert!(record.value.to_bytes() == value[from..to], "bytes {start} + {count} of a value of {len}");
        }
        check_value(&get(subject, &k).expect("it exists"), &k, &value);
    }
    assert!(get_part(subject, &key("none"), RecordPart::Range { start: 0, len: 1 }).is_none());
}

/// A sync is answered, on an empty store too, and changes nothing. An engine that makes nothing
/// durable says so.
pub fn sync_answers_done(subject: &mut dyn Subject) {
    let sync = |subject: &mut dyn Subject| {
        let reply = subject.execute(Operation::Sync);
        if subject.capabilities().durable {
            done(reply);
        } else {
            assert_eq!(failed(reply), Error::Unsupported(Capability::Level));
        }
    };
    sync(subject);
    put(subject, &key("k"), "v");
    sync(subject);
    subject.reopen();
    expect_value(subject, &key("k"), b"v");
}
